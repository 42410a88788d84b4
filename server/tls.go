package server

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
)

// keyPair reads a certificate with its chain, and its private key, both PEM.
func keyPair(log *slog.Logger, certFile, keyFile string) (*reread[*tls.Certificate], error) {
	pair, err := newReread(log, func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, fmt.Errorf("%s and %s are no certificate and its private key: %w", certFile, keyFile, err)
		}
		return &pair, nil
	}, certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
	}
	return pair, nil
}

// authorities reads a file of PEM certificates that may sign callers' certificates.
func authorities(log *slog.Logger, file string) (*reread[*x509.CertPool], error) {
	pool, err := newReread(log, func(contents [][]byte) (*x509.CertPool, error) {
		pool, err := parsePool(contents[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return pool, nil
	}, file)
	if err != nil {
		return nil, fmt.Errorf("--client-ca: %w", err)
	}
	return pool, nil
}

func parsePool(text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	found := 0
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a %s, where only certificates should be", block.Type)
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(certificate)
		found++
	}
	if found == 0 {
		return nil, errors.New("it holds no PEM certificate")
	}
	return pool, nil
}

// tlsConfig is made again for each handshake, from what the files say then. Sessions are not resumed, so that each
// connection is judged by the certificates of now.
func (c *Callers) tlsConfig() *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
	each := base.Clone()
	each.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.Certificates = []tls.Certificate{*c.pair.get()}
		if c.clientCA != nil {
			now.ClientAuth = tls.RequireAndVerifyClientCert
			now.ClientCAs = c.clientCA.get()
		}
		return now, nil
	}
	return each
}
