package safety

import (
	"slices"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// version checks that the members go to another version in steps that etcd can take, up or down (S18).
func version(j *judgement, old, now *facts.Epoch) {
	from, err := defaults.ParseRelease(old.Version)
	to, err2 := defaults.ParseRelease(now.Version)
	if old.Version == now.Version || besideExternal(j) &&
		!slices.ContainsFunc(j.f.Members, func(m *facts.Member) bool { return m.PodName != "" }) || err != nil {
		return
	}
	if !old.HadQuorum() && j.f.Etcd == nil {
		versionUnseen(j, old, now)
		return
	}
	j.require(err2 == nil && j.f.Etcd != nil, "S18", "the version goes from %s to %s without a quorum's answer",
		old.Version, now.Version)
	if from.Minor() == to.Minor() || stillRuns(j, to) { // a patch release, or taken back on the way
		return
	}
	j.require(!j.f.SnapshotFirst(), "S18", "from %s to %s without a snapshot of what was there before", from, to)
	all := func(is func(*facts.Member) bool) bool {
		return len(objects.Filter(j.f.Members, is)) == len(j.f.Members)
	}
	switch to.Minor() {
	case from.Minor() + 1:
		arrived := func(m *facts.Member) bool { return m.Serving() && m.Health.Version == old.Version }
		j.require(all(arrived), "S18", "on to %s before all members have arrived at %s", to, from)
		j.require(defaults.Supported(from) &&
			!from.Less(facts.VersionGates[from.Minor()-defaults.Newest[0].Minor()].Below), "S18",
			"from %s to %s over a release that is not safe", from, to)
	case from.Minor() - 1:
		lowered := func(m *facts.Member) bool { return m.Serving() && m.Health.StorageVersion == to.Base() }
		j.require(all(lowered), "S18", "down to %s before etcd has lowered the format of every member's data", to)
	default:
		j.require(false, "S18", "from %s to %s in one step", from, to)
	}
}

// stillRuns reports whether a voter that serves runs this minor version, and no downgrade is under way.
func stillRuns(j *judgement, r defaults.Release) bool {
	return slices.ContainsFunc(j.f.Voters, func(m *facts.Member) bool {
		has, err := defaults.ParseRelease(m.Health.Version)
		return m.Serving() && err == nil && has.Minor() == r.Minor() && m.Health.Downgrade == ""
	})
}

// startsOn checks that what a member may start on is never exchanged, and forgotten only with the member.
func startsOn(j *judgement, old, now *facts.Epoch) {
	for name, uid := range old.StartsOn {
		member, _ := facts.MemberOfClaim(j.o.Cluster.Name, name)
		gone := j.f.Etcd != nil && j.f.Find(member) == nil
		dropped := j.f.ToBeAdded(member) && now.StartsOn[name] == facts.NothingStarts
		j.require(now.StartsOn[name] == uid || gone || dropped, "S10", "what %s may start on changes", name)
	}
	for name, uid := range now.StartsOn {
		member, _ := facts.MemberOfClaim(j.o.Cluster.Name, name)
		if old.StartsOn[name] == uid || uid == facts.NothingStarts || !old.Provisioned() {
			continue
		}
		joins := newLearner(j.f.Find(member)) || j.f.ToBeAdded(member)
		j.require(joins && old.StartsOn[member] == "", "S10", "%s may start empty, but is no new learner", name)
	}
	passed(j, now)
}

// passed: where the mark passes a number that was never added, nothing starts from then on.
func passed(j *judgement, now *facts.Epoch) {
	for _, name := range j.f.Names {
		n, _ := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!j.f.ToBeAdded(name) || n >= now.NextOrdinal || now.StartsOn[name] == facts.NothingStarts, "S7",
			"the mark passes %s, which was never added and may start", name)
	}
}
