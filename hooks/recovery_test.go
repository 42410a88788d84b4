package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestAStatusOfLongAgoLosesNoQuorum: its voters are gone because others have taken their places, and those run. Nothing takes over from them by
// itself (S14).
func TestAStatusOfLongAgoLosesNoQuorum(t *testing.T) {
	for _, policy := range []v1alpha1.QuorumLoss{v1alpha1.RecoverRecreate, v1alpha1.RecoverFromSurvivor} {
		o := serve(3)
		for name := range o.Children.Pods {
			silence(&o, name)
		}
		o.Etcd = nil
		o.Cluster.Spec.Recovery.QuorumLoss = policy
		meta.SetStatusCondition(&o.Cluster.Status.Conditions, metav1.Condition{Type: v1alpha1.Available, Status: metav1.ConditionFalse, Reason: "Blind", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))})
		o.Cluster.Status.Members = []v1alpha1.MemberStatus{{Name: "demo-7", Role: v1alpha1.Voter}, {Name: "demo-8", Role: v1alpha1.Voter}, {Name: "demo-9", Role: v1alpha1.Voter}}
		d := Decide(o)
		assert.Equal(t, "QuorumLost", d.Because.Rule, policy)
		assert.Len(t, d.Children.ConfigMaps, 1, policy)
		assert.Len(t, d.Children.Pods, 3, policy)
		assert.NoError(t, Verify(o, d))

		o.Cluster.Status.Members = o.Cluster.Status.Members[:0]
		for name := range o.Children.Pods {
			if name != "demo-0" {
				lose(&o, name)
			}
		}
		d = Decide(o)
		assert.Equal(t, "Recover", d.Because.Rule, "%s: the data of two of three is gone indeed", policy)
		assert.NoError(t, Verify(o, d))

		// A learner was about to join when the second of them was lost.
		joining := o.Children.Pods["demo-0"].DeepCopy()
		joining.Name, joining.UID = "demo-3", "learner"
		joining.Annotations[AnnotationStart], joining.Annotations[AnnotationInitialCluster] = StartJoin, "demo-0=..."
		o.Children.Pods["demo-3"] = joining
		o.Children.Claims["demo-3"] = o.Children.Claims["demo-0"].DeepCopy()
		o.Children.Claims["demo-3"].Name = "demo-3"
		d = Decide(o)
		assert.Equal(t, "Recover", d.Because.Rule, "%s: whoever never voted makes no quorum", policy)
		assert.NoError(t, Verify(o, d))
		delete(joining.Annotations, AnnotationInitialCluster)
		assert.NotEqual(t, "Recover", Decide(o).Because.Rule, "%s: it may have been promoted since", policy)
		joining.Annotations[AnnotationStart] = StartResume
		joining.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: ContainerPrepare, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: ExitDataLost}}}}
		d = Decide(o)
		assert.Equal(t, "Recover", d.Because.Rule, "%s: it was to resume, and found nothing", policy)
		assert.NoError(t, Verify(o, d))
	}
}
