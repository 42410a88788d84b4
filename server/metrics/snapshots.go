package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// snapshotTold is when a snapshot was stored, and whether it was verified. Of a cluster the newest of each is told: the
// alert that matters is about its age. So there are two series a cluster, however many snapshots there are.
type snapshotTold struct {
	cluster  string
	stored   time.Time
	verified bool
}

var (
	storedMetric = clusterMetric("quorate_snapshot_stored_timestamp_seconds",
		"When the newest snapshot of a cluster was stored, in seconds since 1970.")
	verifiedMetric = clusterMetric("quorate_snapshot_verified_timestamp_seconds",
		"When the newest snapshot of a cluster that was restored on trial was stored, in seconds since 1970.")
)

func snapshotGauges() *gauges[snapshotTold] {
	return &gauges[snapshotTold]{now: time.Now, descs: []*prometheus.Desc{storedMetric, verifiedMetric},
		tell: tellOfSnapshots}
}

// Snapshot notes what was decided about a snapshot.
func (m *Metrics) Snapshot(s *v1beta1.EtcdSnapshot, d *snapshot.Decision) {
	switch phase := d.Status.Phase; phase {
	case v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified, v1beta1.SnapshotSkipped, v1beta1.SnapshotFailed:
		if s.Status.Phase != phase {
			m.snapshotsEnded.WithLabelValues(string(phase)).Inc()
		}
	case v1beta1.SnapshotPending, v1beta1.SnapshotRunning, v1beta1.SnapshotDeleting:
	}
	stored := d.Status.Phase == v1beta1.SnapshotSucceeded || d.Status.Phase == v1beta1.SnapshotUnverified
	switch {
	case s.Spec.External != nil: // it is of no EtcdCluster
	case d.Finalized || !stored:
		m.snapshots.forget(s.UID)
	default:
		m.snapshots.note(s, snapshotTold{cluster: s.Spec.ClusterRef.Name, stored: d.Status.CompletionTime.Time,
			verified: !d.Status.VerificationTime.IsZero()})
	}
}

func tellOfSnapshots(_ *gauges[snapshotTold], all []*seen[snapshotTold], to chan<- prometheus.Metric) {
	type key struct {
		desc               *prometheus.Desc
		namespace, cluster string
	}
	newest := map[key]time.Time{}
	for _, s := range all {
		for desc, counts := range map[*prometheus.Desc]bool{storedMetric: true, verifiedMetric: s.told.verified} {
			k := key{desc, s.namespace, s.told.cluster}
			if counts && s.told.stored.After(newest[k]) {
				newest[k] = s.told.stored
			}
		}
	}
	for k, at := range newest {
		gauge(to, k.desc, float64(at.Unix()), k.namespace, k.cluster)
	}
}
