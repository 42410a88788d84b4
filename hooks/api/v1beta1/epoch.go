package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bootstrap says where a new cluster's data comes from. Its snapshots or claims are read once, before the cluster first
// begins; external is read until the external members are gone.
//
// +kubebuilder:validation:XValidation:rule="[has(self.snapshot), has(self.latestSnapshot), has(self.external), has(self.claims)].filter(b, b).size() <= 1",message="bootstrap has one of snapshot, latestSnapshot, external and claims: the data comes from one place"
type Bootstrap struct {
	// Snapshot that all initial members restore.
	// +optional
	Snapshot *SnapshotSource `json:"snapshot,omitempty"`

	// LatestSnapshot restores the newest snapshot that a store has, if it has one. That is found out once, and the epoch's
	// record says what was found: a later snapshot changes nothing.
	// +optional
	LatestSnapshot *LatestSnapshot `json:"latestSnapshot,omitempty"`

	// External is a running etcd that the members join. Quorate asks its members at endpoints, and at the client URLs
	// that they advertise. The installation must allow all of these (--allowed-etcd-endpoints).
	// +optional
	External *ExternalCluster `json:"external,omitempty"`

	// Claims are the volumes of the members of an etcd that runs no more. The one whose log is ahead is copied; none is
	// changed.
	// +optional
	Claims *FormerClaims `json:"claims,omitempty"`
}

// LatestSnapshot is the newest snapshot of a folder in a store: of the etcd whose snapshot was completed last, the one
// with the highest revision. A store that can't be read is waited for: it may have one.
//
// +kubebuilder:validation:XValidation:rule="!has(self.until) || has(self.until.latest) && self.until.latest && !has(self.until.clusterID)",message="latestSnapshot.until can only be latest: true, without clusterID: which snapshot it follows is not known yet"
type LatestSnapshot struct {
	// Store that is looked into.
	// +required
	Store Store `json:"store"`

	// Folder of the snapshots below the store's prefix. Unset, <namespace>/<name> of this EtcdCluster, where its own
	// snapshots are stored. Folders in it are not looked into.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^([0-9A-Za-z][-._0-9A-Za-z]*(/[0-9A-Za-z][-._0-9A-Za-z]*)*)?$`
	Folder string `json:"folder,omitempty"`

	// IfNone says what happens when the store answers and the folder has no snapshot: BeginEmpty begins without data, Wait
	// looks again each minute. Neither begins while the folder has only what was never completed.
	// +required
	IfNone IfNone `json:"ifNone"`

	// IdentitySecretRef holds the age identities that decrypt an encrypted snapshot, under the key identity unless it
	// names another. It needs the label etcd.quorate.dev/external.
	// +optional
	IdentitySecretRef SecretKeyRef `json:"identitySecretRef,omitzero"`

	// ServiceAccountName gives the pod that looks, and the members' pods while they restore, the platform's identity,
	// such as an IAM role.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Until, with latest: true, restores after the snapshot what a stream has stored since, as far as that can be
	// followed; there may be none.
	// +optional
	Until *Until `json:"until,omitempty"`
}

// IfNone is what a new cluster begins with where a store has no snapshot.
// +kubebuilder:validation:Enum=BeginEmpty;Wait
type IfNone string

const (
	// BeginEmpty begins without data.
	BeginEmpty IfNone = "BeginEmpty"
	// WaitForSnapshot looks again until there is one.
	WaitForSnapshot IfNone = "Wait"
)

