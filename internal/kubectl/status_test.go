package kubectl

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/observation"
)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// orders is the cluster of these tests, with TLS.
func orders(t *testing.T) *v1beta1.EtcdCluster {
	t.Helper()
	k := steady(t)
	raw, err := k.run(t.Context(), "get", clusters, "orders")
	require.NoError(t, err)
	c, err := understood(raw)
	require.NoError(t, err)
	c.Spec.TLS.Mode = v1beta1.TLSAuto
	for _, name := range []string{"authority", "server", "peer", "operator", "client"} {
		c.Status.TLS.Certificates = append(c.Status.TLS.Certificates,
			v1beta1.CertificateStatus{Name: name, SecretRef: v1beta1.SecretRef{Name: "orders-" + name},
				NotAfter: ago(-90 * 24 * time.Hour)})
	}
	return c.EtcdCluster
}

// answering is what healthy members have answered.
func answering(t *testing.T, e *etcd) *live {
	t.Helper()
	l := &live{health: e.health}
	l.etcd, _ = e.Observe(t.Context(), nil)
	return l
}

func TestStatusScreens(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(c *v1beta1.EtcdCluster, l *live)
	}{
		{"status-healthy", func(*v1beta1.EtcdCluster, *live) {}},
		{"status-unreachable", func(_ *v1beta1.EtcdCluster, l *live) {
			*l = live{trouble: "etcd is reached by the Secret shop/orders-operator-tls, which can't be read: " +
				"forbidden"}
		}},
		{"status-no-quorum", noQuorum},
		{"status-growing", growing},
		{"status-new", func(c *v1beta1.EtcdCluster, l *live) {
			c.Status, c.CreationTimestamp = v1beta1.EtcdClusterStatus{}, ago(3*time.Second)
			*l = live{trouble: "no member has a pod with an address"}
		}},
		{"status-troubled", troubled},
		{"status-refused", refusedPod},
		{"status-plain", func(c *v1beta1.EtcdCluster, _ *live) {
			c.Spec.TLS.Mode, c.Status.TLS = v1beta1.TLSDisabled, v1beta1.TLSStatus{}
			meta.SetStatusCondition(&c.Status.Conditions,
				metav1.Condition{Type: v1beta1.Secured, Status: metav1.ConditionFalse, Reason: "Disabled",
					Message: "everyone who can reach the members may read and write everything, in plain text"})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cluster, l := orders(t), answering(t, healthy())
			c.edit(cluster, l)
			var r *syncFailure
			if len(cluster.Status.Internal.Awaited) > 0 {
				r = &syncFailure{message: `can't create Pod shop/orders-2: pods "orders-2" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`, at: noon.Add(-7 * time.Second)}
			}
			var out bytes.Buffer
			printStatus(&out, cluster, l, r, noon)
			golden(t, c.name, out.String())
		})
	}
}

func noQuorum(c *v1beta1.EtcdCluster, l *live) {
	l.etcd = nil
	for _, name := range []string{"orders-0", "orders-2"} {
		l.health[name] = observation.Health{Err: "unreachable: connection refused"}
	}
	h := l.health["orders-1"]
	h.Leader = 0
	l.health["orders-1"] = h
	c.Status.Rule = "Blind"
	for _, kind := range []string{v1beta1.Available, v1beta1.Ready} {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse,
			Reason: "Blind", Message: "no quorum answers: waiting for orders-0, orders-2"})
	}
	for i := range c.Status.Members {
		c.Status.Members[i].Leader, c.Status.Members[i].Ready, c.Status.Members[i].LastTransitionTime = false, false,
			ago(90*time.Second)
	}
}

func refusedPod(c *v1beta1.EtcdCluster, l *live) {
	const message = "waiting for orders-2 to serve again; Kubernetes has not created Pod orders-2: `kubectl quorate " +
		"status -n shop orders` shows why"
	l.health["orders-2"] = observation.Health{Err: "it has no pod with an address"}
	c.Status.Rule, c.Status.Version = "WaitForMembers", "3.6.17"
	c.Status.Internal.Awaited = []v1beta1.AwaitedStatus{{Kind: "Pod", Name: "orders-2",
		RequestTime: ago(40 * time.Second)}}
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1beta1.Ready, Status: metav1.ConditionFalse,
		Reason: "WaitForMembers", Message: message})
}

