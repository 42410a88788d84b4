package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Visitor is how a client talks to those that the ca.crt of one Secret trusts, with the certificate of another, which
// may be nil.
func Visitor(authority, client map[string][]byte) (*tls.Config, error) {
	if client != nil {
		return Client(map[string][]byte{objects.KeyTrust: authority[objects.KeyTrust],
			objects.KeyCertificate: client[objects.KeyCertificate], objects.KeyPrivate: client[objects.KeyPrivate]})
	}
	trust, err := pool(authority[objects.KeyTrust])
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}, nil
}

// Client is how a client with the certificate of this Secret talks to those that its ca.crt trusts.
func Client(data map[string][]byte) (*tls.Config, error) {
	if _, err := certificates(data[objects.KeyCertificate]); err != nil {
		return nil, fmt.Errorf("tls.crt: %w", err)
	}
	if len(data[objects.KeyPrivate]) > longestPrivate {
		return nil, errors.New("tls.key is too long")
	}
	certificate, err := tls.X509KeyPair(data[objects.KeyCertificate], data[objects.KeyPrivate])
	if err != nil {
		return nil, errors.New("tls.crt and tls.key are not a pair")
	}
	trust, err := pool(data[objects.KeyTrust])
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: trust, MinVersion: tls.VersionTLS12}, nil
}

// pool are the certificates of a ca.crt. A peer that shows a certificate makes us search them.
func pool(text []byte) (*x509.CertPool, error) {
	all, err := certificates(text)
	if err != nil {
		return nil, fmt.Errorf("ca.crt: %w", err)
	}
	trust := x509.NewCertPool()
	for _, c := range all {
		trust.AddCert(c)
	}
	return trust, nil
}
