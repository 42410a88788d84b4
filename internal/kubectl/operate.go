package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// The commands that create an EtcdOperation. The hooks do the rest.

// operations as kubectl names them.
const operations = "etcdoperations.etcd.quorate.dev"

// lookEvery is how often an operation is looked at with --wait.
const lookEvery = 2 * time.Second

// operation is what the command line asks for, on this cluster.
func (a *invocation) operation(c *v1beta1.EtcdCluster) (*v1beta1.EtcdOperation, error) {
	op := &v1beta1.EtcdOperation{
		TypeMeta: metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.KindOperation},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Labels: handedDown(c.Labels),
			Name: fmt.Sprintf("%s-%s-%s", c.Name, a.name, a.now().UTC().Format("20060102-150405"))},
		Spec: v1beta1.EtcdOperationSpec{ClusterRef: v1beta1.ClusterRef{Name: c.Name}, Type: a.creates},
	}
	switch a.creates {
	case v1beta1.OperationMoveLeader:
		op.Spec.MoveLeader = &v1beta1.MoveLeaderOperation{To: a.word}
	case v1beta1.OperationFence:
		op.Spec.Fence = &v1beta1.FenceOperation{Members: []string{a.word}}
		if a.duration > 0 {
			op.Spec.Fence.Duration = &metav1.Duration{Duration: a.duration}
		}
	case v1beta1.OperationRecover:
		if c.Status.Epoch == 0 {
			return nil, fmt.Errorf("EtcdCluster %s/%s has not begun, so there is nothing to recover", c.Namespace, c.Name)
		}
		op.Spec.Recover = &v1beta1.RecoverOperation{Epoch: c.Status.Epoch, Policy: v1beta1.QuorumLoss(a.word)}
	case v1beta1.OperationRestore:
		op.Spec.Restore = &v1beta1.RestoreOperation{StopFirst: a.stopFirst}
		if a.epoch > 0 {
			op.Spec.Restore.Epoch = &a.epoch
		} else {
			op.Spec.Restore.Snapshot = &v1beta1.SnapshotSource{SnapshotRef: v1beta1.SnapshotRef{Name: a.snapshot}}
		}
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
	op, err := a.operation(c.EtcdCluster)
	if err != nil {
		return err
	}
	manifest := map[string]any{"apiVersion": op.APIVersion, "kind": op.Kind,
		"metadata": map[string]any{"name": op.Name, "namespace": op.Namespace, "labels": op.Labels}, "spec": op.Spec}
	if a.dryRun {
		text, err := yaml.Marshal(manifest)
		fmt.Fprintf(a.Out, "%s", text)
		return err
	}
	raw, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	if err := a.kube.create(ctx, operations, op.Namespace, raw); err != nil {
		return fmt.Errorf("no EtcdOperation was created for EtcdCluster %s/%s: %w", c.Namespace, c.Name, err)
	}
	fmt.Fprintf(a.Out, "EtcdOperation %s/%s created\n", op.Namespace, op.Name)
	if c.Spec.Suspend {
		fmt.Fprintln(a.Out, "spec.suspend is true: it begins when that is false")
	}
	if !a.wait {
		fmt.Fprintf(a.Out, "`kubectl get -n %s qop %s -o wide` shows how it goes\n", op.Namespace, op.Name)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	return a.await(ctx, op)
}

// await prints how an operation goes until it has ended.
func (a *invocation) await(ctx context.Context, op *v1beta1.EtcdOperation) error {
	said := ""
	for {
		out, err := a.kube.run(ctx, "get", operations, op.Name, "-n", op.Namespace, "-o", "json")
		if ctx.Err() != nil {
			return fmt.Errorf("EtcdOperation %s/%s has not ended (%s); it goes on without this command", op.Namespace,
				op.Name, said)
		}
		if err != nil {
			return fmt.Errorf("EtcdOperation %s/%s can't be read: %w", op.Namespace, op.Name, err)
		}
		var now v1beta1.EtcdOperation
		if err := objects.Read(out, &now); err != nil {
			return fmt.Errorf("EtcdOperation %s/%s can't be read: %w", op.Namespace, op.Name, err)
		}
		words := strings.TrimSuffix(string(now.Status.Phase)+": "+now.Status.Message, ": ")
		if words != said && words != "" {
			fmt.Fprintln(a.Out, words)
			said = words
		}
		switch now.Status.Phase {
		case v1beta1.OperationFailed:
			return fmt.Errorf("EtcdOperation %s/%s has failed: %s", op.Namespace, op.Name, now.Status.Message)
		case v1beta1.OperationSucceeded:
			return nil
		case v1beta1.OperationPending, v1beta1.OperationRunning:
		}
		a.pause(ctx, lookEvery)
	}
}
