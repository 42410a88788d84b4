package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdSnapshot is one snapshot of an EtcdCluster in a store outside of it. A Job takes it once; the object then says
// what it holds, and that it was restored on trial.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=qsnap,categories=all;quorate
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Verified",type=date,JSONPath=`.status.verificationTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="URI",type=string,priority=1,JSONPath=`.status.uri`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 100",message="the name is too long: the Job that takes the snapshot is named after it; use 100 characters at most"
// +kubebuilder:validation:XValidation:rule="self.spec.cluster == oldSelf.spec.cluster && self.spec.store == oldSelf.spec.store && self.spec.compression == oldSelf.spec.compression && has(self.spec.encryption) == has(oldSelf.spec.encryption)",message="spec.cluster, spec.store, spec.compression and whether it is encrypted can't be changed: they say where the snapshot is stored; create another EtcdSnapshot"
type EtcdSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what to take, and where to keep it.
	// +required
	Spec EtcdSnapshotSpec `json:"spec"`

	// Status is what became of it.
	// +optional
	// +default={"observedGeneration": -1}
	Status EtcdSnapshotStatus `json:"status,omitzero"`
}

// EtcdSnapshotList is a list of EtcdSnapshots.
//
// +kubebuilder:object:root=true
type EtcdSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []EtcdSnapshot `json:"items"`
}

// EtcdSnapshotSpec is what to take, and where to keep it.
type EtcdSnapshotSpec struct {
	// Cluster is the name of the EtcdCluster, in the namespace of the snapshot.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=48
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Cluster string `json:"cluster"`

	// Store is where the snapshot is kept.
	// +required
	Store Store `json:"store"`

	// Compression of what is stored.
	// +optional
	// +default="Zstd"
	Compression Compression `json:"compression,omitempty"`

	// Encryption of what is stored, before it leaves the Job. Unset, it is stored as it is.
	// +optional
	Encryption *Encryption `json:"encryption,omitempty"`

	// Verify has what was stored fetched again and restored on trial: etcd must serve it, and its hash, revision and
	// number of keys must be those of the cluster. A snapshot that was never restored is a hope. Set it to false on
	// one that is Stored, and it may be restored as it is.
	// +optional
	// +default=true
	Verify *bool `json:"verify,omitempty"`

	// Unless the cluster is as it was then, a snapshot is taken; if it is, the phase is Skipped. A schedule sets it.
	// +optional
	Unless *Unless `json:"unless,omitempty"`

	// DeletionPolicy says what becomes of what is stored when this object is deleted. Retain (the default) leaves it.
	// +optional
	// +default="Retain"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Job that takes the snapshot.
	// +optional
	Job SnapshotJob `json:"job,omitzero"`
}

