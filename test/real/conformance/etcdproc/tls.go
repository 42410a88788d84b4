//go:build unix

package etcdproc

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/quorate-dev/quorate/test/certtest"
)

// An Authority signs certificates for one cluster of a test: one for all its members, and one for each client.
type Authority struct {
	t   testing.TB
	dir string
	*certtest.Pair
}

// NewAuthority makes an authority with its files, and those of the members and of JWT, in a folder of the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t, t.TempDir(),
		certtest.Authority(t, pkix.Name{CommonName: "authority", SerialNumber: rand.Text()})}
	a.write("ca.crt", a.PEM())
	a.write("ca.key", a.KeyPEM())
	a.Renew()
	signer := certtest.Authority(t, pkix.Name{})
	public, err := x509.MarshalPKIXPublicKey(signer.PublicKey)
	must(t, err)
	a.write("jwt.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	a.write("jwt.key", signer.KeyPEM())
	return a
}

// Renew gives the members another certificate.
func (a *Authority) Renew() {
	server := a.sign("", net.IPv4(127, 0, 0, 1))
	a.write("server.crt", server.PEM())
	a.write("server.key", server.KeyPEM())
}

// File is the path of one of its files: ca.crt, ca.key, server.crt, server.key, jwt.pub or jwt.key.
func (a *Authority) File(name string) string { return filepath.Join(a.dir, name) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// sign makes a certificate, for a client in this name or for servers at these addresses.
func (a *Authority) sign(name string, at ...net.IP) *certtest.Pair {
	return certtest.New(a.t, x509.Certificate{
		Subject: pkix.Name{CommonName: name, Organization: []string{"test"}}, IPAddresses: at,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, a.Pair)
}

// Client is how a client with a certificate in this name reaches the members.
func (a *Authority) Client(name string) *tls.Config {
	a.t.Helper()
	return &tls.Config{RootCAs: a.Pool(), Certificates: []tls.Certificate{a.sign(name).TLS()},
		MinVersion: tls.VersionTLS12}
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

func (a *Authority) write(name string, text []byte) {
	must(a.t, os.WriteFile(filepath.Join(a.dir, name), text, 0o600))
}
