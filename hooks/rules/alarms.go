package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
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
func disarm(v *facts.Facts, a observation.Alarm, why string) *decision.Plan {
	return change(v, decision.Disarm{ID: a.MemberID, Name: v.NameOf(a.MemberID), Kind: a.Kind}, why)
}

// hashEvidence is what the voters' hashes tell about whose data is right.
type hashEvidence struct {
	// right are voters that agree on one hash and are a quorum of all voters; none when no such hash is known.
	right []*facts.Member
	// wrong are voters whose hash, of the same revisions, is another one.
	wrong []*facts.Member
}

// compareHashes compares the voters' hashes.
func compareHashes(v *facts.Facts) hashEvidence {
	var e hashEvidence
	for _, m := range v.Voters {
		if h := m.Hash(); h != nil {
			agree := objects.Filter(v.Voters, func(o *facts.Member) bool { return o.Hash() != nil && *o.Hash() == *h })
			if len(agree) >= facts.Quorum(len(v.Voters)) {
				e.right = agree
				break
			}
		}
	}
	if len(e.right) == 0 {
		return e
	}
	truth := e.right[0].Hash()
	e.wrong = objects.Filter(v.Voters, func(m *facts.Member) bool {
		return m.Hash() != nil && m.Hash().Comparable(truth) &&
			*m.Hash() != *truth
	})
	return e
}

