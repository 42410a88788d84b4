package answer

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// How soon to ask again. Much that is waited for comes without an event: a leader is elected, a learner catches up,
// a member answers again. So a rule has a pause. But much never comes by itself: no node takes a pod, an image can't be
// pulled, a person has to decide. A question costs as much then as in a change, and more where a member does not
// answer, which takes a worker of Metacontroller's for the whole time that a question has.
//
// So every pause grows with the time for which nothing has changed, to a tenth of it and to the resync period at most:
// what comes without an event is seen a tenth later than it could be. A pod that is made, gets a node or an address,
// starts or turns ready is an event, at which Metacontroller calls at once; so are a Secret, a snapshot and an edit.
// What a rule waits for by time is asked about when that time is over.

// quietShare is the part of the time without a change that may pass until the next look.
const quietShare = 10

// resyncAfter is how soon to be asked again: as the rule says, more rarely while nothing changes, and when a time is
// over that is counted, the schedule begins a run or a maintenance window opens.
func resyncAfter(f *facts.Facts, plan *decision.Plan, s *v1beta1.EtcdClusterStatus) time.Duration {
	until := []time.Duration{grown(f, plan.Resync, s), plan.Due, nextTimeOver(f)}
	if f.DefragRun != nil && !f.DefragRun.NextScheduleTime.IsZero() {
		until = append(until, f.DefragRun.NextScheduleTime.Sub(f.Now))
	}
	if f.Windows.Closed() && !f.Windows.Opens.IsZero() {
		until = append(until, f.Windows.Opens.Sub(f.Now))
	}
	if f.Etcd != nil && f.WatchesDisks() && !f.Suspended() && facts.Serving(f.Members) == len(f.Members) {
		until = append(until, facts.DiskLook)
	}
	if f.Etcd != nil && len(f.PreferredZones()) > 0 {
		until = append(until, f.UntilLeaderMoves())
	}
	until = objects.Filter(until, func(d time.Duration) bool { return d > 0 })
	if len(until) == 0 {
		return 0
	}
	return slices.Min(until)
}

// grown is the rule's pause, or a longer one when nothing has changed for a while. At its longest it is left to
// Metacontroller's resync: two calls in one period would be one too many.
func grown(f *facts.Facts, first decision.Pause, s *v1beta1.EtcdClusterStatus) time.Duration {
	if first == 0 {
		return 0
	}
	pause := max(time.Duration(first), quiet(f, s)/quietShare)
	switch {
	case pause < f.ResyncPeriod():
		return pause.Round(time.Millisecond)
	case f.Resync > 0:
		return 0
	}
	return f.ResyncPeriod()
}

// quiet is for how long the status has told of nothing new. A silence is as long as we have looked at it: while we did
// not, members may have come and gone.
func quiet(f *facts.Facts, s *v1beta1.EtcdClusterStatus) time.Duration {
	last := lastChange(s, f.Now.Add(clockSkew))
	if f.ClockRuns() {
		return f.Observed(last)
	}
	return f.Now.Sub(last)
}

// clockSkew is how far the clock that wrote a status may be ahead of ours.
const clockSkew = time.Minute

// lastChange is when a status last told of something new. What is later than that is from a clock that was put back.
func lastChange(s *v1beta1.EtcdClusterStatus, atMost time.Time) time.Time {
	var times []metav1.Time
	if c := meta.FindStatusCondition(s.Conditions, v1beta1.Available); c != nil {
		times = append(times, c.LastTransitionTime)
	}
	for _, m := range s.Members {
		times = append(times, m.LastTransitionTime, m.JoinTime)
	}
	for _, e := range s.History {
		times = append(times, e.Time)
	}
	var last time.Time
	for _, t := range times {
		if !t.After(atMost) {
			last = facts.Later(last, t.Time)
		}
	}
	return last
}

// nextTimeOver is in how long the next of the times is over that are counted; 0 for none.
func nextTimeOver(f *facts.Facts) time.Duration {
	if !f.ClockRuns() {
		return 0
	}
	var left []time.Duration
	for _, m := range f.Voters {
		if s := f.UnreachableFor(m); s > 0 {
			left = append(left, defaults.ReplaceAfter(&f.Cluster.Spec)-s)
		}
	}
	if l := f.Learner(); l != nil {
		if since := f.CatchesUpSince(l); !since.IsZero() {
			left = append(left, f.TimeFor()-f.WhileAvailable(since))
		}
	}
	if f.Etcd == nil {
		left = append(left, f.LostUntil().Sub(f.Now))
	}
	if f.Next != nil && f.Choosing() {
		left = append(left, f.InspectFor()-f.Observed(f.InspectedSince()))
	}
	left = objects.Filter(left, func(d time.Duration) bool { return d > 0 })
	if len(left) == 0 {
		return 0
	}
	return slices.Min(left)
}
