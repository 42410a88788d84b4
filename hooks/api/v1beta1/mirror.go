package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdMirror keeps in an EtcdCluster a copy of the keys of another etcd, as a standby: all of them once, and then each
// change. It goes one way, and ends when it is promoted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=qmirror,categories=all;quorate
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.rule`
// +kubebuilder:printcolumn:name="Copied",type=date,JSONPath=`.status.copiedTime`
// +kubebuilder:printcolumn:name="Promoted-Revision",type=integer,JSONPath=`.status.promotedRevision`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name is too long: a key in etcd has it, and a label; use 63 characters at most"
type EtcdMirror struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is copied from where.
	// +required
	Spec EtcdMirrorSpec `json:"spec"`

	// Status is what came of it.
	// +optional
	// +default={"observedGeneration": -1}
	Status EtcdMirrorStatus `json:"status,omitzero"`
}

// EtcdMirrorList is a list of EtcdMirrors.
//
// +kubebuilder:object:root=true
type EtcdMirrorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdMirror `json:"items"`
}

// EtcdMirrorSpec is what is copied from where.
//
// +kubebuilder:validation:XValidation:rule="!has(self.source.clusterRef) || self.source.clusterRef.name != self.clusterRef.name",message="source.clusterRef is the destination itself: name another EtcdCluster"
// +kubebuilder:validation:XValidation:rule="!has(self.excludePrefixes) || !has(self.prefix) || self.excludePrefixes.all(e, e.startsWith(self.prefix) && e != self.prefix)",message="excludePrefixes must begin with prefix, and be longer"
// +kubebuilder:validation:XValidation:rule="(!has(self.prefix) || !self.prefix.startsWith('/quorate.dev/mirror/')) && (!has(self.toPrefix) || !self.toPrefix.startsWith('/quorate.dev/mirror/'))",message="keys below /quorate.dev/mirror/ are never mirrored"
// +kubebuilder:validation:XValidation:rule="!has(self.promote) || !has(self.suspend) || !self.suspend || has(self.promote.force) && self.promote.force",message="a promotion waits for the mirror: set suspend to false, or promote.force to true"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.promote) || has(self.promote)",message="promote can be changed and not be taken back: the mirror may have ended"
// +kubebuilder:validation:XValidation:rule="self.clusterRef == oldSelf.clusterRef && has(self.prefix) == has(oldSelf.prefix) && (!has(self.prefix) || self.prefix == oldSelf.prefix) && has(self.toPrefix) == has(oldSelf.toPrefix) && (!has(self.toPrefix) || self.toPrefix == oldSelf.toPrefix) && has(self.excludePrefixes) == has(oldSelf.excludePrefixes) && (!has(self.excludePrefixes) || self.excludePrefixes == oldSelf.excludePrefixes)",message="clusterRef, prefix, toPrefix and excludePrefixes can't be changed: create another EtcdMirror"
type EtcdMirrorSpec struct {
	// ClusterRef is the EtcdCluster that is written to, in the same namespace. Below the prefix it has no other keys
	// and no other writer.
	// +required
	ClusterRef ClusterRef `json:"clusterRef"`

	// Source is the etcd that is read.
	// +required
	Source MirrorSource `json:"source"`

	// Prefix of the keys that are copied, in printable ASCII without a dollar sign. Unset, all keys.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[ -#%-~]*$`
	Prefix string `json:"prefix,omitempty"`

	// ToPrefix takes the place of the prefix at the destination. Unset, the keys keep their names; empty, they lose the
	// prefix.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[ -#%-~]*$`
	ToPrefix *string `json:"toPrefix,omitempty"`

	// ExcludePrefixes are prefixes of keys at the source that are not copied.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[ -#%-~]*$`
	ExcludePrefixes []string `json:"excludePrefixes,omitempty"`

	// CompareOnStart compares all keys whenever the pod starts, and writes those that differ. Set it for a while when
	// something else has written to the destination, or when the source is another cluster or has another history than
	// before, as after a restore: without it the mirror stops then.
	// +optional
	CompareOnStart bool `json:"compareOnStart,omitempty"`

	// Suspend stops the mirror. It goes on where it was.
	// +optional
	Suspend bool `json:"suspend,omitempty"`

	// Promote ends the mirror at a revision that status.promotedRevision names. The destination is then yours to write
	// to. It can't be taken back.
	// +optional
	Promote *MirrorPromotion `json:"promote,omitempty"`

	// Resources of the pod. Unset requests are 100m of CPU and 64Mi of memory, and the unset limit of memory is 256Mi.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`
}

// MirrorSource is the etcd that is read.
//
// +kubebuilder:validation:XValidation:rule="[has(self.clusterRef), has(self.external), has(self.stored)].filter(is, is).size() == 1",message="set exactly one of source.clusterRef, source.external and source.stored"
type MirrorSource struct {
	// ClusterRef is an EtcdCluster in the same namespace.
	// +optional
	ClusterRef ClusterRef `json:"clusterRef,omitzero"`

	// External is another etcd, such as an EtcdCluster elsewhere. No other URL than its endpoints is asked, and the
	// installation must allow them (--allowed-etcd-endpoints).
	// +optional
	External *ExternalEtcd `json:"external,omitempty"`

	// Stored is what an EtcdSnapshotSchedule with spec.stream has stored of an etcd, for where no connection leads to
	// that one. The mirror is behind it by what is not stored yet.
	// +optional
	Stored *StoredSource `json:"stored,omitempty"`
}