// Unless is what a cluster was like when it was last stored.
type Unless struct {
	// Revision of the keys.
	// +required
	// +kubebuilder:validation:Minimum=1
	Revision int64 `json:"revision"`

	// ClusterID in hexadecimal. A cluster that was made again under the same name has another one.
	// +required
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{1,16}$`
	ClusterID string `json:"clusterID"`

	// AuthRevision of users and roles, which don't raise the revision of the keys.
	// +required
	// +kubebuilder:validation:Minimum=1
	AuthRevision int64 `json:"authRevision"`
}

// Store is a place for snapshots outside of the cluster.
//
// +kubebuilder:validation:XValidation:rule="self.url.startsWith('file://') == (has(self.claimName) && size(self.claimName) > 0)",message="a store with the URL file:///folder keeps snapshots on a claim: name it in store.claimName; other URLs have none"
type Store struct {
	// URL of the folder: s3://bucket/folder?region=eu-west-1, gs://bucket/folder,
	// azblob://container/folder, or file:///folder on the claim named below. An S3 that is not
	// Amazon's is reached by parameters, such as
	// ?region=any&endpoint=https://minio.example:9000&use_path_style=true. docs/how-to/back-up.md lists
	// all.
	// +required
	URL URL `json:"url"`

	// CredentialsSecret names a Secret of the namespace. Of its keys these become environment
	// variables of the pod, and no others. For s3:// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,
	// without which the pod does not start, and AWS_SESSION_TOKEN if there is one. For azblob://
	// AZURE_STORAGE_ACCOUNT, without which the pod does not start unless the URL has
	// storage_account, and as many as there are of AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN,
	// AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET. For gs:// the key credentials.json
	// is a file in the pod. Unset, the platform's identity of job.serviceAccountName counts.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	CredentialsSecret string `json:"credentialsSecret,omitempty"`

	// CASecret names a Secret of the namespace whose ca.crt signs the store's certificate, where no public authority
	// does.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	CASecret string `json:"caSecret,omitempty"`

	// ClaimName names a claim of the namespace that holds the folder of a URL file:///folder. To be used by Jobs and
	// members on several nodes it must be ReadWriteMany.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ClaimName string `json:"claimName,omitempty"`
}

// URL of a folder in a store, or of an artifact in one. It holds no credentials: they are in a
// Secret.
//
// +kubebuilder:validation:MaxLength=1024
// +kubebuilder:validation:XValidation:rule="self.matches('^((s3|gs|azblob)://[0-9A-Za-z][-._0-9A-Za-z]*(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*/?|file:///([.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*/?)?)([?][^?]*)?$')",message="the URL of a store must look like s3://bucket/folder, gs://bucket/folder, azblob://container/folder or file:///folder, of letters, digits and -._=+@~:, alone, and no name in it ends in two dots"
// +kubebuilder:validation:XValidation:rule="self.matches('^((gs|file)://[^?]*|azblob://[^?]*([?&](storage_account=[0-9a-z]{3,24}|domain=blob[.]core[.](windows[.]net|chinacloudapi[.]cn|usgovcloudapi[.]net)))*|s3://[^?]*([?&](region=[-0-9A-Za-z]{1,64}|endpoint=https?(:|%3[Aa])(/|%2[Ff])(/|%2[Ff])([0-9A-Za-z][-._0-9A-Za-z]*|([[]|%5[Bb])([0-9A-Fa-f.]|(:|%3[Aa]))+([]]|%5[Dd]))((:|%3[Aa])[0-9]{1,5})?((/|%2[Ff])[-._~0-9A-Za-z]*)*|(use_path_style|disable_https|dualstack|fips|accelerate)=(true|false)|ssetype=(AES256|aws(:|%3[Aa])kms((:|%3[Aa])dsse)?)|kmskeyid=([-_0-9A-Za-z]|(:|%3[Aa])|(/|%2[Ff]))+|(request_checksum_calculation|response_checksum_validation)=when_(supported|required)))*)$')",message="of parameters, the URL of a store takes for s3:// region, endpoint (http:// or https://, a host, and a port), use_path_style, disable_https, dualstack, fips, accelerate (true or false), ssetype, kmskeyid, request_checksum_calculation and response_checksum_validation (when_supported or when_required); for azblob:// storage_account and domain, one of Microsoft's clouds; for others none"
type URL string

// Compression of a snapshot.
// +kubebuilder:validation:Enum=Zstd;None
type Compression string

const (
	// CompressZstd compresses with Zstandard.
	CompressZstd Compression = "Zstd"
	// CompressNone stores the database as it is.
	CompressNone Compression = "None"
)

// Encryption with age (https://age-encryption.org).
type Encryption struct {
	// Recipients are public keys of age, such as age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p:
	// everyone who holds the identity of one of them can restore the snapshot. Verification needs none of them.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=4096
	// +kubebuilder:validation:items:Pattern=`^age1[0-9a-z]+$`
	Recipients []string `json:"recipients"`
}

// SnapshotJob is about the pod that takes a snapshot.
type SnapshotJob struct {
	// ServiceAccountName that gives the pod the platform's identity. Its token is not mounted: Quorate has no use for
	// the Kubernetes API.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Deadline after which an unfinished snapshot has failed.
	// +optional
	// +default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="job.deadline must be at least 10s"
	Deadline metav1.Duration `json:"deadline,omitzero"`

	// Retries after a failure, before the snapshot has failed.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	Retries *int32 `json:"retries,omitempty"`

	// Resources of the pod. What is set here counts. Else its limit of memory is 256Mi and, to restore it on trial, a
	// quarter of the database: the etcd on trial has an index of all keys in memory, as a member has.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// ScratchSize limits the disk that verification takes: about twice the database, and 128Mi. Unset, there is no
	// limit but the node's.
	// +optional
	ScratchSize *resource.Quantity `json:"scratchSize,omitempty"`

	// NodeSelector of the pod.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pod.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// SnapshotPhase is where a snapshot is.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Stored;Skipped;Failed;Deleting
type SnapshotPhase string

const (
	// SnapshotPending waits for something that the message names.
	SnapshotPending SnapshotPhase = "Pending"
	// SnapshotRunning is being taken.
	SnapshotRunning SnapshotPhase = "Running"
	// SnapshotSucceeded is stored, and verified if that was asked for.
	SnapshotSucceeded SnapshotPhase = "Succeeded"
	// SnapshotStored is stored whole, but could not be verified; the message says why. It is neither a success nor
	// lost.
	SnapshotStored SnapshotPhase = "Stored"
	// SnapshotSkipped was not taken: nothing had changed.
	SnapshotSkipped SnapshotPhase = "Skipped"
	// SnapshotFailed was not stored, or was disproved by its verification.
	SnapshotFailed SnapshotPhase = "Failed"
	// SnapshotDeleting has its stored artifact deleted.
	SnapshotDeleting SnapshotPhase = "Deleting"
)

// Complete is the condition of an EtcdSnapshot that is True once it is stored and, if that was asked for, verified;
// Failed the one that is True when it did not come to that. Of one that is skipped neither is True.
const (
	Complete = "Complete"
	Failed   = "Failed"
)

// Verified is the condition of an EtcdSnapshot that was restored on trial.
const Verified = "Verified"

// Discarded is the condition of an EtcdSnapshot that is being deleted: it is False while what is stored is still there.
const Discarded = "Discarded"

// EtcdSnapshotStatus is what became of a snapshot.
type EtcdSnapshotStatus struct {
	// ObservedGeneration is the generation of the spec that this status was made for; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Reconciling, Stalled, Complete, Failed, Verified; and Discarded while it is being deleted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Phase is Pending, Running, Succeeded, Stored, Skipped, Failed or Deleting.
	// +optional
	Phase SnapshotPhase `json:"phase,omitempty"`

	// Message says what it waits for or why it failed.
	// +optional
	Message string `json:"message,omitempty"`

	// Progress is what its Job was last seen to do or to wait for. At the deadline the pod that told it is gone.
	// +optional
	Progress string `json:"progress,omitempty"`

	// Failure is why the Job that was to take it has failed, while another one looks whether anything is stored.
	// After that the message has it.
	// +optional
	Failure string `json:"failure,omitempty"`

	// URI of the artifact, without credentials, as spec.bootstrap.snapshot.url takes it. Beside it lies the same with
	// .json: what it holds.
	// +optional
	URI string `json:"uri,omitempty"`

	// Size of the database, rounded up.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// StoredSize is that of the artifact, compressed and encrypted, rounded up.
	// +optional
	StoredSize *resource.Quantity `json:"storedSize,omitempty"`

	// SHA256 of the database, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// Revision of the keys; of a snapshot that is not verified, one that it is not older than. Of one that is
	// skipped, what still is so.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// AuthRevision of users and roles, likewise.
	// +optional
	AuthRevision int64 `json:"authRevision,omitempty"`

	// Keys that there are at that revision.
	// +optional
	Keys int64 `json:"keys,omitempty"`

	// Hash of the keys with their history, in hexadecimal: what etcd's HashKV says of the same revision.
	// +optional
	Hash string `json:"hash,omitempty"`

	// EtcdVersion of the member that it was taken from.
	// +optional
	EtcdVersion string `json:"etcdVersion,omitempty"`

	// ClusterID of that cluster, in hexadecimal.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// Member that it was taken from.
	// +optional
	Member string `json:"member,omitempty"`

	// StartTime is when it was begun.
	// +optional
	StartTime metav1.Time `json:"startTime,omitzero"`

	// CompletionTime is when it was stored.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitzero"`

	// Duration from the beginning until it was stored.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// VerificationTime is when it had been restored on trial.
	// +optional
	VerificationTime metav1.Time `json:"verificationTime,omitzero"`

	// UsedBy are the EtcdClusters of the namespace that restore it or are about to. While there are any, what is
	// stored is not deleted.
	// +optional
	// +listType=set
	UsedBy []string `json:"usedBy,omitempty"`
}
