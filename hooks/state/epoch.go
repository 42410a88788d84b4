package state

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

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Epoch is one incarnation of the raft cluster, recorded once in a ConfigMap whose data never changes: its
// creation at the API server is the moment that decides who the initial members are (S8). The annotations only ever
// move forward, because Metacontroller writes them with the resource version that it observed.
type Epoch struct {
	N       int
	Initial map[string]string // name -> peer URL of the initial members
	Origin
	Succession
	// First is the lowest number of its members: those below it were members of earlier epochs.
	First int
	// StartsOn holds, by member, the UID of the claim (or memory pod), or the name of the node, that it may start on
	// with an empty data directory. It is written before the member starts, and after that nothing of that name is
	// ever made again (S10). Nil: not provisioned yet.
	StartsOn map[string]types.UID
	// ClusterID is 0 until the epoch has once been quorate.
	ClusterID uint64
	// NextOrdinal is the lowest number that no member has had.
	NextOrdinal int
	// Floor is what the revisions of all epochs before lie below, highest what its own do too, as far as that is
	// noted: see epochs/revisions.go.
	Floor, Highest int64
	// Sum is the SHA-256 that the first initial member has found where none was known before; empty for not yet, or
	// none.
	Sum string
	// Until is the revision at which the first initial member has found the stream of changes to end; 0 for not yet, or
	// none. StreamEnd says in words how far it followed that, and why not further.
	Until     int64
	StreamEnd string
	// Past are the epochs before, by number.
	Past map[int]Past
	// Answered are the UIDs of the restores that it or one before has answered, with the number of that.
	Answered map[string]int
	Version  string
	// Choice is the restart or removal that was chosen last.
	Choice Choice
	OldLog OldLog
	// HttpsPeers are the members that etcd lists with an https URL in an epoch that began in plain text.
	httpsPeers []string
	// Mismatched are the members at whose addresses another etcd has answered since they last did: see pods/roles.go.
	Mismatched []string
	Record     *corev1.ConfigMap
}

// Origin is where an epoch's data comes from, as its record says once and for all.
type Origin struct {
	Source string // SourceEmpty and its like
	// Restore is the UID of the restore that the epoch answers; empty for none.
	Restore string
	// Snapshot that the initial members restore; nil for none.
	Snapshot *Resolved
	// Bump is by how much the spec says that the revision is raised; nil when it is to begin above all that were
	// given out.
	Bump *int64
	// Claim is the volume that seeds this one, of another etcd; nil for none. Evidence says why that one was chosen.
	Claim *FormerClaim
	// SurvivorsOf is the epoch one of whose members' volumes seeds this one; 0 for none.
	SurvivorsOf int
	// Member of that epoch that runs, and from which the data is fetched where no volume could be copied; empty for
	// none.
	Member string
}

// Past is what is known of an epoch that is over.
type Past struct {
	ClusterID uint64 // 0 when it never had a quorum
	// the numbers of those who voted when the next epoch was recorded, "0.1.2"; empty when that is not known
	Voters string
}

// Succession is how far an epoch has come in taking over from the one before.
type Succession struct {
	After int    // the epoch that it takes over from; 0 for the first
	Phase string // PhaseStaging and its like
	// Survivor is the member whose volume was chosen; empty for none yet. evidence says why.
	Survivor, Evidence string
}

// The phases of a succession. An epoch begins, for good, when the one before can't acknowledge anything any more.
const (
	PhaseStaging   = ""         // its members' data is made ready, beside the epoch before
	PhaseStopping  = "stopping" // the epoch before is stopped
	PhaseBegan     = "began"
	PhaseCancelled = "cancelled" // it is not to come, and what was made ready for it is taken down
)

// Began reports whether the epoch's members may run.
func (s Succession) Began() bool { return s.After == 0 || s.Phase == PhaseBegan }

// StartsOnNothing marks a provisioned epoch in which no member may start empty.
const StartsOnNothing = "none"

