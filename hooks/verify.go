package hooks

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Verify checks a decision against the rules of safety, said a second time and independently of the rules that made it. It is
// the oracle of the stories, the model and the fuzzers, and runs on every call when QUORATE_VERIFY=1. The error names every
// rule that is broken; nil is the only acceptable answer.
//
// It judges one observation and one decision. What spans calls (S14 lagging caches, S15 two calls at once) is for the model.
func Verify(o Observation, d Decision) error {
	v := newView(o)
	j := judgement{v: v, o: o, d: d}
	if validate(&o.Cluster.Spec) != nil || o.Cluster.Spec.Suspend {
		j.nothingChanges()
		return errors.Join(j.broken...)
	}
	j.succession()
	j.o.Children, j.d.Children = v.Children, j.inEpoch(v)
	j.step()
	j.secrets()
	if v.ending() {
		return errors.Join(j.broken...)
	}
	j.claims()
	j.pods()
	j.record()
	return errors.Join(j.broken...)
}

type judgement struct {
	v      *view
	o      Observation
	d      Decision
	broken []error
}

func (j *judgement) require(ok bool, rule, format string, args ...any) {
	if !ok {
		j.broken = append(j.broken, fmt.Errorf("%s: %s", rule, fmt.Sprintf(format, args...)))
	}
}

func (j *judgement) nothingChanges() {
	j.require(j.d.Step == nil, "S1", "a step although everything is held back")
	for name := range j.o.Children.Claims {
		j.require(j.hasClaim(name), "S12", "held back, but the claim %s is gone from the answer", name)
	}
	for name := range j.o.Children.Pods {
		j.require(j.pod(name) != nil, "S12", "held back, but the pod %s is gone from the answer", name)
	}
}

// step checks the one change of etcd's membership.
func (j *judgement) step() {
	if j.d.Step == nil {
		return
	}
	j.require(j.v.Etcd != nil, "S11", "%s while blind", j.d.Step)
	j.require(j.o.Taken == nil, "S3", "a second step in one call: %s", j.d.Step)
	if j.v.Etcd == nil {
		return
	}
	j.whileCorrupt()
	j.stepBeside()
	switch s := j.d.Step.(type) {
	case Compact:
		j.compact(s)
	case Defragment:
		j.defragment(s)
	case Disarm:
		j.disarm(s)
	case AddLearner:
		j.addLearner(s)
	case Promote:
		j.promote(s)
	case Remove:
		j.remove(s)
	case Readdress:
		j.readdress(s)
	case MoveLeader:
		to := j.v.byID(s.To)
		j.require(to != nil && !to.Learner && to.serving(), "S1", "%s, which is no serving voter", s)
	}
}

func (j *judgement) addLearner(s AddLearner) {
	n, ours := ordinal(j.o.Cluster.Name, s.Name)
	j.require(ours && (s.PeerURL == PeerURL(j.o.Cluster, s.Name) || s.PeerURL == peerURLOf(j.o.Cluster, s.Name, false) && !j.v.everyoneDials()), "S9", "%s under a name or URL that is not ours", s)
	j.require(j.v.epoch != nil && n >= j.v.epoch.next, "S9", "%s: the number is below the mark", s)
	j.require(!slices.Contains(j.v.names, s.Name), "S9", "%s: the name has left traces", s)
	j.require(j.v.learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.v.departing()) == 0, "S3", "%s while a removed member's pod runs", s)
	going := slices.ContainsFunc(j.v.voters, func(m *member) bool {
		return j.claimOfGoes(m.name) || j.unlike(m)
	})
	held := filter(j.v.voters, func(m *member) bool { return m.name != "" || !j.beside() })
	j.require(len(held) < j.v.replicas || going && len(held) == j.v.replicas, "S6", "%s although there are enough voters", s)
	j.suits(s)
}

func (j *judgement) promote(s Promote) {
	m := j.v.find(s.Name)
	if m == nil || m.ID != s.ID {
		j.require(false, "S5", "%s, which etcd does not list", s)
		return
	}
	lead := j.leads()
	j.require(m.Learner && m.serving(), "S5", "%s, which did not answer in this call", s)
	j.require(m.health.RaftIndex*10 >= lead.RaftIndex*9, "S5", "%s, which has not caught up", s)
	j.require(m.pod != nil && (!j.v.onClaims() || m.claim != nil && !j.claimOfGoes(m.name)), "S5", "%s, which has no volume", s)
	j.require(m.pod == nil || m.pod.Annotations[AnnotationInitialCluster] == "", "S10", "%s, whose pod may still join once more", s)
	voters := j.v.voters
	j.require(serving(voters)+1 >= quorum(len(voters)+1), "S1", "%s would leave %d of %d serving", s, serving(voters)+1, len(voters)+1)
}

