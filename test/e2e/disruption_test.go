//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

// These stories disturb the whole lab, so they are told one at a time, before the parallel ones.

func TestQuorateAndMetacontrollerRestartInTheMiddleOfAChange(t *testing.T) {
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	c.edit(`{"replicas":5}`)
	eventually(t, 30*time.Second, "the change is under way", func() string {
		if len(c.object().Status.Members) < 4 {
			return "three members"
		}
		return ""
	})
	kube(t, "-n", quorateNamespace, "delete", "pods", "-l", "app.kubernetes.io/name=quorate", "--grace-period=0", "--force")
	killsMetacontroller(t)
	c.converges(5, 180*time.Second)
	w.losesNothing()
}

func TestDrainNodesOneAfterTheOther(t *testing.T) {
	var all corev1.NodeList
	read(t, "/api/v1/nodes", &all)
	nodes := all.Items
	if len(nodes) < 3 {
		t.Fatalf("this story needs 3 nodes, the lab has %d: NODES=3 make lab-up", len(nodes))
	}
	c := newCluster(t, three+"  storage: {medium: Memory, size: 128Mi}\n")
	c.converges(3, 60*time.Second)
	on := map[string]bool{}
	for _, pod := range c.pods() {
		on[pod.Spec.NodeName] = true
	}
	assert.Len(t, on, 3, "members are spread over the nodes")
	w := c.writes()
	// Node 1 carries the control plane of the lab; the others are drained as an administrator would, one after the other.
	for _, node := range nodes[1:] {
		kube(t, "drain", node.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector=etcd.quorate.dev/cluster="+name, "--timeout=120s")
		c.converges(3, 120*time.Second)
		kube(t, "uncordon", node.Name)
	}
	w.losesNothing()
}

func TestSteadyStateWritesNothing(t *testing.T) {
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	rest := 40 * time.Second // a whole resync period of the controller, and more
	if os.Getenv("QUORATE_BENCH") != "" {
		rest = 2 * time.Minute
	}
	var before, after map[string]string
	for range 3 {
		before = c.settles()
		assert.GreaterOrEqual(t, len(before), 12, "Metacontroller's writes are not recognised: %v", before)
		decided := fmt.Sprint(c.object().Status.History, c.object().Status.Leader)
		<-time.After(rest)
		after = writesIn(t, c.ns)
		if now := c.object().Status; decided == fmt.Sprint(now.History, now.Leader) {
			break // nothing has happened that would have been worth a word
		}
		t.Log("etcd elected, or a member did not answer in time: once more")
	}
	assert.Equal(t, before, after, "something of ours was written although nothing has changed")
}

// settles waits until nothing of ours is written any more, and returns the last writes.
func (c *cluster) settles() (writes map[string]string) {
	c.t.Helper()
	eventually(c.t, 60*time.Second, "the last write of ours is over", func() string {
		last := writes
		writes = writesIn(c.t, c.ns)
		if len(last) == 0 || fmt.Sprint(last) != fmt.Sprint(writes) {
			<-time.After(5 * time.Second)
			return "objects still change"
		}
		return ""
	})
	return writes
}
