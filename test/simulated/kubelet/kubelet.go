// Package kubelet is what a kubelet makes of the pods that decisions ask for, told once for all who stand in for one.
// They differ in what runs:
//
//   - in the world of the stories (test/simulated/world) a pod comes as far as it can in one pass, and etcd is a value;
//   - in the model (test/simulated/model) a pod is a few numbers, of which the hooks are shown these reports. It has
//     neither Secrets nor seeds;
//   - `make try` (test/real/try) runs processes. What they do decides, at their pace: probes, exit codes and back-off
//     are real;
//   - the tests of hooks run nothing: they look at the command lines and environments that programs would get
//     (secrets.go).
package kubelet

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// What containers wait for, in the kubelet's words.
const (
	Initializing = "PodInitializing"
	BacksOff     = "CrashLoopBackOff"
	NoImage      = "ErrImagePull"
)

// Stage is how far the containers of a member's pod have come.
type Stage uint8

// The stages, in their order.
const (
	Unmounted    Stage = iota // a Secret or a ConfigMap is not there
	SeedUnpulled              // the image of the container that fills its data directory can't be had
	Unseeded                  // its data directory could not be filled
	AtGate                    // prepare waits until the epoch begins
	Refused                   // prepare found no data where there must be some
	Unpulled                  // the image of etcd can't be had
	Crashing                  // etcd ends again and again
	Running
)

// Report is what is told then of the containers prepare and etcd, and why in the words of what is in the way. Was is
// what was told of etcd before; only a container that was begun has an ID.
func (s Stage) Report(why string, was corev1.ContainerStatus) (prepare, etcd corev1.ContainerStatus) {
	etcd = corev1.ContainerStatus{Name: objects.ContainerEtcd, ContainerID: was.ContainerID,
		RestartCount: was.RestartCount, LastTerminationState: was.LastTerminationState}
	switch s {
	case Running:
		etcd.State.Running = &corev1.ContainerStateRunning{}
	case Crashing:
		etcd.State = Waits(BacksOff, why)
	case Unpulled:
		etcd.State = Waits(NoImage, why)
	default:
		etcd.State = Waits(Initializing, "")
	}
	if s != Running && was.ContainerID != "" {
		etcd.LastTerminationState = Ended(1, "")
		etcd.RestartCount = 1
	}
	return s.prepare(why), etcd
}

func (s Stage) prepare(why string) corev1.ContainerStatus {
	c := corev1.ContainerStatus{Name: objects.ContainerPrepare}
	switch s {
	case Unmounted: // Kubernetes says so in an event
		c.State = Waits(Initializing, "waits for "+why)
	case SeedUnpulled, Unseeded:
		c.State = Waits(Initializing, "")
	case AtGate:
		c.State.Running = &corev1.ContainerStateRunning{}
	case Refused:
		c.State = Waits(BacksOff, "")
		c.LastTerminationState = Ended(objects.ExitDataLost, "")
	default:
		c.State = Ended(0, "")
	}
	return c
}

// Waits is the state of a container that waits.
func Waits(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// Ended is the state of a container that has ended.
func Ended(code int32, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
}

// Phase is that of a pod whose etcd is reported so: it runs once a container of etcd was begun.
func Phase(etcd corev1.ContainerStatus) corev1.PodPhase {
	if etcd.ContainerID == "" {
		return corev1.PodPending
	}
	return corev1.PodRunning
}

// Ready are the conditions of a pod that is ready or not, since this moment if that is new.
func Ready(conditions []corev1.PodCondition, is bool, since metav1.Time) []corev1.PodCondition {
	now := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: since}
	if is {
		now.Status = corev1.ConditionTrue
	}
	i := slices.IndexFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == now.Type })
	if i >= 0 && conditions[i].Status == now.Status {
		return conditions
	}
	others := slices.DeleteFunc(conditions, func(c corev1.PodCondition) bool { return c.Type == now.Type })
	return append(others, now)
}

// Container is what is told of a container; nothing when nothing is.
func Container(all []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}
