package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// TestEveryRuleHasAnOutlook: tools that wait know what to make of each.
func TestEveryRuleHasAnOutlook(t *testing.T) {
	for _, r := range Rules() {
		for _, o := range r.Outlooks {
			assert.Contains(t, []rule.Outlook{rule.Works, rule.Waits, rule.Rests, rule.Aside}, o, r.Name)
			assert.False(t, o == rule.Aside && len(r.Outlooks) > 1, "%s: what other rules tell, a verdict can't", r.Name)
		}
	}
	for _, m := range modes {
		last := m.rules[len(m.rules)-1]
		assert.False(t, slices.Contains(last.Outlooks, rule.Aside), "mode %s: nothing comes after rule %s", m.name,
			last.Name)
	}
}

// told is which of the three conditions of an observation's decision is True, with its reason.
func told(t *testing.T, o observation.Observation) (is, message string) {
	t.Helper()
	d := Decide(o)
	require.NoError(t, verify(o, d))
	for _, kind := range []string{v1alpha1.Ready, v1alpha1.Reconciling, v1alpha1.Stalled} {
		c := meta.FindStatusCondition(d.Status.Conditions, kind)
		require.NotNil(t, c, kind)
		if c.Status == metav1.ConditionTrue {
			is, message = strings.TrimSpace(is+" "+kind+" "+c.Reason), c.Message
		}
	}
	return is, message
}

func TestWhatToolsAreTold(t *testing.T) {
	changed := func(change func(o *observation.Observation)) observation.Observation {
		o := serve(3)
		change(&o)
		return o
	}
	asked := func(change func(*v1alpha1.AuthSpec)) observation.Observation {
		o := asking()
		for range 4 {
			called(t, &o)
		}
		if change != nil {
			change(o.Cluster.Spec.Auth)
		}
		return o
	}
	for name, c := range map[string]struct {
		o          observation.Observation
		want, says string
	}{
		"a new cluster":   {fresh(3), "Reconciling Record", "recording"},
		"one that serves": {serve(3), "Ready Converged", "serving as the spec says"},
		"one that is to grow": {changed(func(o *observation.Observation) { o.Cluster.Spec.Replicas = new(int32(5)) }),
			"Reconciling Grow", "growing"},
		"one that can't be run": {changed(func(o *observation.Observation) { o.Cluster.Spec.Version = "nonsense" }),
			"Stalled Unsupported", "until you correct the spec"},
		"a pod that is gone": {changed(func(o *observation.Observation) {
			delete(o.Children.Pods, "demo-1")
			silence(o,
				"demo-1")
		}), "Reconciling WaitForMembers", "demo-1"},
		"suspended, as the spec wants": {changed(func(o *observation.Observation) { o.Cluster.Spec.Suspend = true }),
			"Ready Suspended", "recreates nothing"},
		"suspended, and to grow": {changed(func(o *observation.Observation) {
			o.Cluster.Spec.Suspend,
				o.Cluster.Spec.Replicas = true, new(int32(5))
		}),
			"Stalled Suspended", "rule Grow waits for it"},
		"suspended, a pod is gone": {changed(func(o *observation.Observation) {
			o.Cluster.Spec.Suspend = true
			delete(o.Children.Pods, "demo-1")
			silence(o, "demo-1")
		}), "Stalled Suspended", "rule WaitForMembers waits for it"},
		"a defragmentation": {changed(func(o *observation.Observation) {
			askDefragment(o, "now")
		}), "Ready Defragment", "on request"},
		"a defragmentation before larger volumes": {changed(func(o *observation.Observation) {
			askDefragment(o, "now")
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
		}), "Reconciling Defragment", "on request"},
		"users that are applied": {asked(nil), "Ready Converged", "serving"},
		"a user whose password is not in the " +
			"Secret": {asked(func(s *v1alpha1.AuthSpec) { s.Users[2].PasswordSecretRef.Name = "nowhere" }),
			"Reconciling SecretNotFound", "spec.auth.users[2]"},
		"clients have no Service": {changed(func(o *observation.Observation) {
			delete(o.Children.Services,
				"demo")
		}), "Reconciling ServiceNotFound", "clients have no Service: demo"},
		"a first start that waits for a volume": {unborn(10*time.Minute, waiting("ContainerCreating")),
			"Reconciling Start", "its containers have not started"},
		"a first start without an image": {unborn(10*time.Minute, waiting("ImagePullBackOff")),
			"Stalled Start", "its image can't be pulled"},
		"a first start without a leader": {unborn(10 * time.Minute), "Stalled Start", "its etcd runs"},
		"a restore from a snapshot that is not there yet": {changed(restoring(nil)), "Reconciling PrepareRestore",
			"does not exist"},
		"a restore from a snapshot that is being " +
			"taken": {changed(restoring(&v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotRunning})),
			"Reconciling PrepareRestore", "is Running"},
		"a restore from a snapshot that " +
			"failed": {changed(restoring(&v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotFailed})),
			"Stalled PrepareRestore", "is Failed"},
		"a restore from a snapshot that is not " +
			"verified": {changed(restoring(&v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotStored,
			URI: "s3://x"})), "Stalled PrepareRestore", "is Stored and not verified"},
		"beside others": {besideThree(3), "Ready ForeignMembers", "beside"},
		"beside others, with larger volumes": {func() observation.Observation {
			o := besideThree(3)
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			return o
		}(), "Reconciling ForeignMembers", "beside"},
		"beside others without space": {func() observation.Observation {
			o := besideThree(3)
			o.Etcd.Alarms = []observation.Alarm{{MemberID: firstForeign, Kind: observation.AlarmNoSpace}}
			return o
		}(), "Stalled ForeignMembers", "beside"},
	} {
		t.Run(name, func(t *testing.T) {
			is, message := told(t, c.o)
			assert.Equal(t, c.want, is, message)
			assert.Contains(t, message, c.says)
		})
	}
}

// restoring asks for the data of the snapshot s1, which has this status; nil: it is not there.
func restoring(status *v1alpha1.EtcdSnapshotStatus) func(o *observation.Observation) {
	return func(o *observation.Observation) {
		askRestore(o, "one", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
		if status != nil {
			o.Related.Snapshots = map[string]*v1alpha1.EtcdSnapshot{"s1": {Status: *status}}
		}
	}
}

// TestApplyStrategyOutlook: one call without the annotation is ordinary; two are Metacontroller's strategy.
func TestApplyStrategyOutlook(t *testing.T) {
	o := serve(3)
	o.WithoutLastApplied = []string{"Pod demo-1"}
	is, _ := told(t, o)
	assert.Equal(t, "Reconciling ApplyStrategy", is)
	o.Cluster.Status = Decide(o).Status
	is, _ = told(t, o)
	assert.Equal(t, "Stalled ApplyStrategy", is)
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
	assert.Equal(t, v1alpha1.ConnectionStatus{Endpoints: []string{url},
		ClientSecretRef:    v1alpha1.SecretRef{Name: "demo-client-tls"},
		AuthoritySecretRef: v1alpha1.SecretRef{Name: "demo-client-tls"}}, *c)

	delete(o.Children.Secrets, "demo-client-tls")
	assert.Empty(t, Decide(o).Status.Connection.ClientSecretRef, "it is not there yet")
	assert.Nil(t, Decide(fresh(3)).Status.Connection, "no such Service: yet")

	o.Cluster.Spec.TLS.Mode = v1alpha1.TLSDisabled
	assert.Equal(t, v1alpha1.ConnectionStatus{Endpoints: []string{strings.Replace(url, "https", "http", 1)}},
		*Decide(o).Status.Connection)
}
