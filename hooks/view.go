package hooks

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// view is an observation put together: what the rules look at.
type view struct {
	Observation // its pods and claims are those of the epoch alone, and whatever has no member's name
	replicas    int
	epoch       *epoch
	mode        *mode
	// next is the epoch that is to take over, seen alike; nil for none.
	next *view
	// below is the number that its members' numbers are below.
	below int
	// predecessorGone is set for an epoch that is to take over, once the record of the one before is gone.
	predecessorGone bool
	// all are the pods and claims of every epoch.
	all Children
	// members are etcd's list, ours by number, then strangers. Empty while blind.
	members []*member
	voters  []*member // those of members that vote
	// names are all members that left any trace, sorted: in etcd's list, as a pod, as a claim or in the record of
	// nodes.
	names []string
	// foreign is the ID of the cluster that answered when that is not ours, by the record's ID or by its members;
	// Etcd is nil then. 0 for none.
	foreign uint64
	// templates are the hashes that pods would carry now, with the flags of 3.5 and with those of later releases: see
	// templateNow.
	templates           [2]string
	former              string // see template_before.go
	leaves              []leaf
	certificateProblems []string // which certificates are not in order, and why: see allCertificateProblems
	// untrusted says which certificate from others running members don't take, and what to do; empty for none
	untrusted   string
	serves      string                          // identifies the certificates that members are to show
	defragRun   *v1alpha1.DefragmentationStatus // what defragmentation has come to; nil for nothing ever
	awaited     []v1alpha1.AwaitedStatus        // objects of the answer that are not there, once there is one
	windows     *windows                        // of spec.maintenance.windows; nil for none
	failedVoter string                          // the voter that the verdict gives up for its silence; empty for none
}

// member is one entry of etcd's list with what belongs to it.
type member struct {
	Member
	name   string // our name for it; empty for a stranger
	alias  string // what a foreign member is called; empty for others
	pod    *corev1.Pod
	claim  *corev1.PersistentVolumeClaim
	health Health
	asked  bool // it has an address and was asked
	tls    tlsFlags
	// update is remembered once it is known; see rollout.go.
	update **update
}

func newView(o Observation) *view {
	current, next := epochs(o)
	below := objects.MostMembers
	if next != nil {
		below = next.first
	}
	v := viewOf(o, current, below)
	if next != nil {
		o.Etcd, o.Health, o.Taken = nil, nil, nil // its members don't run yet
		v.next = viewOf(o, next, objects.MostMembers)
		v.next.predecessorGone = v.over()
		v.next.mode = modeOf(v.next, modes[1:]) // not held back: nothing is asked of it then
	}
	v.mode = modeOf(v, modes)
	return v
}

// viewOf is what there is of one epoch, whose members' numbers are below the given one.
func viewOf(o Observation, e *epoch, below int) *view {
	v := &view{Observation: o, replicas: targetReplicas(o), epoch: e, below: below, all: o.Children}
	v.Children = within(o, e, below)
	o = v.Observation
	if v.Etcd != nil && v.epoch != nil && v.unrelated() {
		v.foreign, v.Etcd = v.Etcd.ClusterID, nil
	}
	traces := map[string]bool{}
	for _, name := range slices.Concat(v.remains(), v.onRecord()) {
		traces[name] = true
	}
	if v.Etcd != nil {
		for _, m := range v.Etcd.Members {
			v.members = append(v.members, v.member(m))
			if name, ours := objects.MemberAt(o.Cluster, m.PeerURLs); ours {
				traces[name] = true
			}
		}
	}
	for name := range traces {
		if _, ours := objects.Ordinal(o.Cluster.Name, name); ours {
			v.names = append(v.names, name)
		}
	}
	slices.SortFunc(v.names, byOrdinal)
	slices.SortFunc(v.members, func(a, b *member) int {
		if (a.name == "") != (b.name == "") {
			return len(b.name) - len(a.name)
		}
		if c := byOrdinal(a.name, b.name); c != 0 {
			return c
		}
		return cmp.Or(byOrdinal(a.alias, b.alias), strings.Compare(hex(a.ID), hex(b.ID)))
	})
	v.voters = filter(v.members, func(m *member) bool { return !m.Learner })
	v.leaves, v.windows = leaves(o.Cluster), o.windowsNow()
	v.certificateProblems, v.serves = v.allCertificateProblems(), v.served()
	v.untrusted = v.findUntrusted()
	v.defragRun = v.defragmentationRun()
	return v
}

