//go:build e2e

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// cluster is one EtcdCluster named demo in a namespace of its own.
type cluster struct {
	t  *testing.T
	ns string
}

const (
	name    = "demo"
	applied = "application/apply-patch+yaml" // on the server's side
)

// newCluster applies an EtcdCluster with this spec (YAML, indented by two) in a namespace named after the test.
func newCluster(t *testing.T, spec string) *cluster {
	t.Helper()
	c := inNamespace(t)
	c.apply(spec)
	return c
}

func inNamespace(t *testing.T) *cluster {
	t.Helper()
	return namespaced(t, "e2e-"+
		strings.ToLower(strings.NewReplacer("Test", "", "/", "-", "_", "-", ".", "-").Replace(t.Name())))
}

var keep = flag.Bool("keep", false, "leave the namespaces of a story that failed as they are")

// namespaced is a cluster in a new namespace of this name, which goes with the test. One that was kept goes first.
func namespaced(t *testing.T, ns string) *cluster {
	t.Helper()
	c := &cluster{t: t, ns: ns}
	// it may have none
	_, _ = kubectl("", "-n", c.ns, "patch", "etcdcluster", name, "--type=merge", "-p",
		`{"spec":{"deletionProtection":false,"bootstrap":null}}`)
	kube(t, "delete", "namespace", c.ns, "--ignore-not-found")
	require.NoError(t, api.namespace(c.ns))
	t.Cleanup(func() {
		if t.Failed() {
			c.dump()
			if *keep {
				t.Logf("namespace %s is kept", c.ns)
				return
			}
		}
		require.NoError(t, api.send(http.MethodDelete, "/api/v1/namespaces/"+c.ns, "", ""))
	})
	return c
}

// tell tells a story on a cluster that others share: each begins and ends with one that has converged. The next one
// is told only when it did.
func (c *cluster) tell(story string, tells func(*cluster)) {
	c.t.Helper()
	if !c.t.Run(story, func(t *testing.T) {
		told := &cluster{t: t, ns: c.ns}
		told.converges(int(*told.object().Spec.Replicas))
		tells(told)
	}) {
		c.t.FailNow()
	}
}

// manifest of an EtcdCluster, of which nothing stays when it is deleted, unless the spec says so.
func (c *cluster) manifest(spec string) string {
	if !strings.Contains(spec, "deletionPolicy:") {
		spec += "\n  deletionPolicy: Delete\n"
	}
	return fmt.Sprintf("apiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdCluster\nmetadata: {name: %s, namespace: "+
		"%s}\nspec:\n%s\n", name, c.ns, spec)
}

func (c *cluster) apply(spec string) {
	c.t.Helper()
	require.NoError(c.t, c.tries(c.manifest(spec)))
}

// tries applies a manifest of an EtcdCluster, and returns why it is refused.
func (c *cluster) tries(manifest string) error {
	return api.send(http.MethodPatch, c.path()+"?fieldManager=e2e&force=true", applied, manifest)
}

// path of the EtcdCluster.
func (c *cluster) path() string { return fmt.Sprintf(paths["etcdcluster"], c.ns) + "/" + name }

// edits merges a JSON patch into the spec, and returns why it is refused.
func (c *cluster) edits(patch string) error {
	return c.merges("etcdcluster", name, `{"spec":`+patch+`}`)
}

// edit merges a JSON patch into the spec.
func (c *cluster) edit(patch string) {
	c.t.Helper()
	require.NoError(c.t, c.edits(patch))
}

func (c *cluster) object() *v1beta1.EtcdCluster {
	c.t.Helper()
	o, found := get[v1beta1.EtcdCluster](c.t, c.ns, "etcdcluster", name)
	require.True(c.t, found, "the EtcdCluster is gone")
	return o
}

// pods are those of members; Jobs of snapshots have others.
func (c *cluster) pods() []corev1.Pod {
	c.t.Helper()
	return slices.DeleteFunc(list[corev1.Pod](c.t, c.ns, "pods"),
		func(p corev1.Pod) bool { return p.Labels[objects.LabelMember] == "" })
}

// observed is a pod that must be there.
func (c *cluster) observed(pod string) *corev1.Pod {
	c.t.Helper()
	p, found := get[corev1.Pod](c.t, c.ns, "pods", pod)
	require.True(c.t, found, pod)
	return p
}

// converges waits until the cluster serves with n voters and nothing is left to do for the newest spec.
func (c *cluster) converges(n int) time.Duration {
	c.t.Helper()
	return eventually(c.t, fmt.Sprintf("%d voters converged", n), func() string { return c.notConverged(n) })
}

