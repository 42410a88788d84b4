package snapshot

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
)

// tlsFiles are the files of PEM by which members are talked to; empty where none is named.
type tlsFiles struct{ ca, cert, key string }

// config is how the members are talked to; nil for plain text, when no file is named.
func (f tlsFiles) config() (*tls.Config, error) {
	if f == (tlsFiles{}) {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}
	if f.ca != "" {
		authorities, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, command.Errorf("--ca: the file %s can't be read: %s", f.ca, archive.Words(err))
		}
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, command.Errorf("--ca: the file %s holds no certificate in PEM", f.ca)
		}
	}
	if f.cert != "" || f.key != "" {
		own, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, command.Errorf("--cert and --cert-key: %s and %s are no certificate and its key in PEM that "+
				"can be read", f.cert, f.key)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
