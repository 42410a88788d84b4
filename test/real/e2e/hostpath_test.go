//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestMembersOnNodes: each member has a node and a directory there. A deleted pod finds its data on its node; a
// member whose directory is emptied under load is succeeded by another one, in a directory of its own.
func TestMembersOnNodes(t *testing.T) {
	t.Parallel()
	c := inNamespace(t)
	root := "/var/tmp/quorate-" + c.ns
	t.Cleanup(func() { // the lab's nodes share this machine's disk
		if !*keep || !t.Failed() {
			_ = os.RemoveAll(root)
		}
	})
	c.apply(three + fmt.Sprintf("  storage: {medium: HostPath, size: 256Mi, hostPath: {path: %s, nodes: [node3, "+
		"node1, node2]}}\n", root))
	c.converges(3)
	c.onNodes(map[string]string{"demo-0": "node3", "demo-1": "node1", "demo-2": "node2"})
	assert.Empty(t, list[corev1.PersistentVolumeClaim](t, c.ns, "pvc"))
	before := c.ids()
	w := c.writes()
	pod := c.pods()[1]
	c.deletes("pods", pod.Name)
	c.another(pod)
	c.converges(3)
	c.onNodes(map[string]string{"demo-0": "node3", "demo-1": "node1", "demo-2": "node2"})
	assert.Equal(t, before, c.ids(), "the same member, on its node")

	c.spoil("demo-1", emptied) // with its pod gone too, its data is known to be lost, and no time is waited for
	c.deletes("pods", "demo-1")
	successor := c.succeeds("demo-1", func() {})
	c.onNodes(map[string]string{"demo-0": "node3", "demo-2": "node2", successor: "node1"})
	w.losesNothing()
	for _, member := range []string{"demo-1", successor} {
		found, err := filepath.Glob(filepath.Join(root, c.ns+"-demo-*", member))
		require.NoError(t, err)
		assert.Len(t, found, 1, "%s has a directory of its own, which stays", member)
	}

	before = c.ids()
	c.stops()
	c.edit(`{"replicas":3}`)
	c.converges(3)
	assert.Equal(t, before, c.ids(), "the same members after a pause")
}

// onNodes insists that these are the members' pods, and their nodes.
func (c *cluster) onNodes(wanted map[string]string) {
	c.t.Helper()
	nodes := map[string]string{}
	for _, pod := range c.pods() {
		nodes[pod.Name] = pod.Spec.NodeName
	}
	assert.Equal(c.t, wanted, nodes)
}
