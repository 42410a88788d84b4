package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// An epoch is one incarnation of the raft cluster, recorded once in a ConfigMap whose data never changes: its
// creation at the API server is the moment that decides who the initial members are (S8). The annotations only ever
// move forward, because Metacontroller writes them with the resource version that it observed.
type epoch struct {
	n       int
	initial map[string]string // name -> peer URL of the initial members
	origin
	succession
	// first is the lowest number of its members: those below it were members of earlier epochs.
	first int
	// startsOn holds, by member, the UID of the claim (or memory pod), or the name of the node, that it may start on
	// with an empty data directory. It is written before the member starts, and after that nothing of that name is
	// ever made again (S10). Nil: not provisioned yet.
	startsOn map[string]types.UID
	// clusterID is 0 until the epoch has once been quorate.
	clusterID uint64
	// nextOrdinal is the lowest number that no member has had.
	nextOrdinal int
	// floor is what the revisions of all epochs before lie below, highest what its own do too, as far as that is
	// noted: see revisions.go.
	floor, highest int64
	// sum is the SHA-256 that the first initial member has found where none was known before; empty for not yet, or
	// none.
	sum string
	// past are the epochs before, by number.
	past map[int]past
	// answered are the IDs of spec.restore that it or one before has answered, with the number of that.
	answered map[string]int
	version  string
	// choice is the restart or removal that was chosen last.
	choice choice
	oldLog oldLog
	// httpsPeers are the members that etcd lists with an https URL in an epoch that began in plain text.
	httpsPeers []string
	// mismatched are the members at whose addresses another etcd has answered since they last did: see roles.go.
	mismatched []string
	record     *corev1.ConfigMap
}

// origin is where an epoch's data comes from, as its record says once and for all.
type origin struct {
	source string // SourceEmpty and its like
	// restore is the ID of spec.restore that the epoch answers; empty for none.
	restore string
	// snapshot that the initial members restore; nil for none.
	snapshot *resolved
	// bump is by how much the spec says that the revision is raised; nil when it is to begin above all that were
	// given out.
	bump *int64
	// survivorsOf is the epoch one of whose members' volumes seeds this one; 0 for none.
	survivorsOf int
	// member of that epoch that runs, and from which the data is fetched where no volume could be copied; empty for
	// none.
	member string
}

// past is what is known of an epoch that is over.
type past struct {
	clusterID uint64 // 0 when it never had a quorum
	// the numbers of those who voted when the next epoch was recorded, "0.1.2"; empty when that is not known
	voters string
}

// succession is how far an epoch has come in taking over from the one before.
type succession struct {
	after int    // the epoch that it takes over from; 0 for the first
	phase string // phaseStaging and its like
	// survivor is the member whose volume was chosen; empty for none yet. evidence says why.
	survivor, evidence string
}

// The phases of a succession. An epoch begins, for good, when the one before can't acknowledge anything any more.
const (
	phaseStaging   = ""         // its members' data is made ready, beside the epoch before
	phaseStopping  = "stopping" // the epoch before is stopped
	phaseBegan     = "began"
	phaseCancelled = "cancelled" // it is not to come, and what was made ready for it is taken down
)

// began reports whether the epoch's members may run.
func (s succession) began() bool { return s.after == 0 || s.phase == phaseBegan }

// startsOnNothing marks a provisioned epoch in which nobody may start empty.
const startsOnNothing = "none"

// epochs are the one whose members run, and the one that is to take over from it; nil for none. Of several that have
// begun or are to take over, the newest counts: the others are leftovers.
func epochs(o Observation) (current, next *epoch) {
	for n, cm := range epochRecords(o) {
		if e := parseEpoch(n, cm); e.began() {
			current = newer(current, e)
		} else {
			next = newer(next, e)
		}
	}
	if next != nil && current != nil && (next.n < current.n || next.after != current.n) {
		next = nil // it was to take over from another one
	}
	if current == nil && next != nil {
		current = next.predecessor()
	}
	return current, next
}

