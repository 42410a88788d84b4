package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/schedule"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/test/static/docs"
)

// aCluster is an EtcdCluster, what was decided about it, and the children of that.
func aCluster(name string) (*v1beta1.EtcdCluster, *v1beta1.EtcdClusterStatus, decision.Desired) {
	c := &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name,
		UID: types.UID("uid-" + name)}}
	status := &v1beta1.EtcdClusterStatus{
		Version: "3.6.16", Epoch: 2,
		Conditions: []metav1.Condition{
			{Type: v1beta1.Available, Status: metav1.ConditionTrue, Reason: "QuorumServes"},
			{Type: v1beta1.Degraded, Status: metav1.ConditionFalse, Reason: "AllWell"},
		},
		Members: []v1beta1.MemberStatus{
			{Name: name + "-0", Role: v1beta1.Voter, Ready: true, Alarms: []string{"NOSPACE"}},
			{Name: name + "-1", Role: v1beta1.Voter},
			{Name: name + "-7", Role: v1beta1.Learner, Ready: true},
		},
		History:  []v1beta1.HistoryEntry{{Rule: "Grow", Time: metav1.Unix(1_795_316_400, 0)}},
		Internal: v1beta1.InternalStatus{Replacement: &v1beta1.ReplacementStatus{Failures: 3}},
		TLS: v1beta1.TLSStatus{Certificates: []v1beta1.CertificateStatus{{Name: "server",
			NotAfter: metav1.Unix(1_800_000_000, 0)}}},
	}
	peers := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: objects.PeerService(name),
		Annotations: map[string]string{objects.AnnotationNextMember: "8"}}}
	return c, status, decision.Desired{Services: []*corev1.Service{peers}}
}

// page is what Prometheus is shown.
func page(t *testing.T, m *Metrics) string {
	t.Helper()
	return scraped(m.Handler())
}

func scraped(h http.Handler) string {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestClusterGauges(t *testing.T) {
	m := New("v1.2.3", "0123abc")
	now := time.UnixMilli(1_795_320_000_250)
	m.clusters.now = func() time.Time { return now }
	c, status, children := aCluster("orders")
	m.Cluster(c, "LearnerCatchingUp", status, children)
	text := page(t, m)
	for _, line := range []string{
		`quorate_cluster_info{cluster="orders",medium="Persistent",namespace="shop",version="3.6.16"} 1`,
		`quorate_cluster_rule{cluster="orders",namespace="shop",rule="LearnerCatchingUp"} 1`,
		`quorate_cluster_condition{cluster="orders",condition="Available",namespace="shop",reason="QuorumServes"} 1`,
		`quorate_cluster_condition{cluster="orders",condition="Degraded",namespace="shop",reason="AllWell"} 0`,
		`quorate_cluster_alarms{alarm="NOSPACE",cluster="orders",namespace="shop"} 1`,
		`quorate_cluster_decided_timestamp_seconds{cluster="orders",namespace="shop"} 1.79532000025e+09`,
		`quorate_cluster_changed_timestamp_seconds{cluster="orders",namespace="shop"} 1.7953164e+09`,
		`quorate_cluster_members_wanted{cluster="orders",namespace="shop"} 3`,
		`quorate_cluster_members_made_total{cluster="orders",namespace="shop"} 8`,
		`quorate_cluster_voters{cluster="orders",namespace="shop"} 2`,
		`quorate_cluster_voters_ready{cluster="orders",namespace="shop"} 1`,
		`quorate_cluster_learners{cluster="orders",namespace="shop"} 1`,
		`quorate_cluster_learner_failures{cluster="orders",namespace="shop"} 3`,
		`quorate_cluster_epoch{cluster="orders",namespace="shop"} 2`,
		`quorate_certificate_expiry_timestamp_seconds{certificate="server",cluster="orders",namespace="shop"} 1.8e+09`,
		"quorate_clusters 1", "quorate_clusters_omitted 0",
	} {
		require.Contains(t, text, line+"\n")
	}

	status.Members[0].Alarms = nil
	m.Cluster(c, "Converged", status, children)
	text = page(t, m)
	require.Contains(t, text, `rule="Converged"`)
	require.NotContains(t, text, `rule="LearnerCatchingUp"`, "a cluster has one rule")
	require.NotContains(t, text, "NOSPACE", "and the alarms of now")

	successor, status, children := aCluster("orders")
	successor.UID, successor.Spec.Storage.Medium = "uid-2", v1beta1.Memory
	now = now.Add(time.Second)
	m.Cluster(successor, "Start", status, children)
	text = page(t, m)
	require.Equal(t, 1, strings.Count(text, "quorate_cluster_info{"), "one of a name, the newer: Prometheus takes no "+
		"series twice")
	require.Contains(t, text, `medium="Memory"`)
	require.Contains(t, text, "quorate_clusters 2\n")

	now = now.Add(forgetAfter + time.Second)
	text = page(t, m)
	require.NotContains(t, text, "quorate_cluster_info{", "what is not asked about any more is forgotten")
	require.Contains(t, text, "quorate_clusters 0\n")
}

// However many clusters there are, the number of series has an end.
func TestClusterGaugesHaveAnEnd(t *testing.T) {
	m := New("v1.2.3", "0123abc")
	m.clusters.most = 2
	now := time.Unix(1_795_320_000, 0)
	m.clusters.now = func() time.Time { return now }
	note := func(name string) {
		c, status, children := aCluster(name)
		m.Cluster(c, "Converged", status, children)
	}
	for range 2 {
		for _, name := range []string{"a", "b", "c", "d"} {
			note(name)
		}
	}
	text := page(t, m)
	require.Equal(t, 2, strings.Count(text, "quorate_cluster_info{"))
	require.Equal(t, 2, strings.Count(text, "quorate_certificate_expiry_timestamp_seconds{"))
	require.Contains(t, text, "quorate_clusters 4\n")
	require.Contains(t, text, "quorate_clusters_omitted 2\n")

	m.Forget("uid-a")
	m.Forget("uid-c")
	note("d")
	text = page(t, m)
	require.Contains(t, text, `quorate_cluster_info{cluster="d"`, "who is gone leaves room")
	require.Contains(t, text, "quorate_clusters 2\n")
	require.Contains(t, text, "quorate_clusters_omitted 0\n")

	m.LimitClusters(-1)
	for _, name := range []string{"b", "d"} {
		m.Forget(types.UID("uid-" + name))
		note(name)
	}
	text = page(t, m)
	require.NotContains(t, text, "quorate_cluster_info{", "none, if so many are wanted")
	require.Contains(t, text, "quorate_clusters_omitted 2\n")
}

// TestWhatIsNotAskedAbout is forgotten: snapshots, schedules and mirrors as clusters are.
func TestWhatIsNotAskedAbout(t *testing.T) {
	m := New("v1.2.3", "0123abc")
	m.Snapshot(&v1beta1.EtcdSnapshot{}, &snapshot.Decision{
		Status: v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, CompletionTime: metav1.Now(),
			VerificationTime: metav1.Now()},
	})
	m.Schedule(&v1beta1.EtcdSnapshotSchedule{}, &schedule.Decision{Due: time.Now()})
	m.Mirror(&v1beta1.EtcdMirror{}, &v1beta1.EtcdMirrorStatus{})
	told := []string{
		"quorate_snapshot_stored_timestamp_seconds{", "quorate_snapshot_verified_timestamp_seconds{",
		"quorate_schedule_due_timestamp_seconds{", "quorate_mirror_mirroring{",
	}
	for _, metric := range told {
		require.Contains(t, page(t, m), metric)
	}
	later := func() time.Time { return time.Now().Add(forgetAfter + time.Second) }
	m.snapshots.now, m.schedules.now, m.mirrors.now = later, later, later
	for _, metric := range told {
		require.NotContains(t, page(t, m), metric)
	}
}

