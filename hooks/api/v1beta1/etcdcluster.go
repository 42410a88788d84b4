package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdCluster is an etcd cluster: its members, their volumes and the Services that lead to them.
//
// Applications in the same Kubernetes cluster reach it at `<name>.<namespace>.svc:2379`.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=qetcd,categories=all;quorate
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Leader",type=string,JSONPath=`.status.leader`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.rule`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 48",message="the name is too long: members are named <name>-<n> and Services <name>-peers, which leaves 48 characters; choose a shorter name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="the name becomes the name of a Service: use lower-case letters, digits and '-', beginning with a letter"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.endsWith('-peers')",message="a name that ends in -peers would collide with the peer Service of another cluster; choose another name"
type EtcdCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the cluster should be.
	// +required
	Spec EtcdClusterSpec `json:"spec"`

	// Status is what Quorate last observed, and what it is doing about it.
	// +optional
	// +default={"observedGeneration": -1}
	Status EtcdClusterStatus `json:"status,omitzero"`
}

// EtcdClusterList is a list of EtcdClusters.
//
// +kubebuilder:object:root=true
type EtcdClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdCluster `json:"items"`
}

// EtcdClusterSpec is what an etcd cluster should be.
//
// +kubebuilder:validation:XValidation:rule="self.storage.medium != 'Memory' || self.replicas > 0",message="a Memory cluster keeps its data only while its pods run, so it can't be paused with replicas 0; delete it, or use suspend to stop changes"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.autoGrow) || !has(self.options) || !has(self.options.quotaBackendBytes)",message="options.quotaBackendBytes fixes the quota that storage.autoGrow is to raise; remove one of them"
// +kubebuilder:validation:XValidation:rule="!has(self.options) || !has(self.options.quotaBackendBytes) || string(self.storage.size).matches('[eE][-+]?[0-9.]{3}') || double(self.options.quotaBackendBytes) * 2.0 + 16777216.0 + (self.storage.medium == 'Memory' ? 0.0 : 83886080.0 + quantity(self.storage.size).asApproximateFloat() / 32.0) + (has(self.storage.wal) ? 0.0 : 268435456.0 + (quantity(self.storage.size).asApproximateFloat() / 8.0 > double(has(self.options.maxRequestBytes) ? self.options.maxRequestBytes : 1572864) * 54.0 ? quantity(self.storage.size).asApproximateFloat() / 8.0 : double(has(self.options.maxRequestBytes) ? self.options.maxRequestBytes : 1572864) * 54.0)) <= quantity(self.storage.size).asApproximateFloat()",message="options.quotaBackendBytes is more than storage.size has room for: the volume would be full before etcd raises its alarm. It may be half of what etcd's log and the file system leave, as a defragmentation writes a copy; lower the quota or give more storage"
// +kubebuilder:validation:XValidation:rule="!has(self.options) || !has(self.options.maxRequestBytes) || string(has(self.storage.wal) ? self.storage.wal.size : self.storage.size).matches('[eE][-+]?[0-9.]{3}') || double(self.options.maxRequestBytes) * 54.0 + (has(self.storage.wal) ? 352321536.0 : 402653184.0) <= quantity(has(self.storage.wal) ? self.storage.wal.size : self.storage.size).asApproximateFloat() / 32.0 * 31.0",message="options.maxRequestBytes needs more storage: etcd's log takes up to 54 times that and 256Mi, and the volume needs a fifth more; lower it, or raise storage.size (with storage.wal, its size)"
// +kubebuilder:validation:XValidation:rule="!self.version.startsWith('3.5.') || !has(self.options) || !has(self.options.extraArgs) || !('log-format' in self.options.extraArgs) && !('warning-unary-request-duration' in self.options.extraArgs)",message="options.extraArgs has log-format or warning-unary-request-duration, which etcd 3.5 does not know; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !self.auth.enabled || !has(self.tls.allowPlaintextClients) || !self.tls.allowPlaintextClients",message="auth can't be enabled while tls.allowPlaintextClients allows passwords in plain text; remove that first"
// +kubebuilder:validation:XValidation:rule="!has(self.tls.clientAuth) || self.tls.clientAuth != 'None' || has(self.auth) && self.auth.enabled",message="tls.clientAuth None needs auth.enabled true: without auth everyone may read and write all keys; enable auth, or set tls.clientAuth to Required"
// +kubebuilder:validation:XValidation:rule="!has(self.tls.clientAuth) || self.tls.clientAuth != 'None' || !has(self.auth) || !has(self.auth.users) || self.auth.users.all(u, !has(u.credential) || u.credential == 'Password')",message="auth.users has a user with the credential Certificate, and with tls.clientAuth None no one logs in with a certificate; set the credential to Password"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || self.tls.mode != 'Disabled'",message="auth needs tls: without it passwords would be sent in plain text; set tls.mode to Auto, Secrets or CertManager, or remove auth"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.hostPath) || !has(self.storage.hostPath.nodes) || self.storage.hostPath.nodes.size() >= self.replicas",message="storage.hostPath.nodes has fewer nodes than replicas: each member needs its own node; add nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.storage.hostPath) || has(self.storage.hostPath.nodes) != has(self.hostNetwork)",message="the medium HostPath needs the names of nodes, in storage.hostPath.nodes or, with hostNetwork, in hostNetwork.nodes alone"
// +kubebuilder:validation:XValidation:rule="!has(self.hostNetwork) || self.storage.medium != 'Persistent'",message="hostNetwork is for the media HostPath and Memory: the address of a member on a claim changes with its node"
// +kubebuilder:validation:XValidation:rule="!has(self.hostNetwork) || self.hostNetwork.nodes.size() >= self.replicas",message="hostNetwork.nodes has fewer nodes than replicas: each member needs its own node; add nodes"
// +kubebuilder:validation:XValidation:rule="self.storage.medium != 'HostPath' || !has(self.securityContext) || (!has(self.securityContext.idPolicy) || self.securityContext.idPolicy == 'Fixed') && !has(self.securityContext.runAsUser) && !has(self.securityContext.runAsGroup) && !has(self.securityContext.fsGroup)",message="securityContext can't choose users and groups with the medium HostPath: the directories on the nodes belong to user 10001; remove idPolicy, runAsUser, runAsGroup and fsGroup"
// +kubebuilder:validation:XValidation:rule="!has(self.selfHosted) || !self.selfHosted || self.replicas >= 3",message="selfHosted needs replicas of 3 or more: with fewer, the loss or restart of one member stops the API server"
// +kubebuilder:validation:XValidation:rule="!has(self.selfHosted) || !self.selfHosted || !has(self.recovery) || self.recovery.quorumLoss == 'Manual'",message="selfHosted needs recovery.quorumLoss Manual: if the API server answers, there is a quorum, even if Quorate does not see it"
// +kubebuilder:validation:XValidation:rule="!has(self.selfHosted) || !self.selfHosted || self.tls.mode in ['Secrets', 'Disabled']",message="selfHosted needs tls.mode Secrets: the API server reads its trusted authorities from a file, and Quorate can't see when that file changes"
// +kubebuilder:validation:XValidation:rule="!has(self.selfHosted) || !self.selfHosted || has(self.deletionProtection) && self.deletionProtection",message="selfHosted needs deletionProtection: without this etcd there is no API server"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.selfHosted) || !oldSelf.selfHosted || has(self.deletionProtection) && self.deletionProtection",message="selfHosted and deletionProtection can't be removed in one edit: remove selfHosted first, once the API server has its data elsewhere"
// +kubebuilder:validation:XValidation:rule="has(self.hostNetwork) == has(oldSelf.hostNetwork)",message="hostNetwork can't be added or removed later: the members' addresses would change; create an EtcdCluster that joins this etcd (bootstrap.external)"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.ip) || has(self.ip)",message="ip can be changed, and not removed: Kubernetes does not forget it; set the policy SingleStack and one family"
// +kubebuilder:validation:XValidation:rule="!has(self.bootstrap) || !has(self.bootstrap.claims) || self.storage.medium == 'Persistent'",message="bootstrap.claims needs storage.medium Persistent: the first member must run where the volume is that it copies"
// +kubebuilder:validation:XValidation:rule="!has(self.memberService) || !has(self.hostNetwork)",message="memberService is not for members on hostNetwork, which have the addresses of their nodes; remove memberService"
type EtcdClusterSpec struct {
	// Replicas is the number of voting members: 0 to 9. An odd number is right for nearly everyone: an even one
	// tolerates no more failures than the odd one below it. 0 stops all members and keeps their data; setting it back
	// brings the same cluster back.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=9
	Replicas *int32 `json:"replicas,omitempty"`

	// Spares is the number of members beside the replicas that have all data and do not vote: 0 or 1. The spare becomes
	// a voter in the moment in which one is missing, without copying anything first, and the next spare is made. It takes
	// no requests of clients, and needs the resources and the volume of a member. Members that join an external etcd
	// have none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	Spares int32 `json:"spares,omitempty"`

	// Version is the etcd release, such as 3.6.16: 3.5.26 or later of 3.5, 3.6.4 or later of 3.6, or 3.7.
	// +required
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,4}$')",message="version must be x.y.z, such as 3.6.16, without a leading v"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,4}$') || (self.split('.')[0] == '3' && self.split('.')[1] in ['5', '6', '7'])",message="Quorate runs etcd 3.5, 3.6 and 3.7; choose a release of one of these"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.]5[.][0-9]{1,4}$') || int(self.split('.')[2]) >= 26",message="etcd 3.5 before 3.5.26 has membership bugs that lose members on upgrade; use 3.5.26 or later"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^3[.]6[.][0-9]{1,4}$') || int(self.split('.')[2]) >= 4",message="etcd 3.6.0 to 3.6.3 has membership bugs that lose members; use 3.6.4 or later"
	Version string `json:"version"`

	// UpgradePolicy says how spec.version may be reached when it is more than one safe step away. OneMinor (the
	// default) refuses and names the path; Step walks it, by the newest known patch release of each minor on the way.
	// +optional
	UpgradePolicy UpgradePolicy `json:"upgradePolicy,omitempty"`

	// SnapshotBeforeUpgrade says whether a verified snapshot comes before another minor version, up or down.
	// IfScheduled (the default) waits for one where an EtcdSnapshotSchedule of this cluster has taken snapshots, and has
	// it take one at once, unless the newest is at most ten minutes old. Never waits for none.
	// +optional
	// +default="IfScheduled"
	SnapshotBeforeUpgrade SnapshotBeforeUpgrade `json:"snapshotBeforeUpgrade,omitempty"`

	// Image says where the etcd image comes from.
	// +optional
	Image ImageSpec `json:"image,omitzero"`

	// Storage says where the members keep their data.
	// +optional
	// +default={"medium": "Persistent", "size": "2Gi"}
	Storage StorageSpec `json:"storage,omitzero"`

	// Resources of the etcd container. Unset requests are 100m of CPU and 256Mi of memory, or the limit where that is
	// lower. On the medium Memory the size of the tmpfs is added to the memory request and limit.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !('memory' in self.limits) || string(self.limits['memory']).matches('[eE][-+]?[0-9.]{3}') || quantity(string(self.limits['memory'])).compareTo(quantity('32Mi')) >= 0",message="resources.limits.memory must be at least 32Mi: etcd needs that much to start and to serve; raise it, or remove the limit"
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// Affinity of the pods. Unset, members prefer to be on different nodes.
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`

	// NodeSelector of the pods.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pods.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// TopologySpreadConstraints of the pods. Unset, members are spread over zones where possible. A constraint
	// without a labelSelector gets the one of this cluster's members.
	// +optional
	// +listType=atomic
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	// PriorityClassName of the pods. Unset, the default class of the Kubernetes cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// SchedulerName of the pods. Unset, it is default-scheduler.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	SchedulerName string `json:"schedulerName,omitempty"`

	// RuntimeClassName of the pods, such as one of gVisor or Kata Containers. Unset, the runtime of the node.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	RuntimeClassName string `json:"runtimeClassName,omitempty"`

	// ServiceAccountName of the pods, such as one to which an OpenShift cluster allows a user ID. Unset, the default
	// one of the namespace. The pods get no token for the Kubernetes API.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// SecurityContext says as which user the pods run: the members', and others that read or write their volumes.
	// Unset, as user and group 10001.
	// +optional
	SecurityContext *PodSecurity `json:"securityContext,omitempty"`

	// AdditionalMetadata is put on every object that Quorate makes for this cluster. Quorate's own labels and
	// annotations win, and keys of etcd.quorate.dev/ are refused.
	// +optional
	AdditionalMetadata Metadata `json:"additionalMetadata,omitzero"`

	// Options of etcd itself.
	// +optional
	Options Options `json:"options,omitzero"`

	// TLS says how clients and members prove who they are. Unset, Quorate makes a certificate authority for the
	// cluster, requires certificates from everyone, and renews all that it makes.
	// +optional
	// +default={"mode": "Auto"}
	TLS TLSSpec `json:"tls,omitzero"`

	// Auth is who may do what in etcd. Unset, Quorate leaves etcd's auth as it is. While that is off, every client that
	// etcd lets in may do everything.
	// +optional
	Auth *AuthSpec `json:"auth,omitempty"`

	// HostNetwork gives members the addresses of their nodes, so that they and their clients need no DNS, kube-proxy or
	// pod network. It is for an etcd that a Kubernetes cluster itself depends on. No NetworkPolicy applies to such
	// pods.
	// +optional
	HostNetwork *HostNetworkSpec `json:"hostNetwork,omitempty"`

	// ClientService is about the Service for clients. Unset, only clients within Kubernetes reach it.
	// +optional
	ClientService ClientService `json:"clientService,omitzero"`

	// MemberService gives each member a Service and a URL of its own outside Kubernetes, which etcd lists too: for
	// clients that take their endpoints from etcd's member list. A change restarts the members, one at a time.
	// +optional
	MemberService *MemberService `json:"memberService,omitempty"`

	// IP is which IP families the cluster's Services have. Unset, Kubernetes chooses one.
	// +optional
	IP IP `json:"ip,omitzero"`

	// NetworkPolicy says who may open connections to the members.
	// +optional
	NetworkPolicy NetworkPolicySpec `json:"networkPolicy,omitzero"`

	// MemberReplacement says when a member that does not serve is given up and replaced by one under a new name.
	// Unset, after 5 minutes.
	// +optional
	MemberReplacement MemberReplacement `json:"memberReplacement,omitzero"`

	// Leadership says which member should lead. Unset, Quorate leaves that to etcd.
	// +optional
	Leadership Leadership `json:"leadership,omitzero"`

	// Maintenance is what Quorate does from time to time, and when it may disturb members.
	// +optional
	Maintenance Maintenance `json:"maintenance,omitzero"`

	// Bootstrap says where a new cluster's data comes from. Unset, it begins empty. Its snapshots or claims are read
	// once, before the cluster first begins.
	// +optional
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`

	// RemoveExternalMembers removes the members of the etcd that was joined (bootstrap.external), one at a time and the
	// leader last, once ours are all voters. False, the default, leaves them alone; set back to false, it stops the
	// removals.
	// +optional
	RemoveExternalMembers bool `json:"removeExternalMembers,omitempty"`

	// Recovery says what happens when so much data is lost that no quorum can come back. Unset, a person decides.
	// +optional
	Recovery Recovery `json:"recovery,omitzero"`

	// DeletionPolicy says what becomes of the members' claims when the EtcdCluster is deleted. Retain (the default)
	// leaves them, without an owner, with the annotation etcd.quorate.dev/retained-of. Delete deletes them, and their
	// data.
	// +optional
	// +default="Retain"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// DeletionProtection keeps the cluster running when its EtcdCluster is deleted: the deletion waits until this is
	// set to false. Where the admission policy of `quorate install` is in place, the deletion is refused right away.
	// +optional
	DeletionProtection bool `json:"deletionProtection,omitempty"`

	// SelfHosted says that the API server of this very Kubernetes has its data here. Quorate then refuses what would
	// stop this etcd as a whole: fewer than three replicas, a restore or recovery, recovery.quorumLoss other than
	// Manual, deletion. tls.mode must be Secrets or Disabled, and suspend waits until a change that is under way is
	// done.
	// +optional
	SelfHosted bool `json:"selfHosted,omitempty"`

	// Suspend stops all changes: members keep running as they are, and the condition Suspended is True until it is
	// set back. A pod that disappears meanwhile is not brought back.
	// +optional
	Suspend bool `json:"suspend,omitempty"`
}

