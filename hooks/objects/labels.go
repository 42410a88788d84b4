// Package objects says how the Kubernetes objects of a cluster are named and labelled, what is in every pod of ours,
// and what pods tell of their containers. It decides nothing.
package objects

// Labels and annotations that Quorate puts on a cluster's objects.
const (
	// Domain is what the keys of labels and annotations of ours begin with.
	Domain = "etcd.quorate.dev/"

	// LabelCluster is the cluster's name, on everything.
	LabelCluster = Domain + "cluster"
	// LabelMember is the member's name, on its pod and claim.
	LabelMember = Domain + "member"
	// LabelRole is voter, leaving, learner or fenced, on pods: see facts/roles.go. The client Service leads
	// to voters.
	LabelRole = Domain + "role"

	// LabelExternal is what the owner of a Secret puts on it, with any value, to let pods of ours have it for what
	// Quorate does not run: a store, or another etcd. See Unagreed.
	LabelExternal = Domain + "external"

	// LabelRestored is what Velero puts on every object that it makes from a backup.
	LabelRestored = "velero.io/restore-name"

	// AnnotationByKubectl is what kubectl apply puts on what it makes. Nothing of ours is made by it.
	AnnotationByKubectl = "kubectl.kubernetes.io/last-applied-configuration"

	// AnnotationStart says how a pod starts its member: StartBootstrap, StartJoin or StartResume.
	AnnotationStart = Domain + "start"
	// AnnotationTemplate is a hash of the template that a pod was made from, or could have been: see
	// facts/templates.go.
	AnnotationTemplate = Domain + "pod-template-hash"
	// AnnotationAskedFor is the size and, after a space, the class that a claim was asked for with; admission may have
	// put others into its spec.
	AnnotationAskedFor = Domain + "asked-for"
	// AnnotationImage is the etcd image that a pod was asked to run; admission may have put another one into its spec.
	AnnotationImage = Domain + "image"
	// AnnotationInitialCluster is the membership that a pod's etcd joins, or begins, when its data directory is empty.
	// A joining pod loses it once its member has started; a bootstrapping one then has [InitialClusterBegun].
	AnnotationInitialCluster = Domain + "initial-cluster"
	// InitialClusterBegun stands there for a membership that etcd refuses: with an empty data directory it ends at
	// once and writes nothing ("error setting up initial cluster"; TestAnEmptiedDirectory). An empty value would not
	// do: etcd then begins a cluster of its own.
	InitialClusterBegun = "begun"

	// AnnotationRecorded is, on the peer Service, the highest number of an epoch that was recorded, where that is not
	// the one that runs: no other gets it.
	AnnotationRecorded = Domain + "recorded"
	// AnnotationNextMember is, on the peer Service, a copy of the lowest number that no member has had.
	AnnotationNextMember = Domain + "next-member"
	// AnnotationServes identifies, on a pod, the certificates that its member is to show: see served in
	// facts/certificates.go.
	AnnotationServes = Domain + "serves"
	// AnnotationTrusts holds, on a pod whose certificates come from others, the authorities that it was made with: see
	// trusted in facts/certificates_given.go.
	AnnotationTrusts = Domain + "trusts"
	// AnnotationNodes is, on the peer Service, a copy of which node holds which member's data, for the medium HostPath:
	// "<uid of the EtcdCluster>/demo-0:node-a,demo-1:node-b".
	AnnotationNodes = Domain + "nodes"
	// AnnotationMadeFor is, on a Secret, a hash of what its certificate was made for.
	AnnotationMadeFor = Domain + "made-for"
	// AnnotationPeers is "http" on the peer Service while the members' epoch is one that began in plain text;
	// AnnotationHTTPSPeers names there the members that etcd lists with an https URL all the same.
	AnnotationPeers      = Domain + "peers"
	AnnotationHTTPSPeers = Domain + "https-peers"
	// AnnotationHighestRevision is, on the peer Service, a copy of what is above every revision that was seen: see
	// facts/revisions.go.
	AnnotationHighestRevision = Domain + "highest-revision"
	// AnnotationSHA256 is, on the pods of initial members, that of the database that the first one has fetched: they
	// take no other one. See facts/seeds.go.
	AnnotationSHA256 = Domain + "sha256"
	// AnnotationAnswered is, on the peer Service, a copy of which restore was answered by which epoch.
	AnnotationAnswered = Domain + "answered"
	// AnnotationRetained is on a claim that outlives its cluster: the name of that.
	AnnotationRetained = Domain + "retained-of"
	// AnnotationRestarted says, on the pod of a voter that was restarted or given another image, whether the voter was
	// "serving" or "down" when it was chosen for that.
	AnnotationRestarted = Domain + "restarted"
	// AnnotationDefragmentation is, on a pod that was made while a run of defragmentation was under way, when that run
	// began: the clients of its member have left with the pod before it.
	AnnotationDefragmentation = Domain + "defragmentation"
	// AnnotationWithdrawn is, on the pod of a member that was chosen to be restarted, since when no call may choose
	// to do so any more. See facts/choice.go.
	AnnotationWithdrawn = Domain + "withdrawn"
	// AnnotationFlagsFor is, on a pod whose image was exchanged, the version that its flags were made for.
	AnnotationFlagsFor = Domain + "flags-for"
	// AnnotationExchanged is, on a pod whose image was exchanged, the ID of the container that ends by that.
	AnnotationExchanged = Domain + "exchanged"
	// AnnotationFailedMember is, on a claim, the mark of a member that is about to be given up, or was: its claim is
	// kept, and no epoch begins with what is on it. Its value is FailedUnreachable, FailedCorrupt, or what a person
	// wrote.
	AnnotationFailedMember = Domain + "failed-member"
	// FailedUnreachable marks a voter that was unreachable for too long. Unless it was removed then, its volume counts
	// as a survivor.
	FailedUnreachable = "unreachable"
	// FailedCorrupt marks a voter whose data was proven wrong.
	FailedCorrupt = "corrupt"
	// AnnotationQuarantined is, on a claim that is kept without its member, since when. No pod is ever made on it.
	AnnotationQuarantined = Domain + "quarantined"
	// LabelQuarantined is "true" on the same claims, for kubectl get pvc -l.
	LabelQuarantined = Domain + "quarantined"
	// LabelSnapshot is, on a Job of an EtcdSnapshot and its pods, the name of that.
	LabelSnapshot = Domain + "snapshot"
	// AnnotationAbandon on an EtcdSnapshot, "true", lets it be deleted although what is stored can't be.
	AnnotationAbandon = Domain + "abandon-artifact"
	// AnnotationUnless is, on an EtcdSnapshot of a schedule, what the cluster was like when it was last stored: see
	// snapshot/unless.go.
	AnnotationUnless = Domain + "unless"
	// LabelSchedule is, on an EtcdSnapshot and on the pod of a stream, the name of the EtcdSnapshotSchedule that made
	// it.
	LabelSchedule = Domain + "schedule"
	// LabelMirror is, on the pods of an EtcdMirror, the name of that.
	LabelMirror = Domain + "mirror"
	// AnnotationSource is, on these, a fingerprint of the source that they were made for.
	AnnotationSource = Domain + "source"
	// AnnotationBase is, on the pod of a stream, the name of the EtcdSnapshot that it began after.
	AnnotationBase = Domain + "base"
	// AnnotationUntil is, on the pods of initial members, the revision at which the first one has found the stream to
	// end: they end there too. See facts/seeds.go.
	AnnotationUntil = Domain + "until"
	// AnnotationBegins is, on the pod of a member that was made before its epoch began, or before the member was added,
	// the word that it may.
	AnnotationBegins = Domain + "begins"
	// AnnotationPredecessorGone is, on the pod of a member that was made before its epoch began, the word that the
	// record of the epoch before was seen to be gone: see facts/switchover.go.
	AnnotationPredecessorGone = Domain + "predecessor-gone"
	// AnnotationEpoch is, on a claim, the number of the epoch whose data is on it: on those that were made for a later
	// epoch than the first, and on those that an epoch has left behind. The peer Service has that of the epoch that
	// runs, if it is a later one.
	AnnotationEpoch = Domain + "epoch"
	// AnnotationVersion is, on the peer Service, a copy of the version that pods are made with, while the spec asks for
	// another one.
	AnnotationVersion = Domain + "version"
)

