package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What etcd's own alarms ask for. NOSPACE: a database has reached its quota, and etcd takes no more keys until the
// alarm is disarmed. CORRUPT: the keys of members differ; etcd takes no writes at all until then, and no member's pod
// is ready.

// disarm ends the first of the alarms: one change at a time.
func disarm(f *facts.Facts, a observation.Alarm, why string) *decision.Plan {
	return change(f, decision.Disarm{ID: a.MemberID, Name: f.NameOf(a.MemberID), Kind: a.Kind}, why)
}

// hashEvidence is what the voters' hashes tell about whose data is right.
type hashEvidence struct {
	// right are voters that agree on one hash and are a quorum of all voters; none when no such hash is known.
	right []*facts.Member
	// wrong are voters whose hash, of the same revisions, is another one.
	wrong []*facts.Member
}

// compareHashes compares the voters' hashes.
func compareHashes(f *facts.Facts) hashEvidence {
	var e hashEvidence
	for _, m := range f.Voters {
		if h := m.Hash(); h != nil {
			agree := objects.Filter(f.Voters, func(o *facts.Member) bool { return o.Hash() != nil && *o.Hash() == *h })
			if len(agree) >= facts.Quorum(len(f.Voters)) {
				e.right = agree
				break
			}
		}
	}
	if len(e.right) == 0 {
		return e
	}
	truth := e.right[0].Hash()
	e.wrong = objects.Filter(f.Voters, func(m *facts.Member) bool {
		return m.Hash() != nil && m.Hash().Comparable(truth) &&
			*m.Hash() != *truth
	})
	return e
}

