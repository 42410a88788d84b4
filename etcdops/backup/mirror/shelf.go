package mirror

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
)

// How etcd keeps its keys (server/storage/mvcc/revision.go): a record's name begins with its revision, and has one more
// letter for a deletion.
const (
	keyBucket       = "key"
	tombstoneLength = 18
)

// A shelf makes so many changes at once, or so many bytes of them: memory does not grow with the values.
const shelfOps, shelfBytes = 10_000, 8 << 20

// shelf has the mirrored keys of a revision in a file, in their order at the destination: memory does not grow with
// them.
type shelf struct {
	db    *bolt.DB
	scope Scope
	holes []string
	// until is the last revision that is taken.
	until int64
	open  []op
	// size of what is open, in bytes.
	size int
	// reading is the transaction in which they are read; nil before.
	reading *bolt.Tx
}

var shelfBucket = []byte("keys")

func newShelf(file string, scope Scope, until int64) (*shelf, error) {
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true, NoGrowSync: true,
		FreelistType: bolt.FreelistMapType})
	if err != nil {
		return nil, failure(failed, err, "the file %s can't be made", file)
	}
	s := &shelf{db: db, scope: scope, holes: scope.holes(), until: until}
	return s, s.flush()
}

// close removes it. There may be none.
func (s *shelf) close() {
	if s == nil {
		return
	}
	if s.reading != nil {
		_ = s.reading.Rollback()
	}
	file := s.db.Path()
	_ = s.db.Close()
	_ = os.Remove(file)
}

// takeBase takes the keys of a database of etcd.
func (s *shelf) takeBase(ctx context.Context, file string) error {
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return failure(failed, err, "the snapshot can't be opened")
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		records := tx.Bucket([]byte(keyBucket))
		if records == nil {
			return archive.OwnWords("it has no bucket of keys")
		}
		return records.ForEach(func(name, value []byte) error {
			if len(name) < tombstoneLength-1 || int64(binary.BigEndian.Uint64(name)) > s.until {
				return ctx.Err()
			}
			return s.take(len(name) >= tombstoneLength, value)
		})
	})
	if err == nil {
		err = s.flush()
	}
	if err != nil {
		return failure(failed, err, "the snapshot can't be read")
	}
	return nil
}

// takeSegment takes what changed behind a revision.
func (s *shelf) takeSegment(segment *stream.Segment, behind int64) error {
	err := segment.Each(func(c stream.Change) error {
		if c.Revision <= behind || c.Revision > s.until {
			return nil
		}
		return s.take(c.Deleted, c.Value)
	})
	if err == nil {
		err = s.flush()
	}
	return err
}

// take takes a record: a mvccpb.KeyValue.
func (s *shelf) take(deleted bool, record []byte) error {
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(record, &kv); err != nil {
		return archive.OwnWords("a record of it can't be read")
	}
	if len(kv.Key) == 0 { // etcdutl has raised the revision by it, as no key of a client is empty
		return nil
	}
	name, mirrored := s.scope.to(string(kv.Key), s.holes)
	if !mirrored {
		return nil
	}
	if len(name) > bolt.MaxKeySize {
		return failure(failed, nil, "a key has more than %d bytes, which a mirror of what is stored can't take",
			bolt.MaxKeySize)
	}
	o := op{key: name, value: kv.Value, deleted: deleted}
	s.open = append(s.open, o)
	s.size = s.size + o.size()
	if len(s.open) < shelfOps && s.size < shelfBytes {
		return nil
	}
	return s.flush()
}

func (s *shelf) flush() error {
	err := s.db.Update(func(tx *bolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(shelfBucket)
		if err != nil {
			return err
		}
		for _, o := range s.open {
			if o.deleted {
				err = bucket.Delete([]byte(o.key))
			} else {
				err = bucket.Put([]byte(o.key), o.value)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	clear(s.open)
	s.open = s.open[:0]
	s.size = 0
	if err != nil {
		return failure(failed, err, "the keys can't be written to %s", s.db.Path())
	}
	return nil
}

// all are the keys, in their order.
func (s *shelf) all() (keys, error) {
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, failure(failed, err, "the keys can't be read from %s", s.db.Path())
	}
	s.reading = tx
	c := &shelved{cursor: tx.Bucket(shelfBucket).Cursor()}
	c.at(c.cursor.First())
	return c, nil
}

// shelved are the keys of a shelf.
type shelved struct {
	cursor *bolt.Cursor
	kv     *mvccpb.KeyValue
}

func (c *shelved) at(key, value []byte) {
	if c.kv = nil; key != nil {
		c.kv = &mvccpb.KeyValue{Key: bytes.Clone(key), Value: bytes.Clone(value)}
	}
}

func (c *shelved) next() { c.at(c.cursor.Next()) }

func (c *shelved) head(ctx context.Context) (*mvccpb.KeyValue, error) { return c.kv, ctx.Err() }
