package seed

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/pages"
)

// etcdutl copies a whole database before it changes some records of it: those of the members, of the
// place in the log, and one that raises the revision. A skeleton is the database without what etcdutl
// leaves alone. It is a few pages, however large the database is. etcdutl restores the skeleton, and
// what it changed there is written to the database itself, which is where it will stay.
type skeleton struct {
	// dir has the files before and made.
	dir string
	// bump is by how much the revision is raised, above that of the last record of the keys; 0 for not.
	bump int64
}

// before is the skeleton; made is the data directory that etcdutl made of it.
func (s *skeleton) before() string { return filepath.Join(s.dir, "before.db") }
func (s *skeleton) made() string   { return filepath.Join(s.dir, "made") }

// The buckets that hold nearly all of a database. etcdutl leaves them alone in 3.5, 3.6 and 3.7, except
// for the record in the first that raises the revision (etcdutl/snapshot/v3_snapshot.go).
const (
	keysBucket   = "key"
	leasesBucket = "lease"
	metaBucket   = "meta"
	// scheduledCompact is the name of a record there.
	scheduledCompact = "scheduledCompactRev"
)

// outline takes the skeleton of a database that is being made, and has etcdutl make a data directory of it.
func (p Programs) outline(ctx context.Context, to staged, m member, bump int64) (*skeleton, error) {
	s := &skeleton{dir: filepath.Join(to.dataDir, "skeleton"), bump: bump}
	if err := emptyDir(s.dir); err != nil {
		return nil, written(err, s.dir)
	}
	if err := takeSkeleton(to.database(), s.before()); err != nil {
		return nil, err
	}
	return s, p.restore(ctx, s.before(), s.made(), to.walDir, m, bump)
}

// takeSkeleton copies all buckets of a database except for those of keys and leases. Of the keys it takes the
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
			return made.Update(func(tx *bolt.Tx) error {
				return have.ForEach(func(name []byte, bucket *bolt.Bucket) error {
					return copyBucket(tx, name,
						bucket)
				})
			})
		})
	})
	var file *fs.PathError
	if err = errors.Join(err, made.Close()); err != nil && !full(err) && !errors.As(err, &file) {
		return failure(damaged, err, "the database %s is damaged", from)
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
	return from.ForEach(func(name, value []byte) error {
		if value == nil {
			return errNested
		}
		if int64(len(value)) > from.Tx().Size() {
			return errNonsense // longer than the file: it would be copied into memory
		}
		return bucket.Put(name, value)
	})
}

// errNested: etcd has no buckets in buckets.
var errNested = archive.OwnWords("it has a bucket in a bucket, which etcd does not make")

// into writes to the database what etcdutl has changed in its skeleton, moves the log and the snapshot of
// raft beside it, and removes the skeleton. The database gets the list of its free pages: without one bbolt
// walks over all pages when it opens one for writing, in a goroutine where a page that is none would end
// the process.
func (s *skeleton) into(to staged, free *pages.Free) error {
	if err := free.Write(to.database()); err != nil {
		return written(err, to.database())
	}
	if err := s.write(to.database()); err != nil {
		return err
	}
	snapshots, err := filepath.Glob(filepath.Join(s.made(), "member", "snap", "*.snap"))
	if err == nil && len(snapshots) == 0 {
		err = archive.OwnWords("etcdutl created no raft snapshot")
	}
	moves := map[string]string{}
	if to.walDir == "" {
		moves[filepath.Join(s.made(), "member", "wal")] = to.log()
	}
	for _, file := range snapshots {
		moves[file] = filepath.Join(filepath.Dir(to.database()), filepath.Base(file))
	}
	for from, to := range moves {
		err = errors.Join(err, os.Rename(from, to))
	}
	if err = errors.Join(err, os.RemoveAll(s.dir)); err != nil {
		return failure(failed, err, "the files of etcdutl can't be moved beside the database")
	}
	return nil
}

// write has one transaction: the database is as it was, or has all of the changes.
func (s *skeleton) write(database string) error {
	err := guarded(func() error {
		return viewed(s.before(), func(before *bolt.Tx) error {
			return viewed(databaseOf(s.made()), func(after *bolt.Tx) error {
				// The list of free pages stays in it: etcd need not look for them when it starts.
				options := &bolt.Options{FreelistType: bolt.FreelistMapType, Timeout: time.Second, NoGrowSync: true,
					NoSync: true} // place.commit does that, for all
				db, err := bolt.Open(database, 0o600, options)
				if err != nil {
					return err
				}
				err = db.Update(func(tx *bolt.Tx) error {
					if err := s.change(before, after, tx); err != nil {
						return err
					}
					return same(after, tx)
				})
				return errors.Join(err, db.Close())
			})
		})
	})
	if errors.Is(err, errNonsense) {
		return failure(damaged, err, "the database %s is damaged", database)
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
func (s *skeleton) change(before, after, database *bolt.Tx) error {
	if err := before.ForEach(func(name []byte, _ *bolt.Bucket) error {
		if after.Bucket(name) == nil {
			return archive.OwnWords("etcdutl has removed the bucket %q", name)
		}
		return nil
	}); err != nil {
		return err
	}
	return after.ForEach(func(name []byte, made *bolt.Bucket) error {
		bucket, err := database.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		edits := differences(before.Bucket(name), made)
		if !s.expected(string(name), edits, before) {
			return archive.OwnWords("etcdutl made %d unexpected changes in the bucket %q: use a release of etcd that "+
				"Quorate knows",
				len(edits), name)
		}
		for _, e := range edits {
			if err := e.in(bucket); err != nil {
				return err
			}
		}
		return nil
	})
}

// expected reports whether etcdutl has changed a bucket as it is known to. Of the keys and leases a skeleton has
// next to nothing, so these are exact: one more record raises the revision, and is there when it was asked for.
func (s *skeleton) expected(bucket string, edits []edit, before *bolt.Tx) bool {
	switch {
	case bucket == leasesBucket, bucket == keysBucket && s.bump == 0:
		return len(edits) == 0
	case bucket == keysBucket:
		return len(edits) == 1 && !edits[0].gone && len(edits[0].value) == 0 &&
			bytes.Equal(edits[0].name, raised(lastRevision(before)+s.bump))
	case bucket == metaBucket && s.bump > 0: // all before is marked as compacted
		return slices.ContainsFunc(edits, func(e edit) bool {
			return string(e.name) == scheduledCompact && len(e.value) >= 8 &&
				int64(binary.BigEndian.Uint64(e.value)) == lastRevision(before)+s.bump
		})
	}
	return true
}

// raised is the name of the record, without content, with which etcdutl raises a revision (unsafeBumpBucketsRevision
// in its snapshot/v3_snapshot.go).
func raised(revision int64) []byte {
	name := binary.BigEndian.AppendUint64(nil, uint64(revision))
	return binary.BigEndian.AppendUint64(append(name, '_'), 0)
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
func same(made, database *bolt.Tx) error {
	return database.ForEach(func(name []byte, bucket *bolt.Bucket) error {
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
			return archive.OwnWords("the bucket %q is not as etcdutl left it", name)
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
	case full(err):
		return failure(noSpace, nil, "%s has no room left; make the volume larger", path)
	}
	return failure(failed, err, "%s can't be written", path)
}

// fullWords are those of the operating system; bbolt passes on its words alone (grow in its db.go).
var fullWords = []string{syscall.ENOSPC.Error(), syscall.EDQUOT.Error()}

// full reports whether an error is about a volume without room.
func full(err error) bool {
	return err != nil && slices.ContainsFunc(fullWords,
		func(words string) bool { return strings.Contains(err.Error(), words) })
}
