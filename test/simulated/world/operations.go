package world

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/operation"
)

// EtcdOperations: what people ask of the cluster once. Their own hook is called whenever the cluster's status is
// written; that the cluster's calls see them late is up to the cache of their kind.

// Operate is what kubectl create does with an EtcdOperation. Its UID is its name. One that is there stays.
func (w *World) Operate(name string, spec v1beta1.EtcdOperationSpec) {
	key := Key{OperationKind, name}
	if c := w.Cluster(); c != nil && w.Objects[key] == nil {
		spec.ClusterRef.Name = c.Name
		w.put(OperationKind, &v1beta1.EtcdOperation{Spec: spec, ObjectMeta: metav1.ObjectMeta{Name: name,
			UID: types.UID(name), Namespace: "default", CreationTimestamp: metav1.NewTime(w.Now),
			Finalizers: []string{finalizer}}})
	}
}

// Withdraw is what kubectl delete does with those of a type that have not ended.
func (w *World) Withdraw(kind v1beta1.OperationType) {
	for _, op := range w.Operations(kind) {
		if op.DeletionTimestamp == nil {
			deleting := *op
			deleting.DeletionTimestamp = new(metav1.NewTime(w.Now))
			w.put(OperationKind, &deleting)
		}
	}
	w.tellOperations()
}

// AskRestore has the cluster restored, and withdraws what was asked for before.
func (w *World) AskRestore(name string, r v1beta1.RestoreOperation) {
	w.Withdraw(v1beta1.OperationRestore)
	w.Operate(name, v1beta1.EtcdOperationSpec{Type: v1beta1.OperationRestore, Restore: &r})
}

// AskRecover has the cluster begin again.
func (w *World) AskRecover(policy v1beta1.QuorumLoss, epoch int64) {
	w.Withdraw(v1beta1.OperationRecover)
	name := "recover-" + strings.ToLower(string(policy))
	for w.Objects[Key{OperationKind, name}] != nil {
		name += "-again"
	}
	w.Operate(name, v1beta1.EtcdOperationSpec{Type: v1beta1.OperationRecover,
		Recover: &v1beta1.RecoverOperation{Policy: policy, Epoch: epoch}})
}

// Defragment has every member defragmented.
func (w *World) Defragment(name string) {
	w.Operate(name, v1beta1.EtcdOperationSpec{Type: v1beta1.OperationDefragment})
}

// Fence has these members stopped, and the others started again; none starts all.
func (w *World) Fence(members ...string) {
	w.Withdraw(v1beta1.OperationFence)
	if len(members) > 0 {
		w.Operate("fence-"+strings.Join(members, "-"), v1beta1.EtcdOperationSpec{Type: v1beta1.OperationFence,
			Fence: &v1beta1.FenceOperation{Members: members}})
	}
}

// Operations are those of a type that have not ended, by name.
func (w *World) Operations(kind v1beta1.OperationType) []*v1beta1.EtcdOperation {
	var all []*v1beta1.EtcdOperation
	for _, o := range w.Objects {
		if op, is := o.(*v1beta1.EtcdOperation); is && op.Spec.Type == kind && !op.Status.Phase.Ended() {
			all = append(all, op)
		}
	}
	slices.SortFunc(all, func(a, b *v1beta1.EtcdOperation) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// tellOperations calls the hook of every operation.
func (w *World) tellOperations() {
	clusters := map[string]*v1beta1.EtcdCluster{}
	if c := w.Cluster(); c != nil {
		clusters[c.Name] = c
	}
	for _, key := range inOrder(w.Objects) {
		op, is := w.Objects[key].(*v1beta1.EtcdOperation)
		if !is {
			continue
		}
		d := operation.Decide(operation.Observation{Operation: op, Clusters: clusters, Now: w.Now})
		if op.DeletionTimestamp != nil && d.Finalized {
			delete(w.Objects, key)
			w.Changes++
		} else if now := *op; now.Status.Phase != d.Status.Phase || now.Status.Message != d.Status.Message {
			now.Status = d.Status
			w.put(OperationKind, &now)
		}
	}
}

// AllOperations are those that there are, the oldest first.
func (w *World) AllOperations() []*v1beta1.EtcdOperation {
	all := list[*v1beta1.EtcdOperation](w, OperationKind)
	slices.SortStableFunc(all, func(a, b *v1beta1.EtcdOperation) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return all
}