// corrupt lets nothing else happen while there is the alarm: a member that joins might copy what is wrong.
func corrupt(f *facts.Facts) *decision.Plan {
	alarms := f.Alarms(observation.AlarmCorrupt)
	if len(alarms) == 0 {
		return nil
	}
	e := compareHashes(f)
	lost, _ := f.LostVoter()
	if f.BesideExternal() {
		return &decision.Plan{
			Message: fmt.Sprintf("etcd rejects writes (alarm CORRUPT of %s): %s; Quorate changes nothing while external "+
				"members are in the cluster; you decide: see "+v1beta1.Docs+"troubleshooting.md#corrupt",
				f.Named(alarms), hashes(f)),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	switch {
	case len(e.right) > 0 && lost != nil:
		return alone(f, replace)
	case len(e.wrong) > 0:
		return alone(f, func(f *facts.Facts) *decision.Plan { return removeCorrupt(f, e) })
	case len(e.right) > 0 && replaceUnreachable(f) != nil: // as one that etcd does not let start, for its data differs
		return alone(f, replaceUnreachable)
	}
	for _, a := range alarms {
		if why := disproved(f, a, e); why != "" {
			return disarm(f, a, fmt.Sprintf("disarming CORRUPT%s: %s", accused(f, a), why))
		}
	}
	if len(e.right) > 1 {
		return &decision.Plan{
			Message: fmt.Sprintf("etcd rejects writes (alarm CORRUPT of %s): waiting for the hash of the keys of every "+
				"voter: %s", f.Named(alarms), hashes(f)),
			Resync: decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("etcd rejects writes (alarm CORRUPT of %s), and nothing proves which member is right: %s; "+
			"Quorate changes nothing; you decide: see "+v1beta1.Docs+"troubleshooting.md#corrupt",
			f.Named(alarms), hashes(f)),
		Outlook: decision.Waits,
		Resync:  decision.ResyncLater,
	}
}

// accused is of which member the alarm is, in words; empty where etcd does not say.
func accused(f *facts.Facts, a observation.Alarm) string {
	if a.MemberID == 0 {
		return ""
	}
	return " of " + f.Named([]observation.Alarm{a})
}

// disproved says why an alarm no longer holds; empty when it may.
func disproved(f *facts.Facts, a observation.Alarm, e hashEvidence) string {
	switch {
	case len(e.right) == 0:
		return ""
	case a.MemberID != 0 && !f.Listed(a.MemberID):
		return "it is no longer a member, and the others have the same hash"
	case len(e.right) == len(f.Voters) && len(f.Voters) > 1:
		return "all voters have the same hash of their keys"
	}
	return ""
}

// alone takes a voter away while no member joins or leaves. A learner is not waited for: it may have copied what is
// wrong.
func alone(f *facts.Facts, take func(*facts.Facts) *decision.Plan) *decision.Plan {
	switch l := f.Learner(); {
	case l != nil && l.PodName != "":
		return removeMember(f, l, fmt.Sprintf("removing the learner %s: it may have copied corrupt data", l.PodName))
	case l != nil:
		return learnerCatchingUp(f)
	}
	if wait := waitForRemoved(f); wait != nil {
		return wait
	}
	return take(f)
}

// removeCorrupt removes a voter that is proven wrong, the leader last. One that is down is not waited for as in rule
// Replace: as long as the wrong one runs, etcd lets no member start whose keys differ from it.
func removeCorrupt(f *facts.Facts, e hashEvidence) *decision.Plan {
	slices.SortStableFunc(e.wrong, func(a, b *facts.Member) int { return f.Leads(a) - f.Leads(b) })
	m := e.wrong[0]
	others := objects.Filter(f.Voters, func(o *facts.Member) bool { return o.ID != m.ID })
	stay := objects.Filter(others, func(m *facts.Member) bool { return f.Stays(m) })
	why := fmt.Sprintf("the data of %s is corrupt (alarm CORRUPT): %s", m.PodName, hashes(f))
	switch {
	case len(stay) < facts.Quorum(len(others)) && waitForRestarts(f, others, why) != nil:
		return waitForRestarts(f, others, why)
	case len(stay) < facts.Quorum(len(others)):
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: without it only %d of %d voters serve", why,
				len(stay), len(others)),
			Resync: decision.ResyncLater,
		}
	case f.Leads(m) == 1:
		return change(f, HandOver(f, m), why+"; it leads and hands over first")
	}
	return keepingClaim(f, m, why, objects.FailedCorrupt, removeMember(f, m, why+"; removing it"))
}

// hashes are the voters' hashes in words.
func hashes(f *facts.Facts) string {
	var list []string
	for _, m := range f.Voters {
		who := cmp.Or(m.DisplayName(), "the unmanaged member "+objects.Hex(m.ID))
		if h := m.Hash(); h != nil {
			list = append(list, fmt.Sprintf("%s has the hash %08x at revision %d since %d", who, h.Value, h.Revision,
				h.CompactRevision))
		} else {
			list = append(list, who+" has reported no hash")
		}
	}
	return strings.Join(list, ", ")
}

const (
	// SpaceEvery is how often room is made below a quota at most: what fills up sooner needs more than that.
	SpaceEvery = 10 * time.Minute
	// compaction is how long a compaction may take to show in the members' data in use.
	compaction = 20 * time.Second
)

// noSpace makes room in databases that have reached their quota, and lets etcd take writes again. What it does is a
// run of defragmentation that begins with a compaction: see defragmentation.go.
func noSpace(f *facts.Facts) *decision.Plan {
	alarms := f.Alarms(observation.AlarmNoSpace)
	recovering := f.UnderWay() && f.DefragRun.Trigger == v1beta1.TriggerNoSpace
	switch {
	case len(alarms) == 0 && recovering:
		return finishRun(f, "etcd accepts writes again")
	case len(alarms) == 0:
		return nil
	case recovering:
		return makeRoom(f, alarms)
	case len(fullMembers(f)) == 0:
		return disarm(f, alarms[0], "disarming NOSPACE: every database is below 90 % of its quota")
	case !roomToMake(f):
		return nil
	case ranLately(f, v1beta1.TriggerNoSpace):
		return &decision.Plan{
			Message: "etcd rejects new keys (alarm NOSPACE); Quorate frees space again 10 minutes after the last " +
				"time: see " + v1beta1.Docs + "troubleshooting.md#nospace",
			Resync: decision.ResyncLater,
			Due:    f.DefragRun.StartTime.Add(SpaceEvery).Sub(f.Now),
		}
	}
	return beginRun(f, v1beta1.TriggerNoSpace, fmt.Sprintf(
		"etcd rejects new keys (alarm NOSPACE): freeing space in %s",
		strings.Join(facts.Names(fullMembers(f)), ", ")))
}

// makeRoom takes the next step of a recovery. Where half of the quota or more is in use, defragmentation alone would
// not last.
func makeRoom(f *facts.Facts, alarms []observation.Alarm) *decision.Plan {
	crowded := objects.Filter(fullMembers(f), func(m *facts.Member) bool { return !m.BelowQuota(m.Health.DBSizeInUse) })
	history := slices.ContainsFunc(fullMembers(f),
		func(m *facts.Member) bool { return m.Health.DBSizeInUse >= defaults.Quota(m.Pod)/2 })
	lead := f.Leader()
	known := lead != nil && lead.Health.Revision > 0
	switch {
	case history && known && mayCompact(f) && f.DefragRun.Compacted == 0:
		return change(f, decision.Compact{Revision: lead.Health.Revision},
			fmt.Sprintf("freeing space (alarm NOSPACE): compacting the history before revision %d",
				lead.Health.Revision))
	case !f.DefragRun.LastMemberTime.IsZero() && len(f.DefragRun.Done) == 0 &&
		f.Now.Before(f.DefragRun.LastMemberTime.Add(compacting(crowded))):
		return &decision.Plan{
			Message: "freeing space (alarm NOSPACE): waiting for etcd to compact old revisions",
			Resync:  decision.ResyncLater,
			Due:     f.DefragRun.LastMemberTime.Add(compacting(crowded)).Sub(f.Now),
		}
	case len(crowded) > 0 && !doubtful(f, crowded):
		return finishRun(f, "no more space can be freed")
	}
	need := facts.Fragmented
	if f.DefragRun.Compacted > 0 { // they may have more room than they tell, as doubtful says
		need = func(m *facts.Member) bool { return facts.Fragmented(m) || nearQuota(m) }
	}
	if plan := defragmentNext(f, f.LeftToDefragment(need), "freeing space (alarm NOSPACE)"); plan != nil {
		return plan
	}
	if len(fullMembers(f)) > 0 {
		return finishRun(f, "no more space can be freed")
	}
	return disarm(f, alarms[0], "disarming NOSPACE: every database is below 90 % of its quota")
}

// doubtful reports whether members may have more room than they tell. What a compaction has freed, etcd counts as
// free only once something else is written, and while the alarm lasts nothing is (bbolt frees the pages of a
// transaction in a later one). A defragmentation shows it: so after a compaction they are defragmented all the same,
// until one of them turns out to be full indeed.
func doubtful(f *facts.Facts, crowded []*facts.Member) bool {
	return f.DefragRun.Compacted > 0 &&
		!slices.ContainsFunc(crowded, func(m *facts.Member) bool {
			return slices.Contains(f.DefragRun.Done, m.PodName)
		})
}

// compacting is how long to wait after a compaction: for a while, longer as long as it does not show.
func compacting(crowded []*facts.Member) time.Duration {
	if len(crowded) > 0 {
		return compaction
	}
	return facts.PauseRequest
}

// ranLately reports whether the last run was begun by one of these, less than ten minutes ago.
func ranLately(f *facts.Facts, triggers ...v1beta1.DefragmentationTrigger) bool {
	return f.DefragRun != nil && slices.Contains(triggers, f.DefragRun.Trigger) &&
		f.Now.Before(f.DefragRun.StartTime.Add(SpaceEvery))
}

// roomToMake reports whether a recovery can help: where the data in use leaves room, by defragmentation; else by a
// compaction, when there is something to compact that the last recovery did not.
func roomToMake(f *facts.Facts) bool {
	crowded := objects.Filter(fullMembers(f), func(m *facts.Member) bool { return !m.BelowQuota(m.Health.DBSizeInUse) })
	if len(crowded) == 0 {
		return true
	}
	lead := f.Leader()
	return mayCompact(f) && lead != nil && lead.Health.Revision > compacted(f)
}

// compacted is the revision that the last recovery compacted to.
func compacted(f *facts.Facts) int64 {
	if f.DefragRun == nil {
		return 0
	}
	return f.DefragRun.Compacted
}

// mayCompact reports whether old revisions are ours to drop.
func mayCompact(f *facts.Facts) bool {
	return !defaults.KeepsHistory(f.Cluster.Spec.Options)
}

// nearQuota reports whether the member's database is not below 90 % of its quota.
func nearQuota(m *facts.Member) bool { return !m.BelowQuota(m.Health.DBSize) }

// fullMembers are those whose databases are near their quota.
func fullMembers(f *facts.Facts) []*facts.Member { return objects.Filter(f.Members, nearQuota) }

// outOfSpace says that nothing is left to try.
func outOfSpace(f *facts.Facts) *decision.Plan {
	if len(f.Alarms(observation.AlarmNoSpace)) == 0 {
		return nil
	}
	why := "the data in use"
	if !mayCompact(f) {
		why = "the data in use, including the history that spec.options.autoCompaction.retention 0s keeps,"
	}
	return &decision.Plan{
		Message: fmt.Sprintf("etcd rejects new keys (alarm NOSPACE): %s fills 90 %% or more of the quota of %s; "+
			"delete keys%s, or raise spec.options.quotaBackendBytes or spec.storage.size: see "+
			v1beta1.Docs+"troubleshooting.md#nospace",
			why, quotas(f), compactYourself(f))}
}

func compactYourself(f *facts.Facts) string {
	if mayCompact(f) {
		return ""
	}
	return ", compact with etcdctl"
}

// quotas are those of the members that are full, in words.
func quotas(f *facts.Facts) string {
	var list []string
	for _, m := range fullMembers(f) {
		list = append(list, fmt.Sprintf("%s (%s)", cmp.Or(m.PodName, "the unmanaged member "+objects.Hex(m.ID)),
			facts.Mebibytes(defaults.Quota(m.Pod))))
	}
	return strings.Join(list, ", ")
}
