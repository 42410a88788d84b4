package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// streaming is a schedule with a stream, and the verified snapshot of three o'clock.
func streaming() Observation {
	o := everyHour()
	o.Schedule.Spec.Stream = &v1beta1.Stream{}
	o.Images = objects.Images{Image: "quorate:v1"}
	o.add("22 03:00", v1beta1.SnapshotSucceeded)
	return o
}

// streams adds the pod of the stream as it is made, and running.
func (o *Observation) streams(t *testing.T) *corev1.Pod {
	t.Helper()
	d := decided(t, *o)
	require.Len(t, d.Pods, 1)
	pod := d.Pods[0].DeepCopy()
	pod.UID = "uid-pod"
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	o.Pods[pod.Name] = pod
	return pod
}

// ends has the stream end, and the kubelet start it again.
func ends(pod *corev1.Pod, report string) {
	pod.Status.Conditions = nil
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerStream,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1,
			Message: report}}}}
}

func condition(d *Decision) string {
	c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.Streaming)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason + ": " + c.Message
}

// TestStreamOfASchedule: each story is what happens to a schedule whose stream runs, and which pod it has then.
func TestStreamOfASchedule(t *testing.T) {
	const pod = "orders-uid-sche-stream-1"
	for _, c := range []struct {
		what      string
		happens   func(o *Observation, pod *corev1.Pod)
		pods      string // of the answer; + is new
		condition string // its beginning
		changes   string // of snapshots
	}{
		{"nothing", func(*Observation, *corev1.Pod) {}, pod,
			"True Stored: pod orders-uid-sche-stream-1 stores what changes after orders-20261122-0300", ""},
		{"the pod goes", func(o *Observation, pod *corev1.Pod) { delete(o.Pods, pod.Name) }, "+" + pod,
			"False Starting", ""},
		{"a newer snapshot", func(o *Observation, _ *corev1.Pod) { o.add("22 03:01", v1beta1.SnapshotSucceeded) }, pod,
			"True Stored: pod orders-uid-sche-stream-1 stores what changes after orders-20261122-0300", ""},
		{"the pod failed", func(_ *Observation, pod *corev1.Pod) { pod.Status.Phase, pod.Status.Conditions = corev1.PodFailed, nil }, "",
			"False NotStored", ""},
		{"its node is lost", func(o *Observation, pod *corev1.Pod) {
			pod.DeletionTimestamp = &metav1.Time{Time: o.Now.Add(-6 * time.Minute)}
		}, pod + " +orders-uid-sche-stream-2", "False Starting", ""},
		{"it ends slowly", func(o *Observation, pod *corev1.Pod) {
			pod.DeletionTimestamp = &metav1.Time{Time: o.Now.Add(-4 * time.Minute)}
		}, pod, "False Starting", ""},
		{"its spec changes", func(o *Observation, _ *corev1.Pod) {
			o.Schedule.Spec.Stream.FlushAfter = metav1.Duration{Duration: time.Minute}
		}, "", "True Stored", ""},
		{"the members change", func(o *Observation, _ *corev1.Pod) {
			o.Clusters["orders"].Status.Members[0].Name = "orders-7"
		}, "", "True Stored", ""},
		{"the cluster is away", func(o *Observation, _ *corev1.Pod) {
			o.Clusters["orders"].Status.Members[0].Name = "orders-7"
			o.Clusters["orders"].Status.Conditions[0].Status = metav1.ConditionFalse
		}, pod, "True Stored", ""},
		{"suspended", func(o *Observation, _ *corev1.Pod) { o.Schedule.Spec.Suspend = true }, "",
			"False Suspended: SUSPENDED: no change is stored until spec.suspend is false", ""},
		{"no longer asked for", func(o *Observation, _ *corev1.Pod) { o.Schedule.Spec.Stream = nil }, "", "none", ""},
		{"a schedule that can't be read", func(o *Observation, _ *corev1.Pod) {
			o.Schedule.Spec.Schedule = "61 * * * *"
			o.Schedule.Spec.Stream.FlushAfter = metav1.Duration{Duration: time.Minute}
		}, pod, "True Stored", ""},
		{"the store is away", func(_ *Observation, pod *corev1.Pod) {
			ends(pod, `log line`+"\n"+`{"reason":"Unreachable","error":"the store can't be reached"}`)
		}, pod, "False Unreachable: changes are not stored: the store can't be reached", ""},
		{"compacted", func(o *Observation, pod *corev1.Pod) {
			ends(pod, `{"reason":"Compacted","error":"revision 7 is compacted"}`)
			o.Now = o.Now.Add(time.Minute)
		}, pod, "False Compacted: changes can't be restored: revision 7 is compacted; a snapshot is taken for that now", "+orders-20261122-0301"},
		{"compacted a moment after the base", func(_ *Observation, pod *corev1.Pod) {
			ends(pod, `{"reason":"Compacted","error":"revision 7 is compacted"}`)
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, pod, "False Compacted: changes can't be restored: revision 7 is compacted; a snapshot is taken for that at " +
			"03:01 UTC", ""},
		{"users changed while a snapshot is taken", func(o *Observation, pod *corev1.Pod) {
			ends(pod, `{"reason":"UsersChanged","error":"users have changed"}`)
			o.add("22 03:01", v1beta1.SnapshotRunning)
			o.Now = o.Now.Add(10 * time.Minute)
		}, pod, "False UsersChanged", ""},
		{"users changed, and another base is there", func(o *Observation, pod *corev1.Pod) {
			ends(pod, `{"reason":"UsersChanged","error":"users have changed"}`)
			o.add("22 03:01", v1beta1.SnapshotSucceeded)
			o.Now = o.Now.Add(10 * time.Minute)
		}, "", "False UsersChanged", ""},
		{"users changed, and the base taken for that failed", func(o *Observation, pod *corev1.Pod) {
			ends(pod, `{"reason":"UsersChanged","error":"users have changed"}`)
			o.add("22 03:01", v1beta1.SnapshotFailed)
			o.Now = o.Now.Add(20 * time.Minute)
		}, pod, "False UsersChanged", ""},
		{"the cluster has other data", func(o *Observation, pod *corev1.Pod) {
			o.Clusters["orders"].Status.ClusterID = "c2"
			ends(pod, `{"reason":"OtherCluster","error":"another etcd answers"}`)
			o.Now = o.Now.Add(2 * time.Minute)
		}, pod, "False OtherCluster", "+orders-20261122-0302"},
		{"the cluster has other data, and the pod goes on in that", func(o *Observation, _ *corev1.Pod) {
			o.Clusters["orders"].Status.ClusterID = "c2"
			o.Now = o.Now.Add(2 * time.Minute)
		}, pod, "False NoBase: no snapshot of this etcd is verified yet; a snapshot is taken for that now",
			"+orders-20261122-0302"},
		{"its own data once more", func(o *Observation, _ *corev1.Pod) {
			o.Clusters["orders"].Status.ClusterID = "c2"
			o.add("22 03:02", v1beta1.SnapshotSucceeded).Status.ClusterID = "c2"
			o.Now = o.Now.Add(3 * time.Minute)
		}, "", "True Stored", ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			o := streaming()
			c.happens(&o, o.streams(t))
			d := decided(t, o)
			var names []string
			for _, pod := range d.Pods {
				if pod.UID == "" {
					names = append(names, "+"+pod.Name)
				} else {
					names = append(names, pod.Name)
				}
			}
			assert.Equal(t, c.pods, strings.Join(names, " "))
			assert.True(t, strings.HasPrefix(condition(&d), c.condition), condition(&d))
			assert.Equal(t, c.changes, changes(o, d))
		})
	}
}

