package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	}
}
