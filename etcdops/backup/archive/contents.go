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
	"runtime/debug"
	"slices"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"google.golang.org/protobuf/encoding/protowire"
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
	errNested         = OwnWords("it has a bucket in a bucket, which etcd does not make")
	errDisorder       = OwnWords("its records of keys are not in the order of their revisions")
	changesKeptInMind = 1 << 20 // some 40 MiB
)

// Examine reads a database of etcd, which no process may have open for writing: what `etcdctl snapshot save` wrote, or
// the file member/snap/db of a data directory. Memory does not grow with it, except for pages of the file that the
// kernel takes back when it needs them.
func Examine(ctx context.Context, path string) (c *Contents, err error) {
	// bbolt panics over a page that is none, and an address beyond the end of a file that was cut off is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if told := recover(); told != nil {
			c = nil
			err = failure(Damaged, unreadable(told), "the database %s is damaged", path)
		}
	}()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: openTimeout})
	var file *fs.PathError
	switch {
	case errors.As(err, &file), errors.Is(err, bolterrors.ErrTimeout):
		return nil, failure(Failed, err, "the file %s can't be opened", path)
	case err != nil:
		return nil, failure(Damaged, err, "%s can't be opened as a database of etcd", path)
	}
	defer db.Close()
	if err = db.View(func(tx *bolt.Tx) error { c, err = examine(ctx, tx); return err }); err != nil {
		reason := Damaged
		if ctx.Err() != nil {
			reason = Failed
		}
		return nil, failure(reason, err, "the database %s can't be read", path)
	}
	return c, nil
}

// unreadable is a panic over a page that makes no sense. What it says may be of the page.
func unreadable(any) error { return OwnWords("a page of it makes no sense") }

func examine(ctx context.Context, tx *bolt.Tx) (*Contents, error) {
	keys := tx.Bucket(keyBucket)
	if keys == nil {
		return nil, errNoKeys
	}
	scheduled := number(tx, metaBucket, scheduledCompact)
	finished := number(tx, metaBucket, finishedCompact)
	r := reading{compacted: max(scheduled, finished), later: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
	sum := newChecksum()
	if err := each(ctx, keys, func(name, value []byte) error {
		_, _ = sum.Write(name) // never fails
		_, _ = sum.Write(value)
		return r.count(name, value)
	}); err != nil {
		return nil, err
	}
	// etcd begins with revision 1, and its revision is never below that of a compaction (restore in kvstore.go).
	c := &Contents{Revision: max(r.last, r.compacted, 1), CompactRevision: r.compacted, Last: r.last,
		Records: r.records, Keys: r.live, Sum: sum.Sum32(), AuthRevision: number(tx, authBucket, authRevision)}
	var err error
	if c.Others, err = others(ctx, tx); err != nil {
		return nil, err
	}
	switch {
	case r.compacted == 0:
		c.Hash = fmt.Sprintf("%08x", c.Sum)
	case scheduled > finished:
		c.Keys = -1
	case len(r.later) < changesKeptInMind:
		sum, err := r.hash(ctx, keys)
		if err != nil {
			return nil, err
		}
		c.Hash = fmt.Sprintf("%08x", sum)
	}
	return c, nil
}

// number is a revision that a bucket has under a name; 0 when it has none.
func number(tx *bolt.Tx, bucket, name []byte) int64 {
	b := tx.Bucket(bucket)
	if b == nil {
		return 0
	}
	value := b.Get(name)
	if len(value) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(value))
}

// ofRestore are the buckets that etcdutl changes when it restores, in 3.5, 3.6 and 3.7 (TrimMembershipFromBackend,
// and updateCIndex in its snapshot/v3_snapshot.go), and that of keys.
var ofRestore = []string{"key", "meta", "cluster", "members", "members_removed"}

// others is the checksum of all other buckets.
func others(ctx context.Context, tx *bolt.Tx) (uint32, error) {
	sum := crc32.New(castagnoli)
	err := tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		if slices.Contains(ofRestore, string(name)) {
			return nil
		}
		_, _ = sum.Write(name) // never fails
		return b.ForEach(func(name, value []byte) error {
			if value == nil {
				return errNested
			}
			_, _ = sum.Write(name)
			_, _ = sum.Write(value)
			return ctx.Err()
		})
	})
	return sum.Sum32(), err
}

// newChecksum is the checksum of HashKV, which begins with the name of the bucket.
func newChecksum() hash.Hash32 {
	sum := crc32.New(castagnoli)
	_, _ = sum.Write(keyBucket)
	return sum
}

// each calls f for each record, in the order of revisions.
func each(ctx context.Context, keys *bolt.Bucket, f func(name, value []byte) error) error {
	n := 0
	var before []byte
	return keys.ForEach(func(name, value []byte) error {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if len(name) != revisionLength && len(name) != tombstoneLength || value == nil { // a bucket has no value
			return errUnknownRecord
		}
		if bytes.Compare(before, name) >= 0 {
			return errDisorder
		}
		before = append(before[:0], name...)
		return f(name, value)
	})
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
}

// count counts the keys without keeping them in mind. Each life of a key that has left a record begins with one that
// can be told: that which a finished compaction left of it, of which there is one at most up to its revision, or
// after it the first version. It ends with a tombstone. (A tombstone that the compaction itself left has nothing
// before it any more.)
func (r *reading) count(name, value []byte) error {
	r.last = revisionOf(name)
	r.records++
	after := r.last > r.compacted
	key, version, ok := keyAndVersion(value)
	switch {
	case !ok:
		return errUnknownRecord
	case len(key) == 0:
		r.unnamed = true
	case len(name) == tombstoneLength && after:
		r.live--
	case len(name) != tombstoneLength && (!after || version == 1):
		r.live++
	}
	if after && r.compacted > 0 && len(r.later) < changesKeptInMind {
		r.later[maphash.Bytes(r.seed, key)] = struct{}{}
	}
	return nil
}

// hash is that of HashKV (hash.go of etcd's package mvcc, the same in 3.5, 3.6 and 3.7): of what is left from before
// the compaction, only what still counts at the revision, as if it were compacted now, and no tombstone of the
// compaction's own revision, which old releases do not keep. Where no key is left at all, nothing is left out.
func (r *reading) hash(ctx context.Context, keys *bolt.Bucket) (uint32, error) {
	sum := newChecksum()
	all := r.live == 0 && !r.unnamed
	err := each(ctx, keys, func(name, value []byte) error {
		if revision := revisionOf(name); revision <= r.compacted {
			key, _, _ := keyAndVersion(value)
			_, superseded := r.later[maphash.Bytes(r.seed, key)]
			gone := len(name) == tombstoneLength
			if gone && revision == r.compacted {
				return nil
			}
			if !all && (superseded || gone) {
				return nil
			}
		}
		_, _ = sum.Write(name) // never fails
		_, _ = sum.Write(value)
		return nil
	})
	return sum.Sum32(), err
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
