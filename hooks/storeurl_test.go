package hooks

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestStoreURLs: a test of the manifests has the same URLs judged by the API server's rules.
func TestStoreURLs(t *testing.T) {
	var urls struct{ Good, Bad []string }
	raw, err := os.ReadFile("testdata/storeurls.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &urls))
	for _, good := range urls.Good {
		u, err := ParseStoreURL(good)
		require.NoError(t, err, good)
		assert.Equal(t, strings.TrimSuffix(strings.Replace(good, "/?", "?", 1), "/"), strings.TrimSuffix(u.String(), "/"), good)
		again, err := ParseStoreURL(u.String())
		require.NoError(t, err, good)
		assert.Equal(t, u, again)
		folder, name := u.Join("shop/demo.db.zst").Split()
		assert.Equal(t, "demo.db.zst", name)
		assert.Equal(t, u.Join("shop"), folder)
	}
	for _, bad := range urls.Bad {
		_, err := ParseStoreURL(bad)
		require.Error(t, err, bad)
		for _, word := range []string{"secret", "$", "evil", "passwd", "KEY"} {
			assert.NotContains(t, err.Error(), word, "nothing of the URL is repeated")
		}
	}
	u, err := ParseStoreURL("s3://b/folder?region=one&endpoint=http://x&region=two")
	require.NoError(t, err)
	assert.Equal(t, "one", u.Parameter("region"))
	assert.Equal(t, "http://x", u.Parameter("endpoint"))
	assert.Empty(t, u.Parameter("fips"))
	assert.Equal(t, "in s3://b", u.Words())
	assert.Equal(t, "on the claim", storeWords("file:///a/b"))
	assert.Equal(t, "at a URL that can't be used", storeWords("s3://b/$(tls.key)"))
}

// TestWhatTheAPIServerLetThrough: no pod and no Job is made of a spec that it should have refused,
// the message says what is wrong, and it repeats nothing of it.
func TestWhatTheAPIServerLetThrough(t *testing.T) {
	for _, change := range []func(s *v1alpha1.EtcdSnapshotSpec){
		func(s *v1alpha1.EtcdSnapshotSpec) { s.Store.URL = "s3://b/$(tls.key)" },
		func(s *v1alpha1.EtcdSnapshotSpec) { s.Store.URL = "azblob://b?domain=tls.key.example" },
		func(s *v1alpha1.EtcdSnapshotSpec) { s.Store = v1alpha1.Store{URL: "file:///tls.key"} },
		func(s *v1alpha1.EtcdSnapshotSpec) { s.Cluster = "../tls.key" },
	} {
		o := aSnapshot()
		change(&o.Snapshot.Spec)
		o.Clusters[o.Snapshot.Spec.Cluster] = o.Clusters["orders"]
		d := DecideSnapshot(o)
		assert.Equal(t, "Unsupported", d.Because.Rule)
		assert.Empty(t, d.Jobs)
		assert.Equal(t, v1alpha1.SnapshotFailed, d.Status.Phase)
		assert.Contains(t, d.Status.Message, "spec.")
		assert.NotContains(t, d.Status.Message, "tls.key")

		o.Snapshot.DeletionTimestamp, o.Snapshot.Spec.DeletionPolicy = &o.Snapshot.CreationTimestamp, v1alpha1.DeletionDelete
		d = DecideSnapshot(o)
		assert.True(t, d.Finalized)
		assert.Empty(t, d.Jobs)
	}

	source := v1alpha1.SnapshotSource{URL: "s3://b/$(tls.key)", Store: &v1alpha1.Store{URL: "s3://b"}}
	reached := v1alpha1.SnapshotSource{URL: "s3://b/x.db", Store: &v1alpha1.Store{URL: "gs://b?universe_domain=tls.key"}}
	for _, s := range []*v1alpha1.SnapshotSource{&source, &reached} {
		for field, change := range map[string]func(spec *v1alpha1.EtcdClusterSpec){
			"spec.bootstrap.snapshot": func(spec *v1alpha1.EtcdClusterSpec) { spec.Bootstrap = &v1alpha1.Bootstrap{Snapshot: s} },
			"spec.restore.snapshot":   func(spec *v1alpha1.EtcdClusterSpec) { spec.Restore = &v1alpha1.Restore{ID: "a", Snapshot: s} },
		} {
			for _, o := range []Observation{fresh(3), serve(3)} {
				change(&o.Cluster.Spec)
				d := Decide(o)
				assert.Equal(t, "Unsupported", d.Because.Rule)
				assert.Contains(t, d.Because.Message, field)
				assert.NotContains(t, d.Because.Message, "tls.key")
				assert.Len(t, d.Children.Pods, len(o.Children.Pods))
				require.NoError(t, Verify(o, d))
			}
		}
	}

	o := serve(3) // an EtcdSnapshot whose status somebody has written
	o.Cluster.Spec.Restore = &v1alpha1.Restore{ID: "a", Snapshot: &v1alpha1.SnapshotSource{Name: "nightly"}}
	o.Related.Snapshots = map[string]*v1alpha1.EtcdSnapshot{"nightly": {
		Spec:   v1alpha1.EtcdSnapshotSpec{Store: v1alpha1.Store{URL: "s3://b"}},
		Status: v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded, URI: "s3://b/$(tls.key)"},
	}}
	_, message := told(t, o)
	assert.Contains(t, message, "status.uri of EtcdSnapshot nightly is not one that can be used")
	assert.NotContains(t, message, "tls.key")
	require.NoError(t, Verify(o, Decide(o)))
}
