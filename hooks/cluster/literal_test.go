package cluster

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
)

// TestTheIssuesOwnURL is the way by which the key of an authority came into a status.
func TestTheIssuesOwnURL(t *testing.T) {
	const url = "s3://b/$(tls.key)"
	for _, pod := range fillFrom(state.Resolved{URL: url + "/x.db",
		Store: v1alpha1.Store{S3: &v1alpha1.S3Store{Bucket: "b", Prefix: "$(tls.key)",
			CredentialsSecretRef: v1alpha1.SecretRef{Name: "demo-ca"}}}}, fresh(3)) {
		assert.Empty(t, kubelet.Leaks(&pod.Spec), pod.Name)
		assert.Contains(t, kubelet.Line(&pod.Spec.InitContainers[1]), "--url="+url+"/x.db")
	}
}

// fillFrom are the pods of initial members that are filled from a snapshot, whatever the record
// says of it.
func fillFrom(from state.Resolved, o observation.Observation) []*corev1.Pod {
	record := state.NewRecord(newView(o), 1, 0, 3)
	epochs.Originate(record, state.Origin{Source: objects.SourceSnapshot, Snapshot: &from})
	record.Annotations[objects.AnnotationStartsOn] = "demo-0:uid-claim-0,demo-1:uid-claim-1,demo-2:uid-claim-2"
	o.Children.ConfigMaps[record.Name] = record
	for i := range 3 {
		addClaim(&o, i)
	}
	return Decide(o).Children.Pods
}

// FuzzNoTextOfASpecNamesASecret: whatever a spec says, in any field, and though the API server had
// let it through, no value of a Secret comes into a command line, and every text comes to its
// program as it is written.
func FuzzNoTextOfASpecNamesASecret(f *testing.F) {
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

		c := fresh(3)
		s := &c.Cluster.Spec
		perhaps(&s.Options.AutoCompaction.Retention, &s.Image.Repository, &s.PriorityClassName, &s.TLS.MinVersion,
			&s.Options.LogLevel, &c.Cluster.Namespace)
		s.TLS.CipherSuites = []string{kubelet.AnyText(r)}
		from := state.Resolved{URL: kubelet.AnyText(r), Store: store}
		perhaps(&from.SHA256, &from.Identity.Name, &from.Identity.Key, &from.ServiceAccountName)
		for _, pod := range fillFrom(from, c) {
			assert.Empty(t, kubelet.Leaks(&pod.Spec), pod.Name)
		}
		s.Bootstrap = &v1alpha1.Bootstrap{Snapshot: &v1alpha1.SnapshotSource{Artifact: kubelet.AnyText(r),
			Store: &store}}
		for range 6 {
			d := Decide(c)
			require.NoError(t, verify(c, d))
			for _, pod := range d.Children.Pods {
				assert.Empty(t, kubelet.Leaks(&pod.Spec), pod.Name)
			}
			c = stored(c, d)
		}
	})
}