// StoredSource is where the snapshots of an etcd, and the changes behind them, are stored.
type StoredSource struct {
	// Store as the schedule names it, in spec.template.spec.store.
	// +required
	Store Store `json:"store"`

	// Folder of the snapshots below the prefix of the store: the namespace of the EtcdCluster there and its name, such
	// as shop/orders.
	// +required
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^[a-z0-9][-a-z0-9]*/[a-z0-9][-.a-z0-9]*$`
	Folder string `json:"folder"`

	// IdentitySecretRef holds the age identities (AGE-SECRET-KEY-1...) that decrypt what is stored, under the key
	// identity unless it names another. It needs the label etcd.quorate.dev/external.
	// +optional
	IdentitySecretRef SecretKeyRef `json:"identitySecretRef,omitzero"`

	// KeysSecretRef is a Secret with the keys of the stream, under the key stream.key unless it names another: a copy
	// of <schedule>-stream-key where the changes were stored. What none of them has signed is not mirrored. Unset, all
	// that is in the store is believed. It needs the label etcd.quorate.dev/external.
	// +optional
	KeysSecretRef SecretKeyRef `json:"keysSecretRef,omitzero"`

	// ServiceAccountName gives the mirror's pods the platform's identity, such as an IAM role.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// ExternalEtcd is how clients come to an etcd that Quorate does not run. Secrets that are named here need the label
// etcd.quorate.dev/external, with any value; those of bootstrap.external need the label etcd.quorate.dev/cluster with
// the name of the EtcdCluster instead.
//
// +kubebuilder:validation:XValidation:rule="self.endpoints.all(e, e.startsWith('https://') == has(self.caSecretRef))",message="external.caSecretRef is for endpoints that begin with https://, and these need it; use one of the two for all of them"
// +kubebuilder:validation:XValidation:rule="has(self.caSecretRef) || !has(self.clientSecretRef) && !has(self.userSecretRef)",message="external.clientSecretRef and external.userSecretRef need external.caSecretRef: nothing secret goes over plain text"
type ExternalEtcd struct {
	// Endpoints are client URLs of its members, such as https://10.1.2.3:2379, best one of each.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=9
	// +kubebuilder:validation:items:MaxLength=255
	// +kubebuilder:validation:items:Pattern=`^https?://([0-9A-Za-z][-_.0-9A-Za-z]*|[[][0-9A-Fa-f:.]+[]]):[0-9]{1,5}$`
	Endpoints []string `json:"endpoints"`

	// CASecretRef has in ca.crt the authorities that signed the members' certificates.
	// +optional
	CASecretRef SecretRef `json:"caSecretRef,omitzero"`

	// ClientSecretRef has in tls.crt and tls.key what the members are shown. Unset, they are shown nothing.
	// +optional
	ClientSecretRef SecretRef `json:"clientSecretRef,omitzero"`

	// UserSecretRef has in username and password a user with the role root, where the etcd's auth is on and the
	// certificate of clientSecretRef names no such user.
	// +optional
	UserSecretRef SecretRef `json:"userSecretRef,omitzero"`

	// ServerName is what the members' certificates are for, where that is not the host in their URLs.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[-_.:0-9A-Za-z]*$`
	ServerName string `json:"serverName,omitempty"`
}

// MirrorPromotion says where a mirror ends. Without any field, the mirror ends once the destination has what the source
// had when it was asked: stop its writers first.
//
// +kubebuilder:validation:XValidation:rule="!has(self.revision) || !has(self.force) || !self.force",message="promote.revision waits for a revision, and promote.force for none: set one of them"
type MirrorPromotion struct {
	// Revision of the source that the destination must have reached. The source is not asked.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision,omitempty"`

	// Force ends the mirror at the last revision that the destination had whole, as when the source is lost.
	// +optional
	Force bool `json:"force,omitempty"`
}

// The conditions of an EtcdMirror, besides Ready, Reconciling and Stalled.
const (
	// Mirroring is True while what was written 30 seconds ago is at the destination.
	Mirroring = "Mirroring"
	// Promoted is True once the mirror has ended.
	Promoted = "Promoted"
)

// EtcdMirrorStatus is what came of a mirror.
type EtcdMirrorStatus struct {
	// ObservedGeneration is the generation of the spec that this status was made for; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Reconciling, Stalled, Mirroring and Promoted. Mirroring is True while what was written 30
	// seconds ago is at the destination; when it became False is since when it lags.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Rule is the name of the rule that decided last, such as Mirroring. It is for people, as that of an EtcdCluster.
	// +optional
	Rule string `json:"rule,omitempty"`

	// Message says what it does, what it waits for or what is wrong.
	// +optional
	Message string `json:"message,omitempty"`

	// Pod that mirrors.
	// +optional
	Pod string `json:"pod,omitempty"`

	// CopiedTime is when the destination was first seen to have all keys.
	// +optional
	CopiedTime metav1.Time `json:"copiedTime,omitzero"`

	// PromotedRevision is the revision of the source at which the mirror has ended: everything up to it is at the
	// destination, and nothing else of the source.
	// +optional
	PromotedRevision int64 `json:"promotedRevision,omitempty"`
}
