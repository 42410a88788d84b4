package hooks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// told is which of the three conditions of an observation's decision is True, with its reason.
func told(t *testing.T, o observation.Observation) (is, message string) {
	t.Helper()
	d := Decide(o)
	require.NoError(t, verify(o, d))
	for _, kind := range []string{v1beta1.Ready, v1beta1.Reconciling, v1beta1.Stalled} {
		c := meta.FindStatusCondition(d.Status.Conditions, kind)
		require.NotNil(t, c, kind)
		if c.Status == metav1.ConditionTrue {
			is, message = strings.TrimSpace(is+" "+kind+" "+c.Reason), c.Message
		}
	}
	return is, message
}

func TestWhatToolsAreTold(t *testing.T) {
	askedUsers := func(changes ...fact) observation.Observation {
		o := asking()
		for range 4 {
			called(t, &o)
		}
		return with(o, changes...)
	}
	gone := func(o *observation.Observation) { withoutPod("demo-1")(o); silence(o, "demo-1") }
	defragment := func(o *observation.Observation) { askDefragment(o, "now") }
	noSecret := func(o *observation.Observation) { o.Cluster.Spec.Auth.Users[2].PasswordSecretRef.Name = "nowhere" }
	noService := func(o *observation.Observation) { delete(o.Children.Services, "demo") }
	theirAlarm := func(o *observation.Observation) {
		o.Etcd.Alarms = []observation.Alarm{{MemberID: firstExternal, Kind: observation.AlarmNoSpace}}
	}
	phase := func(p v1beta1.SnapshotPhase, uri string) fact {
		return restoring(&v1beta1.EtcdSnapshotStatus{Phase: p, URI: uri})
	}
	for name, c := range map[string]struct {
		o          observation.Observation
		want, says string
	}{
		"a new cluster":                {fresh(3), "Reconciling Progressing", "recording"},
		"one without members":          {fresh(0), "Ready Paused", "there is no data yet"},
		"one that serves":              {serve(3), "Ready Serving", "serving as the spec says"},
		"one that is to grow":          {with(serve(3), replicas(5)), "Reconciling Progressing", "growing"},
		"one that can't be run":        {with(serve(3), version("nonsense")), "Stalled Invalid", "until you correct the spec"},
		"a pod that is gone":           {with(serve(3), gone), "Reconciling Progressing", "demo-1"},
		"suspended, as the spec wants": {with(serve(3), suspending), "Ready Suspended", "recreates nothing"},
		"suspended, and to grow": {with(serve(3), suspending, replicas(5)), "Stalled Suspended",
			"rule Grow waits for it"},
		"suspended, a pod is gone": {with(serve(3), suspending, gone), "Stalled Suspended",
			"rule WaitForMembers waits for it"},
		"a defragmentation": {with(serve(3), defragment), "Ready Serving", "on request"},
		"a defragmentation before larger volumes": {with(serve(3), defragment, size("2Gi")), "Reconciling Progressing",
			"on request"},
		"users that are applied": {askedUsers(), "Ready Serving", "serving"},
		"a user whose password is not in the Secret": {askedUsers(noSecret), "Reconciling Progressing",
			"spec.auth.users[2]"},
		"clients have no Service": {with(serve(3), noService), "Reconciling Progressing",
			"clients have no Service: demo"},
		"no pod is ready yet": {with(serve(3), unreadyPods(10*time.Second, 3)), "Reconciling NoPodReady",
			"clients reach none through the Service"},
		"no pod becomes ready": {with(serve(3), unreadyPods(2*time.Minute, 3)), "Stalled NoPodReady",
			"`kubectl describe pod -n default -l etcd.quorate.dev/cluster=demo` shows why"},
		"one pod is ready": {with(serve(3), unreadyPods(2*time.Minute, 2)), "Ready Serving", "serving"},
		"a first start that waits for a volume": {unborn(10*time.Minute, waiting("ContainerCreating")),
			"Reconciling Progressing", "its containers have not started"},
		"a first start without an image": {unborn(10*time.Minute, waiting("ImagePullBackOff")), "Stalled ActionNeeded",
			"its image can't be pulled"},
		"a first start without a leader": {unborn(10 * time.Minute), "Stalled ActionNeeded", "its etcd runs"},
		"a restore from a snapshot that is not there yet": {with(serve(3), restoring(nil)), "Reconciling Progressing",
			"does not exist"},
		"a restore from one that is being taken": {with(serve(3), phase(v1beta1.SnapshotRunning, "")),
			"Reconciling Progressing", "is Running"},
		"a restore from one that failed": {with(serve(3), phase(v1beta1.SnapshotFailed, "")), "Stalled ActionNeeded",
			"is Failed"},
		"a restore from one that is not verified": {with(serve(3), phase(v1beta1.SnapshotUnverified, "s3://x")),
			"Stalled ActionNeeded", "is Unverified"},
		"beside others":                      {besideThree(3), "Ready Serving", "beside"},
		"beside others, with larger volumes": {with(besideThree(3), size("2Gi")), "Reconciling Progressing", "beside"},
		"beside others without space":        {with(besideThree(3), theirAlarm), "Stalled ActionNeeded", "beside"},
	} {
		t.Run(name, func(t *testing.T) {
			is, message := told(t, c.o)
			assert.Equal(t, c.want, is, message)
			assert.Contains(t, message, c.says)
		})
	}
}

