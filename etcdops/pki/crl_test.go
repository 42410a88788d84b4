package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/certtest"
)

// TestCRL: a list in PEM or DER is read, and copied as DER.
func TestCRL(t *testing.T) {
	read := func(text []byte) *observation.CRL {
		return Read(&corev1.Secret{Data: map[string][]byte{"ca.crl": text}}).CRL
	}
	ca := certtest.Authority(t, pkix.Name{CommonName: "authority"})
	web := certtest.New(t, x509.Certificate{}, ca)
	der := ca.CRL(t, web.Certificate)
	text := pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
	for _, list := range [][]byte{der, text, append([]byte("issued today\n"), text...)} {
		crl := read(list)
		require.NotNil(t, crl)
		assert.Empty(t, crl.Flaw)
		assert.Equal(t, []string{serialOf(web.SerialNumber)}, crl.Serials)
		assert.Equal(t, read(der).ID, crl.ID)
		data, err := Make("copy", decision.Revoked{From: "list"},
			map[string]map[string][]byte{"list": {"ca.crl": list, "other": []byte("x")}})
		require.NoError(t, err)
		assert.Equal(t, map[string][]byte{"ca.crl": der}, data)
	}
	assert.NotEqual(t, read(der).ID, read(ca.CRL(t)).ID)
	assert.Nil(t, read(nil))
	chain := Read(&corev1.Secret{Data: map[string][]byte{"tls.crt": slices.Concat(web.PEM(), ca.PEM())}})
	assert.Equal(t, []string{serialOf(web.SerialNumber), serialOf(ca.SerialNumber)}, chain.Serials, "etcd asks for all")
	for _, bad := range [][]byte{slices.Concat(text, text), ca.PEM()} {
		assert.Equal(t, "ca.crl must have one list (X509 CRL) and nothing else: etcd takes one", read(bad).Flaw)
	}
	for _, bad := range [][]byte{[]byte("hunter2"), der[:20], ca.Raw, slices.Concat(der, der), append(der, '\n')} {
		assert.Contains(t, read(bad).Flaw, "ca.crl is no list of revoked certificates")
	}
	many := slices.Repeat([]*x509.Certificate{web.Certificate}, mostRevoked+1)
	assert.Equal(t, "ca.crl names 1001 certificates, and 1000 are the most: replace the authority instead",
		read(ca.CRL(t, many...)).Flaw)
	assert.Contains(t, read(make([]byte, largestCRL+1)).Flaw, "131073 bytes")
}
