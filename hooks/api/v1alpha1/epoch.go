package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bootstrap says where a new cluster's data comes from. It is read once, before the cluster first begins; existing
// is, until the members that are not ours are gone.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.snapshot) && has(self.existing))",message="bootstrap has either snapshot or existing: the data comes from one place"
type Bootstrap struct {
	// Snapshot that all initial members restore.
	// +optional
	Snapshot *SnapshotSource `json:"snapshot,omitempty"`

	// Existing is a running etcd that the members join.
	// +optional
	Existing *ExistingCluster `json:"existing,omitempty"`
}

// SnapshotSource is a snapshot that members restore.
//
// +kubebuilder:validation:XValidation:rule="has(self.snapshotRef) != has(self.artifact)",message="a snapshot is either snapshotRef, an EtcdSnapshot of the namespace, or artifact, something in a store"
// +kubebuilder:validation:XValidation:rule="!has(self.artifact) || has(self.store)",message="artifact needs store: where it is, and how it is reached"
type SnapshotSource struct {
	// SnapshotRef is an EtcdSnapshot of the namespace.
	// +optional
	SnapshotRef SnapshotRef `json:"snapshotRef,omitzero"`

	// Artifact is the name of one in the store, below its prefix, as status.artifact of its EtcdSnapshot had it. What
	// etcdctl snapshot save wrote is taken as well, when its name ends in .db.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*$') && !self.endsWith('.json')",message="artifact may have only letters, digits and -._=+@~: in its names, with one / between names; no name may end in two dots, and it may not end in .json"
	Artifact string `json:"artifact,omitempty"`

	// Store is where the artifact, or a copy of that of the EtcdSnapshot, is, and how it is reached. Unset, as the
	// EtcdSnapshot says.
	// +optional
	Store *Store `json:"store,omitempty"`

	// IdentitySecretRef holds identities of age (AGE-SECRET-KEY-1...) for an encrypted one, under the key identity
	// unless it names another.
	// +optional
	IdentitySecretRef SecretKeyRef `json:"identitySecretRef,omitzero"`

	// ServiceAccountName that gives the members' pods the platform's identity, while they restore. Unset, as the
	// EtcdSnapshot says.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// BumpRevision raises the revision by so much, and marks everything before as compacted. Unset, it is raised to
	// 1,000,000,000 above all that the cluster had before, so that clients which have seen later revisions than the
	// snapshot's notice. 0 leaves the revision: for a cluster of which no client has seen anything. Otherwise a watch
	// may miss events without an error, and a compare-and-swap may hit what another client wrote.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BumpRevision *int64 `json:"bumpRevision,omitempty"`
}

// ExistingCluster is a running etcd that the members join, one by one, to stay beside its own members or to take
// their place.
//
// +kubebuilder:validation:XValidation:rule="self.endpoints.all(e, e.startsWith('https://')) == has(self.tls)",message="existing.tls is for endpoints that begin with https://, and these need it; use one of the two for all of them"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || has(self.tls)",message="existing.auth needs existing.tls: without it passwords would be sent in plain text"
type ExistingCluster struct {
	// Endpoints are client URLs of its members, such as https://10.1.2.3:2379. Its other members are asked at the
	// client URLs that they advertise; name them here where Quorate can't reach those. It asks nowhere but where its
	// installation allows it (--existing-endpoints).
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^https?://([0-9A-Za-z][-_.0-9A-Za-z]*|[[][0-9A-Fa-f:.]+[]]):[0-9]{1,5}$`
	Endpoints []string `json:"endpoints"`

	// TLS is how Quorate comes to its members, and whose certificates are trusted. Unset, they speak plain text.
	// +optional
	TLS *ExistingTLS `json:"tls,omitempty"`

	// Auth is the user that Quorate comes as, where its auth is on and the certificate of existing.tls names no user
	// with the role root.
	// +optional
	Auth *ExistingAuth `json:"auth,omitempty"`

	// RetireForeign removes the members that are not ours, one at a time and the leader last, once ours are all
	// voters. Until then they are left alone, and setting it back stops the removals.
	// +optional
	RetireForeign bool `json:"retireForeign,omitempty"`
}

