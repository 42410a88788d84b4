package hooks

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
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
func (v *view) resyncAfter(resync time.Duration, s *v1alpha1.EtcdClusterStatus) time.Duration {
	until := []time.Duration{v.backedOff(resync, s), v.nextTimeOver()}
	if v.defragRun != nil && !v.defragRun.Next.IsZero() {
		until = append(until, v.defragRun.Next.Sub(v.Now))
	}
	if v.windows.closed() && !v.windows.opens.IsZero() {
		until = append(until, v.windows.opens.Sub(v.Now))
	}
	until = filter(until, func(d time.Duration) bool { return d > 0 })
	if len(until) == 0 {
		return 0
	}
	return slices.Min(until)
}

// backedOff is a pause while members are silent. At its longest it is left to Metacontroller's resync: two calls in
// one period would be one too many.
func (v *view) backedOff(resync time.Duration, s *v1alpha1.EtcdClusterStatus) time.Duration {
	silent := v.Etcd == nil || slices.ContainsFunc(s.Members, func(m v1alpha1.MemberStatus) bool { return !m.Ready })
	if resync == 0 || resync > rule.ResyncLater || !silent {
		return resync
	}
	pause := max(resync, v.observed(lastChange(s))/silenceShare)
	switch {
	case pause < v.resyncPeriod():
		return pause.Round(time.Millisecond)
	case v.Resync > 0:
		return 0
	}
	return v.resyncPeriod()
}

// lastChange is when a status last told of something new.
func lastChange(s *v1alpha1.EtcdClusterStatus) time.Time {
	var last time.Time
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.Available); c != nil {
		last = c.LastTransitionTime.Time
	}
	for _, m := range s.Members {
		last = later(last, later(m.Since.Time, m.Joined.Time))
	}
	if n := len(s.History); n > 0 {
		last = later(last, s.History[n-1].Time.Time)
	}
	return last
}

// nextTimeOver is in how long the next of the times is over that are counted; 0 for none.
func (v *view) nextTimeOver() time.Duration {
	if !v.clockRuns() {
		return 0
	}
	var left []time.Duration
	for _, m := range v.voters {
		if s := v.silentFor(m); s > 0 {
			left = append(left, replaceAfter(&v.Cluster.Spec)-s)
		}
	}
	if l := v.learner(); l != nil {
		if s := v.lastStatus(l); s != nil {
			left = append(left, v.timeFor()-v.whileAvailable(s.Joined))
		}
	}
	if v.Etcd == nil {
		left = append(left, v.lostUntil().Sub(v.Now))
	}
	if v.next != nil && v.choosing() {
		left = append(left, v.surveyFor()-v.observed(v.surveyedSince()))
	}
	left = filter(left, func(d time.Duration) bool { return d > 0 })
	if len(left) == 0 {
		return 0
	}
	return slices.Min(left)
}
