package seed

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/quorate-dev/quorate/etcdops/archive"
)

// etcdutl copies a whole database before it changes some records of it: those of the members, of the
// place in the log, and one that raises the revision. A skeleton is the database without what etcdutl
// leaves alone. It is a few pages, however large the database is. etcdutl restores the skeleton, and
// what it changed there is written to the database itself, which is where it will stay.
type skeleton struct {
	// dir has the files before and made.
	dir string
	// raises: the revision is raised.
	raises bool
}

// before is the skeleton; made is the data directory that etcdutl made of it.
func (s *skeleton) before() string { return filepath.Join(s.dir, "before.db") }
func (s *skeleton) made() string   { return filepath.Join(s.dir, "made") }

// The buckets that hold nearly all of a database. etcdutl leaves them alone in 3.5, 3.6 and 3.7, except
// for the record in the first that raises the revision (etcdutl/snapshot/v3_snapshot.go).
const (
	keysBucket   = "key"
	leasesBucket = "lease"
)

// outline takes the skeleton of a database, and has etcdutl make a data directory of it. The log comes
// to walDir, unless that is empty. The bump raises the revision and marks all before as compacted.
func (p Programs) outline(ctx context.Context, database, dir, walDir string, m member, bump int64) (*skeleton, error) {
	s := &skeleton{dir: dir, raises: bump > 0}
	if err := emptyDir(dir); err != nil {
		return nil, written(err, dir)
	}
	if err := takeSkeleton(database, s.before()); err != nil {
		return nil, err
	}
	return s, p.restore(ctx, s.before(), s.made(), walDir, m, bump)
}

// takeSkeleton copies all buckets of a database but those of keys and leases. Of the keys it takes the
// last record, from which etcdutl counts.
func takeSkeleton(from, to string) error {
	made, err := bolt.Open(to, 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		return written(err, to)
	}
	err = guarded(func() error {
		source, err := bolt.Open(from, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		if err != nil {
			return err
		}
		defer source.Close()
		return source.View(func(have *bolt.Tx) error {
			return made.Update(func(make *bolt.Tx) error {
				return have.ForEach(func(name []byte, bucket *bolt.Bucket) error { return copyBucket(make, name, bucket) })
			})
		})
	})
	if err = errors.Join(err, made.Close()); errors.Is(err, errNonsense) {
		return failure(Damaged, err, "the database %s is damaged", from)
	}
	return written(err, to)
}

func copyBucket(to *bolt.Tx, name []byte, from *bolt.Bucket) error {
	bucket, err := to.CreateBucket(name)
	if err != nil {
		return err
	}
	switch string(name) {
	case leasesBucket:
		return nil
	case keysBucket:
		if last, value := from.Cursor().Last(); last != nil {
			return bucket.Put(last, value)
		}
		return nil
	}
	return from.ForEach(bucket.Put)
}

// into writes to a database what etcdutl has changed in its skeleton, moves the log and the snapshot of
// raft beside it, and removes the skeleton. The database is member/snap/db in a directory that is being
// made.
func (s *skeleton) into(dataDir string) error {
	database := databaseOf(dataDir)
	if err := s.write(database); err != nil {
		return err
	}
	snapshots, err := filepath.Glob(filepath.Join(s.made(), "member", "snap", "*.snap"))
	if err != nil {
		return err
	}
	moves := map[string]string{filepath.Join(s.made(), "member", "wal"): filepath.Join(dataDir, "member", "wal")}
	for _, file := range snapshots {
		moves[file] = filepath.Join(filepath.Dir(database), filepath.Base(file))
	}
	for from, to := range moves {
		if err := os.Rename(from, to); err != nil && !errors.Is(err, os.ErrNotExist) { // a log with a volume of its own is there already
			return failure(Failed, err, "what etcdutl made can't be moved beside the database")
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return failure(Failed, err, "what was needed once can't be removed")
	}
	return nil
}

// write has one transaction: the database is as it was, or has all of the changes.
func (s *skeleton) write(database string) error {
	err := guarded(func() error {
		return viewed(s.before(), func(before *bolt.Tx) error {
			return viewed(databaseOf(s.made()), func(after *bolt.Tx) error {
				db, err := bolt.Open(database, 0o600, asEtcdOpens())
				if err != nil {
					return err
				}
				err = db.Update(func(real *bolt.Tx) error {
					if err := s.change(before, after, real); err != nil {
						return err
					}
					return same(after, real)
				})
				return errors.Join(err, db.Close())
			})
		})
	})
	if errors.Is(err, errNonsense) {
		return failure(Damaged, err, "the database %s is damaged", database)
	}
	return written(err, database)
}

func viewed(path string, f func(*bolt.Tx) error) error {
	db, err := bolt.Open(path, 0, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(f)
}

// asEtcdOpens are the options by which etcd opens its database (server/storage/backend/backend.go and
// config_linux.go): no list of free pages is kept in the file.
func asEtcdOpens() *bolt.Options {
	return &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType, Timeout: time.Second}
}

// change makes in the real database the changes between two skeletons. What no restore does is refused.
func (s *skeleton) change(before, after, real *bolt.Tx) error {
	if err := before.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if after.Bucket(name) == nil {
			return archive.OwnWords("etcdutl has removed the bucket %q", name)
		}
		return nil
	}); err != nil {
		return err
	}
	return after.ForEach(func(name []byte, made *bolt.Bucket) error {
		bucket, err := real.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		edits := differences(before.Bucket(name), made)
		if most, counted := s.most(string(name)); counted && len(edits) > most || slices.ContainsFunc(edits, s.never(string(name))) {
			return archive.OwnWords("etcdutl has made %d changes in the bucket %q, which it is known to leave alone", len(edits), name)
		}
		for _, e := range edits {
			if err := e.in(bucket); err != nil {
				return err
			}
		}
		return nil
	})
}