// readdress: a voter of ours gets the https form of its own URL, while everybody serves and can dial it, and no other one's listener
// differs from what is listed (two such members would not hear each other).
func (j *judgement) readdress(s Readdress) {
	m := j.v.find(s.Name)
	j.require(m != nil && m.ID == s.ID && !m.Learner, "S4", "%s, which is no voter", s)
	j.require(s.PeerURL == PeerURL(j.o.Cluster, s.Name) && byTLS(s.PeerURL), "S9", "%s with a URL that is not its own", s)
	j.require(j.v.learner() == nil && len(j.v.departing()) == 0, "S3", "%s while members come or go", s)
	for _, o := range j.v.voters {
		j.require(o.serving(), "S1", "%s while %s does not serve", s, o.name)
		j.require(o.name == "" || speaks(o.pod).certificates, "S1", "%s, whom %s can't dial then", s, o.name)
		j.require(o.name == "" || speaks(o.pod).peers == byTLS(o.PeerURLs...), "S1", "%s before %s listens as it is listed", s, o.name)
	}
}

func (j *judgement) remove(s Remove) {
	m := j.v.byID(s.ID)
	if m == nil || m.called() != s.Name {
		j.require(false, "S6", "%s, which etcd does not list", s)
		return
	}
	if n, ours := ordinal(j.o.Cluster.Name, s.Name); !j.v.onClaims() && ours {
		j.require(n < j.v.epoch.next, "S9", "%s: its last trace goes before its number is recorded", s)
	}
	joined, listed := j.joined(m)
	j.require(listed && j.o.Now.Sub(joined) >= CallsEnd, "S9", "%s: a call from before its addition may add it again", s)
	if m.Learner {
		return
	}
	voters := j.v.voters
	others := filter(voters, func(o *member) bool { return o.ID != m.ID })
	_, lost := j.v.dataLost(m)
	wrong := j.provenWrong(m)
	if j.beside() {
		j.removeBeside(s, m, lost || j.dead(m))
	}
	j.require(j.beside() || lost || wrong || len(voters) > j.v.replicas || j.dead(m), "S6", "%s, which is neither lost, nor proven wrong, nor above the wanted number, nor dead for long enough", s)
	j.require(len(others) > 0, "S6", "%s, the last voter", s)
	j.require(m.ID != j.v.Etcd.Leader, "S6", "%s, the leader", s)
	j.require(serving(others) >= quorum(len(others)), "S1", "%s would leave %d of %d serving", s, serving(others), len(others))
	j.require(wrong || !m.serving() || serving(others) == len(others), "S2", "%s, which serves, while another voter does not", s)
	j.require(j.v.learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.v.departing()) == 0, "S3", "%s while a removed member's pod runs", s)
}

// joined is when the status first listed the member; false when it does not.
func (j *judgement) joined(m *member) (time.Time, bool) {
	for _, s := range j.o.Cluster.Status.Members {
		if s.ID == hex(m.ID) {
			return s.Joined.Time, !s.Joined.IsZero()
		}
	}
	return time.Time{}, false
}

// dead reports whether a voter may be given up: the status says that it has been silent for as long as the policy asks for, and that the
// cluster has had quorum all that time; nobody else answers in its place; and its claim, if it has one, carries the mark.
func (j *judgement) dead(m *member) bool {
	policy := j.o.Cluster.Spec.MemberReplacement
	limit := policy.After.Duration
	if limit <= 0 {
		limit = 5 * time.Minute
	}
	long := func(since time.Time) bool { return !since.IsZero() && j.o.Now.Sub(since) >= limit }
	silent := slices.ContainsFunc(j.o.Cluster.Status.Members, func(s v1alpha1.MemberStatus) bool {
		return s.ID == hex(m.ID) && !s.Ready && long(s.Since.Time)
	})
	quorate := slices.ContainsFunc(j.o.Cluster.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.Available && c.Status == metav1.ConditionTrue && long(c.LastTransitionTime.Time)
	})
	return policy.Policy != v1alpha1.ReplaceManual && !slices.Contains(fencedBy(j.o.Cluster), m.name) && !m.serving() && !j.masked(m.name) && silent && quorate && j.toBeKept(m)
}

