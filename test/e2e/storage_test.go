//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// expandable is the lab's class whose volumes grow; those of its default one don't.
const expandable = "  storage: {size: 256Mi, storageClassName: expandable}\n"

func TestVolumesGrow(t *testing.T) {
	t.Parallel()
	for _, members := range []int{1, 3} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			c := newCluster(t, fmt.Sprintf("  replicas: %d\n  version: 3.6.16\n", members)+expandable)
			c.converges(members)
			before := c.ids()
			w := c.writes()
			c.edit(`{"storage":{"size":"512Mi"}}`)
			c.converges(members)
			w.losesNothing()
			c.onVolumes("512Mi", "expandable", members)
			c.withQuota(384 << 20)
			if members > 2 {
				assert.Equal(t, before, c.ids(), "the same members, on larger volumes")
			}
		})
	}
}

// TestVolumesThatCantGrow lets the API server refuse, then has the members replaced, and then goes back to small ones.
func TestVolumesThatCantGrow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {size: 256Mi}\n")
	c.converges(3)
	before := c.ids()
	c.edit(`{"storage":{"size":"512Mi"}}`)
	eventually(t, "the message names the choice", func() string {
		s := c.object().Status
		if s.Phase != "VolumePending" {
			return s.Phase
		}
		return ""
	})
	m := c.object().Status.Members[0]
	if assert.NotNil(t, m.Volume) {
		assert.Contains(t, m.Volume.Message, "allowVolumeExpansion")
		assert.Equal(t, "512Mi", m.Volume.Wanted.String())
		assert.Equal(t, "256Mi", m.Volume.Capacity.String())
	}
	assert.Equal(t, before, c.ids())
	c.edit(`{"additionalMetadata":{"labels":{"team":"a"}}}`)
	eventually(t, "what else is changed is changed all the same", func() string {
		for _, pod := range c.pods() {
			if pod.Labels["team"] != "a" {
				return pod.Name + " has no label"
			}
		}
		return ""
	})

	w := c.writes()
	c.edit(`{"storage":{"migration":"Replace"}}`)
	c.converges(3)
	c.onVolumes("512Mi", "local-path", 3)
	c.withQuota(384 << 20)
	for name := range c.ids() {
		assert.NotContains(t, before, name, "a successor has a name of its own")
	}
	c.edit(`{"storage":{"size":"256Mi"}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("256Mi", "local-path", 3)
	c.withQuota(192 << 20)
}

func TestMembersMoveToAnotherClass(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {size: 256Mi}\n")
	c.converges(3)
	clusterID := c.object().Status.ClusterID
	w := c.writes()
	c.edit(`{"storage":{"storageClassName":"expandable","migration":"Replace"}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("256Mi", "expandable", 3)
	assert.Equal(t, clusterID, c.object().Status.ClusterID)
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

// TestTheLogOnAVolumeOfItsOwn: a member comes back on both of its volumes, is replaced when that of the log is lost, and the logs go
// back to where the data is.
func TestTheLogOnAVolumeOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {size: 256Mi, wal: {size: 512Mi}}\n")
	c.converges(3)
	c.claims(6)
	before := c.ids()
	w := c.writes()
	kube(t, "-n", c.ns, "delete", "pod", "demo-1")
	c.converges(3)
	assert.Equal(t, before, c.ids(), "the same member, on both of its volumes")

	kube(t, "-n", c.ns, "delete", "pvc", "demo-1-wal", "--wait=false")
	kube(t, "-n", c.ns, "delete", "pod", "demo-1", "--wait=false")
	eventually(t, "the member was replaced", func() string {
		if _, there := c.ids()["demo-1"]; there {
			return "demo-1 is still a member"
		}
		return c.notConverged(3)
	})
	c.claims(6)

	c.edit(`{"storage":{"wal":null,"migration":"Replace"}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("256Mi", "local-path", 3)
}