// TestTheEventThatSaysWhy: the newest of Metacontroller's about this very cluster, without what the screen says
// already.
func TestTheEventThatSaysWhy(t *testing.T) {
	const get = "get events -n shop --field-selector=involvedObject.uid="
	k := steady(t)
	code, out, errs := k.runs(healthy(), "status", "-n", "shop")
	require.Zero(t, code, errs)
	assert.NotContains(t, out, "Metacontroller")
	assert.False(t, slices.ContainsFunc(k.calls, func(call string) bool { return strings.HasPrefix(call, get) }),
		"nothing is awaited, so events tell of what is over")

	within(k.cluster, "status")["internal"] = map[string]any{"awaited": []any{map[string]any{
		"kind": "Pod", "name": "orders-2", "requestTime": "2026-03-01T11:59:00Z"}}}
	_, out, _ = k.runs(healthy(), "status", "-n", "shop")
	assert.Contains(t, out, "Pod orders-2 is not there, asked for 60s ago")
	assert.Contains(t, out, "Metacontroller has no event that shows why.")

	k.says[get] = `{"items":[{"lastTimestamp":"2026-03-01T11:50:00Z","message":"old"},
		{"lastTimestamp":"2026-03-01T11:59:50Z","message":"Sync error: can't reconcile children for EtcdCluster shop/orders: no quota"}]}`
	_, out, _ = k.runs(healthy(), "status", "-n", "shop")
	assert.Contains(t, out, "- Metacontroller said 10s ago (2026-03-01 11:59 UTC): no quota\n")

	k.fails[get] = "Error from server (Forbidden): events is forbidden"
	code, out, _ = k.runs(healthy(), "status", "-n", "shop")
	assert.Zero(t, code)
	assert.Contains(t, out, "can't be read")
}

func growing(c *v1beta1.EtcdCluster, l *live) {
	five := int32(5)
	c.Spec.Replicas, c.Generation = &five, 4
	l.etcd.Members = append(l.etcd.Members,
		observation.Member{ID: 0xabc, PeerURLs: []string{"http://orders-3.orders-peers.shop.svc:2380"}, Learner: true})
	c.Status.Rule = "LearnerCatchingUp"
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: v1beta1.Ready, Status: metav1.ConditionFalse,
		Reason: "LearnerCatchingUp", Message: "orders-3 has not started yet"})
	c.Status.Internal.Replacement = &v1beta1.ReplacementStatus{Failures: 2, NextLearnerTime: ago(-4 * time.Minute)}
	c.Status.History = []v1beta1.HistoryEntry{
		{Time: ago(26 * time.Hour), Rule: "Left out", Message: "only the last five are shown"},
		{Time: ago(25 * time.Hour), Rule: "Start", Message: "starting orders-0, orders-1, orders-2"},
		{Time: ago(24 * time.Hour), Rule: "Converged", Message: "serving as the spec says, with 3 voters"},
		{Time: ago(2 * time.Minute), Rule: "Grow", Step: "add learner orders-3",
			Message: "growing from 3 to 5 voters: adding orders-3, which is a long story and goes on in the next " +
				"line, where it ends"},
		{Time: ago(time.Minute), Rule: "LearnerCatchingUp", Message: "orders-3 has not started yet"},
		{Time: ago(time.Second), Rule: "LearnerCatchingUp"},
	}
}

