package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Certificates. In the mode Auto the cluster's authority is a Secret, made first; every other certificate is signed
// by an authority that was observed, so that no lagging cache and no repeated answer can leave a mixture.
//
// A running member reads its certificate anew at each handshake, but the authorities that it trusts only when it
// starts. So a new authority comes in four moves, each of which waits for the one before to be seen: it is put beside
// the old one in everybody's ca.crt; the members are restarted one at a time, until each has told in a handshake that
// it trusts both; it signs; and when the old one has expired it leaves ca.crt, and the members are restarted once
// more.

const (
	defaultLeafDuration = 90 * 24 * time.Hour
	defaultCADuration   = 10 * 365 * 24 * time.Hour
	// operatorName is the user that Quorate's own certificate names: etcd's root, so that a lost password is never
	// fatal.
	operatorName = "root"
	// clientName is the user that the certificate for applications names.
	clientName = "client"
)

// CASecret names the Secret of the cluster's certificate authority.
func CASecret(cluster string) string { return cluster + "-ca" }

// ClientSecret names the Secret with the certificate for applications.
func ClientSecret(cluster string) string { return cluster + "-client-tls" }

// TokenSecret names the Secret with the keys that sign etcd's tokens.
func TokenSecret(cluster string) string { return cluster + "-token" }

// serverSecret names the Secret with what the members show to clients, peerSecret to each other, OperatorSecret
// Quorate to them.
func serverSecret(c *v1alpha1.EtcdCluster) string {
	if s := c.Spec.TLS.Secrets; objects.TLSMode(c) == v1alpha1.TLSSecrets && s != nil {
		return s.Server
	}
	return c.Name + "-server-tls"
}

func peerSecret(c *v1alpha1.EtcdCluster) string {
	if s := c.Spec.TLS.Secrets; objects.TLSMode(c) == v1alpha1.TLSSecrets && s != nil {
		return s.Peer
	}
	return c.Name + "-peer-tls"
}

// peerName is the common name that makes a certificate a peer's. It has a character that no user's name may have, so
// that no client's certificate opens the peers' door.
func peerName(cluster string) string { return cluster + ":peers" }

// leaf is what a certificate must be like.
type leaf struct {
	what, secret, commonName string
	names                    []string
	server, client           bool
}

// leaves are all the certificates that the cluster needs besides the authority's.
func leaves(c *v1alpha1.EtcdCluster) []leaf {
	members := objects.Host(c, "*")
	server := []string{
		members, members + ".cluster.local", "localhost", "127.0.0.1", "::1",
		objects.ClientService(c.Name), objects.ClientService(c.Name) + "." + c.Namespace,
		objects.ClientService(c.Name) + "." + c.Namespace + ".svc",
		objects.ClientService(c.Name) + "." + c.Namespace + ".svc.cluster.local",
	}
	peer := []string{members}
	if existing(c) != nil {
		// Whom a connection comes from, foreign members look up by the address: its name has the domain of the
		// Kubernetes cluster.
		peer = append(peer, members+".cluster.local")
	}
	return append([]leaf{
		// Without a common name: etcd takes one for a user's, and the pods hold this certificate.
		{what: "server", secret: serverSecret(c), names: distinct(server, c.Spec.TLS.ExtraSANs), server: true,
			client: true},
		{what: "peer", secret: peerSecret(c), commonName: peerName(c.Name), names: peer, server: true, client: true},
		{what: "operator", secret: objects.OperatorSecret(c), commonName: operatorName, client: true},
		{what: "client", secret: ClientSecret(c.Name), commonName: clientName, client: true},
	}, userLeaves(c)...)
}

