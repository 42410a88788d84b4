package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
)

// TestAnInitContainerThatEnds: it is named, and so is what killed it.
func TestAnInitContainerThatEnds(t *testing.T) {
	killed := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}
	pod := &corev1.Pod{Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
		{Name: objects.ContainerPrepare, State: corev1.ContainerState{Terminated: killed}}}}}
	assert.Equal(t, "exit 137, OOMKilled of its init container prepare", pods.EndOf(pod, killed))
	assert.Equal(t, "exit 1", pods.EndOf(pod, &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}))
}
