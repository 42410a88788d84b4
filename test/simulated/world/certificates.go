package world

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Who takes whose certificate. etcd reads its certificate again at each handshake, and the authorities that it trusts
// only when it starts. A connection that no longer fits breaks at once here; a real one may live on for a while.

// Files are the certificates that the kubelet has written into a pod, from the Secrets. All nil in a pod without.
type Files struct{ Server, Peer *observation.Secret }

// mounts are the Secrets that a pod names, by the directory that their keys are put in.
func mounts(pod *corev1.Pod) map[string]*corev1.SecretProjection {
	all := map[string]*corev1.SecretProjection{}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			dir, _, _ := strings.Cut(s.Secret.Items[0].Path, "/")
			all[dir] = s.Secret
		}
	}
	return all
}

// mount brings the pod's files up to the Secrets. A running pod keeps what it has when a Secret or one of its keys is
// gone; one that has not begun waits for it.
func (w *World) mount(pod *corev1.Pod) (waitsFor string) {
	wanted := mounts(pod)
	_, has := w.Files[pod.UID]
	if len(wanted) == 0 || has && w.SlowFiles[pod.Name] {
		return ""
	}
	found := map[string]*observation.Secret{}
	for _, dir := range slices.Sorted(maps.Keys(wanted)) {
		s := w.Secret(wanted[dir].Name)
		lacks := s == nil || slices.ContainsFunc(wanted[dir].Items,
			func(i corev1.KeyToPath) bool { return !slices.Contains(s.Keys, i.Key) })
		switch {
		case lacks && has:
			return ""
		case lacks:
			return wanted[dir].Name
		}
		found[dir] = s
	}
	files := Files{Server: found["server"], Peer: found["peer"]}
	if w.Files[pod.UID] != files {
		before := w.Files[pod.UID]
		w.Files[pod.UID] = files
		w.Changes++
		w.Oracle.afterFiles(w, pod, before)
	}
	return ""
}

// unfit is why etcd does not start with these files; empty when it does.
func (f Files) unfit() string {
	for _, s := range []*observation.Secret{f.Server, f.Peer} {
		if s != nil && strings.HasPrefix(s.Flaw, "tls.key") {
			return "tls: private key does not match public key"
		}
	}
	return ""
}

// loaded are the authorities that an etcd trusts which starts with these files.
func (f Files) loaded() (clients, peers []observation.Certificate) {
	if f.Server == nil || f.Peer == nil {
		return nil, nil
	}
	return f.Server.Trust, f.Peer.Trust
}

// side is one end of a connection: what it shows, and what it trusts. Empty, it speaks plain text.
type side struct {
	shows  *observation.Certificate
	trusts []observation.Certificate
}

// peerSide is a running etcd as its peers see it.
func (w *World) peerSide(pod types.UID) side {
	if files := w.Files[pod]; files.Peer != nil {
		return side{files.Peer.Certificate, w.Procs[pod].Peers}
	}
	return side{}
}

// heed reports whether both sides take what the other one shows.
func (w *World) heed(a, b side) bool {
	if a.shows == nil && b.shows == nil {
		return true
	}
	return rejects(a.trusts, b.shows, w.Now) == "" && rejects(b.trusts, a.shows, w.Now) == ""
}

// What is wrong with a certificate, in the words of crypto/tls on the wire.
const (
	expired = "expired certificate"
	unknown = "unknown certificate authority"
	bad     = "bad certificate"
)

// rejects says why a side that trusts these authorities does not take a certificate; empty when it does.
func rejects(trusts []observation.Certificate, shown *observation.Certificate, now time.Time) string {
	valid := func(c *observation.Certificate) bool { return !now.Before(c.NotBefore) && !now.After(c.NotAfter) }
	switch {
	case shown == nil:
		return bad
	case !valid(shown):
		return expired
	}
	why := unknown
	for _, authority := range trusts {
		if authority.Key == shown.Issuer && valid(&authority) {
			return ""
		} else if authority.Key == shown.Issuer {
			why = expired
		}
	}
	return why
}