func (c *cluster) notConverged(n int) string {
	o := c.object()
	s := o.Status
	switch {
	case s.ObservedGeneration != o.Generation:
		return "the status is of an older spec"
	case !meta.IsStatusConditionTrue(s.Conditions, v1beta1.Available), int(s.ReadyReplicas) != n, int(s.Replicas) != n,
		s.Rule != "Converged":
		p := meta.FindStatusCondition(s.Conditions, v1beta1.Ready)
		if p == nil {
			return "there is no status"
		}
		return fmt.Sprintf("%d ready, %s: %s", s.ReadyReplicas, p.Reason, p.Message)
	}
	pods := c.pods()
	if len(pods) != n {
		return fmt.Sprintf("%d pods", len(pods))
	}
	for _, pod := range pods { // the status may be of a moment ago
		if pod.DeletionTimestamp != nil || !ready(&pod) {
			return pod.Name + " is not ready"
		}
	}
	return ""
}

// hasPods waits until it has so many.
func (c *cluster) hasPods(want int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("%d pods are left", want), func() string {
		n := len(c.pods())
		return while(n != want, fmt.Sprintf("%d pods", n))
	})
}

// claims waits until there are so many claims, none of them on its way out, and returns them: Kubernetes lets go of
// one some time after its pod.
func (c *cluster) claims(n int) []corev1.PersistentVolumeClaim {
	c.t.Helper()
	var all []corev1.PersistentVolumeClaim
	eventually(c.t, fmt.Sprintf("%d claims", n), func() string {
		all = list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc")
		going := ""
		for _, claim := range all {
			if claim.DeletionTimestamp != nil {
				going += ", " + claim.Name + " is going"
			}
		}
		return while(len(all) != n || going != "", fmt.Sprintf("%d claims%s", len(all), going))
	})
	return all
}

// kube runs kubectl in the cluster's namespace.
func (c *cluster) kube(args ...string) string {
	c.t.Helper()
	return kube(c.t, append([]string{"-n", c.ns}, args...)...)
}

// adds applies manifests in the cluster's namespace.
func (c *cluster) adds(manifests string) {
	c.t.Helper()
	_, err := kubectl(manifests, "-n", c.ns, "apply", "-f", "-")
	require.NoError(c.t, err)
}

// addsOurs applies an object of a kind of Quorate's, with its name (or all of its metadata) and its spec in YAML's flow
// style.
func (c *cluster) addsOurs(kind, metadata, spec string) {
	c.t.Helper()
	c.adds(fmt.Sprintf("{apiVersion: etcd.quorate.dev/v1beta1, kind: %s, metadata: {name: %s}, spec: {%s}}", kind,
		metadata, spec))
}

// merges a JSON patch into an object of the cluster's namespace.
func (c *cluster) merges(resource, object, patch string) error {
	return api.send(http.MethodPatch, fmt.Sprintf(paths[resource], c.ns)+"/"+object, "application/merge-patch+json",
		patch)
}

// deletes objects, and does not wait until they are gone.
func (c *cluster) deletes(resource string, names ...string) { c.without(resource, "", names) }

// kills pods without grace, as when a node fails.
func (c *cluster) kills(pods ...string) { c.without("pods", "?gracePeriodSeconds=0", pods) }

func (c *cluster) without(resource, options string, names []string) {
	c.t.Helper()
	for _, object := range names {
		err := api.send(http.MethodDelete, fmt.Sprintf(paths[resource], c.ns)+"/"+object+options, "", "")
		if err != nil && !strings.Contains(err.Error(), "404 Not Found") {
			require.NoError(c.t, err)
		}
	}
}

// another waits until a pod is not what it was.
func (c *cluster) another(old corev1.Pod) {
	c.t.Helper()
	eventually(c.t, old.Name+" is another pod or none", func() string {
		pod, found := get[corev1.Pod](c.t, c.ns, "pods", old.Name)
		return while(found && pod.UID == old.UID, "it is still the old one")
	})
}

// leader waits until the status and etcd agree on who leads: the status may be as old as the last call.
func (c *cluster) leader() string {
	c.t.Helper()
	var leader string
	eventually(c.t, "the status names the leader", func() string {
		if leader = c.object().Status.Leader; leader == "" {
			return "it names none"
		}
		s, err := c.endpoint(leader)
		return while(err != nil || s.Leader != s.Header.MemberID,
			fmt.Sprintf("%s, which does not lead: %v", leader, err))
	})
	return leader
}

