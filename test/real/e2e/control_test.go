//go:build e2e

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// TestOneMember: stories for which one member is enough, told on one cluster.
func TestOneMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n")
	c.tell("NoOneWithoutTheRightCertificate", (*cluster).letsNoOneElseIn)
	c.tell("EverythingIsDistrustedAtOnce", (*cluster).distrustsEverything)
	c.tell("ASingleMemberIsSucceededWithoutAPause", (*cluster).succeedsItsOnlyMember)
	c.tell("AProtectedClusterIsNotDeleted", (*cluster).isNotDeleted)
}

func (c *cluster) fencesAMember() {
	w := c.writes()
	ids, leader := c.ids(), c.leader()

	c.operates("fence", "type: Fence, fence: {members: ["+leader+"]}")
	c.decides("WaitForMembers", leader+" stopped by an EtcdOperation of type Fence")
	require.Equal(c.t, leader+" is stopped; until this EtcdOperation is deleted",
		c.hasOperation("fence", v1alpha1.OperationRunning))
	c.hasPods(2)
	assert.Len(c.t, list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc"), 3)
	assert.Equal(c.t, ids, c.ids())

	c.withdraws("fence")
	c.converges(3)
	assert.Equal(c.t, ids, c.ids(), "the same members")
	w.losesNothing()

	history := c.object().Status.History
	assert.LessOrEqual(c.t, len(history), 20)
	steps := ""
	for _, entry := range history {
		steps += entry.Rule + " " + entry.Step + "; "
	}
	assert.Regexp(c.t, "WaitForMembers .*; Converged ;", steps, "the status remembers what was done, and by which rule")
}

func (c *cluster) isNotDeleted() {
	c.edit(`{"deletionProtection":true,"deletionPolicy":"Retain"}`)
	c.converges(1)
	w := c.writes()
	out, err := kubectl("", "-n", c.ns, "delete", "etcdcluster", name, "--wait=false")
	require.Error(c.t, err)
	assert.Contains(c.t, out+err.Error(), "is protected against deletion; set spec.deletionProtection to false first")
	w.losesNothing()

	c.edit(`{"deletionProtection":false}`)
	kube(c.t, "-n", c.ns, "delete", "etcdcluster", name)
	c.hasPods(0)
	claims := list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc")
	require.Len(c.t, claims, 1, "deletionPolicy Retain")
	assert.Empty(c.t, claims[0].OwnerReferences)
	assert.Equal(c.t, corev1.ClaimBound, claims[0].Status.Phase)
	assert.Equal(c.t, name, claims[0].Annotations["etcd.quorate.dev/retained-of"])
}
