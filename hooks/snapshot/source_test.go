package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/endpoints"
)

// ofAnother is a snapshot of an etcd that Quorate does not run, at addresses that the installation allows.
func ofAnother(t *testing.T) Observation {
	t.Helper()
	o := aSnapshot()
	o.Clusters = nil
	o.Snapshot.Spec.ClusterRef = v1alpha1.ClusterRef{}
	o.Snapshot.Spec.External = &v1alpha1.ExternalEtcd{Name: "old", Version: "3.5.9",
		Endpoints:          []string{"https://10.1.2.3:2379", "https://10.1.2.4:2379"},
		AuthoritySecretRef: v1alpha1.SecretRef{Name: "old-ca"}, ClientSecretRef: v1alpha1.SecretRef{Name: "old-client"},
		UserSecretRef: v1alpha1.SecretRef{Name: "old-root"}, ServerName: "old.example"}
	allowed, err := endpoints.ParseAllowedEndpoints("10.1.2.0/24")
	require.NoError(t, err)
	o.AllowedEndpoints = allowed
	return o
}

func TestTakingJobOfAnotherEtcd(t *testing.T) {
	o := ofAnother(t)
	require.NoError(t, Verify(o, Decide(o)))
	pod := theJob(t, o).Spec.Template.Spec
	main := pod.Containers[0]
	assert.Equal(t, "gcr.io/etcd-development/etcd:v3.5.9", main.Image)
	assert.Equal(t, []string{
		"--only-endpoints", "--endpoint=https://10.1.2.3:2379", "--endpoint=https://10.1.2.4:2379",
		"--server-name=old.example",
		"--ca=/etc/etcd/pki/external/authority/ca.crt",
		"--cert=/etc/etcd/pki/external/client/tls.crt", "--cert-key=/etc/etcd/pki/external/client/tls.key",
		"--username-file=/etc/etcd/pki/external/user/username", "--password-file=/etc/etcd/pki/external/user/password",
	}, main.Command[2:11])
	assert.Contains(t, main.Command, "--key=shop/old/nightly-12c500ed.db.zst")
	mounted := map[string]bool{}
	for _, mount := range main.VolumeMounts {
		mounted[mount.Name] = true
	}
	for _, volume := range pod.Volumes {
		assert.True(t, mounted[volume.Name], volume.Name)
	}
	assert.Equal(t, "old-root", pod.Volumes[len(pod.Volumes)-1].Secret.SecretName)

	o.Snapshot.Spec.External.ClientSecretRef, o.Snapshot.Spec.External.UserSecretRef = v1alpha1.SecretRef{},
		v1alpha1.SecretRef{}
	assert.NotContains(t, theJob(t, o).Spec.Template.Spec.Containers[0].Command,
		"--cert=/etc/etcd/pki/external/client/tls.crt", "it shows nothing")
}

func TestAnotherEtcdMustBeAllowed(t *testing.T) {
	o := ofAnother(t)
	o.Snapshot.Spec.External.Endpoints[1] = "https://10.1.3.4:2379"
	d := Decide(o)
	assert.Empty(t, d.Jobs)
	assert.Equal(t, v1alpha1.SnapshotPending, d.Status.Phase)
	assert.Equal(t, "spec.external.endpoints[1] can't be used: this installation of Quorate allows only 10.1.2.0/24 "+
		"(quorate install --existing-endpoints)", d.Status.Message)
	o.AllowedEndpoints = nil
	assert.Contains(t, Decide(o).Status.Message, "allows no endpoints")
}

func TestAnotherEtcdThatTheAPIServerLetThrough(t *testing.T) {
	for what, change := range map[string]func(*v1alpha1.EtcdSnapshotSpec){
		"both":            func(s *v1alpha1.EtcdSnapshotSpec) { s.ClusterRef.Name = "orders" },
		"neither":         func(s *v1alpha1.EtcdSnapshotSpec) { s.External = nil },
		"name":            func(s *v1alpha1.EtcdSnapshotSpec) { s.External.Name = "../old" },
		"version":         func(s *v1alpha1.EtcdSnapshotSpec) { s.External.Version = "3.5.9@sha256:0" },
		"no endpoints":    func(s *v1alpha1.EtcdSnapshotSpec) { s.External.Endpoints = nil },
		"plain text":      func(s *v1alpha1.EtcdSnapshotSpec) { s.External.Endpoints[1] = "http://10.1.2.4:2379" },
		"a bare password": func(s *v1alpha1.EtcdSnapshotSpec) { barePassword(s.External) },
	} {
		o := ofAnother(t)
		change(&o.Snapshot.Spec)
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule, what)
		assert.Empty(t, d.Jobs, what)
	}
}

func barePassword(external *v1alpha1.ExternalEtcd) {
	external.Endpoints = []string{"http://10.1.2.3:2379"}
	external.AuthoritySecretRef, external.ClientSecretRef = v1alpha1.SecretRef{}, v1alpha1.SecretRef{}
}
