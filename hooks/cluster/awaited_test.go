package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestWhatIsNotThereIsSpokenOf: not at once, in the same words from then on, and louder after a minute.
func TestWhatIsNotThereIsSpokenOf(t *testing.T) {
	o := serve(3)
	delete(o.Children.Budgets, "demo")
	first := Decide(o)
	require.Equal(t, []v1alpha1.AwaitedStatus{{Kind: "PodDisruptionBudget", Name: "demo",
		RequestTime: metav1.NewTime(now.Truncate(time.Second))}}, first.Status.Internal.Awaited)
	assert.NotContains(t, first.Reason.Message, "has not made")
	assert.Equal(t, health.MissedAfter, first.ResyncAfter.Round(time.Second))

	o.Cluster.Status = first.Status
	after := func(d time.Duration) decision.Decision {
		o.Now = now.Truncate(time.Second).Add(d)
		return Decide(o)
	}
	const words = "Kubernetes has not created PodDisruptionBudget demo: `kubectl quorate status -n default demo` " +
		"shows why"
	verdict := after(health.MissedAfter)
	assert.Contains(t, verdict.Reason.Message, words)
	assert.Equal(t, first.Status.Internal.Awaited, verdict.Status.Internal.Awaited)
	assert.True(t, meta.IsStatusConditionTrue(verdict.Status.Conditions, v1alpha1.Reconciling), "it may still come")
	assert.True(t, meta.IsStatusConditionFalse(verdict.Status.Conditions, v1alpha1.Degraded))
	assert.Equal(t, health.MissedForLong-health.MissedAfter, verdict.ResyncAfter)

	long := after(health.MissedForLong)
	assert.Equal(t, verdict.Reason, long.Reason)
	assert.True(t, meta.IsStatusConditionTrue(long.Status.Conditions, v1alpha1.Stalled))
	degraded := meta.FindStatusCondition(long.Status.Conditions, v1alpha1.Degraded)
	assert.Equal(t, []string{"FailedCreate", words}, []string{degraded.Reason, degraded.Message})
	o.Cluster.Status = long.Status
	assert.Equal(t, long, after(time.Hour), "nothing more is written")

	assert.Empty(t, Decide(serve(3)).Status.Internal.Awaited, "nor is anything at rest")
}

// TestATimeAheadIsNotBelieved: as of a status that another clock has written.
func TestATimeAheadIsNotBelieved(t *testing.T) {
	o := given(func(o *observation.Observation) {
		delete(o.Children.Budgets, "demo")
		o.Cluster.Status.Internal.Awaited = []v1alpha1.AwaitedStatus{{Kind: "PodDisruptionBudget", Name: "demo",
			RequestTime: metav1.NewTime(now.Add(time.Hour))},
			{Kind: "Pod", Name: "demo-1", RequestTime: metav1.NewTime(now.Add(-time.Hour))}}
	})
	d := Decide(o)
	require.Len(t, d.Status.Internal.Awaited, 1, "the pod is there")
	assert.Equal(t, now.Truncate(time.Second), d.Status.Internal.Awaited[0].RequestTime.Time)
}
