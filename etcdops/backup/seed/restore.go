package seed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Options say what becomes of what.
type Options struct {
	// DataDir and WALDir are the directories to make. WALDir is empty unless the log has a directory of its own.
	DataDir, WALDir string
	// Name and PeerURL of the member, InitialCluster and Token of its cluster.
	Name, PeerURL, InitialCluster, Token string
	// EtcdVersion is that of Programs, and of the member that will run.
	EtcdVersion string
	Programs    Programs
	// BeginAfter raises the revision to BeginGap above this one and above that of the source, whichever is higher, and
	// marks all before as compacted; nil does not.
	BeginAfter *int64
	// Empty begins without data, at a revision that is raised.
	Empty bool
	// Fetch makes a file of a snapshot as `etcdctl snapshot save` does, known to be whole, and tells what it must
	// hold, as far as is known. Nil where the source is another one.
	Fetch func(ctx context.Context, to string) (*stores.Artifact, error)
	// Size of that file.
	Size int64
	// Tail are changes behind the snapshot that Fetch gets, which are replayed up to UntilRevision, or else up to the
	// last one that had arrived at UntilTime, or else up to the last one that is stored. Nil for none.
	Tail          *stream.Tail
	UntilRevision int64
	UntilTime     time.Time
	// TailFlaw is why Tail may lack segments; empty for nothing.
	TailFlaw string
	// AsFarAsPossible has what can't be followed end the replay at the last revision that is good, instead of an error:
	// changed users, a segment that is damaged or gone, another history, another hash. UntilRevision overrides it.
	AsFarAsPossible bool
	// FromData is the data directory of a member whose epoch is over, FromWAL its log if that has a directory of its
	// own. Nothing is changed there; both may be mounted read-only.
	FromData, FromWAL string
}

// Restore fills a data directory, or does nothing. The report says what the member begins with. Errors of this
// package have a reason: see ReasonOf.
func Restore(ctx context.Context, o Options) (report stores.Restore, err error) {
	o.AsFarAsPossible = o.AsFarAsPossible && o.UntilRevision == 0
	to := place{dataDir: o.DataDir, walDir: o.WALDir}
	if err := to.clear(); err != nil {
		return report, err
	}
	defer func() {
		if err != nil {
			_ = to.unstage() // the next try does that too, and says why it can't
		}
	}()
	if err := os.MkdirAll(filepath.Dir(to.staged().database()), 0o700); err != nil {
		return report, written(err, o.DataDir)
	}
	told, changed, err := o.fill(ctx, to)
	if err != nil {
		return report, err
	}
	bump, err := o.bump(to.staged().database())
	if err != nil {
		return report, err
	}
	if err := checkRoom(needs{to.logsOn(), logSize, "the first of the log"}); err != nil {
		return report, err
	}
	m := member{name: o.Name, peerURL: o.PeerURL, initialCluster: o.InitialCluster, token: o.Token}
	holds, err := o.Programs.make(ctx, to.staged(), m, bump)
	if err == nil {
		err = errors.Join(agrees(told, holds), changed.agrees(holds))
	}
	if err != nil {
		return report, err
	}
	made := stores.Restore{Revision: holds.Revision, Keys: max(holds.Keys, 0), Hash: holds.Hash, SHA256: told.SHA256}
	if bump > 0 {
		made.Revision = holds.Last + bump
	}
	if changed != nil {
		made.UntilRevision = changed.until
		made.Replayed = changed.until - changed.base.Revision
		made.UntilTime = changed.arrived
		made.Ended = changed.ended
		made.Doubt = changed.doubt()
	}
	if err := note(o.DataDir, made); err != nil {
		return report, written(err, o.DataDir+notedSuffix)
	}
	if err := to.commit(); err != nil {
		return report, err
	}
	return made, nil
}

// fill makes the database, and says what it must hold: after a replay, that.
func (o Options) fill(ctx context.Context, to place) (told *stores.Artifact, changed *replay, err error) {
	source := o.fromSurvivor
	switch {
	case o.Fetch != nil:
		source = o.fromArtifact
	case o.Empty:
		source = o.fromNothing
	}
	told, err = source(ctx, to)
	if err != nil || o.Tail == nil {
		return told, nil, err
	}
	changed, err = o.replay(ctx, to.staged().database(), told)
	var end *ending
	switch {
	case o.AsFarAsPossible && errors.As(err, &end):
		return o.fillUntil(ctx, to, end)
	case err != nil:
		return nil, nil, err
	}
	return changed.told(told), changed, nil
}

// fillUntil makes the database once more, up to the last revision that is good: the first pass wrote later ones, too.
// Each pass ends at a lower revision than the one before.
func (o Options) fillUntil(ctx context.Context, to place, end *ending) (*stores.Artifact, *replay, error) {
	if err := os.Remove(to.staged().database()); err != nil {
		return nil, nil, written(err, o.DataDir)
	}
	o.UntilRevision = end.at
	told, changed, err := o.fill(ctx, to)
	if err == nil && changed.ended == "" {
		changed.ended = end.why
	}
	return told, changed, err
}

// make makes the database that is staged that of a member, and the rest of a data directory beside it. It says what
// the database held before: that is read while etcdutl restores its skeleton. The bump raises the revision above that
// of the last record, and marks all before as compacted.
func (p Programs) make(ctx context.Context, to staged, m member, bump int64) (*archive.Contents, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var holds *archive.Contents
	read := make(chan error, 1)
	go func() {
		var err error
		if holds, err = archive.Examine(ctx, to.database()); err != nil {
			stop() // etcdutl need not go on
		}
		read <- err
	}()
	s, outlineErr := p.outline(ctx, to, m, bump)
	itself := outlineErr != nil && ctx.Err() == nil
	if itself {
		stop()
	}
	if err := <-read; err != nil && !itself {
		return nil, err
	}
	if outlineErr != nil {
		return nil, outlineErr
	}
	return holds, s.into(to, holds.Free)
}

