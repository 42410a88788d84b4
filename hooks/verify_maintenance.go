package hooks

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// What Verify says about alarms and about the members' databases.

// maintenance is what a breach is called that no rule of safety has a number for.
const maintenance = "maintenance"

func (j *judgement) raised(kind string) bool {
	for _, a := range j.o.Etcd.Alarms {
		if a.Kind == kind {
			return true
		}
	}
	return false
}

// whileCorrupt: with the alarm CORRUPT, members only leave; nobody joins or votes who may have copied what is wrong,
// and nobody is stopped, for etcd would not let him start among members that differ.
func (j *judgement) whileCorrupt() {
	if !j.raised(AlarmCorrupt) {
		return
	}
	switch j.d.Step.(type) {
	case Remove, MoveLeader, Disarm:
	default:
		j.require(false, "S6", "%s while data is corrupt", j.d.Step)
	}
}

// provenWrong reports whether a voter's keys differ from those that a quorum of all voters has.
func (j *judgement) provenWrong(m *member) bool {
	if m.Learner || m.health.Hash == nil || !m.serving() || !j.raised(AlarmCorrupt) {
		return false
	}
	count := map[Hash]int{}
	for _, o := range j.v.voters {
		if o.serving() && o.health.Hash != nil {
			count[*o.health.Hash]++
		}
	}
	mine := *m.health.Hash
	for hash, n := range count {
		if 2*n > len(j.v.voters) && hash.Value != mine.Value && hash.Revision == mine.Revision &&
			hash.CompactRevision == mine.CompactRevision {
			return true
		}
	}
	return false
}

// quiet: everybody serves and stays, and nobody comes or goes.
func (j *judgement) quiet(s fmt.Stringer) {
	j.require(j.v.learner() == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.v.removedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
	for _, m := range j.v.members {
		j.require(j.stays(m), "S2", "%s while %s does not serve, or its pod stops or may be made to", s, m.name)
	}
	j.require(len(j.podsThatGo()) == 0 && len(j.exchanged()) == 0, "S2", "%s while a pod is made anew", s)
}

func (j *judgement) defragment(s Defragment) {
	m := j.v.find(s.Name)
	j.require(m != nil && m.ID == s.ID && !m.Learner, "S2", "%s, which is no voter of that name", s)
	j.quiet(s)
	for _, o := range j.v.voters {
		leads := m != nil && m.ID == j.v.Etcd.Leader && o.ID != m.ID
		skipped := leads && j.v.defragRun != nil && j.v.defragRun.Trigger == v1alpha1.TriggerRequest &&
			!strings.Contains(strings.Join(j.v.defragRun.Done, " ")+" ", o.name+" ")
		j.require(!skipped, "S2", "%s, which leads, before %s", s, o.name)
	}
}

// leads is what the leader has told.
func (j *judgement) leads() Health {
	if l := j.v.byID(j.v.Etcd.Leader); l != nil {
		return l.health
	}
	return Health{}
}

func (j *judgement) compact(s Compact) {
	j.require(j.o.Cluster.Spec.Options.AutoCompaction.Mode != v1alpha1.CompactOff, maintenance,
		"%s although autoCompaction.mode is Off", s)
	j.require(j.raised(AlarmNoSpace), maintenance, "%s although there is space", s)
	j.require(s.Revision <= j.leads().Revision, maintenance, "%s, to which the leader has not come", s)
}

// disarm: never before what the alarm is about has gone, or writes would run into it again, or mix what differs.
func (j *judgement) disarm(s Disarm) {
	j.require(j.raised(s.Kind), maintenance, "%s, which nobody has raised", s)
	if s.Kind == AlarmNoSpace {
		for _, m := range j.v.members {
			limit := quota(m.pod)
			j.require(m.serving() && limit > 0 && m.health.DBSize <= limit-limit/10, maintenance,
				"%s while %s is not below 90 %% of its quota", s, m.name)
		}
		return
	}
	same, known := map[Hash]int{}, 0
	for _, m := range j.v.voters {
		if m.serving() && m.health.Hash != nil {
			same[*m.health.Hash]++
			known++
		}
	}
	j.require(len(same) == 1, "S6", "%s while voters have %d hashes", s, len(same))
	j.require(2*known > len(j.v.voters), "S6", "%s although only %d of %d voters tell a hash", s, known,
		len(j.v.voters))
	former := s.ID != 0
	for _, m := range j.v.members {
		former = former && m.ID != s.ID
	}
	j.require(former || known == len(j.v.voters) && known > 1, "S6",
		"%s of a member, and not all voters tell the same hash", s)
}
