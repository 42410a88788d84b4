package facts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Secret is an observed Secret of the cluster: its own, or one that the spec names.
func (f *Facts) Secret(name string) *observation.Secret {
	if objects.TLSMode(f.Cluster) == v1beta1.TLSAuto || name == defaults.TokenSecret(f.Cluster.Name) {
		return f.Children.Secrets[name]
	}
	return f.Related.Secrets[name]
}

// ToldBy is the Secret whose authorities a member has told: those that it takes from clients, else from peers.
func (f *Facts) ToldBy(h observation.Health) *observation.Secret {
	if h.Anonymous {
		return f.Secret(defaults.PeerSecret(f.Cluster))
	}
	return f.Secret(defaults.ServerSecret(f.Cluster))
}

// SameTrust reports whether both lists have the same certificates, in the same order.
func SameTrust(a, b []observation.Certificate) bool {
	return slices.EqualFunc(a, b, func(x, y observation.Certificate) bool { return x.ID == y.ID })
}

// mounted are the Secrets that a pod names.
func (f *Facts) mounted() []string {
	if !objects.Encrypted(f.Cluster) {
		return nil
	}
	return []string{defaults.ServerSecret(f.Cluster), defaults.PeerSecret(f.Cluster), defaults.TokenSecret(f.Cluster.Name)}
}

// Flaw says why a certificate can't be used; empty when it can.
func (f *Facts) Flaw(l defaults.Leaf) string {
	s := f.Secret(l.Secret)
	if s == nil {
		if objects.TLSMode(f.Cluster) == v1beta1.TLSSecrets {
			return fmt.Sprintf("it does not exist, or does not have the label %s: %s; create it with tls.crt, "+
				"tls.key and ca.crt", objects.LabelCluster, f.Cluster.Name)
		}
		return "it is not there yet" + f.unissued(l.Secret)
	}
	c := s.Certificate
	switch {
	case s.Flaw != "":
		return s.Flaw
	case c == nil || len(s.Trust) == 0:
		return "it does not have all of tls.crt, tls.key and ca.crt"
	case f.Now.After(c.NotAfter):
		return "tls.crt expired on " + Day(c.NotAfter)
	case f.Now.Before(c.NotBefore):
		return "tls.crt is not valid before " + Day(c.NotBefore)
	case l.Server && !c.Server, l.Client && !c.Client:
		return fmt.Sprintf("tls.crt does not allow %s (extended key usage)", l.Usages())
	case l.What == "peer" && c.CommonName != l.CommonName:
		return fmt.Sprintf("tls.crt has the common name %q; a peer's must be %q", c.CommonName, l.CommonName)
	case l.Server && !covers(c.Names, l.Needs(f.Cluster)):
		return fmt.Sprintf("tls.crt is not valid for %s", strings.Join(l.Needs(f.Cluster), " and ")) + f.WithoutSigner()
	}
	return ""
}

// WithoutSigner says that no key is left of the authority that members trust: the present one signs once they have
// restarted, and none is restarted while a certificate lacks something. Empty while a key is left.
func (f *Facts) WithoutSigner() string {
	ca := f.Children.Secrets[defaults.CASecret(f.Cluster.Name)]
	if objects.TLSMode(f.Cluster) != v1beta1.TLSAuto || !UsableAuthority(ca) || ca.Previous != nil {
		return ""
	}
	for _, l := range f.Leaves {
		s := f.Secret(l.Secret)
		if l.Server && s != nil && s.Certificate != nil && s.Certificate.Issuer != ca.Certificate.Key {
			return "; the key of the authority that members trust is gone, and they trust the present one once restarted: " +
				"restart them one by one, see " + v1beta1.Docs + "troubleshooting.md#trustoutdated"
		}
	}
	return ""
}

// Unsignable reports whether a certificate of the members lacks a name until a person restarts them.
func (f *Facts) Unsignable() bool {
	return f.WithoutSigner() != "" && slices.ContainsFunc(f.Leaves, func(l defaults.Leaf) bool {
		s := f.Secret(l.Secret)
		return l.Server && s != nil && s.Certificate != nil && !covers(s.Certificate.Names, l.Needs(f.Cluster))
	})
}

func covers(names, needed []string) bool {
	return !slices.ContainsFunc(needed, func(n string) bool { return !slices.Contains(names, n) })
}

