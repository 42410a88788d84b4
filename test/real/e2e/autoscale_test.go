//go:build e2e

package e2e

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

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
	nightly(t)
	var all corev1.NodeList
	read(t, "/api/v1/nodes", &all)
	require.GreaterOrEqual(t, len(all.Items), labNodes, "make story NODES=5 RUN=TestNodesComeAndGo")
	t.Cleanup(func() { kube(t, "uncordon", "node1") })
	kube(t, "cordon", "node1") // it stays, as it has the control plane, and members would gather on it
	c := newCluster(t, three+"  storage: {medium: Memory, size: 128Mi}\n")
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