// epochRecords are all records of epochs that are seen, by number: also of those that are over, or were to be and are
// not any more.
func epochRecords(o Observation) map[int]*corev1.ConfigMap {
	all := map[int]*corev1.ConfigMap{}
	for name, cm := range o.Children.ConfigMaps {
		if n, is := objects.Ordinal(o.Cluster.Name+"-epoch", name); is && cm.Data[objects.EpochKeyToken] != "" {
			all[n] = cm
		}
	}
	return all
}

func newer(a, b *epoch) *epoch {
	if a == nil || b.n > a.n {
		return b
	}
	return a
}

// predecessor is the epoch before, as far as it is known without its record, which is deleted before its members are
// stopped for good: no pod can be made for it any more.
func (e *epoch) predecessor() *epoch {
	before := &epoch{n: e.after, first: objects.ReadMark(e.record.Data[objects.EpochKeyFormerFirst]),
		nextOrdinal: e.first, version: e.version,
		startsOn: map[string]types.UID{}, origin: origin{source: objects.SourceEmpty}}
	before.restore = lastAnswer(e.answered, e.n)
	return before
}

// lastAnswer is the ID of spec.restore that was answered last by an epoch before this one: that of the one just
// before, also when it came by a lost quorum and answered none itself.
func lastAnswer(answered map[string]int, epoch int) (last string) {
	for _, id := range slices.Sorted(maps.Keys(answered)) {
		if n := answered[id]; n < epoch && n >= answered[last] {
			last = id
		}
	}
	return last
}

func parseEpoch(n int, cm *corev1.ConfigMap) *epoch {
	e := &epoch{n: n, record: cm, initial: parsePairs(cm.Data[objects.EpochKeyInitialCluster], "="),
		version: cm.Annotations[objects.AnnotationVersion],
		choice:  readChoice(cm.Annotations[objects.AnnotationChosen]),
		oldLog:  readOldLog(cm.Annotations[objects.AnnotationOldLog])}
	e.origin, e.succession, e.first = readOrigin(cm), readSuccession(cm),
		objects.ReadMark(cm.Data[objects.EpochKeyFirst])
	e.clusterID, _ = strconv.ParseUint(cm.Annotations[objects.AnnotationClusterID], 16, 64)
	if names := cm.Annotations[objects.AnnotationHTTPSPeers]; names != "" {
		e.httpsPeers = strings.Split(names, ",")
	}
	e.mismatched = readNames(cm.Annotations[objects.AnnotationMismatched])
	e.nextOrdinal = objects.ReadMark(cm.Annotations[objects.AnnotationNextMember])
	e.floor, e.highest = revisionIn(cm.Data[objects.EpochKeyRevisionFloor]),
		revisionIn(cm.Annotations[objects.AnnotationHighestRevision])
	e.sum, e.past, e.answered = cm.Annotations[objects.AnnotationSHA256], readPast(cm.Data[objects.EpochKeyPast]),
		readAnswered(cm.Data[objects.EpochKeyAnswered])
	if raw := cm.Annotations[objects.AnnotationStartsOn]; raw != "" || e.clusterID != 0 {
		e.startsOn = map[string]types.UID{}
		for name, uid := range parsePairs(raw, ":") {
			e.startsOn[name] = types.UID(uid)
		}
	}
	return e
}

func (e *epoch) hadQuorum() bool { return e.clusterID != 0 }

// provisioned reports whether the initial members may start.
func (e *epoch) provisioned() bool { return e != nil && e.startsOn != nil }

// mayStartEmpty reports whether the member may start with an empty data directory on the object of this UID.
func (e *epoch) mayStartEmpty(member string, uid types.UID) bool {
	return uid != "" && e.recorded(member) == uid
}

