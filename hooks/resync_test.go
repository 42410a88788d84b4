package hooks

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestHowOftenASilentClusterIsAskedAbout: a question to a member that does not answer takes its whole time.
func TestHowOftenASilentClusterIsAskedAbout(t *testing.T) {
	second := now.Truncate(time.Second)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(second.Add(-d)) }
	served := func() observation.Observation { // since a day
		o := serve(3)
		o.Now, o.Resync = second, 30*time.Second
		o.Cluster.Status = Decide(o).Status
		for i := range o.Cluster.Status.Members {
			o.Cluster.Status.Members[i].LastTransitionTime, o.Cluster.Status.Members[i].JoinTime = ago(24*time.Hour),
				ago(24*time.Hour)
		}
		return o
	}
	blind := func(o *observation.Observation, since time.Duration) {
		for name := range o.Health {
			o.Health[name] = observation.Health{Err: "no answer in time"}
		}
		o.Etcd = nil
		for i := range o.Cluster.Status.Members {
			o.Cluster.Status.Members[i].Ready, o.Cluster.Status.Members[i].LastTransitionTime = false, ago(since)
		}
		o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionFalse,
			LastTransitionTime: ago(since)}}
		o.Cluster.Status.History = []v1beta1.HistoryEntry{{Rule: "Blind", Time: ago(since)}}
	}
	oneIsDown := func(o *observation.Observation, since time.Duration) {
		unreachable(o, "demo-1", since)
		o.Cluster.Spec.MemberReplacement.Policy = v1beta1.ReplaceManual
		o.Cluster.Status.History = []v1beta1.HistoryEntry{{Rule: "WaitForMembers", Time: ago(since)}}
	}
	for _, how := range []func(*observation.Observation, time.Duration){blind, oneIsDown} {
		for _, c := range []struct{ resync, since, want time.Duration }{
			{30 * time.Second, 0, 500 * time.Millisecond},
			{30 * time.Second, 10 * time.Second, time.Second},
			{30 * time.Second, 20 * time.Second, 2 * time.Second},
			{30 * time.Second, 100 * time.Second, 10 * time.Second},
			{30 * time.Second, 299 * time.Second, time.Second}, // the time until it is overdue
			{30 * time.Second, 10 * time.Minute, 0},            // the resync comes then
			{5 * time.Minute, 10 * time.Minute, time.Minute},
			{5 * time.Minute, 10 * time.Hour, 0},
			{0, 10 * time.Hour, 30 * time.Second}, // no resync comes
		} {
			o := served()
			o.Resync = c.resync
			how(&o, c.since)
			watch(&o, 24*time.Hour)
			d := Decide(o)
			require.NoError(t, verify(o, d))
			assert.Equal(t, c.want, d.ResyncAfter, "%s: %+v", d.Reason.Rule, c)
		}
	}

	o := served()
	blind(&o, 10*time.Hour)
	assert.EqualValues(t, decision.ResyncSoon, Decide(o).ResyncAfter, "none of that was seen")
	watch(&o, 24*time.Hour)
	o.Cluster.Status.History[0].Rule = "WaitForMembers"
	assert.EqualValues(t, decision.ResyncSoon, Decide(o).ResyncAfter, "another rule decides since now")

	o = learnerAt(50)
	o.Now = second
	watch(&o, 24*time.Hour)
	assert.EqualValues(t, decision.ResyncSoon, Decide(o).ResyncAfter,
		"all answer, and it is the learner that takes its time")
	assert.Zero(t, Decide(served()).ResyncAfter)
}

// watch lets Quorate have looked without a gap for so long.
func watch(o *observation.Observation, since time.Duration) {
	o.Cluster.Status.Internal.Watched = &v1beta1.WatchedStatus{StartTime: metav1.NewTime(o.Now.Add(-since)),
		LastProbeTime: metav1.NewTime(o.Now)}
}

// pass lets time pass until then, in which Quorate looks and nothing changes.
func pass(o *observation.Observation, until time.Time) {
	if o.Now = until; o.Cluster.Status.Internal.Watched != nil {
		o.Cluster.Status.Internal.Watched.LastProbeTime = metav1.NewTime(until)
	}
}

