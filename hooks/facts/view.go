package facts

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Facts are an observation put together: what the rules look at. They are worked out once, in one order, and never
// written to after that.
type Facts struct {
	observation.Observation // its pods and claims are those of the epoch alone, and whatever has no member's name
	Replicas                int
	// specSize is what the spec itself says of the size of volumes: see withGrownStorage.
	specSize resource.Quantity
	Epoch    *Epoch
	// Recorded are all epochs whose records are believed, by number.
	Recorded map[int]*Epoch
	// doubted says why other records are not believed, or can't be read, by name.
	doubted map[string]string
	// Next is the epoch that is to take over, seen alike; nil for none.
	Next *Facts
	// below is the number that its members' numbers are below.
	below int
	// PredecessorGone is set for an epoch that is to take over, once the record of the one before is gone.
	PredecessorGone bool
	// All are the pods and claims of every epoch.
	All observation.Children
	// Members are etcd's list, ours by number, then unmanaged members. Empty while blind.
	Members []*Member
	Voters  []*Member // those of members that vote
	// Names are all members that left any trace, sorted: in etcd's list, as a pod, as a claim or in the record of
	// nodes.
	Names []string
	// OtherCluster is the ID of the cluster that answered when that is not ours, by the record's ID or by its members;
	// Etcd is nil then. 0 for none.
	OtherCluster uint64
	// Templates are the hashes that pods would carry now, with the flags of 3.5 and with those of later releases: see
	// TemplateNow.
	Templates           [2]string
	Leaves              []defaults.Leaf
	CertificateProblems []string // which certificates are not in order, and why: see allCertificateProblems
	// Untrusted says which certificate from others running members don't take, and what to do; empty for none
	Untrusted string
	Serves    string                       // identifies the certificates that members are to show
	DefragRun *decision.DefragmentationRun // what defragmentation has come to; nil for nothing ever
	Asked     asked                        // what EtcdOperations ask for
	Windows   *defaults.Windows            // of spec.maintenance.windows; nil for none
}

// Member is one entry of etcd's list with what belongs to it.
type Member struct {
	observation.Member
	PodName string // our name for it; empty for an unmanaged member
	Alias   string // what an external member is called; empty for others
	Pod     *corev1.Pod
	Claim   *corev1.PersistentVolumeClaim
	Health  observation.Health
	Asked   bool // it has an address and was asked
	Lags    bool // it has applied far less than another one: see MostBehind
	TLS     TLSFlags
	// Update is remembered once it is known; see facts/rollout.go.
	Update **Update
}

// New puts an observation together: the epoch that runs, and the one that is to take over.
func New(o observation.Observation) *Facts {
	specSize := defaults.StorageSize(&o.Cluster.Spec)
	o.Cluster = withGrownStorage(o)
	recorded, doubted := readRecords(o)
	current, next := epochs(recorded)
	made := Facts{Observation: o, Replicas: targetReplicas(o, current), Recorded: recorded, doubted: doubted,
		All: o.Children, Asked: askedOf(o, recorded), specSize: specSize}
	below := objects.MostMembers
	if next != nil {
		below = next.First
	}
	f := viewOf(made, current, below)
	if next != nil {
		made.Etcd = nil // its members don't run yet
		made.Health = nil
		made.Taken = nil
		f.Next = viewOf(made, next, objects.MostMembers)
		f.Next.PredecessorGone = f.Over()
	}
	return f.examine()
}

// viewOf is what there is of one epoch, whose members' numbers are below the given one.
func viewOf(made Facts, e *Epoch, below int) *Facts {
	f := &made
	f.Epoch = e
	f.below = below
	f.Children = within(f.Observation, e, below)
	o := f.Observation
	if f.Etcd != nil && f.Epoch != nil && f.unrelated() {
		f.OtherCluster = f.Etcd.ClusterID
		f.Etcd = nil
	}
	traces := map[string]bool{}
	for _, name := range slices.Concat(f.Remains(), f.onRecord()) {
		traces[name] = true
	}
	if f.Etcd != nil {
		for _, m := range f.Etcd.Members {
			f.Members = append(f.Members, f.member(m))
			if name, ours := objects.MemberAt(o.Cluster, m.PeerURLs); ours {
				traces[name] = true
			}
		}
	}
	for name := range traces {
		if _, ours := objects.Ordinal(o.Cluster.Name, name); ours {
			f.Names = append(f.Names, name)
		}
	}
	slices.SortFunc(f.Names, objects.ByOrdinal)
	slices.SortFunc(f.Members, func(a, b *Member) int {
		if (a.PodName == "") != (b.PodName == "") {
			return len(b.PodName) - len(a.PodName)
		}
		if c := objects.ByOrdinal(a.PodName, b.PodName); c != 0 {
			return c
		}
		return cmp.Or(objects.ByOrdinal(a.Alias, b.Alias), strings.Compare(objects.Hex(a.ID), objects.Hex(b.ID)))
	})
	for _, m := range f.Members {
		m.Lags = slices.ContainsFunc(f.Members,
			func(o *Member) bool { return o.Health.RaftIndex > m.Health.RaftIndex+MostBehind })
	}
	f.Voters = objects.Filter(f.Members, func(m *Member) bool { return !m.Learner })
	f.believeMembers()
	f.Windows = defaults.WindowsNow(&o)
	f.DefragRun = f.defragmentationRun()
	return f
}

