package facts

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Clients that are revoked. etcd reads the list at each handshake, and lets no one in while it can't read it, Quorate
// neither. So members' pods never mount the Secret that the spec names, but a copy of ours, in the form that every etcd
// reads: the last list that could be used.

// CRL is the list that the spec names; nil while it can't be used.
func (f *Facts) CRL() *observation.Secret {
	if defaults.CRLSource(f.Cluster) == "" || f.CRLFlaw() != "" {
		return nil
	}
	return f.Related.Secrets[defaults.CRLSource(f.Cluster)]
}

// CRLFlaw says why the list that the spec names can't be used; empty when it can, or there is none.
func (f *Facts) CRLFlaw() string {
	name := defaults.CRLSource(f.Cluster)
	if name == "" {
		return ""
	}
	s := f.Related.Secrets[name]
	switch {
	case s == nil:
		return fmt.Sprintf("Secret %s, which spec.tls.clientCRLSecretRef names, does not exist, or does not have the "+
			"label %s: %s", name, objects.LabelCluster, f.Cluster.Name)
	case s.CRL == nil:
		return fmt.Sprintf("Secret %s has no ca.crl, a list of revoked certificates", name)
	case s.CRL.Flaw != "":
		return fmt.Sprintf("Secret %s: %s", name, s.CRL.Flaw)
	}
	for _, l := range f.Leaves {
		own := f.Secret(l.Secret)
		if own == nil || own.Certificate == nil || l.What != "operator" && l.What != "server" {
			continue
		}
		if slices.Contains(s.CRL.Serials, own.Certificate.Serial) {
			return fmt.Sprintf("Secret %s: ca.crl names the certificate in Secret %s, by which Quorate or the members "+
				"themselves reach etcd: replace that certificate first", name, l.Secret)
		}
	}
	return ""
}

// CRLAdvice says that another list than that of the spec is in effect; empty for no.
func (f *Facts) CRLAdvice() string {
	flaw := f.CRLFlaw()
	if flaw == "" {
		return ""
	}
	if f.Revokes() {
		return flaw + "; the list before it stays in effect"
	}
	return flaw + "; no client is revoked"
}

// Revokes reports whether a member that starts now gets a list.
func (f *Facts) Revokes() bool {
	own := f.Children.Secrets[defaults.CRLSecret(f.Cluster.Name)]
	usable := own != nil && own.CRL != nil && own.CRL.Flaw == ""
	return usable && defaults.CRLSource(f.Cluster) != "" && !f.AsksNone()
}

// MountsCRL reports whether a pod names our copy of the list: it could not start again without it.
func (f *Facts) MountsCRL() bool { return MountsCRL(f.Children.Pods) }

// MountsCRL reports whether one of these pods has a list.
func MountsCRL(pods map[string]*corev1.Pod) bool {
	for _, pod := range pods {
		if TLSFlagsOf(pod).Revokes {
			return true
		}
	}
	return false
}

// revokesDiffers reports whether the member must be restarted to have a list, or none, and why.
func (f *Facts) revokesDiffers(m *Member) (string, bool) {
	switch {
	case m.TLS.Revokes && defaults.CRLSource(f.Cluster) == "":
		return "no list of revoked clients is asked for any more", true
	case !m.TLS.Revokes && f.Revokes():
		return "it has no list of revoked clients yet", true
	}
	return "", false
}
