package hooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// What etcd's own alarms ask for. NOSPACE: a database has reached its quota, and etcd takes no more keys until the
// alarm is disarmed. CORRUPT: the keys of members differ; etcd takes no writes at all until then, and no member's pod
// is ready.

// alarms are those of a kind that have been raised, in order. They may name members that are no longer listed, or
// nobody (ID 0).
func (v *view) alarms(kind string) []Alarm {
	if v.Etcd == nil {
		return nil
	}
	list := filter(v.Etcd.Alarms, func(a Alarm) bool { return a.Kind == kind })
	slices.SortFunc(list, func(a, b Alarm) int { return cmp.Compare(a.MemberID, b.MemberID) })
	return list
}

// named are whom the alarms are about, in words.
func (v *view) named(alarms []Alarm) string {
	var list []string
	for _, a := range alarms {
		switch listed := v.listed(a.MemberID); {
		case a.MemberID == 0:
			list = append(list, "no member in particular")
		case listed:
			list = append(list, cmp.Or(v.nameOf(a.MemberID), "the stranger "+hex(a.MemberID)))
		default:
			list = append(list, "the former member "+hex(a.MemberID))
		}
	}
	return strings.Join(slices.Compact(list), ", ")
}

func (v *view) listed(id uint64) bool {
	return slices.ContainsFunc(v.members, func(m *member) bool { return m.ID == id })
}

// alarmsOfOthers are those that no listed member has raised, in words.
func (v *view) alarmsOfOthers() []string {
	var list []string
	for _, a := range append(v.alarms(AlarmNoSpace), v.alarms(AlarmCorrupt)...) {
		if !v.listed(a.MemberID) {
			list = append(list, fmt.Sprintf("%s has the alarm %s", v.named([]Alarm{a}), a.Kind))
		}
	}
	return list
}

// disarm ends the first of the alarms: one change at a time.
func (v *view) disarm(a Alarm, why string) *verdict {
	return v.change(Disarm{ID: a.MemberID, Name: v.nameOf(a.MemberID), Kind: a.Kind}, why)
}

// ---- CORRUPT

// hashEvidence is what the voters' hashes tell about whose data is right.
type hashEvidence struct {
	// right are voters that agree on one hash and are a quorum of all voters; nobody when no such hash is known.
	right []*member
	// wrong are voters whose hash, of the same revisions, is another one.
	wrong []*member
}

// compareHashes compares the voters' hashes.
func (v *view) compareHashes() hashEvidence {
	var e hashEvidence
	for _, m := range v.voters {
		if h := m.hash(); h != nil {
			agree := filter(v.voters, func(o *member) bool { return o.hash() != nil && *o.hash() == *h })
			if len(agree) >= quorum(len(v.voters)) {
				e.right = agree
				break
			}
		}
	}
	if len(e.right) == 0 {
		return e
	}
	truth := e.right[0].hash()
	e.wrong = filter(v.voters, func(m *member) bool {
		return m.hash() != nil && m.hash().comparable(truth) &&
			*m.hash() != *truth
	})
	return e
}

// hash of the member's keys, as it told in this call; nil for none.
func (m *member) hash() *Hash {
	if !m.serving() {
		return nil
	}
	return m.health.Hash
}

// comparable reports whether two hashes are of the same revisions.
func (h *Hash) comparable(o *Hash) bool {
	return h.Revision == o.Revision && h.CompactRevision == o.CompactRevision
}

// corrupt lets nothing else happen while there is the alarm: whoever joins might copy what is wrong.
func corrupt(v *view) *verdict {
	alarms := v.alarms(AlarmCorrupt)
	if len(alarms) == 0 {
		return nil
	}
	e := v.compareHashes()
	lost, _ := v.lostVoter()
	if v.besideForeign() {
		return &verdict{message: fmt.Sprintf("etcd takes no writes (alarm CORRUPT: %s): %s; nothing is changed while "+
			"there are members that are not ours, a person decides: see Corrupt in docs/failure-modes.md",
			v.named(alarms), v.hashes()), outlook: Waits, resync: rule.ResyncLater}
	}
	switch {
	case len(e.right) > 0 && lost != nil:
		return v.alone(replace)
	case len(e.wrong) > 0:
		return v.alone(func(v *view) *verdict { return v.removeCorrupt(e) })
	case len(e.right) > 0 && replaceDead(v) != nil: // as one that etcd does not let start, for its data differs
		return v.alone(replaceDead)
	}
	for _, a := range alarms {
		if why := v.disproved(a, e); why != "" {
			return v.disarm(a, fmt.Sprintf("disarming CORRUPT of %s: %s", v.named([]Alarm{a}), why))
		}
	}
	if len(e.right) > 1 {
		return &verdict{message: fmt.Sprintf("etcd takes no writes (alarm CORRUPT: %s): waiting for all voters to "+
			"tell the hash of their keys: %s", v.named(alarms), v.hashes()), resync: rule.ResyncLater}
	}
	return &verdict{message: fmt.Sprintf("etcd takes no writes (alarm CORRUPT: %s), and whose data is right is not "+
		"proven: %s; nothing is changed, a person decides: see Corrupt in docs/failure-modes.md",
		v.named(alarms), v.hashes()), outlook: Waits, resync: rule.ResyncLater}
}