// believeMembers takes the version of an epoch from its members when they are first heard of.
func (f *Facts) believeMembers() {
	if f.Epoch != nil && f.Etcd != nil && !f.Epoch.HadQuorum() {
		f.Epoch.Version = cmp.Or(OtherMinor(f.Epoch.Version, f.runs()), f.Epoch.Version)
	}
}

// runs are the versions of the members of ours that serve.
func (f *Facts) runs() []string {
	var all []string
	for _, m := range f.Members {
		if m.PodName != "" && m.Serving() {
			all = append(all, m.Health.Version)
		}
	}
	return all
}

// unrelated reports whether the etcd that answers is not ours. Before its ID is recorded that is one which lists none
// of ours although something is left of them: they have run, and the record that knew of it is lost. Before they have
// joined an etcd there is nothing of them.
func (f *Facts) unrelated() bool {
	if f.Epoch.HadQuorum() {
		return f.Epoch.ClusterID != f.Etcd.ClusterID
	}
	return len(f.Remains()) > 0 && !slices.ContainsFunc(f.Etcd.Members, func(m observation.Member) bool {
		_, ours := objects.MemberAt(f.Cluster, m.PeerURLs)
		return ours
	})
}

// Remains are the members that have a pod or a claim.
func (f *Facts) Remains() []string {
	names := slices.Collect(maps.Keys(f.Children.Pods))
	for claim := range f.Children.Claims {
		member, _ := MemberOfClaim(f.Cluster.Name, claim)
		names = append(names, member)
	}
	slices.SortFunc(names, objects.ByOrdinal)
	return objects.Filter(slices.Compact(names), func(name string) bool {
		_, ours := objects.Ordinal(f.Cluster.Name, name)
		return ours
	})
}

func (f *Facts) member(m observation.Member) *Member {
	e := &Member{Member: m}
	name, ours := objects.MemberAt(f.Cluster, m.PeerURLs)
	if !ours {
		f.fillExternal(e)
		return e
	}
	e.PodName = name
	e.Pod = f.Children.Pods[name]
	e.Claim = f.Children.Claims[name]
	e.TLS = TLSFlagsOf(e.Pod)
	e.Health, e.Asked = f.Health[name]
	if e.Health.Err == "" && e.Health.MemberID != m.ID {
		e.Health = observation.Health{Err: "another member answered at its address", MemberID: e.Health.MemberID,
			ClusterID: e.Health.ClusterID}
	}
	return e
}

// Memory reports whether members keep their data in memory.
func (f *Facts) Memory() bool { return f.Cluster.Spec.Storage.Medium == v1beta1.Memory }

// Find is the listed member with our name; nil when the list omits it.
func (f *Facts) Find(name string) *Member {
	return objects.First(f.Members, func(m *Member) bool { return m.PodName == name })
}

// NextOrdinal is the number of the next new member of which there is nothing yet: above the mark and above every trace
// (S9).
func (f *Facts) NextOrdinal() int {
	n := f.Mark()
	names := f.Names
	if f.Epoch != nil { // what is only now taken down is in the record still
		names = slices.Concat(names, slices.Collect(maps.Keys(f.Epoch.StartsOn)))
	}
	return aboveAll(f.Cluster.Name, names, n)
}

// aboveAll is a number from n on that is above those of all these members.
func aboveAll(cluster string, names []string, n int) int {
	for _, name := range names {
		if i, _ := objects.Ordinal(cluster, name); i >= n {
			n = i + 1
		}
	}
	return n
}

// Mark is what the record is to say that all numbers are below which members have had: above the one that it says, and
// above every trace except of what is made ready ahead.
func (f *Facts) Mark() int {
	n := f.Replicas // that many the first epoch begins with
	if defaults.Joins(f.Cluster) {
		n = 0
	}
	if f.Epoch != nil {
		n = f.Epoch.NextOrdinal
	}
	// A copy of the mark, in case the record is deleted.
	if peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]; peers != nil {
		n = max(n, objects.ReadMark(peers.Annotations[objects.AnnotationNextMember]))
	}
	if f.Next != nil {
		n = max(n, f.Next.NextOrdinal())
	}
	for _, e := range f.Recorded { // one that came to nothing has named its members
		n = max(n, e.NextOrdinal)
	}
	return aboveAll(f.Cluster.Name, objects.Filter(f.Names, func(name string) bool { return !f.ToBeAdded(name) }), n)
}

