package token

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func pair(t *testing.T, curve elliptic.Curve) (key *ecdsa.PrivateKey, private, public []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	open, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	require.NoError(t, err)
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: open})
}

func TestSign(t *testing.T) {
	key, private, public := pair(t, elliptic.P256())
	read, err := Read(private, public)
	require.NoError(t, err)
	now := time.Unix(1000, 0)
	signed, err := read.Sign(AnyRevision, now)
	require.NoError(t, err)
	parts := strings.Split(signed, ".")
	require.Len(t, parts, 3)
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	var claims struct {
		Username string
		Revision float64
		Exp      int64
	}
	require.NoError(t, json.Unmarshal(raw, &claims))
	assert.Equal(t, "root", claims.Username)
	assert.Equal(t, uint64(AnyRevision), uint64(claims.Revision), "exactly")
	assert.Equal(t, int64(1600), claims.Exp)
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	require.NoError(t, err)
	require.Len(t, signature, 64)
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	assert.True(t, ecdsa.Verify(&key.PublicKey, sum[:], new(big.Int).SetBytes(signature[:32]),
		new(big.Int).SetBytes(signature[32:])))
}

func TestRead(t *testing.T) {
	_, private, public := pair(t, elliptic.P256())
	_, other, otherPublic := pair(t, elliptic.P384())
	for _, wrong := range [][2][]byte{{nil, public}, {private, nil}, {other, otherPublic}, {private, otherPublic},
		{[]byte("secret word"), public}, {public, public}} {
		_, err := Read(wrong[0], wrong[1])
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "secret word")
	}
	var none *Visitor
	none.Knows(1)
	assert.Empty(t, none.Options())
	assert.Empty(t, NewVisitor(nil).Options())
}
