package facts

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// What the containers of pods tell. A mesh, as any admission webhook may, puts containers of its own into them:
// beside etcd, at the front too; before it, to run once; and before it, to run on for as long as the pod does. So
// every container is looked for by its name.

// Running reports whether the pod's etcd runs, as last observed.
func Running(pod *corev1.Pod) bool {
	return objects.StatusOf(pod, objects.ContainerEtcd).State.Running != nil
}

// NeverRan reports whether the pod's etcd has not run yet, as when its image can't be pulled.
func NeverRan(pod *corev1.Pod) bool {
	return !HasStarted(pod) && !endedBefore(objects.StatusOf(pod, objects.ContainerEtcd))
}

// HasStarted reports whether the pod's etcd runs, or has and is not waited for.
func HasStarted(pod *corev1.Pod) bool {
	etcd := objects.StatusOf(pod, objects.ContainerEtcd)
	return etcd.Name != "" && etcd.State.Waiting == nil
}

func endedBefore(s corev1.ContainerStatus) bool {
	return s.LastTerminationState.Terminated != nil || s.RestartCount > 0
}

// Crashing reports whether etcd ends again and again.
func Crashing(pod *corev1.Pod) bool {
	waits := objects.StatusOf(pod, objects.ContainerEtcd).State.Waiting
	return waits != nil && waits.Reason == "CrashLoopBackOff"
}

// ContainerOf is the ID of the container that runs etcd, or ran last; empty while there has been none.
func ContainerOf(pod *corev1.Pod) string {
	return objects.StatusOf(pod, objects.ContainerEtcd).ContainerID
}

// PrepareRefused reports whether the pod's init container found the data directory empty that must not be, when it
// ended last: where it has succeeded since, the data is there.
func PrepareRefused(pod *corev1.Pod) bool {
	prepare := objects.StatusOf(pod, objects.ContainerPrepare)
	ended := prepare.State.Terminated
	if ended == nil {
		ended = prepare.LastTerminationState.Terminated
	}
	return ended != nil && ended.ExitCode == objects.ExitDataLost
}

// foundNothing reports whether the pod's init container has found no data where etcd will have its own.
func foundNothing(pod *corev1.Pod) bool {
	ended := objects.StatusOf(pod, objects.ContainerPrepare).State.Terminated
	return ended != nil && ended.ExitCode == 0 && ended.Message == objects.NothingFound
}

// stuck reports whether the pod's containers can't go on as the pod is: no node takes it, or an image can't be pulled,
// or its etcd ends again and again.
func stuck(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && !Gated(pod) || Unpulled(&Member{Pod: pod}) != "" || Crashing(pod)
}

// Prepares reports whether an init container of Quorate's is at work. One of a mesh's may be as long as the pod
// lives.
func Prepares(pod *corev1.Pod) bool {
	return pod != nil && slices.ContainsFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return !objects.Injected(s.Name) && s.State.Running != nil
	})
}

// Unpulled tells of a container that can't be made. The two reasons for an image take turns; the words stay.
func Unpulled(m *Member) string {
	for _, s := range objects.Statuses(m.Pod) {
		if s.State.Waiting == nil {
			continue
		}
		of := "its"
		if objects.Injected(s.Name) {
			of = fmt.Sprintf("the injected container %s's", s.Name)
		}
		switch why := s.State.Waiting.Reason; why {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError",
			"RegistryUnavailable", "SignatureValidationFailed":
			return of + " image can't be pulled" + objects.Colon(objects.Kubelet(s.State.Waiting.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			who := "its container"
			if objects.Injected(s.Name) {
				who = "the injected container " + s.Name
			}
			return fmt.Sprintf("%s can't be created: %s", who, why) +
				objects.Colon(objects.Kubelet(s.State.Waiting.Message))
		}
	}
	return ""
}

// CrashesBefore tells of an init container, put there by others, that ends with an error, so that etcd is not started.
func CrashesBefore(m *Member) string {
	if HasStarted(m.Pod) {
		return ""
	}
	for _, s := range m.Pod.Status.InitContainerStatuses {
		if t := lastEnd(s); objects.Injected(s.Name) && t != nil && t.ExitCode != 0 && s.State.Running == nil {
			return fmt.Sprintf("the injected container %s, which comes before etcd, crashes: exit %d", s.Name,
				t.ExitCode)
		}
	}
	return ""
}

// Failures are the last ends of the pod's own containers that ended with an error.
func Failures(pod *corev1.Pod) []*corev1.ContainerStateTerminated {
	var ends []*corev1.ContainerStateTerminated
	for _, s := range objects.Statuses(pod) {
		if t := lastEnd(s); !objects.Injected(s.Name) && t != nil && t.ExitCode != 0 {
			ends = append(ends, t)
		}
	}
	return ends
}

// lastEnd is how the container ended when it last did; nil for never.
func lastEnd(s corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.LastTerminationState.Terminated != nil {
		return s.LastTerminationState.Terminated
	}
	return s.State.Terminated
}
