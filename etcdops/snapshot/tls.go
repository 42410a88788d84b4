package snapshot

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/token"
)

// tlsFiles are the files of PEM by which members are talked to, and the name that their certificates are for; empty
// where none is named.
type tlsFiles struct{ ca, cert, key, name string }

// visitor puts tokens of the key in a file on calls; nil for no file.
func visitor(file string) (*token.Visitor, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, command.Errorf("--token-key: the file %s can't be read: %s", file, archive.Words(err))
	}
	key, err := token.ReadPrivate(raw)
	if err != nil {
		return nil, command.Errorf("--token-key: the file %s can't be used: %s", file, err)
	}
	return token.NewVisitor(key), nil
}

// config is how the members are talked to; nil for plain text, when no file is named.
func (f tlsFiles) config() (*tls.Config, error) {
	if f.ca+f.cert+f.key == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), ServerName: f.name}
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
