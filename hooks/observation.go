package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Observation is everything that a decision may depend on. Decide reads it and never changes it.
type Observation struct {
	// Cluster is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Cluster *v1alpha1.EtcdCluster
	// Children are the parent's children as Metacontroller sent them. Each kind may lag on its own.
	Children Children
	// Etcd is the member list, read linearizably in this very call. Nil means blind: no quorum answered us.
	Etcd *Membership
	// Health is what single members answered in this call, by member name. A member that is not in it was not asked
	// (it has no pod with an address); one that did not answer has an Err.
	Health map[string]Health
	// Related are objects that the spec names and that are not the parent's children.
	Related Related
	// WithoutLastApplied are the children that lack the annotation of what Metacontroller applied last, see
	// [WithoutLastApplied].
	WithoutLastApplied []string
	// Taken is the step that this call has carried out or tried, if any. With it set, Decide takes no further one.
	Taken *Outcome
	// Recent is the history that earlier calls have answered, as far as the server remembers: the cluster may be
	// shown as it was before. No decision depends on it.
	Recent []v1alpha1.HistoryEntry
	// Now is the time of the call.
	Now time.Time
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
	// AllowedEndpoints are where an etcd may be that clusters join (spec.bootstrap.existing). Nil allows none.
	AllowedEndpoints *AllowedEndpoints
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
	Certificates map[string]*CertManagerCertificate
}

// WithoutLastApplied are the children that lack [AnnotationLastApplied], each as "Pod demo-0". Those that are being
// deleted are not among them: they get none any more.
func WithoutLastApplied(c Children) []string {
	return slices.Concat(withoutLastApplied("ConfigMap", c.ConfigMaps),
		withoutLastApplied("PersistentVolumeClaim", c.Claims), withoutLastApplied("Pod", c.Pods),
		withoutLastApplied("Service", c.Services), withoutLastApplied("PodDisruptionBudget", c.Budgets),
		withoutLastApplied("NetworkPolicy", c.Policies),
		withoutLastApplied("Secret", c.Secrets), withoutLastApplied("Certificate", c.Certificates))
}

func withoutLastApplied[O metav1.Object](kind string, children map[string]O) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(children)) {
		if o := children[name]; o.GetAnnotations()[objects.AnnotationLastApplied] == "" &&
			o.GetDeletionTimestamp() == nil {
			list = append(list, childName(kind, o))
		}
	}
	return list
}

func childName(kind string, o metav1.Object) string { return kind + " " + o.GetName() }

// Related are the observed objects that are somebody else's, by name: see [RelatedSelector].
type Related struct {
	Secrets map[string]*Secret
	// Snapshots are those that carry the cluster's label, and those that its spec names.
	Snapshots map[string]*v1alpha1.EtcdSnapshot
}

// Membership is etcd's member list, read linearizably.
type Membership struct {
	ClusterID uint64
	// Leader is the leader's member ID; 0 while nobody knows one.
	Leader  uint64
	Members []Member
	// Alarms of all members, also of those that the list no longer has: etcd keeps them until somebody disarms them.
	Alarms []Alarm
}

// Alarm is one that a member has raised.
type Alarm struct {
	// MemberID of whom it is about. 0 is nobody in particular: the keys differ between members, and etcd can't tell
	// whose are wrong.
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
	// ClusterID and MemberID are who answered. With an Err they are somebody else who answers at the member's address.
	ClusterID, MemberID uint64
	// Leader is whom the member takes for the leader; 0 for nobody.
	Leader uint64
	// Learner is the member's own view of its role.
	Learner bool
	Version string
	// RaftTerm and RaftIndex (of the last committed entry that the member knows).
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
	// Err says why there is no answer of the member itself; everything else is zero then, unless it says otherwise.
	Err string
}

// Hash is of a member's keys at a revision, for comparison with that of others at the same (HashKV in etcd's
// rpc.proto).
type Hash struct {
	// Revision that was hashed, and CompactRevision below which nothing was: hashes are comparable when both are equal.
	Revision, CompactRevision int64
	Value                     uint32
}

// Serving reports whether the member answered and follows a leader.
func (h Health) Serving() bool { return h.Err == "" && h.Leader != 0 }