// disproved says why an alarm no longer holds; empty when it may.
func (v *view) disproved(a Alarm, e hashEvidence) string {
	switch {
	case len(e.right) == 0:
		return ""
	case a.MemberID != 0 && !v.listed(a.MemberID):
		return "it is no member any more, and the others have the same hash"
	case len(e.right) == len(v.voters) && len(v.voters) > 1:
		return "the keys of all voters have the same hash"
	}
	return ""
}

// alone takes a voter away while nobody joins or leaves. A learner is not waited for: it may have copied what is wrong.
func (v *view) alone(take func(*view) *verdict) *verdict {
	switch l := v.learner(); {
	case l != nil && l.name != "":
		return v.removeMember(l, fmt.Sprintf("removing the learner %s: what it has copied may be corrupt", l.name))
	case l != nil:
		return learner(v)
	}
	if wait := waitForRemoved(v); wait != nil {
		return wait
	}
	return take(v)
}

// removeCorrupt removes a voter that is proven wrong, the leader last. One that is down is not waited for as in rule
// Replace: as long as the wrong one runs, etcd lets no member start whose keys differ from it.
func (v *view) removeCorrupt(e hashEvidence) *verdict {
	slices.SortStableFunc(e.wrong, func(a, b *member) int { return v.leads(a) - v.leads(b) })
	m := e.wrong[0]
	others := filter(v.voters, func(o *member) bool { return o.ID != m.ID })
	stay := filter(others, v.stays)
	why := fmt.Sprintf("the data of %s is corrupt (alarm CORRUPT): %s", m.name, v.hashes())
	switch {
	case len(stay) < quorum(len(others)) && v.waitForRestarts(others, why) != nil:
		return v.waitForRestarts(others, why)
	case len(stay) < quorum(len(others)):
		return &verdict{message: fmt.Sprintf("%s; waiting: without it only %d of %d voters would serve", why, len(stay),
			len(others)), resync: rule.ResyncLater}
	case v.leads(m) == 1:
		return v.change(v.handOver(m), why+"; it leads and hands over first")
	}
	return v.keepingClaim(m, why, objects.FailedCorrupt, v.removeMember(m, why+"; removing it"))
}

// hashes are the voters' hashes in words.
func (v *view) hashes() string {
	var list []string
	for _, m := range v.voters {
		who := cmp.Or(m.displayName(), "the stranger "+hex(m.ID))
		if h := m.hash(); h != nil {
			list = append(list, fmt.Sprintf("%s has the hash %08x at revision %d since %d", who, h.Value, h.Revision,
				h.CompactRevision))
		} else {
			list = append(list, who+" tells no hash")
		}
	}
	return strings.Join(list, ", ")
}

// ---- NOSPACE

const (
	// spaceEvery is how often the alarm NOSPACE is cleared at most: what fills up sooner needs more than that.
	spaceEvery = 10 * time.Minute
	// compaction is how long a compaction may take to show in the members' data in use.
	compaction = 20 * time.Second
)

// noSpace makes room in databases that have reached their quota, and lets etcd take writes again. What it does is a
// run of defragmentation that begins with a compaction: see defragmentation.go.
func noSpace(v *view) *verdict {
	alarms := v.alarms(AlarmNoSpace)
	recovering := v.underWay() && v.defragRun.Trigger == v1alpha1.TriggerNoSpace
	switch {
	case len(alarms) == 0 && recovering:
		return v.finishRun("etcd takes writes again")
	case len(alarms) == 0:
		return nil
	case recovering:
		return v.makeRoom(alarms)
	case len(v.nearQuota()) == 0:
		return v.disarm(alarms[0], "disarming NOSPACE: every database is below 90 % of its quota")
	case !v.roomToMake():
		return nil
	case v.spaceMadeLately():
		return &verdict{message: "etcd takes no more keys (alarm NOSPACE); room is made again 10 minutes after the " +
			"last time: see NOSPACE in docs/failure-modes.md", resync: rule.ResyncLater}
	}
	return v.beginRun(v1alpha1.TriggerNoSpace, fmt.Sprintf("etcd takes no more keys (alarm NOSPACE): making room in %s",
		strings.Join(names(v.nearQuota()), ", ")))
}

