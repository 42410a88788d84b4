package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EtcdSnapshot is one snapshot of an EtcdCluster, or of another etcd, in a store outside of it.
// A Job takes it once; the object then says what it holds, and that it was restored on trial.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=qsnap,categories=all;quorate
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.clusterRef.name`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Revision",type=integer,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Size",type=string,JSONPath=`.status.size`
// +kubebuilder:printcolumn:name="Verified",type=date,JSONPath=`.status.verificationTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="URI",type=string,priority=1,JSONPath=`.status.uri`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 100",message="the name is too long: the Job that takes the snapshot is named after it; use 100 characters at most"
// +kubebuilder:validation:XValidation:rule="has(self.spec.clusterRef) == has(oldSelf.spec.clusterRef) && (!has(self.spec.clusterRef) || self.spec.clusterRef == oldSelf.spec.clusterRef) && (!has(self.spec.external) || !has(oldSelf.spec.external) || self.spec.external.name == oldSelf.spec.external.name)",message="spec.clusterRef and spec.external.name can't be changed: they say where the snapshot is stored; create another EtcdSnapshot"
// +kubebuilder:validation:XValidation:rule="self.spec.store == oldSelf.spec.store && self.spec.compression == oldSelf.spec.compression && has(self.spec.encryption) == has(oldSelf.spec.encryption)",message="spec.store, spec.compression and whether it is encrypted can't be changed: they say where the snapshot is stored; create another EtcdSnapshot"
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
//
// +kubebuilder:validation:XValidation:rule="has(self.clusterRef) != has(self.external)",message="a snapshot is of an EtcdCluster or of an etcd that Quorate does not run: set exactly one of clusterRef and external"
type EtcdSnapshotSpec struct {
	// ClusterRef is the EtcdCluster that the snapshot is of.
	// +optional
	ClusterRef ClusterRef `json:"clusterRef,omitzero"`

	// External is an etcd that Quorate does not run, whose snapshot is taken instead. No other URL than its endpoints
	// is asked, and the installation must allow them (--allowed-etcd-endpoints).
	// +optional
	External *ExternalSource `json:"external,omitempty"`

	// Store is where the snapshot is kept.
	// +required
	Store Store `json:"store"`

	// Compression of what is stored: Zstd or None.
	// +optional
	// +default="Zstd"
	Compression Compression `json:"compression,omitempty"`

	// Encryption of what is stored, before it leaves the Job. Unset, it is stored as it is.
	// +optional
	Encryption *Encryption `json:"encryption,omitempty"`

	// Verify fetches what was stored and restores it on trial: etcd must serve it, and its hash, revision and number of
	// keys must be those of the cluster. Set it to false on a snapshot that is Unverified to allow that it is restored
	// unverified.
	// +optional
	// +default=true
	Verify *bool `json:"verify,omitempty"`

	// DeletionPolicy says what becomes of what is stored when this object is deleted. Retain (the default) leaves it,
	// Delete deletes it.
	// +optional
	// +default="Retain"
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Job is about the pod that takes the snapshot.
	// +optional
	Job SnapshotJob `json:"job,omitzero"`
}

