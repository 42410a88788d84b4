//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWhatKubernetesRefusesIsSaid: the status names the object, and the plugin says why.
func TestWhatKubernetesRefusesIsSaid(t *testing.T) {
	beside(t)
	t.Run("AStorageClassThatDoesNotExist", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  storage: {storageClassName: nowhere}\n")
		c.decides("Start", "demo-0: no node accepts its pod: 0/")
		c.decides("Start", "its claim has no volume of storage class nowhere: ")
	})
	refuses := func(c *cluster, rule string, words ...string) {
		t, quorate := c.t, plugin(c.t)
		t.Helper()
		_, command, _ := strings.Cut(c.decides(rule, "Kubernetes has not created Pod demo-0: `kubectl quorate status -n "),
			"`kubectl quorate ")
		command, _, _ = strings.Cut(command, "`")
		screen, errs, code := quorate(strings.Fields(command)...)
		assert.Zero(t, code, errs)
		screen = strings.Join(strings.Fields(screen), " ")
		for _, want := range append(words, "Pod demo-0 is not there, asked for ", "Metacontroller said ") {
			assert.Contains(t, screen, want)
		}
	}
	t.Run("APriorityClassThatDoesNotExist", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  priorityClassName: nowhere\n")
		refuses(c, "Start", "no PriorityClass with name nowhere was found")
		c.edit(`{"priorityClassName":null}`)
		c.converges(1)
	})
	// Of one object, Metacontroller tells no more than 25 such events in a short time: this is another one.
	t.Run("AQuotaThatIsFull", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n")
		c.converges(1)
		kube(t, "create", "quota", "none", "--hard=pods=0", "-n", c.ns)
		c.deletes("pods", "demo-0")
		refuses(c, "Blind", `pods "demo-0" is forbidden`)
		kube(t, "delete", "quota", "none", "-n", c.ns)
		c.converges(1)
		assert.Empty(t, c.object().Status.Internal.Awaited)
		assert.Equal(t, "3.6.16", c.object().Status.Running)
	})
}
