package hooks

import (
	"slices"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/timetable"
)

// What Verify says of maintenance windows: a promise to people, and no rule of safety.

// inWindow reports whether something may begin that can wait: a window opened so short a time ago that it is open, or
// the spec has none.
func (j *judgement) inWindow() bool {
	all := j.o.Cluster.Spec.Maintenance.Windows
	return len(all) == 0 || slices.ContainsFunc(all, func(w v1alpha1.MaintenanceWindow) bool {
		zone := j.o.Zones[w.TimeZone]
		if w.TimeZone == "" {
			zone = time.UTC
		}
		if zone == nil || w.Duration.Duration < 10*time.Minute || w.Duration.Duration > 168*time.Hour {
			return false
		}
		table, err := timetable.Read(w.Schedule, zone)
		return err == nil && !table.Latest(j.o.Now.Add(-w.Duration.Duration), j.o.Now).IsZero()
	})
}

// windows: outside of them no voter that serves is chosen for a restart, and none gets a successor, a URL, another
// minor version or a scheduled defragmentation, for no more than a change.
func (j *judgement) windows() {
	if j.v.Etcd == nil || j.v.epoch == nil || j.v.epoch.record == nil || j.besideForeign() || j.inWindow() {
		return
	}
	switch s := j.d.Step.(type) {
	case UpdatePeerURL:
		j.require(false, maintenance, "%s outside of a maintenance window", s)
	case EnableDowngrade:
		j.require(j.downgrades(), maintenance, "%s outside of a maintenance window", s)
	case AddLearner:
		needed := len(j.v.voters) < j.v.replicas || slices.ContainsFunc(j.v.voters, j.cannotWait)
		j.require(needed, maintenance, "%s outside of a maintenance window, and no member is missing", s)
	}
	j.chosenInWindow()
	if was, is := j.o.Cluster.Status.Defragmentation, j.d.Status.Defragmentation; is != nil &&
		is.Trigger == v1alpha1.TriggerSchedule {
		j.require(was != nil && was.Started.Equal(&is.Started), maintenance,
			"a scheduled defragmentation begins outside of a maintenance window")
	}
}

// chosenInWindow checks what the record says from now on of who is restarted, and of the version.
func (j *judgement) chosenInWindow() {
	now := j.records(j.v.epoch.record.Name)
	if now == nil {
		return
	}
	had := strings.Fields(j.v.epoch.record.Annotations[objects.AnnotationChosen])
	has := strings.Fields(now.Annotations[objects.AnnotationChosen])
	if len(has) > 1 && has[1] != "removal" && (len(had) < 2 || !slices.Equal(had[:2], has[:2])) {
		m := j.v.find(has[0])
		j.require(m == nil || m.Learner || j.cannotWait(m), maintenance,
			"%s, which serves, is to be restarted outside of a maintenance window", has[0])
	}
	from, err := parseRelease(j.v.epoch.version)
	to, err2 := parseRelease(now.Annotations[objects.AnnotationVersion])
	if err == nil && err2 == nil && from.minor != to.minor {
		j.require(j.stillRuns(to) || j.downgrades(), maintenance,
			"etcd goes on from %s to %s outside of a maintenance window", from, to)
	}
}

// cannotWait reports whether the voter is disturbed whatever the time: it is down or about to be, a person asks for
// it, it is known to be wrong, its certificates may expire, or writes or healing wait for it.
func (j *judgement) cannotWait(m *member) bool {
	unheard := m.pod != nil && tlsFlagsOf(m.pod).certificates && tlsFlagsOf(m.pod).peers != byTLS(m.PeerURLs...)
	_, lost := j.v.dataLost(m)
	return !m.serving() || lost || j.v.fenced(m.name) || j.claimBeingDeleted(m.name) || j.provenWrong(m) ||
		m.pod != nil && j.outTrusted(m) || unheard ||
		j.downgrades() || j.raised(AlarmNoSpace) && m.pod != nil && j.volumeUnlike(m)
}

// downgrades reports whether a member tells of a downgrade that is under way.
func (j *judgement) downgrades() bool {
	return slices.ContainsFunc(j.v.members, func(m *member) bool { return m.health.Downgrade != "" })
}