// makeRoom takes the next step of a recovery. Where half of the quota or more is in use, defragmentation alone would
// not last.
func (v *view) makeRoom(alarms []Alarm) *verdict {
	crowded := filter(v.nearQuota(), func(m *member) bool { return !m.belowQuota(m.health.DBSizeInUse) })
	history := slices.ContainsFunc(v.nearQuota(),
		func(m *member) bool { return m.health.DBSizeInUse >= quota(m.pod)/2 })
	lead := v.leader()
	switch {
	case history && v.mayCompact() && v.defragRun.Compacted == 0 && lead != nil && lead.health.Revision > 0:
		return v.change(Compact{Revision: lead.health.Revision},
			fmt.Sprintf("making room (alarm NOSPACE): dropping the revisions of keys before %d", lead.health.Revision))
	case !v.defragRun.Last.IsZero() && len(v.defragRun.Done) == 0 &&
		v.Now.Before(v.defragRun.Last.Add(v.compacting(crowded))):
		return &verdict{message: "making room (alarm NOSPACE): waiting for etcd to drop old revisions of keys",
			resync: rule.ResyncLater}
	case len(crowded) > 0 && !v.doubtful(crowded):
		return v.finishRun("no more room can be made")
	}
	need := fragmented
	if len(crowded) > 0 {
		need = func(m *member) bool { return fragmented(m) || slices.Contains(crowded, m) }
	}
	if decision := v.defragmentNext(need, "making room (alarm NOSPACE)"); decision != nil {
		return decision
	}
	if len(v.nearQuota()) > 0 {
		return v.finishRun("no more room can be made")
	}
	return v.disarm(alarms[0], "disarming NOSPACE: every database is below 90 % of its quota")
}

// doubtful reports whether members may have more room than they tell. What a compaction has freed, etcd counts as
// free only once something else is written, and while the alarm lasts nothing is (bbolt frees the pages of a
// transaction in a later one). A defragmentation shows it: so after a compaction they are defragmented all the same,
// until one of them turns out to be full indeed.
func (v *view) doubtful(crowded []*member) bool {
	return v.defragRun.Compacted > 0 &&
		!slices.ContainsFunc(crowded, func(m *member) bool { return slices.Contains(v.defragRun.Done, m.name) })
}

// compacting is how long to wait after a compaction: for a while, longer as long as it does not show.
func (v *view) compacting(crowded []*member) time.Duration {
	if len(crowded) > 0 {
		return compaction
	}
	return pauseRequest
}

// spaceMadeLately reports whether the last recovery began less than ten minutes ago.
func (v *view) spaceMadeLately() bool {
	return v.defragRun != nil && v.defragRun.Trigger == v1alpha1.TriggerNoSpace &&
		v.Now.Before(v.defragRun.Started.Add(spaceEvery))
}

// roomToMake reports whether a recovery can help: where the data in use leaves room, by defragmentation; else by a
// compaction, when there is something to compact that the last recovery did not.
func (v *view) roomToMake() bool {
	crowded := filter(v.nearQuota(), func(m *member) bool { return !m.belowQuota(m.health.DBSizeInUse) })
	if len(crowded) == 0 {
		return true
	}
	lead := v.leader()
	return v.mayCompact() && lead != nil && lead.health.Revision > v.compacted()
}

// compacted is the revision that the last recovery compacted to.
func (v *view) compacted() int64 {
	if v.defragRun == nil {
		return 0
	}
	return v.defragRun.Compacted
}

// mayCompact reports whether old revisions are ours to drop.
func (v *view) mayCompact() bool {
	return v.Cluster.Spec.Options.AutoCompaction.Mode != v1alpha1.CompactOff
}

// nearQuota are the members whose database is not below 90 % of its quota.
func (v *view) nearQuota() []*member {
	return filter(v.members, func(m *member) bool { return !m.belowQuota(m.health.DBSize) })
}

// belowQuota reports whether so much is below 90 % of the member's quota, of which its pod's flags tell.
func (m *member) belowQuota(size int64) bool { return size < quota(m.pod)/10*9 }

// quota of the database in a pod; 0 when that is not known.
func quota(pod *corev1.Pod) int64 {
	if pod == nil {
		return 0
	}
	n, _ := quotaOf(pod)
	return n
}

// outOfSpace says that nothing is left to try.
func outOfSpace(v *view) *verdict {
	if len(v.alarms(AlarmNoSpace)) == 0 {
		return nil
	}
	why := "the data in use"
	if !v.mayCompact() {
		why = "the data in use, with the history that spec.options.autoCompaction.mode Off keeps,"
	}
	return &verdict{message: fmt.Sprintf("etcd takes no more keys (alarm NOSPACE): %s fills 90 %% or more of the "+
		"quota of %s; delete keys%s, or raise spec.options.quotaBackendBytes or spec.storage.size: see NOSPACE in "+
		"docs/failure-modes.md",
		why, v.quotas(), v.compactYourself())}
}

func (v *view) compactYourself() string {
	if v.mayCompact() {
		return ""
	}
	return ", compact with etcdctl"
}

// quotas are those of the members that are full, in words.
func (v *view) quotas() string {
	var list []string
	for _, m := range v.nearQuota() {
		list = append(list, fmt.Sprintf("%s (%s)", cmp.Or(m.name, "the stranger "+hex(m.ID)), mebibytes(quota(m.pod))))
	}
	return strings.Join(list, ", ")
}
