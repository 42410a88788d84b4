// Package token signs the tokens by which Quorate comes to members that ask clients for no certificate. A login with a
// password goes through etcd's log and so needs a quorum; a token that is signed with the members' own key needs none.
package token

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/quorate-dev/quorate/hooks/users"
)

// AnyRevision is a revision of users and roles that none comes to. With it a token is as good as root's certificate for
// everything except keys: etcd refuses a token of an older revision than its own, and to read or write keys one of
// another revision than its own (isOpPermitted in its auth/store.go, doSerialize in its etcdserver/v3_server.go). It
// is the largest number that a float64, as which etcd reads it, has exactly.
const AnyRevision = 1 << 53

// life of a token: that of those which etcd gives out (ttl in its flag auth-token). The clocks of Quorate and of
// members may differ by as much.
const life = 10 * time.Minute

// Key signs tokens.
type Key struct{ private *ecdsa.PrivateKey }

// Errors of Read. They hold nothing of what is in the Secret.
var (
	errPrivate = errors.New("token.key is not the private key of ECDSA P-256 in PEM that etcd's tokens need")
	errPublic  = errors.New("token.pub does not belong to token.key, or can't be read")
)

// Read reads a pair of keys in PEM, as in the Secret `<cluster>-token`.
func Read(private, public []byte) (*Key, error) {
	key, err := ReadPrivate(private)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(public)
	if block == nil {
		return nil, errPublic
	}
	other, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil || !key.private.PublicKey.Equal(other) {
		return nil, errPublic
	}
	return key, nil
}

// ReadPrivate reads the private key alone.
func ReadPrivate(private []byte) (*Key, error) {
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, errPrivate
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return fit(key)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, is := parsed.(*ecdsa.PrivateKey); err == nil && is {
		return fit(key)
	}
	return nil, errPrivate
}

func fit(key *ecdsa.PrivateKey) (*Key, error) {
	if key.Curve != elliptic.P256() {
		return nil, errPrivate
	}
	return &Key{key}, nil
}

// Sign is a token in the name of root for a revision of users and roles (RFC 7519 with ES256, RFC 7518 section 3.4).
func (k *Key) Sign(revision uint64, now time.Time) (string, error) {
	claims, err := json.Marshal(map[string]any{"username": users.Root, "revision": revision,
		"exp": now.Add(life).Unix()})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding
	signed := text.EncodeToString([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + text.EncodeToString(claims)
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, k.private, sum[:])
	if err != nil {
		return "", err
	}
	var signature [64]byte
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + text.EncodeToString(signature[:]), nil
}

// header is where etcd looks for a token (TokenFieldNameGRPC in its api/v3rpc/rpctypes/metadatafields.go).
const header = "token"

// Metadata is what a call with this token carries.
func Metadata(token string) map[string]string { return map[string]string{header: token} }

// Visitor puts a token on every call of a client, where it has a key: for programs that come once.
type Visitor struct {
	key      *Key
	revision atomic.Uint64
}

// NewVisitor signs with this key; nil signs nothing.
func NewVisitor(key *Key) *Visitor {
	v := &Visitor{key: key}
	v.revision.Store(AnyRevision)
	return v
}

// Knows has the tokens be of this revision of users and roles from now on: keys may be read then.
func (v *Visitor) Knows(revision uint64) {
	if v != nil {
		v.revision.Store(revision)
	}
}

// Options make a client come with the tokens.
func (v *Visitor) Options() []grpc.DialOption {
	if v == nil || v.key == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithPerRPCCredentials(v)}
}

// GetRequestMetadata implements [credentials.PerRPCCredentials].
func (v *Visitor) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	signed, err := v.key.Sign(v.revision.Load(), time.Now())
	return Metadata(signed), err
}

// RequireTransportSecurity implements [credentials.PerRPCCredentials]: no token goes out in plain text.
func (v *Visitor) RequireTransportSecurity() bool { return true }

var _ credentials.PerRPCCredentials = (*Visitor)(nil)