// DeletionPolicy says what becomes of data when the object that stands for it is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

const (
	// DeletionDelete deletes the data.
	DeletionDelete DeletionPolicy = "Delete"
	// DeletionRetain leaves the data.
	DeletionRetain DeletionPolicy = "Retain"
)

// UpgradePolicy says how a version more than one step away is reached.
// +kubebuilder:validation:Enum=OneMinor;Step
type UpgradePolicy string

const (
	// UpgradeOneMinor refuses versions that are more than one safe step away.
	UpgradeOneMinor UpgradePolicy = "OneMinor"
	// UpgradeStep walks there by the newest known patch release of each minor.
	UpgradeStep UpgradePolicy = "Step"
)

// SnapshotBeforeUpgrade says whether a verified snapshot comes before another minor version.
// +kubebuilder:validation:Enum=IfScheduled;Never
type SnapshotBeforeUpgrade string

const (
	// SnapshotIfScheduled waits for a snapshot where an EtcdSnapshotSchedule takes them.
	SnapshotIfScheduled SnapshotBeforeUpgrade = "IfScheduled"
	// SnapshotNever waits for none.
	SnapshotNever SnapshotBeforeUpgrade = "Never"
)

// ImageSpec says where the etcd image comes from. Its tag is `v` and the version, such as v3.6.16, unless tags says
// another one.
type ImageSpec struct {
	// Repository of the image, without a tag. Unset, it is that of the installation (`--etcd-repository`), which is
	// gcr.io/etcd-development/etcd unless another one is set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z]([-._0-9A-Za-z]*[0-9A-Za-z])?(:[0-9]{1,5}/[0-9a-z]([-._0-9a-z]*[0-9a-z])?)?(/[0-9a-z]([-._0-9a-z]*[0-9a-z])?)*$`
	Repository string `json:"repository,omitempty"`

	// Tags are those of your own images, by version, each with a digest if it must be that very image:
	// `3.6.16: v3.6.16-r2@sha256:...`. A tag begins with its version, so that a pod shows what it runs.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(v, ['', 'v'].exists(p, self[v] == p + v || ['-', '_', '@'].exists(s, self[v].startsWith(p + v + s))))",message="each of image.tags must begin with its version, as in 3.6.16: v3.6.16-r2"
	Tags map[string]ImageTag `json:"tags,omitempty"`

	// PullPolicy of the image.
	// +optional
	// +default="IfNotPresent"
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`

	// PullSecrets name Secrets of the cluster's namespace with which nodes pull the image.
	// +optional
	// +listType=atomic
	PullSecrets []corev1.LocalObjectReference `json:"pullSecrets,omitempty"`
}

// ImageTag is the tag of an image, with or without a digest.
// +kubebuilder:validation:MaxLength=200
// +kubebuilder:validation:Pattern=`^v?[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,4}([-_][-._0-9A-Za-z]{0,100})?(@sha256:[0-9a-f]{64})?$`
type ImageTag string

// Medium is the kind of storage that holds a member's data.
// +kubebuilder:validation:Enum=Persistent;Memory;HostPath
type Medium string

const (
	// Persistent keeps each member's data on a PersistentVolumeClaim of its own.
	Persistent Medium = "Persistent"
	// Memory keeps each member's data on a tmpfs that lives as long as its pod. A pod that is gone is a lost member,
	// which is replaced while the rest has quorum; when a majority is lost, the data is lost.
	Memory Medium = "Memory"
	// HostPath keeps each member's data in a directory on a node of its own, for Kubernetes clusters without volumes.
	// The directory stays when the member or the EtcdCluster goes; a person removes it.
	HostPath Medium = "HostPath"
)

// StorageSpec says where the members keep their data.
//
// +kubebuilder:validation:XValidation:rule="self.medium == oldSelf.medium",message="storage.medium can't be changed: the members' data would be lost; create a new EtcdCluster and move the data with etcdctl make-mirror or a snapshot"
// +kubebuilder:validation:XValidation:rule="string(self.size).matches('[eE][-+]?[0-9.]{3}') || string(oldSelf.size).matches('[eE][-+]?[0-9.]{3}') || quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0 || (self.medium == 'Persistent' && has(self.migration) && self.migration == 'Replace')",message="storage.size can't shrink: a volume can't be made smaller; keep the size, or set storage.migration to Replace to replace the members by new ones on smaller volumes"
// +kubebuilder:validation:XValidation:rule="self.medium != 'Memory' || !has(self.storageClassName)",message="storage.storageClassName can't be used with the medium Memory; remove it"
// +kubebuilder:validation:XValidation:rule="self.medium != 'Memory' || !has(self.wal)",message="storage.wal can't be used with the medium Memory; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.wal) || !has(oldSelf.wal) || string(self.wal.size).matches('[eE][-+]?[0-9.]{3}') || string(oldSelf.wal.size).matches('[eE][-+]?[0-9.]{3}') || quantity(self.wal.size).compareTo(quantity(oldSelf.wal.size)) >= 0 || (has(self.migration) && self.migration == 'Replace')",message="storage.wal.size can't shrink: a volume can't be made smaller; keep the size, or set storage.migration to Replace to replace the members by new ones"
// +kubebuilder:validation:XValidation:rule="(self.medium == 'HostPath') == has(self.hostPath)",message="storage.hostPath and the medium HostPath need each other: set the path and the nodes"
// +kubebuilder:validation:XValidation:rule="self.medium != 'HostPath' || (!has(self.storageClassName) && !has(self.wal) && !has(self.migration))",message="storage.storageClassName, storage.wal and storage.migration can't be used with the medium HostPath; remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.autoGrow) || self.medium == 'Persistent'",message="storage.autoGrow is for the medium Persistent; remove it"
// +kubebuilder:validation:XValidation:rule="!has(self.autoGrow) || string(self.size).matches('[eE][-+]?[0-9.]{3}') || string(self.autoGrow.max).matches('[eE][-+]?[0-9.]{3}') || quantity(self.autoGrow.max).compareTo(quantity(self.size)) >= 0",message="storage.autoGrow.max must be at least storage.size; raise it"
type StorageSpec struct {
	// Medium is Persistent, Memory or HostPath. It can't be changed later.
	// +optional
	// +default="Persistent"
	Medium Medium `json:"medium,omitempty"`

	// Size of each member's volume or tmpfs, at least 512Mi; on HostPath only etcd's quota follows from it. The
	// database may have half of what etcd's log and the file system leave: 688 MiB of 2Gi, 4 GiB of 10Gi. Volumes grow
	// while the members run, where their class allows it. A smaller size needs migration Replace.
	// +optional
	// +default="2Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE][-+]?[0-9.]{3}') || quantity(string(self)).compareTo(quantity('512Mi')) >= 0",message="storage.size must be at least 512Mi: etcd's log takes up to 340 MiB, and the file system a part"
	Size resource.Quantity `json:"size,omitzero"`

	// AutoGrow lets volumes grow by themselves, on the medium Persistent: by half, in whole GiB, whenever a database
	// uses 80 % of its quota, and the quota with them. Unset, they grow when size does.
	// +optional
	AutoGrow *AutoGrow `json:"autoGrow,omitempty"`

	// StorageClassName of the claims; unset, the default class of the Kubernetes cluster. Claims that exist keep
	// theirs, unless migration is Replace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	StorageClassName *string `json:"storageClassName,omitempty"`

	// WAL gives each member a second volume for its write-ahead log, which every write waits for. Unset, the log is on
	// the first. To add it, take it away or change its class needs migration Replace.
	// +optional
	WAL *WALSpec `json:"wal,omitempty"`

	// Migration says what becomes of members whose volumes can't be changed into what the spec asks for: another class,
	// a smaller size, a larger one where the class can't expand, or wal added or removed. Never, the default, leaves
	// them and says so. Replace gives each a successor on a new volume, one at a time.
	// +optional
	Migration StorageMigration `json:"migration,omitempty"`

	// HostPath says where the directories are, for the medium HostPath.
	// +optional
	HostPath *HostPathSpec `json:"hostPath,omitempty"`
}

// Leadership says which member should lead. Quorate moves the leadership for it at most once in ten minutes.
type Leadership struct {
	// AvoidSlowDisks has the leadership leave a member whose disk takes four times as long as those of the others to
	// sync etcd's log, and 40 ms or more. Quorate then reads the members' metrics every five seconds.
	// +optional
	AvoidSlowDisks bool `json:"avoidSlowDisks,omitempty"`

	// PreferredZones are where the leader should be, the best first, such as eu-1a. A member is in the zone that its pod
	// has in the label topology.kubernetes.io/zone: Kubernetes puts it there from 1.35 on.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	PreferredZones []string `json:"preferredZones,omitempty"`
}

// AutoGrow is how far volumes grow by themselves.
type AutoGrow struct {
	// Max is the size beyond which volumes don't grow by themselves. They stay below it where etcd's quota would be more
	// than resources.limits.memory, or would be no larger.
	// +required
	Max resource.Quantity `json:"max"`
}

// HostPathSpec says where the members' directories are on the nodes.
type HostPathSpec struct {
	// Path of a directory on the nodes, such as /var/lib/etcd-data, made where it is missing. Each member has its own
	// below it, `<namespace>-<name>-<uid>/<member>`. It can't be changed later.
	// +required
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:XValidation:rule="self.matches('^(/[-_A-Za-z0-9][-._A-Za-z0-9]*)+$')",message="storage.hostPath.path must be an absolute path, such as /var/lib/etcd-data"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storage.hostPath.path can't be changed: the members' data is there"
	Path string `json:"path"`

	// Nodes that members may be on, by name: one member on each, so at least as many as replicas. Add one more for a
	// successor: of a member whose node is lost, or at each change where there are one or two voters. A node that is
	// taken out keeps its member. With spec.hostNetwork, name the nodes there instead.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Nodes []string `json:"nodes,omitempty"`
}

// HostNetworkSpec says which addresses and ports members have on the hosts' network.
//
// +kubebuilder:validation:XValidation:rule="self.clientPort == oldSelf.clientPort && self.peerPort == oldSelf.peerPort && self.metricsPort == oldSelf.metricsPort",message="the ports of hostNetwork can't be changed: the members are listed with them"
// +kubebuilder:validation:XValidation:rule="self.clientPort != self.peerPort && self.clientPort != self.metricsPort && self.peerPort != self.metricsPort",message="hostNetwork uses one port twice; choose three different ports"
// +kubebuilder:validation:XValidation:rule="self.nodes.all(n, oldSelf.nodes.all(o, o.name != n.name || o.address == n.address))",message="the address of a node in hostNetwork.nodes can't be changed: its member is listed with it; remove the node, let its member be replaced, and add it again"
type HostNetworkSpec struct {
	// Nodes that members may be on, and the address of each: one member on each, so at least as many as replicas. Add
	// one more for a successor. A node that is taken out keeps its member.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Nodes []NodeAddress `json:"nodes"`

	// ClientPort is where every member serves clients. It can't be changed later.
	// +optional
	// +default=2379
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ClientPort int32 `json:"clientPort,omitempty"`

	// PeerPort is where every member listens to the others. It can't be changed later.
	// +optional
	// +default=2380
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	PeerPort int32 `json:"peerPort,omitempty"`

	// MetricsPort is where every member serves metrics, in plain HTTP. The kubelet asks there whether the member is
	// ready. It can't be changed later.
	// +optional
	// +default=2381
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	MetricsPort int32 `json:"metricsPort,omitempty"`
}

// NodeAddress is a node and its address.
type NodeAddress struct {
	// Name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Address of the node: an IP address that the other nodes reach, such as 10.0.0.1. It is in the members'
	// certificates and in etcd's list, and can't be changed later.
	// +required
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:Pattern=`^[0-9a-f]*[.:][0-9a-f.:]*$`
	Address string `json:"address"`
}

// WALSpec is a volume for the write-ahead log.
type WALSpec struct {
	// Size of the volume, at least 512Mi.
	// +optional
	// +default="1Gi"
	// +kubebuilder:validation:XValidation:rule="string(self).matches('[eE][-+]?[0-9.]{3}') || quantity(string(self)).compareTo(quantity('512Mi')) >= 0",message="storage.wal.size must be at least 512Mi: etcd's log takes up to 340 MiB, and the file system a part"
	Size resource.Quantity `json:"size,omitzero"`

	// StorageClassName of the claims; unset, the default class of the Kubernetes cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	StorageClassName *string `json:"storageClassName,omitempty"`
}

// StorageMigration says what becomes of members whose volumes can't be changed.
// +kubebuilder:validation:Enum=Never;Replace
type StorageMigration string

const (
	// MigrateNever leaves members on the volumes that they have.
	MigrateNever StorageMigration = "Never"
	// MigrateReplace has them succeeded by new members, one at a time.
	MigrateReplace StorageMigration = "Replace"
)

// Metadata is labels and annotations. Keys of etcd.quorate.dev/ are Quorate's own.
type Metadata struct {
	// Labels by key.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('etcd.quorate.dev/'))",message="keys of etcd.quorate.dev/ are reserved for Quorate; remove them"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="use at most 63 letters, digits, '-', '_' and '.' in a label's key, with or without a domain name and '/' before them"
	Labels map[string]LabelValue `json:"labels,omitempty"`
	// Annotations by key.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('etcd.quorate.dev/'))",message="keys of etcd.quorate.dev/ are reserved for Quorate; remove them"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="use at most 63 letters, digits, '-', '_' and '.' in an annotation's key, with or without a domain name and '/' before them"
	Annotations map[string]string `json:"annotations,omitempty"`
}

// LabelValue is the value of a label: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a
// letter or a digit.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:Pattern=`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
type LabelValue string

// Options are etcd's own settings. Each is one flag of etcd; what is unset has the default named here.
//
// +kubebuilder:validation:XValidation:rule="duration(self.electionTimeout) >= duration(self.heartbeatInterval) + duration(self.heartbeatInterval) + duration(self.heartbeatInterval) + duration(self.heartbeatInterval) + duration(self.heartbeatInterval)",message="options.electionTimeout must be at least 5 times options.heartbeatInterval, or members call elections on every hiccup; raise it"
type Options struct {
	// QuotaBackendBytes is the size of the database at which etcd stops taking writes (alarm NOSPACE), in bytes.
	// Unset, all that the volume has room for, at most 8 GiB: half of what etcd's log and the file system leave, as a
	// defragmentation writes a copy. It can't be more than there is room for.
	// +optional
	// +kubebuilder:validation:Minimum=16777216
	QuotaBackendBytes *int64 `json:"quotaBackendBytes,omitempty"`

	// AutoCompaction drops old revisions by itself. Unset, etcd keeps those of the last five minutes.
	// +optional
	AutoCompaction AutoCompaction `json:"autoCompaction,omitzero"`

	// HeartbeatInterval is how often the leader tells the others that it is there, between 10ms and 10s: about the
	// round trip between members. etcd counts whole milliseconds.
	// +optional
	// +default="100ms"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10ms') && duration(self) <= duration('10s')",message="options.heartbeatInterval must be between 10ms and 10s"
	HeartbeatInterval metav1.Duration `json:"heartbeatInterval,omitzero"`

	// ElectionTimeout is how long a follower hears nothing before it calls an election: between 50ms and 50s, and at
	// least five times the heartbeatInterval. etcd counts whole milliseconds.
	// +optional
	// +default="1s"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('50ms') && duration(self) <= duration('50s')",message="options.electionTimeout must be between 50ms and 50s"
	ElectionTimeout metav1.Duration `json:"electionTimeout,omitzero"`

	// MaxRequestBytes is the largest request that etcd accepts, in bytes. Unset, etcd's own default of 1.5 MiB.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=104857600
	MaxRequestBytes *int64 `json:"maxRequestBytes,omitempty"`

	// LogLevel of etcd: debug, info, warn or error.
	// +optional
	// +default="info"
	// +kubebuilder:validation:Enum=debug;info;warn;error
	LogLevel string `json:"logLevel,omitempty"`

	// ExtraArgs are further flags of etcd, by their names in 3.6 without `--`, such as `max-concurrent-streams:
	// "1000"`. For 3.5, Quorate puts `experimental-` before those that are called so there. Only flags are allowed that
	// can't harm the cluster, and that have no field of their own.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	// +kubebuilder:validation:XValidation:rule="self.all(name, name in ['backend-batch-interval', 'backend-batch-limit', 'backend-bbolt-freelist-type', 'bcrypt-cost', 'compact-hash-check-time', 'compaction-batch-limit', 'compaction-sleep-interval', 'corrupt-check-time', 'cors', 'distributed-tracing-address', 'distributed-tracing-sampling-rate', 'distributed-tracing-service-name', 'enable-distributed-tracing', 'enable-grpc-gateway', 'grpc-keepalive-interval', 'grpc-keepalive-min-time', 'grpc-keepalive-timeout', 'initial-election-tick-advance', 'log-format', 'max-concurrent-streams', 'max-txn-ops', 'metrics', 'warning-apply-duration', 'warning-unary-request-duration', 'watch-progress-notify-interval'])",message="options.extraArgs has a flag that belongs to Quorate, has a field of its own, or may harm the cluster. Those that can be set, without -- and without experimental-: backend-batch-interval, backend-batch-limit, backend-bbolt-freelist-type, bcrypt-cost, compact-hash-check-time, compaction-batch-limit, compaction-sleep-interval, corrupt-check-time, cors, distributed-tracing-address, distributed-tracing-sampling-rate, distributed-tracing-service-name, enable-distributed-tracing, enable-grpc-gateway, grpc-keepalive-interval, grpc-keepalive-min-time, grpc-keepalive-timeout, initial-election-tick-advance, log-format, max-concurrent-streams, max-txn-ops, metrics, warning-apply-duration, warning-unary-request-duration, watch-progress-notify-interval"
	ExtraArgs map[string]ExtraArg `json:"extraArgs,omitempty"`
}

// ExtraArg is the value of a flag: up to 200 characters without blanks.
// +kubebuilder:validation:MaxLength=200
// +kubebuilder:validation:Pattern=`^[-+._:,/*A-Za-z0-9\[\]]+$`
type ExtraArg string

// AutoCompaction drops old revisions by itself.
//
// +kubebuilder:validation:XValidation:rule="!has(self.retention) || !has(self.revisions)",message="autoCompaction has retention or revisions: revisions are kept for a time, or by their number"
type AutoCompaction struct {
	// Retention is how long old revisions are kept, such as 30m. Unset, 5m, unless revisions says how many are kept. 0s
	// keeps all, until a client compacts. etcd compacts late: room is needed for up to three times the duration, and
	// beyond 1h for twice.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1s')",message="options.autoCompaction.retention must be at least 1s, or 0s to keep all revisions"
	Retention *metav1.Duration `json:"retention,omitempty"`

	// Revisions is how many revisions are kept instead.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Revisions *int64 `json:"revisions,omitempty"`
}

// The condition types by which tools wait for an object of ours: exactly one of the three is True. (An
// EtcdSnapshotSchedule has nothing to bring about, and so never the second.)
const (
	// Ready is True while what runs is what the spec asks for, except what waits for a window of maintenance.windows,
	// and, of an EtcdCluster, a pod is ready, so that clients are led to one. Its message says what is done, or waited
	// for, when it is False.
	Ready = "Ready"
	// Reconciling is True while Quorate changes something, or waits for a change to finish or for others to come back.
	Reconciling = "Reconciling"
	// Stalled is True while nothing will go on before a person does something. Its message says what.
	Stalled = "Stalled"
)

// The reasons of Ready, Reconciling and Stalled, and of Available while it is False. These are all, and scripts may
// rely on them: an EtcdSnapshot and an EtcdOperation have the name of their phase instead. Messages are for people.
const (
	// ReasonServing: what runs is what the spec asks for.
	ReasonServing = "Serving"
	// ReasonWaitingForWindow: a change that can wait does so, for a window of maintenance.windows.
	ReasonWaitingForWindow = "WaitingForWindow"
	// ReasonSuspended: spec.suspend holds changes back.
	ReasonSuspended = "Suspended"
	// ReasonPaused: replicas is 0.
	ReasonPaused = "Paused"
	// ReasonPromoted: an EtcdMirror has ended as it was asked to.
	ReasonPromoted = "Promoted"
	// ReasonProgressing: Quorate changes something, or waits for what Kubernetes, etcd or others will do.
	ReasonProgressing = "Progressing"
	// ReasonNoQuorum: the cluster has begun, and no quorum answers.
	ReasonNoQuorum = "NoQuorum"
	// ReasonNoPodReady: members serve, and the kubelets say of no pod that it is ready.
	ReasonNoPodReady = "NoPodReady"
	// ReasonFailedCreate: Kubernetes does not make something that Quorate has asked it for.
	ReasonFailedCreate = "FailedCreate"
	// ReasonInvalid: the spec can't be run.
	ReasonInvalid = "Invalid"
	// ReasonActionNeeded: nothing goes on before a person does what the message says.
	ReasonActionNeeded = "ActionNeeded"
)

// The other condition types of an EtcdCluster.
const (
	// Available is True while etcd answered a linearizable read in the last call: the cluster serves.
	Available = "Available"
	// Degraded is True while a member is missing, not serving, or has an alarm.
	Degraded = "Degraded"
	// Suspended is True while spec.suspend holds every change back.
	Suspended = "Suspended"
	// ExternalMembers is True while members of the etcd that was joined (spec.bootstrap.external) are there, or not
	// found yet; its reason is the stage: Asking, Unfit, Joining, Beside, Retiring, Leaving or Left. False with the
	// reason Retired, the cluster is ours like any other.
	ExternalMembers = "ExternalMembers"
	// Advised is True while the spec works but is not what we would run, such as an even number of members.
	Advised = "Advised"
	// Secured is True while clients and members prove themselves by certificates that are in order. It is False with
	// the reason Disabled when that is switched off on purpose, and with another when a certificate is missing,
	// unusable or about to expire.
	Secured = "Secured"
	// Authorized is True while etcd asks every client who it is, and its users and roles are those of the spec. Its
	// message names the field that stands in the way.
	Authorized = "Authorized"
	// Restored is there while an EtcdOperation of type Restore has not ended, or an epoch takes over: False while that
	// is being made ready, or can't be; the message says why.
	Restored = "Restored"
)

// AnsweredBefore is the reason of [Restored] when an epoch has answered the operation, and another one has come after
// it.
const AnsweredBefore = "Answered"

// EtcdClusterStatus is what Quorate last observed, and what it is doing about it.
type EtcdClusterStatus struct {
	// ObservedGeneration is the generation of the spec that this status was made for; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Reconciling, Stalled, Available, Degraded, Suspended, Advised, Secured, Authorized;
	// ExternalMembers after spec.bootstrap.external; and Restored during a restore or a recovery.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Rule is the name of the rule that decided last, such as Converged. It is for people: releases may add and rename
	// rules. Scripts use the conditions and their reasons.
	// +optional
	Rule string `json:"rule,omitempty"`

	// ClusterID of etcd, in hexadecimal. It stays the same for the life of an epoch.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// Epoch counts the incarnations of the raft cluster; 1 is the first. A restore or a recovery begins the next.
	// +optional
	Epoch int64 `json:"epoch,omitempty"`

	// Origin is where the data of the epoch comes from; unset for a first epoch that began empty.
	// +optional
	Origin *OriginStatus `json:"origin,omitempty"`

	// Version of etcd that members are started with: spec.version, or one on the way to it. What each runs is in
	// members.
	// +optional
	Version string `json:"version,omitempty"`

	// SnapshotWanted is since when an upgrade waits for a verified snapshot: schedules of this cluster take one then.
	// +optional
	SnapshotWanted metav1.Time `json:"snapshotWanted,omitzero"`

	// Leader is the name of the member that leads.
	// +optional
	Leader string `json:"leader,omitempty"`

	// Replicas is the number of our members that etcd lists: voters, learners and spares. External ones don't count.
	// +optional
	Replicas int32 `json:"replicas"`

	// ReadyReplicas is the number of these that are voters and serve.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// Selector of the pods, for the scale subresource.
	// +optional
	Selector string `json:"selector,omitempty"`

	// Members as etcd lists them, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Members []MemberStatus `json:"members,omitempty"`

	// Defragmentation is what was last done about free space in the members' databases.
	// +optional
	Defragmentation *DefragmentationStatus `json:"defragmentation,omitempty"`

	// Operations are the EtcdOperations that have not ended, or whose own status does not show their end yet: at most
	// 32.
	// +optional
	// +listType=map
	// +listMapKey=uid
	Operations []OperationProgress `json:"operations,omitempty"`

	// History is the last 20 decisions that changed something or that differ from the one before, the newest last.
	// +optional
	// +listType=atomic
	History []HistoryEntry `json:"history,omitempty"`

	// TLS is about the certificates in use.
	// +optional
	TLS TLSStatus `json:"tls,omitzero"`

	// Auth is what was last done about users and roles in etcd.
	// +optional
	Auth *AuthStatus `json:"auth,omitempty"`

	// Connection is what an application needs to reach etcd.
	// +optional
	Connection *ConnectionStatus `json:"connection,omitempty"`

	// Internal is what Quorate remembers from one call to the next. It is no part of the API, and changes without
	// notice. Without it Quorate only waits longer, or tries again sooner.
	// +optional
	Internal InternalStatus `json:"internal,omitzero"`
}

// ConnectionStatus is what an application needs to reach etcd. The Secrets are in the namespace of the EtcdCluster. One
// is named once it exists.
type ConnectionStatus struct {
	// Endpoints are the URL of the client Service, such as https://demo.shop.svc:2379, and with spec.hostNetwork those
	// of the voters.
	// +optional
	// +listType=atomic
	Endpoints []string `json:"endpoints,omitempty"`

	// External are the URLs outside Kubernetes: those of the load balancer, once it has an address, and with
	// spec.memberService those of the voters. The servers' certificate is valid for them, in the modes Auto and
	// CertManager.
	// +optional
	// +listType=atomic
	External []string `json:"external,omitempty"`

	// NodePort is the port of each node that leads to the members, with spec.clientService of type NodePort.
	// +optional
	NodePort int32 `json:"nodePort,omitempty"`

	// ClientSecretRef has in tls.crt and tls.key what an application shows. With spec.auth, each user has a Secret of
	// its own instead. It is unset once no member asks for a certificate (spec.tls.clientAuth None).
	// +optional
	ClientSecretRef SecretRef `json:"clientSecretRef,omitzero"`

	// CASecretRef has in ca.crt the authorities that an application may trust. The key of the authority is not
	// in this Secret.
	// +optional
	CASecretRef SecretRef `json:"caSecretRef,omitzero"`
}

// Role of a member.
// +kubebuilder:validation:Enum=Voter;Learner;Spare
type Role string

const (
	// Voter is a member that counts for quorum.
	Voter Role = "Voter"
	// Learner is a member that receives the log and does not vote.
	Learner Role = "Learner"
	// Spare is a learner that stays one, as spec.spares asks for: it has caught up.
	Spare Role = "Spare"
)

// MemberStatus is one member as last observed.
type MemberStatus struct {
	// Name of the member, its pod and its claim.
	Name string `json:"name"`

	// ID of the member, in hexadecimal.
	// +optional
	ID string `json:"id,omitempty"`

	// External is true for a member of the etcd that was joined (spec.bootstrap.external): Quorate does not run it.
	// +optional
	External bool `json:"external,omitempty"`

	// Role is Voter, Learner or Spare.
	// +optional
	Role Role `json:"role,omitempty"`

	// Leader is true for the member that leads.
	// +optional
	Leader bool `json:"leader,omitempty"`

	// Version of etcd that the member runs.
	// +optional
	Version string `json:"version,omitempty"`

	// Ready is true when the member answered, knows a leader and is not far behind.
	// +optional
	Ready bool `json:"ready"`

	// DBSize is the size of the member's database file, rounded up to a whole MiB, and by up to an eighth, so that the
	// status seldom changes.
	// +optional
	DBSize *resource.Quantity `json:"dbSize,omitempty"`

	// DBSizeInUse is the part of DBSize that is in use, rounded alike.
	// +optional
	DBSizeInUse *resource.Quantity `json:"dbSizeInUse,omitempty"`

	// Alarms that the member has raised: NOSPACE or CORRUPT.
	// +optional
	// +listType=atomic
	Alarms []string `json:"alarms,omitempty"`

	// Volume is the member's volume while it is not what the spec asks for.
	// +optional
	Volume *VolumeStatus `json:"volume,omitempty"`

	// WALVolume is the same for the volume of the member's write-ahead log.
	// +optional
	WALVolume *VolumeStatus `json:"walVolume,omitempty"`

	// JoinTime is when Quorate first saw the member in etcd's list.
	// +optional
	JoinTime metav1.Time `json:"joinTime,omitzero"`

	// LastTransitionTime is when ready last changed. It is unset while spec.suspend or a fence keeps the member from
	// being ready.
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitzero"`

	// Message says why the member is not ready.
	// +optional
	Message string `json:"message,omitempty"`
}
