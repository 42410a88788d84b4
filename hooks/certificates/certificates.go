// Package certificates says which certificates there are, what is wrong with them, and how an authority is followed by
// the next.
//
// A cluster in plain text learns TLS without an outage, since raft between two members goes on as long as one of them
// can dial the other: so one member at a time may be out of step with the member list. First every member is restarted
// with certificates, still listening in plain text to its peers and in both ways to clients. Then, for one voter after
// the other, its URL in the list becomes https and it is restarted to listen so. When tls.allowPlaintextClients is taken
// out, every member is restarted once more. With one or two voters, and on Memory, a new learner takes each one's
// place. The way back is refused: nothing is gained by it.
package certificates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
)

// Secret is an observed Secret of the cluster: its own, or one that the spec names.
func Secret(v *state.View, name string) *observation.Secret {
	if objects.TLSMode(v.Cluster) == v1alpha1.TLSAuto || name == spec.TokenSecret(v.Cluster.Name) {
		return v.Children.Secrets[name]
	}
	return v.Related.Secrets[name]
}

// Desired is the Secret of this name as it should be; what there is of it keeps its metadata.
func Desired(v *state.View, name string, kind corev1.SecretType, how decision.Recipe) *decision.DesiredSecret {
	s := &decision.DesiredSecret{Type: kind, Make: how}
	if old := v.Children.Secrets[name]; old != nil {
		s.ObjectMeta = old.ObjectMeta
	}
	s.Name, s.Labels, s.Annotations = name, objects.Labels(v.Cluster, nil), objects.Annotations(v.Cluster, nil)
	return s
}

// TokenKeys sign the tokens of etcd's users. They are there from the beginning, because etcd reads them only when it
// starts.
func TokenKeys(v *state.View) *decision.DesiredSecret {
	name := spec.TokenSecret(v.Cluster.Name)
	if old := v.Children.Secrets[name]; old != nil && old.Has(objects.KeyTokenPrivate, objects.KeyTokenPublic) {
		return Desired(v, name, corev1.SecretTypeOpaque, nil)
	}
	return Desired(v, name, corev1.SecretTypeOpaque, decision.TokenKeys{})
}

// Authority says what should be done with the cluster's authority; nil for nothing.
func Authority(v *state.View) decision.Recipe {
	old := v.Children.Secrets[spec.CASecret(v.Cluster.Name)]
	begins, ends := life(v, cmp.Or(v.Cluster.Spec.TLS.Auto.CADuration.Duration, spec.DefaultCADuration))
	made := decision.Authority{CommonName: fmt.Sprintf("%s/%s %s", v.Cluster.Namespace, v.Cluster.Name,
		v.Now.UTC().Format("20060102T150405Z")), NotBefore: begins, NotAfter: ends}
	switch {
	case !state.UsableAuthority(old), !old.Certificate.ValidAt(v.Now):
		made.Inherit = inheritance(v)
		return made
	case old.Previous != nil && v.Now.After(old.Previous.NotAfter),
		slices.ContainsFunc(old.Trust,
			func(c observation.Certificate) bool { return v.Now.After(c.NotAfter) && c.ID != old.Certificate.ID }):
		return decision.Trim{At: v.Now}
	case old.Previous == nil && !v.Now.Before(old.Certificate.Due()):
		made.Previous = true
		return made
	}
	return foreign.Adopt(v, old)
}

// inheritance is a Secret that still tells what the members trust, in case the authority is deleted. While all members
// are stopped no one has to trust the next one beside it: then a person may have deleted what was stolen, and a view
// that still shows one of the other Secrets must not bring it back.
func inheritance(v *state.View) string {
	if v.Replicas == 0 && !v.BesideForeign() && len(v.Children.Pods) == 0 {
		return ""
	}
	for _, l := range v.Leaves {
		if old := v.Children.Secrets[l.Secret]; old != nil && len(old.Trust) > 0 {
			return l.Secret
		}
	}
	return ""
}

// life is from when to when a new certificate is valid. It begins in the past, for clocks that are behind.
func life(v *state.View, duration time.Duration) (begins, ends time.Time) {
	now := v.Now.UTC().Truncate(time.Second)
	return now.Add(-min(time.Hour, duration/20)), now.Add(duration)
}