// How a pod starts its member; `quorate prepare` gets it as --start.
const (
	// StartBootstrap starts an initial member of an epoch: its data directory may be empty.
	StartBootstrap = "bootstrap"
	// StartJoin starts a learner that has never run: its data directory may be empty.
	StartJoin = "join"
	// StartResume starts a member that has run before: an empty data directory is refused (S10).
	StartResume = "resume"
)

// Names inside a member's pod.
const (
	// ContainerEtcd is the container that runs etcd.
	ContainerEtcd = "etcd"
	// DiskFullWords are in the last words of an etcd that dies of a full disk.
	DiskFullWords = "no space left on device"
	// ContainerPrepare is the init container that guards the data directory.
	ContainerPrepare = "prepare"
	// ContainerTrim is the container beside etcd that keeps its log short.
	ContainerTrim = "trim"
	// ContainerChown is the init container that makes a directory on the node the member's.
	ContainerChown = "chown-data"
	// containerTools is the init container that puts quorate-snapshot where one of another image can run it, in
	// toolsDir.
	containerTools = "tools"
	// toolsDir holds the program.
	toolsDir = "/var/run/quorate-tools"
	// ScratchDir is a pod's room for files that are needed once.
	ScratchDir = "/var/run/quorate-scratch"
	// ContainerSeed is the init container that fills a data directory: `quorate-snapshot restore`.
	ContainerSeed = "seed"
	// ContainerSnapshot is the container of a Job that takes a snapshot, ContainerInspect that of one that looks what
	// is stored, and ContainerDelete that of one that deletes it from its store.
	ContainerSnapshot = "snapshot"
	ContainerInspect  = "inspect"
	ContainerDelete   = "delete"
	// ContainerStream is the container of a pod that stores what changes between snapshots.
	ContainerStream = "stream"
	// ContainerMirror is the container of a pod that copies the keys of another etcd, ContainerPromote that of one that
	// ends this.
	ContainerMirror  = "mirror"
	ContainerPromote = "promote"
	// ContainerInspectData is the container of a pod that looks at the data directory of a member that does not run.
	ContainerInspectData = "inspect-data"
	// CertificateDir is where a pod's certificates are: server/ and peer/ with tls.crt, tls.key and ca.crt each, token/
	// with token.key and token.pub.
	CertificateDir = "/etc/etcd/pki"
	// DataDir is etcd's data directory in the pod; its parent is the volume.
	DataDir = "/var/lib/etcd/data"
	// MarkerFile is where prepare notes, on the node's disk, that this pod has started before.
	MarkerFile = "/var/run/quorate/started"
	// ExitDataLost is prepare's exit code when a data directory that must hold data is empty.
	ExitDataLost = 66
	// NothingFound is what prepare says at its end of a data directory that held nothing.
	NothingFound = "nothing has run here yet"
)

// AnnotationLastApplied is where Metacontroller notes, on each child, the answer that it applied last. Its
// --apply-strategy=server-side-apply removes it.
const AnnotationLastApplied = "metacontroller.k8s.io/last-applied-configuration"
