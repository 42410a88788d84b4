package install

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// validity of the certificate of the hooks. It is not renewed: installing again makes another.
const validity = 10 * 365 * 24 * time.Hour

// credentials are by what the hooks and their callers know each other.
type credentials struct {
	ca, certificate, key []byte // PEM
	tokens               []byte // a line each; the last is what the caller sends
	records              []byte // the keys that seal records, a line each; the first seals
}

func (c credentials) token() string {
	lines := strings.Fields(string(c.tokens))
	return lines[len(lines)-1]
}

// newCredentials makes them. The authority signs for this one host, once: its key is forgotten, so those who trust
// the authority trust this certificate and nothing else.
func newCredentials(host string, now time.Time) (credentials, error) {
	none := credentials{}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return none, err
	}
	authority, certificate := templates(host, now)
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, authorityKey.Public(), authorityKey)
	if err != nil {
		return none, err
	}
	certificateDER, err := x509.CreateCertificate(rand.Reader, certificate, authority, key.Public(), authorityKey)
	if err != nil {
		return none, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return none, err
	}
	return credentials{
		ca:          pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authorityDER}),
		certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificateDER}),
		key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
		tokens:      randomLine(),
		records:     randomLine(),
	}, nil
}

// randomLine is a line of 256 bits that no one can guess.
func randomLine() []byte {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	return []byte(base64.RawURLEncoding.EncodeToString(random) + "\n")
}

func templates(host string, now time.Time) (authority, certificate *x509.Certificate) {
	from := now.Add(-time.Hour)
	to := now.Add(validity) // an hour for clocks that are late
	serial := new(big.Int).SetInt64(now.UnixNano())
	authority = &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "quorate hooks " + now.UTC().Format(time.DateTime)},
		NotBefore: from, NotAfter: to, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign, PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{host},
	}
	certificate = &x509.Certificate{
		SerialNumber: new(big.Int).Add(serial, big.NewInt(1)), DNSNames: []string{host},
		NotBefore: from, NotAfter: to, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return authority, certificate
}

// keptCredentials reads them from the Secret of an earlier installation.
func keptCredentials(file string, stdin io.Reader, host string) (credentials, error) {
	text, err := os.ReadFile(file)
	if file == "-" {
		text, err = io.ReadAll(stdin)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("--keep: %w", err)
	}
	var s corev1.Secret
	if err := yaml.Unmarshal(text, &s); err != nil || s.Kind != "Secret" {
		return credentials{}, fmt.Errorf("--keep: %s holds no Secret: kubectl -n NAMESPACE get secret %s -o yaml "+
			"prints one", file, forHooks)
	}
	c, err := credentialsIn(text, host)
	if err != nil {
		return credentials{}, fmt.Errorf("--keep: the Secret in %s can't be kept: %w; without --keep, new ones are "+
			"made", file, err)
	}
	return c, nil
}

// credentialsIn are those of a Secret, if they are good for this host.
func credentialsIn(text []byte, host string) (credentials, error) {
	var s corev1.Secret
	if err := yaml.Unmarshal(text, &s); err != nil {
		return credentials{}, errors.New("it is no Secret in YAML")
	}
	c := credentials{ca: s.Data["ca.crt"], certificate: s.Data["tls.crt"], key: s.Data["tls.key"],
		tokens: s.Data["tokens"], records: s.Data["records"]}
	if len(strings.Fields(string(c.records))) == 0 {
		c.records = randomLine()
	}
	return c, c.fit(host, time.Now())
}

// fit reports what keeps callers from knowing the hooks at this host by these credentials.
func (c credentials) fit(host string, now time.Time) error {
	if len(strings.Fields(string(c.tokens))) == 0 {
		return errors.New("it holds no tokens")
	}
	pair, err := tls.X509KeyPair(c.certificate, c.key)
	if err != nil {
		return errors.New("its tls.crt and tls.key are no certificate and its private key")
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(c.ca) {
		return errors.New("its ca.crt holds no certificate")
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now})
	return err
}

// makeCredentials makes them, or takes those of --keep, or else those that were found.
func (i *installation) makeCredentials(found []byte, stdin io.Reader) (err error) {
	switch {
	case i.keep != "":
		i.credentials, err = keptCredentials(i.keep, stdin, i.host())
	case len(bytes.TrimSpace(found)) > 0:
		if i.credentials, err = credentialsIn(found, i.host()); err != nil {
			return fmt.Errorf("the Secret %s/%s, which is there, can't be kept: %w; delete it, and others are made: "+
				"kubectl -n %s delete secret %s",
				i.namespace, forHooks, err, i.namespace, forHooks)
		}
	default:
		i.credentials, err = newCredentials(i.host(), time.Now())
	}
	return err
}
