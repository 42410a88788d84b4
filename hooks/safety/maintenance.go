package safety

import (
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

// What Verify says about alarms and about the members' databases.

// maintenance is what a breach is called that no rule of safety has a number for.
const maintenance = "maintenance"

func raised(j *judgement, kind string) bool {
	for _, a := range j.o.Etcd.Alarms {
		if a.Kind == kind {
			return true
		}
	}
	return false
}

// whileCorrupt: with the alarm CORRUPT, members only leave; none joins or votes that may have copied what is wrong, and
// none is stopped, for etcd would not let it start among members that differ.
func whileCorrupt(j *judgement) {
	if !raised(j, observation.AlarmCorrupt) {
		return
	}
	switch j.d.Step.(type) {
	case decision.Remove, decision.MoveLeader, decision.Disarm:
	default:
		j.require(false, "S6", "%s while data is corrupt", j.d.Step)
	}
}

// provenWrong reports whether a voter's keys differ from those that a quorum of all voters has.
func provenWrong(j *judgement, m *facts.Member) bool {
	if m.Learner || m.Health.Hash == nil || !m.Serving() || !raised(j, observation.AlarmCorrupt) {
		return false
	}
	count := map[observation.Hash]int{}
	for _, o := range j.f.Voters {
		if o.Serving() && o.Health.Hash != nil {
			count[*o.Health.Hash]++
		}
	}
	mine := *m.Health.Hash
	for hash, n := range count {
		if 2*n > len(j.f.Voters) && hash.Value != mine.Value && hash.Revision == mine.Revision &&
			hash.CompactRevision == mine.CompactRevision {
			return true
		}
	}
	return false
}

// quiet: every member serves and stays, and none comes or goes.
func quiet(j *judgement, s fmt.Stringer) {
	j.require(joining(j) == nil, "S3", "%s while there is a learner", s)
	j.require(len(j.f.RemovedPods()) == 0, "S3", "%s while a removed member's pod runs", s)
	for _, m := range j.f.Members {
		j.require(stays(j, m), "S2", "%s while %s does not serve, or its pod stops or may be made to", s, m.PodName)
	}
	j.require(len(podsThatGo(j)) == 0 && len(exchanged(j)) == 0, "S2", "%s while a pod is restarted", s)
}

func defragment(j *judgement, s decision.Defragment) {
	m := j.f.Find(s.Name)
	j.require(m != nil && m.ID == s.ID && !m.Learner, "S2", "%s, which is no voter of that name", s)
	quiet(j, s)
	for _, o := range j.f.Voters {
		leads := m != nil && m.ID == j.f.Etcd.Leader && o.ID != m.ID
		skipped := leads && j.f.DefragRun != nil && j.f.DefragRun.Trigger == v1beta1.TriggerRequest &&
			!strings.Contains(strings.Join(j.f.DefragRun.Done, " ")+" ", o.PodName+" ")
		j.require(!skipped, "S2", "%s, which leads, before %s", s, o.PodName)
	}
}

// leavesClients reports whether the voter may be restarted so that its clients move to others before it is
// defragmented: in a run that has begun, once, where its database is so large that they would feel it.
func leavesClients(j *judgement, m *facts.Member) bool {
	run := j.o.Cluster.Status.Defragmentation
	if run == nil || run.StartTime.IsZero() || !run.CompletionTime.IsZero() || run.Trigger == v1beta1.TriggerNoSpace {
		return false
	}
	began := run.StartTime.UTC().Format(time.RFC3339)
	again := m.ID != j.f.Etcd.Leader && m.Pod != nil && m.Pod.Annotations[objects.AnnotationDefragmentation] == began
	return !again && !slices.Contains(run.Done, m.PodName) && m.Health.DBSizeInUse >= 256<<20
}

// leads is what the leader has told.
func leads(j *judgement) observation.Health {
	if l := j.f.ByID(j.f.Etcd.Leader); l != nil {
		return l.Health
	}
	return observation.Health{}
}

func compact(j *judgement, s decision.Compact) {
	kept := j.o.Cluster.Spec.Options.AutoCompaction.Retention
	j.require(kept == nil || kept.Duration != 0, maintenance, "%s although autoCompaction.retention is 0s", s)
	j.require(raised(j, observation.AlarmNoSpace), maintenance, "%s although there is space", s)
	j.require(s.Revision <= leads(j).Revision, maintenance, "%s, to which the leader has not come", s)
}

// disarm: never before what the alarm is about has gone, or writes would run into it again, or mix what differs.
func disarm(j *judgement, s decision.Disarm) {
	j.require(raised(j, s.Kind), maintenance, "%s, which no member has raised", s)
	if s.Kind == observation.AlarmNoSpace {
		for _, m := range j.f.Members {
			limit := defaults.Quota(m.Pod)
			j.require(m.Serving() && limit > 0 && m.Health.DBSize <= limit-limit/10, maintenance,
				"%s while %s is not below 90 %% of its quota", s, m.PodName)
		}
		return
	}
	same := map[observation.Hash]int{}
	known := 0
	for _, m := range j.f.Voters {
		if m.Serving() && m.Health.Hash != nil {
			same[*m.Health.Hash]++
			known++
		}
	}
	j.require(len(same) == 1, "S6", "%s while voters have %d hashes", s, len(same))
	j.require(2*known > len(j.f.Voters), "S6", "%s although only %d of %d voters tell a hash", s, known,
		len(j.f.Voters))
	former := s.ID != 0
	for _, m := range j.f.Members {
		former = former && m.ID != s.ID
	}
	j.require(former || known == len(j.f.Voters) && known > 1, "S6",
		"%s of a member, and not all voters tell the same hash", s)
}
