package archive

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
)

// HashAt is what HashKV answers for a revision while another one is the last that was compacted, in hexadecimal, by a
// database that has more than that: it is compacted no further, and goes on behind the revision. Empty when the
// database alone does not tell: it is compacted further, has no key at that revision, or more keys than are kept
// in mind here.
//
// It is the hash of unsafeHashByRev in hash.go of etcd's package mvcc, the same in 3.5, 3.6 and 3.7: all records after
// the compaction, and of those before it the ones that are the last of their keys at the revision and no tombstones.
func HashAt(ctx context.Context, path string, revision, compacted int64) (hash string, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if told := recover(); told != nil {
			hash = ""
			err = failure(Damaged, unreadable(told), "the database %s is damaged", path)
		}
	}()
	db, err := bolt.Open(path, 0o400, &bolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return "", failure(Failed, err, "the file %s can't be opened", path)
	}
	defer db.Close()
	err = db.View(func(tx *bolt.Tx) error {
		if max(number(tx, metaBucket, scheduledCompact), number(tx, metaBucket, finishedCompact)) > compacted {
			return nil
		}
		hash, err = hashAt(ctx, tx.Bucket(keyBucket), revision, compacted)
		return err
	})
	return hash, err
}

func hashAt(ctx context.Context, keys *bolt.Bucket, revision, compacted int64) (string, error) {
	if keys == nil {
		return "", errNoKeys
	}
	seed := maphash.MakeSeed()
	last := map[uint64]int64{} // the number of the last record of each key; below 0 when it is a tombstone
	n := int64(0)
	if err := each(ctx, keys, func(name, value []byte) error {
		if n++; revisionOf(name) > revision || len(last) >= changesKeptInMind {
			return nil
		}
		key, _, ok := keyAndVersion(value)
		if !ok {
			return errUnknownRecord
		}
		number := n
		if len(name) == tombstoneLength {
			number = -n
		}
		last[maphash.Bytes(seed, key)] = number
		return nil
	}); err != nil {
		return "", err
	}
	live := false
	for _, number := range last {
		live = live || number > 0
	}
	if compacted > 0 && (!live || len(last) >= changesKeptInMind) {
		return "", nil
	}
	sum := newChecksum()
	n = 0
	err := each(ctx, keys, func(name, value []byte) error {
		n++
		at := revisionOf(name)
		if at > revision {
			return nil
		}
		if at <= compacted {
			if key, _, _ := keyAndVersion(value); last[maphash.Bytes(seed, key)] != n {
				return nil
			}
		}
		_, _ = sum.Write(name) // never fails
		_, _ = sum.Write(value)
		return nil
	})
	return fmt.Sprintf("%08x", sum.Sum32()), err
}