// most is how many changes there may be in the buckets that a skeleton does not have whole.
func (s *skeleton) most(bucket string) (n int, counted bool) {
	switch {
	case bucket == keysBucket && s.raises:
		return 1, true
	case bucket == keysBucket, bucket == leasesBucket:
		return 0, true
	}
	return 0, false
}

// never reports what must not happen to a record: those of keys are not removed, and one without
// content is added at most.
func (s *skeleton) never(bucket string) func(edit) bool {
	return func(e edit) bool { return bucket == keysBucket && (e.gone || len(e.value) > 0) }
}

// edit is one change of a record.
type edit struct {
	name, value []byte
	gone        bool
}

func (e edit) in(b *bolt.Bucket) error {
	if e.gone {
		return b.Delete(e.name)
	}
	return b.Put(e.name, e.value)
}

// differences are the edits that make one bucket of another; the one before may be nil. They are valid
// as long as the transactions are.
func differences(before, after *bolt.Bucket) (edits []edit) {
	var was *bolt.Cursor
	var wasName, wasValue []byte
	if before != nil {
		was = before.Cursor()
		wasName, wasValue = was.First()
	}
	is := after.Cursor()
	name, value := is.First()
	for name != nil || wasName != nil {
		order := bytes.Compare(wasName, name)
		switch {
		case name == nil || wasName != nil && order < 0:
			edits = append(edits, edit{name: wasName, gone: true})
			wasName, wasValue = was.Next()
		case wasName == nil || order > 0:
			edits = append(edits, edit{name: name, value: value})
			name, value = is.Next()
		default:
			if !bytes.Equal(wasValue, value) {
				edits = append(edits, edit{name: name, value: value})
			}
			wasName, wasValue = was.Next()
			name, value = is.Next()
		}
	}
	return edits
}

// same checks that a database has become what etcdutl made of its skeleton.
func same(made, real *bolt.Tx) error {
	return real.ForEach(func(name []byte, bucket *bolt.Bucket) error {
		wanted := made.Bucket(name)
		if wanted == nil {
			return archive.OwnWords("the bucket %q is not in its skeleton", name)
		}
		equal := true
		switch string(name) {
		case leasesBucket:
		case keysBucket:
			last, value := bucket.Cursor().Last()
			wantedLast, wantedValue := wanted.Cursor().Last()
			equal = bytes.Equal(last, wantedLast) && bytes.Equal(value, wantedValue)
		default:
			equal = len(differences(bucket, wanted)) == 0
		}
		if !equal {
			return archive.OwnWords("the bucket %q is not what etcdutl made of it", name)
		}
		return nil
	})
}

// databaseOf is where etcd keeps its database in a data directory.
func databaseOf(dataDir string) string { return filepath.Join(dataDir, "member", "snap", "db") }

// written is an error of writing a file, which may be that its volume is full; nil for none.
func written(err error, path string) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return failure(NoSpace, nil, "%s has no room left; make the volume larger", path)
	}
	return failure(Failed, err, "%s can't be written", path)
}
