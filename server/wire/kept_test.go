package wire

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestKeptSpecCarriesWhatIsDecided: what the decision changes reaches the answer, and nothing else does.
func TestKeptSpecCarriesWhatIsDecided(t *testing.T) {
	podSpec := func(annotation string, decided *corev1.PodSpec) *corev1.PodSpec {
		return keptSpec(annotation, decided).(*corev1.PodSpec)
	}
	r := read(t, steady(t))
	observed := r.Children.Pods["orders-1"]
	annotation := observed.Annotations[lastApplied]

	var last struct{ Spec *corev1.PodSpec }
	require.NoError(t, json.Unmarshal([]byte(annotation), &last))
	require.Equal(t, last.Spec, keptSpec(annotation, &observed.Spec), "what was not changed is as it was applied")

	decided := observed.Spec.DeepCopy()
	decided.Containers[0].Image = "etcd:new"
	got := podSpec(annotation, decided)
	require.Equal(t, "etcd:new", got.Containers[0].Image)
	require.Empty(t, got.NodeName, "the scheduler's field is not ours")
	require.Equal(t, observed.Spec.Containers[0].Command, got.Containers[0].Command)

	last.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "etcd.quorate.dev/founded"}}
	gated, err := json.Marshal(map[string]any{"spec": last.Spec})
	require.NoError(t, err)
	require.Empty(t, podSpec(string(gated), decided).SchedulingGates, "the decision lifted the gate")
	decided.SchedulingGates = last.Spec.SchedulingGates
	require.Equal(t, last.Spec.SchedulingGates, podSpec(string(gated), decided).SchedulingGates)

	before := observed.Spec.DeepCopy()
	_ = keptSpec(annotation, &observed.Spec)
	require.Equal(t, before, &observed.Spec, "what was observed must not change")

	claim := r.Children.Claims["orders-1"]
	require.Empty(t, keptSpec(claim.Annotations[lastApplied], &claim.Spec).(*corev1.PersistentVolumeClaimSpec).VolumeName)
}