// toBeKept reports whether all claims of the member are marked to be kept.
func (j *judgement) toBeKept(m *member) bool {
	for _, claim := range []*corev1.PersistentVolumeClaim{m.claim, j.o.Children.Claims[m.name+"-wal"]} {
		if claim != nil && j.v.ours(claim) && claim.Annotations[AnnotationCondemned] != "true" {
			return false
		}
	}
	return true
}

// masked reports whether somebody else answered at a member's address in this call.
func (j *judgement) masked(name string) bool {
	h, heard := j.o.Health[name]
	m := j.v.find(name)
	return heard && m != nil && h.MemberID != 0 && (h.Err != "" || h.MemberID != m.ID)
}

// claims checks what becomes of the data.
func (j *judgement) claims() {
	for name, claim := range j.o.Children.Claims {
		if member, ours := standsOn(j.o.Cluster.Name, name); ours && !j.hasClaim(name) && claim.DeletionTimestamp == nil {
			j.claimGoes(member, claim)
		}
	}
	for _, claim := range j.d.Children.Claims {
		if old := j.o.Children.Claims[claim.Name]; old != nil {
			j.sameClaim(old, claim)
		} else {
			member, _ := standsOn(j.o.Cluster.Name, claim.Name)
			j.newClaim(member)
		}
	}
}

func (j *judgement) claimGoes(name string, claim *corev1.PersistentVolumeClaim) {
	j.require(j.v.Etcd != nil && j.v.find(name) == nil, "S7", "the claim %s goes without a list in hand that omits it", name)
	j.require(j.v.ours(claim), "S7", "the claim %s goes, which another cluster object owns", name)
	j.require(j.v.pastMark(name), "S9", "the claim %s goes before its number is recorded", name)
	keep := 24 * time.Hour
	if d := j.o.Cluster.Spec.MemberReplacement.KeepClaimFor; d != nil {
		keep = d.Duration
	}
	if keep > 0 && claim.Annotations[AnnotationCondemned]+claim.Annotations[AnnotationQuarantined] != "" {
		since, err := time.Parse(time.RFC3339, claim.Annotations[AnnotationQuarantined])
		j.require(err == nil && j.o.Now.Sub(since) >= keep, "S7", "the claim %s goes, which is to be kept for %s", name, keep)
	}
}

func (j *judgement) newClaim(name string) {
	m := j.v.find(name)
	founding := j.v.Etcd == nil && j.v.epoch != nil && !j.v.epoch.founded() && j.v.epoch.initial[name] != ""
	j.require(founding || m != nil && j.v.mayBeMade(m), "S10", "a new claim for %s, which may have had one", name)
	j.require(j.v.Etcd != nil || founding, "S11", "a new claim %s while blind", name)
}

// pods checks what runs.
func (j *judgement) pods() {
	if j.v.replicas == 0 && !j.beside() {
		j.lastHolds()
		return // a pause stops everything else, as asked
	}
	rolled := j.podsThatGo()
	j.require(len(rolled) <= 1, "S2", "several pods go at once: %v", rolled)
	j.require(len(rolled) == 0 || len(j.exchanged()) == 0, "S2", "a pod goes while the image of another is exchanged: %v, %v", rolled, j.exchanged())
	j.require(len(j.exchanged()) <= 1, "S2", "several images are exchanged at once: %v", j.exchanged())
	for _, m := range j.v.members {
		j.require(j.pod(m.name) != nil || slices.Contains(rolled, m.name) || !j.needsPod(m), "S12", "the member %s has no pod in the answer", m.name)
		for _, name := range []string{m.name, m.name + "-wal"} {
			j.require(j.o.Children.Claims[name] == nil || j.hasClaim(name), "S12", "the member %s has no claim %s in the answer", m.name, name)
		}
		if now := j.pod(m.name); now != nil && j.v.epoch.founded() && j.masked(m.name) {
			j.require(now.Labels[LabelRole] == "fenced", "S8", "clients are led to %s, where another member answers", m.name)
		}
		j.require(!j.masked(m.name) || !slices.Contains(rolled, m.name), "S8", "the pod of %s goes, where another member answers", m.name)
	}
	for _, pod := range j.d.Children.Pods {
		if j.o.Children.Pods[pod.Name] == nil {
			j.newPod(pod)
		}
	}
}

