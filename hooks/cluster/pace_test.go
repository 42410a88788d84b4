package cluster

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

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
	silent := observation.Health{Err: "no answer in time"}
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
		"the etcd to join is silent": with(besideThree(0), func(o *observation.Observation) {
			delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationClusterID)
			o.Etcd, o.Health = nil, map[string]observation.Health{"http://old-0:2379": silent}
		}),
		"a learner can't start": with(serve(3), func(o *observation.Observation) {
			o.Cluster.Spec.Replicas = new(int32(5))
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationNextMember] = "4"
			addMember(o, 3, true)
			o.Children.Pods["demo-3"].Status = corev1.PodStatus{Phase: corev1.PodPending}
			o.Health["demo-3"] = silent
		}),
		"a removed member never stops": with(serve(3), func(o *observation.Observation) {
			addMember(o, 3, false)
			o.Etcd.Members = o.Etcd.Members[:3]
		}),
		"a pod never stops while it is paused": with(serve(3), func(o *observation.Observation) {
			o.Cluster.Spec.Replicas, o.Etcd, o.Health = new(int32(0)), nil, map[string]observation.Health{}
		}),
		"a quorum is silent": with(serve(3), func(o *observation.Observation) {
			o.Etcd, o.Health = nil, map[string]observation.Health{"demo-0": silent, "demo-1": silent, "demo-2": silent}
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