func distinct(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// secret is an observed Secret of the cluster: its own, or one that the spec names.
func (v *view) secret(name string) *Secret {
	if objects.TLSMode(v.Cluster) == v1alpha1.TLSAuto || name == TokenSecret(v.Cluster.Name) {
		return v.Children.Secrets[name]
	}
	return v.Related.Secrets[name]
}

// ---- what should exist

// secrets are the Secrets that should exist. One that is not known to be superfluous stays.
func secrets(v *view) []*DesiredSecret {
	if !objects.Encrypted(v.Cluster) {
		return keptSecrets(v.Observation)
	}
	list := append(v.generated(), v.tokenKeys())
	if objects.TLSMode(v.Cluster) == v1alpha1.TLSAuto {
		list = append(list, v.desired(CASecret(v.Cluster.Name), corev1.SecretTypeTLS, v.authority()))
		for _, l := range v.leaves {
			if s := v.leaf(l); s != nil {
				list = append(list, s)
			}
		}
	}
	if a := v.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose Secrets are wanted is not known
		for name, old := range v.Children.Secrets {
			if !slices.ContainsFunc(list, func(s *DesiredSecret) bool { return s.Name == name }) {
				list = append(list, keptSecret(v.Cluster, old))
			}
		}
	}
	slices.SortFunc(list, func(a, b *DesiredSecret) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (v *view) desired(name string, kind corev1.SecretType, how Recipe) *DesiredSecret {
	s := &DesiredSecret{Type: kind, Make: how}
	if old := v.Children.Secrets[name]; old != nil {
		s.ObjectMeta = old.ObjectMeta
	}
	s.Name, s.Labels, s.Annotations = name, labels(v.Cluster, nil), annotations(v.Cluster, nil)
	return s
}

// tokenKeys sign the tokens of etcd's users. They are there from the beginning, because etcd reads them only when it
// starts.
func (v *view) tokenKeys() *DesiredSecret {
	name := TokenSecret(v.Cluster.Name)
	if old := v.Children.Secrets[name]; old != nil && old.has(objects.KeyTokenPrivate, objects.KeyTokenPublic) {
		return v.desired(name, corev1.SecretTypeOpaque, nil)
	}
	return v.desired(name, corev1.SecretTypeOpaque, TokenKeys{})
}

// authority says what is to be done to the cluster's authority; nil for nothing.
func (v *view) authority() Recipe {
	old := v.Children.Secrets[CASecret(v.Cluster.Name)]
	begins, ends := v.life(cmp.Or(v.Cluster.Spec.TLS.Auto.CADuration.Duration, defaultCADuration))
	made := Authority{CommonName: fmt.Sprintf("%s/%s %s", v.Cluster.Namespace, v.Cluster.Name,
		v.Now.UTC().Format("20060102T150405Z")), NotBefore: begins, NotAfter: ends}
	switch {
	case !usableAuthority(old), v.Now.After(old.Certificate.NotAfter):
		made.Inherit = v.inheritance()
		return made
	case old.Previous != nil && v.Now.After(old.Previous.NotAfter),
		slices.ContainsFunc(old.Trust,
			func(c Certificate) bool { return v.Now.After(c.NotAfter) && c.ID != old.Certificate.ID }):
		return Trim{At: v.Now}
	case old.Previous == nil && !v.Now.Before(old.Certificate.due()):
		made.Previous = true
		return made
	}
	return v.adopt(old)
}

func usableAuthority(s *Secret) bool {
	return s != nil && s.Certificate != nil && s.Certificate.Authority && s.Flaw == ""
}

// inheritance is a Secret that still tells what the members trust, for the day that somebody deletes the authority.
func (v *view) inheritance() string {
	for _, l := range v.leaves {
		if old := v.Children.Secrets[l.secret]; old != nil && len(old.Trust) > 0 {
			return l.secret
		}
	}
	return ""
}

// life is from when to when a new certificate is valid. It begins a little in the past, for clocks that are behind.
func (v *view) life(duration time.Duration) (begins, ends time.Time) {
	now := v.Now.UTC().Truncate(time.Second)
	return now.Add(-min(5*time.Minute, duration/20)), now.Add(duration)
}

// leaf is the Secret of a certificate, with what is to be done to it; nil while it can't be made.
func (v *view) leaf(l leaf) *DesiredSecret {
	old := v.Children.Secrets[l.secret]
	wanted := v.desired(l.secret, corev1.SecretTypeTLS, nil)
	if old != nil {
		wanted.Annotations[objects.AnnotationMadeFor] = old.Annotations[objects.AnnotationMadeFor]
	}
	ca := v.Children.Secrets[CASecret(v.Cluster.Name)]
	if l.what == "server" && v.peersLag(ca) {
		if old == nil {
			return nil
		}
		return wanted
	}
	if signer, previous := v.signer(ca, old); signer != nil && v.outlived(l, signer) {
		begins, ends := v.life(cmp.Or(v.Cluster.Spec.TLS.Auto.LeafDuration.Duration, defaultLeafDuration))
		if ends.After(signer.NotAfter) {
			ends = signer.NotAfter
		}
		wanted.Annotations[objects.AnnotationMadeFor] = l.fingerprint()
		wanted.Make = Leaf{Signer: ca.Name, Previous: previous, CommonName: l.commonName, Names: l.names,
			Server: l.server, Client: l.client, NotBefore: begins, NotAfter: ends}
		return wanted
	}
	switch {
	case old == nil:
		return nil
	case usableAuthority(ca) && !sameTrust(old.Trust, ca.Trust):
		wanted.Make = Bundle{Signer: ca.Name}
	}
	return wanted
}

// outlived reports whether the certificate is to be made (anew).
func (v *view) outlived(l leaf, signer *Certificate) bool {
	old := v.Children.Secrets[l.secret]
	return old == nil || old.Certificate == nil || old.Flaw != "" ||
		old.Annotations[objects.AnnotationMadeFor] != l.fingerprint() ||
		!v.Now.Before(old.Certificate.due()) && old.Certificate.NotAfter.Before(signer.NotAfter) ||
		old.Certificate.Issuer != signer.Key
}

// peersLag reports whether the peers' ca.crt is still to be brought up to the authority's. The servers' waits for
// that: it is the one that members tell us of, so whoever tells that he trusts an authority in clients trusts it in
// peers.
func (v *view) peersLag(ca *Secret) bool {
	peer := v.Children.Secrets[peerSecret(v.Cluster)]
	return usableAuthority(ca) && peer != nil && !sameTrust(peer.Trust, ca.Trust)
}

// fingerprint changes with what the certificate is for.
func (l leaf) fingerprint() string {
	return objects.Digest(l.commonName, strings.Join(l.names, " "), strconv.FormatBool(l.server),
		strconv.FormatBool(l.client))
}

// signer is the authority that signs in a Secret now, and whether that is the previous one; nil when neither may. A
// new authority signs once every member trusts it and clients have had time to hear of it (a twelfth of its life),
// and goes on with what it has signed. Where the one before can't sign any more, it also takes the place of what
// nobody takes any longer.
func (v *view) signer(ca, old *Secret) (signer *Certificate, previous bool) {
	if !usableAuthority(ca) || v.Now.After(ca.Certificate.NotAfter) {
		return nil, false
	}
	settled := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore) / 12)
	switch {
	case !v.supersedes(ca), signedBy(old, ca.Certificate), v.everyoneTrusts(*ca.Certificate) &&
		(ca.Previous == nil || !v.Now.Before(settled)):
		return ca.Certificate, false
	case ca.Previous != nil && !v.Now.After(ca.Previous.NotAfter):
		return ca.Previous, true
	case v.spent(old):
		return ca.Certificate, false
	}
	return nil, false
}