// TestWhatIsCountedOfASilence: a member unreachable since six minutes, and what of that was seen. Times are before now.
func TestWhatIsCountedOfASilence(t *testing.T) {
	second := now.Truncate(time.Second)
	const hour, minute, six = time.Hour, time.Minute, 6 * time.Minute
	watched := func(since, looked time.Duration) *v1beta1.WatchedStatus {
		return &v1beta1.WatchedStatus{StartTime: metav1.NewTime(second.Add(-since)),
			LastProbeTime: metav1.NewTime(second.Add(-looked))}
	}
	for name, c := range map[string]struct {
		resync    time.Duration
		old, says *v1beta1.WatchedStatus
		seen      time.Duration
	}{
		"all of it":                        {0, watched(hour, 59*time.Second), watched(hour, 59*time.Second), six},
		"a look is written seldom":         {0, watched(hour, minute), watched(hour, 0), six},
		"part of it":                       {0, watched(4*minute, 2*minute), watched(4*minute, 0), 4 * minute},
		"nothing after a gap":              {0, watched(hour, 2*minute+time.Second), watched(0, 0), 0},
		"nothing without a status":         {0, nil, watched(0, 0), 0},
		"nor with half of one":             {0, &v1beta1.WatchedStatus{LastProbeTime: metav1.NewTime(second)}, watched(0, 0), 0},
		"with rarer calls a gap is longer": {minute, watched(hour, 4*minute), watched(hour, 0), six},
		"with denser ones shorter":         {10 * time.Second, watched(hour, 41*time.Second), watched(0, 0), 0},
		"another clock is ahead":           {0, watched(-minute, -minute), watched(-minute, -minute), 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := given()
			o.Now, o.Resync, o.Cluster.Status.Internal.Watched = second, c.resync, c.old
			assert.Equal(t, c.seen, facts.New(o).Observed(second.Add(-six)))
			assert.Zero(t, facts.New(o).Observed(time.Time{}))
			assert.Equal(t, c.says, Decide(o).Status.Internal.Watched)
		})
	}
}

// TestNothingIsCountedAtRest: then nothing is written (S16).
func TestNothingIsCountedAtRest(t *testing.T) {
	fenced := func(o *observation.Observation) { askFence(o, "demo-1") }
	elsewhere := func(o *observation.Observation) { o.Etcd.Members[3].PeerURLs = []string{"http://elsewhere:2380"} }
	for name, c := range map[string]struct {
		o      observation.Observation
		counts bool
	}{
		"all serve":            {serve(3), false},
		"a voter does not":     {given(), true},
		"it is fenced":         {given(fenced), false},
		"suspended":            {given(suspending), false},
		"no quorum answers":    {given(blinded), true},
		"paused":               {given(blinded, replicas(0)), false},
		"a new cluster":        {fresh(3), false},
		"a learner catches up": {learnerAt(0), true},
		"another's learner":    {with(learnerAt(0), elsewhere), false},
	} {
		watch(&c.o, time.Hour)
		d := Decide(c.o)
		require.NoError(t, verify(c.o, d), name)
		assert.Equal(t, c.counts, d.Status.Internal.Watched != nil, name)
	}
}

// resyncPeriod is that of our manifests.
const resyncPeriod = 30 * time.Second

// calls are when Metacontroller calls in so long a time in which nothing changes but the status: Kubernetes refuses
// every object, and etcd every step. It calls when the answer or its own period says so, and soon after each change of
// the status. The last rules that decided are returned too.
func calls(o observation.Observation, forSoLong time.Duration) (at []time.Duration, rules []string) {
	o.Resync, o.Taken = resyncPeriod, nil
	for begin := o.Now; o.Now.Sub(begin) < forSoLong; {
		at = append(at, o.Now.Sub(begin))
		d := Decide(o)
		if d.Step != nil {
			refused := o
			refused.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule, Err: "etcdserver: unhealthy cluster"}
			d = Decide(refused)
		}
		rules = append(rules, d.Reason.Rule)
		pause := resyncPeriod
		if d.ResyncAfter > 0 {
			pause = min(pause, d.ResyncAfter)
		}
		cluster := *o.Cluster
		if !reflect.DeepEqual(cluster.Status, d.Status) {
			pause = min(pause, 100*time.Millisecond)
		}
		cluster.Status = d.Status
		o.Cluster, o.Now = &cluster, o.Now.Add(pause)
	}
	return at, slices.Compact(rules[max(0, len(rules)-4):])
}

