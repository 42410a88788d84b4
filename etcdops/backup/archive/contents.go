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
	"github.com/quorate-dev/quorate/hooks/contents"
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
	// Leases that there are.
	Leases int64
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
	leaseBucket       = []byte("lease")
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
func Examine(ctx context.Context, path string) (*Contents, error) { return Account(ctx, path, nil) }

// Account does the same, and counts in an account what fills it; nil for none.
func Account(ctx context.Context, path string, account *contents.Account) (*Contents, error) {
	d, err := openDatabase(path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := examine(ctx, d, account)
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

func examine(ctx context.Context, d *pages.Database, account *contents.Account) (*Contents, error) {
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
		left: newChecksum(), whole: newChecksum(), account: account}
	if account != nil {
		account.Midway = scheduled > finished
	}
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
		return r.other(others, bucket)
	})
	if err != nil {
		return nil, err
	}
	// etcd begins with revision 1, and its revision is never below that of a compaction (restore in kvstore.go).
	c := &Contents{Revision: max(r.last, r.compacted, 1), CompactRevision: r.compacted, Last: r.last,
		Records: r.records, Keys: r.live, Sum: r.sum.Sum32(), AuthRevision: numbers[2], Others: others.Sum32(),
		Free: free, Leases: r.leases}
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

// other takes a bucket into a checksum, and counts leases.
func (r *reading) other(sum hash.Hash32, bucket []byte) pages.Each {
	_, _ = sum.Write(bucket) // never fails
	leases := bytes.Equal(bucket, leaseBucket)
	return func(name, value []byte) error {
		if leases {
			r.leases++
		}
		add(sum, name, value)
		return nil
	}
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
	leases    int64
	// account is what is counted in by prefix; nil for nothing.
	account *contents.Account
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
			kv, ok := keyValueOf(value)
			switch {
			case !isRecord(name) || !ok:
				return errUnknownRecord
			case len(r.later) == changesKeptInMind:
				return errEnough
			}
			hash := maphash.Bytes(r.seed, kv.key)
			r.later[hash] = struct{}{}
			if r.account != nil {
				r.account.Changes(hash)
			}
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
	kv, ok := keyValueOf(value)
	if !isRecord(name) || !ok {
		return errUnknownRecord
	}
	r.last = revisionOf(name)
	r.records++
	after := r.last > r.compacted
	gone := len(name) == tombstoneLength
	lives := int64(0)
	switch {
	case len(kv.key) == 0:
		r.unnamed = true
	case gone && after:
		lives = -1
	case !gone && (!after || kv.version == 1):
		lives = 1
	}
	r.live += lives
	add(r.sum, name, value)
	hash := uint64(0)
	if r.compacted > 0 || r.account != nil {
		hash = maphash.Bytes(r.seed, kv.key)
	}
	if r.compacted > 0 {
		r.toHash(name, hash, value)
	}
	if r.account != nil && len(kv.key) > 0 {
		record := kv.record()
		record.Hash = hash
		record.Bytes = int64(len(name) + len(value))
		record.Gone = gone
		record.Written = after
		record.Lives = lives
		r.account.Add(record)
	}
	return nil
}

// toHash takes a record into what HashKV answers (hash.go of etcd's package mvcc, the same in 3.5, 3.6 and 3.7): of
// what is left from before the compaction, only what still counts at the revision, as if it were compacted now, and no
// tombstone of the compaction's own revision, which old releases do not keep.
func (r *reading) toHash(name []byte, hash uint64, value []byte) {
	before := r.last <= r.compacted
	gone := len(name) == tombstoneLength
	if gone && r.last == r.compacted {
		return
	}
	add(r.whole, name, value)
	if before {
		if _, superseded := r.later[hash]; superseded || gone {
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
	fieldValue   protowire.Number = 5
	fieldLease   protowire.Number = 6
)

// keyValue is what is read of a mvccpb.KeyValue, without copying it.
type keyValue struct {
	key, value []byte
	version    uint64
	leased     bool
}

// record is what an account counts of it.
func (kv *keyValue) record() contents.Record {
	apiVersion, kind := kindOf(kv.value)
	return contents.Record{Key: kv.key, Value: int64(len(kv.value)), APIVersion: apiVersion, Kind: kind, Leased: kv.leased}
}

// Written is what an account counts of a change of a key, by its mvccpb.KeyValue.
func Written(value []byte) contents.Record {
	kv, _ := keyValueOf(value)
	r := kv.record()
	r.Bytes = int64(revisionLength + len(value))
	r.Written = true
	return r
}

func keyValueOf(record []byte) (kv keyValue, ok bool) {
	ok = fields(record, func(field protowire.Number, value []byte, number uint64) {
		switch field {
		case fieldKey:
			kv.key = value
		case fieldVersion:
			kv.version = number
		case fieldValue:
			kv.value = value
		case fieldLease:
			kv.leased = number != 0
		default:
		}
	})
	return kv, ok
}

// kubernetes begins a value in which Kubernetes' API server has an object in protobuf; behind it comes a
// runtime.Unknown, whose first field has apiVersion and kind (runtime/generated.proto of k8s.io/apimachinery).
var kubernetes = []byte("k8s\x00")

// kindOf is the kind of an object of Kubernetes; empty of another value, one in JSON among them, and one encrypted.
func kindOf(value []byte) (apiVersion, kind []byte) {
	object, is := bytes.CutPrefix(value, kubernetes)
	if !is {
		return nil, nil
	}
	field, _, n := protowire.ConsumeTag(object)
	if n < 0 || field != 1 {
		return nil, nil
	}
	meta, _ := protowire.ConsumeBytes(object[n:])
	fields(meta, func(field protowire.Number, value []byte, _ uint64) {
		switch field {
		case 1:
			apiVersion = value
		case 2:
			kind = value
		default:
		}
	})
	return apiVersion, kind
}

// fields tells each field of a message that is bytes or a number; false where it is no message.
func fields(message []byte, tell func(field protowire.Number, value []byte, number uint64)) bool {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return false
		}
		message = message[n:]
		tell(field, value, number)
	}
	return true
}
