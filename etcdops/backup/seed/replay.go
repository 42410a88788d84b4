package seed

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// replay writes the changes of a stream into a database that was fetched, as etcd would have: no etcd runs meanwhile.
// It says what the database must hold then.
type replay struct {
	base  *archive.Contents
	until int64
	// reach is the last revision that is in the database, last the sum of its records, sumOfAll that of all records as
	// archive.Contents.Sum is.
	reach    int64
	last     stream.Sum
	sumOfAll uint32
	leases   leases
	// arrived is when revision reach had; zero while it is the snapshot's. ended is why the stream is not followed
	// further, as reports.Restore has it.
	arrived time.Time
	ended   string
	// trusted: the stream has keys, by which it is known who has written what is replayed.
	trusted bool
	// usersAt is the last revision up to which users are known to be those of the snapshot.
	usersAt int64
	// hashes are those that members told of revisions that are in the database.
	hashes []stream.Hash
}

// usersChanged is why a stream is not followed further.
const usersChanged = "users or roles have changed, which a stream does not have"

// unknownTTL is that of a lease that was gone when it was asked for, in seconds: its keys were gone soon after.
const unknownTTL = 60

// ending is the error that the changes can't be followed, and says why. at is the last revision that is good.
type ending struct {
	error
	at  int64
	why string
}

func (e *ending) Unwrap() error { return e.error }

