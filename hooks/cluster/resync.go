package cluster

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// How soon to look again at a cluster with members that do not serve. A member that does not answer takes the
// whole time that a question has, and with it a worker of Metacontroller's; many such clusters, as after the loss
// of a zone, would take all workers, and the others be asked about late.
//
// So the pause grows with the time for which nothing has changed, to a tenth of it and to the resync period at
// most: what comes back without a word from Kubernetes is seen a tenth later than it could be. That is rare. A pod
// that is made, gets an address, starts or turns ready is an event, at which Metacontroller calls at once; so are
// a Secret, a snapshot and an edit.

// silenceShare is the part of a silence that may pass until the next look.
const silenceShare = 10

// resyncAfter is how soon to be asked again: as the rule says, less often while members are silent, and when a time is
// over that is counted, the schedule begins a run or a maintenance window opens.
func resyncAfter(v *state.View, resync time.Duration, s *v1alpha1.EtcdClusterStatus) time.Duration {
	until := []time.Duration{backedOff(v, resync, s), nextTimeOver(v)}
	if v.DefragRun != nil && !v.DefragRun.NextScheduleTime.IsZero() {
		until = append(until, v.DefragRun.NextScheduleTime.Sub(v.Now))
	}
	if v.Windows.Closed() && !v.Windows.Opens.IsZero() {
		until = append(until, v.Windows.Opens.Sub(v.Now))
	}
	until = wording.Filter(until, func(d time.Duration) bool { return d > 0 })
	if len(until) == 0 {
		return 0
	}
	return slices.Min(until)
}

// backedOff is a pause while members are silent. At its longest it is left to Metacontroller's resync: two calls in
// one period would be one too many.
func backedOff(v *state.View, resync time.Duration, s *v1alpha1.EtcdClusterStatus) time.Duration {
	silent := v.Etcd == nil || slices.ContainsFunc(s.Members, func(m v1alpha1.MemberStatus) bool { return !m.Ready })
	if resync == 0 || resync > rule.ResyncLater || !silent {
		return resync
	}
	pause := max(resync, state.Observed(v, lastChange(s))/silenceShare)
	switch {
	case pause < state.ResyncPeriod(v):
		return pause.Round(time.Millisecond)
	case v.Resync > 0:
		return 0
	}
	return state.ResyncPeriod(v)
}

// lastChange is when a status last told of something new.
func lastChange(s *v1alpha1.EtcdClusterStatus) time.Time {
	var last time.Time
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Available); c != nil {
		last = c.LastTransitionTime.Time
	}
	for _, m := range s.Members {
		last = state.Later(last, state.Later(m.LastTransitionTime.Time, m.JoinTime.Time))
	}
	if n := len(s.History); n > 0 {
		last = state.Later(last, s.History[n-1].Time.Time)
	}
	return last
}

// nextTimeOver is in how long the next of the times is over that are counted; 0 for none.
func nextTimeOver(v *state.View) time.Duration {
	if !state.ClockRuns(v) {
		return 0
	}
	var left []time.Duration
	for _, m := range v.Voters {
		if s := health.SilentFor(v, m); s > 0 {
			left = append(left, health.ReplaceAfter(&v.Cluster.Spec)-s)
		}
	}
	if l := v.Learner(); l != nil {
		if s := v.LastStatus(l); s != nil {
			left = append(left, health.TimeFor(v)-health.WhileAvailable(v, s.JoinTime))
		}
	}
	if v.Etcd == nil {
		left = append(left, epochs.LostUntil(v).Sub(v.Now))
	}
	if v.Next != nil && v.Choosing() {
		left = append(left, epochs.SurveyFor(v)-state.Observed(v, epochs.SurveyedSince(v)))
	}
	left = wording.Filter(left, func(d time.Duration) bool { return d > 0 })
	if len(left) == 0 {
		return 0
	}
	return slices.Min(left)
}