// restoring asks for the data of the snapshot s1, which has this status; nil: it is not there.
func restoring(status *v1beta1.EtcdSnapshotStatus) fact {
	return func(o *observation.Observation) {
		askSnapshot(o, "one", "s1")
		if status != nil {
			o.Related.Snapshots = map[string]*v1beta1.EtcdSnapshot{"s1": {Status: *status}}
		}
	}
}

// TestApplyStrategyOutlook: one call without the annotation is ordinary; two are Metacontroller's strategy.
func TestApplyStrategyOutlook(t *testing.T) {
	o := serve(3)
	o.WithoutLastApplied = []string{"Pod demo-1"}
	is, _ := told(t, o)
	assert.Equal(t, "Reconciling Progressing", is)
	o.Cluster.Status = Decide(o).Status
	is, _ = told(t, o)
	assert.Equal(t, "Stalled ActionNeeded", is)
}

// TestSuspendedAtRest: neither time nor the slow look at users and roles changes what is said (S16).
func TestSuspendedAtRest(t *testing.T) {
	o := asking()
	for range 4 {
		called(t, &o)
	}
	o.Cluster.Spec.Suspend = true
	o.Cluster.Status = Decide(o).Status
	first := Decide(o)
	for range 40 {
		o.Now = o.Now.Add(17 * time.Second)
		require.Equal(t, first.Status, Decide(o).Status)
	}
	is, _ := told(t, o)
	assert.Equal(t, "Ready Suspended", is)
}

func TestConnection(t *testing.T) {
	o := serve(3)
	c := Decide(o).Status.Connection
	require.NotNil(t, c)
	url := fmt.Sprintf("https://demo.%s.svc:2379", o.Cluster.Namespace)
	assert.Equal(t, v1beta1.ConnectionStatus{Endpoints: []string{url},
		ClientSecretRef: v1beta1.SecretRef{Name: "demo-client-tls"},
		CASecretRef:     v1beta1.SecretRef{Name: "demo-client-tls"}}, *c)

	delete(o.Children.Secrets, "demo-client-tls")
	assert.Empty(t, Decide(o).Status.Connection.ClientSecretRef, "it is not there yet")
	assert.Nil(t, Decide(fresh(3)).Status.Connection, "no such Service: yet")

	o.Cluster.Spec.TLS.Mode = v1beta1.TLSDisabled
	assert.Equal(t, v1beta1.ConnectionStatus{Endpoints: []string{strings.Replace(url, "https", "http", 1)}},
		*Decide(o).Status.Connection)
}