// Uprooted reports whether the etcd in the pod does not take Quorate's certificate, because a person has taken the
// authority away, and what it signed too: until it is started again.
func (w *World) Uprooted(pod *corev1.Pod) bool {
	proc, runs := w.Procs[pod.UID]
	own := w.Secret(objects.OperatorSecret(w.Cluster()))
	return w.Oracle.uprooted && runs && len(proc.Clients) > 0 && own != nil &&
		rejects(proc.Clients, own.Certificate, w.Now) == unknown
}

// paired reports whether two members' etcds hear each other: raft needs no more than that one of the two can dial the
// other: messages go over streams that the receiver opens, or over requests that the sender makes.
func (w *World) paired(c Cluster, a, b uint64) bool {
	return a == b || w.dials(c, a, b) || w.dials(c, b, a)
}

// dials reports whether a member reaches another one at the URL by which that is listed.
func (w *World) dials(c Cluster, from, to uint64) bool {
	x, _ := w.running(c.ID, from)
	y, _ := w.running(c.ID, to)
	listed, _ := c.member(to)
	return w.reaches(w.peerSide(x), y, listed)
}

// reaches reports whether this side reaches the etcd in a pod at the URL by which its member is listed.
func (w *World) reaches(from side, pod types.UID, listed observation.Member) bool {
	if len(listed.PeerURLs) == 0 { // a member that was removed is not dialled
		return false
	}
	byTLS := strings.HasPrefix(listed.PeerURLs[0], "https:")
	switch {
	case byTLS != w.Procs[pod].TLS:
		return false
	case !byTLS:
		return true
	}
	return w.heed(from, w.peerSide(pod))
}

// listensByTLS reports how the etcd of a pod listens to its peers, by its flags.
func listensByTLS(pod *corev1.Pod) bool {
	return strings.HasPrefix(flag(&pod.Spec.Containers[0], "listen-peer-urls"), "https:")
}

// handshake is what comes of Quorate's connection to the member in a pod: what the member tells of itself, and why
// there is none.
func (c *client) handshake(pod types.UID, e observation.Endpoint) observation.Health {
	files := c.w.Files[pod]
	if files.Server == nil {
		return observation.Health{}
	}
	failed := func(h observation.Health, why string) observation.Health {
		h.Err = etcdops.ErrHandshake.Error() + ": " + why
		return h
	}
	own := c.operator
	if own == nil {
		own = &observation.Secret{}
	}
	shown := files.Server.Certificate
	// A client that does not take the server's certificate ends the handshake before it hears what the server trusts.
	switch why := rejects(own.Trust, shown, c.w.Now); {
	case why == unknown:
		return failed(observation.Health{},
			"failed to verify certificate: x509: certificate signed by unknown authority")
	case why != "":
		return failed(observation.Health{},
			"failed to verify certificate: x509: certificate has expired or is not yet valid")
	case !isFor(shown, e.ServerName):
		return failed(observation.Health{}, "failed to verify certificate: x509: certificate is valid for other names")
	}
	proc := c.w.Procs[pod]
	h := observation.Health{Certificate: shown.ID, Anonymous: proc.Anonymous}
	told := proc.Clients
	if proc.Anonymous { // the peers' door tells, to who comes there
		told = nil
		if e.PeerAddress != "" {
			told = proc.Peers
		}
	}
	for _, authority := range told {
		h.Trusts = append(h.Trusts, authority.Subject)
	}
	slices.Sort(h.Trusts)
	h.Trusts = slices.Compact(h.Trusts)
	if why := rejects(proc.Clients, own.Certificate, c.w.Now); why != "" && !proc.Anonymous {
		return failed(h, why)
	}
	return h
}

// asksNone reports whether the etcd of a pod asks clients for no certificate, by its flags.
func asksNone(pod *corev1.Pod) bool {
	etcd := &pod.Spec.Containers[0]
	return len(mounts(pod)) > 0 && flag(etcd, "trusted-ca-file") == "" && flag(etcd, "client-cert-auth") != "true"
}

