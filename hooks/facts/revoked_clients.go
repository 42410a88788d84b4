package facts

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Clients that are revoked. etcd reads the list at each handshake, and lets no one in while it can't read it, Quorate
// neither. So members' pods never mount the Secret that the spec names, but a copy of ours, in the form that every etcd
// reads: the last list that could be used. The copy stays for ever, because a pod may name it that is not seen yet; it
// has AnnotationMadeFor while the spec names a list.

// Lists reports whether a list names a certificate in the Secret. etcd refuses a client for any that it shows (checkCRL
// in its client/pkg/transport/listener_tls.go).
func Lists(list *observation.CRL, s *observation.Secret) bool {
	return list != nil && s != nil && slices.ContainsFunc(s.Serials,
		func(serial string) bool { return slices.Contains(list.Serials, serial) })
}

// ListedCRL is what the Secret that the spec names lists; nil where that can't be read.
func (f *Facts) ListedCRL() *observation.CRL {
	s := f.Related.Secrets[defaults.CRLSource(f.Cluster)]
	if s == nil || s.CRL == nil || s.CRL.Flaw != "" {
		return nil
	}
	return s.CRL
}

// CRL is that list; nil while it can't be used.
func (f *Facts) CRL() *observation.CRL {
	if f.CRLFlaw() != "" {
		return nil
	}
	return f.ListedCRL()
}

// CopiedCRL is the list that members have; nil for none.
func (f *Facts) CopiedCRL() *observation.CRL {
	s := f.Children.Secrets[defaults.CRLSecret(f.Cluster.Name)]
	if s == nil || s.CRL == nil || s.CRL.Flaw != "" {
		return nil
	}
	return s.CRL
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
	if own := f.ownIn(s.CRL); own != "" {
		return fmt.Sprintf("Secret %s: ca.crl names a certificate in Secret %s, by which Quorate or the members "+
			"themselves reach etcd: replace that first", name, own)
	}
	return ""
}

// ownIn is the Secret with a certificate that a list names and without which etcd can't be reached; empty for none.
func (f *Facts) ownIn(list *observation.CRL) string {
	for _, l := range f.Leaves {
		if (l.What == "operator" || l.What == "server") && Lists(list, f.Secret(l.Secret)) {
			return l.Secret
		}
	}
	return ""
}

// CRLAdvice says that another list than that of the spec is in effect; empty for no.
func (f *Facts) CRLAdvice() string {
	flaw := f.CRLFlaw()
	switch {
	case flaw == "":
		return ""
	case f.Revokes() && f.ownIn(f.CopiedCRL()) != "":
		return flaw + "; members refuse it already"
	case f.Revokes():
		return flaw + "; the list before it stays in effect"
	}
	return flaw + "; no client is revoked by it"
}

// Revokes reports whether a member that starts now gets a list.
func (f *Facts) Revokes() bool {
	return defaults.CRLSource(f.Cluster) != "" && f.CopiedCRL() != nil &&
		f.Children.Secrets[defaults.CRLSecret(f.Cluster.Name)].Annotations[objects.AnnotationMadeFor] != ""
}

// CRLAwaited says which list a cluster waits for before it begins; empty for none. What has begun goes on without.
func (f *Facts) CRLAwaited() string {
	began := f.everHadQuorum() || f.Cluster.Status.ClusterID != "" || f.Epoch != nil && f.Epoch.N > 1
	switch {
	case began || defaults.CRLSource(f.Cluster) == "" || f.CopiedCRL() != nil:
		return ""
	case f.CRLFlaw() != "":
		return f.CRLFlaw()
	}
	return fmt.Sprintf("Secret %s: it is not there yet", defaults.CRLSecret(f.Cluster.Name))
}

// revokesDiffers reports whether the member must be restarted to have a list, or none, and why.
func (f *Facts) revokesDiffers(m *Member) (string, bool) {
	gone := f.CRL() == nil && f.Children.Secrets[defaults.CRLSecret(f.Cluster.Name)] == nil
	switch {
	case m.TLS.Revokes && defaults.CRLSource(f.Cluster) == "":
		return "no list of revoked clients is asked for any more", true
	case m.TLS.Revokes && gone: // its pod could not start again
		return "its list of revoked clients is gone", true
	case !m.TLS.Revokes && f.Revokes():
		return "it has no list of revoked clients yet", true
	}
	return "", false
}