// OnTrial makes of a database, in which something was found, the data directory of a cluster of one (see [lone.Etcd]),
// as Restore would. It is moved there.
func (p Programs) OnTrial(ctx context.Context, database, dataDir string, holds *archive.Contents) error {
	to := staged{dataDir: dataDir}
	err := os.MkdirAll(filepath.Dir(to.database()), 0o700)
	if err == nil {
		err = os.Rename(database, to.database())
	}
	if err == nil {
		err = cutHash(to.database())
	}
	if err != nil {
		return written(err, dataDir)
	}
	s, err := p.outline(ctx, to, solo, 0)
	if err != nil {
		return err
	}
	return s.into(to, holds.Free)
}

// BeginGap is how far above all revisions that clients may have seen a member begins: see hooks/facts/revisions.go.
const BeginGap = 1_000_000_000

// highestBegin leaves room above it: etcd's revisions are int64.
const highestBegin = 1 << 62

// bump is by how much etcdutl is to raise the revision of a database: it counts from the last record.
func (o Options) bump(path string) (int64, error) {
	if o.BeginAfter == nil {
		return 0, nil
	}
	db, err := readDatabase(path)
	if err != nil {
		return 0, err
	}
	begin := max(db.revision, *o.BeginAfter) + BeginGap
	if begin > highestBegin || begin < db.revision { // or beyond what int64 holds
		return 0, failure(failed, nil, "the data are at revision %d, and can't begin at %d: etcd counts to %d",
			db.revision, begin, int64(math.MaxInt64))
	}
	return begin - db.last, nil
}

// notedSuffix is that of a file beside a data directory which says what was restored there.
const notedSuffix = ".restored"

// note keeps a report for a second reader, such as a pod that was started again before its first report was read.
func note(dataDir string, report stores.Restore) error {
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	if err := os.WriteFile(dataDir+notedSuffix, text, 0o600); err != nil {
		return err
	}
	return syncFile(dataDir + notedSuffix)
}

// Restored is the report of an earlier Restore of the data directory; empty when there was none.
func Restored(dataDir string) stores.Restore {
	var report stores.Restore
	text, err := os.ReadFile(dataDir + notedSuffix)
	if err != nil || json.Unmarshal(text, &report) != nil {
		return stores.Restore{}
	}
	return report
}

// compatible refuses data of a later minor version than etcd's own. etcd 3.6 and later refuse such data themselves,
// when they start; 3.5 takes them and does not know what it overlooks (test/real/conformance/README.md).
func (o Options) compatible(d *database) error {
	if newerMinor(d.version, o.EtcdVersion) {
		return failure(OtherVersion, nil, "the data was written by etcd %s, and the cluster would run %s: set "+
			"spec.version to that version or a later one", d.version, o.EtcdVersion)
	}
	return nil
}

// fromArtifact fetches a snapshot, and says what it must hold.
func (o Options) fromArtifact(ctx context.Context, to place) (*stores.Artifact, error) {
	if err := checkRoom(to.needs(o.Size, 0)...); err != nil {
		return nil, err
	}
	file := to.staged().database()
	artifact, err := o.Fetch(ctx, file)
	if err != nil {
		return nil, err
	}
	if err := cutHash(file); err != nil {
		return nil, failure(failed, err, "the hash behind the database can't be cut off")
	}
	db, err := readDatabase(file)
	if err == nil {
		err = o.compatible(db)
	}
	return artifact, err
}

// cutHash takes off the hash with which `etcdctl snapshot save` ends a file. A database is whole pages of at least
// 512 bytes (hasChecksum in etcdutl/snapshot/v3_snapshot.go).
func cutHash(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Size()%512 != sha256.Size {
		return err
	}
	return os.Truncate(file, info.Size()-sha256.Size)
}

// fromSurvivor brings a survivor's database and log together. What that must hold is not known.
func (o Options) fromSurvivor(ctx context.Context, to place) (*stores.Artifact, error) {
	s, err := survive(o.FromData, o.FromWAL)
	if err == nil {
		err = o.compatible(s.db)
	}
	if err != nil {
		return nil, err
	}
	size, changes, err := s.tail()
	if err != nil {
		return nil, err
	}
	// The entries come to the log of the cluster of one, and to the database.
	if err := checkRoom(to.needs(s.db.size+size, size)...); err != nil {
		return nil, err
	}
	if err := copyFile(ctx, s.db.path, to.staged().database()); err != nil || !changes {
		return &stores.Artifact{}, err
	}
	return &stores.Artifact{}, s.together(ctx, o.Programs, to.staged())
}

// fromNothing makes a database of etcd without keys, in which nothing has ever happened: what etcd makes at its first
// start, except for what etcdutl writes in every database that it restores.
func (o Options) fromNothing(_ context.Context, to place) (*stores.Artifact, error) {
	return &stores.Artifact{}, makeEmpty(to.staged().database())
}

// needs of the new data directory, with so much in the database, and in the log beside what that has anyhow.
func (p place) needs(db, log int64) []needs {
	return []needs{{p.dataDir, db, "the database"}, {p.logsOn(), log + logSize, "the first of the log"}}
}
