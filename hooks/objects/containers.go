package objects

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// ownContainers are the names of all that Quorate puts into pods.
var ownContainers = []string{
	ContainerEtcd, ContainerPrepare, ContainerTrim, ContainerChown, ContainerSeed, containerTools,
	ContainerInspectData, ContainerSnapshot, ContainerInspect, ContainerDelete, ContainerStream,
	ContainerMirror, ContainerPromote,
}

// Injected reports whether a container was put into the pod by others.
func Injected(container string) bool { return !slices.Contains(ownContainers, container) }

// Statuses are those of the pod's containers in the order in which they start.
func Statuses(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// StatusOf is what is told of the pod's container of this name; all empty for nothing.
func StatusOf(pod *corev1.Pod, container string) corev1.ContainerStatus {
	if pod == nil {
		return corev1.ContainerStatus{}
	}
	for _, list := range [2][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return list[i]
			}
		}
	}
	return corev1.ContainerStatus{}
}

// Purpose is the name of the container that the pod of a Job, an inspection, a stream or a mirror is there for; empty
// for none of these.
func Purpose(pod *corev1.PodSpec) string {
	for i := range pod.Containers {
		switch name := pod.Containers[i].Name; name {
		case ContainerSnapshot, ContainerInspect, ContainerDelete, ContainerInspectData, ContainerStream,
			ContainerMirror, ContainerPromote:
			return name
		}
	}
	return ""
}

// LastEnd is how the container of this name ended last; nil while it has not.
func LastEnd(pod *corev1.Pod, container string) *corev1.ContainerStateTerminated {
	s := StatusOf(pod, container)
	return cmp.Or(s.State.Terminated, s.LastTerminationState.Terminated)
}

// Ready reports whether the pod's condition Ready is True.
func Ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
