package snapshot

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestReportsInAMesh: what a Job's container has told is found beside containers that a mesh puts before it.
func TestReportsInAMesh(t *testing.T) {
	crashed := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137}}
	for _, container := range []string{objects.ContainerSnapshot, objects.ContainerLook, objects.ContainerDiscard} {
		end := &corev1.ContainerStateTerminated{ExitCode: 1, Message: `{"error": "the store refuses"}`}
		pod := &corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "mesh-sidecar"}, {Name: container}}},
			Status: corev1.PodStatus{
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "mesh-proxy", State: crashed}},
				ContainerStatuses: []corev1.ContainerStatus{
					{Name: "mesh-sidecar", State: crashed},
					{Name: container, State: corev1.ContainerState{Terminated: end}},
				},
			},
		}
		assert.Equal(t, container, objects.Purpose(&pod.Spec))
		assert.Equal(t, end, terminated(pod, objects.Purpose(&pod.Spec)))
		assert.Equal(t, "the store refuses", lastWords(pod))
		pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
		assert.Contains(t, lastWords(pod), "container mesh-proxy ended with code 137", "where ours say nothing")
	}
}
