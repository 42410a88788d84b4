//go:build e2e

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestDisruptions tells what disturbs the whole lab: by itself, before the parallel ones.
func TestDisruptions(t *testing.T) {
	c := newCluster(t, three+"  storage: {medium: Memory, size: 512Mi}\n")
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

func needsNodes(t *testing.T, n int) []corev1.Node {
	t.Helper()
	var nodes corev1.NodeList
	read(t, "/api/v1/nodes", &nodes)
	if len(nodes.Items) < n {
		t.Fatalf("this story needs %d nodes, the lab has %d: make lab-down, then this again with NODES=%d", n,
			len(nodes.Items), n)
	}
	return nodes.Items
}

func (c *cluster) isDrained() {
	nodes := needsNodes(c.t, 3)
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

// mutates has the API server change what members' pods in a namespace request, as a VerticalPodAutoscaler's webhook
// does.
const mutates = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions:
  - {name: member, expression: "'%[2]s' in object.metadata.labels"}
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "replace", path: "/spec/containers/0/resources/requests/cpu", value: "77m"}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`

// isScaledVertically in the way of a VerticalPodAutoscaler: that finds the pods by the scale subresource, evicts one,
// and changes the requests of the next one. Quorate takes that pod as it is.
func (c *cluster) isScaledVertically() {
	var scale autoscalingv1.Scale
	require.True(c.t, read(c.t, c.path()+"/scale", &scale))
	assert.Equal(c.t, int32(3), scale.Spec.Replicas)
	assert.Equal(c.t, int32(3), scale.Status.Replicas)
	var found corev1.PodList
	read(c.t, fmt.Sprintf(paths["pods"], c.ns)+"?labelSelector="+url.QueryEscape(scale.Status.Selector), &found)
	assert.ElementsMatch(c.t, podNames(c.pods()), podNames(found.Items))

	policy := fmt.Sprintf(mutates, c.ns, objects.LabelMember)
	c.adds(policy)
	ends := func() error { _, err := kubectl(policy, "delete", "--ignore-not-found", "-f", "-"); return err }
	c.t.Cleanup(func() { _ = ends() })
	probe := fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: probe, labels: {%q: probe}},
spec: {containers: [{name: a, image: a, resources: {requests: {cpu: 1m}}}]}}`, objects.LabelMember)
	eventually(c.t, "pods are changed when they are made", func() string {
		cpu, err := kubectl(probe, "-n", c.ns, "create", "--dry-run=server", "-f", "-", "-o",
			"jsonpath={.spec.containers[0].resources.requests.cpu}")
		return while(err != nil || cpu != "77m", fmt.Sprint(cpu, err))
	})

	w, ids, pod := c.writes(), c.ids(), c.pods()[0]
	eventually(c.t, "the budget lets "+pod.Name+" go", func() string {
		if now, found := get[corev1.Pod](c.t, c.ns, "pods", pod.Name); !found || now.UID != pod.UID {
			return "" // the answer was lost
		}
		err := c.evicts(pod.Name)
		return failure(err)
	})
	c.another(pod)
	c.converges(3)
	before := c.uids()
	for _, p := range c.pods() {
		cpu := p.Spec.Containers[0].Resources.Requests.Cpu().String()
		assert.Equal(c.t, p.Name == pod.Name, cpu == "77m", "%s requests %s", p.Name, cpu)
	}
	require.NoError(c.t, ends())
	c.decidesAgain()
	c.converges(3)
	assert.Equal(c.t, before, c.uids(), "it is no reason to restart a member")
	assert.Equal(c.t, ids, c.ids())
	w.losesNothing()
}

var comeAndGo = flag.Duration("nodes.for", 30*time.Minute, "how long nodes come and go")

// TestNodesComeAndGo as an autoscaler has them, under a writer: each minute a node is drained, deleted and replaced by
// a new one, and each fifth time three at once. Members in memory follow. It needs a lab with five nodes.
func TestNodesComeAndGo(t *testing.T) {
	needsNodes(t, labNodes)
	t.Cleanup(func() { kube(t, "uncordon", "node1") })
	kube(t, "cordon", "node1") // it stays, as it has the control plane, and members would gather on it
	c := newCluster(t, three+"  storage: {medium: Memory, size: 512Mi}\n")
	c.converges(3)
	w, clusterID := c.writes(), c.object().Status.ClusterID
	gone := 0
	for n, end := 0, time.Now().Add(*comeAndGo); time.Now().Before(end); n++ {
		next, together := time.After(time.Minute), 1
		if n%5 == 4 {
			together = 3
		}
		nodes := make([]int, 0, together)
		for range together {
			nodes = append(nodes, 2+gone%(labNodes-1))
			gone++
		}
		replaces(t, nodes...)
		<-next
	}
	c.converges(3)
	w.losesNothing()
	assert.Empty(t, w.refused)
	assert.Equal(t, clusterID, c.object().Status.ClusterID)
	t.Logf("%d nodes have gone, and as many have come", gone)
}

