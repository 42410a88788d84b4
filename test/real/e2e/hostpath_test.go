//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestMembersOnNodes: each member has a node and a directory there. A deleted pod finds its data on its node; a
// member whose directory is emptied under load is succeeded by another one, in a directory of its own.
func TestMembersOnNodes(t *testing.T) {
	beside(t)
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

// TestOnTheHostsNetwork: members have the addresses of their nodes, and ports of the spec. A deleted pod comes back at
// its address; a lost member is succeeded by another one at the same address, under another URL.
func TestOnTheHostsNetwork(t *testing.T) {
	beside(t)
	c := inNamespace(t)
	require.ErrorContains(t, c.tries(c.manifest(three+hostNetwork(24790, 3))), "hostNetwork is for the media HostPath")
	c.apply(three + hostNetwork(24790, 3) + "  storage: {medium: Memory, size: 256Mi}\n")
	c.converges(3)
	require.ErrorContains(t, c.edits(`{"hostNetwork":null}`), "hostNetwork can't be added or removed later")
	var urls []string
	for n := range 3 {
		urls = append(urls, "https://"+objects.HostPort(addressOf(n+1), 24790))
	}
	assert.Equal(t, urls, c.object().Status.Connection.Endpoints[1:])
	app := labClient(t, rereading(c.ns, name+"-client-tls"), nil, urls...)
	w := c.writesWith(app, "key")
	c.onNodes(map[string]string{"demo-0": "node1", "demo-1": "node2", "demo-2": "node3"})
	assert.Equal(t, addressOf(2), c.pods()[1].Status.PodIP)

	c.kills("demo-1") // on Memory it is lost with that
	successor := c.succeeds("demo-1", func() {})
	c.onNodes(map[string]string{"demo-0": "node1", successor: "node2", "demo-2": "node3"})
	list, err := app.MemberList(t.Context())
	require.NoError(t, err)
	for _, m := range list.Members {
		if m.Name == successor {
			at := objects.HostPort(addressOf(2), 24791)
			assert.Equal(t, []string{"https://" + successor + "." + c.ns + "@" + at}, m.PeerURLs)
		}
	}
	w.losesNothing()
}

// hostNetwork is the field for the lab's first nodes, with ports from this one on.
func hostNetwork(port, nodes int) string {
	var list []string
	for n := range nodes {
		list = append(list, fmt.Sprintf("{name: node%d, address: '%s'}", n+1, addressOf(n+1)))
	}
	return fmt.Sprintf("  hostNetwork: {clientPort: %d, peerPort: %d, metricsPort: %d, nodes: [%s]}\n", port, port+1,
		port+2, strings.Join(list, ", "))
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
