//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestDisruptions tells what disturbs the whole lab: by itself, before the parallel ones.
func TestDisruptions(t *testing.T) {
	c := newCluster(t, three+"  storage: {medium: Memory, size: 128Mi}\n")
	c.tell("DrainNodesOneAfterTheOther", (*cluster).isDrained)
	c.tell("NoMemberIsEvictedWhileNoQuorumIsReady", (*cluster).keepsThoseThatAreNotReady)
	c.tell("QuorateAndMetacontrollerRestartInTheMiddleOfAChange", (*cluster).changesWithoutQuorate)
}

// evicts a pod as a drain does; the budget may refuse it.
func (c *cluster) evicts(pod string) error {
	_, err := kubectl(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}}`, pod),
		"create", "--raw", fmt.Sprintf(paths["pods"], c.ns)+"/"+pod+"/eviction", "-f", "-")
	return err
}

// keepsThoseThatAreNotReady: their data is in memory, so an eviction would take it away.
func (c *cluster) keepsThoseThatAreNotReady() {
	w, before := c.writes(), c.uids()
	c.whileOthersAreFrozen(c.leader(), func() {
		for member := range before {
			eventually(c.t, member+" is not ready", func() string {
				pod, _ := get[corev1.Pod](c.t, c.ns, "pods", member)
				return while(objects.StatusOf(pod, objects.ContainerEtcd).Ready, "it is")
			})
		}
		eventually(c.t, "the budget knows", func() string {
			for _, b := range list[policyv1.PodDisruptionBudget](c.t, c.ns, "pdb") {
				if b.Status.CurrentHealthy >= b.Status.DesiredHealthy {
					return fmt.Sprintf("%+v", b.Status)
				}
			}
			return ""
		})
		for member := range before {
			require.ErrorContains(c.t, c.evicts(member), "disruption budget", member)
		}
	})
	c.converges(3)
	assert.Equal(c.t, before, c.uids())
	w.losesNothing()
}

func (c *cluster) changesWithoutQuorate() {
	w := c.writes()
	c.edit(`{"replicas":5}`)
	eventually(c.t, "the change is under way", func() string {
		return while(len(c.object().Status.Members) < 4, "three members")
	})
	require.NoError(c.t, noViolations(), "those who leave take what they have counted with them")
	kube(c.t, "-n", quorateNamespace, "delete", "pods", "-l", "app.kubernetes.io/name=quorate", "--grace-period=0",
		"--force")
	killsMetacontroller(c.t)
	c.converges(5)
	w.losesNothing()
}

func (c *cluster) isDrained() {
	var all corev1.NodeList
	read(c.t, "/api/v1/nodes", &all)
	nodes := all.Items
	if len(nodes) < 3 {
		c.t.Fatalf("this story needs 3 nodes, the lab has %d: NODES=3 make lab-up", len(nodes))
	}
	on := map[string]bool{}
	for _, pod := range c.pods() {
		on[pod.Spec.NodeName] = true
	}
	assert.Len(c.t, on, 3, "members are spread over the nodes")
	w := c.writes()
	// Node 1 carries the control plane of the lab; the others are drained as an administrator would, one after the
	// other.
	for _, node := range nodes[1:] {
		c.t.Cleanup(func() { _, _ = kubectl("", "uncordon", node.Name) }) // where the drain fails
		kube(c.t, "drain", node.Name, "--ignore-daemonsets", "--delete-emptydir-data",
			"--pod-selector=etcd.quorate.dev/cluster="+name)
		c.converges(3)
		kube(c.t, "uncordon", node.Name)
	}
	w.losesNothing()
}

// restsInSilence looks at what was written last before and after Quorate has decided some more times, as it does at
// each resync of Metacontroller's.
func (c *cluster) restsInSilence() {
	looks := 2
	if os.Getenv("QUORATE_BENCH") != "" {
		looks = 4
	}
	var before string
	eventually(c.t, "nothing has happened that would be worth a word", func() string {
		writes := writesIn(c.t, c.ns)
		assert.GreaterOrEqual(c.t, len(writes), 12, "Metacontroller's writes are not recognised: %v", writes)
		settled := before == fmt.Sprint(writes)
		if before = fmt.Sprint(writes); !settled {
			c.decidesAgain()
			return "the last write is a moment ago"
		}
		for range looks {
			c.decidesAgain()
		}
		now, status := writesIn(c.t, c.ns), fmt.Sprintf("%s etcdcluster/%s status", c.ns, name)
		// the API server takes no write of what it has: etcd elected, or a member did not answer in time
		if now[status] != writes[status] {
			return "the status has changed: " + fmt.Sprintf("%+v", c.object().Status)
		}
		assert.Equal(c.t, writes, now, "something of ours was written although nothing has changed")
		return ""
	})
}

// decidesAgain waits until Quorate has decided about the cluster once more.
func (c *cluster) decidesAgain() {
	c.t.Helper()
	newest := func() (at float64, err error) {
		all, err := quorateMetrics()
		for _, metrics := range all {
			at = max(at, sample(metrics,
				fmt.Sprintf("quorate_cluster_decided_timestamp_seconds{cluster=%q,namespace=%q}", name, c.ns)))
		}
		return at, err
	}
	var last float64
	eventually(c.t, "Quorate has decided again", func() string {
		switch at, err := newest(); {
		case err != nil:
			return err.Error()
		case last == 0:
			last = at
			return "it is asked for the first time"
		case at == last:
			return fmt.Sprintf("not since %.0f", at)
		}
		return ""
	})
}