func troubled(c *v1beta1.EtcdCluster, l *live) {
	deleted := ago(2 * time.Hour)
	c.DeletionTimestamp, c.Spec.DeletionProtection, c.Spec.Suspend = &deleted, true, true
	c.Status.Rule = "Suspended"
	h := l.health["orders-1"]
	h.Alarms = []string{observation.AlarmCorrupt, observation.AlarmNoSpace}
	l.health["orders-1"] = h
	delete(l.health, "orders-2")
	l.etcd.Alarms = []observation.Alarm{{MemberID: first + 1, Kind: observation.AlarmCorrupt},
		{MemberID: 0xdead, Kind: observation.AlarmNoSpace}}
	c.Status.TLS.Certificates[1].NotAfter = ago(time.Hour)
	c.Status.TLS.Certificates[2].NotAfter = ago(-5 * time.Hour)
	wanted, has := resource.MustParse("4Gi"), resource.MustParse("1Gi")
	c.Status.Members[0].Volume = &v1beta1.VolumeStatus{Wanted: &wanted, Capacity: &has,
		Message: "the file system is being resized"}
	reclaimed := resource.MustParse("1300Mi")
	c.Status.Defragmentation = &v1beta1.DefragmentationStatus{StartTime: ago(10 * time.Minute),
		Done: []string{"orders-1", "orders-2"}, Reclaimed: &reclaimed, NextScheduleTime: ago(-36 * time.Hour)}
	c.Spec.Auth = &v1beta1.AuthSpec{Enabled: true}
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason,
			Message: message})
	}
	set(v1beta1.Ready, metav1.ConditionTrue, "Suspended", "SUSPENDED: Quorate changes nothing")
	set(v1beta1.Suspended, metav1.ConditionTrue, "SpecSuspend", "SUSPENDED: Quorate changes nothing")
	set(v1beta1.Degraded, metav1.ConditionTrue, "MembersInTrouble",
		"orders-2 does not serve; orders-1 has the alarm CORRUPT and NOSPACE, and a sentence this long does not fit "+
			"into one line")
	set(v1beta1.Authorized, metav1.ConditionFalse, "Waiting", "spec.auth.users[0]: its Secret is missing")
	set(v1beta1.Advised, metav1.ConditionTrue, "SpecAdvice", "2 voters tolerate no more failures than 1")
}

func TestLag(t *testing.T) {
	l := answering(t, healthy())
	assert.Equal(t, "0", l.lag(l.health["orders-0"]))
	assert.Equal(t, "14", l.lag(l.health["orders-2"]))
	ahead := l.health["orders-1"]
	ahead.RaftIndex = 1003 // asked a moment later
	assert.Equal(t, "0", l.lag(ahead))
	l.health["orders-0"] = observation.Health{Err: "unreachable"}
	assert.Equal(t, "?", l.lag(ahead))
}

func TestNameOf(t *testing.T) {
	for want, m := range map[string]observation.Member{
		"orders-1":  {Name: "orders-1", PeerURLs: []string{"https://elsewhere:2380"}},
		"orders-2":  {PeerURLs: []string{"https://orders-2.orders-peers.shop.svc:2380"}},
		"orders-3":  {PeerURLs: []string{"https://orders-3.shop@10.0.0.1:2380"}},
		"orders-4":  {PeerURLs: []string{"https://orders-4.shop@[fd00::1]:2380"}},
		"10.0.0.1":  {PeerURLs: []string{"http://10.0.0.1:2380"}},
		"fd00::1":   {PeerURLs: []string{"http://[fd00::1]:2380"}},
		"localhost": {PeerURLs: []string{"http://localhost:2380"}},
		"1f":        {ID: 0x1f},
	} {
		assert.Equal(t, want, nameOf(m))
	}
}

func TestWords(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m",
		179 * time.Minute: "179m", 3 * time.Hour: "3h", 48 * time.Hour: "2d"} {
		assert.Equal(t, want, lasting(d))
	}
	for n, want := range map[int64]string{0: "0 KiB", 20480: "20 KiB", 1 << 20: "1.0 MiB", 27000000: "25.7 MiB",
		3 << 30: "3.00 GiB"} {
		assert.Equal(t, want, size(n))
	}
	assert.Equal(t, []string{""}, wrapped("", 5))
	assert.Equal(t, []string{"a bc", "muchtoolong", "d"}, wrapped("a bc  muchtoolong\nd", 5))
}
