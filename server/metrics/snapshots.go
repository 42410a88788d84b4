package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// snapshotTimes are when the newest snapshot of each cluster was stored, and the newest that was verified, as metrics:
// the alert that matters is about their age. Two series a cluster, however many snapshots there are. A snapshot that
// was not asked about for 15 minutes is dropped.
type snapshotTimes struct {
	mu        sync.Mutex
	snapshots map[types.UID]snapshotTime
	now       func() time.Time
}

type snapshotTime struct {
	cluster          [2]string // namespace, name
	stored, verified time.Time
	seen             time.Time
}

var (
	storedMetric = prometheus.NewDesc("quorate_snapshot_stored_timestamp_seconds",
		"When the newest snapshot of a cluster was stored, in seconds since 1970.", []string{"namespace", "cluster"},
		nil)
	verifiedMetric = prometheus.NewDesc("quorate_snapshot_verified_timestamp_seconds",
		"When the newest snapshot of a cluster that was restored on trial was stored, in seconds since 1970.",
		[]string{"namespace", "cluster"}, nil)
)

// Snapshot notes what was decided about a snapshot.
func (m *Metrics) Snapshot(s *v1alpha1.EtcdSnapshot, d *snapshot.Decision) {
	switch phase := d.Status.Phase; phase {
	case v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotStored, v1alpha1.SnapshotSkipped, v1alpha1.SnapshotFailed:
		if s.Status.Phase != phase {
			m.snapshotsEnded.WithLabelValues(string(phase)).Inc()
		}
	case v1alpha1.SnapshotPending, v1alpha1.SnapshotRunning, v1alpha1.SnapshotDeleting:
	}
	m.snapshots.note(s, d)
}

func (t *snapshotTimes) note(s *v1alpha1.EtcdSnapshot, d *snapshot.Decision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.Spec.External != nil {
		return // it is of no EtcdCluster
	}
	if d.Finalized || d.Status.Phase != v1alpha1.SnapshotSucceeded && d.Status.Phase != v1alpha1.SnapshotStored {
		delete(t.snapshots, s.UID)
		return
	}
	if t.snapshots == nil {
		t.snapshots = map[types.UID]snapshotTime{}
	}
	at := snapshotTime{cluster: [2]string{s.Namespace, s.Spec.ClusterRef.Name}, stored: d.Status.CompletionTime.Time,
		seen: t.now()}
	if !d.Status.VerificationTime.IsZero() {
		at.verified = at.stored
	}
	t.snapshots[s.UID] = at
}

// Describe implements prometheus.Collector.
func (t *snapshotTimes) Describe(to chan<- *prometheus.Desc) {
	to <- storedMetric
	to <- verifiedMetric
}

// Collect implements prometheus.Collector.
func (t *snapshotTimes) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stored, verified := map[[2]string]time.Time{}, map[[2]string]time.Time{}
	for uid, s := range t.snapshots {
		if t.now().Sub(s.seen) > forgetAfter {
			delete(t.snapshots, uid)
			continue
		}
		if s.stored.After(stored[s.cluster]) {
			stored[s.cluster] = s.stored
		}
		if s.verified.After(verified[s.cluster]) {
			verified[s.cluster] = s.verified
		}
	}
	for desc, times := range map[*prometheus.Desc]map[[2]string]time.Time{storedMetric: stored,
		verifiedMetric: verified} {
		for cluster, at := range times {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(at.Unix()), cluster[:]...)
		}
	}
}
