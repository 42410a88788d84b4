package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
)

// watch lets Quorate have looked without a gap for so long.
func watch(o *observation.Observation, since time.Duration) {
	o.Cluster.Status.Internal.Watched = &v1alpha1.WatchedStatus{StartTime: metav1.NewTime(o.Now.Add(-since)),
		LastProbeTime: metav1.NewTime(o.Now)}
}

// pass lets time pass until then, in which Quorate looks and nothing changes.
func pass(o *observation.Observation, until time.Time) {
	if o.Now = until; o.Cluster.Status.Internal.Watched != nil {
		o.Cluster.Status.Internal.Watched.LastProbeTime = metav1.NewTime(until)
	}
}

// TestWhatIsCountedOfASilence: a member silent since six minutes, and what of that was seen.
func TestWhatIsCountedOfASilence(t *testing.T) {
	second := now.Truncate(time.Second)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(second.Add(-d)) }
	for name, c := range map[string]struct {
		resync    time.Duration
		old, says *v1alpha1.WatchedStatus
		seen      time.Duration
	}{
		"all of it": {0,
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(59 * time.Second)},
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(59 * time.Second)}, 6 * time.Minute},
		"a look is written seldom": {0, &v1alpha1.WatchedStatus{StartTime: ago(time.Hour),
			LastProbeTime: ago(time.Minute)},
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(0)}, 6 * time.Minute},
		"part of it": {0, &v1alpha1.WatchedStatus{StartTime: ago(4 * time.Minute),
			LastProbeTime: ago(2 * time.Minute)}, &v1alpha1.WatchedStatus{StartTime: ago(4 * time.Minute),
			LastProbeTime: ago(0)},
			4 * time.Minute},
		"nothing after a gap": {0,
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(2*time.Minute + time.Second)},
			&v1alpha1.WatchedStatus{StartTime: ago(0), LastProbeTime: ago(0)}, 0},
		"nothing without a status": {0, nil, &v1alpha1.WatchedStatus{StartTime: ago(0), LastProbeTime: ago(0)}, 0},
		"nor with half of one": {0, &v1alpha1.WatchedStatus{LastProbeTime: ago(0)},
			&v1alpha1.WatchedStatus{StartTime: ago(0), LastProbeTime: ago(0)}, 0},
		"with rarer calls a gap is longer": {time.Minute,
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(4 * time.Minute)},
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(0)}, 6 * time.Minute},
		"with denser ones shorter": {10 * time.Second,
			&v1alpha1.WatchedStatus{StartTime: ago(time.Hour), LastProbeTime: ago(41 * time.Second)},
			&v1alpha1.WatchedStatus{StartTime: ago(0), LastProbeTime: ago(0)}, 0},
		"another clock is ahead": {0,
			&v1alpha1.WatchedStatus{StartTime: ago(-time.Minute), LastProbeTime: ago(-time.Minute)},
			&v1alpha1.WatchedStatus{StartTime: ago(-time.Minute), LastProbeTime: ago(-time.Minute)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := given()
			o.Now, o.Resync, o.Cluster.Status.Internal.Watched = second, c.resync, c.old
			assert.Equal(t, c.seen, state.Observed(newView(o), second.Add(-6*time.Minute)))
			assert.Zero(t, state.Observed(newView(o), time.Time{}))
			assert.Equal(t, c.says, Decide(o).Status.Internal.Watched)
		})
	}
}

// TestNothingIsCountedAtRest: then nothing is written (S16).
func TestNothingIsCountedAtRest(t *testing.T) {
	blind := func(o *observation.Observation) { o.Etcd, o.Health = nil, nil }
	for name, c := range map[string]struct {
		o      observation.Observation
		counts bool
	}{
		"all serve":        {serve(3), false},
		"a voter does not": {given(), true},
		"it is fenced": {given(func(o *observation.Observation) {
			askFence(o, "demo-1")
		}), false},
		"suspended":         {given(func(o *observation.Observation) { o.Cluster.Spec.Suspend = true }), false},
		"no quorum answers": {given(blind), true},
		"paused": {given(blind, func(o *observation.Observation) { o.Cluster.Spec.Replicas = new(int32(0)) }),
			false},
		"a new cluster":        {fresh(3), false},
		"a learner catches up": {learnerAt(0), true},
		"another's learner":    {learnerAt(0), true},
	} {
		if name == "another's learner" {
			m := &c.o.Etcd.Members[len(c.o.Etcd.Members)-1]
			m.PeerURLs, c.counts = []string{"http://elsewhere:2380"}, false
		}
		watch(&c.o, time.Hour)
		d := Decide(c.o)
		require.NoError(t, verify(c.o, d), name)
		assert.Equal(t, c.counts, d.Status.Internal.Watched != nil, name)
	}
}