// Day is a time as messages have it: in UTC, to the minute.
func Day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// served identifies the certificates that running members are to show; pods carry it as an annotation, because the
// kubelet brings a pod's files up to date at once when the pod changes, and within minutes otherwise. Empty while
// they are not all there.
func (f *Facts) served() string {
	var ids []string
	for _, name := range f.mounted() {
		s := f.Secret(name)
		if s == nil {
			return ""
		}
		if s.Certificate != nil {
			ids = append(ids, s.Certificate.ID)
		}
		for _, c := range s.Trust {
			ids = append(ids, c.ID)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	if list := f.CopiedCRL(); list != nil {
		ids = append(ids, list.ID)
	}
	return objects.Digest(ids...)
}

// distrusts reports whether the member runs with other authorities than its files now hold, and why it should be
// restarted.
func (f *Facts) distrusts(m *Member) (string, bool) {
	const why = "it trusts the wrong certificate authorities"
	if !objects.Encrypted(f.Cluster) || m.PodName == "" || len(m.Health.Trusts) == 0 || len(f.CertificateProblems) > 0 {
		return "", false
	}
	if Provided(f.Cluster) {
		return why, f.begunOtherwise(m)
	}
	server := f.Secret(defaults.ServerSecret(f.Cluster))
	peer := f.Secret(defaults.PeerSecret(f.Cluster))
	if !SameTrust(server.Trust, peer.Trust) {
		return "", false // one of them is about to follow
	}
	wanted := Subjects(server.Trust)
	return why, !slices.Equal(wanted, m.Health.Trusts)
}

// DistrustsPeers reports whether a member runs, but can't hear the others any more: it does not trust the authority
// that signs for them now, and will only when it starts again.
func (f *Facts) DistrustsPeers(h observation.Health) bool {
	return f.distrustsOwner(h, defaults.PeerSecret(f.Cluster))
}

// DistrustsQuorate reports whether a member runs, and does not trust the authority that signs for Quorate now. It may
// well vote and serve clients.
func (f *Facts) DistrustsQuorate(h observation.Health) bool {
	return f.distrustsOwner(h, objects.OperatorSecret(f.Cluster))
}

// Distrusts is either of the two.
func (f *Facts) Distrusts(h observation.Health) bool {
	return f.DistrustsPeers(h) || f.DistrustsQuorate(h)
}

// distrustsOwner reports whether a member does not trust the authority of who shows the certificate in a Secret.
func (f *Facts) distrustsOwner(h observation.Health, secret string) bool {
	if objects.TLSMode(f.Cluster) != v1beta1.TLSAuto || h.Serving() || len(h.Trusts) == 0 ||
		len(f.CertificateProblems) > 0 {
		return false
	}
	s := f.Secret(secret)
	return slices.ContainsFunc(s.Trust, func(c observation.Certificate) bool {
		return c.Key == s.Certificate.Issuer && !slices.Contains(h.Trusts, c.Subject)
	})
}

// Subjects of these certificates, sorted.
func Subjects(trust []observation.Certificate) []string {
	var list []string
	for _, c := range trust {
		list = append(list, c.Subject)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// RelatedSelector selects the Secrets that others keep for the cluster: those that carry its label. So no one can point
// an EtcdCluster at a Secret whose owner has not agreed. It depends on the cluster's name alone, because Metacontroller
// 1.5.20 remembers the answer by that alone, for clusters of that name in all namespaces. 4.17.2 remembers by UID, and
// looks in the parent's namespace only: a narrower answer would save nothing there.
func RelatedSelector(c *v1beta1.EtcdCluster) metav1.LabelSelector {
	return metav1.LabelSelector{
		MatchLabels: map[string]string{objects.LabelCluster: c.Name},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: labelController,
			Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
}

// RemainsSelector selects what Metacontroller has made for a cluster of this name: where the answer may depend on more
// than the name, for another one than this alone.
func RemainsSelector(c *v1beta1.EtcdCluster, byUID bool) metav1.LabelSelector {
	others := metav1.LabelSelectorRequirement{Key: labelController, Operator: metav1.LabelSelectorOpExists}
	s := metav1.LabelSelector{MatchLabels: map[string]string{objects.LabelCluster: c.Name},
		MatchExpressions: []metav1.LabelSelectorRequirement{others}}
	if byUID {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: labelController,
			Operator: metav1.LabelSelectorOpNotIn, Values: []string{string(c.UID)}})
	}
	return s
}

// labelController is what Metacontroller puts on children.
const labelController = "controller-uid"