// TestMetricsAreDocumented: docs/reference/lists.md has every metric with its type, labels and help.
func TestMetricsAreDocumented(t *testing.T) {
	m := New("v1.2.3", "0123abc")
	m.EtcdCall("status", time.Millisecond, errors.New("refused"))
	m.Hook("sync", 200, time.Millisecond)
	m.decisions.WithLabelValues("Converged").Inc()
	m.steps.WithLabelValues("promote", "done").Inc()
	m.snapshotsEnded.WithLabelValues("Succeeded").Inc()
	m.putOff.WithLabelValues("shop", "slow").Inc()
	c, status, children := aCluster("orders")
	m.Cluster(c, "Converged", status, children)
	taken := v1beta1.EtcdSnapshotStatus{Phase: v1beta1.SnapshotSucceeded, CompletionTime: metav1.Now(),
		VerificationTime: metav1.Now()}
	m.Snapshot(&v1beta1.EtcdSnapshot{}, &snapshot.Decision{Status: taken})
	reference := &v1beta1.SnapshotReference{Time: metav1.Now()}
	m.Schedule(&v1beta1.EtcdSnapshotSchedule{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Now()}},
		&schedule.Decision{
			Due: time.Now(),
			Status: v1beta1.EtcdSnapshotScheduleStatus{LastVerified: reference, LastSuccess: reference,
				LastFailure: reference, NextScheduleTime: metav1.Now(),
				Conditions: []metav1.Condition{{Type: v1beta1.Streaming, Status: metav1.ConditionTrue}}},
		})
	m.Mirror(&v1beta1.EtcdMirror{}, &v1beta1.EtcdMirrorStatus{})

	families, err := m.registry.Gather()
	require.NoError(t, err)
	table := "| Metric | Type | Labels | What it says |\n| --- | --- | --- | --- |\n"
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "quorate_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		table += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), f.GetHelp())
	}
	require.NoError(t, docs.Keep("../../docs/reference/lists.md", "generated: begin metrics", "generated: end", table))
}

// BenchmarkScrape is what a scrape of a thousand clusters costs.
func BenchmarkScrape(b *testing.B) {
	m := New("v1.2.3", "0123abc")
	for i := range defaultClusterMetrics {
		c, status, children := aCluster("orders-" + strconv.Itoa(i))
		status.Conditions = nil
		for _, kind := range []string{v1beta1.Available, v1beta1.Ready, v1beta1.Degraded, v1beta1.Suspended,
			v1beta1.Secured, v1beta1.Authorized, v1beta1.Advised} {
			status.Conditions = append(status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue,
				Reason: "Reason"})
		}
		status.TLS.Certificates = append(status.TLS.Certificates, v1beta1.CertificateStatus{Name: "peer"},
			v1beta1.CertificateStatus{Name: "authority"},
			v1beta1.CertificateStatus{Name: "operator"}, v1beta1.CertificateStatus{Name: "client"})
		m.Cluster(c, "Converged", status, children)
	}
	h := m.Handler()
	b.ReportAllocs()
	for b.Loop() {
		text := scraped(h)
		b.ReportMetric(float64(strings.Count(text, `cluster="orders-7"`)), "series/cluster")
	}
}
