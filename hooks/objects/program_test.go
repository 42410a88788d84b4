package objects

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestToolsAreOfQuoratesImage(t *testing.T) {
	c := ToolsContainer(Images{Image: "quorate:v1", ImagePullPolicy: corev1.PullNever}, corev1.ResourceRequirements{})
	if c.Image != "quorate:v1" || c.ImagePullPolicy != corev1.PullNever || c.Command[0] != "/quorate-snapshot" ||
		c.Args[1] != "--to=/var/run/quorate-tools/quorate-snapshot" {
		raw, _ := json.Marshal(c)
		t.Errorf("tools container %s", raw)
	}
}
