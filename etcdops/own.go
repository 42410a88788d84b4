package etcdops

import (
	"crypto/tls"
	"fmt"
	"sync"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/etcdops/token"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Own is how the members of one cluster are reached, in the words of [Etcd].
type Own struct {
	TLS      *tls.Config
	Peer     func() *tls.Config
	Token    func() *token.Key
	Root     *users.PasswordFrom
	Password func(secret, key string) (string, error)
}

// OwnOf is how the members of this cluster are reached, by what its Secrets hold (nil for one that is not there). TLS
// is nil without Quorate's certificate. The error says what is wrong with that, and holds nothing of what is in it.
func OwnOf(c *v1beta1.EtcdCluster, secret func(name string) map[string][]byte) (Own, error) {
	o := Own{
		Password: func(name, key string) (string, error) {
			found := string(secret(name)[key])
			if flaw := users.PasswordFlaw(found); flaw != "" {
				return "", fmt.Errorf("what is under %q in Secret %s %s", key, name, flaw)
			}
			return found, nil
		},
		// Most members need neither.
		Peer: sync.OnceValue(func() *tls.Config {
			config, err := pki.Client(secret(defaults.PeerSecret(c)))
			if err != nil {
				return nil
			}
			return config
		}),
		Token: sync.OnceValue(func() *token.Key {
			data := secret(defaults.TokenSecret(c.Name))
			key, err := token.Read(data[objects.KeyTokenPrivate], data[objects.KeyTokenPublic])
			if err != nil {
				return nil
			}
			return key
		}),
	}
	if c.Spec.Auth != nil {
		o.Root = users.RootPasswordSource(c.Name, c.Spec.Auth)
	}
	data := secret(objects.OperatorSecret(c))
	if data == nil {
		return o, nil
	}
	var err error
	o.TLS, err = pki.Client(data)
	return o, err
}

// With is the same for one cluster.
func (e *Etcd) With(o Own) hooks.Etcd {
	own := *e
	own.TLS = o.TLS
	own.peer = o.Peer
	own.token = o.Token
	own.root = o.Root
	own.Password = o.Password
	own.logins = &logins{}
	return &own
}

// peerTLS is what is shown at the peers' door; nil for nothing.
func (e *Etcd) peerTLS() *tls.Config {
	if e.peer == nil {
		return nil
	}
	return e.peer()
}

// tokenKey signs tokens; nil for none.
func (e *Etcd) tokenKey() *token.Key {
	if e.token == nil {
		return nil
	}
	return e.token()
}
