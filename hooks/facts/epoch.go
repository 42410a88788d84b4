package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// HighestRecorded is the highest number of an epoch whose record was seen. That of one that is only now made is not
// noted before it is written again.
func (f *Facts) HighestRecorded() int {
	n := record.Recorded(f.Cluster, f.Children.Services[objects.PeerService(f.Cluster.Name)])
	for of, e := range f.Recorded {
		if !slices.Contains(f.Fresh, e.Record.Name) {
			n = max(n, of)
		}
	}
	return n
}

// AnsweredWith are the UIDs of the restores that are answered when the nth epoch has begun, with this data.
func (f *Facts) AnsweredWith(from record.Origin, n int) map[string]int {
	answered := f.Answered()
	if from.Restore != "" && answered[from.Restore] == 0 {
		answered[from.Restore] = n
	}
	return answered
}

// Answered are the UIDs of the restores that the epoch that runs, or one before it, has answered, with the number of
// that.
func (f *Facts) Answered() map[string]int {
	all := map[string]int{}
	if peers := f.Children.Services[objects.PeerService(f.Cluster.Name)]; peers != nil {
		all = ReadAnswered(peers.Annotations[objects.AnnotationAnswered])
	}
	if f.Epoch == nil {
		return all
	}
	known := f.Epoch.Answered
	if f.Epoch.Record == nil && f.Next != nil { // the epoch before has no record any more
		known = maps.Clone(f.Next.Epoch.Answered)
		maps.DeleteFunc(known, func(_ string, n int) bool { return n >= f.Next.Epoch.N })
	}
	maps.Copy(all, known)
	if id := f.Epoch.Restore; id != "" && all[id] == 0 {
		all[id] = f.Epoch.N
	}
	return all
}

// clusterIDOf is etcd's cluster ID of an epoch; 0 when it is not known.
func (f *Facts) clusterIDOf(epoch int) uint64 { return f.pastOf(epoch).ClusterID }

// pastOf is what is known of an epoch.
func (f *Facts) pastOf(epoch int) record.Past {
	known := f.Epoch.Past[epoch]
	if f.Next != nil {
		if later, is := f.Next.Epoch.Past[epoch]; is {
			known = later
		}
	}
	if epoch == f.Epoch.N && f.Epoch.ClusterID != 0 {
		known.ClusterID = f.Epoch.ClusterID
	}
	return known
}

