// Package certtest makes the certificates that tests show each other.
package certtest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Pair is a certificate and its key.
type Pair struct {
	*x509.Certificate
	Key crypto.Signer
}

// New makes a certificate of this template, signed by a pair, or by itself. Where the template says nothing, it is
// valid from an hour ago until in an hour.
func New(t testing.TB, template x509.Certificate, by *Pair) *Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	if template.SerialNumber == nil {
		template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<60))
		require.NoError(t, err)
	}
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if by == nil {
		by = &Pair{&template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, by.Certificate, key.Public(), by.Key)
	require.NoError(t, err)
	made, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &Pair{made, key}
}

// Authority makes a certificate that signs others.
func Authority(t testing.TB, subject pkix.Name) *Pair {
	t.Helper()
	return New(t, x509.Certificate{Subject: subject, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign}, nil)
}

// CRL is a list of revoked certificates, in DER, signed by this authority.
func (p *Pair) CRL(t testing.TB, revoked ...*x509.Certificate) []byte {
	t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(int64(len(revoked))), ThisUpdate: time.Now(),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, p.Certificate, p.Key)
	require.NoError(t, err)
	return der
}

// PEM is the certificate as text.
func (p *Pair) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Raw})
}

// KeyPEM is the key as text.
func (p *Pair) KeyPEM() []byte {
	der, err := x509.MarshalECPrivateKey(p.Key.(*ecdsa.PrivateKey))
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// TLS is what a client or a server shows.
func (p *Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Raw}, PrivateKey: p.Key}
}

// Pool trusts the certificate.
func (p *Pair) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(p.Certificate)
	return pool
}
