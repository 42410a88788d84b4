package snapshot

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// TestTheIssuesOwnURLInAJob is the way by which the key of an authority came into a status.
func TestTheIssuesOwnURLInAJob(t *testing.T) {
	o := aSnapshot()
	o.Snapshot.Spec.Store = v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "b", Prefix: "$(tls.key)",
		CredentialsSecretRef: v1alpha1.SecretRef{Name: "demo-ca"}}}
	v := newView(o)
	for _, job := range []*corev1.PodSpec{&v.takingJob(1).Spec.Template.Spec, &v.discardJob(1).Spec.Template.Spec} {
		assert.Empty(t, kubelet.Leaks(job))
		assert.Contains(t, kubelet.Line(&job.Containers[0]), "--store-url=s3://b/$(tls.key)",
			"its program is told what is written")
	}
}

// FuzzNoTextOfASnapshotNamesASecret: whatever a spec says, in any field, and though the API server had
// let it through, no value of a Secret comes into a command line, and every text comes to its
// program as it is written.
func FuzzNoTextOfASnapshotNamesASecret(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		perhaps := func(fields ...*string) {
			for _, field := range fields {
				if r.IntN(3) > 0 {
					*field = kubelet.AnyText(r)
				}
			}
		}
		store := kubelet.AnyStore(r)

		o := aSnapshot()
		o.Snapshot.Spec.Store = store
		recipient := "age1x"
		cluster := o.Clusters["orders"]
		perhaps(&recipient, &o.Snapshot.Spec.Job.ServiceAccountName, &cluster.Spec.Image.Repository,
			&cluster.Status.Version, &cluster.Status.Members[0].Name)
		o.Snapshot.Spec.Encryption = &v1alpha1.Encryption{Recipients: []string{recipient}}
		perhaps(&o.Snapshot.Spec.ClusterRef.Name)
		v := newView(o)
		v.cluster = cluster // though it had this name
		for _, pod := range []*corev1.PodSpec{&v.takingJob(1).Spec.Template.Spec, &v.discardJob(1).Spec.Template.Spec} {
			assert.Empty(t, kubelet.Leaks(pod))
			assert.Contains(t, kubelet.Line(&pod.Containers[0]), "--store-url="+stores.URLOf(&store).String())
			assert.Contains(t, kubelet.Line(&pod.Containers[0]), "--key="+Key(o.Snapshot))
		}
		if err := Verify(o, Decide(o)); err != nil {
			t.Error(err)
		}
	})
}