// NextEpochNumber is the number of the next epoch: above that of every epoch whose record is seen, be it a leftover,
// or whose volumes are.
func (f *Facts) NextEpochNumber() int {
	n := max(f.Epoch.N, f.HighestRecorded())
	for name := range f.Children.ConfigMaps {
		recorded, _ := objects.Ordinal(f.Cluster.Name+"-epoch", name)
		n = max(n, recorded)
	}
	for _, claim := range f.All.Claims {
		n = max(n, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
	}
	return n + 1
}

// Epoch is one incarnation of the raft cluster, as its record has it.
type Epoch struct {
	N int
	record.Bootstrap
	record.State
	Record *corev1.ConfigMap
}

// Began reports whether the epoch's members may run.
func (e *Epoch) Began() bool { return e.After == 0 || e.Phase == record.PhaseBegan }

// epochs are the one whose members run, and the one that is to take over from it; nil for none. Of several that have
// begun or are to take over, the newest counts: the others are leftovers.
func epochs(recorded map[int]*Epoch) (current, next *Epoch) {
	for _, e := range recorded {
		if e.Began() {
			current = newerEpoch(current, e)
		} else {
			next = newerEpoch(next, e)
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

// readRecords are all epochs whose records are believed, by number: also those that are over or were given up. Why the
// other records are not believed, or can't be read, is apart, by name.
func readRecords(o observation.Observation) (recorded map[int]*Epoch, doubted map[string]string) {
	recorded = map[int]*Epoch{}
	doubted = map[string]string{}
	for _, name := range o.Unsealed {
		doubted[name] = "its seal is missing or wrong"
	}
	for name, cm := range o.Children.ConfigMaps {
		n, is := record.Is(o.Cluster.Name, cm)
		if !is || doubted[name] != "" {
			continue
		}
		e, err := ParseEpoch(n, cm)
		if err != nil {
			doubted[name] = err.Error()
			continue
		}
		recorded[n] = e
	}
	return recorded, doubted
}

// Refused says why records are not believed, or can't be read, that hold every change back, by name. One that is of
// the very etcd that answers, by the status too, does not: all of it that matters is known without it, so it goes and
// is written again. So it is with each where the key is another one.
//
// Nor does one of a later epoch while the etcd of the epoch that runs answers: that one has not begun. A call that
// comes late makes such a record, when the epoch that it plans was given up meanwhile. It goes, and nothing is read of
// it.
func (f *Facts) Refused() map[string]string {
	if len(f.doubted) > 0 && len(f.doubted) == len(f.neverBegun()) {
		return nil
	}
	if len(f.doubted) != 1 || len(f.Unsealed) != 1 || f.Etcd == nil || len(f.Recorded) > 0 {
		return f.doubted
	}
	n := max(1, int(f.Cluster.Status.Epoch))
	e, err := ParseEpoch(n, f.Children.ConfigMaps[f.Unsealed[0]])
	if err != nil || e.Record.Name != objects.EpochName(f.Cluster.Name, n) {
		return f.doubted
	}
	if e.ClusterID == f.Etcd.ClusterID && f.Cluster.Status.ClusterID == objects.Hex(e.ClusterID) {
		return nil
	}
	return f.doubted
}

// neverBegun are the records that no key has sealed as they are, and that are of epochs that have not begun.
func (f *Facts) neverBegun() []string {
	if f.Etcd == nil || f.Epoch == nil || f.Epoch.Record == nil || !f.Epoch.HadQuorum() {
		return nil
	}
	return objects.Filter(f.Unsealed, func(name string) bool {
		n, is := objects.Ordinal(f.Cluster.Name+"-epoch", name)
		return is && n > f.Epoch.N
	})
}

func newerEpoch(a, b *Epoch) *Epoch {
	if a == nil || b.N > a.N {
		return b
	}
	return a
}

// predecessor is the epoch before, as far as it is known without its record, which is deleted before its members are
// stopped for good: no pod can be made for it any more.
func (e *Epoch) predecessor() *Epoch {
	before := &Epoch{N: e.After}
	before.First = e.FormerFirst
	before.NextOrdinal = e.First
	before.Version = e.Version
	before.StartsOn = map[string]types.UID{}
	before.Source = record.SourceEmpty
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
func ParseEpoch(n int, cm *corev1.ConfigMap) (*Epoch, error) {
	r, err := record.Read(cm)
	if err != nil {
		return nil, err
	}
	return &Epoch{N: n, Bootstrap: r.Bootstrap, State: r.State, Record: cm}, nil
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
	return initial && !e.Recreated
}

// InitialNames are the names of the initial members, sorted.
func (e *Epoch) InitialNames() []string {
	return slices.SortedFunc(maps.Keys(e.Initial), objects.ByOrdinal)
}

// FirstInitial is the first of them; empty for none.
func (e *Epoch) FirstInitial() string { return append(e.InitialNames(), "")[0] }

// Filled reports whether the initial members' data directories are filled before their etcd starts.
func (e *Epoch) Filled() bool {
	if e.Source == record.SourceEmpty {
		return e.After > 0 // only so it can begin at another revision than 1
	}
	return e.Source == record.SourceSnapshot || e.Source == record.SourceSurvivor || e.Source == record.SourceClaims
}

// NewRecord is the record of an epoch whose initial members have the numbers from first on.
func (f *Facts) NewRecord(first, size int) record.Record {
	r := record.Record{Bootstrap: record.Bootstrap{Initial: map[string]string{}, First: first}}
	for name, address := range f.initialAddresses(first, size) {
		r.Initial[name] = objects.PeerURL(f.Cluster, name, address)
	}
	r.Source = record.SourceEmpty
	r.NextOrdinal = first + size
	r.Version = f.Cluster.Spec.Version
	return r
}

// RevisionIn reads a number of revisions; 0 for none that is allowed.
func RevisionIn(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > record.MostRevisions {
		return 0
	}
	return n
}

// ReadAnswered reads the requests that were answered, and by which epoch, by their IDs.
func ReadAnswered(text string) map[string]int {
	all := map[string]int{}
	for id, epoch := range objects.ParsePairs(text, "=") {
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
	return strings.Join(fields[max(0, len(fields)-record.Remembered):], ",")
}

// BeginArg tells what fills a data directory above which revision the epoch begins.
func (e *Epoch) BeginArg() string { return fmt.Sprintf("--begin-after=%d", e.Floor) }

// Initial members that fetch a snapshot whose SHA-256 is not known could get different ones: what is at a URL may be
// overwritten between their fetches. etcd would start on them, raise no alarm, and answer differently by member. So the
// first of them is filled alone, what it has found is written on the record, and the others take nothing else. What
// each was filled with is compared before the epoch begins (S21).

// UnknownSum reports whether the epoch begins with a snapshot whose SHA-256 was not known when it was recorded.
func (e *Epoch) UnknownSum() bool {
	return e != nil && e.Source == record.SourceSnapshot && e.Snapshot != nil && e.Snapshot.SHA256 == ""
}

// UnknownEnd reports whether the epoch begins with what a stream has stored after its snapshot, all or up to a time, so
// that the revision at its end was not known when it was recorded. It goes as the SHA-256 does: the stream may still be
// written.
func (e *Epoch) UnknownEnd() bool {
	if e == nil || e.Source != record.SourceSnapshot || e.Snapshot == nil {
		return false
	}
	return e.Snapshot.Tail != "" && e.Snapshot.Until == 0
}

// FirstAlone reports whether only the first initial member may be filled now: what the others must get is not known.
func (e *Epoch) FirstAlone() bool {
	return e.UnknownSum() && e.Sum == "" || e.UnknownEnd() && e.Until == 0
}
