//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// operator is another one, with the smallest cluster that its own samples would make: no TLS, a volume for each member.
type operator struct {
	resource string // as kubectl has it
	size     string // the field of the number of members
	manifest string
}

var others = map[string]operator{
	"cozystack": {"etcdclusters.etcd-operator.cozystack.io", "replicas", `
apiVersion: etcd-operator.cozystack.io/v1alpha2
kind: EtcdCluster
metadata: {name: demo}
spec: {replicas: 3, version: 3.6.16, storage: {size: 1Gi}}
`},
	"etcd-io": {"etcdclusters.operator.etcd.io", "size", `
apiVersion: operator.etcd.io/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec: {size: 3, version: v3.6.16, storageSpec: {accessModes: ReadWriteOnce, volumeSizeRequest: 1Gi}}
`},
}

// othersMay is how long a change of theirs may take before it counts as not done.
const othersMay = 10 * time.Minute

// other is a cluster of another operator's. What became of it is read from its pods and its etcd, not from a status.
type other struct {
	*cluster
	operator
}

// changesOther takes the time of each change. A change that is not done ends the round.
func changesOther(t *testing.T, took times, by operator) {
	t.Helper()
	o := &other{inNamespace(t), by}
	begin := time.Now()
	o.adds(by.manifest)
	o.settles(3)
	took[rows[0]] = append(took[rows[0]], time.Since(begin))
	o.changesMembers(took, o)
}

func (o *other) scalesTo(n int) {
	o.t.Helper()
	o.kube("patch", o.resource, name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{%q:%d}}`, o.size, n))
	o.settles(n)
}

func (o *other) losesMember(leads bool) {
	o.t.Helper()
	pods := list[corev1.Pod](o.t, o.ns, "pods")
	gone := pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return o.leads(p.Name) == leads })]
	for _, v := range gone.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			o.kube("delete", "pvc", v.PersistentVolumeClaim.ClaimName, "--wait=false")
		}
	}
	o.t.Logf("before: %s", o.asked(gone.Name, "member", "list"))
	o.kube("delete", "pod", gone.Name, "--wait=true")
	o.settles(3)
	pods = list[corev1.Pod](o.t, o.ns, "pods")
	o.t.Logf("after: %s", o.asked(pods[0].Name, "member", "list"))
}

// settles waits until there are n pods, all ready, and n voters in etcd that have begun.
func (o *other) settles(n int) {
	o.t.Helper()
	within(o.t, othersMay, fmt.Sprintf("%d members", n), func() string {
		pods := list[corev1.Pod](o.t, o.ns, "pods")
		if len(pods) != n {
			return fmt.Sprintf("%d pods", len(pods))
		}
		for _, p := range pods {
			if p.DeletionTimestamp != nil || !ready(&p) {
				return p.Name + " is not ready"
			}
		}
		var all struct {
			Members []struct {
				Name      string
				IsLearner bool
			}
		}
		out, err := o.etcdctl(pods[0].Name, "member", "list", "-w", "json")
		if err != nil {
			return err.Error()
		}
		require.NoError(o.t, json.Unmarshal([]byte(out), &all))
		for _, m := range all.Members {
			if m.IsLearner || m.Name == "" {
				return m.Name + " does not vote"
			}
		}
		return while(len(all.Members) != n, fmt.Sprintf("%d members", len(all.Members)))
	})
}