// epochs are the one whose members run, and the one that is to take over from it; nil for none. Of several that have
// begun or are to take over, the newest counts: the others are leftovers.
func epochs(o observation.Observation) (current, next *Epoch) {
	for n, cm := range EpochRecords(o) {
		if e := ParseEpoch(n, cm); e.Began() {
			current = newer(current, e)
		} else {
			next = newer(next, e)
		}
	}
	if next != nil && current != nil && (next.N < current.N || next.After != current.N) {
		next = nil // it was to take over from another one
	}
	if current == nil && next != nil {
		current = next.predecessor()
	}
	return current, next
}

// EpochRecords are all records of epochs that are believed, by number: also of those that are over or were given up.
func EpochRecords(o observation.Observation) map[int]*corev1.ConfigMap {
	all := map[int]*corev1.ConfigMap{}
	for name, cm := range o.Children.ConfigMaps {
		if n, is := objects.IsRecord(o.Cluster, cm); is && !slices.Contains(o.Unsealed, name) {
			all[n] = cm
		}
	}
	return all
}

// Refused are the records that are not believed and hold every change back, by name. One that is of the very etcd that
// answers, by the status too, does not: all of it that matters is known without it, so it goes and is written again.
// So it is with each where the key is another one.
func Refused(o observation.Observation) []string {
	if len(o.Unsealed) == 1 && o.Etcd != nil && len(EpochRecords(o)) == 0 {
		id, of := wording.Hex(o.Etcd.ClusterID), objects.EpochName(o.Cluster.Name, max(1, int(o.Cluster.Status.Epoch)))
		record := o.Children.ConfigMaps[o.Unsealed[0]]
		if record.Name == of && record.Annotations[objects.AnnotationClusterID] == id && o.Cluster.Status.ClusterID == id {
			return nil
		}
	}
	return o.Unsealed
}

func newer(a, b *Epoch) *Epoch {
	if a == nil || b.N > a.N {
		return b
	}
	return a
}

// predecessor is the epoch before, as far as it is known without its record, which is deleted before its members are
// stopped for good: no pod can be made for it any more.
func (e *Epoch) predecessor() *Epoch {
	before := &Epoch{N: e.After, First: objects.ReadMark(e.Record.Data[objects.EpochKeyFormerFirst]),
		NextOrdinal: e.First, Version: e.Version,
		StartsOn: map[string]types.UID{}, Origin: Origin{Source: objects.SourceEmpty}}
	before.Restore = LastAnswer(e.Answered, e.N)
	return before
}

// LastAnswer is the UID of the restore that was answered last by an epoch before this one: that of the one just
// before, also when it came by a lost quorum and answered none itself.
func LastAnswer(answered map[string]int, epoch int) (last string) {
	for _, id := range slices.Sorted(maps.Keys(answered)) {
		if n := answered[id]; n < epoch && n >= answered[last] {
			last = id
		}
	}
	return last
}

// ParseEpoch reads the record of epoch n.
func ParseEpoch(n int, cm *corev1.ConfigMap) *Epoch {
	e := &Epoch{N: n, Record: cm, Initial: ParsePairs(cm.Data[objects.EpochKeyInitialCluster], "="),
		Version: cm.Annotations[objects.AnnotationVersion],
		Choice:  ReadChoice(cm.Annotations[objects.AnnotationChosen]),
		OldLog:  readOldLog(cm.Annotations[objects.AnnotationOldLog])}
	e.Origin, e.Succession, e.First = readOrigin(cm), readSuccession(cm),
		objects.ReadMark(cm.Data[objects.EpochKeyFirst])
	e.ClusterID, _ = strconv.ParseUint(cm.Annotations[objects.AnnotationClusterID], 16, 64)
	if names := cm.Annotations[objects.AnnotationHTTPSPeers]; names != "" {
		e.httpsPeers = strings.Split(names, ",")
	}
	e.Mismatched = readNames(cm.Annotations[objects.AnnotationMismatched])
	e.NextOrdinal = objects.ReadMark(cm.Annotations[objects.AnnotationNextMember])
	e.Floor, e.Highest = RevisionIn(cm.Data[objects.EpochKeyRevisionFloor]),
		RevisionIn(cm.Annotations[objects.AnnotationHighestRevision])
	e.Sum, e.Past, e.Answered = cm.Annotations[objects.AnnotationSHA256], ReadPast(cm.Data[objects.EpochKeyPast]),
		ReadAnswered(cm.Data[objects.EpochKeyAnswered])
	e.Until, e.StreamEnd = RevisionIn(cm.Annotations[objects.AnnotationUntil]),
		cm.Annotations[objects.AnnotationStreamEnd]
	if raw := cm.Annotations[objects.AnnotationStartsOn]; raw != "" || e.ClusterID != 0 {
		e.StartsOn = map[string]types.UID{}
		for name, uid := range ParsePairs(raw, ":") {
			e.StartsOn[name] = types.UID(uid)
		}
	}
	return e
}

