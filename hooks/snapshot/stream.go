package snapshot

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// The pod of a stream stores what changes after a base, which is a verified snapshot, in files beside it. It runs until
// it is deleted. How it comes to etcd and to the store is as for the Job that took the base.

const (
	// StreamPort is where that pod answers: /health, /status and /metrics.
	StreamPort = 2390
	// WritesPort is where it tells who writes, to those inside of the pod alone, as kubectl port-forward is: what it tells
	// are names of keys.
	WritesPort = 2391
	// streamEnds is how long the pod may take to store what it has seen when it is told to end, in seconds.
	streamEnds = 30
)

// Streams is how a pod of a stream differs from a Job.
type Streams struct {
	// Schedule that it belongs to, and the number of the pod. Signed: by the keys in the schedule's Secret.
	Schedule *v1beta1.EtcdSnapshotSchedule
	Number   int
	Signed   bool
}

// StreamPod is the pod of a stream that begins after a base, which is the observation's snapshot, or why there can't
// be one now. Equal pods have equal annotations [objects.AnnotationTemplate], whatever their bases of one etcd are.
func StreamPod(o Observation, of Streams) (pod *corev1.Pod, why string) {
	v := newView(o)
	if err := validate(&v.Snapshot.Spec); err != nil {
		return nil, err.Error()
	}
	if why := v.blocked(); why != "" {
		return nil, why
	}
	s := v.Snapshot
	etcd := v.source()
	spec := of.Schedule.Spec.Stream
	store := stores.AccessTo(s.Spec.Store, s.Spec.Job.ServiceAccountName, false)
	if of.Signed {
		store.Believe(v1beta1.SecretKeyRef{Name: objects.StreamSecret(of.Schedule.Name)})
	}
	slices.Sort(etcd.args) // in whatever order the status has the members
	main := corev1.Container{
		Name:            objects.ContainerStream,
		Image:           v.Images.Image,
		ImagePullPolicy: v.Images.ImagePullPolicy,
		Command:         []string{objects.SnapshotProgram, "stream"},
		Args: slices.Concat(etcd.args, store.Args, compressedAs(s), []string{"--tail=" + Tail(s),
			"--cluster-id=" + s.Status.ClusterID, "--flush-after=" + cmp.Or(spec.FlushAfter.Duration, 10*time.Second).String(),
			fmt.Sprintf("--listen=:%d", StreamPort)}),
		VolumeMounts: slices.Concat(store.Mounts, etcd.mounts),
		Resources:    Resources(s.Spec.Job.Resources, 0),
	}
	Answering(&main, "stream", StreamPort)
	template := v.jobPod(main, store, etcd.volumes)
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	template.Spec.TerminationGracePeriodSeconds = new(int64(streamEnds))
	delete(template.Labels, objects.LabelSnapshot) // it is none of that snapshot's Jobs
	template.Labels[objects.LabelSchedule] = of.Schedule.Name
	pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: streamPodName(of.Schedule, of.Number), Namespace: of.Schedule.Namespace,
			Labels: template.Labels},
		Spec: template.Spec,
	}
	pod.Annotations = map[string]string{
		objects.AnnotationTemplate: objects.Fingerprint([]any{pod.Labels, pod.Spec}),
		objects.AnnotationBase:     s.Name,
	}
	args := &pod.Spec.Containers[0].Args
	*args = append(*args, fmt.Sprintf("--from-revision=%d", s.Status.Revision))
	objects.Literal(&pod.Spec)
	return pod, ""
}

// compressedAs are the flags that say how what is stored is compressed and encrypted.
func compressedAs(s *v1beta1.EtcdSnapshot) []string {
	args := []string{"--compression=" + strings.ToLower(string(compression(s)))}
	if e := s.Spec.Encryption; e != nil {
		for _, recipient := range e.Recipients {
			args = append(args, "--recipient="+recipient)
		}
	}
	return args
}

// Tail is the folder, below that of the store, where the streams of a snapshot's etcd are: each etcd has a folder in
// it by its cluster ID.
func Tail(s *v1beta1.EtcdSnapshot) string { return path.Join(path.Dir(Key(s)), TailFolder) }

// TailFolder is its name, beside the snapshots.
const TailFolder = "tail"

// streamPodName is the name of the nth pod of a schedule's stream.
func streamPodName(s *v1beta1.EtcdSnapshotSchedule, n int) string {
	return objects.NumberedName(s, objects.ContainerStream, n)
}

// StreamPodNumber is n in the name of a stream's pod; 0 for a name that is not of this schedule's.
func StreamPodNumber(s *v1beta1.EtcdSnapshotSchedule, name string) int {
	n := objects.ReadMark(name[strings.LastIndexByte(name, '-')+1:])
	if n == 0 || name != streamPodName(s, n) {
		return 0
	}
	return n
}

// StreamEnd is what the stream of a pod reported when it last ended; nil while it has not, or reported nothing.
func StreamEnd(pod *corev1.Pod) *stores.Stream {
	report := stores.Last[stores.Stream](pod, objects.ContainerStream)
	if report == nil || report.Reason == "" {
		return nil
	}
	return report
}

// StreamWaits is what the pod of a stream that is not ready does, or waits for.
func StreamWaits(pod *corev1.Pod, now time.Time) string {
	if end := StreamEnd(pod); end != nil {
		return cmp.Or(end.Error, end.Reason)
	}
	return cmp.Or(PodWaits(pod, now), fmt.Sprintf("pod %s runs, and not all that it has seen is stored", pod.Name))
}

// PodWaits is why a pod that is there for one container has no such container yet, or how that ended last; empty for
// one that runs for the first time.
func PodWaits(pod *corev1.Pod, now time.Time) string {
	purpose := objects.Purpose(&pod.Spec)
	if last := objects.LastEnd(pod, purpose); last != nil {
		return containerWords(purpose, last, pod)
	}
	if objects.StatusOf(pod, purpose).State.Running != nil {
		return ""
	}
	v := &view{Observation: Observation{Now: now}}
	_, message, _ := v.podProgress(pod)
	return message
}