// corrupt lets nothing else happen while there is the alarm: a member that joins might copy what is wrong.
func corrupt(v *facts.Facts) *decision.Plan {
	alarms := v.Alarms(observation.AlarmCorrupt)
	if len(alarms) == 0 {
		return nil
	}
	e := compareHashes(v)
	lost, _ := v.LostVoter()
	if v.BesideForeign() {
		return &decision.Plan{
			Message: fmt.Sprintf("etcd rejects writes (alarm CORRUPT: %s): %s; Quorate changes nothing while foreign "+
				"members are in the cluster; you decide: see Corrupt in docs/troubleshooting.md",
				v.Named(alarms), hashes(v)),
			Outlook: decision.Waits,
			Resync:  decision.ResyncLater,
		}
	}
	switch {
	case len(e.right) > 0 && lost != nil:
		return alone(v, replace)
	case len(e.wrong) > 0:
		return alone(v, func(v *facts.Facts) *decision.Plan { return removeCorrupt(v, e) })
	case len(e.right) > 0 && replaceDead(v) != nil: // as one that etcd does not let start, for its data differs
		return alone(v, replaceDead)
	}
	for _, a := range alarms {
		if why := disproved(v, a, e); why != "" {
			return disarm(v, a, fmt.Sprintf("disarming CORRUPT of %s: %s", v.Named([]observation.Alarm{a}),
				why))
		}
	}
	if len(e.right) > 1 {
		return &decision.Plan{
			Message: fmt.Sprintf("etcd rejects writes (alarm CORRUPT: %s): waiting for the hash of the keys of every "+
				"voter: %s", v.Named(alarms), hashes(v)),
			Resync: decision.ResyncLater,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("etcd rejects writes (alarm CORRUPT: %s), and nothing proves which member is right: %s; "+
			"Quorate changes nothing; you decide: see Corrupt in docs/troubleshooting.md",
			v.Named(alarms), hashes(v)),
		Outlook: decision.Waits,
		Resync:  decision.ResyncLater,
	}
}

// disproved says why an alarm no longer holds; empty when it may.
func disproved(v *facts.Facts, a observation.Alarm, e hashEvidence) string {
	switch {
	case len(e.right) == 0:
		return ""
	case a.MemberID != 0 && !v.Listed(a.MemberID):
		return "it is no longer a member, and the others have the same hash"
	case len(e.right) == len(v.Voters) && len(v.Voters) > 1:
		return "all voters have the same hash of their keys"
	}
	return ""
}

// alone takes a voter away while no member joins or leaves. A learner is not waited for: it may have copied what is
// wrong.
func alone(v *facts.Facts, take func(*facts.Facts) *decision.Plan) *decision.Plan {
	switch l := v.Learner(); {
	case l != nil && l.PodName != "":
		return removeMember(v, l, fmt.Sprintf("removing the learner %s: it may have copied corrupt data", l.PodName))
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
func removeCorrupt(v *facts.Facts, e hashEvidence) *decision.Plan {
	slices.SortStableFunc(e.wrong, func(a, b *facts.Member) int { return v.Leads(a) - v.Leads(b) })
	m := e.wrong[0]
	others := objects.Filter(v.Voters, func(o *facts.Member) bool { return o.ID != m.ID })
	stay := objects.Filter(others, func(m *facts.Member) bool { return v.Stays(m) })
	why := fmt.Sprintf("the data of %s is corrupt (alarm CORRUPT): %s", m.PodName, hashes(v))
	switch {
	case len(stay) < facts.Quorum(len(others)) && waitForRestarts(v, others, why) != nil:
		return waitForRestarts(v, others, why)
	case len(stay) < facts.Quorum(len(others)):
		return &decision.Plan{
			Message: fmt.Sprintf("%s; waiting: without it only %d of %d voters serve", why,
				len(stay), len(others)),
			Resync: decision.ResyncLater,
		}
	case v.Leads(m) == 1:
		return change(v, HandOver(v, m), why+"; it leads and hands over first")
	}
	return keepingClaim(v, m, why, objects.FailedCorrupt, removeMember(v, m, why+"; removing it"))
}

// hashes are the voters' hashes in words.
func hashes(v *facts.Facts) string {
	var list []string
	for _, m := range v.Voters {
		who := cmp.Or(m.DisplayName(), "the stranger "+objects.Hex(m.ID))
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
	// spaceEvery is how often room is made below a quota at most: what fills up sooner needs more than that.
	SpaceEvery = 10 * time.Minute
	// compaction is how long a compaction may take to show in the members' data in use.
	compaction = 20 * time.Second
)

// noSpace makes room in databases that have reached their quota, and lets etcd take writes again. What it does is a
// run of defragmentation that begins with a compaction: see defragmentation.go.
func noSpace(v *facts.Facts) *decision.Plan {
	alarms := v.Alarms(observation.AlarmNoSpace)
	recovering := v.UnderWay() && v.DefragRun.Trigger == v1alpha1.TriggerNoSpace
	switch {
	case len(alarms) == 0 && recovering:
		return finishRun(v, "etcd accepts writes again")
	case len(alarms) == 0:
		return nil
	case recovering:
		return makeRoom(v, alarms)
	case len(fullMembers(v)) == 0:
		return disarm(v, alarms[0], "disarming NOSPACE: every database is below 90 % of its quota")
	case !roomToMake(v):
		return nil
	case ranLately(v, v1alpha1.TriggerNoSpace):
		return &decision.Plan{
			Message: "etcd rejects new keys (alarm NOSPACE); Quorate frees space again 10 minutes after the last " +
				"time: see NOSPACE in docs/troubleshooting.md",
			Resync: decision.ResyncLater,
			Due:    v.DefragRun.StartTime.Add(SpaceEvery).Sub(v.Now),
		}
	}
	return beginRun(v, v1alpha1.TriggerNoSpace, fmt.Sprintf(
		"etcd rejects new keys (alarm NOSPACE): freeing space in %s",
		strings.Join(facts.Names(fullMembers(v)), ", ")))
}

// makeRoom takes the next step of a recovery. Where half of the quota or more is in use, defragmentation alone would
// not last.
func makeRoom(v *facts.Facts, alarms []observation.Alarm) *decision.Plan {
	crowded := objects.Filter(fullMembers(v), func(m *facts.Member) bool { return !m.BelowQuota(m.Health.DBSizeInUse) })
	history := slices.ContainsFunc(fullMembers(v),
		func(m *facts.Member) bool { return m.Health.DBSizeInUse >= defaults.Quota(m.Pod)/2 })
	lead := v.Leader()
	switch {
	case history && mayCompact(v) && v.DefragRun.Compacted == 0 && lead != nil && lead.Health.Revision > 0:
		return change(v, decision.Compact{Revision: lead.Health.Revision},
			fmt.Sprintf("freeing space (alarm NOSPACE): compacting the history before revision %d",
				lead.Health.Revision))
	case !v.DefragRun.LastMemberTime.IsZero() && len(v.DefragRun.Done) == 0 &&
		v.Now.Before(v.DefragRun.LastMemberTime.Add(compacting(crowded))):
		return &decision.Plan{
			Message: "freeing space (alarm NOSPACE): waiting for etcd to compact old revisions",
			Resync:  decision.ResyncLater,
			Due:     v.DefragRun.LastMemberTime.Add(compacting(crowded)).Sub(v.Now),
		}
	case len(crowded) > 0 && !doubtful(v, crowded):
		return finishRun(v, "no more space can be freed")
	}
	need := facts.Fragmented
	if v.DefragRun.Compacted > 0 { // they may have more room than they tell, as doubtful says
		need = func(m *facts.Member) bool { return facts.Fragmented(m) || nearQuota(m) }
	}
	if plan := defragmentNext(v, need, "freeing space (alarm NOSPACE)"); plan != nil {
		return plan
	}
	if len(fullMembers(v)) > 0 {
		return finishRun(v, "no more space can be freed")
	}
	return disarm(v, alarms[0], "disarming NOSPACE: every database is below 90 % of its quota")
}

// doubtful reports whether members may have more room than they tell. What a compaction has freed, etcd counts as
// free only once something else is written, and while the alarm lasts nothing is (bbolt frees the pages of a
// transaction in a later one). A defragmentation shows it: so after a compaction they are defragmented all the same,
// until one of them turns out to be full indeed.
func doubtful(v *facts.Facts, crowded []*facts.Member) bool {
	return v.DefragRun.Compacted > 0 &&
		!slices.ContainsFunc(crowded, func(m *facts.Member) bool {
			return slices.Contains(v.DefragRun.Done, m.PodName)
		})
}

// compacting is how long to wait after a compaction: for a while, longer as long as it does not show.
func compacting(crowded []*facts.Member) time.Duration {
	if len(crowded) > 0 {
		return compaction
	}
	return pauseRequest
}

// ranLately reports whether the last run was begun by one of these, less than ten minutes ago.
func ranLately(v *facts.Facts, triggers ...v1alpha1.DefragmentationTrigger) bool {
	return v.DefragRun != nil && slices.Contains(triggers, v.DefragRun.Trigger) &&
		v.Now.Before(v.DefragRun.StartTime.Add(SpaceEvery))
}

// roomToMake reports whether a recovery can help: where the data in use leaves room, by defragmentation; else by a
// compaction, when there is something to compact that the last recovery did not.
func roomToMake(v *facts.Facts) bool {
	crowded := objects.Filter(fullMembers(v), func(m *facts.Member) bool { return !m.BelowQuota(m.Health.DBSizeInUse) })
	if len(crowded) == 0 {
		return true
	}
	lead := v.Leader()
	return mayCompact(v) && lead != nil && lead.Health.Revision > compacted(v)
}

// compacted is the revision that the last recovery compacted to.
func compacted(v *facts.Facts) int64 {
	if v.DefragRun == nil {
		return 0
	}
	return v.DefragRun.Compacted
}

// mayCompact reports whether old revisions are ours to drop.
func mayCompact(v *facts.Facts) bool {
	return v.Cluster.Spec.Options.AutoCompaction.Mode != v1alpha1.CompactOff
}

// nearQuota reports whether the member's database is not below 90 % of its quota.
func nearQuota(m *facts.Member) bool { return !m.BelowQuota(m.Health.DBSize) }

// fullMembers are those whose databases are near their quota.
func fullMembers(v *facts.Facts) []*facts.Member { return objects.Filter(v.Members, nearQuota) }

// outOfSpace says that nothing is left to try.
func outOfSpace(v *facts.Facts) *decision.Plan {
	if len(v.Alarms(observation.AlarmNoSpace)) == 0 {
		return nil
	}
	why := "the data in use"
	if !mayCompact(v) {
		why = "the data in use, including the history that spec.options.autoCompaction.mode Off keeps,"
	}
	return &decision.Plan{
		Message: fmt.Sprintf("etcd rejects new keys (alarm NOSPACE): %s fills 90 %% or more of the quota of %s; "+
			"delete keys%s, or raise spec.options.quotaBackendBytes or spec.storage.size: see NOSPACE in "+
			"docs/troubleshooting.md",
			why, quotas(v), compactYourself(v))}
}

func compactYourself(v *facts.Facts) string {
	if mayCompact(v) {
		return ""
	}
	return ", compact with etcdctl"
}

// quotas are those of the members that are full, in words.
func quotas(v *facts.Facts) string {
	var list []string
	for _, m := range fullMembers(v) {
		list = append(list, fmt.Sprintf("%s (%s)", cmp.Or(m.PodName, "the stranger "+objects.Hex(m.ID)),
			facts.Mebibytes(defaults.Quota(m.Pod))))
	}
	return strings.Join(list, ", ")
}
