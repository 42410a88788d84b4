package seed

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/pages"
)

type buckets map[string]map[string]string

// store makes a database of buckets.
func (b buckets) store(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		for name, records := range b {
			bucket, err := tx.CreateBucket([]byte(name))
			require.NoError(t, err)
			for k, v := range records {
				require.NoError(t, bucket.Put([]byte(k), []byte(v)))
			}
		}
		return nil
	}))
	require.NoError(t, db.Close())
}

func load(t *testing.T, path string) buckets {
	t.Helper()
	all := buckets{}
	require.NoError(t, viewed(path, func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
			all[string(name)] = map[string]string{}
			return b.ForEach(func(k, v []byte) error { all[string(name)][string(k)] = string(v); return nil })
		})
	}))
	return all
}

// TestSkeleton: what etcdutl changes in a skeleton is changed in the database, and nothing else. What it is known to
// leave alone must be as it was.
func TestSkeleton(t *testing.T) {
	t.Parallel()
	const last, above = "\x00\x00\x00\x00\x00\x00\x00\x09_\x00\x00\x00\x00\x00\x00\x00\x00",
		"\x00\x00\x00\x00\x00\x00\x10\x09_\x00\x00\x00\x00\x00\x00\x00\x00"
	database := func() buckets {
		return buckets{
			"key":   {"\x00\x00\x00\x00\x00\x00\x00\x02_\x00\x00\x00\x00\x00\x00\x00\x00": "first", last: "last"},
			"lease": {"1": "a", "2": "b"},
			"meta":  {"term": "7", "consistent_index": "1000"}, "members": {"a": "old", "b": "old"}, "auth": {},
		}
	}
	for name, c := range map[string]struct {
		bump   int64
		change func(buckets) // that etcdutl makes
		want   func(buckets) // nil for the same, in the database
		err    string
	}{
		"nothing": {change: func(buckets) {}},
		"members and meta": {change: func(b buckets) {
			delete(b["members"], "a")
			b["members"]["c"] = "new"
			b["meta"]["term"] = "1"
		}},
		"a bucket more": {change: func(b buckets) { b["cluster"] = map[string]string{"clusterVersion": "3.6.0"} }},
		"the revision": {bump: 4096,
			change: func(b buckets) { b["key"][above], b["meta"][scheduledCompact] = "", above }},
		"the revision, not marked as compacted": {bump: 4096,
			change: func(b buckets) { b["key"][above], b["meta"]["term"] = "", "1" }, err: `in the bucket "meta"`},
		"no revision": {bump: 4096,
			change: func(b buckets) { b["meta"][scheduledCompact] = above }, err: `in the bucket "key"`},
		"another revision": {bump: 4095,
			change: func(b buckets) { b["key"][above], b["meta"][scheduledCompact] = "", above },
			err:    `in the bucket "key"`},
		"the revision, unasked": {change: func(b buckets) { b["key"][above] = "" },
			err: `etcdutl made 1 unexpected changes in the bucket "key"`},
		"a key with content": {bump: 4096, change: func(b buckets) { b["key"][above] = "x" },
			err: `in the bucket "key"`},
		"a key is removed": {bump: 4096, change: func(b buckets) { delete(b["key"], last) },
			err: `in the bucket "key"`},
		"two keys": {bump: 4096, change: func(b buckets) { b["key"][above], b["key"][above+"t"] = "", "" },
			err: `2 unexpected changes in the bucket "key"`},
		"a lease":       {change: func(b buckets) { b["lease"]["3"] = "c" }, err: `in the bucket "lease"`},
		"a bucket less": {change: func(b buckets) { delete(b, "auth") }, err: `etcdutl has removed the bucket "auth"`},
		"the end of the keys": {change: func(buckets) {},
			want: func(b buckets) { b["key"]["\x01"+last[1:]] = "after the skeleton was taken" },
			err:  `the bucket "key" is not as etcdutl left it`},
		"a bucket that came later": {change: func(buckets) {},
			want: func(b buckets) { b["alarm"] = map[string]string{} },
			err:  `the bucket "alarm" is not in its skeleton`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			in := staged{dataDir: dir}
			path, s := in.database(), &skeleton{dir: filepath.Join(dir, "skeleton"), bump: c.bump}
			database().store(t, path)
			require.NoError(t, emptyDir(s.dir))
			require.NoError(t, takeSkeleton(path, s.before()))
			made := load(t, s.before())
			require.Equal(t, map[string]string{last: "last"}, made["key"])
			require.Empty(t, made["lease"])
			c.change(made)
			made.store(t, databaseOf(s.made()))
			require.NoError(t, os.Mkdir(filepath.Join(s.made(), "member", "wal"), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(databaseOf(s.made())), "1-1.snap"), nil, 0o600))
			want := database()
			if c.want != nil { // the database is another one by now
				c.want(want)
				require.NoError(t, os.Remove(path))
				want.store(t, path)
			}
			err := s.into(in, freeIn(t, path))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, want, load(t, path), "nothing was changed")
				return
			}
			require.NoError(t, err)
			c.change(want)
			require.Equal(t, want, load(t, path))
			require.NoDirExists(t, s.dir)
			require.DirExists(t, in.log())
			require.FileExists(t, filepath.Join(filepath.Dir(path), "1-1.snap"))
		})
	}
}

// freeIn are the pages that hold nothing of a database.
func freeIn(t *testing.T, path string) *pages.Free {
	t.Helper()
	d, err := pages.Open(path, 0)
	require.NoError(t, err)
	defer d.Close()
	free, err := d.All(t.Context(), func([]byte) pages.Each { return nil })
	require.NoError(t, err)
	return free
}

// TestSkeletonOfADamagedDatabase: a page that makes no sense is an error, and no fault.
func TestSkeletonOfADamagedDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	buckets{"key": {"k": "v"}, "meta": {"a": "b"}}.store(t, databaseOf(dir))
	raw, err := os.ReadFile(databaseOf(dir))
	require.NoError(t, err)
	for i := 2 * os.Getpagesize(); i < len(raw); i++ {
		raw[i] ^= 0x55
	}
	require.NoError(t, os.WriteFile(databaseOf(dir), raw, 0o600))
	err = takeSkeleton(databaseOf(dir), filepath.Join(dir, "skeleton.db"))
	require.Equal(t, damaged, archive.ReasonOf(err), "%v", err)
}

// TestFull: what a library says of a volume without room, in words alone too.
func TestFull(t *testing.T) {
	t.Parallel()
	for _, err := range []error{syscall.ENOSPC, &fs.PathError{Err: syscall.EDQUOT},
		errors.New("file resize error: truncate: no space left on device")} {
		require.Equal(t, noSpace, archive.ReasonOf(written(err, "here")), "%v", err)
	}
	require.Equal(t, failed, archive.ReasonOf(written(fs.ErrPermission, "here")))
	require.NoError(t, written(nil, "here"))
}

// TestHighestBegin: revisions are int64, and an epoch leaves room above it.
func TestHighestBegin(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, makeEmpty(path))
	for _, after := range []int64{highestBegin, math.MaxInt64} {
		_, err := Options{BeginAfter: &after}.bump(path)
		require.ErrorContains(t, err, "can't begin at")
	}
	bump, err := Options{BeginAfter: new(int64)}.bump(path)
	require.NoError(t, err)
	require.EqualValues(t, BeginGap+1, bump, "above the revision, which is 1 although there is no record")
}
