package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/quorate-dev/quorate/hooks"
)

// Visitor is how a client talks to those that the ca.crt of this Secret trusts, with its certificate if there is one.
func Visitor(data map[string][]byte) (*tls.Config, error) {
	if len(data[hooks.KeyCertificate]) > 0 {
		return Client(data)
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(data[hooks.KeyTrust]) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	return &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}, nil
}

// Client is how a client with the certificate of this Secret talks to those that its ca.crt trusts.
func Client(data map[string][]byte) (*tls.Config, error) {
	certificate, err := tls.X509KeyPair(data[hooks.KeyCertificate], data[hooks.KeyPrivate])
	if err != nil {
		return nil, errors.New("tls.crt and tls.key are not a pair")
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(data[hooks.KeyTrust]) {
		return nil, errors.New("ca.crt holds no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{certificate}, RootCAs: trust, MinVersion: tls.VersionTLS12}, nil
}