// ExistingTLS is how Quorate comes to the members of a foreign etcd, and whose certificates are trusted.
type ExistingTLS struct {
	// SecretRef is a Secret with the label etcd.quorate.dev/cluster: <name of this EtcdCluster>. Its ca.crt are the
	// authorities of the foreign members, its tls.crt and tls.key what Quorate shows to them; without these two it
	// shows nothing.
	// +required
	SecretRef SecretRef `json:"secretRef"`

	// TrustSecretRef is a Secret like that, whose ca.crt the members trust too, beside their own authority, in the
	// mode Auto: that of the foreign members' peer certificates. It is trusted until spec.bootstrap.existing is taken
	// out. Unset, it is that of secretRef.
	// +optional
	TrustSecretRef SecretRef `json:"trustSecretRef,omitzero"`

	// ServerName is what the certificates of the foreign members are for, where that is not the host in their URLs.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-_.:0-9A-Za-z]*$`
	ServerName string `json:"serverName,omitempty"`
}

// ExistingAuth is a user of a foreign etcd, with the role root.
type ExistingAuth struct {
	// SecretRef is a Secret with the label etcd.quorate.dev/cluster: <name of this EtcdCluster> and the keys username
	// and password.
	// +required
	SecretRef SecretRef `json:"secretRef"`
}

// QuorumLoss says what happens when so much data is lost that no quorum can come back.
// +kubebuilder:validation:Enum=Manual;FromSurvivor;FromSnapshot;Recreate
type QuorumLoss string

const (
	// RecoverManual keeps what is left and says which command recovers.
	RecoverManual QuorumLoss = "Manual"
	// RecoverFromSurvivor seeds a new epoch from the volume of the member that has the most.
	RecoverFromSurvivor QuorumLoss = "FromSurvivor"
	// RecoverFromSnapshot seeds a new epoch from the newest verified EtcdSnapshot that was taken of the epoch that is
	// lost, or else from the snapshot that this one began with.
	RecoverFromSnapshot QuorumLoss = "FromSnapshot"
	// RecoverRecreate begins a new epoch without data.
	RecoverRecreate QuorumLoss = "Recreate"
)

// Recovery says what happens when so much data is lost that no quorum can come back.
type Recovery struct {
	// QuorumLoss is Manual, FromSurvivor, FromSnapshot or Recreate. FromSurvivor falls back to nothing else when no
	// member has survived.
	// +optional
	// +default="Manual"
	QuorumLoss QuorumLoss `json:"quorumLoss,omitempty"`

	// After is how long the quorum must have been lost, with every other member accounted for, before anything is
	// done by itself. A new cluster that has not come to its first quorum in as much time is Degraded.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('30s')",message="recovery.after must be at least 30s: nodes and caches take that long to show what is gone"
	After metav1.Duration `json:"after,omitzero"`

	// IdentitySecretRef holds identities of age, for FromSnapshot with encrypted snapshots, under the key identity
	// unless it names another.
	// +optional
	IdentitySecretRef SecretKeyRef `json:"identitySecretRef,omitzero"`

	// BumpRevision raises the revision of an epoch that takes over from a lost quorum by so much, and marks
	// everything before as compacted. Unset, it is raised to 1,000,000,000 above all that the cluster had before:
	// watches end, and clients look again. 0 leaves the revision of the survivor or the snapshot, and starts at 1 again
	// where there is no data: a watch may then miss events without an error, and a compare-and-swap may hit what
	// another client wrote.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BumpRevision *int64 `json:"bumpRevision,omitempty"`

	// KeepVolumesFor is how long the volumes of an epoch that is over are kept, with the annotation
	// etcd.quorate.dev/quarantined. Until then going back to it is possible. 0s deletes them once the next epoch
	// serves.
	// +optional
	// +default="168h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="recovery.keepVolumesFor can't be negative"
	KeepVolumesFor *metav1.Duration `json:"keepVolumesFor,omitempty"`
}

// OriginStatus is where an epoch's data comes from.
type OriginStatus struct {
	// Source is Empty, Snapshot, Survivor or Existing.
	Source string `json:"source"`

	// After is the epoch that it took over from.
	// +optional
	After int64 `json:"after,omitempty"`

	// Restore is the UID of the EtcdOperation that the epoch answers.
	// +optional
	Restore string `json:"restore,omitempty"`

	// Snapshot is the URL of the artifact that its members restored.
	// +optional
	Snapshot string `json:"snapshot,omitempty"`

	// Survivor is the member of an earlier epoch whose volume was copied.
	// +optional
	Survivor string `json:"survivor,omitempty"`

	// Evidence is what the volumes of all survivors held: the one whose log is ahead, in term and then in index, is
	// first and was chosen.
	// +optional
	Evidence string `json:"evidence,omitempty"`
}
