//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestVolumes: what becomes of members when their volumes change, told on one cluster.
func TestVolumes(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  storage: {size: 512Mi, wal: {size: 512Mi}}\n")
	c.tell("TheLogOnAVolumeOfItsOwn", (*cluster).keepsItsLogElsewhere)
	c.tell("VolumesThatCantGrow", (*cluster).movesToLargerVolumes)
	c.tell("MembersMoveToAnotherClassAndGrow", (*cluster).movesToAnotherClass)
	c.tell("VolumesGrowByThemselves", (*cluster).growByThemselves)
}

// keepsItsLogElsewhere: a member comes back on both of its volumes, and is replaced when that of the log is lost.
func (c *cluster) keepsItsLogElsewhere() {
	c.claims(6)
	before := c.ids()
	w := c.writes()
	pod := c.pods()[1]
	c.deletes("pods", pod.Name)
	c.another(pod)
	c.converges(3)
	assert.Equal(c.t, before, c.ids(), "the same member, on both of its volumes")

	c.deletes("pvc", "demo-1-wal")
	c.deletes("pods", "demo-1")
	c.succeeds("demo-1", func() {})
	c.claims(6)
	w.losesNothing()
}

// movesToLargerVolumes lets the API server refuse, then has the members replaced, which brings their logs back to
// where the data is.
func (c *cluster) movesToLargerVolumes() {
	before := c.ids()
	c.edit(`{"storage":{"size":"1Gi"}}`)
	eventually(c.t, "the message names the choice", func() string {
		s := c.object().Status
		return while(s.Rule != "VolumePending", s.Rule)
	})
	m := c.object().Status.Members[0]
	if assert.NotNil(c.t, m.Volume) {
		assert.Contains(c.t, m.Volume.Message, "allowVolumeExpansion")
		assert.Equal(c.t, "1Gi", m.Volume.Wanted.String())
		assert.Equal(c.t, "512Mi", m.Volume.Capacity.String())
	}
	assert.Equal(c.t, before, c.ids())
	c.edit(`{"additionalMetadata":{"labels":{"team":"a"}}}`)
	eventually(c.t, "what else is changed is changed all the same", func() string {
		for _, pod := range c.pods() {
			if pod.Labels["team"] != "a" {
				return pod.Name + " has no label"
			}
		}
		return ""
	})

	w := c.writes()
	c.edit(`{"storage":{"wal":null,"migration":"Replace"}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("1Gi", "local-path", 3)
	c.withQuota(256 << 20)
	for name := range c.ids() {
		assert.NotContains(c.t, before, name, "a successor has a name of its own")
	}
}

// movesToAnotherClass, and to smaller volumes. The lab's class expandable has volumes that grow; those of its default
// one don't.
func (c *cluster) movesToAnotherClass() {
	clusterID, w := c.object().Status.ClusterID, c.writes()
	c.edit(`{"storage":{"size":"512Mi","storageClassName":"expandable","wal":null,"migration":"Replace"}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("512Mi", "expandable", 3)
	c.withQuota(33030144)
	assert.Equal(c.t, clusterID, c.object().Status.ClusterID)
	c.grows()
}

func (c *cluster) grows() {
	before, w := c.ids(), c.writes()
	c.edit(`{"storage":{"size":"1Gi","migration":null}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("1Gi", "expandable", 3)
	c.withQuota(256 << 20)
	assert.Equal(c.t, before, c.ids(), "the same members, on larger volumes")
}

// growByThemselves: 210 MiB are 80 % of the quota on 1Gi.
func (c *cluster) growByThemselves() {
	before, w := c.ids(), c.writes()
	c.edit(`{"storage":{"autoGrow":{"max":"3Gi"}}}`)
	c.holds(215)
	const quota = 688 << 20 // no generation tells of it: the status may still be that from before
	eventually(c.t, "volumes grow, and members start with what they have room for", func() string {
		for _, pod := range c.pods() {
			if !slices.Contains(pod.Spec.Containers[0].Command, fmt.Sprintf("--quota-backend-bytes=%d", quota)) {
				return pod.Name + " has another quota"
			}
		}
		return ""
	})
	c.converges(3)
	w.losesNothing()
	c.onVolumes("2Gi", "expandable", 3)
	c.withQuota(quota)
	assert.Equal(c.t, before, c.ids(), "the same members, on larger volumes")
	assert.Equal(c.t, "1Gi", c.object().Spec.Storage.Size.String(), "the spec stays what a person has said")
}

// onVolumes insists that there are as many claims as members, and each is as it should be.
func (c *cluster) onVolumes(size, class string, n int) {
	c.t.Helper()
	for _, claim := range c.claims(n) {
		assert.Equal(c.t, size, claim.Status.Capacity.Storage().String(), claim.Name)
		assert.Equal(c.t, class, *claim.Spec.StorageClassName, claim.Name)
	}
	for _, m := range c.object().Status.Members {
		assert.Nil(c.t, m.Volume, m.Name)
	}
}

func (c *cluster) withQuota(bytes int64) {
	c.t.Helper()
	for _, pod := range c.pods() {
		assert.Contains(c.t, pod.Spec.Containers[0].Command, fmt.Sprintf("--quota-backend-bytes=%d", bytes), pod.Name)
	}
}

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
	c.apply(three + fmt.Sprintf("  storage: {medium: HostPath, size: 512Mi, hostPath: {path: %s, nodes: [node3, "+
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
	c.apply(three + hostNetwork(24790, 3) + "  storage: {medium: Memory, size: 512Mi}\n")
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
