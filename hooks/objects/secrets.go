package objects

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Keys of the Secrets' data.
const (
	KeyCertificate         = corev1.TLSCertKey
	KeyPrivate             = corev1.TLSPrivateKeyKey
	KeyTrust               = corev1.ServiceAccountRootCAKey
	KeyPreviousCertificate = "previous.crt"
	KeyPreviousPrivate     = "previous.key"
	KeyTokenPrivate        = "token.key"
	KeyTokenPublic         = "token.pub"
	KeyStream              = "stream.key"
	KeyCRL                 = "ca.crl"
)

// FlagCRL is etcd's for the list of clients that are revoked. etcd reads the file at each handshake and refuses all
// where it can't (checkCRL in its client/pkg/transport/listener_tls.go); from 3.6 on it reads DER alone.
const FlagCRL = "--client-crl-file"

// Unagreed says the owner of which of these Secrets has not agreed that pods of ours have it, whatever the author of a
// spec does with them: it must have LabelExternal. Empty for none. One without a name is none.
func Unagreed(labelled map[string]bool, namespace, namedBy string, secrets ...string) string {
	for _, name := range secrets {
		if name != "" && !labelled[name] {
			return fmt.Sprintf("the Secret %s, which %s names, is not there or lacks the label that lets pods have it: "+
				"kubectl label secret -n %s %s %s=", name, namedBy, namespace, name, LabelExternal)
		}
	}
	return ""
}
