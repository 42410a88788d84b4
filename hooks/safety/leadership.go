package safety

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// What Verify says of moves for spec.leadership: never without evidence, never to what is no better, and seldom. At
// rest nothing happens (S16).

// moveLeader: to a voter that serves; and one for no more than a better leader only as is said above.
func moveLeader(j *judgement, s decision.MoveLeader) {
	from, to := j.f.ByID(j.f.Etcd.Leader), j.f.ByID(s.To)
	j.require(to != nil && !to.Learner && to.Serving(), "S1", "%s, which is no serving voter", s)
	rule := j.d.Reason.Rule
	if from == nil || to == nil || rule != "LeaveSlowDisk" && rule != "PreferZone" {
		return
	}
	next := j.o.Cluster.Status.Internal.Leadership.NextMoveTime.Time
	j.require(!j.o.Now.Before(next) || next.Sub(j.o.Now) > 10*time.Minute, "S16", "%s before %s", s,
		next.Format(time.RFC3339))
	j.require(stays(j, to), "S1", "%s, which may be restarted or removed", s)
	if rule == "LeaveSlowDisk" {
		fromSlowDisk(j, s, from, to)
		return
	}
	zones := j.o.Cluster.Spec.Leadership.PreferredZones
	in := func(m *facts.Member) bool {
		return m.Pod != nil && slices.Contains(zones, m.Pod.Labels[corev1.LabelTopologyZone])
	}
	j.require(in(to) && !in(from), "S16", "%s, which is in no better zone", s)
	j.require(InWindow(j.o), maintenance, "%s for its zone outside of a maintenance window", s)
	if d := to.Health.Disk; d != nil && d.Mean >= 40*time.Millisecond && d.Slow >= 10 && 2*d.Slow >= d.Syncs {
		faster := quickerThan(j, to, d.Mean/4)
		j.require(faster < len(j.f.Voters)/2+1, "S16", "%s, whose disk is slow", s)
	}
}

// fromSlowDisk: the leader's disk was slow again and again, the other's is four times as fast, and so are a quorum's.
func fromSlowDisk(j *judgement, s decision.MoveLeader, from, to *facts.Member) {
	was, is := from.Health.Disk, to.Health.Disk
	j.require(j.o.Cluster.Spec.Leadership.AvoidSlowDisks, "S16", "%s, and no one asks for that", s)
	if !measured(was) || !measured(is) {
		j.require(false, "S16", "%s without knowing both disks", s)
		return
	}
	again := was.Slow >= 10 && 2*was.Slow >= was.Syncs-1
	j.require(again && was.Mean >= 40*time.Millisecond, "S16", "%s, and the leader's disk takes %s", s, was.Mean)
	j.require(4*is.Mean <= was.Mean, "S16", "%s, whose disk takes %s beside %s", s, is.Mean, was.Mean)
	j.require(quickerThan(j, from, was.Mean/4) >= len(j.f.Voters)/2+1, "S16", "%s, which would wait for other disks", s)
}

func measured(d *observation.Disk) bool { return d != nil && d.Syncs >= 10 }

// quickerThan is how many other voters serve whose disks are known to take no longer.
func quickerThan(j *judgement, m *facts.Member, most time.Duration) (n int) {
	for _, o := range j.f.Voters {
		if o.ID != m.ID && o.Serving() && measured(o.Health.Disk) && o.Health.Disk.Mean <= most {
			n++
		}
	}
	return n
}

// remembersMove: after such a move the status says that there is none for ten minutes.
func remembersMove(j *judgement) {
	t := j.o.Taken
	if t == nil || t.Err != "" || t.Rule != "LeaveSlowDisk" && t.Rule != "PreferZone" {
		return
	}
	next := j.d.Status.Internal.Leadership.NextMoveTime
	j.require(next.Sub(j.o.Now) > 10*time.Minute-2*time.Second, "S16", "the leadership may move again at %s", next)
}
