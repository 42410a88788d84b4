// Package record is what Quorate writes down of an epoch before it acts on it: one Go struct in one ConfigMap.
//
// What the epoch is made with is one JSON value in the ConfigMap's data, which is immutable: the first one that the API
// server takes decides who the initial members are (S8). How far the epoch has come is one JSON value in an annotation.
// That only moves forward, because Metacontroller writes it with the resource version that it observed.
package record

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Record is all that is written down of an epoch.
type Record struct {
	Bootstrap
	State
}

// Bootstrap is what an epoch is made with.
type Bootstrap struct {
	// Initial are the peer URLs of the initial members, by name.
	Initial map[string]string `json:"initial,omitempty"`
	// First is the lowest number of its members: those below it were members of earlier epochs.
	First int `json:"firstMember,omitzero"`
	// Peers is how the members spoke with each other when they joined an external etcd: http or https.
	Peers string `json:"peers,omitzero"`
	// Recreated: it took the place of a record that was deleted. Its initial members are a guess.
	Recreated bool `json:"recreated,omitzero"`
	Origin
	// After is the number of the epoch that it takes over from, FormerFirst the lowest number of that one's members; 0
	// for the first epoch.
	After       int `json:"previousEpoch,omitzero"`
	FormerFirst int `json:"formerFirstMember,omitzero"`
	// Floor is what the revisions of all epochs before lie below: see facts/revisions.go.
	Floor int64 `json:"revisionFloor,omitzero"`
	// Past are the epochs before, by number.
	Past map[int]Past `json:"past,omitempty"`
	// Answered are the UIDs of the restores that it or one before has answered, with the number of that.
	Answered map[string]int `json:"answered,omitempty"`
}

// State is how far an epoch has come.
type State struct {
	// StartsOn holds, by member, the UID of the claim (or memory pod), or the name of the node, that it may start on
	// with an empty data directory. It is written before the member starts, and after that nothing of that name is
	// ever made again (S10). Nil: not provisioned yet.
	StartsOn map[string]types.UID `json:"startsOn,omitzero"`
	// ClusterID is 0 until the epoch has once been quorate.
	ClusterID uint64 `json:"clusterID,omitzero"`
	// NextOrdinal is the lowest number that no member has had.
	NextOrdinal int `json:"nextMember,omitzero"`
	// Version of etcd that pods are made with.
	Version string `json:"version,omitzero"`
	// Choice is the restart or removal that was chosen last.
	Choice Choice `json:"chosen,omitzero"`
	// OldLog is how far into the log entries of 3.5 may be.
	OldLog OldLog `json:"oldLog,omitzero"`
	// HTTPSPeers are the members that etcd lists with an https URL in an epoch that began in plain text.
	HTTPSPeers []string `json:"httpsPeers,omitempty"`
	// Mismatched are the members at whose addresses another etcd has answered since they last did: see facts/roles.go.
	Mismatched []string `json:"mismatched,omitempty"`
	// Highest is above every revision that its epoch and those before were seen to have given out, as far as that is
	// noted: see facts/revisions.go.
	Highest int64 `json:"highestRevision,omitzero"`
	// Sum is the SHA-256, in hexadecimal, that the first initial member has found where none was known before; empty
	// for not yet, or none: see facts/seeds.go.
	Sum string `json:"sha256,omitzero"`
	// Until is the revision at which the first initial member has found the stream of changes to end; 0 for not yet, or
	// none. StreamEnd says in words how far it followed that, and why not further.
	Until     int64  `json:"until,omitzero"`
	StreamEnd string `json:"streamEnd,omitzero"`
	// Phase is how far it has come in taking over from the epoch before: PhasePreparing and its like.
	Phase string `json:"phase,omitzero"`
	// Survivor is the member, or the claim, whose volume was chosen to seed it; empty for none yet. Evidence says why.
	Survivor string `json:"survivor,omitzero"`
	Evidence string `json:"evidence,omitzero"`
	// External are, in an epoch that joined an external etcd, the members there that are none of ours: their client
	// URLs, by ID in hexadecimal. ExternalSince is since when it is these.
	External      map[string][]string `json:"external,omitempty"`
	ExternalSince time.Time           `json:"externalSince,omitzero"`
}

// Origin is where an epoch's data comes from.
type Origin struct {
	// Source is SourceEmpty or its like.
	Source string `json:"source"`
	// Restore is the UID of the restore (an EtcdOperation) that the epoch answers; empty for none.
	Restore string `json:"restore,omitzero"`
	// Snapshot that the initial members restore; nil for none.
	Snapshot *Resolved `json:"snapshot,omitzero"`
	// Claim is the volume that seeds this one, of another etcd; nil for none.
	Claim *FormerClaim `json:"claim,omitzero"`
	// SurvivorsOf is the epoch one of whose members' volumes seeds this one; 0 for none.
	SurvivorsOf int `json:"survivorsOf,omitzero"`
	// Member of that epoch that runs, and from which the data is fetched where no volume could be copied; empty for
	// none.
	Member string `json:"member,omitzero"`
}

