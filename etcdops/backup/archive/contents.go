package archive

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/maphash"
	"io/fs"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorate-dev/quorate/etcdops/backup/pages"
)

// Contents is what a database of etcd holds.
type Contents struct {
	// Revision of the keys. CompactRevision is the one below which there is no history; 0 before the first compaction.
	Revision, CompactRevision int64
	// Last is the revision of the last record; 0 without any: what etcdutl raises a revision from.
	Last int64
	// Records are the versions of keys, deletions among them.
	Records int64
	// Keys that there are at Revision; -1 when the database does not tell, in the middle of a compaction.
	Keys int64
	// Hash is what HashKV answers for Revision while the compacted revision is CompactRevision, in hexadecimal; empty
	// when the database alone does not tell: in the middle of a compaction, or after more changes since the last one
	// than are kept in mind here.
	Hash string
	// Sum is a checksum of all records of keys and their history. It is the same wherever they are the same, whatever
	// else changed.
	Sum uint32
	// AuthRevision of users and roles; 0 in a database in which etcd has never run.
	AuthRevision int64
	// Others is a checksum of all that is neither keys nor about members: leases, users, roles, alarms. A restore
	// leaves it as it is.
	Others uint32
	// Free are the pages that hold none of it.
	Free *pages.Free
}

// How etcd keeps its keys, the same in 3.5, 3.6 and 3.7 (server/storage/mvcc/revision.go and store.go): a record's
// name is its revision, eight bytes, '_', and eight more that count within the revision; a 't' behind them says that
// the key was deleted.
const (
	revisionLength  = 17
	tombstoneLength = revisionLength + 1
)

var (
	keyBucket         = []byte("key")
	metaBucket        = []byte("meta")
	authBucket        = []byte("auth")
	authRevision      = []byte("authRevision")
	scheduledCompact  = []byte("scheduledCompactRev")
	finishedCompact   = []byte("finishedCompactRev")
	castagnoli        = crc32.MakeTable(crc32.Castagnoli)
	openTimeout       = 10 * time.Second
	errNoKeys         = OwnWords("it has no bucket of keys")
	errUnknownRecord  = OwnWords("it has a record of keys that etcd does not write")
	changesKeptInMind = 1 << 20 // some 40 MiB
)

// Examine reads a database of etcd, which no process may have open for writing: what `etcdctl snapshot save` wrote, or
// the file member/snap/db of a data directory. It reads each page once, in the order of the keys, and the records
// since the last compaction before that. Memory grows with it by 2 bits a page, and 8 bytes for each that is free.
func Examine(ctx context.Context, path string) (*Contents, error) {
	d, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := examine(ctx, d)
	if err != nil {
		return nil, unread(ctx, path, err)
	}
	return c, nil
}

func openDatabase(path string) (*pages.Database, error) {
	d, err := pages.Open(path, openTimeout)
	var file *fs.PathError
	switch {
	case err == nil:
		return d, nil
	case errors.As(err, &file), errors.Is(err, pages.ErrInUse):
		return nil, failure(Failed, err, "the file %s can't be opened", path)
	}
	return nil, failure(Damaged, err, "%s can't be opened as a database of etcd", path)
}

// unread is the error of a database that could not be read to its end.
func unread(ctx context.Context, path string, err error) error {
	reason := Damaged
	if ctx.Err() != nil {
		reason = Failed
	}
	return failure(reason, err, "the database %s can't be read", path)
}

func examine(ctx context.Context, d *pages.Database) (*Contents, error) {
	has, err := d.Has(ctx, keyBucket)
	if err == nil && !has {
		err = errNoKeys
	}
	var numbers [3]int64
	for i, of := range [][2][]byte{{metaBucket, scheduledCompact}, {metaBucket, finishedCompact},
		{authBucket, authRevision}} {
		if err == nil {
			numbers[i], err = number(ctx, d, of[0], of[1])
		}
	}
	scheduled, finished := numbers[0], numbers[1]
	r := reading{compacted: max(scheduled, finished), seed: maphash.MakeSeed(), sum: newChecksum(),
		left: newChecksum(), whole: newChecksum()}
	if err == nil && scheduled <= finished {
		err = r.changes(ctx, d)
	}
	if err != nil {
		return nil, err
	}
	others := crc32.New(castagnoli)
	free, err := d.All(ctx, func(bucket []byte) pages.Each {
		switch {
		case bytes.Equal(bucket, keyBucket):
			return r.count
		case slices.Contains(ofRestore, string(bucket)):
			return nil
		}
		_, _ = others.Write(bucket) // never fails
		return func(name, value []byte) error {
			_, _ = others.Write(name)
			_, _ = others.Write(value)
			return nil
		}
	})
	if err != nil {
		return nil, err
	}
	// etcd begins with revision 1, and its revision is never below that of a compaction (restore in kvstore.go).
	c := &Contents{Revision: max(r.last, r.compacted, 1), CompactRevision: r.compacted, Last: r.last,
		Records: r.records, Keys: r.live, Sum: r.sum.Sum32(), AuthRevision: numbers[2], Others: others.Sum32(),
		Free: free}
	switch {
	case r.compacted == 0:
		c.Hash = fmt.Sprintf("%08x", c.Sum)
	case scheduled > finished:
		c.Keys = -1
	case len(r.later) < changesKeptInMind:
		c.Hash = fmt.Sprintf("%08x", r.hash())
	}
	return c, nil
}

