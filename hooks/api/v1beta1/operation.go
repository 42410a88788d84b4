package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EtcdOperation asks for one act on an EtcdCluster. It runs once, ends, and stays as the record of it. Deleting it
// before its end withdraws it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=qop,categories=all;quorate
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="an EtcdOperation can't be changed: delete it to withdraw it, and create another one"
type EtcdOperation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what to do, and with which cluster.
	// +required
	Spec EtcdOperationSpec `json:"spec"`

	// Status is what became of it.
	// +optional
	// +default={"observedGeneration": -1}
	Status EtcdOperationStatus `json:"status,omitzero"`
}

// EtcdOperationList is a list of EtcdOperations.
//
// +kubebuilder:object:root=true
type EtcdOperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdOperation `json:"items"`
}

// OperationType is an act on a cluster.
// +kubebuilder:validation:Enum=Restore;Recover;Defragment;Fence;MoveLeader
type OperationType string

const (
	// OperationRestore moves the cluster to the data of a snapshot, or back to data that it had before.
	OperationRestore OperationType = "Restore"
	// OperationRecover begins a new epoch after the quorum is lost.
	OperationRecover OperationType = "Recover"
	// OperationDefragment defragments every member, one at a time.
	OperationDefragment OperationType = "Defragment"
	// OperationFence stops the etcd of members for a while.
	OperationFence OperationType = "Fence"
	// OperationMoveLeader hands the leadership to a member.
	OperationMoveLeader OperationType = "MoveLeader"
)

// EtcdOperationSpec is what to do, and with which cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.restore) == (self.type == 'Restore')",message="restore goes with type Restore, and only with that"
// +kubebuilder:validation:XValidation:rule="has(self.recover) == (self.type == 'Recover')",message="recover goes with type Recover, and only with that"
// +kubebuilder:validation:XValidation:rule="has(self.fence) == (self.type == 'Fence')",message="fence goes with type Fence, and only with that"
// +kubebuilder:validation:XValidation:rule="has(self.moveLeader) == (self.type == 'MoveLeader')",message="moveLeader goes with type MoveLeader, and only with that"
type EtcdOperationSpec struct {
	// ClusterRef is the EtcdCluster, in the same namespace.
	// +required
	ClusterRef ClusterRef `json:"clusterRef"`

	// Type is Restore, Recover, Defragment, Fence or MoveLeader. Operations of one type on a cluster run one after the
	// other, the oldest first; of Recover the newest takes the place of those before; fences hold at the same time.
	// +required
	Type OperationType `json:"type"`

	// Restore says which data the cluster moves to.
	// +optional
	Restore *RestoreOperation `json:"restore,omitempty"`

	// Recover says how the cluster begins again.
	// +optional
	Recover *RecoverOperation `json:"recover,omitempty"`

	// Fence says which members stop.
	// +optional
	Fence *FenceOperation `json:"fence,omitempty"`

	// MoveLeader says which member should lead.
	// +optional
	MoveLeader *MoveLeaderOperation `json:"moveLeader,omitempty"`
}

// RestoreOperation moves a cluster to the data of a snapshot, or back to data that it had before, as a new epoch. The
// cluster keeps serving until that is ready.
//
// +kubebuilder:validation:XValidation:rule="has(self.snapshot) != has(self.epoch)",message="restore has either snapshot or epoch: the data comes from one place"
type RestoreOperation struct {
	// Snapshot to restore. An EtcdSnapshot that is named here needs the label etcd.quorate.dev/cluster with the name of
	// the EtcdCluster; a schedule sets it.
	// +optional
	Snapshot *SnapshotSource `json:"snapshot,omitempty"`

	// Epoch is the number of an epoch to go back to, while its volumes are kept (spec.recovery.keepVolumesFor).
	// +optional
	// +kubebuilder:validation:Minimum=1
	Epoch *int64 `json:"epoch,omitempty"`

	// StopFirst stops the members that run before the new ones are made ready, where there is no room for both. If the
	// data is then unusable, the cluster stands still until that is corrected. It has no effect on the medium Memory.
	// +optional
	StopFirst bool `json:"stopFirst,omitempty"`
}

// RecoverOperation begins a new epoch after the quorum is lost.
type RecoverOperation struct {
	// Epoch whose quorum is lost: status.epoch of the EtcdCluster. An operation for another epoch fails, so that none
	// recovers a cluster twice.
	// +required
	// +kubebuilder:validation:Minimum=1
	Epoch int64 `json:"epoch"`

	// Policy is FromSurvivor, FromSnapshot or Recreate, as in spec.recovery.quorumLoss of the EtcdCluster.
	// +required
	// +kubebuilder:validation:XValidation:rule="self != 'Manual'",message="recover.policy is FromSurvivor, FromSnapshot or Recreate: Manual recovers nothing"
	Policy QuorumLoss `json:"policy"`
}

// FenceOperation stops the etcd of members without removing them. A member is stopped only while the others have quorum
// without it. On the medium Memory it fails: the data would be lost.
type FenceOperation struct {
	// Members to stop, by name, such as demo-1.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Members []string `json:"members"`

	// Duration after which they start again, such as 30m, counted from the creation of the operation. Unset, they stay
	// stopped until the operation is deleted.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="fence.duration must be at least 10s"
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// MoveLeaderOperation hands the leadership to a member.
type MoveLeaderOperation struct {
	// To is the name of a voter, such as demo-1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	To string `json:"to"`
}

// OperationPhase is where an operation is.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed
type OperationPhase string

const (
	// OperationPending has not begun; the message says what it waits for.
	OperationPending OperationPhase = "Pending"
	// OperationRunning has begun.
	OperationRunning OperationPhase = "Running"
	// OperationSucceeded has done what was asked for.
	OperationSucceeded OperationPhase = "Succeeded"
	// OperationFailed has ended without that; the message says why.
	OperationFailed OperationPhase = "Failed"
)

// Ended reports whether an operation in this phase stays in it.
func (p OperationPhase) Ended() bool { return p == OperationSucceeded || p == OperationFailed }

// EtcdOperationStatus is what became of an operation.
type EtcdOperationStatus struct {
	// ObservedGeneration is the generation of the spec that this status was made for; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Reconciling, Stalled, Complete and Failed.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Phase is Pending, Running, Succeeded or Failed.
	// +optional
	Phase OperationPhase `json:"phase,omitempty"`

	// Message says what it does, what it waits for, or what came of it.
	// +optional
	Message string `json:"message,omitempty"`

	// StartTime is when it began.
	// +optional
	StartTime metav1.Time `json:"startTime,omitzero"`

	// CompletionTime is when it ended.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitzero"`
}

// OperationProgress is an EtcdOperation that its EtcdCluster knows of, until its own status shows its end.
type OperationProgress struct {
	// Name of the EtcdOperation.
	Name string `json:"name"`

	// UID of it.
	UID types.UID `json:"uid"`

	// Phase is Pending, Running, Succeeded or Failed.
	Phase OperationPhase `json:"phase"`

	// Message says what it does, what it waits for, or what came of it.
	// +optional
	Message string `json:"message,omitempty"`
}
