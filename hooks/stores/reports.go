package stores

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Artifact is what is known of a stored snapshot. The file <artifact>.json beside it, which is written last, holds the
// same: without that file an artifact is not whole.
type Artifact struct {
	// URI of the artifact, without credentials.
	URI string `json:"uri,omitempty"`
	// Compression and Encrypted say how it is stored.
	Compression string `json:"compression,omitempty"`
	Encrypted   bool   `json:"encrypted,omitempty"`
	// Size of the database in bytes, StoredSize that of the artifact.
	Size       int64 `json:"size,omitempty"`
	StoredSize int64 `json:"storedSize,omitempty"`
	// SHA256 of the database and StoredSHA256 of the artifact, in hexadecimal.
	SHA256       string `json:"sha256,omitempty"`
	StoredSHA256 string `json:"storedSHA256,omitempty"`
	// Revision of the keys, CompactRevision below which there is no history, Keys that there are at Revision, and the
	// Hash of keys and history in hexadecimal: HashKV of that revision (rpc.proto), for comparison where
	// CompactRevision is equal.
	Revision        int64  `json:"revision,omitempty"`
	CompactRevision int64  `json:"compactRevision,omitempty"`
	Keys            int64  `json:"keys,omitempty"`
	Hash            string `json:"hash,omitempty"`
	// AuthRevision of users and roles (AuthStatusResponse in rpc.proto). While VerifiedAt is not set, it and Revision
	// are bounds: what is stored is not older.
	AuthRevision int64 `json:"authRevision,omitempty"`
	// EtcdVersion of the member that it was taken from, ClusterID in hexadecimal, and the Member's name.
	EtcdVersion string `json:"etcdVersion,omitempty"`
	ClusterID   string `json:"clusterID,omitempty"`
	Member      string `json:"member,omitempty"`
	// Started and Completed are when it was begun and stored.
	Started   time.Time `json:"started,omitzero"`
	Completed time.Time `json:"completed,omitzero"`
}

// Snapshot is what `quorate-snapshot snapshot` reports.
type Snapshot struct {
	Artifact
	// VerifiedAt is when the artifact had been restored on trial; zero when it was not.
	VerifiedAt time.Time `json:"verifiedAt,omitzero"`
	// HashOf and KeysOf are the members, other than the source, that have the same hash and the same number of keys at
	// Revision; empty when none could say.
	HashOf string `json:"hashOf,omitempty"`
	KeysOf string `json:"keysOf,omitempty"`
	// Warning says which member has other data than the snapshot and most members; empty for none.
	Warning string `json:"warning,omitempty"`
	// Contents is what fills the database, in short; nil when that was not counted.
	Contents *v1beta1.SnapshotContents `json:"contents,omitempty"`
	// Skipped: nothing has changed since the snapshot without which none was wanted. Revision, AuthRevision and
	// ClusterID say what is still so.
	Skipped bool `json:"skipped,omitempty"`
	// Absent, after a failure: nothing whole is stored. What an earlier run had stored is gone, or was disproved and
	// removed.
	Absent bool `json:"absent,omitempty"`
	// Locked, after a deletion that failed: the store keeps the artifact by a retention, such as S3's object lock.
	Locked bool `json:"locked,omitempty"`
	// Error says why there is no snapshot or, with a URI, why it is stored and not verified; empty for success.
	Error string `json:"error,omitempty"`
}

// Restore is what `quorate-snapshot restore` reports of one member's data directory.
type Restore struct {
	// Revision that the member begins at, Keys that it has, and the Hash of keys and history before the revision was
	// raised, in hexadecimal.
	Revision int64  `json:"revision,omitempty"`
	Keys     int64  `json:"keys,omitempty"`
	Hash     string `json:"hash,omitempty"`
	// SHA256 of the database that was fetched from a store, in hexadecimal; empty for a member's.
	SHA256 string `json:"sha256,omitempty"`
	// UntilRevision is the last one that was restored from a stream, or that of the snapshot where nothing followed; 0
	// for a restore without a stream.
	UntilRevision int64 `json:"untilRevision,omitempty"`
	// Replayed is how many revisions that is behind the snapshot, UntilTime when the last of them had arrived, by the
	// clock of the stream; 0 and zero where nothing followed.
	Replayed  int64     `json:"replayed,omitempty"`
	UntilTime time.Time `json:"untilTime,omitzero"`
	// Ended is why a stream was not followed further, although more is stored or may be; empty at its end, and where
	// the restore was to end.
	Ended string `json:"ended,omitempty"`
	// Doubt is what is not known of what was restored from a stream; empty for nothing.
	Doubt string `json:"doubt,omitempty"`
	// Reason is one word for Error, for a condition: WrongKey, Damaged, NoSpace, OtherVersion, NotFound, Denied,
	// Unreachable, Failed.
	Reason string `json:"reason,omitempty"`
	// Error says why nothing was restored; empty for success. The data directory is untouched then.
	Error string `json:"error,omitempty"`
}