// lastHolds checks that a pause stops no pod whose data would go with it.
func (j *judgement) lastHolds() {
	for name, pod := range j.o.Children.Pods {
		if !j.claimOfGoes(name) || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || finished(pod) || j.v.epoch == nil {
			continue
		}
		_, ours := ordinal(j.o.Cluster.Name, name)
		j.require(!ours || j.pod(name) != nil, "S12", "the pod %s goes, and with it the data on a claim that is being deleted", name)
	}
}

// claimOfGoes reports whether a claim of this member's, for its data or its log, is being deleted.
func (j *judgement) claimOfGoes(member string) bool {
	for _, name := range []string{member, member + "-wal"} {
		if claim := j.o.Children.Claims[name]; claim != nil && claim.DeletionTimestamp != nil && j.v.ours(claim) {
			return true
		}
	}
	return false
}

// needsPod reports whether the member must have a pod in the answer: all must but strangers, members whose pod has ended, and
// those that have none and can't be given one yet, for want of the record or of what they would run on.
func (j *judgement) needsPod(m *member) bool {
	if m.name == "" || finished(m.pod) {
		return false
	}
	if m.pod == nil && j.v.fenced(m.name) {
		return false
	}
	return m.pod != nil || len(j.v.lacking) == 0 && j.v.epoch.founded() && !j.v.mayBeMade(m) && !j.v.memory() && j.v.grounded(m.name) && !j.v.joinsElsewhere(m)
}

// podsThatGo are the members' pods that the answer takes away although nobody else has.
func (j *judgement) podsThatGo() []string {
	var rolled []string
	for name, pod := range j.o.Children.Pods {
		_, ours := ordinal(j.o.Cluster.Name, name)
		if j.pod(name) != nil || pod.DeletionTimestamp != nil || finished(pod) || !ours {
			continue
		}
		neverTaken := !j.v.memory() && j.v.epoch != nil && !j.v.epoch.quorate() && pod.Spec.NodeName == ""
		j.require(j.v.Etcd != nil || neverTaken, "S11", "the pod %s goes while blind", name)
		m := j.v.find(name)
		if m != nil && !m.Learner {
			j.require(!m.serving() || j.mayRestart(m), "S1", "the pod %s goes, which serves", name)
			j.chosen(m, m.name, string(pod.UID))
			j.require(j.othersStay(m) >= quorum(len(j.v.voters)), "S1", "the pod %s goes, and too few other voters serve and stay", name)
		}
		if m != nil || j.v.Etcd == nil {
			rolled = append(rolled, name)
		}
	}
	return rolled
}

// exchanged are the voters whose etcd the answer ends by giving its pod another image.
func (j *judgement) exchanged() []string {
	var list []string
	for _, m := range j.v.voters {
		now := j.pod(m.name)
		if m.pod == nil || now == nil || neverRan(m.pod) || etcdImage(now) == etcdImage(m.pod) {
			continue
		}
		j.require(!m.serving() || j.mayRestart(m), "S1", "the image of %s is exchanged, which serves", m.name)
		j.chosen(m, m.name, string(m.pod.UID), or(containerOf(m.pod), "-"))
		j.require(j.othersStay(m) >= quorum(len(j.v.voters)), "S1", "the image of %s is exchanged, and too few other voters serve and stay", m.name)
		list = append(list, m.name)
	}
	return list
}

// chosen requires that the record names the voter, with the pod or container that is to end, and that nobody has spared it since.
func (j *judgement) chosen(m *member, what ...string) {
	named := strings.Fields(j.v.epoch.record.Annotations[AnnotationRenewing])
	j.require(slices.Equal(named, what), "S2", "%s is restarted, and the record names %q instead of %q", m.name, named, what)
	j.require(m.pod.Annotations[AnnotationSpared] == "", "S2", "%s is restarted, which is spared", m.name)
}

func etcdImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == ContainerEtcd {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// othersStay counts the other voters that serve and whose pods nobody has deleted or given another image from which they have yet to start.
func (j *judgement) othersStay(m *member) int {
	n := 0
	for _, o := range j.v.voters {
		if o.ID != m.ID && o.serving() && o.name == "" && j.beside() {
			n++
		}
		if o.ID == m.ID || !o.serving() || o.pod == nil || o.pod.DeletionTimestamp != nil {
			continue
		}
		if ends := o.pod.Annotations[AnnotationExchanged]; ends == "" || ends != containerOf(o.pod) {
			n++
		}
	}
	return n
}

// mayRestart reports whether a voter that serves may be stopped to be started again: with its data where it stays, not
// while it leads, and with all voters serving and nobody joining.
func (j *judgement) mayRestart(m *member) bool {
	stays := !j.v.memory() || j.pod(m.name) != nil
	asked := j.unlike(m) && stays || j.v.fenced(m.name)
	return asked && m.ID != j.v.Etcd.Leader && serving(j.v.voters) == len(j.v.voters) && j.v.learner() == nil
}

// unlike reports whether the member is not as the spec and the record want it.
func (j *judgement) unlike(m *member) bool {
	if m.pod == nil {
		return false
	}
	return j.outTrusted(m) || j.speaksWrong(m) || speaks(m.pod).anyPeer && !j.beside() || j.volumeUnlike(m) || m.pod.Annotations[AnnotationTemplate] != templateHash(&j.o.Cluster.Spec) ||
		m.pod.Annotations[AnnotationImage] != image(&j.o.Cluster.Spec, j.v.epoch.version)
}

// volumeUnlike reports whether the member's volume, or what etcd knows of it, is not as the spec wants it.
func (j *judgement) volumeUnlike(m *member) bool {
	quota, known := quotaOf(m.pod)
	if onNodes(&j.o.Cluster.Spec) {
		return known && quota != quotaBytes(j.o.Cluster.Spec.Options, storageSize(&j.o.Cluster.Spec))
	}
	if m.claim == nil || j.v.memory() {
		return false
	}
	s := j.o.Cluster.Spec.Storage
	wal := j.o.Children.Claims[m.name+"-wal"]
	other := unlikeClaim(m.claim, storageSize(&j.o.Cluster.Spec), s.StorageClassName) || (wal == nil) != (s.WAL == nil)
	if wal != nil && s.WAL != nil {
		other = other || unlikeClaim(wal, walSize(s.WAL), s.WAL.StorageClassName)
	}
	growing := func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0
	}
	stale := known && quota != quotaBytes(j.o.Cluster.Spec.Options, *m.claim.Spec.Resources.Requests.Storage())
	return s.Migration == v1alpha1.MigrateReplace && other || growing(m.claim) || growing(wal) || stale
}

func unlikeClaim(c *corev1.PersistentVolumeClaim, size resource.Quantity, class *string) bool {
	return c.Spec.Resources.Requests.Storage().Cmp(size) != 0 || class != nil && (c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != *class)
}

// sameClaim checks that a claim that stays changes in nothing but its size, and that only upwards to what is asked for.
func (j *judgement) sameClaim(old, now *corev1.PersistentVolumeClaim) {
	was, is := old.Spec.Resources.Requests.Storage(), now.Spec.Resources.Requests.Storage()
	bare := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
		s := c.Spec.DeepCopy()
		s.Resources = corev1.VolumeResourceRequirements{}
		return s
	}
	j.require(reflect.DeepEqual(bare(old), bare(now)), "S12", "the claim %s is to change in what can't change", old.Name)
	wanted := storageSize(&j.o.Cluster.Spec)
	if wal := j.o.Cluster.Spec.Storage.WAL; wal != nil && strings.HasSuffix(old.Name, "-wal") {
		wanted = walSize(wal)
	}
	grows := is.Cmp(*was) > 0 && is.Cmp(wanted) == 0 && old.Status.Phase == corev1.ClaimBound && j.v.ours(old)
	j.require(is.Cmp(*was) == 0 || grows, "S12", "the claim %s is to go from %s to %s", old.Name, was, is)
}

// outTrusted reports whether the member said that it trusts other authorities than its Secret holds.
func (j *judgement) outTrusted(m *member) bool {
	s := j.v.secret(serverSecret(j.o.Cluster))
	if !encrypted(j.o.Cluster) || s == nil || len(m.health.Trusts) == 0 {
		return false
	}
	begun, known := begunWith(m.pod)
	return !slices.Equal(subjects(s.Trust), m.health.Trusts) || provided(j.o.Cluster) && known && !maps.Equal(begun, j.v.trusted())
}

// speaksWrong reports whether the member listens otherwise than it is listed or than the spec lets clients speak, or can't dial by TLS.
func (j *judgement) speaksWrong(m *member) bool {
	s := speaks(m.pod)
	return encrypted(j.o.Cluster) && m.pod != nil && (!s.certificates || !s.peers || !byTLS(m.PeerURLs...) || s.plain != allowsPlaintext(j.o.Cluster))
}