// TestWhatIsNotThereIsSpokenOf: not at once, in the same words from then on, and louder after a minute.
func TestWhatIsNotThereIsSpokenOf(t *testing.T) {
	o := serve(3)
	delete(o.Children.Budgets, "demo")
	first := Decide(o)
	require.Equal(t, []v1beta1.AwaitedStatus{{Kind: "PodDisruptionBudget", Name: "demo",
		RequestTime: metav1.NewTime(now.Truncate(time.Second))}}, first.Status.Internal.Awaited)
	assert.NotContains(t, first.Reason.Message, "has not made")
	assert.Equal(t, facts.MissedAfter, first.ResyncAfter.Round(time.Second))

	o.Cluster.Status = first.Status
	after := func(d time.Duration) decision.Decision {
		o.Now = now.Truncate(time.Second).Add(d)
		return Decide(o)
	}
	const words = "Kubernetes has not created PodDisruptionBudget demo: `kubectl quorate status -n default demo` " +
		"shows why"
	plan := after(facts.MissedAfter)
	assert.Contains(t, plan.Reason.Message, words)
	assert.Equal(t, first.Status.Internal.Awaited, plan.Status.Internal.Awaited)
	assert.True(t, meta.IsStatusConditionTrue(plan.Status.Conditions, v1beta1.Reconciling), "it may still come")
	assert.True(t, meta.IsStatusConditionFalse(plan.Status.Conditions, v1beta1.Degraded))
	assert.Equal(t, facts.MissedForLong-facts.MissedAfter, plan.ResyncAfter)

	long := after(facts.MissedForLong)
	assert.Equal(t, plan.Reason, long.Reason)
	assert.True(t, meta.IsStatusConditionTrue(long.Status.Conditions, v1beta1.Stalled))
	degraded := meta.FindStatusCondition(long.Status.Conditions, v1beta1.Degraded)
	assert.Equal(t, []string{"FailedCreate", words}, []string{degraded.Reason, degraded.Message})
	o.Cluster.Status = long.Status
	assert.Equal(t, long, after(time.Hour), "nothing more is written")

	assert.Empty(t, Decide(serve(3)).Status.Internal.Awaited, "nor is anything at rest")
}

// TestATimeAheadIsNotBelieved: as of a status that another clock has written.
func TestATimeAheadIsNotBelieved(t *testing.T) {
	o := serve(3)
	delete(o.Children.Budgets, "demo")
	o.Cluster.Status.Internal.Awaited = []v1beta1.AwaitedStatus{{Kind: "PodDisruptionBudget", Name: "demo",
		RequestTime: metav1.NewTime(now.Add(time.Hour))},
		{Kind: "Pod", Name: "demo-1", RequestTime: metav1.NewTime(now.Add(-time.Hour))}}
	d := Decide(o)
	require.Len(t, d.Status.Internal.Awaited, 1, "the pod is there")
	assert.Equal(t, now.Truncate(time.Second), d.Status.Internal.Awaited[0].RequestTime.Time)
}

func TestHistoryKeepsWhatChangedAndNothingElse(t *testing.T) {
	o := serve(3)
	for i := range 30 {
		o.Now = now.Add(time.Duration(i) * time.Minute)
		if o.Taken = nil; i%2 == 0 {
			o.Taken = &decision.Outcome{Step: decision.MoveLeader{To: 2, Name: "demo-1"}, Rule: "Shrink"}
		}
		o.Cluster.Status = Decide(o).Status
	}
	h := o.Cluster.Status.History
	require.Len(t, h, 20)
	assert.Equal(t, []string{"Shrink", "Converged"}, []string{h[18].Rule, h[19].Rule})
	assert.Equal(t, "move leader to demo-1", h[18].Step)

	o.Taken = nil
	o.Now = o.Now.Add(time.Hour)
	assert.Equal(t, h, Decide(o).Status.History, "at rest nothing is added")
}

func TestHistoryOfAViewThatLagsIsNotLost(t *testing.T) {
	o := serve(3)
	o.Recent = []v1beta1.HistoryEntry{{Rule: "Grow", Step: "add learner demo-2"}, {Rule: "LearnerCatchingUp"}}
	first := Decide(o).Status.History
	require.Len(t, first, 3)
	assert.Equal(t, "Converged", first[2].Rule)
	o.Cluster.Status.History, o.Recent = first, first
	assert.Equal(t, first, Decide(o).Status.History)
}

// unreadyPods lets the kubelets have said for so long of the first n pods that they are not ready.
func unreadyPods(since time.Duration, n int) fact {
	return func(o *observation.Observation) {
		for i := range n {
			pod := o.Children.Pods[fmt.Sprint("demo-", i)]
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
				LastTransitionTime: metav1.NewTime(now.Add(-since))}}
		}
	}
}