// A Step is the one change to etcd that a decision may ask for. The set is closed: AddLearner, Promote, Remove,
// UpdatePeerURL, MoveLeader, Authorize, EnableDowngrade, CancelDowngrade, Compact, Defragment, Disarm. Each is
// idempotent: done twice, the second is refused by etcd or changes nothing.
type Step interface {
	fmt.Stringer
	// Verb names the kind of step for metrics: add-learner, promote, remove, update-peer-url, move-leader, authorize,
	// enable-downgrade, cancel-downgrade, compact, defragment, disarm.
	Verb() string
	step()
}

type (
	// AddLearner adds a member that does not vote yet, under a name and peer URL that were never used.
	AddLearner struct{ Name, PeerURL string }
	// Promote makes a learner a voter.
	Promote struct {
		ID   uint64
		Name string
	}
	// Remove takes a member out of the cluster for good.
	Remove struct {
		ID   uint64
		Name string
	}
	// UpdatePeerURL lists a voter with another URL of itself: that by which its peers reach it by TLS.
	UpdatePeerURL struct {
		ID            uint64
		Name, PeerURL string
	}
	// MoveLeader hands the leadership to a voter.
	MoveLeader struct {
		To   uint64
		Name string
	}
	// EnableDowngrade lets members of the next lower minor version join: etcd lowers the version of the cluster and
	// the format of every member's data to Version, such as 3.6.0.
	EnableDowngrade struct{ Version string }
	// CancelDowngrade takes that back.
	CancelDowngrade struct{}
	// Compact drops all revisions of keys before this one.
	Compact struct{ Revision int64 }
	// Defragment gives the free space of a member's database back to its file system. The member answers nothing
	// meanwhile. It goes on in etcd when the call has to end before. DBSize is that of the member before, for the
	// account of what was reclaimed.
	Defragment struct {
		ID     uint64
		Name   string
		DBSize int64
	}
	// Disarm ends an alarm. Name is empty for a member that is no longer listed. ID 0 is etcd's word for nobody in
	// particular.
	Disarm struct {
		ID         uint64
		Name, Kind string
	}
)

func (s AddLearner) String() string    { return "add learner " + s.Name }
func (s Promote) String() string       { return "promote " + s.Name }
func (s Remove) String() string        { return "remove " + s.Name }
func (s UpdatePeerURL) String() string { return "update the peer URL of " + s.Name }
func (s MoveLeader) String() string    { return "move leader to " + s.Name }

func (s EnableDowngrade) String() string { return "enable the downgrade to " + s.Version }
func (s CancelDowngrade) String() string { return "cancel the downgrade" }
func (s Compact) String() string         { return fmt.Sprintf("compact to revision %d", s.Revision) }
func (s Defragment) String() string      { return "defragment " + s.Name }
func (s Disarm) String() string          { return "disarm " + s.Kind + " of " + cmp.Or(s.Name, hex(s.ID)) }

// Verb implements Step.
func (AddLearner) Verb() string { return "add-learner" }

// Verb implements Step.
func (Promote) Verb() string { return "promote" }

// Verb implements Step.
func (Remove) Verb() string { return "remove" }

// Verb implements Step.
func (UpdatePeerURL) Verb() string { return "update-peer-url" }

// Verb implements Step.
func (MoveLeader) Verb() string { return "move-leader" }

// Verb implements Step.
func (EnableDowngrade) Verb() string { return "enable-downgrade" }

// Verb implements Step.
func (CancelDowngrade) Verb() string { return "cancel-downgrade" }

// Verb implements Step.
func (Compact) Verb() string { return "compact" }

// Verb implements Step.
func (Defragment) Verb() string { return "defragment" }

// Verb implements Step.
func (Disarm) Verb() string { return "disarm" }

func (AddLearner) step()    {}
func (Promote) step()       {}
func (Remove) step()        {}
func (UpdatePeerURL) step() {}
func (MoveLeader) step()    {}

func (EnableDowngrade) step() {}
func (CancelDowngrade) step() {}
func (Compact) step()         {}
func (Defragment) step()      {}
func (Disarm) step()          {}

// Outcome is what became of a step.
type Outcome struct {
	Step Step
	// Rule is the name of the rule that asked for it.
	Rule string
	// Err is empty when etcd carried the step out, else why it did not.
	Err string
	// Passwords are the versions of those that users were given by an Authorize that did not come to its end, by user.
	Passwords map[string]string
}