// secrets checks that no certificate is lost, and none put to use that somebody would not accept (S19).
func (j *judgement) secrets() {
	if provided(j.o.Cluster) {
		j.provided()
		return
	}
	if mode(j.o.Cluster) != v1alpha1.TLSAuto {
		return
	}
	desired := map[string]*DesiredSecret{}
	for _, s := range j.d.Children.Secrets {
		desired[s.Name] = s
	}
	for _, l := range j.v.leaves {
		old, now := j.o.Children.Secrets[l.secret], desired[l.secret]
		j.require(old == nil || now != nil, "S19", "the Secret %s is gone from the answer", l.secret)
		if now == nil || old == nil || old.Certificate == nil {
			continue
		}
		if made, isNew := now.Make.(Leaf); isNew {
			j.signed(old, made)
		}
	}
	ca := CASecret(j.o.Cluster.Name)
	j.peersFirst(ca, desired)
	j.require(j.o.Children.Secrets[ca] == nil || desired[ca] != nil, "S19", "the authority is gone from the answer")
}

// signed checks that what takes the place of a certificate will be taken by all who take that.
func (j *judgement) signed(old *Secret, made Leaf) {
	signer := j.signer(made)
	if signer == nil {
		j.require(false, "S19", "%s is to be signed by an authority that was not observed", old.Name)
		return
	}
	j.require(!j.o.Now.After(signer.NotAfter), "S19", "%s is to be signed by an authority that has expired", old.Name)
	spent := old.Flaw != "" || j.o.Now.After(old.Certificate.NotAfter) // nobody takes it
	j.require(spent || signer.Key == old.Certificate.Issuer || j.trustedByAll(signer), "S19", "%s is to be signed by an authority that not every member trusts", old.Name)
}

// peersFirst checks that a new ca.crt of the servers, which is all that members tell us of, never comes before that of the peers.
func (j *judgement) peersFirst(ca string, desired map[string]*DesiredSecret) {
	server, peer, authority := desired[serverSecret(j.o.Cluster)], j.o.Children.Secrets[peerSecret(j.o.Cluster)], j.o.Children.Secrets[ca]
	ahead := server != nil && server.Make != nil && peer != nil && authority != nil && !sameTrust(peer.Trust, authority.Trust)
	j.require(!ahead, "S19", "the servers are to trust an authority before the peers do")
}

// provided checks that no member is restarted or added that would show the others what they don't take, and that no Certificate is
// lost.
func (j *judgement) provided() {
	for name := range j.o.Children.Certificates {
		kept := slices.ContainsFunc(j.d.Children.Certificates, func(c *CertManagerCertificate) bool { return c.Name == name })
		leaf := slices.ContainsFunc(j.v.leaves, func(l leaf) bool { return l.secret == name })
		j.require(kept || !leaf, "S19", "the Certificate %s is gone from the answer", name)
	}
	server := j.v.secret(serverSecret(j.o.Cluster))
	if server == nil || len(server.Anchors) == 0 {
		return
	}
	_, adds := j.d.Step.(AddLearner)
	for _, m := range j.v.members {
		goes := j.stops(m)
		if !goes && !adds {
			continue
		}
		for _, o := range j.v.members {
			j.require(o.knows(server.Anchors) || o == m && goes, "S19", "a member is to show others the certificate in Secret %s, which %s does not take", server.Name, o.name)
		}
	}
}

// knows reports whether a member trusts one of these authorities, or may, as one that has said nothing or is about to stop.
func (m *member) knows(authorities []Certificate) bool {
	return len(m.health.Trusts) == 0 || m.pod == nil || m.pod.DeletionTimestamp != nil ||
		slices.ContainsFunc(authorities, func(a Certificate) bool { return slices.Contains(m.health.Trusts, a.Subject) })
}

// stops reports whether the answer stops a member that serves.
func (j *judgement) stops(m *member) bool {
	return m.serving() && m.pod != nil && m.pod.DeletionTimestamp == nil && !finished(m.pod) && j.pod(m.name) == nil && (j.v.replicas > 0 || j.beside())
}

// signer is the observed authority that a leaf is to be signed by; nil when there is none.
func (j *judgement) signer(made Leaf) *Certificate {
	ca := j.o.Children.Secrets[made.Signer]
	switch {
	case ca == nil:
		return nil
	case made.Previous:
		return ca.Previous
	}
	return ca.Certificate
}