// FormerClaims are the claims of the members of an etcd that runs no more, in the namespace of the EtcdCluster: of one
// that Quorate ran, or of any other. No etcd may use them meanwhile.
//
// +kubebuilder:validation:XValidation:rule="self.names.all(n, self.names.exists_one(m, m == n))",message="bootstrap.claims.names has a claim twice"
type FormerClaims struct {
	// Names of the claims, one of each member. Name all that are left: together they must be of a quorum of the former
	// members, and of one etcd cluster.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=249
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Names []string `json:"names"`

	// Path of etcd's data directory in each volume, such as default.etcd; "." is the volume's root. Unset, it is data,
	// as in Quorate's own volumes.
	// +optional
	// +default="data"
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([.]|[-_0-9A-Za-z][-._0-9A-Za-z]*(/[-_0-9A-Za-z][-._0-9A-Za-z]*)*)$`
	Path string `json:"path,omitempty"`

	// WAL says that the write-ahead log of each member is on a claim of its own, <name>-wal, in its directory wal: so
	// spec.storage.wal has it.
	// +optional
	WAL bool `json:"wal,omitempty"`

	// WithoutQuorum begins also when the claims are of fewer members than a quorum. Acknowledged writes may be missing
	// then.
	// +optional
	WithoutQuorum bool `json:"withoutQuorum,omitempty"`
}

// SnapshotSource is a snapshot that members restore. They begin 1,000,000,000 revisions above all that the cluster had
// before, so that watches end and clients look again.
//
// +kubebuilder:validation:XValidation:rule="has(self.snapshotRef) != has(self.artifact)",message="a snapshot is either snapshotRef, an EtcdSnapshot of the namespace, or artifact, something in a store"
// +kubebuilder:validation:XValidation:rule="!has(self.artifact) || has(self.store)",message="artifact needs store: where it is, and how it is reached"
// +kubebuilder:validation:XValidation:rule="!has(self.artifact) || !has(self.until) || has(self.until.clusterID)",message="until needs clusterID with artifact: of which etcd the changes are"
type SnapshotSource struct {
	// SnapshotRef is an EtcdSnapshot of the namespace: one that is Succeeded, or Unverified with verify false.
	// +optional
	SnapshotRef SnapshotRef `json:"snapshotRef,omitzero"`

	// Artifact is the name of a stored snapshot below the store's prefix, as in status.artifact of its EtcdSnapshot. A
	// file of etcdctl snapshot save works too, when its name ends in .db.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*$') && !self.endsWith('.json')",message="artifact may have only letters, digits and -._=+@~: in its names, with one / between names; no name may end in two dots, and it may not end in .json"
	Artifact string `json:"artifact,omitempty"`

	// Store is where the artifact, or a copy of that of the EtcdSnapshot, is and how to reach it. Unset, the store of
	// the EtcdSnapshot.
	// +optional
	Store *Store `json:"store,omitempty"`

	// IdentitySecretRef holds the age identities (AGE-SECRET-KEY-1...) that decrypt an encrypted snapshot, under the
	// key identity unless it names another. It needs the label etcd.quorate.dev/external.
	// +optional
	IdentitySecretRef SecretKeyRef `json:"identitySecretRef,omitzero"`

	// ServiceAccountName gives the members' pods the platform's identity, such as an IAM role, while they restore.
	// Unset, as the EtcdSnapshot says.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Until restores, after the snapshot, the changes that a stream has stored since (spec.stream of an
	// EtcdSnapshotSchedule). Unset, the snapshot alone.
	// +optional
	Until *Until `json:"until,omitempty"`
}

// Until is where a restore ends among the changes that a stream has stored.
//
// +kubebuilder:validation:XValidation:rule="[has(self.revision), has(self.latest) && self.latest, has(self.time)].filter(is, is).size() == 1",message="until is exactly one of a revision, latest: true and a time"
type Until struct {
	// Revision of the last change that is restored. It must be stored, with all between it and the snapshot.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`

	// Latest restores everything that is stored without a gap after the snapshot.
	// +optional
	Latest bool `json:"latest,omitempty"`

	// Time restores what the stream had received by then, such as 2026-11-22T13:59:00Z. It is not before the
	// snapshot's, nor after the time up to which all is stored.
	// +optional
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[-+][0-9]{2}:[0-9]{2})$`
	Time string `json:"time,omitempty"`

	// KeysSecretRef is a Secret with the keys of the stream, under the key stream.key unless it names another: a copy
	// of <schedule>-stream-key where they were stored. Changes that none of them has signed are not restored. Unset,
	// those of this namespace are believed where an EtcdSnapshot is named, and else all that is in the store. It needs
	// the label etcd.quorate.dev/external.
	// +optional
	KeysSecretRef SecretKeyRef `json:"keysSecretRef,omitzero"`

	// ClusterID of the etcd whose changes they are, in hexadecimal: the name of a folder below tail in the store.
	// Unset, that of the EtcdSnapshot.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{1,16})?$`
	ClusterID string `json:"clusterID,omitempty"`
}

