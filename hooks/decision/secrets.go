package decision

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A DesiredSecret is a Secret that should exist.
type DesiredSecret struct {
	metav1.ObjectMeta
	Type corev1.SecretType
	// Make says what the edge is to put into it; nil leaves the data as observed.
	Make Recipe
}

// A Recipe says what to make of a Secret's data without saying what is secret in it. The set is closed: Authority,
// Trim, Leaf, Bundle, Adopt, Revoked, TokenKeys, Password, StreamKeys. What a recipe reads of other Secrets are the
// observed ones, so that an answer that comes late or twice meets the resource version that it was made from, and is
// refused.
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
	// Revoked brings ca.crl to that of a related Secret, in DER.
	Revoked struct{ From string }
	// TokenKeys makes a pair of ECDSA keys for signing tokens: token.key and token.pub, in PEM.
	TokenKeys struct{}
	// Password makes a random password of 256 bits, under this key.
	Password struct{ Key string }
	// StreamKeys are those of the namespace's streams, which follow from those of the installation: what is observed
	// stays while it is that.
	StreamKeys struct{}
)

func (Authority) recipe() {}

func (Trim) recipe() {}

func (Leaf) recipe() {}

func (Bundle) recipe() {}

func (Adopt) recipe() {}

func (Revoked) recipe() {}

func (TokenKeys) recipe() {}

func (Password) recipe() {}

func (StreamKeys) recipe() {}