// Leaf is the Secret of a certificate, with what should be done with it; nil while it can't be made.
func Leaf(v *state.View, l spec.Leaf) *decision.DesiredSecret {
	old := v.Children.Secrets[l.Secret]
	wanted := Desired(v, l.Secret, corev1.SecretTypeTLS, nil)
	if old != nil {
		wanted.Annotations[objects.AnnotationMadeFor] = old.Annotations[objects.AnnotationMadeFor]
	}
	ca := v.Children.Secrets[spec.CASecret(v.Cluster.Name)]
	if l.What == "server" && peersLag(v, ca) {
		if old == nil {
			return nil
		}
		return wanted
	}
	if signer, previous := signer(v, ca, old); signer != nil && outlived(v, l, signer) {
		begins, ends := life(v, cmp.Or(v.Cluster.Spec.TLS.Auto.LeafDuration.Duration, spec.DefaultLeafDuration))
		if ends.After(signer.NotAfter) {
			ends = signer.NotAfter
		}
		wanted.Annotations[objects.AnnotationMadeFor] = l.Fingerprint()
		wanted.Make = decision.Leaf{Signer: ca.Name, Previous: previous, CommonName: l.CommonName, Names: l.Names,
			Server: l.Server, Client: l.Client, NotBefore: begins, NotAfter: ends}
		return wanted
	}
	switch {
	case old == nil:
		return nil
	case state.UsableAuthority(ca) && !SameTrust(old.Trust, ca.Trust):
		wanted.Make = decision.Bundle{Signer: ca.Name}
	}
	return wanted
}

// outlived reports whether the certificate must be made, for the first time or again.
func outlived(v *state.View, l spec.Leaf, signer *observation.Certificate) bool {
	old := v.Children.Secrets[l.Secret]
	if old == nil || old.Certificate == nil || old.Flaw != "" {
		return true
	}
	return old.Annotations[objects.AnnotationMadeFor] != l.Fingerprint() || v.Now.Before(old.Certificate.NotBefore) ||
		!v.Now.Before(old.Certificate.Due()) && old.Certificate.NotAfter.Before(signer.NotAfter) ||
		old.Certificate.Issuer != signer.Key
}

// peersLag reports whether the peers' ca.crt is still to be brought up to the authority's. The servers' waits for
// that: it is the one that members tell us of, so a member that tells that it trusts an authority in clients also
// trusts it in peers.
func peersLag(v *state.View, ca *observation.Secret) bool {
	peer := v.Children.Secrets[spec.PeerSecret(v.Cluster)]
	return state.UsableAuthority(ca) && peer != nil && !SameTrust(peer.Trust, ca.Trust)
}

// signer is the authority that signs in a Secret now, and whether that is the previous one; nil when neither may. A
// new authority signs once every member trusts it and clients have had time to hear of it (a twelfth of its life),
// and goes on with what it has signed. Where the one before can't sign any more, it also replaces what no one accepts
// any longer.
func signer(v *state.View, ca, old *observation.Secret) (signer *observation.Certificate, previous bool) {
	if !state.UsableAuthority(ca) || !ca.Certificate.ValidAt(v.Now) {
		return nil, false
	}
	settled := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore) / 12)
	switch {
	case !supersedes(v, ca), signedBy(old, ca.Certificate), everyoneTrusts(v, *ca.Certificate) &&
		(ca.Previous == nil || !v.Now.Before(settled)):
		return ca.Certificate, false
	case ca.Previous != nil && ca.Previous.ValidAt(v.Now):
		return ca.Previous, true
	case spent(v, old):
		return ca.Certificate, false
	}
	return nil, false
}

func signedBy(s *observation.Secret, authority *observation.Certificate) bool {
	return s != nil && s.Certificate != nil && s.Certificate.Issuer == authority.Key
}

// spent reports whether no one accepts the certificate any longer.
func spent(v *state.View, s *observation.Secret) bool {
	return s == nil || s.Certificate == nil || s.Flaw != "" || !s.Certificate.ValidAt(v.Now)
}

// supersedes reports whether the authority takes the place of another that certificates in use are signed by.
func supersedes(v *state.View, ca *observation.Secret) bool {
	return slices.ContainsFunc(v.Leaves, func(l spec.Leaf) bool {
		old := v.Children.Secrets[l.Secret]
		return old != nil && old.Certificate != nil && old.Certificate.Issuer != ca.Certificate.Key
	})
}

// everyoneTrusts reports whether every member and every pod has told, in this very call, that it trusts this
// authority. What is told at an address where another member answers, or one that we do not know, does not count.
func everyoneTrusts(v *state.View, ca observation.Certificate) bool {
	tells := func(h observation.Health) bool { return h.Err == "" && slices.Contains(h.Trusts, ca.Subject) }
	if v.Etcd == nil || slices.ContainsFunc(v.Members,
		func(m *state.Member) bool { return m.PodName != "" && !tells(m.Health) }) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := objects.Ordinal(v.Cluster.Name, name); ours && !tells(v.Health[name]) {
			return false
		}
	}
	return true
}

// ToldBy is the Secret whose authorities a member has told: those that it takes from clients, else from peers.
func ToldBy(v *state.View, h observation.Health) *observation.Secret {
	if h.Anonymous {
		return Secret(v, spec.PeerSecret(v.Cluster))
	}
	return Secret(v, spec.ServerSecret(v.Cluster))
}

