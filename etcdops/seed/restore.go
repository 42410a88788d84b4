package seed

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"math"
	"os"
	"path/filepath"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/hooks"
)

// Options say what becomes of what.
type Options struct {
	// DataDir is to be made; WALDir as well where the log is to have a directory of its own, else it is empty.
	DataDir, WALDir string
	// Name and PeerURL of the member, InitialCluster and Token of its cluster.
	Name, PeerURL, InitialCluster, Token string
	// EtcdVersion is that of Programs, and of the member that will run.
	EtcdVersion string
	Programs    Programs
	// BumpRevision raises the revision by so much and marks all before as compacted; 0 does not.
	BumpRevision int64
	// BeginAfter raises it to BeginGap above this revision and above that of the source, whichever is higher, and marks all before as compacted; nil does
	// not.
	BeginAfter *int64
	// Empty begins without data, at a revision that is raised.
	Empty bool
	// Fetch makes a file of a snapshot as `etcdctl snapshot save` does, known to be whole, and tells what it must
	// hold, as far as is known. Nil where the source is another one.
	Fetch func(ctx context.Context, to string) (*hooks.Artifact, error)
	// Size of that file.
	Size int64
	// FromData is the data directory of a member whose epoch is over, FromWAL its log if that has a directory of its own. Nothing is
	// changed there; both may be mounted read-only.
	FromData, FromWAL string
}

// Restore fills a data directory, or does nothing. The report says what the member begins with. Errors of this package have a reason: see
// ReasonOf.
func Restore(ctx context.Context, o Options) (report hooks.RestoreReport, err error) {
	to := place{dataDir: o.DataDir, walDir: o.WALDir}
	if err := to.clear(); err != nil {
		return report, err
	}
	source := o.fromSurvivor
	switch {
	case o.Fetch != nil:
		source = o.fromArtifact
	case o.Empty:
		source = o.fromNothing
	}
	dataDir, _ := to.staged()
	defer func() {
		if err != nil {
			_ = to.unstage() // the next try does that too, and says why it can't
		}
	}()
	if err := os.MkdirAll(filepath.Dir(databaseOf(dataDir)), 0o700); err != nil {
		return report, written(err, dataDir)
	}
	told, err := source(ctx, dataDir)
	if err != nil {
		return report, err
	}
	bump, err := o.bump(databaseOf(dataDir))
	if err != nil {
		return report, err
	}
	holds, err := o.make(ctx, to, bump)
	if err == nil {
		err = agrees(told, holds)
	}
	if err != nil {
		return report, err
	}
	made := hooks.RestoreReport{Revision: holds.Revision, Keys: max(holds.Keys, 0), Hash: holds.Hash, SHA256: told.SHA256}
	if bump > 0 {
		made.Revision = holds.Last + bump
	}
	if err := note(o.DataDir, made); err != nil {
		return report, failure(Failed, err, "what was restored can't be noted")
	}
	if err := to.commit(); err != nil {
		return report, err
	}
	return made, nil
}

// make makes the staged database that of the member, and the rest of a data directory beside it. It says what the database held before. That is
// read, once, while etcdutl restores its skeleton.
func (o Options) make(ctx context.Context, to place, bump int64) (*archive.Contents, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	dataDir, walDir := to.staged()
	var holds *archive.Contents
	read := make(chan error, 1)
	go func() {
		var err error
		if holds, err = archive.Examine(ctx, databaseOf(dataDir)); err != nil {
			stop() // etcdutl need not go on
		}
		read <- err
	}()
	m := member{name: o.Name, peerURL: o.PeerURL, initialCluster: o.InitialCluster, token: o.Token}
	s, failed := o.Programs.outline(ctx, databaseOf(dataDir), skeletonOf(dataDir), walDir, m, bump)
	itself := failed != nil && ctx.Err() == nil
	if itself {
		stop()
	}
	if err := <-read; err != nil && !itself {
		return nil, err
	}
	if failed != nil {
		return nil, failed
	}
	return holds, s.into(dataDir)
}

// skeletonOf is where the skeleton of a database is, in the directory that is being made.
func skeletonOf(dataDir string) string { return filepath.Join(dataDir, "skeleton") }

// BeginGap is how far above all revisions that clients may have seen a member begins: see hooks/revisions.go.
const BeginGap = 1_000_000_000

// highestBegin leaves room above it: etcd's revisions are int64.
const highestBegin = 1 << 62