// number is a revision that a bucket has under a name; 0 when it has none.
func number(ctx context.Context, d *pages.Database, bucket, name []byte) (int64, error) {
	value, err := d.Get(ctx, bucket, name)
	if len(value) < 8 {
		return 0, err
	}
	return int64(binary.BigEndian.Uint64(value)), err
}

// ofRestore are the buckets that etcdutl changes when it restores, in 3.5, 3.6 and 3.7 (TrimMembershipFromBackend,
// and updateCIndex in its snapshot/v3_snapshot.go), and that of keys.
var ofRestore = []string{"key", "meta", "cluster", "members", "members_removed"}

// newChecksum is the checksum of HashKV, which begins with the name of the bucket.
func newChecksum() hash.Hash32 {
	sum := crc32.New(castagnoli)
	_, _ = sum.Write(keyBucket)
	return sum
}

// reading is what one pass over the records keeps in mind.
type reading struct {
	compacted int64
	last      int64
	records   int64
	live      int64
	// later has a hash of each key that was written or deleted after the compaction.
	later map[uint64]struct{}
	seed  maphash.Seed
	// unnamed is set once there is the record with which etcdutl raises the revision: it has no key, and is none.
	unnamed bool
	// sum is of all records. left and whole are what hash chooses from.
	sum, left, whole hash.Hash32
}

// changes notes which keys were changed after the compaction, as many as are kept in mind.
func (r *reading) changes(ctx context.Context, d *pages.Database) error {
	r.later = map[uint64]struct{}{}
	if r.compacted == 0 {
		return nil
	}
	err := d.From(ctx, keyBucket, binary.BigEndian.AppendUint64(nil, uint64(r.compacted)+1),
		func(name, value []byte) error {
			key, _, ok := keyAndVersion(value)
			switch {
			case !isRecord(name) || !ok:
				return errUnknownRecord
			case len(r.later) == changesKeptInMind:
				return errEnough
			}
			r.later[maphash.Bytes(r.seed, key)] = struct{}{}
			return nil
		})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

var errEnough = errors.New("enough")

// isRecord reports whether a record of keys has a name that etcd gives.
func isRecord(name []byte) bool { return len(name) == revisionLength || len(name) == tombstoneLength }

// count counts the keys without keeping them in mind. Each life of a key that has left a record begins with one that
// can be told: that which a finished compaction left of it, of which there is one at most up to its revision, or
// after it the first version. It ends with a tombstone. (A tombstone that the compaction itself left has nothing
// before it any more.)
func (r *reading) count(name, value []byte) error {
	key, version, ok := keyAndVersion(value)
	if !isRecord(name) || !ok {
		return errUnknownRecord
	}
	r.last = revisionOf(name)
	r.records++
	after := r.last > r.compacted
	gone := len(name) == tombstoneLength
	switch {
	case len(key) == 0:
		r.unnamed = true
	case gone && after:
		r.live--
	case !gone && (!after || version == 1):
		r.live++
	}
	add(r.sum, name, value)
	if r.compacted > 0 {
		r.toHash(name, key, value)
	}
	return nil
}

// toHash takes a record into what HashKV answers (hash.go of etcd's package mvcc, the same in 3.5, 3.6 and 3.7): of
// what is left from before the compaction, only what still counts at the revision, as if it were compacted now, and no
// tombstone of the compaction's own revision, which old releases do not keep.
func (r *reading) toHash(name, key, value []byte) {
	before := r.last <= r.compacted
	gone := len(name) == tombstoneLength
	if gone && r.last == r.compacted {
		return
	}
	add(r.whole, name, value)
	if before {
		if _, superseded := r.later[maphash.Bytes(r.seed, key)]; superseded || gone {
			return
		}
	}
	add(r.left, name, value)
}

// hash is what HashKV answers. Where no key is left at all, nothing is left out.
func (r *reading) hash() uint32 {
	if r.live == 0 && !r.unnamed {
		return r.whole.Sum32()
	}
	return r.left.Sum32()
}

func add(sum hash.Hash32, name, value []byte) {
	_, _ = sum.Write(name) // never fails
	_, _ = sum.Write(value)
}

func revisionOf(name []byte) int64 { return int64(binary.BigEndian.Uint64(name)) }

// Fields of mvccpb.KeyValue (api/mvccpb/kv.proto).
const (
	fieldKey     protowire.Number = 1
	fieldVersion protowire.Number = 4
)

// keyAndVersion reads two fields of a mvccpb.KeyValue without copying the value.
func keyAndVersion(record []byte) (key []byte, version uint64, ok bool) {
	for len(record) > 0 {
		field, kind, n := protowire.ConsumeTag(record)
		if n < 0 {
			return nil, 0, false
		}
		record = record[n:]
		switch {
		case field == fieldKey && kind == protowire.BytesType:
			key, n = protowire.ConsumeBytes(record)
		case field == fieldVersion && kind == protowire.VarintType:
			version, n = protowire.ConsumeVarint(record)
		default:
			n = protowire.ConsumeFieldValue(field, kind, record)
		}
		if n < 0 {
			return nil, 0, false
		}
		record = record[n:]
	}
	return key, version, true
}
