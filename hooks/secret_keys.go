package hooks

import (
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// SecretKeys says what a decision about a cluster can ask for of Secrets: of each Secret by name, the keys. What is
// not among them need not be read, and Secrets of others whose name is missing need not be read at all.
type SecretKeys struct {
	// Own are the keys that recipes make, in whatever Secret of the cluster's own.
	Own map[string]bool
	// Named are the Secrets that the spec names, and those that a cluster of this name has: keys of each.
	Named map[string]map[string]bool
}

// AskedKeys are those of this cluster.
func AskedKeys(c *v1alpha1.EtcdCluster) SecretKeys {
	pair := []string{objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust, objects.KeyPreviousCertificate,
		objects.KeyPreviousPrivate}
	k := SecretKeys{Own: map[string]bool{objects.KeyTokenPrivate: true, objects.KeyTokenPublic: true,
		users.PasswordKey: true}, Named: map[string]map[string]bool{}}
	for _, key := range pair {
		k.Own[key] = true
	}
	k.name(CASecret(c.Name), pair...)
	k.name(TokenSecret(c.Name), objects.KeyTokenPrivate, objects.KeyTokenPublic)
	for _, l := range leaves(c) {
		k.name(l.secret, pair...)
	}
	if e := existing(c); e != nil {
		if e.TLS != nil {
			k.name(e.TLS.SecretName, pair...)
			k.name(e.TLS.TrustSecretName, pair...)
		}
		if e.Auth != nil {
			k.name(e.Auth.SecretName, KeyUsername, KeyPassword)
		}
	}
	if a := c.Spec.Auth; a != nil {
		k.password(users.RootPasswordSource(c.Name, a))
		for _, u := range a.Users {
			k.password(users.PasswordIn("", u.PasswordSecret, users.PasswordSecret(c.Name, u.Name)))
		}
	}
	return k
}

func (k SecretKeys) password(from *users.PasswordFrom) { k.name(from.Secret, from.Key) }

func (k SecretKeys) name(secret string, keys ...string) {
	if k.Named[secret] == nil {
		k.Named[secret] = map[string]bool{}
	}
	for _, key := range keys {
		k.Named[secret][key] = true
	}
}

// Of narrows the Secrets of others, by name, to what can be asked for: what the edge does before it reads them.
func (k SecretKeys) Of(related map[string]*Secret) map[string]*Secret {
	all := map[string]*Secret{}
	for name, s := range related {
		if keys := k.Named[name]; keys != nil {
			narrowed := *s
			narrowed.Keys = filter(s.Keys, func(key string) bool { return keys[key] })
			all[name] = &narrowed
		}
	}
	return all
}