// OrdinalReserved reports whether the recorded mark is above this member's number, so that its last trace may go (S9).
func (f *Facts) OrdinalReserved(name string) bool {
	n, _ := objects.Ordinal(f.Cluster.Name, name)
	return f.Epoch != nil && n < f.Epoch.NextOrdinal
}

// Ours reports whether a claim belongs to this very cluster object, not to an earlier one of the same name.
func (f *Facts) Ours(claim *corev1.PersistentVolumeClaim) bool {
	return claim != nil && slices.ContainsFunc(claim.OwnerReferences,
		func(r metav1.OwnerReference) bool { return r.UID == f.Cluster.UID })
}

// Usable reports whether a pod may be started on the claim: not on one that was made for another epoch.
func (f *Facts) Usable(claim *corev1.PersistentVolumeClaim) bool {
	return f.Ours(claim) && claim.DeletionTimestamp == nil && !Quarantined(claim) && !f.ofAnotherEpoch(claim)
}

// ofAnotherEpoch reports whether the claim was made for another epoch, which has come to nothing or is not seen yet.
func (f *Facts) ofAnotherEpoch(claim *corev1.PersistentVolumeClaim) bool {
	of := claim.Annotations[objects.AnnotationEpoch]
	return of != "" && f.Epoch != nil && objects.ReadMark(of) != f.Epoch.N
}

// Learner is the first learner that etcd lists; nil without one.
func (f *Facts) Learner() *Member {
	return objects.First(f.Members, func(m *Member) bool { return m.Learner })
}

// RemovedPods are the pods of members that etcd no longer lists and that may still run: not of those that are made
// ready ahead. A pod whose grace period has
// passed without its node confirming is not waited for: etcd refuses a removed member in any case.
func (f *Facts) RemovedPods() []string {
	if f.Etcd == nil {
		return nil
	}
	return objects.Filter(slices.SortedFunc(maps.Keys(f.Children.Pods), objects.ByOrdinal), func(name string) bool {
		_, ours := objects.Ordinal(f.Cluster.Name, name)
		return ours && f.Find(name) == nil && !f.ToBeAdded(name) && !graceOver(f.Children.Pods[name], f.Now)
	})
}

// AllStop reports whether all pods of these names have been told to stop, as far as they are seen.
func (f *Facts) AllStop(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		pod := f.Children.Pods[name]
		return pod != nil && pod.DeletionTimestamp == nil
	})
}

// graceOver reports whether the pod should have ended ten seconds ago, and is still there.
func graceOver(pod *corev1.Pod, now time.Time) bool {
	return pod.DeletionTimestamp != nil && now.After(pod.DeletionTimestamp.Add(10*time.Second))
}

// MostBehind is by how many entries a member may be behind another one and serve. etcd's leader keeps so many before
// its last snapshot, and sends that to those that are further behind: until it has arrived they acknowledge nothing
// (DefaultSnapshotCatchUpEntries in etcdserver/server.go). And a member takes no requests while it has so many entries
// left to apply (maxGapBetweenApplyAndCommitIndex in etcdserver/v3_server.go). So a member that keeps pace is nearer,
// however busy it is; the answers that are compared are of one moment.
const MostBehind = 5000

// Serving reports whether the member can be counted on: it answers and, if it votes, does not lag. To learners that is
// all the same until they are promoted.
func (m *Member) Serving() bool { return m.Answers() && (m.Learner || !m.Lags) }

// Answers reports whether the member was asked, and follows a leader: its data is there, and it is not dead, be it far
// behind.
func (m *Member) Answers() bool { return m.Asked && m.Health.Serving() }

// DataLost reports whether the member's data is gone or going, and why: its claim was deleted, its memory pod is
// gone, or prepare found its data directory empty. A learner for which nothing was recorded has no data to lose. A
// view without its claim is not believed while the member answers or its pod runs: that view is stale.
func (f *Facts) DataLost(m *Member) (string, bool) {
	if m.PodName == "" {
		return "", false
	}
	if PrepareRefused(m.Pod) && !m.Answers() {
		return "its data directory was empty", !f.misstarted(m)
	}
	if f.Memory() {
		return "its memory pod is gone", !f.MayBeMade(m) && !m.Answers() && f.PodGone(m.Pod)
	}
	if f.HostPath() {
		return "", false // what became of a directory, only prepare sees
	}
	if f.claimBeingDeleted(m.PodName) {
		return "its claim is being deleted", true
	}
	return "its claim is gone", !f.MayBeMade(m) && !m.Answers() && !Running(m.Pod) && f.ClaimGone(m)
}

