package kubectl

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// The commands that create an EtcdOperation. The hooks do the rest.

// operations as kubectl names them.
const operations = "etcdoperations.etcd.quorate.dev"

// operation is what the command line asks for, on this cluster.
func (a *invocation) operation(ctx context.Context, c *v1beta1.EtcdCluster) (*v1beta1.EtcdOperationSpec, error) {
	op := &v1beta1.EtcdOperationSpec{ClusterRef: v1beta1.ClusterRef{Name: c.Name}, Type: a.creates}
	switch a.creates {
	case v1beta1.OperationMoveLeader:
		op.MoveLeader = &v1beta1.MoveLeaderOperation{To: a.word}
	case v1beta1.OperationFence:
		op.Fence = &v1beta1.FenceOperation{Members: []string{a.word}}
		if a.duration > 0 {
			op.Fence.Duration = &metav1.Duration{Duration: a.duration}
		}
	case v1beta1.OperationRecover:
		if c.Status.Epoch == 0 {
			return nil, fmt.Errorf("EtcdCluster %s/%s has not begun, so there is nothing to recover", c.Namespace, c.Name)
		}
		op.Recover = &v1beta1.RecoverOperation{Epoch: c.Status.Epoch, Policy: v1beta1.QuorumLoss(a.word)}
	case v1beta1.OperationRestore:
		var err error
		op.Restore, err = a.restore(ctx, c)
		return op, err
	case v1beta1.OperationDefragment:
	}
	return op, nil
}

// handedDown are the labels by which a Quorate may know what it looks after: without those by which Argo CD and the
// like know what is theirs to delete.
func handedDown(labels map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range labels {
		if !strings.HasPrefix(key, "app.kubernetes.io/") {
			all[key] = value
		}
	}
	return all
}

// operate creates the operation, and waits for its end if that is asked for.
func (a *invocation) operate(ctx context.Context) error {
	c, err := a.find(ctx)
	if err != nil {
		return err
	}
	if c.DeletionTimestamp != nil {
		return fmt.Errorf("EtcdCluster %s/%s is being deleted; nothing more is done with it", c.Namespace, c.Name)
	}
	op, err := a.operation(ctx, c.EtcdCluster)
	if err != nil {
		return err
	}
	if c.Spec.Suspend {
		a.remark("spec.suspend is true: it begins when that is false (kubectl quorate resume -n %s %s)", c.Namespace,
			c.Name)
	}
	return a.request(ctx, request{kind: v1beta1.KindOperation, resource: operations, short: "qop", of: c.EtcdCluster,
		labels: handedDown(c.Labels), spec: op})
}