// bump is by how much etcdutl is to raise the revision of a database: it counts from the last record.
func (o Options) bump(path string) (int64, error) {
	if o.BeginAfter == nil && o.BumpRevision == 0 {
		return 0, nil
	}
	db, err := readDatabase(path)
	if err != nil {
		return 0, err
	}
	begin := db.revision + o.BumpRevision
	if o.BeginAfter != nil {
		begin = max(db.revision, *o.BeginAfter) + BeginGap
	}
	if begin > highestBegin || begin < db.revision { // or beyond what int64 holds
		return 0, failure(Failed, nil, "the data are at revision %d, and can't begin at %d: etcd counts to %d", db.revision, begin, int64(math.MaxInt64))
	}
	return begin - db.last, nil
}

// notedSuffix is that of a file beside a data directory which says what was restored there.
const notedSuffix = ".restored"

// note keeps a report for whoever asks again, such as a pod that was started anew before its first report was read.
func note(dataDir string, report hooks.RestoreReport) error {
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(dataDir+notedSuffix, text, 0o600)
}

// Restored is the report of an earlier Restore of the data directory; empty when there was none.
func Restored(dataDir string) hooks.RestoreReport {
	var report hooks.RestoreReport
	text, err := os.ReadFile(dataDir + notedSuffix)
	if err != nil || json.Unmarshal(text, &report) != nil {
		return hooks.RestoreReport{}
	}
	return report
}

// compatible refuses data of a later minor version than etcd's own. etcd 3.6 and later refuse such data themselves, when they start; 3.5 takes
// them and does not know what it overlooks (test/conformance/README.md).
func (o Options) compatible(d *database) error {
	if newerMinor(d.version, o.EtcdVersion) {
		return failure(OtherVersion, nil, "the data were written by etcd %s, and the cluster is to run %s: set spec.version to that version or a later one", d.version, o.EtcdVersion)
	}
	return nil
}

// fromArtifact fetches a snapshot, and says what it must hold.
func (o Options) fromArtifact(ctx context.Context, dataDir string) (*hooks.Artifact, error) {
	if err := checkRoom(o.needs(o.Size)...); err != nil {
		return nil, err
	}
	file := databaseOf(dataDir)
	artifact, err := o.Fetch(ctx, file)
	if err != nil {
		return nil, err
	}
	if err := cutHash(file); err != nil {
		return nil, failure(Failed, err, "the hash behind the database can't be cut off")
	}
	db, err := readDatabase(file)
	if err == nil {
		err = o.compatible(db)
	}
	return artifact, err
}

// cutHash takes off the hash with which `etcdctl snapshot save` ends a file. A database is whole pages of at least 512 bytes (hasChecksum in
// etcdutl/snapshot/v3_snapshot.go).
func cutHash(file string) error {
	info, err := os.Stat(file)
	if err != nil || info.Size()%512 != sha256.Size {
		return err
	}
	return os.Truncate(file, info.Size()-sha256.Size)
}

// fromSurvivor brings a survivor's database and log together. What that must hold is not known.
func (o Options) fromSurvivor(ctx context.Context, dataDir string) (*hooks.Artifact, error) {
	s, err := survive(o.FromData, o.FromWAL)
	if err == nil {
		err = o.compatible(s.db)
	}
	if err != nil {
		return nil, err
	}
	tail, err := treeSize(s.walDir)
	if err != nil {
		return nil, failure(Failed, err, "the size of the survivor's log can't be told")
	}
	room := append(o.needs(s.db.size+tail), needs{o.DataDir, tail + logSize, "a copy of the survivor's log"})
	if err := checkRoom(room...); err != nil {
		return nil, err
	}
	return &hooks.Artifact{}, s.together(ctx, o.Programs, dataDir)
}

// fromNothing makes a database of etcd without keys, in which nothing has ever happened: what etcd makes at its first start, except for what etcdutl
// writes in every database that it restores.
func (o Options) fromNothing(_ context.Context, dataDir string) (*hooks.Artifact, error) {
	return &hooks.Artifact{}, makeEmpty(databaseOf(dataDir))
}

// needs of the new data directory.
func (o Options) needs(db int64) []needs {
	if o.WALDir == "" {
		return []needs{{o.DataDir, db + logSize, "the database and the first of the log"}}
	}
	return []needs{{o.DataDir, db, "the database"}, {o.WALDir, logSize, "the first of the log"}}
}