// Stream is what `quorate-snapshot stream` tells at /status while it runs, and reports when it ends.
type Stream struct {
	// ClusterID in hexadecimal.
	ClusterID string `json:"clusterID,omitempty"`
	// StoredRevision is the last one of the unbroken chain in the store; SeenRevision the last one that has arrived.
	StoredRevision int64 `json:"storedRevision,omitempty"`
	SeenRevision   int64 `json:"seenRevision,omitempty"`
	// StoredTime: everything that was written before it is stored. LagSeconds is how long ago that is.
	StoredTime time.Time `json:"storedTime,omitzero"`
	LagSeconds float64   `json:"lagSeconds"`
	// Segments and Bytes that this process has stored.
	Segments int64 `json:"segments"`
	Bytes    int64 `json:"bytes"`
	// Reason is one word for Error: Compacted, UsersChanged, Behind, OtherCluster, or one of a store and a cluster, as
	// Restore.Reason has them.
	Reason string `json:"reason,omitempty"`
	// Error says why it has ended; empty when it was told to.
	Error string `json:"error,omitempty"`
}

// Writes is what `quorate-snapshot stream` tells of who writes: in the last hour that is over, as far as it ran in that,
// or since it began.
type Writes struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Contents of what has arrived: Keys that were changed, Writes, their Bytes. Prefixes has none where what is stored
	// is encrypted.
	Contents *v1beta1.SnapshotContents `json:"contents"`
}

// Reasons for which a stream ends for good.
const (
	// StreamCompacted: etcd no longer has the next revision. StreamUsersChanged: users or roles have changed, which a
	// watch does not show. StreamBehind: so much is missing that etcd would suffer from reading it. All three need a
	// new snapshot, and a stream from its revision.
	StreamCompacted    = "Compacted"
	StreamUsersChanged = "UsersChanged"
	StreamBehind       = "Behind"
	// StreamOtherCluster: another cluster answers, or another history of the same one.
	StreamOtherCluster = "OtherCluster"
)

// NeedsSnapshot reports whether a stream can't go on without a new snapshot to begin at.
func (s *Stream) NeedsSnapshot() bool {
	return s.Reason == StreamCompacted || s.Reason == StreamUsersChanged || s.Reason == StreamBehind
}

// Mirror is what `quorate-snapshot mirror` tells at /status while it runs, and reports when it ends.
type Mirror struct {
	// SourceClusterID in hexadecimal.
	SourceClusterID string `json:"sourceClusterID,omitempty"`
	// Doing is empty while the destination has all keys of Revision of the source; else Copying, Reconciling, Applying
	// or Ending: some keys are those of a later one.
	Doing    string `json:"doing,omitempty"`
	Revision int64  `json:"revision,omitempty"`
	// SeenRevision is the last one that has arrived.
	SeenRevision int64 `json:"seenRevision,omitempty"`
	// WrittenTime: everything that was written before it is at the destination. LagSeconds is how long ago that is.
	WrittenTime time.Time `json:"writtenTime,omitzero"`
	LagSeconds  float64   `json:"lagSeconds,omitempty"`
	// Transactions and Operations that this process has written.
	Transactions int64 `json:"transactions,omitempty"`
	Operations   int64 `json:"operations,omitempty"`
	// Ended: no mirror writes to the destination any more.
	Ended bool `json:"ended,omitempty"`
	// Keys that were compared, and the first one that differs, by `mirror check`.
	Keys       int64  `json:"keys,omitempty"`
	Difference string `json:"difference,omitempty"`
	// Reason is one word for Error: Ended, Occupied, OtherScope, OtherCluster, Compacted, Differs, or one of a cluster,
	// as Restore.Reason has them.
	Reason string `json:"reason,omitempty"`
	// Error says why it has ended; empty when it was told to.
	Error string `json:"error,omitempty"`
}

// Reasons for which a mirror ends for good, besides StreamOtherCluster.
const (
	// MirrorEnded: it was promoted. MirrorOccupied: the destination has keys that it did not write. MirrorOtherScope:
	// it was begun with other prefixes. MirrorDiffers: a key of the destination is not what the source had.
	MirrorEnded      = "Ended"
	MirrorOccupied   = "Occupied"
	MirrorOtherScope = "OtherScope"
	MirrorDiffers    = "Differs"
)

