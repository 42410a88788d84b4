package seed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// database is what is known of etcd's database file without changing it.
type database struct {
	path string
	size int64
	// index and term are those of the last entry of the log that is in it.
	index, term uint64
	// last is the revision of the last record of a key, 0 without any; revision is what etcd answers: 1 at first, and
	// never below a compaction (restore in storage/mvcc/kvstore.go).
	last, revision int64
	// version is major.minor.patch of the storage, or of the cluster, whichever is higher; empty when it says neither.
	version string
}

// readDatabase looks into a database. One that a process has opened is refused: its etcd still runs.
func readDatabase(path string) (*database, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, failure(notFound, nil, "the database %s does not exist: no etcd has run there, or its data is "+
			"lost", path)
	}
	if err != nil {
		return nil, failure(failed, err, "the database can't be read")
	}
	d := &database{path: path, size: info.Size()}
	if err := lookInto(path, d.read); err != nil {
		return nil, err
	}
	return d, nil
}

// lookInto looks into a database that no process has open.
func lookInto(path string, read func(*bolt.Tx) error) error {
	// bbolt panics on pages that make no sense, which checks of the file's first pages don't find.
	err := guarded(func() error { return viewed(path, read) })
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return failure(failed, nil, "the database %s is in use: the etcd that it belongs to still runs; stop it first",
			path)
	case errors.Is(err, fs.ErrPermission):
		return failure(failed, err, "the database can't be read")
	case err != nil:
		return failure(damaged, err, "%s is not an etcd database, or is damaged", path)
	}
	return nil
}

// errNonsense is a panic over a page. What the panic says may be of the page.
var errNonsense = archive.OwnWords("a page of it makes no sense")

// guarded turns a panic into an error, and a fault as well: a file that was cut off is mapped beyond its end.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			err = errNonsense
		}
	}()
	return f()
}

// read takes what etcd's packages storage/schema and etcdserver/cindex write.
func (d *database) read(tx *bolt.Tx) error {
	meta := tx.Bucket([]byte("meta"))
	keys := tx.Bucket([]byte("key"))
	if meta == nil || keys == nil {
		return archive.OwnWords("it does not have the buckets meta and key")
	}
	d.last = 0
	d.revision = 1
	d.last = lastRevision(tx)
	d.revision = max(d.revision, d.last)
	for _, name := range []string{scheduledCompact, "finishedCompactRev"} {
		if raw := meta.Get([]byte(name)); len(raw) >= 8 {
			d.revision = max(d.revision, int64(binary.BigEndian.Uint64(raw)))
		}
	}
	if raw := meta.Get([]byte("consistent_index")); len(raw) == 8 {
		d.index = binary.BigEndian.Uint64(raw)
	}
	if raw := meta.Get([]byte("term")); len(raw) == 8 {
		d.term = binary.BigEndian.Uint64(raw)
	}
	d.version = versionIn(meta, "storageVersion")
	if cluster := tx.Bucket([]byte("cluster")); cluster != nil {
		if v := versionIn(cluster, "clusterVersion"); newerMinor(v, d.version) {
			d.version = v
		}
	}
	return nil
}

// versionIn is the version that a bucket has under a name; empty for what can't be one. A damaged page may say that a
// value has up to 4 GiB, which would be copied into memory.
func versionIn(bucket *bolt.Bucket, name string) string {
	const longest = 32
	raw := bucket.Get([]byte(name))
	if len(raw) > longest {
		return ""
	}
	return string(raw)
}

// lastRevision is that of the last record of a key, which is named by it; 0 without any.
func lastRevision(tx *bolt.Tx) int64 {
	keys := tx.Bucket([]byte(keysBucket))
	if keys == nil {
		return 0
	}
	name, _ := keys.Cursor().Last()
	if len(name) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(name))
}

// makeEmpty makes a database in which etcd finds no keys.
func makeEmpty(path string) error {
	db, err := bolt.Open(path, 0o600, asEtcdOpens())
	if err == nil {
		err = db.Update(func(tx *bolt.Tx) error {
			for _, name := range emptyBuckets {
				if _, err := tx.CreateBucket([]byte(name)); err != nil {
					return err
				}
			}
			return nil
		})
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		return written(err, path)
	}
	return nil
}

// emptyBuckets are those that etcd makes in a new database, the same in 3.5, 3.6 and 3.7 (storage/schema/bucket.go).
var emptyBuckets = []string{"key", "meta", "lease", "alarm", "cluster", "members", "members_removed", "auth",
	"authUsers", "authRoles"}

// minor is major and minor of a version such as 3.6.16; false when it is none.
func minor(version string) ([2]int, bool) {
	var m [2]int
	n, _ := fmt.Sscanf(version, "%d.%d.", &m[0], &m[1])
	return m, n == 2
}

// newerMinor reports whether a is of a later minor version than b. Any version is later than none.
func newerMinor(a, b string) bool {
	x, known := minor(a)
	y, other := minor(b)
	if !known || !other {
		return known
	}
	return x[0] > y[0] || x[0] == y[0] && x[1] > y[1]
}

// databaseIn is the database that a member would start on. etcd makes another one its own at its next start when the
// leader had sent it one and it was stopped before it took that up: 0000000000001234.snap.db, of a snapshot that the
// log knows (RecoverSnapshotBackend in etcd's storage/backend.go).
func databaseIn(dataDir string, l *entryLog) (*database, error) {
	dir := filepath.Join(dataDir, "member", "snap")
	d, err := readDatabase(filepath.Join(dir, "db"))
	sent := l.newestSnapshot()
	if err != nil && (archive.ReasonOf(err) != notFound || sent == 0) {
		return d, err
	}
	if err == nil && sent <= d.index {
		return d, nil
	}
	return readDatabase(filepath.Join(dir, fmt.Sprintf("%016x.snap.db", sent)))
}