// HadQuorum reports whether the epoch's members have once had a quorum.
func (e *Epoch) HadQuorum() bool { return e.ClusterID != 0 }

// Provisioned reports whether the initial members may start.
func (e *Epoch) Provisioned() bool { return e != nil && e.StartsOn != nil }

// MayStartEmpty reports whether the member may start with an empty data directory on the object of this UID.
func (e *Epoch) MayStartEmpty(member string, uid types.UID) bool {
	return uid != "" && e.Recorded(member) == uid
}

// Recorded is the UID of what the member starts on; empty while nothing is recorded, or no record is observed.
func (e *Epoch) Recorded(member string) types.UID {
	if e == nil {
		return ""
	}
	return e.StartsOn[member]
}

// BeganWith reports whether the member of that name is one of those that the epoch began with. A call that adds a
// member has seen the record, and gives a number above theirs (S9). A record that was deleted and made again does not
// know them.
func (e *Epoch) BeganWith(name string) bool {
	_, initial := e.Initial[name]
	return initial && e.Record.Data[objects.EpochKeyRecreated] == ""
}

// InitialNames are the names of the initial members, sorted.
func (e *Epoch) InitialNames() []string {
	return slices.SortedFunc(maps.Keys(e.Initial), wording.ByOrdinal)
}

// FirstInitial is the first of them; empty for none.
func (e *Epoch) FirstInitial() string { return append(e.InitialNames(), "")[0] }

// Filled reports whether the initial members' data directories are filled before their etcd starts.
func (e *Epoch) Filled() bool {
	if e.Source == objects.SourceEmpty {
		return e.After > 0 && (e.Bump == nil || *e.Bump > 0) // only so it can begin at another revision than 1
	}
	return e.Source == objects.SourceSnapshot || e.Source == objects.SourceSurvivor || e.Source == objects.SourceClaims
}

// NewRecord is the record of an epoch whose initial members have the numbers from first on.
func NewRecord(v *View, n, first, size int) *corev1.ConfigMap {
	c, members := v.Cluster, map[string]string{}
	for name, address := range initialAddresses(v, first, size) {
		members[name] = objects.PeerURL(c, name, address)
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
			objects.EpochKeyInitialCluster: FormatPairs(members, "="),
		},
		Immutable: new(true),
	}
}

// rememberedEpochs is how many epochs, and how many answers, a record tells of.
const rememberedEpochs = 32

// ReadPast reads what is remembered of former epochs, by number.
func ReadPast(text string) map[int]Past {
	all := map[int]Past{}
	for number, value := range ParsePairs(text, "=") {
		id, voters, _ := strings.Cut(value, "/")
		clusterID, err := strconv.ParseUint(id, 16, 64)
		if n := objects.ReadMark(number); n > 0 && err == nil {
			all[n] = Past{clusterID, voters}
		}
	}
	return all
}