// endpointStatus is what a member says of itself.
type endpointStatus struct {
	Header struct {
		MemberID uint64 `json:"member_id"`
	}
	Leader              uint64
	DBSize, DBSizeInUse int64
}

func (c *cluster) endpoint(member string) (endpointStatus, error) {
	out, err := c.etcdctl(member, "endpoint", "status", "-w", "json")
	if err != nil {
		return endpointStatus{}, err
	}
	var answers []struct{ Status endpointStatus }
	if err := json.Unmarshal([]byte(out), &answers); err != nil {
		return endpointStatus{}, fmt.Errorf("%w in %s", err, out)
	}
	if len(answers) != 1 {
		return endpointStatus{}, fmt.Errorf("%d answers in %s", len(answers), out)
	}
	return answers[0].Status, nil
}

// ids are the member IDs by name.
func (c *cluster) ids() map[string]string {
	all := map[string]string{}
	for _, m := range c.object().Status.Members {
		all[m.Name] = m.ID
	}
	return all
}

// service is the address of the client Service, once that is there: Metacontroller makes it after the Secrets.
func (c *cluster) service() string {
	c.t.Helper()
	var address string
	eventually(c.t, "there is a client Service", func() string {
		s, found := get[corev1.Service](c.t, c.ns, "svc", name)
		if !found {
			return "none"
		}
		address = objects.HostPort(s.Spec.ClusterIP, objects.ClientPort)
		return ""
	})
	return address
}

// exec runs etcdctl in a member's pod, without any flag.
func (c *cluster) etcdctl(pod string, args ...string) (string, error) {
	return kubectl("", append([]string{"-n", c.ns, "exec", pod, "-c", "etcd", "--", "etcdctl"}, args...)...)
}

// asked is what etcdctl prints when etcd answers: in an election it does not. It may be carried out twice.
func (c *cluster) asked(pod string, args ...string) (out string) {
	c.t.Helper()
	eventually(c.t, "etcdctl "+args[0]+" is answered", func() string {
		var err error
		out, err = c.etcdctl(pod, args...)
		return failure(err)
	})
	return out
}

// dump prints what one would look at first, in one piece.
func (c *cluster) dump() {
	var all strings.Builder
	for _, args := range [][]string{
		{"get", "etcdcluster,pods,pvc,cm", "-o", "wide"},
		{"get", "etcdcluster", "-o", "yaml"},
		{"describe", "pods"},
		{"logs", "-l", "etcd.quorate.dev/cluster=" + name, "-c", "etcd", "--tail=15", "--prefix"},
		{"get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, err := kubectl("", append([]string{"-n", c.ns}, args...)...)
		fmt.Fprintf(&all, "--- %s\n%s%v\n", strings.Join(args, " "), out, err)
	}
	out, err := kubectl("", "-n", "quorate-system", "logs", "-l", "app.kubernetes.io/name=quorate", "--prefix",
		"--tail=200")
	var mine []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, c.ns) {
			mine = append(mine, line)
		}
	}
	fmt.Fprintf(&all, "--- quorate's log of this cluster\n%s%v", strings.Join(mine, ""), err)
	c.t.Logf("what there is in namespace %s:\n%s", c.ns, &all)
}

// operates creates an EtcdOperation on the cluster; spec is YAML in one line, such as "type: Defragment".
func (c *cluster) operates(operation, spec string) {
	c.t.Helper()
	c.addsOurs("EtcdOperation", operation, fmt.Sprintf("clusterRef: {name: %s}, %s", name, spec))
}

// withdraws deletes an EtcdOperation, which waits until the cluster has answered.
func (c *cluster) withdraws(operation string) {
	c.t.Helper()
	c.kube("delete", "etcdoperation", operation, "--timeout="+patience.String())
}

// hasOperation waits until the EtcdOperation is in this phase, and is what it says then.
func (c *cluster) hasOperation(operation string, phase v1beta1.OperationPhase) string {
	c.t.Helper()
	var op v1beta1.EtcdOperation
	eventually(c.t, fmt.Sprintf("EtcdOperation %s is %s", operation, phase), func() string {
		if !read(c.t, fmt.Sprintf(paths["etcdoperation"], c.ns)+"/"+operation, &op) || op.Status.Phase != phase {
			return fmt.Sprintf("%s: %s", op.Status.Phase, op.Status.Message)
		}
		return ""
	})
	return op.Status.Message
}