// mayOpen checks that no etcd starts which asks clients for no certificate while auth is off (S20).
func (w *World) mayOpen(pod *corev1.Pod, c Cluster) {
	if asksNone(pod) && !c.Auth.Enabled {
		w.violate("S20", "%s asks clients for no certificate, and auth is off", pod.Name)
	}
}

// mayAuthorize checks that auth is not turned off while a member asks clients for no certificate (S20).
func (w *World) mayAuthorize(c Cluster, step decision.Authorize) {
	for _, proc := range w.Procs {
		if proc.Anonymous && w.Dirs[proc.Dir].Cluster == c.ID && !step.Want.Enabled {
			w.violate("S20", "auth is turned off, and %s asks clients for no certificate", proc.Pod)
		}
	}
}

// isFor reports whether the certificate is for the name, a star standing for its first part.
func isFor(c *observation.Certificate, name string) bool {
	_, domain, _ := strings.Cut(name, ".")
	return slices.Contains(c.Names, name) || slices.Contains(c.Names, "*."+domain)
}

// operatorOf is the Secret that Quorate shows to the members, as the call was shown it; nil without.
func operatorOf(cluster *v1beta1.EtcdCluster, o *observation.Observation) *observation.Secret {
	name := objects.OperatorSecret(cluster)
	if s := o.Children.Secrets[name]; s != nil {
		return s
	}
	return o.Related.Secrets[name]
}

// Provide makes or replaces a Secret that others keep for a cluster: this certificate, signed by one
// authority of theirs, with those that should be trusted. Theirs never expire. Flawed, its key is another one's.
func (w *World) Provide(name, cluster, signer string, trusted []string, c observation.Certificate, flawed bool) {
	c.ID, c.Key, c.Issuer = w.number("certificate"), w.number("key"), signer
	s := &observation.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{objects.LabelCluster: cluster}},
		Type:       corev1.SecretTypeTLS,
		Keys:       []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate}, Certificate: &c,
	}
	for _, a := range trusted {
		s.Trust = append(s.Trust, observation.Certificate{ID: a, CommonName: a, Subject: a, Key: a, Issuer: a,
			NotAfter: w.Now.AddDate(100, 0, 0), Authority: true})
	}
	if flawed {
		s.Flaw = "tls.key does not belong to tls.crt, or can't be read"
	}
	w.keep(s)
}

// Revoke makes or replaces a Secret that others keep for a cluster, with a list of revoked certificates.
func (w *World) Revoke(name, cluster string, list observation.CRL) {
	w.keep(&observation.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{objects.LabelCluster: cluster}},
		Type:       corev1.SecretTypeOpaque, Keys: []string{objects.KeyCRL}, CRL: &list,
	})
}

// keep makes a Secret, or replaces what it has.
func (w *World) keep(s *observation.Secret) {
	name := s.Name
	if old := w.Secret(name); old != nil {
		s.ObjectMeta = old.ObjectMeta
		w.put(SecretKind, s)
		return
	}
	_ = w.create(SecretKind, s)
}

// Describe says what the certificate of a Secret is in words: whose signature it carries, and until when.
func Describe(s *observation.Secret) string {
	c := s.Certificate
	if c == nil {
		return "no certificate"
	}
	until := " until " + c.NotAfter.Format("2006-01-02 15:04")
	if c.Authority {
		return "authority " + c.ID + until
	}
	i := slices.IndexFunc(s.Trust, func(t observation.Certificate) bool { return t.Key == c.Issuer })
	if i < 0 {
		return "signed by an unknown authority" + until
	}
	return "signed by " + s.Trust[i].ID + until
}

// IDs of authorities in one string.
func IDs(authorities []observation.Certificate) string {
	var all []string
	for _, c := range authorities {
		all = append(all, c.ID)
	}
	return strings.Join(all, " and ")
}

// Secret of this name, or nil.
func (w *World) Secret(name string) *observation.Secret {
	s, _ := w.Objects[Key{SecretKind, name}].(*observation.Secret)
	return s
}

// Secrets are all Secrets by name.
func (w *World) Secrets() []*observation.Secret { return list[*observation.Secret](w, SecretKind) }