// unrelated reports whether the etcd that answers is not ours. Before its ID is recorded that is one which lists none
// of ours although something is left of them: they have run, and the record that knew of it is lost. Before they have
// joined an etcd there is nothing of them.
func (v *view) unrelated() bool {
	if v.epoch.hadQuorum() {
		return v.epoch.clusterID != v.Etcd.ClusterID
	}
	return len(v.remains()) > 0 && !slices.ContainsFunc(v.Etcd.Members, func(m Member) bool {
		_, ours := objects.MemberAt(v.Cluster, m.PeerURLs)
		return ours
	})
}

// remains are the members that have a pod or a claim.
func (v *view) remains() []string {
	names := slices.Collect(maps.Keys(v.Children.Pods))
	for claim := range v.Children.Claims {
		member, _ := memberOfClaim(v.Cluster.Name, claim)
		names = append(names, member)
	}
	slices.SortFunc(names, byOrdinal)
	return filter(slices.Compact(names), func(name string) bool {
		_, ours := objects.Ordinal(v.Cluster.Name, name)
		return ours
	})
}

func (v *view) member(m Member) *member {
	e := &member{Member: m}
	name, ours := objects.MemberAt(v.Cluster, m.PeerURLs)
	if !ours {
		v.fillForeign(e)
		return e
	}
	e.name, e.pod, e.claim = name, v.Children.Pods[name], v.Children.Claims[name]
	e.tls = tlsFlagsOf(e.pod)
	e.health, e.asked = v.Health[name]
	if e.health.Err == "" && e.health.MemberID != m.ID {
		e.health = Health{Err: "the address was answered by another member", MemberID: e.health.MemberID,
			ClusterID: e.health.ClusterID}
	}
	return e
}

// Replicas is how many voters the spec asks for.
func Replicas(c *v1alpha1.EtcdCluster) int {
	if c.Spec.Replicas == nil {
		return 3
	}
	return int(*c.Spec.Replicas)
}

func (v *view) memory() bool { return v.Cluster.Spec.Storage.Medium == v1alpha1.Memory }

// find is the listed member with our name; nil when the list omits it.
func (v *view) find(name string) *member {
	i := slices.IndexFunc(v.members, func(m *member) bool { return m.name == name })
	if i < 0 {
		return nil
	}
	return v.members[i]
}

// nextOrdinal is the number of the next new member: above the recorded mark and above every trace (S9).
func (v *view) nextOrdinal() int {
	n := v.replicas // that many the first epoch begins with
	if joins(v.Cluster) {
		n = 0
	}
	if v.epoch != nil {
		n = v.epoch.nextOrdinal
	}
	// A copy of the mark, for the day that somebody deletes the record.
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		n = max(n, objects.ReadMark(peers.Annotations[objects.AnnotationNextMember]))
	}
	if v.next != nil {
		n = max(n, v.next.nextOrdinal())
	}
	for _, record := range epochRecords(v.Observation) { // one that came to nothing has named its members
		n = max(n, objects.ReadMark(record.Annotations[objects.AnnotationNextMember]))
	}
	for _, name := range v.names {
		if i, _ := objects.Ordinal(v.Cluster.Name, name); i >= n {
			n = i + 1
		}
	}
	return n
}

// ordinalReserved reports whether the recorded mark is above this member's number, so that its last trace may go (S9).
func (v *view) ordinalReserved(name string) bool {
	n, _ := objects.Ordinal(v.Cluster.Name, name)
	return v.epoch != nil && n < v.epoch.nextOrdinal
}

// ours reports whether a claim belongs to this very cluster object, not to an earlier one of the same name.
func (v *view) ours(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && slices.ContainsFunc(claim.OwnerReferences,
		func(r metav1.OwnerReference) bool { return r.UID == v.Cluster.UID })
}

// usable reports whether a pod may be started on the claim: not on one that was made for another epoch.
func (v *view) usable(claim *corev1.PersistentVolumeClaim) bool {
	return v.ours(claim) && claim.DeletionTimestamp == nil && !quarantined(claim) && !v.ofAnotherEpoch(claim)
}

// ofAnotherEpoch reports whether the claim was made for another epoch, which has come to nothing or is not seen yet.
func (v *view) ofAnotherEpoch(claim *corev1.PersistentVolumeClaim) bool {
	of := claim.Annotations[objects.AnnotationEpoch]
	return of != "" && v.epoch != nil && objects.ReadMark(of) != v.epoch.n
}

// learner is the first learner that etcd lists; nil without one.
func (v *view) learner() *member {
	i := slices.IndexFunc(v.members, func(m *member) bool { return m.Learner })
	if i < 0 {
		return nil
	}
	return v.members[i]
}

// removedPods are the pods of members that etcd no longer lists and that may still run. A pod whose grace period has
// passed without its node confirming is not waited for: etcd refuses a removed member in any case.
func (v *view) removedPods() []string {
	if v.Etcd == nil {
		return nil
	}
	return filter(slices.SortedFunc(maps.Keys(v.Children.Pods), byOrdinal), func(name string) bool {
		_, ours := objects.Ordinal(v.Cluster.Name, name)
		return ours && v.find(name) == nil && !graceOver(v.Children.Pods[name], v.Now)
	})
}

