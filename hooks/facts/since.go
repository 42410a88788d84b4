package facts

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
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
//	                      an unreachable cluster (answer/resync.go)
//	counted by the wall   promises to people: validity of certificates, schedules, deadlines of snapshots, how long
//	                      claims are kept
//	                      facts of others: grace periods of pods, since when a container or a condition of a volume is
//	                      there, a claim that the API server did not let grow, how long etcd may defragment or compact,
//	                      the end of calls (CallsEnd)
//	                      pauses between our own attempts, in which nothing is concluded from what was not seen

// usualResync is how often Metacontroller calls by our manifests.
const usualResync = 30 * time.Second

// ResyncPeriod is within how long Quorate looks again when nothing happens.
func (f *Facts) ResyncPeriod() time.Duration { return cmp.Or(f.Resync, usualResync) }

// A look is written once the last one that was written is two resync periods old, so that it costs one write in
// that time (and one more call: Metacontroller calls again when the status changes). With calls up to twice as far
// apart as they should be, as in an installation that is overloaded, less than four periods lie between the look
// that was written and the next call. More are a gap.
const (
	lookWritten = 2 // resync periods
	lookMissed  = 2 * lookWritten
)

// watchedSince is since when Quorate has looked without a gap; now after one, and after a look by a clock that was
// ahead.
func (f *Facts) watchedSince() time.Time {
	w := f.Cluster.Status.Internal.Watched
	if w == nil || w.StartTime.IsZero() || aheadOf(f.Now, &w.LastProbeTime) ||
		f.Now.Sub(w.LastProbeTime.Time) > lookMissed*f.ResyncPeriod() {
		return f.NowInSeconds().Time
	}
	return w.StartTime.Time
}

// Observed is for how long something has been so that is so since then, as far as Quorate has looked; 0 for no time.
func (f *Facts) Observed(since time.Time) time.Duration {
	if since.IsZero() {
		return 0
	}
	return max(0, f.Now.Sub(Later(since, f.watchedSince())))
}

// Watched is what the status is to say of it; nil when nothing is counted.
func (f *Facts) Watched() *v1beta1.WatchedStatus {
	if !f.ClockRuns() {
		return nil
	}
	w := v1beta1.WatchedStatus{StartTime: metav1.NewTime(f.watchedSince()), LastProbeTime: f.NowInSeconds()}
	old := f.Cluster.Status.Internal.Watched
	if old != nil && old.StartTime.Equal(&w.StartTime) &&
		f.Now.Sub(old.LastProbeTime.Time) < lookWritten*f.ResyncPeriod() {
		w.LastProbeTime = old.LastProbeTime
	}
	return &w
}

// ClockRuns reports whether time is counted by which something is given up.
func (f *Facts) ClockRuns() bool {
	switch {
	case f.Suspended() || f.Epoch == nil || f.Replicas == 0 && !f.BesideExternal():
		return false
	case f.Next != nil && f.Choosing(), f.Joining() != nil && f.Joining().PodName != "":
		return true
	case f.Etcd == nil:
		return f.Epoch.Provisioned()
	}
	return slices.ContainsFunc(f.Voters,
		func(m *Member) bool { return m.PodName != "" && !m.Answers() && !f.OnHold(m.PodName) })
}

// Later is the later of two times.
func Later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}
