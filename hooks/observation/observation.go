// Package observation is what a decision may depend on: the cluster, its children, what etcd answered, and the time.
package observation

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Comparable reports whether two hashes are of the same revisions.
func (h *Hash) Comparable(o *Hash) bool {
	return h.Revision == o.Revision && h.CompactRevision == o.CompactRevision
}

// Observation is everything that a decision may depend on. Decide reads it and never changes it.
type Observation struct {
	// Cluster is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Cluster *v1beta1.EtcdCluster
	// Children are the parent's children as Metacontroller sent them. Each kind may lag on its own.
	Children Children
	// Etcd is the member list, read linearizably in this very call. Nil means blind: no quorum answered us.
	Etcd *Membership
	// Health is what single members answered in this call, by member name. A member that is not in it was not asked
	// (it has no pod with an address); one that did not answer has an Err. It is apart from Etcd because that is what a
	// quorum says: no rule can mistake a single member's answer for the cluster's.
	Health map[string]Health
	// Related are objects that the spec names and that are not the parent's children.
	Related Related
	// WithoutLastApplied are the children that lack the annotation of what Metacontroller applied last, see
	// [WithoutLastApplied].
	WithoutLastApplied []string
	// Unsealed names the records, among the ConfigMaps, that no key of the installation has sealed as they are: they
	// say nothing. Fresh have the seal with which they were made: see objects.Seals.
	Unsealed, Fresh []string
	// Taken is the step that this call has carried out or tried, if any. With it set, Decide takes no further one.
	Taken *decision.Outcome
	// Recent is the history that earlier calls have answered, as far as the server remembers: the cluster may be
	// shown as it was before. No decision depends on it.
	Recent []v1beta1.HistoryEntry
	// Now is the time of the call, by our clock. Decide puts in its place what is known of the time, Clock is then our
	// clock, for what may as well be done at any other time, and Ahead by how much that is known to be ahead: see
	// facts.ReadClock.
	Now, Clock time.Time
	Ahead      time.Duration
	// Resync is how often Metacontroller calls while nothing happens (spec.resyncPeriodSeconds of the
	// CompositeController); 0 for never.
	Resync time.Duration
	// Settings of the installation.
	Settings Settings
	// Zones are the time zones that spec.maintenance.windows names, by these names; missing for a name that no zone
	// has. To look one up is to read files, and not for a decision.
	Zones map[string]*time.Location
}

// Settings are the facts about the installation that the children depend on.
type Settings struct {
	objects.Images
	// Namespace that Quorate runs in: NetworkPolicies let it in. Empty when that is not known; every namespace is let
	// in then.
	Namespace string
	// ClusterDomain is that of the Kubernetes cluster; empty for cluster.local. No name by which members find each
	// other has it, only names in certificates.
	ClusterDomain string
	// AllowedEndpoints are where an etcd may be that clusters join (spec.bootstrap.external). Nil allows none.
	AllowedEndpoints *objects.AllowedEndpoints
	// Keyed: it has keys by which streams are signed.
	Keyed bool
	// SharedIssuers: certificates may come from issuers of cert-manager's of which other namespaces can have some too.
	SharedIssuers bool
	// Since is when this server began to answer: others may answer beside it that are about to go, and have other
	// settings. Zero is long ago.
	Since time.Time
}

// Children are the observed objects by name.
type Children struct {
	Pods       map[string]*corev1.Pod
	Claims     map[string]*corev1.PersistentVolumeClaim
	ConfigMaps map[string]*corev1.ConfigMap
	Services   map[string]*corev1.Service
	Budgets    map[string]*policyv1.PodDisruptionBudget
	Secrets    map[string]*Secret
	Policies   map[string]*networkingv1.NetworkPolicy
	// Certificates are cert-manager's; nil when the CompositeController has no rule for them.
	Certificates map[string]*decision.CertManagerCertificate
}

