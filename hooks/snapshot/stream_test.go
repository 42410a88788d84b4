package snapshot

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// aStream is one that begins after a snapshot that is verified.
func aStream() (Observation, Streams) {
	o := aSnapshot()
	o.Snapshot.Status.Revision, o.Snapshot.Status.ClusterID = 4711, "2c119c3b"
	return o, Streams{Number: 1, Schedule: &v1beta1.EtcdSnapshotSchedule{
		ObjectMeta: metav1.ObjectMeta{Name: "hourly", Namespace: "shop", UID: "77aa00ed-1234"},
		Spec:       v1beta1.EtcdSnapshotScheduleSpec{Stream: &v1beta1.Stream{}}}}
}

func TestStreamPod(t *testing.T) {
	o, of := aStream()
	o.Snapshot.Spec.Encryption = &v1beta1.Encryption{Recipients: []string{"age1x"}}
	of.Signed = true
	pod, why := StreamPod(o, of)
	require.Empty(t, why)
	require.NoError(t, VerifyPods(o.Images, nil, []*corev1.Pod{pod}))
	assert.Equal(t, "hourly-77aa00ed-stream-1", pod.Name)
	assert.Equal(t, 1, StreamPodNumber(of.Schedule, pod.Name))
	assert.Zero(t, StreamPodNumber(of.Schedule, "orders-1"))
	assert.Equal(t, map[string]string{"etcd.quorate.dev/schedule": "hourly", "app.kubernetes.io/name": "etcd-snapshot",
		"app.kubernetes.io/instance": "orders", "app.kubernetes.io/managed-by": "quorate"}, pod.Labels)
	main := pod.Spec.Containers[0]
	assert.Equal(t, "quorate:v1", main.Image)
	assert.Equal(t, []string{"/quorate-snapshot", "stream"}, main.Command)
	for _, flag := range []string{"--endpoint=https://orders-0.orders-peers.shop.svc:2379",
		"--endpoint=https://orders-4.orders-peers.shop.svc:2379", "--store-url=s3://backups/etcd", "--compression=zstd",
		"--recipient=age1x", "--tail=shop/orders/tail", "--flush-after=10s", "--listen=:2390", "--cluster-id=2c119c3b",
		"--stream-keys=/etc/quorate-store/stream/stream.key", "--from-revision=4711"} {
		assert.True(t, slices.ContainsFunc(main.Args, func(arg string) bool { return strings.HasPrefix(arg, flag) }), flag)
	}
	assert.Equal(t, "/health", main.ReadinessProbe.HTTPGet.Path)
	assert.Nil(t, main.LivenessProbe)
	assert.True(t, *main.SecurityContext.ReadOnlyRootFilesystem)
	assert.Equal(t, resource.MustParse("256Mi"), main.Resources.Limits[corev1.ResourceMemory])
	assert.Equal(t, corev1.RestartPolicyAlways, pod.Spec.RestartPolicy)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	mounted := map[string]bool{}
	for _, mount := range main.VolumeMounts {
		mounted[mount.Name] = true
	}
	for _, volume := range pod.Spec.Volumes {
		assert.True(t, mounted[volume.Name], volume.Name)
	}
}

// TestAnotherStreamPod: what makes it another pod, and what does not.
func TestAnotherStreamPod(t *testing.T) {
	for what, c := range map[string]struct {
		change  func(o *Observation, of *Streams)
		another bool
	}{
		"a newer base of the same etcd": {func(o *Observation, _ *Streams) {
			o.Snapshot.Name, o.Snapshot.UID, o.Snapshot.Status.Revision = "later", "9", 5000
		}, false},
		"members in another order": {func(o *Observation, _ *Streams) {
			slices.Reverse(o.Clusters["orders"].Status.Members)
		}, false},
		"another etcd": {func(o *Observation, _ *Streams) { o.Snapshot.Status.ClusterID = "7f00aa12" }, true},
		"other members": {func(o *Observation, _ *Streams) {
			o.Clusters["orders"].Status.Members[0].Name = "orders-7"
		}, true},
		"another pace": {func(_ *Observation, of *Streams) {
			of.Schedule.Spec.Stream.FlushAfter.Duration = time.Second
		}, true},
		"another image": {func(o *Observation, _ *Streams) { o.Images.Image = "quorate:v2" }, true},
	} {
		o, of := aStream()
		before, _ := StreamPod(o, of)
		c.change(&o, &of)
		after, why := StreamPod(o, of)
		require.Empty(t, why, what)
		assert.Equal(t, c.another, before.Annotations[objects.AnnotationTemplate] !=
			after.Annotations[objects.AnnotationTemplate], what)
	}
	o, of := aStream()
	o.Clusters = nil
	pod, why := StreamPod(o, of)
	assert.Nil(t, pod)
	assert.Equal(t, "EtcdCluster orders does not exist in this namespace", why)
}

func TestStreamPodNamesFit(t *testing.T) {
	_, of := aStream()
	for _, name := range []string{"a", "a.b", strings.Repeat("x", 63), strings.Repeat("x.", 31) + "x"} {
		of.Schedule.Name = name
		assert.Empty(t, validation.IsDNS1123Label(streamPodName(of.Schedule, 12)), name)
		assert.Equal(t, 12, StreamPodNumber(of.Schedule, streamPodName(of.Schedule, 12)), name)
	}
}

// TestStreamWaits: what the condition says of a pod that is not ready.
func TestStreamWaits(t *testing.T) {
	status := func(state, last corev1.ContainerState) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: objects.ContainerStream}}}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: objects.ContainerStream, State: state, LastTerminationState: last}}}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: reason,
			Message: message}}
	}
	for want, pod := range map[string]*corev1.Pod{
		"pod p runs, and not all that it has seen is stored": status(running, corev1.ContainerState{}),
		"access was refused": status(ended("Error", `{"reason":"Denied","error":"access was refused"}`),
			corev1.ContainerState{}),
		"container stream was killed because it ran out of memory: raise spec.job.resources.limits.memory": status(running,
			ended("OOMKilled", "")),
		"container stream of pod p can't start: ErrImagePull": status(corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}, corev1.ContainerState{}),
	} {
		assert.Equal(t, want, StreamWaits(pod, aSnapshot().Now))
	}
}