// SameTrust reports whether both lists have the same certificates, in the same order.
func SameTrust(a, b []observation.Certificate) bool {
	return slices.EqualFunc(a, b, func(x, y observation.Certificate) bool { return x.ID == y.ID })
}

// mounted are the Secrets that a pod names.
func mounted(v *state.View) []string {
	if !objects.Encrypted(v.Cluster) {
		return nil
	}
	return []string{spec.ServerSecret(v.Cluster), spec.PeerSecret(v.Cluster), spec.TokenSecret(v.Cluster.Name)}
}

// Flaw says why a certificate can't be used; empty when it can.
func Flaw(v *state.View, l spec.Leaf) string {
	s := Secret(v, l.Secret)
	if s == nil {
		if objects.TLSMode(v.Cluster) == v1alpha1.TLSSecrets {
			return fmt.Sprintf("it does not exist, or does not have the label %s: %s; create it with tls.crt, "+
				"tls.key and ca.crt", objects.LabelCluster, v.Cluster.Name)
		}
		return "it is not there yet" + unissued(v, l.Secret)
	}
	c := s.Certificate
	switch {
	case s.Flaw != "":
		return s.Flaw
	case c == nil || len(s.Trust) == 0:
		return "it does not have all of tls.crt, tls.key and ca.crt"
	case v.Now.After(c.NotAfter):
		return "tls.crt expired on " + Day(c.NotAfter)
	case v.Now.Before(c.NotBefore):
		return "tls.crt is not valid before " + Day(c.NotBefore)
	case l.Server && !c.Server, l.Client && !c.Client:
		return fmt.Sprintf("tls.crt does not allow %s (extended key usage)", l.Usages())
	case l.What == "peer" && c.CommonName != l.CommonName:
		return fmt.Sprintf("tls.crt has the common name %q; a peer's must be %q", c.CommonName, l.CommonName)
	case l.Server && !covers(c.Names, l.Needs(v.Cluster)):
		return fmt.Sprintf("tls.crt is not valid for %s", strings.Join(l.Needs(v.Cluster), " and "))
	}
	return ""
}

func covers(names, needed []string) bool {
	return !slices.ContainsFunc(needed, func(n string) bool { return !slices.Contains(names, n) })
}

// Day is a time as messages have it: in UTC, to the minute.
func Day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// served identifies the certificates that running members are to show; pods carry it as an annotation, because the
// kubelet brings a pod's files up to date at once when the pod changes, and within minutes otherwise. Empty while
// they are not all there.
func served(v *state.View) string {
	var ids []string
	for _, name := range mounted(v) {
		s := Secret(v, name)
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
	return objects.Digest(ids...)
}

// Distrusts reports whether the member runs with other authorities than its files now hold, and why it should be
// restarted.
func Distrusts(v *state.View, m *state.Member) (string, bool) {
	const why = "it trusts the wrong certificate authorities"
	if !objects.Encrypted(v.Cluster) || m.PodName == "" || len(m.Health.Trusts) == 0 || len(v.CertificateProblems) > 0 {
		return "", false
	}
	if Provided(v.Cluster) {
		return why, begunOtherwise(v, m)
	}
	server, peer := Secret(v, spec.ServerSecret(v.Cluster)), Secret(v, spec.PeerSecret(v.Cluster))
	if !SameTrust(server.Trust, peer.Trust) {
		return "", false // one of them is about to follow
	}
	wanted := Subjects(server.Trust)
	return why, !slices.Equal(wanted, m.Health.Trusts)
}

// DistrustsPeers reports whether a member runs, but can't hear the others any more: it does not trust the authority
// that signs for them now, and will only when it starts again.
func DistrustsPeers(v *state.View, h observation.Health) bool {
	if objects.TLSMode(v.Cluster) != v1alpha1.TLSAuto || h.Serving() || len(h.Trusts) == 0 ||
		len(v.CertificateProblems) > 0 {
		return false
	}
	peer := Secret(v, spec.PeerSecret(v.Cluster))
	return slices.ContainsFunc(peer.Trust, func(c observation.Certificate) bool {
		return c.Key == peer.Certificate.Issuer && !slices.Contains(h.Trusts, c.Subject)
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
func RelatedSelector(c *v1alpha1.EtcdCluster) metav1.LabelSelector {
	return metav1.LabelSelector{
		MatchLabels: map[string]string{objects.LabelCluster: c.Name},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: labelController,
			Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
}

// RemainsSelector selects what Metacontroller has made for a cluster of this name: where the answer may depend on more
// than the name, for another one than this alone.
func RemainsSelector(c *v1alpha1.EtcdCluster, byUID bool) metav1.LabelSelector {
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
