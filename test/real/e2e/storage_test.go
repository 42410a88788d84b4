//go:build e2e

package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestVolumes: what becomes of members when their volumes change, told on one cluster.
func TestVolumes(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  storage: {size: 256Mi, wal: {size: 512Mi}}\n")
	c.tell("TheLogOnAVolumeOfItsOwn", (*cluster).keepsItsLogElsewhere)
	c.tell("VolumesThatCantGrow", (*cluster).movesToLargerVolumes)
	c.tell("MembersMoveToAnotherClassAndGrow", (*cluster).movesToAnotherClass)
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
	c.edit(`{"storage":{"size":"512Mi"}}`)
	eventually(c.t, "the message names the choice", func() string {
		s := c.object().Status
		return while(s.Rule != "VolumePending", s.Rule)
	})
	m := c.object().Status.Members[0]
	if assert.NotNil(c.t, m.Volume) {
		assert.Contains(c.t, m.Volume.Message, "allowVolumeExpansion")
		assert.Equal(c.t, "512Mi", m.Volume.Wanted.String())
		assert.Equal(c.t, "256Mi", m.Volume.Capacity.String())
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
	c.onVolumes("512Mi", "local-path", 3)
	c.withQuota(384 << 20)
	for name := range c.ids() {
		assert.NotContains(c.t, before, name, "a successor has a name of its own")
	}
}

// movesToAnotherClass, and to smaller volumes. The lab's class expandable has volumes that grow; those of its default
// one don't.
func (c *cluster) movesToAnotherClass() {
	clusterID, w := c.object().Status.ClusterID, c.writes()
	c.edit(`{"storage":{"size":"256Mi","storageClassName":"expandable","wal":null,"migration":"Replace"}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("256Mi", "expandable", 3)
	c.withQuota(192 << 20)
	assert.Equal(c.t, clusterID, c.object().Status.ClusterID)
	c.grows()
}

func (c *cluster) grows() {
	before, w := c.ids(), c.writes()
	c.edit(`{"storage":{"size":"512Mi","migration":null}}`)
	c.converges(3)
	w.losesNothing()
	c.onVolumes("512Mi", "expandable", 3)
	c.withQuota(384 << 20)
	assert.Equal(c.t, before, c.ids(), "the same members, on larger volumes")
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
