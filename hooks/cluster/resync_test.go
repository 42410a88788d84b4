package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rule"
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
		o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Available, Status: metav1.ConditionFalse,
			LastTransitionTime: ago(since)}}
		o.Cluster.Status.History = []v1alpha1.HistoryEntry{{Rule: "Blind", Time: ago(since)}}
	}
	oneIsDown := func(o *observation.Observation, since time.Duration) {
		silent(o, "demo-1", since)
		o.Cluster.Spec.MemberReplacement.Policy = v1alpha1.ReplaceManual
		o.Cluster.Status.History = []v1alpha1.HistoryEntry{{Rule: "WaitForMembers", Time: ago(since)}}
	}
	for _, how := range []func(*observation.Observation, time.Duration){blind, oneIsDown} {
		for _, c := range []struct{ resync, since, want time.Duration }{
			{30 * time.Second, 0, 2 * time.Second},
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
	assert.EqualValues(t, rule.ResyncLater, Decide(o).ResyncAfter, "none of that was seen")
	watch(&o, 24*time.Hour)
	o.Cluster.Status.History[0].Rule = "WaitForMembers"
	assert.EqualValues(t, rule.ResyncLater, Decide(o).ResyncAfter, "another rule decides since now")

	o = learnerAt(50)
	o.Now = second
	watch(&o, 24*time.Hour)
	assert.EqualValues(t, rule.ResyncSoon, Decide(o).ResyncAfter,
		"all answer, and it is the learner that takes its time")
	assert.Zero(t, Decide(served()).ResyncAfter)
}