// PodGone reports whether a memory pod is gone for good, and its data with it.
func (f *Facts) PodGone(pod *corev1.Pod) bool {
	return pod == nil || Finished(pod) || f.gatedForGood(pod) || graceOver(pod, f.Now)
}

// ClaimGone reports whether the member lacks a claim, or has one that was made after it could have begun on it.
func (f *Facts) ClaimGone(m *Member) bool {
	return slices.ContainsFunc(f.MemberClaims(m.PodName), func(c *corev1.PersistentVolumeClaim) bool {
		return c == nil || Quarantined(c) || !m.Started() && f.Epoch.Recorded(c.Name) != c.UID
	})
}

// MayBeMade reports whether what the member starts on may still be made: nothing of a new learner's is recorded yet.
func (f *Facts) MayBeMade(m *Member) bool {
	return m.Learner && !m.Started() && f.Epoch.Recorded(m.PodName) == ""
}

// gatedForGood reports whether the memory pod is held back for good: another one was recorded in its place.
func (f *Facts) gatedForGood(pod *corev1.Pod) bool {
	return Gated(pod) && f.Epoch.Provisioned() && !f.Epoch.MayStartEmpty(pod.Name, pod.UID)
}

// StartOf is how a new pod of a listed member is to start it.
func (f *Facts) StartOf(m *Member) string {
	switch {
	case m.Started():
		return objects.StartResume
	case m.Learner:
		return objects.StartJoin
	case f.Epoch.Initial[m.PodName] != "" && f.MayBegin(m.PodName):
		return objects.StartBootstrap
	default:
		return objects.StartResume
	}
}

// misstarted reports whether the pod was made, while blind, to resume a member that turns out never to have run.
func (f *Facts) misstarted(m *Member) bool {
	return m.Pod != nil && PodStart(m.Pod) == objects.StartResume && f.StartOf(m) != objects.StartResume
}

// PodStart is the start that the pod was made for: see objects.AnnotationStart.
func PodStart(pod *corev1.Pod) string { return pod.Annotations[objects.AnnotationStart] }

// Finished reports whether the pod has ended for good, as an evicted one has. Kubernetes never takes that back.
func Finished(pod *corev1.Pod) bool {
	return pod != nil && (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded)
}

// Gated reports whether a scheduling gate holds the pod.
func Gated(pod *corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// Endpoints are the pods of an observation that can be asked, by name.
func Endpoints(o observation.Observation) []observation.Endpoint {
	var list []observation.Endpoint
	var cluster uint64
	recorded, _ := readRecords(o)
	current, next := epochs(recorded)
	if current != nil {
		cluster = current.ClusterID
	}
	below := objects.MostMembers
	if next != nil {
		below = next.First
	}
	o.Children = within(o, current, below)
	port, peerPort, metricsPort := objects.Ports(o.Cluster)
	for _, name := range slices.SortedFunc(maps.Keys(o.Children.Pods), objects.ByOrdinal) {
		pod := o.Children.Pods[name]
		_, ours := objects.Ordinal(o.Cluster.Name, name)
		if !ours || pod.Status.PodIP == "" || Finished(pod) || WaitsToJoin(pod) {
			continue
		}
		e := observation.Endpoint{Name: name, ClientURL: defaults.URLOn("http", pod.Status.PodIP, port),
			PeerURL: objects.PeerURL(o.Cluster, name, addressIn(pod)), ClusterID: cluster}
		if s := TLSFlagsOf(pod); s.Clients || objects.Encrypted(o.Cluster) && !s.Plain {
			e.ClientURL = defaults.URLOn("https", pod.Status.PodIP, port)
			e.ServerName = objects.Host(o.Cluster, name)
			if e.AsksAuth = defaults.AsksNone(o.Cluster); s.Anonymous && s.Peers {
				e.PeerAddress = objects.HostPort(pod.Status.PodIP, peerPort)
			}
		}
		if o.Cluster.Spec.Leadership.AvoidSlowDisks {
			e.MetricsURL = defaults.URLOn("http", pod.Status.PodIP, metricsPort) + "/metrics"
			e.Pod = string(pod.UID)
			e.Namespace = o.Cluster.Namespace
		}
		list = append(list, e)
	}
	return append(list, externalEndpoints(o, current)...)
}

// Quorum is the number of voters that must agree among n.
func Quorum(n int) int { return n/2 + 1 }
