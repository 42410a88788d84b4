package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
)

// selfHosted is a cluster of three that the API server has its data in.
func selfHosted() observation.Observation {
	o := serveAtAddresses(v1alpha1.HostPath, "abcd")
	o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSSecrets, Secrets: &v1alpha1.SecretsTLS{
		ServerSecretRef:   v1alpha1.SecretRef{Name: "demo-server-tls"},
		PeerSecretRef:     v1alpha1.SecretRef{Name: "demo-peer-tls"},
		OperatorSecretRef: v1alpha1.SecretRef{Name: "demo-operator-tls"}}}
	o.Cluster.Spec.SelfHosted = true
	o.Related.Secrets = o.Children.Secrets
	for range 3 {
		d := Decide(o)
		observe(&o, d)
		o.Cluster.Status = d.Status
	}
	return o
}

func TestSelfHostedRefusesWhatStopsItAsAWhole(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EtcdClusterSpec){
		"needs spec.replicas of 3":                      func(s *v1alpha1.EtcdClusterSpec) { s.Replicas = new(int32(0)) },
		"with fewer, the loss or restart of one member": func(s *v1alpha1.EtcdClusterSpec) { s.Replicas = new(int32(2)) },
		"quorumLoss Manual": func(s *v1alpha1.EtcdClusterSpec) {
			s.Recovery.QuorumLoss = v1alpha1.RecoverFromSurvivor
		},
		"tls.mode Secrets": func(s *v1alpha1.EtcdClusterSpec) { s.TLS.Mode = v1alpha1.TLSAuto },
	} {
		o := selfHosted()
		require.NoError(t, spec.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec)
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule)
		assert.Contains(t, d.Reason.Message, want)
		require.NoError(t, verify(o, d))
		assert.Len(t, d.Children.Pods, 3)

		d.Children.Pods = d.Children.Pods[:1]
		require.ErrorContains(t, verify(o, d), "1 of 3 members stay, and the API server has its data here")
	}
}

func TestSelfHostedIsNotDeleted(t *testing.T) {
	o := selfHosted()
	assert.True(t, spec.Protected(o.Cluster), "also without deletionProtection")
}

func TestSelfHostedBeginsNoNextEpoch(t *testing.T) {
	o := selfHosted()
	o.Etcd = nil
	clear(o.Health)
	askRecover(&o, v1alpha1.RecoverFromSurvivor, 1)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Len(t, d.Children.ConfigMaps, 1, "no epoch is recorded, also when it is asked for")

	d.Children.ConfigMaps = append(d.Children.ConfigMaps, state.NewRecord(newView(o), 2, 4, 3))
	d.Children.ConfigMaps[1].Data[objects.EpochKeyAfter] = "1"
	d.Children.ConfigMaps[1].Data[objects.EpochKeyFirst] = "4"
	require.ErrorContains(t, verify(o, d), "takes over from the one that has the API server's data")
}

func TestSelfHostedIsSuspendedBetweenChangesOnly(t *testing.T) {
	o := selfHosted()
	o.Cluster.Spec.Suspend = true
	assert.Equal(t, "Suspended", Decide(o).Reason.Rule, "at rest")

	o.Cluster.Spec.Replicas = new(int32(4))
	o.Cluster.Status = Decide(o).Status
	assert.Equal(t, "Suspended", Decide(o).Reason.Rule, "what is asked for after that waits")

	away := selfHosted()
	delete(away.Children.Pods, "demo-1")
	learner := selfHosted()
	learner.Etcd.Members[2].Learner = true
	chosen := selfHosted()
	for _, record := range chosen.Children.ConfigMaps {
		record.Annotations[objects.AnnotationChosen] = "demo-1 uid"
	}
	for name, o := range map[string]observation.Observation{"a pod is away": away, "a learner is listed": learner,
		"a restart was chosen": chosen} {
		o.Cluster.Spec.Suspend = true
		d := Decide(o)
		assert.NotEqual(t, "Suspended", d.Reason.Rule, "%s, also where no status says so", name)
		waits := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Suspended)
		assert.Equal(t, "ChangeUnderWay", waits.Reason, name)
		require.NoError(t, verify(o, d))
	}

	o = away
	o.Cluster.Spec.SelfHosted = false
	assert.Equal(t, "Suspended", Decide(o).Reason.Rule, "any other cluster is suspended at once")
}
