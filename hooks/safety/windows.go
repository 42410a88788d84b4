package safety

import (
	"slices"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/timetable"
)

// What Verify says of maintenance windows: a promise to people, and no rule of safety.

// InWindow reports whether something may begin that can wait: a window opened so short a time ago that it is open, or
// the spec has none.
func InWindow(o observation.Observation) bool {
	all := o.Cluster.Spec.Maintenance.Windows
	return len(all) == 0 || slices.ContainsFunc(all, func(w v1beta1.MaintenanceWindow) bool {
		zone := o.Zones[w.TimeZone]
		if w.TimeZone == "" {
			zone = time.UTC
		}
		if zone == nil || w.Duration.Duration < 10*time.Minute || w.Duration.Duration > 168*time.Hour {
			return false
		}
		table, err := timetable.Read(w.Schedule, zone)
		return err == nil && !table.Latest(o.Now.Add(-w.Duration.Duration), o.Now).IsZero()
	})
}

// windows: outside of them no voter that serves is chosen for a restart, and none gets a successor, a URL, another
// minor version or a scheduled defragmentation, for no more than a change.
func windows(j *judgement) {
	if j.f.Etcd == nil || j.f.Epoch == nil || j.f.Epoch.Record == nil {
		return
	}
	if besideExternal(j) || InWindow(j.o) {
		return
	}
	switch s := j.d.Step.(type) {
	case decision.UpdatePeerURL:
		j.require(false, maintenance, "%s outside of a maintenance window", s)
	case decision.EnableDowngrade:
		j.require(downgrades(j), maintenance, "%s outside of a maintenance window", s)
	case decision.AddLearner:
		needed := len(j.f.Voters) < j.f.Replicas+sparesWanted(j) || slices.ContainsFunc(j.f.Voters,
			func(m *facts.Member) bool { return cannotWait(j, m) })
		j.require(needed, maintenance, "%s outside of a maintenance window, and no member is missing", s)
	}
	chosenInWindow(j)
	if was, is := j.o.Cluster.Status.Defragmentation, j.d.Status.Defragmentation; is != nil &&
		is.Trigger == v1beta1.TriggerSchedule {
		j.require(was != nil && was.StartTime.Equal(&is.StartTime), maintenance,
			"a scheduled defragmentation begins outside of a maintenance window")
	}
}

// chosenInWindow checks what the record says from now on of who is restarted, and of the version.
func chosenInWindow(j *judgement) {
	now := records(j, j.f.Epoch.Record.Name)
	if now == nil {
		return
	}
	had := j.f.Epoch.Choice
	has := now.Choice
	if has.Name != "" && !has.Removes && (had.Name != has.Name || had.Pod != has.Pod) {
		m := j.f.Find(has.Name)
		j.require(m == nil || m.Learner || cannotWait(j, m), maintenance,
			"%s, which serves, would be restarted outside of a maintenance window", has.Name)
	}
	from, err := defaults.ParseRelease(j.f.Epoch.Version)
	to, err2 := defaults.ParseRelease(now.Version)
	if err == nil && err2 == nil && from.Minor() != to.Minor() {
		j.require(stillRuns(j, to) || downgrades(j), maintenance,
			"etcd goes on from %s to %s outside of a maintenance window", from, to)
	}
}

// cannotWait reports whether the voter is disturbed whatever the time: it is down or about to be, a person asks for
// it, it is known to be wrong, its certificates may expire, or writes or healing wait for it.
func cannotWait(j *judgement, m *facts.Member) bool {
	_, lost := j.f.DataLost(m)
	if !m.Serving() || lost || downgrades(j) {
		return true
	}
	if j.f.Fenced(m.PodName) || claimBeingDeleted(j, m.PodName) || provenWrong(j, m) {
		return true
	}
	if m.Pod == nil {
		return false
	}
	quota, _ := defaults.QuotaOf(m.Pod)
	full := raised(j, observation.AlarmNoSpace) || m.Health.DBSizeInUse >= quota/10*9
	if full && volumeUnlike(j, m) || leavesClients(j, m) && !unlike(j, m) {
		return true
	}
	return outTrusted(j, m) || speaksWrongly(j, m)
}

// speaksWrongly reports whether the others can't hear the member, or it is open to everyone.
func speaksWrongly(j *judgement, m *facts.Member) bool {
	flags := facts.TLSFlagsOf(m.Pod)
	return flags.Certificates && flags.Peers != facts.ByTLS(m.PeerURLs...) || flags.Anonymous && authTold(j, false)
}

// downgrades reports whether a member tells of a downgrade that is under way.
func downgrades(j *judgement) bool {
	return slices.ContainsFunc(j.f.Members, func(m *facts.Member) bool { return m.Health.Downgrade != "" })
}
