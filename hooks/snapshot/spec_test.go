package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestASnapshotThatTheAPIServerLetThrough: no Job is made of a spec that it should have refused,
// the message says what is wrong, and it repeats nothing of it.
func TestASnapshotThatTheAPIServerLetThrough(t *testing.T) {
	for _, change := range []func(s *v1alpha1.EtcdSnapshotSpec){
		func(s *v1alpha1.EtcdSnapshotSpec) { s.Store.S3.Prefix = "$(tls.key)" },
		func(s *v1alpha1.EtcdSnapshotSpec) { s.Store.S3.Endpoint = "tls.key.example" },
		func(s *v1alpha1.EtcdSnapshotSpec) {
			s.Store = v1alpha1.Store{Claim: &v1alpha1.ClaimStore{Name: "",
				Path: "tls.key"}}
		},
		func(s *v1alpha1.EtcdSnapshotSpec) { s.ClusterRef.Name = "../tls.key" },
		func(s *v1alpha1.EtcdSnapshotSpec) {
			s.Job.SecurityContext = &v1alpha1.PodSecurity{RunAsUser: new(int64(0))}
		},
	} {
		o := aSnapshot()
		change(&o.Snapshot.Spec)
		o.Clusters[o.Snapshot.Spec.ClusterRef.Name] = o.Clusters["orders"]
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule)
		assert.Empty(t, d.Jobs)
		assert.Equal(t, v1alpha1.SnapshotFailed, d.Status.Phase)
		assert.Contains(t, d.Status.Message, "spec.")
		assert.NotContains(t, d.Status.Message, "tls.key")

		o.Snapshot.DeletionTimestamp, o.Snapshot.Spec.DeletionPolicy = &o.Snapshot.CreationTimestamp,
			v1alpha1.DeletionDelete
		d = Decide(o)
		assert.True(t, d.Finalized)
		assert.Empty(t, d.Jobs)
	}
}

// TestJobsRunAsTheirClustersUser: unless the snapshot says another; those of a cluster that is gone as Quorate's own.
func TestJobsRunAsTheirClustersUser(t *testing.T) {
	user := func(change func(*Observation)) *int64 {
		o := aSnapshot()
		change(&o)
		jobs := Decide(o).Jobs
		require.NotEmpty(t, jobs)
		return jobs[0].Spec.Template.Spec.SecurityContext.RunAsUser
	}
	platform := &v1alpha1.PodSecurity{IDPolicy: v1alpha1.IDsByPlatform}
	ofCluster := func(o *Observation) { o.Clusters["orders"].Spec.SecurityContext = platform }
	assert.Equal(t, new(int64(10001)), user(func(*Observation) {}))
	assert.Nil(t, user(ofCluster))
	assert.Equal(t, new(int64(7)), user(func(o *Observation) {
		ofCluster(o)
		o.Snapshot.Spec.Job.SecurityContext = &v1alpha1.PodSecurity{RunAsUser: new(int64(7))}
	}))
}
