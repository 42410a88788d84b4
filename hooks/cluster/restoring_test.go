package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
)

// TestARevertedRestoreUsesNothing: an ID that an earlier epoch has answered, as after a Git revert, keeps no snapshot
// from being deleted. A new one does, until the cluster has said that it is answered.
func TestARevertedRestoreUsesNothing(t *testing.T) {
	o := serve(3)
	o.Children.Services["demo-peers"].Annotations = map[string]string{objects.AnnotationAnswered: "monday=1,tuesday=1"}
	s1 := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "s1"},
		Spec:   v1alpha1.EtcdSnapshotSpec{Store: v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "b"}}},
		Status: v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded, URI: "s3://b/s1.db"}}
	used := func(by *v1alpha1.EtcdCluster) bool {
		d := snapshot.Decide(snapshot.Observation{Snapshot: s1, Clusters: map[string]*v1alpha1.EtcdCluster{by.Name: by},
			Now: now})
		return len(d.Status.UsedBy) > 0
	}
	o.Related.Snapshots = map[string]*v1alpha1.EtcdSnapshot{"s1": s1}
	for _, id := range []string{"monday", "new", "tuesday"} {
		askRestore(&o, id, v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "s1"}}})
		o.Cluster.Status = Decide(o).Status
		assert.Equal(t, id == "new", used(o.Cluster), "%s: %v", id,
			meta.FindStatusCondition(o.Cluster.Status.Conditions, v1alpha1.Restored))
	}
}

// TestWhatIsRestoring: a cluster tells which artifacts its members read, until they have had a quorum.
func TestWhatIsRestoring(t *testing.T) {
	from := func(url string) *state.Epoch {
		return &state.Epoch{Origin: state.Origin{Source: objects.SourceSnapshot, Snapshot: &state.Resolved{URL: url}}}
	}
	v := newView(observation.Observation{Cluster: fresh(3).Cluster})
	v.Epoch = from("s3://a")
	assert.Equal(t, []string{"s3://a"}, status.Restoring(v))
	v.Epoch.ClusterID = 1
	assert.Empty(t, status.Restoring(v))
	v.Next = newView(observation.Observation{Cluster: v.Cluster})
	v.Next.Epoch = from("s3://b")
	assert.Equal(t, []string{"s3://b"}, status.Restoring(v))
	v.Next.Epoch.Phase = state.PhaseCancelled
	assert.Empty(t, status.Restoring(v))
}

// TestWhatTheAPIServerLetThrough: no pod is made of a spec that it should have refused,
// the message says what is wrong, and it repeats nothing of it.
func TestWhatTheAPIServerLetThrough(t *testing.T) {
	source := v1alpha1.SnapshotSource{Artifact: "$(tls.key)",
		Store: &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "b"}}}
	reached := v1alpha1.SnapshotSource{Artifact: "x.db",
		Store: &v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "b", Endpoint: "http://me:tls.key@x"}}}
	for _, s := range []*v1alpha1.SnapshotSource{&source, &reached} {
		for _, o := range []observation.Observation{fresh(3), serve(3)} {
			o.Cluster.Spec.Bootstrap = &v1alpha1.Bootstrap{Snapshot: s}
			d := Decide(o)
			assert.Equal(t, "Unsupported", d.Reason.Rule)
			assert.Contains(t, d.Reason.Message, "spec.bootstrap.snapshot")
			assert.NotContains(t, d.Reason.Message, "tls.key")
			assert.Len(t, d.Children.Pods, len(o.Children.Pods))
			require.NoError(t, verify(o, d))

			o.Cluster.Spec.Bootstrap = nil
			askRestore(&o, "a", v1alpha1.RestoreOperation{Snapshot: s})
			op := Decide(o).Status.Operations[0]
			assert.Equal(t, v1alpha1.OperationFailed, op.Phase)
			assert.Contains(t, op.Message, "spec.restore.snapshot")
			assert.NotContains(t, op.Message, "tls.key")
		}
	}

	o := serve(3) // an EtcdSnapshot whose status a user has written
	askRestore(&o, "a", v1alpha1.RestoreOperation{Snapshot: &v1alpha1.SnapshotSource{SnapshotRef: v1alpha1.SnapshotRef{Name: "nightly"}}})
	o.Related.Snapshots = map[string]*v1alpha1.EtcdSnapshot{"nightly": {
		Spec:   v1alpha1.EtcdSnapshotSpec{Store: v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "b"}}},
		Status: v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded, URI: "s3://b/$(tls.key)"},
	}}
	_, message := told(t, o)
	assert.Contains(t, message, "the status of EtcdSnapshot nightly can't be used")
	assert.NotContains(t, message, "tls.key")
	require.NoError(t, verify(o, Decide(o)))
}