// ExternalSource is an etcd that Quorate does not run. The Job of the snapshot is its client.
type ExternalSource struct {
	// Name of the etcd, which is a part of the name under which the snapshot is stored.
	// +required
	// +kubebuilder:validation:MaxLength=48
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Version of etcd that its members run, such as 3.5.16. The snapshot is restored on trial with the same.
	// +required
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^3[.][567][.][0-9]{1,4}$`
	Version string `json:"version"`

	ExternalEtcd `json:",inline"`
}

// SourceName is the name of the cluster that the snapshot is of.
func (s *EtcdSnapshotSpec) SourceName() string {
	if s.External != nil {
		return s.External.Name
	}
	return s.ClusterRef.Name
}

// Store is a place for snapshots outside of the cluster. Secrets that are named here need the label
// etcd.quorate.dev/external, with any value.
//
// +kubebuilder:validation:XValidation:rule="[has(self.s3), has(self.gcs), has(self.azure), has(self.claim)].filter(x, x).size() == 1",message="a store needs exactly one of s3, gcs, azure and claim"
// +kubebuilder:validation:XValidation:rule="!has(self.claim) || !has(self.caSecretRef)",message="a store on a claim has no certificate; remove caSecretRef"
type Store struct {
	// S3 is a bucket of Amazon's S3, or of a server that speaks its protocol, such as MinIO or Ceph.
	// +optional
	S3 *S3Store `json:"s3,omitempty"`

	// GCS is a bucket of Google Cloud Storage.
	// +optional
	GCS *GCSStore `json:"gcs,omitempty"`

	// Azure is a container of Azure Blob Storage.
	// +optional
	Azure *AzureStore `json:"azure,omitempty"`

	// Claim is a folder on a PersistentVolumeClaim.
	// +optional
	Claim *ClaimStore `json:"claim,omitempty"`

	// CASecretRef holds the authority that signed the store's certificate, where no public authority did: under the key
	// ca.crt unless it names another.
	// +optional
	CASecretRef SecretKeyRef `json:"caSecretRef,omitzero"`
}

// S3Store is a bucket of Amazon's S3, or of a server that speaks its protocol.
//
// +kubebuilder:validation:XValidation:rule="!has(self.kmsKeyID) || size(self.kmsKeyID) == 0 || has(self.serverSideEncryption) && self.serverSideEncryption.startsWith('aws:kms')",message="s3.kmsKeyID needs s3.serverSideEncryption aws:kms or aws:kms:dsse"
type S3Store struct {
	// Bucket is the name of the bucket.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z][-._0-9A-Za-z]*$`
	Bucket string `json:"bucket"`

	// Prefix of everything that is stored, without a slash at its ends, such as etcd/demo. Unset, the bucket itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*)?$')",message="s3.prefix may have only letters, digits and -._=+@~: in its names, with one / between names, and no name may end in two dots"
	Prefix string `json:"prefix,omitempty"`

	// Region of the bucket, such as eu-west-1. A server that has no regions takes any word.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[-0-9A-Za-z]*$`
	Region string `json:"region,omitempty"`

	// Endpoint is the URL of a server that is not Amazon's, such as https://minio.example:9000, or of another of
	// Amazon's, such as https://s3-fips.us-gov-west-1.amazonaws.com. Credentials don't belong in it.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:XValidation:rule="self.matches('^(https?://([0-9A-Za-z][-._0-9A-Za-z]*|[[][0-9A-Fa-f.:]+[]])(:[0-9]{1,5})?(/[-._~0-9A-Za-z]*)*)?$')",message="s3.endpoint is http:// or https://, a host, and a port if it is not the usual one, such as https://minio.example:9000; put credentials in a Secret"
	Endpoint string `json:"endpoint,omitempty"`

	// ForcePathStyle asks for https://host/bucket instead of https://bucket.host, as most servers that are not
	// Amazon's need it.
	// +optional
	ForcePathStyle bool `json:"forcePathStyle,omitempty"`

	// ServerSideEncryption is how the server encrypts what it stores: AES256, aws:kms or aws:kms:dsse. Unset, as the
	// bucket says.
	// +optional
	// +kubebuilder:validation:Enum=AES256;aws:kms;aws:kms:dsse
	ServerSideEncryption string `json:"serverSideEncryption,omitempty"`

	// KMSKeyID is the key of Amazon's KMS that the server encrypts with. It needs serverSideEncryption aws:kms or
	// aws:kms:dsse.
	// +optional
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[-_0-9A-Za-z:/]*$`
	KMSKeyID string `json:"kmsKeyID,omitempty"`

	// ObjectLock makes the server keep what is stored for a time, and refuse its deletion. Object lock must be enabled
	// on the bucket. Unset, as the bucket says.
	// +optional
	ObjectLock *S3ObjectLock `json:"objectLock,omitempty"`

	// Checksums that requests and answers have: WhenSupported (the default) or WhenRequired, for a server that
	// refuses the newer ones.
	// +optional
	// +kubebuilder:validation:Enum=WhenSupported;WhenRequired
	Checksums S3Checksums `json:"checksums,omitempty"`

	// CredentialsSecretRef has AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, without which the pod does not start, and
	// AWS_SESSION_TOKEN if there is one. They become environment variables of the pod. Unset, the pod uses the
	// platform's identity of job.serviceAccountName.
	// +optional
	CredentialsSecretRef SecretRef `json:"credentialsSecretRef,omitzero"`
}

// S3ObjectLock is how long the server refuses to delete or replace what is stored.
type S3ObjectLock struct {
	// Mode is Governance, which lets users with a special permission delete it earlier, or Compliance, which lets no
	// user do so.
	// +required
	Mode S3LockMode `json:"mode"`

	// RetainFor is how long it is kept from the moment that it is stored, such as 720h for 30 days.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="s3.objectLock.retainFor must be at least 1m"
	RetainFor metav1.Duration `json:"retainFor"`
}

// S3LockMode is one of S3's two modes of object lock.
// +kubebuilder:validation:Enum=Governance;Compliance
type S3LockMode string

const (
	// LockGovernance can be lifted with the permission s3:BypassGovernanceRetention.
	LockGovernance S3LockMode = "Governance"
	// LockCompliance can't be lifted.
	LockCompliance S3LockMode = "Compliance"
)

// S3Checksums says which checksums requests and answers have.
type S3Checksums string

const (
	// ChecksumsWhenSupported are there wherever S3 has them.
	ChecksumsWhenSupported S3Checksums = "WhenSupported"
	// ChecksumsWhenRequired are there only where S3 insists.
	ChecksumsWhenRequired S3Checksums = "WhenRequired"
)

// GCSStore is a bucket of Google Cloud Storage.
type GCSStore struct {
	// Bucket is the name of the bucket.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z][-._0-9A-Za-z]*$`
	Bucket string `json:"bucket"`

	// Prefix of everything that is stored, without a slash at its ends, such as etcd/demo. Unset, the bucket itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*)?$')",message="gcs.prefix may have only letters, digits and -._=+@~: in its names, with one / between names, and no name may end in two dots"
	Prefix string `json:"prefix,omitempty"`

	// CredentialsSecretRef has Google's credentials under credentials.json, unless it names another key. They are a
	// file in the pod. Unset, the pod uses the platform's identity of job.serviceAccountName.
	// +optional
	CredentialsSecretRef SecretKeyRef `json:"credentialsSecretRef,omitzero"`
}