// WithoutLastApplied are the children that lack [AnnotationLastApplied], each as "Pod demo-0". Those that are being
// deleted are not among them: they get none any more.
func WithoutLastApplied(c Children) []string {
	var list []string
	for _, k := range Kinds {
		for o := range k.Observed(&c) {
			if o.GetAnnotations()[objects.AnnotationLastApplied] == "" && o.GetDeletionTimestamp() == nil {
				list = append(list, ChildName(k.Kind, o))
			}
		}
	}
	return list
}

// ChildName names a child among all kinds, as in "Pod demo-0".
func ChildName(kind string, o metav1.Object) string { return kind + " " + o.GetName() }

// Related are the observed objects that belong to others, by name: see [RelatedSelector].
type Related struct {
	Secrets map[string]*Secret
	// Labelled are the Secrets of the namespace that have objects.LabelExternal.
	Labelled map[string]bool
	// Snapshots are those that carry the cluster's label, and those that its spec names.
	Snapshots map[string]*v1beta1.EtcdSnapshot
	// Operations are those of the namespace on this cluster.
	Operations map[string]*v1beta1.EtcdOperation
	// Remains are claims and ConfigMaps that were made for another EtcdCluster of this name: one before this one.
	Remains []Remain
}

// Remain is an object that was made for an earlier EtcdCluster of the same name.
type Remain struct {
	// Kind is as the API server has it, such as ConfigMap.
	Kind, Name string
	// Going: it is being deleted, or will be: Kubernetes deletes what belongs to an object that is gone.
	Going bool
	// Restored: Velero or kubectl has made it, from a backup.
	Restored bool
}

// RemainOf is what an object is that was made for another EtcdCluster of this name; false for one of this very one.
func RemainOf(kind string, o metav1.Object, parent types.UID) (Remain, bool) {
	owners := o.GetOwnerReferences()
	ours := slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return r.UID == parent })
	return Remain{Kind: kind, Name: o.GetName(), Going: o.GetDeletionTimestamp() != nil || len(owners) > 0,
		Restored: o.GetLabels()[objects.LabelRestored] != "" || o.GetAnnotations()[objects.AnnotationByKubectl] != ""}, !ours
}

// Membership is etcd's member list, read linearizably.
type Membership struct {
	ClusterID uint64
	// Leader is the leader's member ID; 0 while none is known.
	Leader  uint64
	Members []Member
	// Alarms of all members, also of those that the list no longer has: etcd keeps them until they are disarmed.
	Alarms []Alarm
}

// Alarm is one that a member has raised.
type Alarm struct {
	// MemberID of the member that it is about. 0 is no member in particular: the keys differ between members, and etcd
	// can't tell whose are wrong.
	MemberID uint64
	// Kind is AlarmNoSpace or AlarmCorrupt.
	Kind string
}

// The kinds of alarms, in etcd's words (AlarmType in rpc.proto).
const (
	AlarmNoSpace = "NOSPACE"
	AlarmCorrupt = "CORRUPT"
)

// Member is one entry of etcd's member list.
type Member struct {
	ID uint64
	// Name is empty until the member has started and published itself.
	Name     string
	PeerURLs []string
	// ClientURLs are empty until the member has started and published itself.
	ClientURLs []string
	Learner    bool
}

// Started reports whether the member has ever published itself: its data directory then matters (rule S10).
func (m Member) Started() bool { return len(m.ClientURLs) > 0 }