// FormatPast writes what [ReadPast] reads; of the newest epochs alone.
func FormatPast(all map[int]Past) string {
	var fields []string
	for _, n := range slices.Sorted(maps.Keys(all)) {
		fields = append(fields, fmt.Sprintf("%d=%s/%s", n, wording.Hex(all[n].ClusterID), all[n].Voters))
	}
	return strings.Join(fields[max(0, len(fields)-rememberedEpochs):], ",")
}

// ReadAnswered reads the requests that were answered, and by which epoch, by their IDs.
func ReadAnswered(text string) map[string]int {
	all := map[string]int{}
	for id, epoch := range ParsePairs(text, "=") {
		all[id] = objects.ReadMark(epoch)
	}
	return all
}

// FormatAnswered writes what [ReadAnswered] reads.
func FormatAnswered(all map[string]int) string {
	ids := slices.SortedFunc(maps.Keys(all),
		func(a, b string) int { return cmp.Or(all[a]-all[b], strings.Compare(a, b)) })
	var fields []string
	for _, id := range ids {
		fields = append(fields, fmt.Sprintf("%s=%d", id, all[id]))
	}
	return strings.Join(fields[max(0, len(fields)-rememberedEpochs):], ",")
}

// ParsePairs reads "a=1,b=2"; what is not a pair is left out.
func ParsePairs(s, sep string) map[string]string {
	pairs := map[string]string{}
	for field := range strings.SplitSeq(s, ",") {
		if k, v, ok := strings.Cut(field, sep); ok && k != "" && v != "" {
			pairs[k] = v
		}
	}
	return pairs
}

// FormatPairs writes "a=1,b=2", sorted by member.
func FormatPairs[V ~string](pairs map[string]V, sep string) string {
	var fields []string
	for _, k := range slices.SortedFunc(maps.Keys(pairs), wording.ByOrdinal) {
		fields = append(fields, k+sep+string(pairs[k]))
	}
	return strings.Join(fields, ",")
}

// MostRevisions bounds them: far more than a cluster ever has, and so little that what is added never overflows.
const MostRevisions = 1 << 62

// RevisionIn reads a number of revisions; 0 for none that is allowed.
func RevisionIn(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > MostRevisions {
		return 0
	}
	return n
}

// BeginArgs tell what fills a data directory at which revision the epoch begins.
func (e *Epoch) BeginArgs() []string {
	switch {
	case e.Bump == nil:
		return []string{fmt.Sprintf("--begin-after=%d", e.Floor)}
	case *e.Bump > 0:
		return []string{fmt.Sprintf("--bump-revision=%d", *e.Bump)}
	}
	return nil
}

func readNames(text string) []string {
	return wording.Filter(strings.Split(text, ","), func(name string) bool { return name != "" })
}

// Initial members that fetch a snapshot whose SHA-256 is not known could get different ones: what is at a URL may be
// overwritten between their fetches. etcd would start on them, raise no alarm, and answer differently by member. So the
// first of them is filled alone, what it has found is written on the record, and the others take nothing else. What
// each was filled with is compared before the epoch begins (S21).

// UnknownSum reports whether the epoch begins with a snapshot whose SHA-256 was not known when it was recorded.
func (e *Epoch) UnknownSum() bool {
	return e != nil && e.Source == objects.SourceSnapshot && e.Snapshot != nil && e.Snapshot.SHA256 == ""
}

// UnknownEnd reports whether the epoch begins with what a stream has stored after its snapshot, all or up to a time, so
// that the revision at its end was not known when it was recorded. It goes as the SHA-256 does: the stream may still be
// written.
func (e *Epoch) UnknownEnd() bool {
	return e != nil && e.Source == objects.SourceSnapshot && e.Snapshot != nil && e.Snapshot.Tail != "" &&
		e.Snapshot.Until == 0
}

// FirstAlone reports whether only the first initial member may be filled now: what the others must get is not known.
func (e *Epoch) FirstAlone() bool {
	return e.UnknownSum() && e.Sum == "" || e.UnknownEnd() && e.Until == 0
}