func signedBy(s *Secret, authority *Certificate) bool {
	return s != nil && s.Certificate != nil && s.Certificate.Issuer == authority.Key
}

// spent reports whether nobody takes the certificate any longer.
func (v *view) spent(s *Secret) bool {
	return s == nil || s.Certificate == nil || s.Flaw != "" || v.Now.After(s.Certificate.NotAfter)
}

// supersedes reports whether the authority takes the place of another that certificates in use are signed by.
func (v *view) supersedes(ca *Secret) bool {
	return slices.ContainsFunc(v.leaves, func(l leaf) bool {
		old := v.Children.Secrets[l.secret]
		return old != nil && old.Certificate != nil && old.Certificate.Issuer != ca.Certificate.Key
	})
}

// everyoneTrusts reports whether every member and every pod has told, in this very call, that it trusts this
// authority. What is told at an address where another one answers, or nobody that we know, does not count.
func (v *view) everyoneTrusts(ca Certificate) bool {
	tells := func(h Health) bool { return h.Err == "" && slices.Contains(h.Trusts, ca.Subject) }
	if v.Etcd == nil || slices.ContainsFunc(v.members,
		func(m *member) bool { return m.name != "" && !tells(m.health) }) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := objects.Ordinal(v.Cluster.Name, name); ours && !tells(v.Health[name]) {
			return false
		}
	}
	return true
}

func sameTrust(a, b []Certificate) bool {
	return slices.EqualFunc(a, b, func(x, y Certificate) bool { return x.ID == y.ID })
}

// ---- what pods need

// mounted are the Secrets that a pod names.
func (v *view) mounted() []string {
	if !objects.Encrypted(v.Cluster) {
		return nil
	}
	return []string{serverSecret(v.Cluster), peerSecret(v.Cluster), TokenSecret(v.Cluster.Name)}
}

