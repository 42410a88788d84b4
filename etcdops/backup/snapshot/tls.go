package snapshot

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"os"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/command"
	"github.com/quorate-dev/quorate/etcdops/reach"
	"github.com/quorate-dev/quorate/etcdops/token"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// tlsFiles are the files of PEM by which members are talked to, and the name that their certificates are for; empty
// where none is named. Prefix is that of the flags.
type tlsFiles struct{ ca, cert, key, name, prefix string }

// reaching is what flags say of how a cluster is reached.
type reaching struct {
	cluster                  archive.Cluster
	files                    tlsFiles
	tokenKey, user, password string
	within                   *string
	namespace                string
}

// flags are "endpoint" and others, with a prefix; of says which cluster it is.
func (r *reaching) flags(flags *flag.FlagSet, prefix, of string) {
	r.files.prefix = prefix
	flags.Func(prefix+"endpoint", "client `URL` of "+of+"; may be repeated; required", add(&r.cluster.Endpoints))
	flags.StringVar(&r.files.ca, prefix+"ca", "",
		"`file` with PEM certificates of those who sign the members' certificates")
	flags.StringVar(&r.files.cert, prefix+"cert", "", "`file` with the certificate that members are shown, PEM")
	flags.StringVar(&r.files.key, prefix+"cert-key", "", "`file` with its private key, PEM")
	flags.StringVar(&r.files.name, prefix+"server-name", "",
		"`name` that members' certificates are for; empty is the URL's host")
	flags.StringVar(&r.user, prefix+"username-file", "",
		"`file` with the name of the user to come as, where auth is on")
	flags.StringVar(&r.password, prefix+"password-file", "", "`file` with that user's password")
	flags.StringVar(&r.tokenKey, prefix+"token-key", "", tokenKeyUsage)
	flags.Func(prefix+"within", "`list` of networks, names and ends of names where "+of+" may be, with commas "+
		"between; anywhere unless given", func(list string) error {
		r.within = &list
		return nil
	})
	flags.StringVar(&r.namespace, prefix+"namespace", "", "`namespace` whose Services may lead there; with --"+prefix+
		"within")
}

// read makes the cluster of what the flags say.
func (r *reaching) read() (c archive.Cluster, err error) {
	prefix := "--" + r.files.prefix
	if (r.user == "") != (r.password == "") {
		return c, command.Errorf("%[1]susername-file and %[1]spassword-file belong together", prefix)
	}
	if r.within != nil {
		allowed, err := objects.ParseAllowedEndpoints(*r.within)
		if err != nil {
			return c, command.Errorf("%swithin: %s", prefix, err)
		}
		r.cluster.Within = &reach.Within{Allowed: allowed, Namespace: r.namespace}
	}
	if r.cluster.Visitor, err = visitor(prefix+"token-key", r.tokenKey); err != nil {
		return c, err
	}
	if r.cluster.TLS, err = r.files.config(); err != nil {
		return c, err
	}
	if r.cluster.Username, err = line(prefix+"username-file", r.user); err == nil {
		r.cluster.Password, err = line(prefix+"password-file", r.password)
	}
	return r.cluster, err
}

// visitor puts tokens of the key in a file on calls; nil for no file.
func visitor(flag, file string) (*token.Visitor, error) {
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, command.Errorf("%s: the file %s can't be read: %s", flag, file, archive.Words(err))
	}
	key, err := token.ReadPrivate(raw)
	if err != nil {
		return nil, command.Errorf("%s: the file %s can't be used: %s", flag, file, err)
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
			return nil, command.Errorf("--%sca: the file %s can't be read: %s", f.prefix, f.ca, archive.Words(err))
		}
		if !config.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, command.Errorf("--%sca: the file %s holds no certificate in PEM", f.prefix, f.ca)
		}
	}
	if f.cert != "" || f.key != "" {
		own, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, command.Errorf("--%[1]scert and --%[1]scert-key: %[2]s and %[3]s are no certificate and its "+
				"key in PEM that can be read", f.prefix, f.cert, f.key)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