// TestTwoOfThreeNodesAreLost: while they are away nothing is begun, and after spec.recovery.after the status says which
// command there is. When they are back, so is everything. It needs a lab with five nodes.
func TestTwoOfThreeNodesAreLost(t *testing.T) {
	c := onNodesThatDie(t)
	w, ids := c.writes(), c.ids()
	comeBack := c.losesTheNodesOf(c.pods()[0].Name, c.pods()[1].Name)
	comeBack()
	c.converges(3)
	assert.Equal(t, ids, c.ids())
	w.losesNothing()
}

// TestTwoOfThreeNodesStayDead, with their volumes: docs/how-to/recover-quorum.md from its first step to its last.
func TestTwoOfThreeNodesStayDead(t *testing.T) {
	c := onNodesThatDie(t)
	w, clusterID := c.writes(), c.object().Status.ClusterID
	w.wrote(30)
	survivor, others := c.follower()
	sure := c.shares(survivor, w)
	comeBack := c.losesTheNodesOf(others...)
	t.Cleanup(comeBack)
	w.ends()

	c.savesWhatIsLeft(survivor)
	c.kube(append([]string{"delete", "pod", "--force", "--grace-period=0"}, others...)...)
	c.doing()("recover", name, "FromSurvivor")
	c.decides("SwitchEpoch", "")
	for _, claim := range others {
		c.kube("annotate", "pvc", claim, objects.AnnotationFailedMember+"=true")
	}

	c.survived(1, w, sure)
	assert.NotEqual(t, clusterID, c.object().Status.ClusterID)
	c.writesWith(c.client(), "after").losesNothing()
}

// onNodesThatDie is a cluster of three on three of four nodes, whose pods are soon given up with their node.
func onNodesThatDie(t *testing.T) *cluster {
	t.Helper()
	needsNodes(t, 4)
	t.Cleanup(func() { kube(t, "uncordon", "node1") })
	kube(t, "cordon", "node1")
	c := newCluster(t, three+"  storage: {size: 1Gi}\n  recovery: {after: 1m}\n  tolerations:\n"+
		"  - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}\n")
	c.converges(3)
	return c
}

// losesTheNodesOf two members at once, and waits until the status says what can be done. Nothing has begun by then.
func (c *cluster) losesTheNodesOf(members ...string) (comeBack func()) {
	c.t.Helper()
	var lost []string
	for _, member := range members {
		lost = append(lost, c.nodeOf(member))
	}
	for _, node := range lost {
		inLab(c.t, "poweroff", node)
	}
	eventually(c.t, "the status names the command", func() string {
		ready := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Ready)
		says := strings.Contains(ready.Message, "the nodes of") && strings.Contains(ready.Message, "kubectl quorate recover")
		return while(!says, ready.Message)
	})
	assert.Equal(c.t, "Blind", c.object().Status.Rule)
	assert.EqualValues(c.t, 1, c.object().Status.Epoch, "nothing has begun by itself")
	return func() {
		for _, node := range lost {
			inLab(c.t, "poweron", node)
		}
	}
}

// savesWhatIsLeft: a member that runs without a quorum gives a snapshot, by the lines of the page.
func (c *cluster) savesWhatIsLeft(survivor string) {
	c.t.Helper()
	const script = `set -euo pipefail
kubectl port-forward -n $0 pod/$1 :2379 > forwarded &
trap "kill $!" EXIT
eval "$(kubectl quorate env -n $0)"
until grep -q 'Forwarding from 127' forwarded; do kill -0 $!; sleep 0.1; done
port=$(sed -n 's/^Forwarding from 127.0.0.1:\([0-9]*\) .*/\1/p' forwarded)
ETCDCTL_ENDPOINTS=https://127.0.0.1:$port etcdctl snapshot save rescue.db`
	types := typing(c.t)
	eventually(c.t, "a snapshot of "+survivor+" is saved", func() string {
		out, errs, code := types("bash", "-c", script, c.ns, survivor)
		return while(code != 0 || !strings.Contains(out, "Snapshot saved at rescue.db"), out+errs)
	})
}

// replaces nodes by new ones of the same names, with nothing in memory.
func replaces(t *testing.T, nodes ...int) {
	t.Helper()
	drained := make(chan error)
	for _, n := range nodes {
		go func() {
			_, err := kubectl("", "drain", fmt.Sprintf("node%d", n), "--ignore-daemonsets", "--delete-emptydir-data",
				"--force", "--timeout="+patience.String())
			drained <- err
		}()
	}
	var failed error
	for range nodes {
		failed = errors.Join(failed, <-drained)
	}
	require.NoError(t, failed)
	for _, n := range nodes {
		inLab(t, "poweroff", strconv.Itoa(n))
		kube(t, "delete", "node", fmt.Sprintf("node%d", n))
	}
	for _, n := range nodes {
		inLab(t, "poweron", strconv.Itoa(n))
	}
}
