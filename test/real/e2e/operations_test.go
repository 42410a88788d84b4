//go:build e2e

package e2e

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

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
func (c *cluster) hasOperation(operation string, phase v1alpha1.OperationPhase) string {
	c.t.Helper()
	var op v1alpha1.EtcdOperation
	eventually(c.t, fmt.Sprintf("EtcdOperation %s is %s", operation, phase), func() string {
		if !read(c.t, fmt.Sprintf(paths["etcdoperation"], c.ns)+"/"+operation, &op) || op.Status.Phase != phase {
			return fmt.Sprintf("%s: %s", op.Status.Phase, op.Status.Message)
		}
		return ""
	})
	return op.Status.Message
}
