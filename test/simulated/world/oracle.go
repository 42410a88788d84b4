package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Oracle remembers what a rule of safety needs to be judged by over time, and every breach of one (docs: rules S1 to
// S21).
type Oracle struct {
	// Rests is how many answers could have been given again.
	Rests int
	// Decisions is how many there were. Where it begins says which of them are replayed.
	Decisions int
	// Broken are the breaches, in the order in which they happened.
	Broken []string
	// cluster is the ID of the only cluster of this epoch (S8); 0 before there is one.
	cluster uint64
	// epoch is the number of that, since when it is.
	epoch int
	since time.Time
	// identities are the data directories in which member IDs were first used (S10).
	identities map[uint64]string
	// names are the member IDs that member names have had (S9).
	names map[string]uint64
	// learned are members that were initial or have been learners: the only ones that may vote (S4).
	learned map[uint64]bool
	// ordered are the pods that answers of ours have had deleted: their members may serve for another moment, and no
	// longer (S1).
	ordered map[types.UID]bool
	// orphaned is set when the deletion asked for the children to be kept (S17).
	orphaned bool
	// unrooted is set when the authority was taken away, and uprooted when a certificate was too, which can't be
	// signed again (S19).
	unrooted, uprooted bool
}

func newOracle() Oracle {
	return Oracle{identities: map[uint64]string{}, names: map[string]uint64{}, learned: map[uint64]bool{},
		ordered: map[types.UID]bool{}}
}

func (o Oracle) clone() Oracle {
	o.Broken = slices.Clone(o.Broken)
	o.identities, o.names, o.learned, o.ordered = maps.Clone(o.identities), maps.Clone(o.names), maps.Clone(o.learned),
		maps.Clone(o.ordered)
	return o
}

// newCluster forgets the names of an earlier cluster object: a new one begins with none.
func (o *Oracle) newCluster() {
	o.cluster, o.epoch, o.orphaned = 0, 0, false
	o.names = map[string]uint64{}
}

func (w *World) violate(rule, format string, args ...any) {
	w.Oracle.Broken = append(w.Oracle.Broken, rule+": "+fmt.Sprintf(format, args...))
}

// watchEvery is of how many calls one is watched. To write down what the hook is shown takes as long as to decide, and
// each rule decides in hundreds of calls.
const watchEvery = 8

// fingerprint is all of what the hook is shown; it must leave that as it is.
func fingerprint(o observation.Observation) string {
	raw, err := json.Marshal([]any{o.Cluster, o.Children})
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// judge verifies every decision of a call, and that the answer is the decision on what was last seen.
func (w *World) judge(o observation.Observation, c *Call, seen []sight) {
	if w.Journal != nil {
		w.writeDown(o, c, seen)
		return
	}
	if w.Decide != nil {
		return
	}
	w.tellsAuth(c, seen[len(seen)-1])
	for i, s := range seen {
		o.Etcd, o.Health = s.etcd, s.health
		if i > 0 {
			o.Taken = c.Outcome
		}
		d := hooks.Decide(o)
		if err := hooks.Verify(o, d); err != nil {
			w.Oracle.Broken = append(w.Oracle.Broken, strings.Split(err.Error(), "\n")...)
		}
		if i == len(seen)-1 && !reflect.DeepEqual(d, c.Decision) {
			w.violate("S15", "two decisions on the same observation differ")
		}
		w.judgeRest(o, d)
		w.judgeJournal(o, d)
	}
}

// judgeRest decides again while an answer may be given again: at moments and with numbers that lie between those for
// which that was found out.
func (w *World) judgeRest(o observation.Observation, d decision.Decision) {
	rest := hooks.Rests(o, d)
	if rest == 0 {
		return
	}
	w.Oracle.Rests++
	n := w.Oracle.Rests % 4
	again := o
	again.Now = o.Now.Add(rest * time.Duration(2*n+1) / 8)
	for entries := 1 << 24; entries > 0; entries /= 2 { // as many as still count as alike
		again.Health = grown(o.Health, entries, n%2 == 0)
		if hooks.Alike(o, again) {
			break
		}
		again.Health = o.Health
	}
	other := hooks.Decide(again)
	if other.Step != nil || !reflect.DeepEqual(d.Children, other.Children) || !reflect.DeepEqual(d.Status, other.Status) {
		w.violate("S16", "the answer is given again for %s, and after %s it would be another: %s", rest,
			again.Now.Sub(o.Now), other.Reason)
	}
}

// eachWritten: to write down and replay takes as long as to decide some ten times. One after a step counts for eight.
const eachWritten = 64

// judgeJournal replays the entries of some decisions: the same must follow from them.
func (w *World) judgeJournal(o observation.Observation, d decision.Decision) {
	was := w.Oracle.Decisions
	if w.Oracle.Decisions++; o.Taken != nil {
		w.Oracle.Decisions += 7
	}
	if was/eachWritten == w.Oracle.Decisions/eachWritten {
		return
	}
	entry, objects, err := journal.New("", o, d)
	if err != nil {
		w.violate("S15", "%s", err)
		return
	}
	again, err := entry.Replayed(objects, hooks.Decide)
	var differ []string
	if err == nil {
		differ, err = objects.Differences(&entry.Decided, &again)
	}
	if err != nil {
		w.violate("S15", "%s", err)
	} else if len(differ) > 0 {
		w.violate("S15", "decided once more from its entry, a decision differs in %s", differ)
	}
}

// Journal has every decision. What is written into one is not judged.
type Journal struct {
	Entries []*journal.Entry
	Objects journal.Objects
}

func (w *World) writeDown(o observation.Observation, c *Call, seen []sight) {
	for i, s := range seen {
		o.Etcd, o.Health = s.etcd, s.health
		if i > 0 {
			o.Taken = c.Outcome
		}
		d := c.Decision
		if i < len(seen)-1 {
			d = w.Decides(o)
		}
		entry, objects, err := journal.New("", o, d)
		if err != nil {
			w.violate("S15", "%s", err)
			return
		}
		w.Journal.Entries = append(w.Journal.Entries, entry)
		maps.Copy(w.Journal.Objects, objects)
	}
}

// Decides is the decision of this world's rules.
func (w *World) Decides(o observation.Observation) decision.Decision {
	if w.Decide != nil {
		return w.Decide(o)
	}
	return hooks.Decide(o)
}

// grown are healths after so many writes of 128 bytes, to keys that there are or to new ones. Every other member is
// behind by some of them.
func grown(all map[string]observation.Health, entries int, newKeys bool) map[string]observation.Health {
	told := map[string]observation.Health{}
	for i, name := range slices.Sorted(maps.Keys(all)) {
		h := all[name]
		behind := i % 2 * min(entries, 1000)
		h.RaftIndex += uint64(entries - behind)
		h.Revision += int64(entries - behind)
		h.DBSize += int64(entries) << 7
		if newKeys {
			h.DBSizeInUse += int64(entries) << 7
		}
		told[name] = h
	}
	return told
}

// seeMembers looks at a cluster's agreed membership, whenever it changes.
func (o *Oracle) seeMembers(w *World, c Cluster) {
	if o.cluster != 0 && c.Epoch > o.epoch && c.Leader == 0 { // its members are being made ready
		for _, m := range c.Members {
			o.learned[m.ID] = true
		}
		return
	}
	if o.cluster == 0 || c.Epoch > o.epoch {
		o.cluster, o.epoch, o.since = c.ID, c.Epoch, w.Now
		for _, m := range c.Members {
			o.learned[m.ID] = true
		}
	}
	if c.Epoch < o.epoch && o.learned[c.Members[0].ID] {
		return // that of an epoch before
	}
	if o.cluster != c.ID {
		w.violate("S8", "a second cluster %x has formed beside %x", c.ID, o.cluster)
		o.cluster = c.ID
	}
	learners := 0
	for _, m := range c.Members {
		name := nameAt(m)
		if old, used := o.names[name]; used && old != m.ID {
			w.violate("S9", "the name %s is used again", name)
		}
		o.names[name] = m.ID
		if m.Learner {
			learners++
			o.learned[m.ID] = true
		} else if !o.learned[m.ID] {
			w.violate("S4", "%s votes and has never been a learner", name)
			o.learned[m.ID] = true
		}
	}
	if learners > 1 {
		w.violate("S3", "%d learners at once", learners)
	}
}

// seededAlike looks at an epoch of which a member starts: all that were filled have the same data (S21).
func (w *World) seededAlike(c Cluster) {
	seeds := map[stores.Restore]string{}
	for _, m := range c.Members {
		if d := w.held(c, m.ID); d.Seed != "" {
			told, err := stores.Read[stores.Restore](d.Seed)
			if err != nil {
				panic(err)
			}
			told.Ended = "" // the first member says that, and the others end where they are told to
			seeds[*told] = nameAt(m)
		}
	}
	if len(seeds) > 1 {
		w.violate("S21", "the members of epoch %d begin with different data: %s", c.Epoch,
			strings.Join(slices.Sorted(maps.Values(seeds)), ", "))
	}
}

// beginsRight looks at an epoch that comes to its first leader: no client of an earlier epoch is answered by it
// without noticing, since its revisions begin above all that were given out (S21).
func (w *World) beginsRight(c Cluster) {
	if w.Cluster() == nil {
		return
	}
	for _, o := range w.clusters() {
		ours := o.Of == c.Of || slices.ContainsFunc(o.Members,
			func(m observation.Member) bool {
				return strings.HasPrefix(nameAt(m), w.Cluster().Name+"-") && o.Of == ""
			})
		if o.ID != c.ID && o.Leader != 0 && ours && c.Begin <= o.Revision {
			w.violate("S21", "epoch %d begins at revision %d, and epoch %d has given out %d", c.Epoch, c.Begin, o.Epoch,
				o.Revision)
		}
	}
}

var errLogLost = errors.New("tocommit is out of range: was the raft log corrupted, truncated, or lost?")

// takeIdentity notes that a member ID begins in this data directory. An ID that has been used in another one has lost
// its memory: a voter may then vote twice (S10); a learner does no harm, but etcd panics.
func (o *Oracle) takeIdentity(w *World, d Dir, place string) error {
	first, used := o.identities[d.Member]
	if !used {
		o.identities[d.Member] = place
		return nil
	}
	m, _ := w.Etcd.Clusters[d.Cluster].member(d.Member)
	if !m.Learner {
		w.violate("S10", "%s starts with an empty directory; it had data on the %s", nameAt(m), first)
		return nil
	}
	return errLogLost
}

// runs notes that a member whose directory others have filled has run.
func (o *Oracle) runs(d Dir, place string) {
	if _, used := o.identities[d.Member]; !used {
		o.identities[d.Member] = place
	}
}

// afterStep looks at what a step of ours has done to the quorum: to that which there is, and to that which stays once
// the pods that we have deleted, or given another image, have stopped.
func (o *Oracle) afterStep(w *World, before Cluster, step decision.Step) {
	after := w.Etcd.Clusters[before.ID]
	stays := func(c Cluster) bool {
		return len(slices.DeleteFunc(w.component(c),
			func(m observation.Member) bool { return w.goes(c, m) })) >= len(c.voters())/2+1
	}
	if w.quorate(before) && !w.quorate(after) || stays(before) && !stays(after) {
		w.violate("S1", "%s took the quorum away", step)
	}
}

// goes reports whether we have ordered away the pod, or the container, in which the member runs.
func (w *World) goes(c Cluster, m observation.Member) bool {
	uid, _ := w.running(c.ID, m.ID)
	pod := w.Pod(w.Procs[uid].Pod)
	return w.Oracle.ordered[uid] || pod != nil && pod.UID == uid && pod.Spec.Containers[0].Image != w.Procs[uid].Image
}

// afterRemoval looks at the member that a step of ours has removed: one that is not ours goes only when the spec says
// so, and as many of ours vote as it wants (S6).
func (o *Oracle) afterRemoval(w *World, want *v1beta1.EtcdClusterSpec, before Cluster, step decision.Step) {
	s, removes := step.(decision.Remove)
	m, _ := before.member(s.ID)
	if _, stays := w.Etcd.Clusters[before.ID].member(s.ID); !removes || m.ID == 0 || stays || w.named(m) {
		return
	}
	ours := slices.DeleteFunc(before.voters(), func(m observation.Member) bool { return !w.named(m) })
	wanted := max(1, defaults.Replicas(&v1beta1.EtcdCluster{Spec: *want}))
	switch {
	case m.Learner, want.Bootstrap == nil, want.Bootstrap.External == nil, !want.RemoveExternalMembers:
		w.violate("S6", "%s is removed, which is not ours, and the spec does not say so", nameAt(m))
	case len(ours) < wanted:
		w.violate("S6", "%s is removed, which is not ours, and %d of ours vote instead of %d", nameAt(m), len(ours),
			wanted)
	}
}

// named reports whether the member has a name of ours.
func (w *World) named(m observation.Member) bool {
	return w.Cluster() == nil || strings.HasPrefix(nameAt(m), w.Cluster().Name+"-")
}

// afterFiles looks at what certificates that have just arrived in a pod do to its member: every member that took the
// ones before must take them (S19). Where the authority and what it signed were taken away at once, what the members
// trust can't be known; and what others keep is theirs to judge.
func (o *Oracle) afterFiles(w *World, pod *corev1.Pod, before Files) {
	now := w.Files[pod.UID]
	if before.Peer == nil || o.uprooted || len(now.Peer.OwnerReferences) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.Procs)) {
		proc := w.Procs[name]
		if why := rejects(proc.Peers, now.Peer.Certificate, w.Now); why != "" &&
			rejects(proc.Peers, before.Peer.Certificate, w.Now) == "" {
			w.violate("S19", "%s does not take the certificate that %s shows now: %s", proc.Pod, pod.Name, why)
		}
	}
}

