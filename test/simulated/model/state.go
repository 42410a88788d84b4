package model

import (
	"fmt"

	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// maxMembers is how many member numbers one state may hold at a time.
const maxMembers = 16

type set = membership.Set

func one(n int) set { return 1 << n }

// where are the members for which something is so.
func where(is func(n int) bool) (all set) {
	for n := range maxMembers {
		if is(n) {
			all = all.With(n)
		}
	}
	return all
}

// namesOf are the names of the members in a set.
func namesOf(s set) string {
	var all []string
	for n := range s.All {
		all = append(all, name(n))
	}
	return fmt.Sprint(all)
}

// pod as the API server stores it, and as a cache shows it. Pods of one name differ in their uid; 0 is no pod.
type pod struct {
	told     set // the membership that a joining member is told; none while it waits to be
	uid      uint8
	start    uint8
	status   uint8
	deleting uint8
	template uint8
	version  uint8
	rev      uint8 // of the API server, which refuses an update of another one
	gated    bool
	bound    bool // to a node, and with an address
	// exchanged: the container that the kubelet has reported ends, for another image has been put into the pod.
	exchanged bool
	turn      uint8 // which container runs, or ran last
	withdrawn uint8 // the mark that withdraws its restart
	oldFlags  bool  // made for a version that has other flags
	fresh     bool  // started only seconds ago
	waits     bool  // made before its member was added, and not let go
}

// How a pod starts its member.
const (
	bootstraps uint8 = iota
	joins
	resumes
)

// What the kubelet has reported of a pod.
const (
	pending       uint8 = iota
	runs                // etcd runs, or has run when last heard of
	crashes             // etcd ends again and again
	refused             // prepare found no data where there must be some
	refusedAgain        // the same, and etcd has run in this pod
	unpulled            // its image can't be pulled
	unpulledAgain       // the same, and etcd has run in this pod
)

// ran reports whether the kubelet has ever reported a container of etcd in the pod.
func (p *pod) ran() bool {
	return p.status == runs || p.status == crashes || p.status == refusedAgain || p.status == unpulledAgain
}

// Whether an object is being deleted.
const (
	stays   uint8 = iota
	leaving       // within its grace period
	overdue       // its grace period has long passed
)

// Whether the restart of a pod, or a removal, was withdrawn.
const (
	notWithdrawn uint8 = iota
	justWithdrawn
	longWithdrawn // since before all calls that are under way
)

// claim as stored and as shown; a uid of 0 is none.
type claim struct {
	uid      uint8
	deleting bool
}

// record is the epoch's ConfigMap.
type record struct {
	initial  set
	startsOn [maxMembers]uint8 // uid of the claim or memory pod; 0 is none
	dropped  set               // those for which it says that nothing starts there
	exists   bool
	founded  bool
	quorate  bool
	next     uint8
	version  uint8
	choice   choice
	rev      uint8 // of the API server
}

// started are the members that it says of what they start on.
func (r *record) started() set { return where(func(n int) bool { return r.startsOn[n] != 0 }) }

// choice of the member that is restarted, or removed.
type choice struct {
	member    uint8 // number+1; 0 for none
	removes   bool
	withdrawn uint8 // of a removal: unspared, when it was not, and the like
	pod       uint8 // the uid of its pod; 0 for a removal
	turn      uint8 // turn+1 of the container that ends; 0 when the pod goes
}

// unseenTurn is that of a container, plus 1, which an old view of the pod does not show yet.
const unseenTurn = 100

// parent is what the EtcdCluster says.
type parent struct {
	status                      clusterStatus
	replicas, version, template uint8
	refused                     refusal // what it asks for that a self-hosted etcd must not do
}

// status is what the hooks read back from it. What it is good for is to wait, and for words.
type clusterStatus struct {
	voters, learners set
	old              set // who of them has been listed for long
	hasID            bool
}

// view is what the hooks are shown.
type view struct {
	pods   [maxMembers]pod
	claims [maxMembers]claim
	record record
	parent parent
}

// Kinds of cache, as bits of state.frozen.
const (
	podCache uint8 = 1 << iota
	claimCache
	recordCache
	parentCache
)

var caches = []uint8{podCache, claimCache, recordCache, parentCache}

// state is everything: a plain value, which is compared and hashed as one.
type worldState struct {
	live view // at the API server
	seen view // by the caches that are frozen; zero where a cache is not

	// flight is a call that is under way.
	flight flight

	// data is what each member's volume (or tmpfs) holds, and proc the version of the etcd that runs on it.
	data, proc [maxMembers]uint8

	// Cluster is etcd. Only worlds of several minor versions agree on one.
	membership.Cluster

	// Of processes and nodes: the members whose prepare has passed in this pod, passed since the node's last boot,
	// whose node is lost, whose pod no node takes.
	marked, prepared, lost, stuck set
	// Of the network: those that the hooks don't reach. Of etcd: those that have begun with data of their own.
	unreachable, born set

	frozen  uint8
	used    uint8 // the highest number that a member ever had, plus 1
	formed  bool  // a cluster has formed
	down    bool  // the hooks reach no etcd at all
	nospace bool  // a member has raised the alarm
	unseen  bool  // a fault came since the cache of pods froze: a deletion is then judged by what was known

	faults, edits, hitches, evictions uint8 // still to come

	budget budget
}

// budget is the PodDisruptionBudget. Worlds without evictions have none.
type budget struct {
	least   uint8 // pods that must be ready
	unready bool  // pods that are not ready may always go
}

// What data there is.
const (
	nothing uint8 = iota
	behind        // a learner's that has not caught up
	whole         // all that was agreed when the member was last connected
)

// flight is a call under way: its answer, or before that its step.
type flight struct {
	phase uint8
	// disturbed: a fault came after the decision; what is done is then judged by what was known.
	disturbed bool
	view      view
	step      step
	list      memberList
	answer    reply
}

// Phases of a call under way.
const (
	none     uint8 = iota
	deciding       // decided on a step that is not yet carried out
	answered       // the answer is on its way
)

// memberList is one as it was read.
type memberList struct {
	voters, learners set
}

func (s *worldState) list() memberList { return memberList{s.Voters, s.Learners} }

// step of etcd's membership.
type step struct {
	kind, member uint8
}

// Kinds of step.
const (
	noStep uint8 = iota
	addLearner
	promote
	remove
	moveLeader
	enableDowngrade // of a minor version, not of a member
	cancelDowngrade
	addVoter // never Quorate's; a mutant's
)

// reply is what the hooks want.
type reply struct {
	pods   [maxMembers]pod   // those to be created, and the versions of new images
	podDo  [maxMembers]uint8 // what becomes of each pod
	claims [maxMembers]uint8 // and of each claim
	record record
	status clusterStatus
	write  bool // the record must be created or updated
	budget budget
}

// What becomes of an object.
const (
	omit       uint8 = 0
	keep       uint8 = 1
	create     uint8 = 2
	release    uint8 = 4   // besides keep: a pod's scheduling gate goes
	newImage   uint8 = 8   // besides keep: a pod's image changes
	withdraw   uint8 = 16  // besides keep: the restart of a pod is withdrawn
	unwithdraw uint8 = 32  // besides keep: it is no longer
	forget     uint8 = 64  // besides keep: a pod no longer says how to join
	admit      uint8 = 128 // besides keep: a pod that waits is told how to join
)

// ---- words for facts

// ofMember reports whether the step is about a member.
func (t step) ofMember() bool {
	return t.kind != noStep && t.kind != enableDowngrade && t.kind != cancelDowngrade
}
