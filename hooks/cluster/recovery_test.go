package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestAStatusOfLongAgoLosesNoQuorum: its voters are gone because others have taken their places, and those run.
// Nothing takes over from them by itself (S14).
func TestAStatusOfLongAgoLosesNoQuorum(t *testing.T) {
	for _, policy := range []v1alpha1.QuorumLoss{v1alpha1.RecoverRecreate, v1alpha1.RecoverFromSurvivor} {
		o := serve(3)
		for name := range o.Children.Pods {
			silence(&o, name)
		}
		o.Etcd = nil
		o.Cluster.Spec.Recovery.QuorumLoss = policy
		meta.SetStatusCondition(&o.Cluster.Status.Conditions,
			metav1.Condition{Type: v1alpha1.Available, Status: metav1.ConditionFalse, Reason: "Blind",
				LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
		watch(&o, 24*time.Hour)
		o.Cluster.Status.Members = []v1alpha1.MemberStatus{{Name: "demo-7", Role: v1alpha1.Voter},
			{Name: "demo-8", Role: v1alpha1.Voter}, {Name: "demo-9", Role: v1alpha1.Voter}}
		d := Decide(o)
		assert.Equal(t, "QuorumLost", d.Reason.Rule, policy)
		assert.Len(t, d.Children.ConfigMaps, 1, policy)
		assert.Len(t, d.Children.Pods, 3, policy)
		assert.NoError(t, verify(o, d))

		o.Cluster.Status.Members = o.Cluster.Status.Members[:0]
		for name := range o.Children.Pods {
			if name != "demo-0" {
				lose(&o, name)
			}
		}
		d = Decide(o)
		assert.Equal(t, "Recover", d.Reason.Rule, "%s: the data of two of three is gone indeed", policy)
		assert.NoError(t, verify(o, d))

		// A learner was about to join when the second of them was lost.
		refused := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: objects.ExitDataLost}}
		waits := []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
		ran := []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		for reason, joins := range map[string]struct {
			start, cluster string
			prepare        corev1.ContainerStatus
			etcd           []corev1.ContainerStatus
			begins         bool
		}{
			"it has not run yet": {objects.StartJoin, "demo-0=...", corev1.ContainerStatus{},
				waits, true},
			"it runs; were it a voter, four need three": {objects.StartJoin, "demo-0=...", corev1.ContainerStatus{},
				ran, true},
			"it was promoted, and its pod is new": {objects.StartJoin, "", corev1.ContainerStatus{}, waits,
				false},
			"it was to resume, and found nothing": {objects.StartResume, "",
				corev1.ContainerStatus{State: refused}, waits, true},
			"it found its volume when it tried again": {objects.StartResume, "",
				corev1.ContainerStatus{LastTerminationState: refused}, ran, false},
		} {
			pod := o.Children.Pods["demo-0"].DeepCopy()
			pod.Name, pod.UID = "demo-3", "learner"
			pod.Annotations[objects.AnnotationStart], pod.Annotations[objects.AnnotationInitialCluster] = joins.start,
				joins.cluster
			joins.prepare.Name = objects.ContainerPrepare
			pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses = []corev1.ContainerStatus{joins.prepare},
				joins.etcd
			o.Children.Pods["demo-3"] = pod
			o.Children.Claims["demo-3"] = o.Children.Claims["demo-0"].DeepCopy()
			o.Children.Claims["demo-3"].Name = "demo-3"
			d = Decide(o)
			assert.Equal(t, joins.begins, d.Reason.Rule == "Recover", "%s: %s: %s", policy, reason, d.Reason)
			assert.NoError(t, verify(o, d), reason)
		}
	}
}

// TestALearnerThatRunsMayMakeAQuorum: of two voters one is lost while a third joins. Had that one been promoted a
// moment ago, two of three would be there.
func TestALearnerThatRunsMayMakeAQuorum(t *testing.T) {
	o := serve(2)
	lose(&o, "demo-1")
	silence(&o, "demo-0")
	o.Etcd = nil
	o.Cluster.Spec.Recovery.QuorumLoss = v1alpha1.RecoverFromSurvivor
	meta.SetStatusCondition(&o.Cluster.Status.Conditions,
		metav1.Condition{Type: v1alpha1.Available, Status: metav1.ConditionFalse, Reason: "Blind",
			LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
	watch(&o, 24*time.Hour)
	assert.Equal(t, "Recover", Decide(o).Reason.Rule)

	pod := o.Children.Pods["demo-0"].DeepCopy()
	pod.Name, pod.UID = "demo-2", "learner"
	pod.Annotations[objects.AnnotationStart], pod.Annotations[objects.AnnotationInitialCluster] = objects.StartJoin,
		"demo-0=..."
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	o.Children.Pods["demo-2"] = pod
	o.Children.Claims["demo-2"] = o.Children.Claims["demo-0"].DeepCopy()
	o.Children.Claims["demo-2"].Name = "demo-2"
	d := Decide(o)
	assert.NotEqual(t, "Recover", d.Reason.Rule)
	assert.NoError(t, verify(o, d))
}
