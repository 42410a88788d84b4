package hooks

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	// Trust are the certificates of ca.crt, in its order.
	Trust []Certificate
	// Anchors are those of Trust that the certificate leads to, over the others in tls.crt.
	Anchors []Certificate
	// Previous is the first certificate of previous.crt: the authority before this one, while it still signs.
	Previous *Certificate
	// Flaw says why what tls.crt, tls.key and ca.crt hold can't be used together, such as "tls.key does not belong to
	// tls.crt". Empty when it can.
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

// due is when a certificate is to be renewed: after two thirds of its life.
func (c *Certificate) due() time.Time { return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2) }

// late is when somebody should look why it has not been renewed: after five sixths of its life.
func (c *Certificate) late() time.Time { return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 6 * 5) }

// has reports whether the Secret holds all of these keys.
func (s *Secret) has(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool { return !slices.Contains(s.Keys, key) })
}

// A DesiredSecret is a Secret that should exist.
type DesiredSecret struct {
	metav1.ObjectMeta
	Type corev1.SecretType
	// Make says what the edge is to put into it; nil leaves the data as observed.
	Make Recipe
}

// A Recipe says what to make of a Secret's data without saying what is secret in it. The set is closed: Authority,
// Trim, Leaf, Bundle, Adopt, TokenKeys, Password. What a recipe reads of other Secrets are the observed ones, so that
// an answer that comes late or twice meets the resource version that it was made from, and is refused.
type Recipe interface{ recipe() }

type (
	// Authority makes a new certificate authority with a key of its own: tls.crt, tls.key, and ca.crt with itself
	// first and whatever is trusted so far and has not expired behind it.
	Authority struct {
		CommonName          string
		NotBefore, NotAfter time.Time
		// Previous keeps the authority of the observed Secret as previous.crt and previous.key.
		Previous bool
		// Inherit names an observed Secret whose ca.crt stays trusted; empty for none.
		Inherit string
	}
	// Trim takes out of ca.crt what has expired, and previous.crt and previous.key.
	Trim struct{ At time.Time }
	// Leaf makes a certificate with a new key, signed by an observed authority: tls.crt, tls.key, and its ca.crt.
	Leaf struct {
		// Signer names the authority's Secret; Previous lets its previous authority sign.
		Signer              string
		Previous            bool
		CommonName          string
		Names               []string
		Server, Client      bool
		NotBefore, NotAfter time.Time
	}
	// Bundle brings ca.crt up to that of an observed authority, and leaves certificate and key.
	Bundle struct{ Signer string }
	// Adopt brings the ca.crt of an authority to those of its certificates whose IDs are in Keep, with those in the
	// ca.crt of the Secret From behind them; empty for none. From may be a related Secret.
	Adopt struct {
		Keep []string
		From string
	}
	// TokenKeys makes a pair of ECDSA keys for signing tokens: token.key and token.pub, in PEM.
	TokenKeys struct{}
	// Password makes a random password of 256 bits, under this key.
	Password struct{ Key string }
)

func (Authority) recipe() {}
func (Trim) recipe()      {}
func (Leaf) recipe()      {}
func (Bundle) recipe()    {}
func (Adopt) recipe()     {}
func (TokenKeys) recipe() {}
func (Password) recipe()  {}