// TestTheFirstBase is taken at once, and a stream follows only once it is verified.
func TestTheFirstBase(t *testing.T) {
	o := everyHour()
	o.Schedule.Spec.Stream = &v1beta1.Stream{}
	o.Schedule.CreationTimestamp = metav1.NewTime(clock("22 03:05:10"))
	o.Now = clock("22 03:05:20")
	d := decided(t, o)
	require.Equal(t, "+orders-20261122-0305", changes(o, d))
	assert.Equal(t, "False NoBase: no snapshot of this etcd is verified yet; a snapshot is taken for that now", condition(&d))
	assert.Equal(t, "taking orders-20261122-0305 at once, as a base for the stream: no snapshot of this etcd is verified "+
		"yet", d.Reason.Message)
	assert.Empty(t, d.Pods)

	o.Clusters["orders"].Status.Conditions[0].Status = metav1.ConditionFalse
	d = decided(t, o)
	assert.Empty(t, changes(o, d), "there is nothing to take it from")
	o.Clusters = nil
	d = decided(t, o)
	assert.Empty(t, changes(o, d))

	o = streaming()
	o.Snapshots = map[string]*v1beta1.EtcdSnapshot{}
	o.Schedule.Status.LastScheduleTime = metav1.NewTime(clock("22 03:00"))
	d = decided(t, o)
	assert.Empty(t, changes(o, d), "one of this minute was made")
	assert.Equal(t, 40*time.Second, d.ResyncAfter)
}

// TestASignedStream: the Secret is there before the pod that names it, and stays while the schedule does.
func TestASignedStream(t *testing.T) {
	o := everyHour()
	o.Keyed = true
	assert.Nil(t, Decide(o).Secrets, "it has no stream")
	o.Schedule.Spec.Stream = &v1beta1.Stream{}
	secrets := Decide(o).Secrets
	require.Len(t, secrets, 1)
	assert.Equal(t, "orders-stream-key", secrets[0].Name)
	o.Secrets = map[string]*Secret{"orders-stream-key": {ObjectMeta: secrets[0].ObjectMeta, Sum: "of keys"}}
	o.Schedule.Spec.Stream, o.Keyed = nil, false
	secrets = Decide(o).Secrets
	require.Len(t, secrets, 1)
	assert.Equal(t, "of keys", secrets[0].Sum)
}

// TestAScheduleWithoutStreamIsAsBefore: nothing of it depends on clusters and pods.
func TestAScheduleWithoutStreamIsAsBefore(t *testing.T) {
	o := everyHour()
	o.add("22 02:00", v1beta1.SnapshotSucceeded)
	with := Decide(o)
	o.Pods, o.Clusters = nil, nil
	assert.Equal(t, with, Decide(o))
	assert.Nil(t, with.Pods)
	assert.Len(t, with.Status.Conditions, 2)
}
