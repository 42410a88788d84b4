package archive

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/quorate-dev/quorate/etcdops/backup/pages"
)

// HashAt is what HashKV answers for a revision while another one is the last that was compacted, in hexadecimal, by a
// database that has more than that: it is compacted no further, and goes on behind the revision. Empty when the
// database alone does not tell: it is compacted further, has no key at that revision, or more keys than are kept
// in mind here.
//
// It is the hash of unsafeHashByRev in hash.go of etcd's package mvcc, the same in 3.5, 3.6 and 3.7: all records after
// the compaction, and of those before it the ones that are the last of their keys at the revision and no tombstones.
func HashAt(ctx context.Context, path string, revision, compacted int64) (hash string, err error) {
	d, err := openDatabase(path)
	if err != nil {
		return "", err
	}
	defer d.Close()
	if hash, err = hashAt(ctx, d, revision, compacted); err != nil {
		return "", unread(ctx, path, err)
	}
	return hash, nil
}

func hashAt(ctx context.Context, d *pages.Database, revision, compacted int64) (string, error) {
	if tells, err := tellsOf(ctx, d, compacted); err != nil || !tells {
		return "", err
	}
	seed := maphash.MakeSeed()
	last := map[uint64]int64{} // the number of the last record of each key; below 0 when it is a tombstone
	n := int64(0)
	err := upTo(ctx, d, revision, func(name, key, _ []byte) {
		n++
		number := n
		if len(name) == tombstoneLength {
			number = -n
		}
		if len(last) < changesKeptInMind {
			last[maphash.Bytes(seed, key)] = number
		}
	})
	if err != nil {
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
	err = upTo(ctx, d, revision, func(name, key, value []byte) {
		n++
		if revisionOf(name) > compacted || last[maphash.Bytes(seed, key)] == n {
			add(sum, name, value)
		}
	})
	return fmt.Sprintf("%08x", sum.Sum32()), err
}

// tellsOf reports whether a database has keys, and is compacted no further than up to a revision.
func tellsOf(ctx context.Context, d *pages.Database, compacted int64) (bool, error) {
	for _, name := range [][]byte{scheduledCompact, finishedCompact} {
		if is, err := number(ctx, d, metaBucket, name); err != nil || is > compacted {
			return false, err
		}
	}
	has, err := d.Has(ctx, keyBucket)
	if err == nil && !has {
		err = errNoKeys
	}
	return has, err
}

// upTo calls f with the records up to a revision.
func upTo(ctx context.Context, d *pages.Database, revision int64, f func(name, key, value []byte)) error {
	err := d.From(ctx, keyBucket, nil, func(name, value []byte) error {
		kv, ok := keyValueOf(value)
		switch {
		case !isRecord(name) || !ok:
			return errUnknownRecord
		case revisionOf(name) > revision:
			return errEnough
		}
		f(name, kv.key, value)
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
