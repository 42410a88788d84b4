package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"

	"github.com/quorate-dev/quorate/hooks"
)

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