// Words implements [archive.Worded].
func (e *ending) Words() string { return archive.Words(e.error) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// replay brings the database of a snapshot to the revision that is asked for.
func (o Options) replay(ctx context.Context, path string, told *stores.Artifact) (*replay, error) {
	base, err := archive.Examine(ctx, path)
	if err == nil {
		err = agrees(told, base)
	}
	if err != nil {
		return nil, err
	}
	if told.ClusterID != "" && told.ClusterID != o.Tail.ClusterID() {
		return nil, failure(failed, nil, "the snapshot is of cluster %s, and the stream of cluster %s", told.ClusterID,
			o.Tail.ClusterID())
	}
	o.Tail.OnlyEncrypted = told.Encrypted
	r := &replay{base: base, until: o.UntilRevision, reach: base.Revision, sumOfAll: base.Sum,
		trusted: o.Tail.Trusted()}
	switch {
	case r.until > 0:
	case !o.UntilTime.IsZero():
		if r.until, err = o.untilTime(ctx, base, told.Completed); err != nil {
			return nil, err
		}
	case o.Tail.Empty() && !o.AsFarAsPossible:
		return nil, failure(notFound, nil, "no stream of cluster %s has stored anything there, and the restore is to end "+
			"with it: restore the snapshot alone, or name another cluster", o.Tail.ClusterID())
	default:
		r.until = o.Tail.Reach(base.Revision)
		r.ended = cmp.Or(o.TailFlaw, o.Tail.Missing(r.until))
		if r.ended == "" && o.usersChanged(base) {
			r.ended = usersChanged
		}
		r.ended = cmp.Or(r.ended, o.Tail.Headless())
	}
	if r.until < base.Revision {
		return nil, failure(notFound, nil, "the snapshot ends at revision %d, and the restore is to end at %d: use an "+
			"earlier snapshot", base.Revision, r.until)
	}
	if err := base.Free.Write(path); err != nil {
		return nil, written(err, path)
	}
	if err := r.write(ctx, path, o.Tail); err != nil {
		return nil, err
	}
	return r, r.compare(ctx, path)
}

// usersChanged reports whether the stream has seen users or roles change since the snapshot.
func (o Options) usersChanged(base *archive.Contents) bool {
	return base.AuthRevision > 0 && o.Tail.Head.AuthRevision > base.AuthRevision
}

// untilTime is the last revision that had arrived at the time that is asked for, by the clock of the stream: that of
// the snapshot, which was completed before, or a later one.
func (o Options) untilTime(ctx context.Context, base *archive.Contents, completed time.Time) (int64, error) {
	words := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	reach := o.Tail.Reach(base.Revision)
	last, err := o.Tail.Arrived(ctx, base.Revision)
	last = cmp.Or(last, completed)
	if head := o.Tail.Head; head.Revision == reach && head.At.After(last) { // nothing was written meanwhile
		last = head.At
	}
	switch {
	case err != nil:
		return 0, err
	case last.IsZero():
		return 0, failure(notFound, nil, "no change behind the snapshot is stored, which ends at revision %d",
			base.Revision)
	case o.UntilTime.After(last):
		return 0, failure(notFound, nil, "all is stored up to %s, at revision %d, and the restore is to end at %s: name a "+
			"time up to that, or latest", words(last), reach, words(o.UntilTime))
	}
	revision, err := o.Tail.Until(ctx, base.Revision, o.UntilTime)
	switch {
	case err != nil:
		return 0, err
	case revision >= base.Revision:
	case !completed.IsZero() && !o.UntilTime.Before(completed):
		revision = base.Revision
	default:
		return 0, failure(notFound, nil, "the snapshot ends at revision %d, which may have been written after %s: use an "+
			"earlier snapshot", base.Revision, words(o.UntilTime))
	}
	if revision == reach && o.usersChanged(base) {
		return 0, failure(failed, nil, usersChanged+": use a later snapshot, or an earlier time")
	}
	return revision, nil
}

func (r *replay) write(ctx context.Context, path string, tail *stream.Tail) error {
	options := asEtcdOpens()
	options.NoSync = true
	options.NoGrowSync = true // place.commit does that, for all
	err := guarded(func() error {
		db, err := bolt.Open(path, 0o600, options)
		if err != nil {
			return err
		}
		err = r.all(ctx, db, tail)
		if closed := db.Close(); err == nil {
			err = closed
		}
		return err
	})
	switch {
	case errors.Is(err, errNonsense):
		return failure(damaged, err, "the database %s is damaged", path)
	case err == nil, errors.As(err, new(archive.Worded)):
		return err
	}
	return written(err, path)
}

func (r *replay) all(ctx context.Context, db *bolt.DB, tail *stream.Tail) error {
	if err := db.View(r.begin); err != nil {
		return err
	}
	err := r.follow(ctx, tail, func(s *stream.Segment) error {
		to := records{db: db}
		wrong := r.apply(s, to.put)
		return cmp.Or(wrong, to.commit())
	})
	if err != nil {
		return err
	}
	return db.Update(r.leases.write)
}

// records are written into a database. A transaction holds in memory what it writes, so one has at most mostRecords.
type records struct {
	db *bolt.DB
	tx *bolt.Tx
	n  int
}

const mostRecords = 10_000

func (r *records) put(name, value []byte) (err error) {
	if r.tx == nil {
		if r.tx, err = r.db.Begin(true); err != nil {
			return err
		}
	}
	keys := r.tx.Bucket([]byte(keysBucket))
	keys.FillPercent = 0.9 // as etcd does: records come in their order
	if err := keys.Put(name, value); err != nil {
		return err
	}
	if r.n++; r.n%mostRecords == 0 {
		return r.commit()
	}
	return nil
}

// commit ends the transaction, if there is one: without that the database can't be closed.
func (r *records) commit() error {
	if r.tx == nil {
		return nil
	}
	tx := r.tx
	r.tx = nil
	return tx.Commit()
}

// follow takes segments up to the end that is asked for.
func (r *replay) follow(ctx context.Context, tail *stream.Tail, take func(*stream.Segment) error) error {
	for r.reach < r.until {
		s, err := tail.Next(ctx, r.reach)
		switch {
		case err != nil && archive.ReasonOf(err) == archive.WrongKey: // the recipients have changed since the snapshot
			return &ending{failure(archive.WrongKey, err, "what is stored behind revision %d can't be read: name a Secret "+
				"with the identities of all recipients there were, or end at revision %d", r.reach, r.reach), r.reach,
				archive.Words(err)}
		case err != nil && stream.Unusable(err):
			return &ending{err, r.reach, archive.Words(err)}
		case err != nil:
			return err
		case s == nil:
			return failure(notFound, nil, "the changes end at revision %d, and the restore is to end at %d: %s",
				r.reach, r.until, tail.Gap(r.reach))
		case r.base.AuthRevision > 0 && s.AuthRevision > r.base.AuthRevision: // a lower one was looked at before
			return &ending{failure(failed, nil, "users or roles have changed between the snapshot and revision %d, "+
				"which a stream does not have: use a later snapshot, or end at revision %d", s.Last, s.First-1), r.reach,
				usersChanged}
		}
		if err := take(s); err != nil {
			return err
		}
		r.usersAt = max(r.usersAt, s.UsersAt)
	}
	return nil
}

// doubt is what is not known of what was replayed; empty for nothing.
func (r *replay) doubt() string {
	var all []string
	if !r.trusted && r.reach > r.base.Revision {
		all = append(all, "whether others have written to the stream is not known, as there was no key to check it by")
	}
	if r.base.AuthRevision > 0 && r.reach > max(r.base.Revision, r.usersAt) {
		all = append(all, fmt.Sprintf("whether users or roles have changed behind revision %d was not seen, as etcd did "+
			"not answer any more", max(r.base.Revision, r.usersAt)))
	}
	return strings.Join(all, "; ")
}

// begin reads what the snapshot has of what is changed: its leases, and the records of its last revision.
func (r *replay) begin(tx *bolt.Tx) error {
	r.leases.read(tx)
	if r.base.CompactRevision >= r.base.Revision { // a compaction may have left only some of them
		return nil
	}
	cursor := tx.Bucket([]byte(keysBucket)).Cursor()
	for name, value := cursor.Seek(raised(r.base.Revision)); name != nil; name, value = cursor.Next() {
		r.last.AddRecord(r.base.Revision, len(name) > revisionLength, value)
	}
	return nil
}

// apply writes the changes of a segment that are not there yet.
func (r *replay) apply(s *stream.Segment, put func(name, value []byte) error) error {
	before := r.last.Of()
	was := s.Before
	if s.First <= r.reach {
		was = ""
	}
	var again stream.Sum
	name := make([]byte, 0, revisionLength+1)
	err := s.Each(func(c stream.Change) error {
		switch {
		case c.Revision == r.reach && was == "" && s.First <= r.reach:
			again.Add(c)
			return nil
		case c.Revision <= r.reach || c.Revision > r.until:
			return nil
		}
		name = recordName(name[:0], c)
		r.sumOfAll = crc32.Update(crc32.Update(r.sumOfAll, castagnoli, name), castagnoli, c.Value)
		r.last.Add(c)
		r.leases.refer(c)
		return put(name, c.Value)
	})
	if err != nil {
		return err
	}
	if was == "" {
		was = again.Of()
	}
	if was != "" && before != "" && was != before {
		return &ending{failure(damaged, nil, "revision %d is not the same in what is stored before it and in %s: the "+
			"cluster has had another history in between; end at revision %d, or use a later snapshot", r.reach, s.Name,
			r.reach),
			r.reach, "the cluster has had another history in " + s.Name}
	}
	r.reach = min(s.Last, r.until)
	r.arrived = s.When(r.reach)
	r.leases.learn(s.Leases, r.base.Revision, r.until)
	if s.Hash != nil && s.Hash.Revision <= r.until && s.Hash.Revision >= r.base.Revision {
		r.hashes = append(r.hashes, *s.Hash)
	}
	return nil
}

const revisionLength = 17

// recordName is that of a record in the bucket key (server/storage/mvcc/revision.go).
func recordName(to []byte, c stream.Change) []byte {
	to = binary.BigEndian.AppendUint64(to, uint64(c.Revision))
	to = binary.BigEndian.AppendUint64(append(to, '_'), uint64(c.Sub))
	if c.Deleted {
		to = append(to, 't')
	}
	return to
}

// hashesTried is how many hashes are looked at that the database may be unable to tell.
const hashesTried = 3

// compare compares the database with the last hash of a member that can be compared: it is of all that came before.
func (r *replay) compare(ctx context.Context, path string) error {
	var wrong stream.Hash
	has := ""
	tried := 0
	for _, told := range slices.Backward(r.hashes) {
		if told.Revision > r.reach {
			continue
		}
		if tried++; has == "" && tried > hashesTried {
			break
		}
		hash, err := archive.HashAt(ctx, path, told.Revision, told.CompactRevision)
		switch {
		case err != nil:
			return err
		case hash == told.Hash:
			return r.differs(has, wrong, told.Revision)
		case hash != "" && has == "":
			has = hash
			wrong = told
		}
	}
	return r.differs(has, wrong, r.base.Revision)
}

// differs is the error that the keys have one hash and a member told of another, and were the same before, at a
// revision; nil for no hash.
func (r *replay) differs(has string, told stream.Hash, good int64) error {
	if has == "" {
		return nil
	}
	return &ending{failure(damaged, nil, "with the changes behind the snapshot the keys have the hash %s at revision "+
		"%d, and a member had %s: use another snapshot, or end at revision %d", has, told.Revision, told.Hash, good),
		good, fmt.Sprintf("at revision %d a member had other keys", told.Revision)}
}

// told is what the database must hold.
func (r *replay) told(of *stores.Artifact) *stores.Artifact {
	return &stores.Artifact{SHA256: of.SHA256, Revision: r.until}
}

// agrees checks that a database holds the snapshot and the changes, and nothing else; nil agrees with all.
func (r *replay) agrees(holds *archive.Contents) error {
	if r == nil {
		return nil
	}
	if holds.Revision != r.until || holds.Sum != r.sumOfAll {
		return failure(damaged, nil, "with the changes behind the snapshot the database has revision %d and the "+
			"checksum %08x, and should have %d and %08x: the disk lost a part of it", holds.Revision, holds.Sum, r.until, r.sumOfAll)
	}
	return nil
}

// leases are those that a database is to have. A key whose lease is not there would stay for good.
type leases struct {
	// ttl of those in the snapshot, and of those that members told of at any revision, in seconds.
	base, ttl map[int64]int64
	// list is the last that a member told between the snapshot and the last revision that is in the database; nil for
	// none.
	list *stream.Leases
	// referred is the last revision that attaches a key to a lease.
	referred map[int64]int64
}

// Fields of leasepb.Lease (server/lease/leasepb/lease.proto).
const (
	fieldID  protowire.Number = 1
	fieldTTL protowire.Number = 2
)

func (l *leases) read(tx *bolt.Tx) {
	l.base = map[int64]int64{}
	l.ttl = map[int64]int64{}
	l.referred = map[int64]int64{}
	bucket := tx.Bucket([]byte(leasesBucket))
	if bucket == nil {
		return
	}
	_ = bucket.ForEach(func(name, _ []byte) error {
		if len(name) == 8 {
			l.base[int64(binary.BigEndian.Uint64(name))] = 0
		}
		return nil
	})
}

func (l *leases) refer(c stream.Change) {
	if c.Lease != 0 {
		l.referred[c.Lease] = c.Revision
	}
}

// learn takes a list of leases. One that was attached up to its Since, and is missing in it, was gone when the member
// was at its Revision, so that its keys were deleted up to that. Of a list that is older than the snapshot nothing
// follows: it lacks what was granted and attached before that was taken.
func (l *leases) learn(list *stream.Leases, from, until int64) {
	if list == nil {
		return
	}
	for id, ttl := range list.TTL {
		if ttl > 0 {
			l.ttl[id] = ttl
		}
	}
	newer := l.list == nil || list.Since >= l.list.Since
	if newer && list.Since >= from && list.Revision <= until {
		l.list = list
	}
}

// all are those that the database is to have, and the time of each, in seconds.
func (l *leases) all() map[int64]int64 {
	all := map[int64]int64{}
	since := int64(0)
	listed := l.base
	if l.list != nil {
		since = l.list.Since
		listed = l.list.TTL
	}
	for id := range listed {
		all[id] = cmp.Or(l.ttl[id], unknownTTL)
	}
	for id, revision := range l.referred {
		if revision > since {
			all[id] = cmp.Or(l.ttl[id], unknownTTL)
		}
	}
	return all
}

// write makes the bucket lease what it was (server/storage/schema/lease.go). Leases have their whole time again, as
// after each election.
func (l *leases) write(tx *bolt.Tx) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(leasesBucket))
	if err != nil {
		return err
	}
	all := l.all()
	for id := range l.base {
		if _, wanted := all[id]; !wanted {
			if err := bucket.Delete(leaseName(id)); err != nil {
				return err
			}
		}
	}
	for id, ttl := range all {
		if _, there := l.base[id]; there {
			continue
		}
		if err := bucket.Put(leaseName(id), leaseRecord(id, ttl)); err != nil {
			return err
		}
	}
	return nil
}

func leaseName(id int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(id)) }

func leaseRecord(id, ttl int64) []byte {
	record := protowire.AppendVarint(protowire.AppendTag(nil, fieldID, protowire.VarintType), uint64(id))
	return protowire.AppendVarint(protowire.AppendTag(record, fieldTTL, protowire.VarintType), uint64(ttl))
}
