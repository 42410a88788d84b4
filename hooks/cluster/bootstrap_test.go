package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// unborn is a cluster of one whose etcd has run for so long without a quorum, with what else is the case.
func unborn(since time.Duration, what ...func(o *observation.Observation, pod *corev1.Pod)) observation.Observation {
	o := serve(1)
	delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationClusterID)
	o.Etcd, o.Health["demo-0"] = nil, observation.Health{Err: "no answer in time"}
	o.Cluster.Status = v1alpha1.EtcdClusterStatus{}
	pod := o.Children.Pods["demo-0"]
	pod.CreationTimestamp = metav1.NewTime(now.Add(-since - time.Hour))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(now.Add(-since))}}}}
	for _, change := range what {
		change(&o, pod)
	}
	return o
}

func waiting(reason string) func(*observation.Observation, *corev1.Pod) {
	return func(_ *observation.Observation, p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
}

func crashed(_ *observation.Observation, p *corev1.Pod) {
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
}

func initContainer(state corev1.ContainerState) func(*observation.Observation, *corev1.Pod) {
	return func(_ *observation.Observation, p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerPrepare, State: state}}
	}
}

func began(source string, change func(data map[string]string)) func(*observation.Observation, *corev1.Pod) {
	return func(o *observation.Observation, _ *corev1.Pod) {
		record := o.Children.ConfigMaps["demo-epoch-1"]
		record.Data[objects.EpochKeySource] = source
		change(record.Data)
	}
}

const beginAgain = "kubectl quorate recover -n default demo Recreate"

func TestABootstrapThatStalls(t *testing.T) {
	nothing := func(map[string]string) {}
	for name, c := range map[string]struct {
		o    observation.Observation
		says string // nothing while it may still begin
		// other: it is not the annotation that begins it again.
		other bool
	}{
		"in time":                   {unborn(4 * time.Minute), "", false},
		"an etcd that never elects": {unborn(5 * time.Minute), "demo-0: its etcd runs: no answer in time", false},
		"that has crashed and runs": {unborn(time.Second, crashed), "demo-0: it crashed: exit 1", false},
		"that crashes, in the same words": {unborn(time.Second, crashed, waiting("CrashLoopBackOff")),
			"demo-0: it crashed: exit 1", false},
		"without an image": {unborn(0, waiting("ImagePullBackOff")), "demo-0: its image can't be pulled",
			false},
		"without a volume": {unborn(0, waiting("PodInitializing"),
			initContainer(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}})),
			"demo-0: its containers have not started", false},
		"while its data is fetched": {unborn(24*time.Hour, waiting("PodInitializing"),
			initContainer(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})), "", false},
		"that has a leader": {unborn(time.Hour, func(_ *observation.Observation, p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), "demo-0's pod is ready, so clients may be served, but Quorate can't reach it", true},
		"sooner, as the spec says": {unborn(time.Minute,
			func(o *observation.Observation, _ *corev1.Pod) { o.Cluster.Spec.Recovery.After.Duration = time.Minute }),
			"within 1m",
			false},
		"from a snapshot": {unborn(time.Hour, began(objects.SourceSnapshot, nothing)),
			"beginning again: delete the EtcdCluster and create it again", true},
		"from a restored one": {unborn(time.Hour,
			began(objects.SourceSnapshot, func(d map[string]string) { d[objects.EpochKeyRestore] = "one" }),
			func(o *observation.Observation, _ *corev1.Pod) {
				askRestore(o, "one", v1alpha1.RestoreOperation{})
			}), "beginning again: create another EtcdOperation of type Restore", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.o)
			require.Equal(t, "Start", d.Reason.Rule)
			degraded := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Degraded)
			if c.says == "" {
				assert.Equal(t, "starting demo-0", d.Reason.Message)
				assert.Equal(t, metav1.ConditionFalse, degraded.Status)
				return
			}
			assert.Equal(t, metav1.ConditionTrue, degraded.Status)
			assert.Equal(t, "BootstrapStalled", degraded.Reason)
			assert.Equal(t, d.Reason.Message, degraded.Message)
			assert.Contains(t, degraded.Message, c.says)
			assert.Equal(t, !c.other, strings.Contains(degraded.Message, beginAgain))
		})
	}
}
