package world

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// What a mesh puts into a pod when it is made: a container that runs once and one that runs as long as the pod
// does, both before Quorate's own; and one beside etcd, which has ended with an error before. None of them has
// anything to do with the member.
const (
	meshInit    = "mesh-init"
	meshProxy   = "mesh-proxy"
	meshSidecar = "mesh-sidecar"
)

func (w *World) inject(pod *corev1.Pod) {
	if !w.Mesh {
		return
	}
	before := []corev1.Container{
		{Name: meshInit, Image: "mesh"},
		{Name: meshProxy, Image: "mesh", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	pod.Spec.InitContainers = append(before, pod.Spec.InitContainers...)
	pod.Spec.Containers = slices.Concat(pod.Spec.Containers, []corev1.Container{{Name: meshSidecar, Image: "mesh"}})
}

// meshTells puts what the kubelet tells of those containers before what it tells of Quorate's.
func (w *World) meshTells(pod *corev1.Pod) {
	last := pod.Spec.Containers[len(pod.Spec.Containers)-1]
	if last.Name != meshSidecar {
		return
	}
	init := slices.DeleteFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == meshInit || s.Name == meshProxy
	})
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}}
	ended := &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: pod.CreationTimestamp}
	pod.Status.InitContainerStatuses = append([]corev1.ContainerStatus{
		{Name: meshInit, State: kubelet.Ended(0, "")},
		{Name: meshProxy, State: runs, Started: new(true)},
	}, init...)
	beside := corev1.ContainerStatus{Name: meshSidecar, State: runs, RestartCount: 2, ContainerID: "containerd://mesh"}
	beside.LastTerminationState.Terminated = ended
	etcd := kubelet.Container(pod.Status.ContainerStatuses, objects.ContainerEtcd)
	if waits := etcd.State.Waiting; waits != nil && waits.Reason == kubelet.Initializing {
		beside = corev1.ContainerStatus{Name: meshSidecar, State: etcd.State}
	}
	pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{beside}, pod.Status.ContainerStatuses...)
}