func (j *judgement) trustedByAll(authority *Certificate) bool {
	for name := range j.o.Children.Pods {
		if _, ours := ordinal(j.o.Cluster.Name, name); ours && !slices.Contains(j.o.Health[name].Trusts, authority.Subject) {
			return false
		}
	}
	return true
}

// standsWell reports whether all claims that a new pod names are there and ours, and whether the record names all of them: the pod's
// own, and one for the log when the record has one.
func (j *judgement) standsWell(pod *corev1.Pod) (usable, recorded bool) {
	wal, named := pod.Name+"-wal", filter(claimsIn(pod), func(claim string) bool { // others are those of a survivor, or of a store
		member, ours := standsOn(j.o.Cluster.Name, claim)
		return ours && member == pod.Name
	})
	usable = slices.Contains(named, pod.Name)
	recorded = usable
	for _, name := range named {
		claim := j.o.Children.Claims[name]
		j.require(claim == nil || claim.Annotations[AnnotationQuarantined] == "", "S10", "a new pod %s on a claim in quarantine", pod.Name)
		usable = usable && j.v.usable(claim)
		recorded = recorded && claim != nil && j.v.epoch.mayStartEmpty(name, claim.UID)
	}
	j.require(j.v.epoch.recorded(wal) == "" || slices.Contains(named, wal), "S10", "a new pod %s leaves out the volume %s, which holds its log", pod.Name, wal)
	return usable, recorded
}

func (j *judgement) newPod(pod *corev1.Pod) {
	if onNodes(&j.o.Cluster.Spec) {
		j.newPodOnNode(pod)
		return
	}
	start, m := podStart(pod), j.v.find(pod.Name)
	usable, recorded := j.standsWell(pod)
	gate := j.v.memory() && gated(pod) && j.v.epoch.recorded(pod.Name) == ""
	j.require(gate || j.v.memory() || usable, "S10", "a new pod %s without a claim that is observed as ours", pod.Name)
	switch start {
	case StartBootstrap:
		j.require(gate || recorded, "S10", "a new pod %s may begin empty, but not on this claim", pod.Name)
		j.require(m == nil || !m.Started(), "S10", "a new pod %s may begin empty, but the member has run", pod.Name)
	case StartJoin:
		j.require(m != nil && m.Learner && !m.Started(), "S10", "a new pod %s joins, but is no new learner", pod.Name)
		j.require(gate || recorded, "S10", "a new pod %s may begin empty, but not on this claim", pod.Name)
	case StartResume:
		j.require(!j.v.memory(), "S10", "a new memory pod %s can't have data to resume", pod.Name)
	default:
		j.require(false, "S10", "a new pod %s does not say how it starts", pod.Name)
	}
}

// newPodOnNode: a pod that may begin empty is on the node that the record names, and any other where it may find its member's data: on the
// node, and in a directory that nobody else has.
func (j *judgement) newPodOnNode(pod *corev1.Pod) {
	m, recorded := j.v.find(pod.Name), string(j.v.epoch.recorded(pod.Name))
	node := pinnedTo(pod)
	j.require(node != "" && (recorded == "" || node == recorded), "S10", "a new pod %s is for node %q, and the member's data on %q", pod.Name, node, recorded)
	own := strings.HasSuffix(directoryIn(pod), "-"+string(j.o.Cluster.UID)+"/"+pod.Name)
	j.require(own && len(claimsIn(pod)) == 0, "S10", "a new pod %s is not in a directory of its own", pod.Name)
	switch podStart(pod) {
	case StartBootstrap:
		has := j.o.Cluster.Status
		early := has.ClusterID == "" || has.Epoch > 0 && has.Epoch < int64(j.v.epoch.n) // the status tells of an epoch before
		j.require(recorded != "" && (j.v.Etcd != nil || !j.v.epoch.quorate() && early), "S10", "a new pod %s may begin empty, and no record says where", pod.Name)
		j.require(m == nil || !m.Started(), "S10", "a new pod %s may begin empty, but the member has run", pod.Name)
	case StartJoin:
		j.require(recorded != "" && m != nil && m.Learner && !m.Started(), "S10", "a new pod %s joins, but is no new learner whose node is recorded", pod.Name)
	default:
		j.require(podStart(pod) == StartResume, "S10", "a new pod %s does not say how it starts", pod.Name)
		j.require(pod.Annotations[AnnotationInitialCluster] == "", "S10", "a new pod %s resumes, and says that it may begin", pod.Name)
	}
}

