package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/versions"
)

func TestTheWayFromOneVersionToAnother(t *testing.T) {
	for _, c := range []struct{ from, to, way string }{
		{"3.6.16", "3.6.16", ""},
		{"3.6.16", "3.6.17", "3.6.17"},
		{"3.6.17", "3.6.4", "3.6.4"},
		{"3.5.35", "3.6.16", "3.6.16"},
		{"3.5.26", "3.6.4", "3.6.4"},
		{"3.5.35", "3.7.3", "3.6.16 3.7.3"},
		{"3.6.10", "3.7.0", "3.6.16 3.7.0"},
		{"3.6.11", "3.7.0", "3.7.0"},
		{"3.7.3", "3.6.16", "3.6.16"},
		{"3.7.3", "3.6.5", "3.6.16 3.6.5"},
		{"3.7.3", "3.5.35", "3.6.16 3.5.35"},
		{"3.6.16", "3.5.26", "3.5.26"},
	} {
		from, err := spec.ParseRelease(c.from)
		require.NoError(t, err)
		to, err := spec.ParseRelease(c.to)
		require.NoError(t, err)
		var hops []string
		for _, r := range versions.UpgradePath(from, to) {
			hops = append(hops, r.String())
		}
		assert.Equal(t, c.way, strings.Join(hops, " "), "%s to %s", c.from, c.to)
	}
}

// settled lets all members have run their version for long enough.
func settled(o *observation.Observation) {
	for name, pod := range o.Children.Pods {
		pod.Status.ContainerStatuses[0].State.Running = &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(now.Add(-time.Hour))}
		h := o.Health[name]
		h.StorageVersion = "3.6.0"
		o.Health[name] = h
	}
}

func recordOf(d decision.Decision) map[string]string {
	return d.Children.ConfigMaps[0].Annotations
}

func TestAMinorVersionIsGoneToWhenAllHaveSettled(t *testing.T) {
	o := serve(3)
	settled(&o)
	o.Cluster.Spec.Version = "3.7.3"
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "3.7.3", recordOf(d)[objects.AnnotationVersion], d.Reason.Message)

	h := o.Health["demo-1"]
	h.StorageVersion = "3.5.0"
	o.Health["demo-1"] = h
	assert.Equal(t, "3.6.16", recordOf(Decide(o))[objects.AnnotationVersion], "the cluster has not agreed on 3.6 yet")
	h.StorageVersion = "3.6.0"
	o.Health["demo-1"] = h
	o.Children.Pods["demo-2"].Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(
		now.Add(-versions.Settling +
			time.Second))
	assert.Contains(t, Decide(o).Reason.Message, "waiting until demo-2 has run 3.6.16")
}

func TestAMemberWhoseImageHoldsAnotherVersionStopsTheRoll(t *testing.T) {
	o := serve(3)
	o.Cluster.Spec.PriorityClassName = "high"
	h := o.Health["demo-1"]
	h.Version = "3.6.15"
	o.Health["demo-1"] = h
	d := Decide(o)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "check what is in the image")
	assert.Len(t, d.Children.Pods, 3)
}

func TestDownItGoesByEtcdsOwnProtocol(t *testing.T) {
	o := serve(3)
	settled(&o)
	o.Cluster.Spec.Version = "3.5.35"
	d := Decide(o)
	assert.Equal(t, decision.EnableDowngrade{Version: "3.5.0"}, d.Step)
	for name, h := range o.Health {
		h.Downgrade, h.StorageVersion = "3.5.0", "3.5.0"
		o.Health[name] = h
	}
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "3.5.35", recordOf(d)[objects.AnnotationVersion])

	o.Cluster.Spec.Version = "3.6.16"
	assert.Equal(t, decision.CancelDowngrade{}, Decide(o).Step, "taken back")
}

func TestWhat35WroteLiesBeforeASnapshotBefore37(t *testing.T) {
	o := serve(3)
	settled(&o)
	o.Cluster.Spec.Version = "3.7.3"
	record := o.Children.ConfigMaps["demo-epoch-1"].Annotations
	record[objects.AnnotationOldLog] = "3.5@900"
	assert.Equal(t, decision.EnableDowngrade{Version: "3.5.0"}, Decide(o).Step)
	for name, h := range o.Health {
		h.Downgrade, h.StorageVersion = "3.5.0", "3.5.0"
		o.Health[name] = h
	}
	d := Decide(o)
	assert.Empty(t, recordOf(d)[objects.AnnotationOldLog])
	assert.Equal(t, "3.6.16", recordOf(d)[objects.AnnotationVersion], "not before the downgrade is cancelled")
	delete(record, objects.AnnotationOldLog)
	assert.Equal(t, decision.CancelDowngrade{}, Decide(o).Step)

	record[objects.AnnotationOldLog] = "3.5@900"
	for name, h := range o.Health {
		h.Downgrade, h.StorageVersion, h.RaftIndex = "", "3.6.0", 16_000
		o.Health[name] = h
	}
	assert.Empty(t, recordOf(Decide(o))[objects.AnnotationOldLog], "members have written a snapshot by themselves")
}

func TestTwoMinorVersionsNeedStep(t *testing.T) {
	o := serve(3)
	settled(&o)
	o.Cluster.Spec.Version = "3.7.3"
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationVersion] = "3.5.35"
	for name, h := range o.Health {
		h.Version, h.StorageVersion = "3.5.35", ""
		o.Health[name] = h
		o.Children.Pods[name].Annotations[objects.AnnotationImage] = o.Settings.Etcd(&o.Cluster.Spec, "3.5.35")
	}
	d := Decide(o)
	assert.Equal(t, "Upgrade", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "3.5.35 -> 3.6.16 -> 3.7.3")
	assert.Equal(t, "3.5.35", recordOf(d)[objects.AnnotationVersion])
	o.Cluster.Spec.UpgradePolicy = v1alpha1.UpgradeStep
	assert.Equal(t, "3.6.16", recordOf(Decide(o))[objects.AnnotationVersion])
}