// Resolved is a snapshot with all that is needed to restore it.
type Resolved struct {
	// Name of its EtcdSnapshot, and ClusterID of the etcd that it was taken of, in hexadecimal; empty when they are
	// not known.
	Name      string `json:"name,omitzero"`
	ClusterID string `json:"clusterID,omitzero"`
	// URL of the artifact, SHA256 of its database in hexadecimal; empty when that is not known.
	URL    string `json:"url"`
	SHA256 string `json:"sha256,omitzero"`
	// Tail is the URL of the folder with the changes after it; empty for the snapshot alone. They are restored up to
	// the revision Until, or else to what had arrived at UntilTime, or else all. AsFar has what can't be followed end
	// them, instead of an error; there may be none.
	Tail      string    `json:"tail,omitzero"`
	Until     int64     `json:"until,omitzero"`
	UntilTime time.Time `json:"untilTime,omitzero"`
	AsFar     bool      `json:"asFar,omitzero"`
	// Store says how it is reached.
	Store v1beta1.Store `json:"store"`
	// Keys are the Secret by whose keys the changes are believed; without a name, all are.
	Keys               v1beta1.SecretKeyRef `json:"keys,omitzero"`
	Identity           v1beta1.SecretKeyRef `json:"identity,omitzero"`
	ServiceAccountName string               `json:"serviceAccountName,omitzero"`
}

// FormerClaim is the volume of a member of an etcd that runs no more.
type FormerClaim struct {
	// Name of the claim, WAL that of the claim with the write-ahead log; empty where the log is with the data.
	Name string `json:"name"`
	WAL  string `json:"wal,omitzero"`
	// Path of the data directory in the volume.
	Path string `json:"path"`
}

// Past is what is known of an epoch that is over.
type Past struct {
	ClusterID uint64 `json:"clusterID,omitzero"` // 0 when it never had a quorum
	// Voters are the numbers of those who voted when the next epoch was recorded; none when that is not known.
	Voters []int `json:"voters,omitempty"`
}

// Choice is the member that is restarted, or removed: see facts/choice.go.
type Choice struct {
	Name string `json:"name"`
	Pod  string `json:"pod,omitzero"` // its UID; none for a removal
	// Container is the one that ends when the image is exchanged; empty when the pod goes.
	Container string `json:"container,omitzero"`
	// Down: it did not serve when it was chosen, and not because of a restart before: no change is at fault that it
	// is restarted for.
	Down bool `json:"down,omitzero"`
	// Removes: the member is removed instead.
	Removes bool `json:"removes,omitzero"`
	// Withdrawn is when a removal was taken back; zero when it was not.
	Withdrawn time.Time `json:"withdrawn,omitzero"`
}

// OldLog is how far into the log entries of 3.5 may be: unbounded while members of 3.5 may run. See facts/upgrade.go.
type OldLog struct {
	There bool  `json:"there,omitzero"`
	UpTo  int64 `json:"upTo,omitzero"` // an index of the log; 0: not known yet
}

// The phases of a switchover. An epoch begins, for good, when the one before can't acknowledge anything any more.
const (
	PhasePreparing = ""         // its members' data is made ready, beside the epoch before
	PhaseStopping  = "stopping" // the epoch before is stopped
	PhaseBegan     = "began"
	PhaseCancelled = "cancelled" // it is not to come, and what was made ready for it is taken down
)

// The sources of epochs.
const (
	// SourceEmpty begins without data.
	SourceEmpty = "Empty"
	// SourceSnapshot begins with a snapshot that all initial members restore.
	SourceSnapshot = "Snapshot"
	// SourceSurvivor begins with what the data directory of a member of an earlier epoch holds.
	SourceSurvivor = "Survivor"
	// SourceClaims begins with what the volume of a member of another etcd holds, which runs no more.
	SourceClaims = "Claims"
	// SourceExternal has no initial members: they join a running etcd.
	SourceExternal = "External"
)

var sources = []string{SourceEmpty, SourceSnapshot, SourceSurvivor, SourceClaims, SourceExternal}

// Keys of a record's data.
const (
	keyBootstrap = "bootstrap"
	// KeyToken and KeyInitialCluster are for the environment of pods. Of a record that is gone no pod starts.
	KeyToken          = "token"
	KeyInitialCluster = "initial-cluster"
)

// annotationState holds the State.
const annotationState = objects.Domain + "state"

// MostRevisions bounds them: far more than a cluster ever has, and so little that what is added never overflows.
const MostRevisions = 1 << 62

// Remembered is how many epochs, and how many answers, a record tells of.
const Remembered = 32

// Is reports whether a ConfigMap of the cluster has the name and the content of the record of an epoch, and of which.
func Is(cluster string, cm *corev1.ConfigMap) (epoch int, is bool) {
	epoch, is = objects.Ordinal(cluster+"-epoch", cm.Name)
	return epoch, is && cm.Data[keyBootstrap] != ""
}