// record checks the epoch record and what every answer must hold.
func (j *judgement) record() {
	if old := j.v.epoch; old != nil && old.record != nil {
		i := slices.IndexFunc(j.d.Children.ConfigMaps, func(c *corev1.ConfigMap) bool { return c.Name == old.record.Name })
		j.require(i >= 0, "S8", "the epoch record is gone from the answer")
		if i >= 0 {
			now := parseEpoch(old.n, j.d.Children.ConfigMaps[i])
			j.require(now.next >= old.next, "S9", "the mark goes back from %d to %d", old.next, now.next)
			j.require(!old.quorate() || now.clusterID == old.clusterID, "S8", "the recorded cluster ID changes")
			j.foreign(old, now)
			j.startsOn(old, now)
			j.version(old, now)
		}
	} else {
		for _, cm := range j.d.Children.ConfigMaps {
			_, read := ordinal(j.o.Cluster.Name+"-epoch", cm.Name) // another name is nobody's record
			bootstraps := read && cm.Annotations[AnnotationStartsOn] == "" && cm.Data[EpochKeyToken] != ""
			heir := cm.Data[EpochKeyAfter] != ""
			j.require(!bootstraps || heir || old == nil && !j.v.relics(), "S8", "a second bootstrap: %s", cm.Name)
		}
	}
	j.require(len(j.d.Children.Services) == 2 && len(j.d.Children.Budgets) == 1, "S13", "the answer lacks a Service or the budget")
}

// version checks that the members go to another version in steps that etcd can take, up or down (S18).
func (j *judgement) version(old, now *epoch) {
	from, err := parseRelease(old.version)
	to, err2 := parseRelease(now.version)
	if old.version == now.version || j.beside() && !slices.ContainsFunc(j.v.members, func(m *member) bool { return m.name != "" }) || !old.quorate() && j.v.Etcd == nil || err != nil {
		return
	}
	j.require(err2 == nil && j.v.Etcd != nil, "S18", "the version goes from %s to %s without a quorum's answer", old.version, now.version)
	if from.minor == to.minor || j.stillRuns(to) { // a patch release, or taken back on the way
		return
	}
	all := func(is func(*member) bool) bool { return len(filter(j.v.members, is)) == len(j.v.members) }
	switch to.minor {
	case from.minor + 1:
		arrived := func(m *member) bool { return m.serving() && m.health.Version == old.version }
		j.require(all(arrived), "S18", "on to %s before all members have arrived at %s", to, from)
		j.require(known(from) && !from.less(versionGates[from.minor-newest[0].minor].below), "S18", "from %s to %s over a release that is not safe", from, to)
	case from.minor - 1:
		lowered := func(m *member) bool { return m.serving() && m.health.StorageVersion == to.base() }
		j.require(all(lowered), "S18", "down to %s before etcd has lowered the format of everybody's data", to)
	default:
		j.require(false, "S18", "from %s to %s in one step", from, to)
	}
}

// stillRuns reports whether a voter that serves runs this minor version, and no downgrade is under way.
func (j *judgement) stillRuns(r release) bool {
	return slices.ContainsFunc(j.v.voters, func(m *member) bool {
		has, err := parseRelease(m.health.Version)
		return m.serving() && err == nil && has.minor == r.minor && m.health.Downgrade == ""
	})
}

// startsOn checks that what a member may start on is never exchanged, and forgotten only with the member.
func (j *judgement) startsOn(old, now *epoch) {
	for name, uid := range old.startsOn {
		member, _ := standsOn(j.o.Cluster.Name, name)
		gone := j.v.Etcd != nil && j.v.find(member) == nil
		j.require(now.startsOn[name] == uid || gone, "S10", "what %s may start on changes", name)
	}
	for name := range now.startsOn {
		member, _ := standsOn(j.o.Cluster.Name, name)
		m := j.v.find(member)
		j.require(old.startsOn[name] != "" || !old.founded() || m != nil && m.Learner && !m.Started() && old.startsOn[member] == "", "S10", "%s may start empty, but is no new learner", name)
	}
}

func (j *judgement) hasClaim(name string) bool {
	return slices.ContainsFunc(j.d.Children.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Name == name })
}

func (j *judgement) pod(name string) *corev1.Pod {
	i := slices.IndexFunc(j.d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return j.d.Children.Pods[i]
}