// after is how many of the calls come after that time.
func after(at []time.Duration, from time.Duration) int {
	n, _ := slices.BinarySearch(at, from)
	return len(at) - n
}

// TestHowOftenAClusterThatCannotStartIsAskedAbout: in ten minutes, where one at rest is asked about twenty times.
func TestHowOftenAClusterThatCannotStartIsAskedAbout(t *testing.T) {
	with := func(o observation.Observation, change func(*observation.Observation)) observation.Observation {
		change(&o)
		return o
	}
	newCluster := func(change func(*observation.Observation)) observation.Observation {
		o := fresh(3)
		for range 5 { // the record, the claims, their UIDs in it, the pods
			secrets := o.Children.Secrets
			o = stored(o, Decide(o))
			o.Children.Secrets = secrets
		}
		for _, pod := range o.Children.Pods {
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
		}
		return with(o, change)
	}
	unreachable := observation.Health{Err: "no answer in time"}
	failed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}
	for name, o := range map[string]observation.Observation{
		"no node takes its pods": newCluster(func(*observation.Observation) {}),
		"its claims stay Pending": newCluster(func(o *observation.Observation) {
			for _, claim := range o.Children.Claims {
				claim.Status.Phase = corev1.ClaimPending
			}
		}),
		"Kubernetes makes nothing":    fresh(3),
		"Kubernetes makes no pods":    newCluster(func(o *observation.Observation) { clear(o.Children.Pods) }),
		"its image can't be pulled":   unborn(0, waiting("ImagePullBackOff")),
		"its etcd crashes":            unborn(0, crashed),
		"its init container fails":    unborn(0, initContainer(failed)),
		"its certificates never come": with(fresh(3), func(o *observation.Observation) { clear(o.Children.Secrets) }),
		"the etcd to join is unreachable": with(besideThree(0), func(o *observation.Observation) {
			neverQuorate(o)
			o.Etcd, o.Health = nil, map[string]observation.Health{"http://old-0:2379": unreachable}
		}),
		"a learner can't start": with(serve(3), func(o *observation.Observation) {
			o.Cluster.Spec.Replicas = new(int32(4))
			nextMember(4)(o)
			addMember(o, 3, true)
			o.Children.Pods["demo-3"].Status = corev1.PodStatus{Phase: corev1.PodPending}
			o.Health["demo-3"] = unreachable
		}),
		"a removed member never stops": with(serve(3), func(o *observation.Observation) {
			addMember(o, 3, false)
			o.Etcd.Members = o.Etcd.Members[:3]
		}),
		"a pod never stops while it is paused": with(serve(3), func(o *observation.Observation) {
			o.Cluster.Spec.Replicas, o.Etcd, o.Health = new(int32(0)), nil, map[string]observation.Health{}
		}),
		"a quorum is unreachable": with(serve(3), func(o *observation.Observation) {
			o.Etcd, o.Health = nil, map[string]observation.Health{"demo-0": unreachable, "demo-1": unreachable, "demo-2": unreachable}
		}),
	} {
		at, rules := calls(o, 10*time.Minute)
		assert.LessOrEqual(t, len(at), 120, "%s: %v", name, rules)
		t.Logf("%s: %v: %d calls", name, rules, len(at))
	}
}

// TestNoClusterIsAskedAboutOftenForEver: whatever a cluster waits for, after ten minutes in which nothing has changed
// it is asked about as rarely as one at rest, except for times that are over meanwhile, and for the one write in two
// periods that counts a silence.
func TestNoClusterIsAskedAboutOftenForEver(t *testing.T) {
	t.Parallel()
	every := 1
	if testing.Short() {
		every = 10
	}
	for i := 0; i < len(mishaps); i += every {
		for _, raw := range [][]byte{{0, byte(i), 1}, {3, byte(i), 1},
			{4, byte(i), 3, byte(i + 1), 1, byte(i + 7), 2}} {
			o := befallen(raw)
			if o.Cluster.Spec.Maintenance.Defragmentation != nil {
				continue // the schedule brings what to do
			}
			at, rules := calls(o, 15*time.Minute)
			assert.LessOrEqual(t, after(at, 10*time.Minute), 10+5+4, "%v: %v", raw, rules)
		}
	}
}
