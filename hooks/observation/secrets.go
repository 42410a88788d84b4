package observation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/users"
)

// Secret is a Secret as decisions know it: all that is public about it, and nothing that is secret. The edge reads it
// so, and makes what a [Recipe] says; keys and passwords never pass through this package.
type Secret struct {
	metav1.ObjectMeta
	Type corev1.SecretType
	// Keys of the data that hold anything.
	Keys []string
	// Unfit says of each key why what it holds can't be a password ([PasswordFlaw]). Keys that can are left out.
	Unfit map[string]string
	// Certificate is the first one of tls.crt; nil when there is none that can be read.
	Certificate *Certificate
	// Serials are the numbers of all certificates of tls.crt, in hexadecimal.
	Serials []string `json:",omitempty"`
	// Trust are the certificates of ca.crt, in its order.
	Trust []Certificate
	// Anchors are those of Trust that the certificate leads to, over the others in tls.crt.
	Anchors []Certificate
	// Previous is the first certificate of previous.crt: the authority before this one, while it still signs.
	Previous *Certificate
	// CRL is the list of revoked certificates in ca.crl; nil for none.
	CRL *CRL `json:",omitempty"`
	// Flaw says why what tls.crt, tls.key and ca.crt hold can't be used together, such as "tls.key does not belong to
	// tls.crt". Empty when it can.
	Flaw string
}

// CRL is what a list of revoked certificates says.
type CRL struct {
	// ID is the SHA-256 of the list in DER, in hexadecimal.
	ID string
	// Serials are the numbers of the certificates, in hexadecimal.
	Serials []string
	// Flaw says why it can't be used; empty when it can.
	Flaw string
}

// Certificate is what an X.509 certificate says.
type Certificate struct {
	// ID is the SHA-256 of the certificate in hexadecimal.
	ID string
	// CommonName of the subject.
	CommonName string
	// Subject is the SHA-256 of the whole subject in hexadecimal: how a member names the authorities that it trusts.
	Subject string
	// Key is the ID of the certified key (its subject key ID), Issuer that of the key that signed it, in hexadecimal.
	Key, Issuer string
	// NotBefore and NotAfter are when it is valid.
	NotBefore, NotAfter time.Time
	// Names are the DNS names and IP addresses that it is for, sorted.
	Names []string
	// Authority is true for that of a certificate authority.
	Authority bool
	// Server and Client say what it may be used for.
	Server, Client bool
}

// ValidAt reports whether the certificate is valid at that time. At any other no one accepts it.
func (c *Certificate) ValidAt(t time.Time) bool {
	return !t.Before(c.NotBefore) && !t.After(c.NotAfter)
}

// Due is when a certificate should be renewed: after two thirds of its life.
func (c *Certificate) Due() time.Time { return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2) }

// Late is when a person should look why it has not been renewed: after five sixths of its life.
func (c *Certificate) Late() time.Time { return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 6 * 5) }

// Has reports whether the Secret holds all of these keys.
func (s *Secret) Has(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(s.Keys, key) })
}

// SecretKeys says what a decision about a cluster can ask for of Secrets: of each Secret by name, the keys. What is
// not among them need not be read, and Secrets of others whose name is missing need not be read at all.
type SecretKeys struct {
	// Own are the keys that recipes make, in whatever Secret of the cluster's own.
	Own map[string]bool
	// Named are the Secrets that the spec names, and those that a cluster of this name has: keys of each.
	Named map[string]map[string]bool
}

// Password adds the key that a password is under.
func (k SecretKeys) Password(from *users.PasswordFrom) { k.Name(from.Secret, from.Key) }

// Name adds these keys of the Secret.
func (k SecretKeys) Name(secret string, keys ...string) {
	if k.Named[secret] == nil {
		k.Named[secret] = map[string]bool{}
	}
	for _, key := range keys {
		k.Named[secret][key] = true
	}
}