// New is the ConfigMap of a record, of the nth epoch.
func New(c *v1beta1.EtcdCluster, n int, r Record) *corev1.ConfigMap {
	r.Past = newest(r.Past, func(n int, _ Past) int { return n })
	r.Answered = newest(r.Answered, func(_ string, n int) int { return n })
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: objects.EpochName(c.Name, n)},
		Data: map[string]string{
			keyBootstrap:      encode(r.Bootstrap),
			KeyToken:          fmt.Sprintf("%s-%d", c.UID, n),
			KeyInitialCluster: objects.FormatPairs(r.Initial, "="),
		},
		Immutable: new(true),
	}
	r.State.WriteTo(cm)
	return cm
}

// WriteTo puts the state on the ConfigMap of its record.
func (s State) WriteTo(cm *corev1.ConfigMap) {
	cm.Annotations = objects.With(cm.Annotations, annotationState, encode(s))
}

// Chosen notes whose volume was chosen to seed the epoch: the name is before the first colon of the evidence.
func (s *State) Chosen(evidence string) {
	s.Survivor, _, _ = strings.Cut(evidence, ":")
	s.Evidence = evidence
}

// newest are as many as are remembered of a map: those with the highest numbers.
func newest[K cmp.Ordered, V any](all map[K]V, number func(K, V) int) map[K]V {
	if len(all) <= Remembered {
		return all
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b K) int {
		return cmp.Or(number(a, all[a])-number(b, all[b]), cmp.Compare(a, b))
	})
	return objects.Only(all, keys[len(keys)-Remembered:]...)
}

// Read reads the ConfigMap of a record. Its errors quote nothing of it.
func Read(cm *corev1.ConfigMap) (Record, error) {
	var r Record
	if err := decode(cm.Data[keyBootstrap], &r.Bootstrap); err != nil {
		return Record{}, fmt.Errorf("its %s can't be read", keyBootstrap)
	}
	if err := decode(cm.Annotations[annotationState], &r.State); err != nil {
		return Record{}, fmt.Errorf("its annotation %s can't be read", annotationState)
	}
	if cm.Data[KeyInitialCluster] != objects.FormatPairs(r.Initial, "=") {
		return Record{}, errCopy
	}
	if r.StartsOn == nil && r.ClusterID != 0 {
		r.StartsOn = map[string]types.UID{}
	}
	if err := r.flaw(); err != nil {
		return Record{}, err
	}
	return r, nil
}

var (
	errCopy    = errors.New("its " + KeyInitialCluster + " is not that of its " + keyBootstrap)
	errOrigin  = errors.New("it does not say where its data comes from")
	errMembers = errors.New("it has a member without a name, or without what belongs to it")
	errNumbers = errors.New("it has a number that no cluster comes to")
)

// flaw is what no record says that Quorate wrote.
func (r *Record) flaw() error {
	switch {
	case !slices.Contains(sources, r.Source),
		r.Source == SourceSnapshot && r.Snapshot == nil,
		r.Source == SourceClaims && r.Claim == nil:
		return errOrigin
	case incomplete(r.Initial), incomplete(r.StartsOn):
		return errMembers
	}
	for _, n := range []int{r.First, r.FormerFirst, r.After, r.SurvivorsOf, r.NextOrdinal} {
		if n < 0 || n > objects.MostMembers {
			return errNumbers
		}
	}
	for _, n := range r.revisions() {
		if n < 0 || n > MostRevisions {
			return errNumbers
		}
	}
	return nil
}

// incomplete reports whether a name, or what belongs to it, is empty.
func incomplete[V ~string](members map[string]V) bool {
	for name, has := range members {
		if name == "" || has == "" {
			return true
		}
	}
	return false
}

// revisions are all numbers of revisions, and of entries of a log.
func (r *Record) revisions() []int64 {
	all := []int64{r.Floor, r.Highest, r.Until, r.OldLog.UpTo}
	if r.Snapshot != nil {
		all = append(all, r.Snapshot.Until)
	}
	return all
}

// IDs are written as etcd prints them.
var (
	writeIDs = json.MarshalToFunc(func(out *jsontext.Encoder, id uint64) error {
		return out.WriteToken(jsontext.String(fmt.Sprintf("%x", id)))
	})
	readIDs = json.UnmarshalFromFunc(func(in *jsontext.Decoder, id *uint64) error {
		token, err := in.ReadToken()
		if err != nil {
			return err
		}
		*id, err = strconv.ParseUint(token.String(), 16, 64)
		return err
	})
)

func encode(v any) string {
	text, err := json.Marshal(v, json.WithMarshalers(writeIDs), json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil { // plain data always encodes
		panic(err)
	}
	return string(text)
}

// ownTypes are those that are written as a person reads them.
var ownTypes = json.WithUnmarshalers(json.JoinUnmarshalers(readIDs, objects.Quantities))

func decode(text string, v any) error { return json.Unmarshal([]byte(text), v, ownTypes) }