// Tail is what `quorate-snapshot inspect --tail` reports of a stream in a store.
type Tail struct {
	ClusterID string `json:"clusterID,omitempty"`
	// FirstRevision to StoredRevision are stored without a gap; both 0 when nothing is.
	FirstRevision  int64 `json:"firstRevision,omitempty"`
	StoredRevision int64 `json:"storedRevision,omitempty"`
	// StoredTime is when the last of them had arrived.
	StoredTime time.Time `json:"storedTime,omitzero"`
	// UntilRevision is the last one that had arrived at the time that was asked for; 0 when none had.
	UntilRevision int64 `json:"untilRevision,omitempty"`
	// Segments of the chain, and the Bytes that they take.
	Segments int64 `json:"segments"`
	Bytes    int64 `json:"bytes"`
	// Reason is one word for Error, as Restore.Reason has them.
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Latest is what `quorate-snapshot inspect --latest` reports of a folder in a store.
type Latest struct {
	// Artifact is the name of the newest snapshot below the store's prefix, with what its record says of it; empty for
	// none.
	Artifact  string    `json:"artifact,omitempty"`
	SHA256    string    `json:"sha256,omitempty"`
	ClusterID string    `json:"clusterID,omitempty"`
	Revision  int64     `json:"revision,omitempty"`
	Completed time.Time `json:"completed,omitzero"`
	// Snapshots is how many the folder has that are whole.
	Snapshots int `json:"snapshots"`
	// None: the store has answered, and the folder has nothing that is a snapshot or may have become one.
	None bool `json:"none,omitempty"`
	// Reason is one word for Error, as Restore.Reason has them. Error says why it is not known what there is, or, with
	// None, that another look follows.
	Reason string `json:"reason,omitempty"`
	Error  string `json:"error,omitempty"`
}

// Inspection is what `quorate-snapshot inspect-data` reports of the data directory of a member that does not run.
type Inspection struct {
	// LastTerm and LastIndex are those of the last entry in the log: of several survivors, the one that is ahead in
	// term, then in index, has everything that was acknowledged, if any of them has (the rule of raft's elections,
	// section 5.4.1 of the paper).
	LastTerm  uint64 `json:"lastTerm,omitempty"`
	LastIndex uint64 `json:"lastIndex,omitempty"`
	// Commit is up to which entry the member knew them to be committed.
	Commit uint64 `json:"commit,omitempty"`
	// ClusterID and MemberID in hexadecimal, as the log has them.
	ClusterID string `json:"clusterID,omitempty"`
	MemberID  string `json:"memberID,omitempty"`
	// DBSize in bytes.
	DBSize int64 `json:"dbSize,omitempty"`
	// Members are all that the directory lists, by ID, with their names. Electorates are those whose votes may count,
	// by their IDs: by the last change of members that is known to be committed, and by each later one in the log. A
	// majority of each of these has among it everything that was acknowledged. Both are empty when that can't be told.
	Members     map[string]string `json:"members,omitempty"`
	Electorates [][]string        `json:"electorates,omitempty"`
	// Reason is one word for Error: Damaged or NotFound when the directory was read and has nothing that can be used;
	// any other, or none, when it could not be read.
	Reason string `json:"reason,omitempty"`
	// Error says why the directory can't be used; empty for success.
	Error string `json:"error,omitempty"`
}

// Read reads a report from a termination message. The error says what the message was instead.
func Read[T any](message string) (*T, error) {
	report := new(T)
	if err := json.Unmarshal([]byte(message), report); err != nil {
		return nil, fmt.Errorf("no report: %.200q", message)
	}
	return report, nil
}

// Last is what a container of the pod reported when it last ended; nil while it has not, or reported nothing. Where the
// program has written no report, the message is the end of its log.
func Last[T any](pod *corev1.Pod, container string) *T {
	end := objects.LastEnd(pod, container)
	if end == nil {
		return nil
	}
	report, err := Read[T](LastLine(end.Message))
	if err != nil {
		return nil
	}
	return report
}

// LastLine of a log that is not empty.
func LastLine(log string) string {
	log = strings.TrimSpace(log)
	return strings.TrimSpace(log[strings.LastIndexByte(log, '\n')+1:])
}

// DiffersFrom reports whether two members were filled with different data. Of a snapshot the databases are the same,
// byte by byte. In the middle of a compaction neither the keys nor the hash are known.
func (r *Restore) DiffersFrom(other *Restore, ofSnapshot bool) bool {
	otherDatabase := r.SHA256 != "" && other.SHA256 != "" && r.SHA256 != other.SHA256
	if ofSnapshot && otherDatabase {
		return true
	}
	if r.Revision != other.Revision || r.UntilRevision != other.UntilRevision {
		return true
	}
	return r.Hash != "" && other.Hash != "" && (r.Keys != other.Keys || r.Hash != other.Hash)
}

// Stream says how far a stream was restored, and what ended that.
func (r *Restore) Stream() string {
	words := "nothing came from a stream"
	if r.Replayed > 0 {
		words = fmt.Sprintf("%s came from its stream, the last is %d", objects.Count(int(r.Replayed), "revision"),
			r.UntilRevision)
		if !r.UntilTime.IsZero() {
			words += r.UntilTime.UTC().Format(", of 2006-01-02 15:04:05 UTC")
		}
	}
	if r.Ended != "" {
		words += "; no more, because " + r.Ended
	}
	if r.Doubt != "" {
		words += "; " + r.Doubt
	}
	return words
}

// Describe says what a member was filled with.
func (r *Restore) Describe() string {
	words := fmt.Sprintf("%s at revision %d with the hash %s", objects.Count(int(r.Keys), "key"), r.Revision, r.Hash)
	if r.SHA256 != "" {
		words += " and the SHA-256 " + r.SHA256
	}
	return words
}