// Health is one member's own answer to etcd's Status call, which is local and needs no quorum.
type Health struct {
	// ClusterID and MemberID are who answered. With an Err they are another member, which answers at the address of
	// this one.
	ClusterID, MemberID uint64
	// Leader is the one that the member takes for the leader; 0 for none.
	Leader uint64
	// Learner is the member's own view of its role.
	Learner bool
	Version string
	// RaftTerm and RaftIndex (of the last entry that the member has applied).
	RaftTerm, RaftIndex uint64
	// DBSize and DBSizeInUse in bytes.
	DBSize, DBSizeInUse int64
	// Alarms that this member has raised: AlarmNoSpace, AlarmCorrupt.
	Alarms []string
	// Revision of the keys that the member has applied.
	Revision int64
	// StorageVersion is the version whose format the member's data has, such as 3.6.0; empty before etcd 3.6. It
	// follows the version that the cluster as a whole has agreed on, and so tells it.
	StorageVersion string
	// Downgrade is the version that a downgrade under way goes to, such as 3.6.0; empty for none, and before etcd 3.6.
	Downgrade string
	// Hash is of the member's keys; nil unless a member has raised AlarmCorrupt: only then are they asked for it.
	Hash *Hash
	// Certificate is the ID of the certificate that the member showed; empty when it speaks plain text.
	Certificate string
	// Trusts are the authorities ([Certificate].Subject) whose certificates the member takes from clients, sorted. A
	// server of TLS tells them in every handshake (certificate_authorities, RFC 8446, section 4.2.4). Known even with
	// an Err, as when the member does not take ours.
	Trusts []string
	// Anonymous: it asks clients for no certificate. Trusts are then the authorities of its peers.
	Anonymous bool
	// Auth is whether the member asks every client who it is; nil when it was not asked for that, or did not tell.
	Auth *bool
	// TokenRefused: it does not take tokens of the key in the cluster's Secret, as one that started before the Secret
	// was replaced.
	TokenRefused bool
	// Disk is what the member's disk did lately; nil when that was not asked for, or is not known: what etcd counts says
	// nothing before it was read twice.
	Disk *Disk
	// Err says why there is no answer of the member itself; everything else is zero then, unless it says otherwise.
	Err string
}

// Disk is how long syncs (fsync) of etcd's log have taken over a time.
type Disk struct {
	// Over is how long that time was.
	Over time.Duration
	// Syncs is how many there were, and Slow how many of them took longer than SlowSync.
	Syncs, Slow int64
	// Mean is how long one took, on average.
	Mean time.Duration
}

// SlowSync is the bound of the bucket of etcd's by which slow syncs are counted (walFsyncSec in
// server/storage/wal/metrics.go).
const SlowSync = 32 * time.Millisecond

// Hash is of a member's keys at a revision, for comparison with that of others at the same (HashKV in etcd's
// rpc.proto).
type Hash struct {
	// Revision that was hashed, and CompactRevision below which nothing was: hashes are comparable when both are equal.
	Revision, CompactRevision int64
	Value                     uint32
}

// Serving reports whether the member answered and follows a leader.
func (h Health) Serving() bool { return h.Err == "" && h.Leader != 0 }

// Endpoint is where a member's pod can be asked.
type Endpoint struct {
	// Name of the member.
	Name string
	// ClientURL on the pod's own address, such as https://10.244.1.7:2379.
	ClientURL string
	// ServerName that the member's certificate must be for; empty when it speaks plain text.
	ServerName string
	// PeerURL that the member has in the member list, be it with http or https. An answer from a member that is
	// listed with another one comes from another etcd (an address that was reused) and does not count.
	PeerURL string
	// External: it is not a pod of ours, but a member of the etcd that was joined, or may be one. Which, its answer
	// tells: its Name is the URL, and PeerURL is empty until then.
	External bool
	// Allowed says where an external one may be asked; nil is nowhere. Namespace is that of the cluster.
	Allowed   *objects.AllowedEndpoints
	Namespace string
	// PeerAddress is where the member tells whose certificates it takes from peers, such as 10.244.1.7:2380; empty
	// where it tells that to clients.
	PeerAddress string
	// AsksAuth: it is asked whether auth is on.
	AsksAuth bool
	// MetricsURL is where the member tells how its disk does, such as http://10.244.1.7:2381/metrics; empty when it is not
	// asked for that. Pod is the UID of its pod.
	MetricsURL string
	Pod        string
	// ClusterID that is recorded; 0 while none is. An etcd of another cluster is asked for the member list only when no
	// member of this one can give it.
	ClusterID uint64
}