// AzureStore is a container of Azure Blob Storage.
type AzureStore struct {
	// Container is the name of the container.
	// +required
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[0-9A-Za-z][-._0-9A-Za-z]*$`
	Container string `json:"container"`

	// Prefix of everything that is stored, without a slash at its ends, such as etcd/demo. Unset, the container itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*)?$')",message="azure.prefix may have only letters, digits and -._=+@~: in its names, with one / between names, and no name may end in two dots"
	Prefix string `json:"prefix,omitempty"`

	// StorageAccount is the name of the account. Unset, AZURE_STORAGE_ACCOUNT of the credentials.
	// +optional
	// +kubebuilder:validation:Pattern=`^([0-9a-z]{3,24})?$`
	StorageAccount string `json:"storageAccount,omitempty"`

	// Cloud of Microsoft's: Public (the default), China or USGovernment.
	// +optional
	// +kubebuilder:validation:Enum=Public;China;USGovernment
	Cloud AzureCloud `json:"cloud,omitempty"`

	// CredentialsSecretRef has AZURE_STORAGE_ACCOUNT, without which the pod does not start unless storageAccount is
	// set. It may have AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_TENANT_ID, AZURE_CLIENT_ID and
	// AZURE_CLIENT_SECRET. They become environment variables of the pod. Unset, the pod uses the platform's identity of
	// job.serviceAccountName.
	// +optional
	CredentialsSecretRef SecretRef `json:"credentialsSecretRef,omitzero"`
}

// AzureCloud is one of Microsoft's clouds.
type AzureCloud string

const (
	// AzurePublic is the worldwide one.
	AzurePublic AzureCloud = "Public"
	// AzureChina is in China.
	AzureChina AzureCloud = "China"
	// AzureUSGovernment is for the government of the United States.
	AzureUSGovernment AzureCloud = "USGovernment"
)

// ClaimStore is a folder on a PersistentVolumeClaim of the namespace.
type ClaimStore struct {
	// Name of the claim. To be used by Jobs and members on several nodes it must be ReadWriteMany.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Path of the folder on it, without a slash at its ends, such as etcd/demo. Unset, the volume itself.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule="self.matches('^([.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?(/[.]*[-_0-9A-Za-z=+@~:,]+([.]+[-_0-9A-Za-z=+@~:,]+)*[.]?)*)?$')",message="claim.path may have only letters, digits and -._=+@~: in its names, with one / between names, and no name may end in two dots"
	Path string `json:"path,omitempty"`
}

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
	// ServiceAccountName gives the pod the platform's identity, such as an IAM role. Its token for the Kubernetes API
	// is not mounted.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$`
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// Deadline is how long the snapshot may wait to begin, and how long its Job may then run, before it fails.
	// +optional
	// +default="1h"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s')",message="job.deadline must be at least 10s"
	Deadline metav1.Duration `json:"deadline,omitzero"`

	// Retries is how many more times the Job tries after a failure, before the snapshot has failed.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	Retries *int32 `json:"retries,omitempty"`

	// Resources of the pod. Unset requests are 100m of CPU and 64Mi of memory. The unset limit of memory is 256Mi and,
	// to restore on trial, a quarter of the database: that etcd has an index of all keys in memory.
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitzero"`

	// NodeSelector of the pod.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pod.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// SecurityContext says as which user the pod runs. Unset, it is that of the EtcdCluster, while there is one: set it
	// where the platform chooses users and snapshots outlive their cluster.
	// +optional
	SecurityContext *PodSecurity `json:"securityContext,omitempty"`
}