// recorded is the UID of what the member starts on; empty while nothing is recorded, or no record is observed.
func (e *epoch) recorded(member string) types.UID {
	if e == nil {
		return ""
	}
	return e.startsOn[member]
}

// initialNames are the names of the initial members, sorted.
func (e *epoch) initialNames() []string {
	return slices.SortedFunc(maps.Keys(e.initial), byOrdinal)
}

// firstInitial is the first of them; empty for none.
func (e *epoch) firstInitial() string { return append(e.initialNames(), "")[0] }

// filled reports whether the initial members' data directories are filled before their etcd starts.
func (e *epoch) filled() bool {
	if e.source == objects.SourceEmpty {
		return e.after > 0 && (e.bump == nil || *e.bump > 0) // only so it can begin at another revision than 1
	}
	return e.source == objects.SourceSnapshot || e.source == objects.SourceSurvivor
}

// newRecord is the record of an epoch whose initial members have the numbers from first on.
func newRecord(c *v1alpha1.EtcdCluster, n, first, size int) *corev1.ConfigMap {
	members := map[string]string{}
	for i := range size {
		name := objects.MemberName(c.Name, first+i)
		members[name] = objects.PeerURL(c, name)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: objects.EpochName(c.Name, n),
			Annotations: map[string]string{
				objects.AnnotationNextMember: strconv.Itoa(first + size),
				objects.AnnotationVersion:    c.Spec.Version,
			},
		},
		Data: map[string]string{
			objects.EpochKeySource:         objects.SourceEmpty,
			objects.EpochKeyToken:          fmt.Sprintf("%s-%d", c.UID, n),
			objects.EpochKeyInitialCluster: formatPairs(members, "="),
		},
		Immutable: new(true),
	}
}

// rememberedEpochs is how many epochs, and how many answers, a record tells of.
const rememberedEpochs = 32

func readPast(text string) map[int]past {
	all := map[int]past{}
	for number, value := range parsePairs(text, "=") {
		id, voters, _ := strings.Cut(value, "/")
		clusterID, err := strconv.ParseUint(id, 16, 64)
		if n := objects.ReadMark(number); n > 0 && err == nil {
			all[n] = past{clusterID, voters}
		}
	}
	return all
}

func formatPast(all map[int]past) string {
	var fields []string
	for _, n := range slices.Sorted(maps.Keys(all)) {
		fields = append(fields, fmt.Sprintf("%d=%s/%s", n, hex(all[n].clusterID), all[n].voters))
	}
	return strings.Join(fields[max(0, len(fields)-rememberedEpochs):], ",")
}

func readAnswered(text string) map[string]int {
	all := map[string]int{}
	for id, epoch := range parsePairs(text, "=") {
		all[id] = objects.ReadMark(epoch)
	}
	return all
}

func formatAnswered(all map[string]int) string {
	ids := slices.SortedFunc(maps.Keys(all),
		func(a, b string) int { return cmp.Or(all[a]-all[b], strings.Compare(a, b)) })
	var fields []string
	for _, id := range ids {
		fields = append(fields, fmt.Sprintf("%s=%d", id, all[id]))
	}
	return strings.Join(fields[max(0, len(fields)-rememberedEpochs):], ",")
}

// parsePairs reads "a=1,b=2"; what is not a pair is left out.
func parsePairs(s, sep string) map[string]string {
	pairs := map[string]string{}
	for field := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(field, sep); ok && k != "" && v != "" {
			pairs[k] = v
		}
	}
	return pairs
}

// formatPairs writes "a=1,b=2", sorted by member.
func formatPairs[V ~string](pairs map[string]V, sep string) string {
	var fields []string
	for _, k := range slices.SortedFunc(maps.Keys(pairs), byOrdinal) {
		fields = append(fields, k+sep+string(pairs[k]))
	}
	return strings.Join(fields, ",")
}

// byOrdinal compares member names by length first, so that demo-10 comes after demo-9.
func byOrdinal(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
