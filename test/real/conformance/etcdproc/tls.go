//go:build unix

package etcdproc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority signs certificates for one cluster of a test: one for all its members, and one for each client.
type Authority struct {
	t           testing.TB
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// NewAuthority makes an authority with its files, and those of the members and of JWT, in a folder of the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir(), key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority", SerialNumber: rand.Text()},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	must(t, err)
	a.certificate, err = x509.ParseCertificate(der)
	must(t, err)
	a.write("ca.crt", "CERTIFICATE", der)
	a.writeKey("ca.key", a.key)

	a.Renew()
	signer := newKey(t)
	public, err := x509.MarshalPKIXPublicKey(signer.Public())
	must(t, err)
	a.write("jwt.pub", "PUBLIC KEY", public)
	a.writeKey("jwt.key", signer)
	return a
}

// Renew gives the members another certificate.
func (a *Authority) Renew() {
	server := a.sign("", net.IPv4(127, 0, 0, 1))
	a.write("server.crt", "CERTIFICATE", server.Certificate[0])
	a.writeKey("server.key", server.PrivateKey.(*ecdsa.PrivateKey))
}

// File is the path of one of its files: ca.crt, ca.key, server.crt, server.key, jwt.pub or jwt.key.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

// Certificate of the authority itself.
func (a *Authority) Certificate() *x509.Certificate { return a.certificate }

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sign makes a certificate, for a client in this name or for servers at these addresses.
func (a *Authority) sign(name string, at ...net.IP) tls.Certificate {
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: []string{"test"}}, IPAddresses: at,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	must(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Client is how a client with a certificate in this name reaches the members.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{a.sign(name)}, MinVersion: tls.VersionTLS12}
}

// JWT is etcd's flag for tokens that are signed with a key pair of this authority.
func (a *Authority) JWT() string {
	return "--auth-token=jwt,pub-key=" + filepath.Join(a.dir, "jwt.pub") + ",priv-key=" +
		filepath.Join(a.dir, "jwt.key") + ",sign-method=ES256,ttl=10m"
}

// flags make a member ask clients for certificates of this authority.
func (a *Authority) flags() []string {
	if a == nil {
		return nil
	}
	return []string{
		"--cert-file=" + filepath.Join(a.dir, "server.crt"), "--key-file=" + filepath.Join(a.dir, "server.key"),
		"--trusted-ca-file=" + filepath.Join(a.dir, "ca.crt"), "--client-cert-auth=true",
	}
}

// PeerFlags let a member dial its peers by TLS, although it listens to them in plain text.
func (a *Authority) PeerFlags() []string {
	return []string{
		"--peer-cert-file=" + filepath.Join(a.dir, "server.crt"),
		"--peer-key-file=" + filepath.Join(a.dir, "server.key"),
		"--peer-trusted-ca-file=" + filepath.Join(a.dir, "ca.crt"), "--peer-client-cert-auth=true",
	}
}

func (a *Authority) writeKey(name string, key *ecdsa.PrivateKey) {
	der, err := x509.MarshalECPrivateKey(key)
	must(a.t, err)
	a.write(name, "EC PRIVATE KEY", der)
}

func (a *Authority) write(name, kind string, der []byte) {
	must(a.t, os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}