func graceOver(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(10*time.Second))
}

func (m *member) serving() bool { return m.asked && m.health.Serving() }

// dataLost reports whether the member's data is gone or going, and why: its claim was deleted, its memory pod is
// gone, or prepare found its data directory empty. A learner for which nothing was recorded has no data to lose. A
// view without its claim is not believed while the member answers or its pod runs: that view is stale.
func (v *view) dataLost(m *member) (string, bool) {
	if m.name == "" {
		return "", false
	}
	if prepareRefused(m.pod) && !m.serving() {
		return "its data directory was found empty", !v.misstarted(m)
	}
	if v.memory() {
		return "its memory pod is gone", !v.mayBeMade(m) && !m.serving() && v.podGone(m.pod)
	}
	if v.hostPath() {
		return "", false // what became of a directory, only prepare sees
	}
	if v.claimBeingDeleted(m.name) {
		return "its claim is being deleted", true
	}
	return "its claim is gone", !v.mayBeMade(m) && !m.serving() && !running(m.pod) && v.claimGone(m)
}

// podGone reports whether a memory pod is gone for good, and its data with it.
func (v *view) podGone(pod *corev1.Pod) bool {
	return pod == nil || finished(pod) || v.gatedForGood(pod) || graceOver(pod, v.Now)
}

// claimGone reports whether the member lacks a claim, or has one that was made after it could have begun on it.
func (v *view) claimGone(m *member) bool {
	return slices.ContainsFunc(v.memberClaims(m.name), func(c *corev1.PersistentVolumeClaim) bool {
		return c == nil || quarantined(c) || !m.Started() && v.epoch.recorded(c.Name) != c.UID
	})
}

// mayBeMade reports whether what the member starts on may still be made: nothing of a new learner's is recorded yet.
func (v *view) mayBeMade(m *member) bool {
	return m.Learner && !m.Started() && v.epoch.recorded(m.name) == ""
}

// gatedForGood reports whether the memory pod is held back for good: another one was recorded in its place.
func (v *view) gatedForGood(pod *corev1.Pod) bool {
	return gated(pod) && v.epoch.provisioned() && !v.epoch.mayStartEmpty(pod.Name, pod.UID)
}

// startOf is how a new pod of a listed member is to start it.
func (v *view) startOf(m *member) string {
	switch {
	case m.Started():
		return objects.StartResume
	case m.Learner:
		return objects.StartJoin
	case v.mayBegin(m.name):
		return objects.StartBootstrap
	default:
		return objects.StartResume
	}
}

// misstarted reports whether the pod was made, while blind, to resume a member that turns out never to have run.
func (v *view) misstarted(m *member) bool {
	return m.pod != nil && podStart(m.pod) == objects.StartResume && v.startOf(m) != objects.StartResume
}

func podStart(pod *corev1.Pod) string { return pod.Annotations[objects.AnnotationStart] }

// finished reports whether the pod has ended for good, as an evicted one has. Kubernetes never takes that back.
func finished(pod *corev1.Pod) bool {
	return pod != nil && (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded)
}

func gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// Endpoints are the pods of an observation that can be asked, by name.
func Endpoints(o Observation) []Endpoint {
	var list []Endpoint
	var cluster uint64
	current, next := epochs(o)
	if current != nil {
		cluster = current.clusterID
	}
	below := objects.MostMembers
	if next != nil {
		below = next.first
	}
	o.Children = within(o, current, below)
	for _, name := range slices.SortedFunc(maps.Keys(o.Children.Pods), byOrdinal) {
		pod := o.Children.Pods[name]
		_, ours := objects.Ordinal(o.Cluster.Name, name)
		if !ours || pod.Status.PodIP == "" || finished(pod) {
			continue
		}
		e := Endpoint{Name: name, ClientURL: urlOn("http", pod.Status.PodIP, objects.ClientPort),
			PeerURL: objects.PeerURL(o.Cluster, name), ClusterID: cluster}
		if s := tlsFlagsOf(pod); s.clients || objects.Encrypted(o.Cluster) && !s.plain {
			e.ClientURL, e.ServerName = urlOn("https", pod.Status.PodIP, objects.ClientPort),
				objects.Host(o.Cluster, name)
		}
		list = append(list, e)
	}
	return append(list, foreignEndpoints(o)...)
}

// quorum is the number of voters that must agree among n.
func quorum(n int) int { return n/2 + 1 }

func filter[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, e := range list {
		if keep(e) {
			kept = append(kept, e)
		}
	}
	return kept
}