// ExternalCluster is a running etcd that the members join, one by one, to stay beside its own members or to take
// their place. Name its members in endpoints where Quorate can't reach the URLs that they advertise. Its Secrets have
// the label etcd.quorate.dev/cluster: <name of this EtcdCluster>.
type ExternalCluster struct {
	ExternalEtcd `json:",inline"`

	// PeerCASecretRef has in ca.crt what our members trust in the mode Auto, beside their own authority, for the
	// external members' peer certificates, until spec.bootstrap.external is taken out. Unset, it is caSecretRef.
	// +optional
	PeerCASecretRef SecretRef `json:"peerCASecretRef,omitzero"`
}

// QuorumLoss says what happens when so much data is lost that no quorum can come back.
// +kubebuilder:validation:Enum=Manual;FromSurvivor;FromSnapshot;Recreate
type QuorumLoss string

const (
	// RecoverManual keeps what is left and says which command recovers.
	RecoverManual QuorumLoss = "Manual"
	// RecoverFromSurvivor seeds a new epoch from the volume of the member that has the most; on the medium Memory, from
	// a member that still answers. It is not for the medium HostPath.
	RecoverFromSurvivor QuorumLoss = "FromSurvivor"
	// RecoverFromSnapshot seeds a new epoch from the newest verified EtcdSnapshot of the lost epoch and what a stream
	// has stored after it, or else from what this one began with. The EtcdSnapshot needs the label
	// etcd.quorate.dev/cluster; a schedule sets it.
	RecoverFromSnapshot QuorumLoss = "FromSnapshot"
	// RecoverRecreate begins a new epoch without data: all keys are lost.
	RecoverRecreate QuorumLoss = "Recreate"
)

// Recovery says what happens when so much data is lost that no quorum can come back.
type Recovery struct {
	// QuorumLoss is Manual, FromSurvivor, FromSnapshot or Recreate. None falls back to another: where it can't be done,
	// Quorate waits for a person.
	// +optional
	// +default="Manual"
	QuorumLoss QuorumLoss `json:"quorumLoss,omitempty"`

	// After is how long the quorum must have been lost, with every other member accounted for, before Quorate acts by
	// itself. A new cluster without its first quorum in as much time is Degraded.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="recovery.after must be at least 30s: nodes and caches take that long to show what is gone"
	After metav1.Duration `json:"after,omitzero"`

	// IdentitySecretRef holds the age identities that decrypt encrypted snapshots for FromSnapshot, under the key
	// identity unless it names another. It needs the label etcd.quorate.dev/external.
	// +optional
	IdentitySecretRef SecretKeyRef `json:"identitySecretRef,omitzero"`

	// KeepVolumesFor is how long the volumes of an epoch that is over are kept, with the annotation
	// etcd.quorate.dev/quarantined. Until then an EtcdOperation of type Restore can go back to it. 0s deletes them once
	// the next epoch serves.
	// +optional
	// +default="168h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="recovery.keepVolumesFor can't be negative"
	KeepVolumesFor *metav1.Duration `json:"keepVolumesFor,omitempty"`
}

// OriginStatus is where an epoch's data comes from.
type OriginStatus struct {
	// Source is Empty, Snapshot, Survivor, Claims or External.
	Source string `json:"source"`

	// PreviousEpoch is the number of the epoch that it took over from.
	// +optional
	PreviousEpoch int64 `json:"previousEpoch,omitempty"`

	// Restore is the UID of the EtcdOperation that asked for the epoch.
	// +optional
	Restore string `json:"restore,omitempty"`

	// Snapshot is the URL of the artifact that its members restored.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// Survivor is the member of an earlier epoch, or the claim of spec.bootstrap.claims, whose data was copied.
	// +optional
	Survivor string `json:"survivor,omitempty"`

	// Evidence is what each survivor or claim held. The first was chosen: its log is ahead, in term and then in index.
	// Of a stream it says how far it was restored, and what ended that; of bootstrap.latestSnapshot, what the store had.
	// +optional
	Evidence string `json:"evidence,omitempty"`
}
