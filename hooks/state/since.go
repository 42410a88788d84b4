package state

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Clocks that end in something being given up count what Quorate has seen, and not what has passed. While
// Metacontroller, Quorate or the API server is away, members may well come back and go again, and kubelets and
// other controllers stand still with us. So a member that is down at the first look after an outage of an hour has
// been down for as long as before it, at most.
//
// There is one such clock, the status's Watched: since when Quorate has looked at the cluster without a gap.
// Whatever has been so since a time in the status (a member, the quorum, a learner) has been seen so since the
// later of the two: [view.observed]. So a gap is known once, for all of them, and the times that people see stay
// true. It is written only while something of the kind is counted, and seldom (S16).
//
//	counted by it         a voter that does not serve; a learner that does not catch up; a quorum that is lost, with what
//	                      spec.recovery or a person begins then; a survivor's volume that can't be reached; the pause of
//	                      a silent cluster (cluster/resync.go)
//	counted by the wall   promises to people: validity of certificates, schedules, deadlines of snapshots, how long
//	                      claims are kept
//	                      facts of others: grace periods of pods, since when a container or a condition of a volume is
//	                      there, a claim that the API server did not let grow, how long etcd may defragment or compact,
//	                      the end of calls (CallsEnd)
//	                      pauses between our own attempts, in which nothing is concluded from what was not seen

// usualResync is how often Metacontroller calls by our manifests.
const usualResync = 30 * time.Second

// ResyncPeriod is within how long Quorate looks again when nothing happens.
func ResyncPeriod(v *View) time.Duration { return cmp.Or(v.Resync, usualResync) }

// A look is written once the last one that was written is two resync periods old, so that it costs one write in
// that time (and one more call: Metacontroller calls again when the status changes). With calls up to twice as far
// apart as they should be, as in an installation that is overloaded, less than four periods lie between the look
// that was written and the next call. More are a gap.
const (
	lookWritten = 2 // resync periods
	lookMissed  = 2 * lookWritten
)

// WatchedSince is since when Quorate has looked without a gap; now after one, and after a look by a clock that was ahead.
func WatchedSince(v *View) time.Time {
	w := v.Cluster.Status.Internal.Watched
	if w == nil || w.StartTime.IsZero() || aheadOf(v.Now, &w.LastProbeTime) ||
		v.Now.Sub(w.LastProbeTime.Time) > lookMissed*ResyncPeriod(v) {
		return v.NowInSeconds().Time
	}
	return w.StartTime.Time
}

// Observed is for how long something has been so that is so since then, as far as Quorate has looked; 0 for no time.
func Observed(v *View, since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(0, v.Now.Sub(Later(since, WatchedSince(v))))
}

// Watched is what the status is to say of it; nil when nothing is counted.
func Watched(v *View) *v1alpha1.WatchedStatus {
	if !ClockRuns(v) {
		return nil
	}
	w := v1alpha1.WatchedStatus{StartTime: metav1.NewTime(WatchedSince(v)), LastProbeTime: v.NowInSeconds()}
	old := v.Cluster.Status.Internal.Watched
	if old != nil && old.StartTime.Equal(&w.StartTime) &&
		v.Now.Sub(old.LastProbeTime.Time) < lookWritten*ResyncPeriod(v) {
		w.LastProbeTime = old.LastProbeTime
	}
	return &w
}

// ClockRuns reports whether time is counted by which something is given up.
func ClockRuns(v *View) bool {
	switch {
	case v.Suspended() || v.Epoch == nil || v.Replicas == 0 && !v.BesideForeign():
		return false
	case v.Next != nil && v.Choosing(), v.Learner() != nil && v.Learner().PodName != "":
		return true
	case v.Etcd == nil:
		return v.Epoch.Provisioned()
	}
	return slices.ContainsFunc(v.Voters,
		func(m *Member) bool { return m.PodName != "" && !m.Answers() && !OnHold(v, m.PodName) })
}

// Later is the later of two times.
func Later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}