// beforeDelete looks at a deletion of ours: which pod goes, no claim of a member that is still one, nothing that must
// be kept.
func (o *Oracle) beforeDelete(w *World, c *Call, key Key, observed metav1.Object) {
	live := w.Objects[key]
	if key.Kind == PodKind && live != nil && live.GetUID() == observed.GetUID() {
		o.ordered[live.GetUID()] = true
	}
	if key.Kind != ClaimKind || live == nil || live.GetUID() != observed.GetUID() {
		return
	}
	if o.orphaned && c.Finalizing {
		w.violate("S17", "the claim %s is deleted, which should be orphaned", key.Name)
	}
	if c.Finalizing {
		return
	}
	if d := w.Dirs[volumeOf(live.GetUID())]; d.Member != 0 && w.keeps(d.Cluster) {
		w.violate("S7", "the claim %s is deleted, of an epoch that may still be gone back to", key.Name)
	}
	for _, m := range w.Etcd.Clusters[o.cluster].Members {
		if nameAt(m) == strings.TrimSuffix(key.Name, walSuffix) {
			w.violate("S7", "the claim %s is deleted, whose member is in the cluster", key.Name)
		}
	}
}

// keeps reports whether the volumes of this cluster must be kept: its epoch has served, and is not over for as long
// as the spec says.
func (w *World) keeps(cluster uint64) bool {
	c := w.Etcd.Clusters[cluster]
	if c.Leader == 0 || c.Epoch >= w.Oracle.epoch {
		return false
	}
	keep := w.Cluster().Spec.Recovery.KeepVolumesFor
	if keep == nil {
		keep = &metav1.Duration{Duration: 7 * 24 * time.Hour}
	}
	return w.Now.Before(w.Oracle.since.Add(keep.Duration))
}

// health is how many voters of the cluster serve and will go on serving, and how many must.
type health struct{ serving, quorum int }

func (w *World) health() health {
	c := w.Etcd.Clusters[w.Oracle.cluster]
	h := health{quorum: len(c.voters())/2 + 1}
	for _, m := range w.component(c) {
		pod, _ := w.running(c.ID, m.ID)
		if w.External[w.Procs[pod].Pod] {
			h.serving++
		}
		if p := w.Pod(w.Procs[pod].Pod); p != nil && p.UID == pod && p.DeletionTimestamp == nil &&
			p.Spec.Containers[0].Image == w.Procs[pod].Image {
			h.serving++
		}
	}
	return h
}

// afterDeletes looks at what deletions of ours, or new images, have done to the quorum. A pause is asked for, and so
// is the end.
func (o *Oracle) afterDeletes(w *World, c *Call, before health) {
	asked := c.Finalizing || w.stops() || c.parent.Spec.Replicas != nil && *c.parent.Spec.Replicas == 0
	if after := w.health(); !asked && before.serving >= before.quorum && after.serving < after.quorum {
		w.violate("S1", "deleting pods leaves %d of %d voters that are needed", after.serving, after.quorum)
	}
}