// flaw says why a certificate can't be used; empty when it can.
func (v *view) flaw(l leaf) string {
	s := v.secret(l.secret)
	if s == nil {
		if objects.TLSMode(v.Cluster) == v1alpha1.TLSSecrets {
			return fmt.Sprintf("it does not exist, or lacks the label %s: %s; create it with tls.crt, tls.key and "+
				"ca.crt", objects.LabelCluster, v.Cluster.Name)
		}
		return "it is not there yet" + v.unissued(l.secret)
	}
	c := s.Certificate
	switch {
	case s.Flaw != "":
		return s.Flaw
	case c == nil || len(s.Trust) == 0:
		return "it lacks tls.crt, tls.key or ca.crt"
	case v.Now.After(c.NotAfter):
		return "tls.crt expired on " + day(c.NotAfter)
	case v.Now.Before(c.NotBefore):
		return "tls.crt is valid only from " + day(c.NotBefore)
	case l.server && !c.Server, l.client && !c.Client:
		return fmt.Sprintf("tls.crt is not for %s (extended key usage)", l.usages())
	case l.what == "peer" && c.CommonName != l.commonName:
		return fmt.Sprintf("tls.crt has the common name %q, a peer's must have %q", c.CommonName, l.commonName)
	case l.server && !covers(c.Names, l.needs(v.Cluster)):
		return fmt.Sprintf("tls.crt is for other names than %s", strings.Join(l.needs(v.Cluster), " and "))
	}
	return ""
}

func (l leaf) usages() string {
	if l.server {
		return "servers and clients"
	}
	return "clients"
}

// needs are the names without which members can't be reached.
func (l leaf) needs(c *v1alpha1.EtcdCluster) []string {
	needed := []string{objects.Host(c, "*")}
	if l.what == "server" {
		needed = append(needed, objects.ClientService(c.Name)+"."+c.Namespace+".svc")
	}
	return needed
}

func covers(names, needed []string) bool {
	return !slices.ContainsFunc(needed, func(n string) bool { return !slices.Contains(names, n) })
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// served identifies the certificates that running members are to show; pods carry it as an annotation, because the
// kubelet brings a pod's files up to date at once when the pod changes, and within minutes otherwise. Empty while
// they are not all there.
func (v *view) served() string {
	var ids []string
	for _, name := range v.mounted() {
		s := v.secret(name)
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

// distrusts reports whether the member runs with other authorities than its files now hold, and why it is to be
// restarted.
func (v *view) distrusts(m *member) (string, bool) {
	const why = "it trusts other certificate authorities than it should"
	if !objects.Encrypted(v.Cluster) || m.name == "" || len(m.health.Trusts) == 0 || len(v.certificateProblems) > 0 {
		return "", false
	}
	if provided(v.Cluster) {
		return why, v.begunOtherwise(m)
	}
	server, peer := v.secret(serverSecret(v.Cluster)), v.secret(peerSecret(v.Cluster))
	if !sameTrust(server.Trust, peer.Trust) {
		return "", false // one of them is about to follow
	}
	wanted := subjects(server.Trust)
	return why, !slices.Equal(wanted, m.health.Trusts)
}

// distrustsPeers reports whether a member runs, but can't hear the others any more: it does not trust the authority
// that signs for them now, and will only when it starts anew.
func (v *view) distrustsPeers(h Health) bool {
	if objects.TLSMode(v.Cluster) != v1alpha1.TLSAuto || h.Serving() || len(h.Trusts) == 0 ||
		len(v.certificateProblems) > 0 {
		return false
	}
	peer := v.secret(peerSecret(v.Cluster))
	return slices.ContainsFunc(peer.Trust, func(c Certificate) bool {
		return c.Key == peer.Certificate.Issuer && !slices.Contains(h.Trusts, c.Subject)
	})
}

func subjects(trust []Certificate) []string {
	var list []string
	for _, c := range trust {
		list = append(list, c.Subject)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// RelatedSelector selects the Secrets that somebody else keeps for the cluster: those that carry its label. So nobody
// can point an EtcdCluster at a Secret whose owner has not agreed. It depends on the cluster's name alone, because
// Metacontroller 1.5.20 remembers the answer by that alone, for clusters of that name in all namespaces. 4.17.2
// remembers by UID, and looks in the parent's namespace only: a narrower answer would save nothing there.
func RelatedSelector(c *v1alpha1.EtcdCluster) metav1.LabelSelector {
	return metav1.LabelSelector{
		MatchLabels: map[string]string{objects.LabelCluster: c.Name},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: labelController,
			Operator: metav1.LabelSelectorOpDoesNotExist}},
	}
}

// labelController is what Metacontroller puts on children.
const labelController = "controller-uid"