// SnapshotPhase is where a snapshot is.
// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Unverified;Skipped;Failed;Deleting
type SnapshotPhase string

const (
	// SnapshotPending waits for something that the message names.
	SnapshotPending SnapshotPhase = "Pending"
	// SnapshotRunning is being taken.
	SnapshotRunning SnapshotPhase = "Running"
	// SnapshotSucceeded is stored, and verified if that was asked for.
	SnapshotSucceeded SnapshotPhase = "Succeeded"
	// SnapshotUnverified is stored whole, but could not be verified; the message says why. It is neither a success nor
	// lost.
	SnapshotUnverified SnapshotPhase = "Unverified"
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

// Deleted is the condition of an EtcdSnapshot that is being deleted: it is False while what is stored is still there.
const Deleted = "Deleted"

// BeganAt is from when the data is: all that was written before is in it.
func (s *EtcdSnapshot) BeganAt() metav1.Time {
	if s.Status.StartTime.IsZero() {
		return s.CreationTimestamp
	}
	return s.Status.StartTime
}

// EtcdSnapshotStatus is what became of a snapshot.
type EtcdSnapshotStatus struct {
	// ObservedGeneration is the generation of the spec that this status was made for; -1 before there is one.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Ready, Reconciling, Stalled, Complete, Failed, Verified; and Deleted while it is being deleted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Phase is Pending, Running, Succeeded, Unverified, Skipped, Failed or Deleting.
	// +optional
	Phase SnapshotPhase `json:"phase,omitempty"`

	// Message says what it waits for or why it failed.
	// +optional
	Message string `json:"message,omitempty"`

	// Progress is what its Job was last seen to do or to wait for. It stays when the pod is gone.
	// +optional
	Progress string `json:"progress,omitempty"`

	// Failure is why its Job failed, while another Job looks whether anything is stored. After that the message has it.
	// +optional
	Failure string `json:"failure,omitempty"`

	// Artifact is its name in the store, below the prefix, as spec.bootstrap.snapshot.artifact of an EtcdCluster takes
	// it. A file of this name and .json says what it holds.
	// +optional
	Artifact string `json:"artifact,omitempty"`

	// URI of the artifact, for people and for programs that Quorate runs.
	// +optional
	URI string `json:"uri,omitempty"`

	// Size of the database, rounded up.
	// +optional
	Size *resource.Quantity `json:"size,omitempty"`

	// StoredSize is the size of the artifact, compressed and encrypted, rounded up.
	// +optional
	StoredSize *resource.Quantity `json:"storedSize,omitempty"`

	// SHA256 of the database, in hexadecimal.
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// Revision of the keys. A snapshot that is not verified has this one or a later one. For one that is skipped it is
	// the revision that the cluster still has.
	// +optional
	Revision int64 `json:"revision,omitempty"`

	// AuthRevision is that of users and roles, likewise.
	// +optional
	AuthRevision int64 `json:"authRevision,omitempty"`

	// Keys is the number of keys at that revision.
	// +optional
	Keys int64 `json:"keys,omitempty"`

	// Hash of the keys with their history, in hexadecimal: what etcd's HashKV says of the same revision.
	// +optional
	Hash string `json:"hash,omitempty"`

	// EtcdVersion of the member that it was taken from.
	// +optional
	EtcdVersion string `json:"etcdVersion,omitempty"`

	// ClusterID of the etcd that it was taken from, in hexadecimal.
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// Member that it was taken from.
	// +optional
	Member string `json:"member,omitempty"`

	// StartTime is when it began.
	// +optional
	StartTime metav1.Time `json:"startTime,omitzero"`

	// CompletionTime is when it was stored.
	// +optional
	CompletionTime metav1.Time `json:"completionTime,omitzero"`

	// Duration from the beginning until it was stored.
	// +optional
	Duration *metav1.Duration `json:"duration,omitempty"`

	// VerificationTime is when its restore on trial succeeded.
	// +optional
	VerificationTime metav1.Time `json:"verificationTime,omitzero"`

	// Contents is what fills the database, counted while it was verified. A file beside the artifact with its name and
	// .contents has more prefixes; of an artifact that is encrypted, it alone has any.
	// +optional
	Contents *SnapshotContents `json:"contents,omitempty"`

	// UsedBy are the EtcdClusters of the namespace that restore it or are about to. While there are any, what is
	// stored is not deleted.
	// +optional
	// +listType=set
	UsedBy []string `json:"usedBy,omitempty"`
}

// SnapshotContents is what fills a database.
type SnapshotContents struct {
	// InUse is how many bytes of the database are in use.
	// +optional
	InUse int64 `json:"inUse,omitempty"`

	// Leases there are.
	// +optional
	Leases int64 `json:"leases,omitempty"`

	// LeasedKeys are those that go with a lease.
	// +optional
	LeasedKeys int64 `json:"leasedKeys,omitempty"`

	// Estimated: so many keys have changed since the last compaction that liveBytes are by the mean size of revisions,
	// and mostRevisions may be too few.
	// +optional
	Estimated bool `json:"estimated,omitempty"`

	// Total of all keys.
	Total PrefixContents `json:"total"`

	// Prefixes are the heaviest at every depth, each with all that is below it.
	// +optional
	// +listType=atomic
	Prefixes []PrefixContents `json:"prefixes,omitempty"`
}

// PrefixContents is what the keys with a prefix hold. All are 0 where they are not known.
type PrefixContents struct {
	// Prefix of the keys, up to one of their slashes; empty for all keys.
	// +optional
	Prefix string `json:"prefix,omitempty"`

	// Kind of Kubernetes' objects in the values, with its apiVersion, where all have the same.
	// +optional
	Kind string `json:"kind,omitempty"`

	// Keys that there are.
	// +optional
	Keys int64 `json:"keys,omitempty"`

	// LiveBytes are those of the keys with their values, as etcd stores them.
	// +optional
	LiveBytes int64 `json:"liveBytes,omitempty"`

	// Revisions of keys that are kept, deletions among them.
	// +optional
	Revisions int64 `json:"revisions,omitempty"`

	// Bytes are those of all these revisions.
	// +optional
	Bytes int64 `json:"bytes,omitempty"`

	// Writes are the revisions since the last compaction.
	// +optional
	Writes int64 `json:"writes,omitempty"`

	// MostRevisions are how many are kept of one key at most.
	// +optional
	MostRevisions int64 `json:"mostRevisions,omitempty"`

	// LargestValue that is kept, in bytes.
	// +optional
	LargestValue int64 `json:"largestValue,omitempty"`

	// Partial: there are so many prefixes that some of it was counted for the prefix above alone.
	// +optional
	Partial bool `json:"partial,omitempty"`
}
