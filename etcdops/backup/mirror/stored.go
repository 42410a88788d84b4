package mirror

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Stored is where the changes of an etcd, and the snapshots before them, are stored: for where no connection leads to
// that etcd.
type Stored struct {
	Place archive.Place
	stream.Opening
	// Tail is the folder in the store that has one folder for each cluster ID. Snapshots are beside it.
	Tail string
	// ClusterID in hexadecimal; empty takes the cluster of the newest snapshot.
	ClusterID string
	// Scratch is where a directory is made for a snapshot and as much again; empty is that for temporary files.
	Scratch string
}

const (
	// lookEvery is how often all segments are listed, to find new ones; basesEvery is how often the records of
	// snapshots are read.
	lookEvery, basesEvery = 5 * time.Second, time.Minute
	// doubt is how long a snapshot may be there before the changes up to it. A segment that is missing before another
	// one is a gap when it is still missing at the next look: a store's list may lag.
	doubt = 2 * time.Minute
)

// stored is what a stream has stored of an etcd.
type stored struct {
	Stored
	kept *stream.Kept
	log  *slog.Logger
	// dir is made in Scratch.
	dir string
	// shelf has the keys that were asked for last.
	shelf *shelf
}

func openStored(ctx context.Context, s Stored, log *slog.Logger) (*stored, error) {
	kept, err := stream.OpenKept(ctx, s.Place, s.Opening, s.Tail)
	if err != nil {
		return nil, err
	}
	if s.KeysFile == "" {
		log.Warn("no keys of the stream were given: what others put into the store is mirrored, too")
	}
	dir, err := os.MkdirTemp(s.Scratch, "mirror-")
	if err != nil {
		_ = kept.Close()
		return nil, failure(failed, err, "no directory can be made in %s", cmp.Or(s.Scratch, os.TempDir()))
	}
	return &stored{Stored: s, kept: kept, log: log, dir: dir}, nil
}

func (s *stored) close() {
	s.shelf.close()
	_ = os.RemoveAll(s.dir)
	_ = s.kept.Close()
}

// bases are the snapshots of the cluster, the newest last.
func (s *stored) bases(ctx context.Context) (clusterID string, all []archive.Base, err error) {
	all, err = s.kept.Bases(ctx)
	if err != nil {
		return "", nil, err
	}
	all = slices.DeleteFunc(all, func(a archive.Base) bool {
		return a.ClusterID == "" || s.ClusterID != "" && a.ClusterID != s.ClusterID
	})
	if len(all) == 0 {
		return "", nil, failure(archive.NotFound, nil, "no snapshot of the source is stored beside its stream of changes")
	}
	slices.SortFunc(all, func(a, b archive.Base) int { return a.Completed.Compare(b.Completed) })
	clusterID = all[len(all)-1].ClusterID
	all = slices.DeleteFunc(all, func(a archive.Base) bool { return a.ClusterID != clusterID })
	// Within one etcd its revisions say which is newer, and no clock of a Job.
	slices.SortStableFunc(all, func(a, b archive.Base) int { return cmp.Compare(a.Revision, b.Revision) })
	return clusterID, all, nil
}

func (s *stored) standing(ctx context.Context, at place) (is archive.Standing, err error) {
	id, bases, err := s.bases(ctx)
	if err != nil {
		return is, err
	}
	tail, err := s.kept.Tail(ctx, id)
	if err != nil {
		return is, err
	}
	if is.ClusterID, err = strconv.ParseUint(id, 16, 64); err != nil {
		return is, failure(failed, nil, "the record of a snapshot names no cluster")
	}
	for _, base := range bases {
		is.Revision = max(is.Revision, tail.Reach(base.Revision))
	}
	if at.ClusterID == id {
		is.Revision = max(is.Revision, tail.Reach(at.Revision))
	}
	return is, nil
}

// keys are made of the newest snapshot from which changes lead to the revision, and of these.
func (s *stored) keys(ctx context.Context, at archive.Standing, scope Scope) (keys, error) {
	id, bases, err := s.bases(ctx)
	if err != nil {
		return nil, err
	}
	tail, err := s.kept.Tail(ctx, idOf(at))
	if err != nil {
		return nil, err
	}
	bases = slices.DeleteFunc(bases, func(a archive.Base) bool {
		return id != idOf(at) || a.Revision > at.Revision || tail.Reach(a.Revision) < at.Revision
	})
	if len(bases) == 0 {
		return nil, failure(archive.NotFound, nil, "no snapshot that is stored is followed without a gap up to revision "+
			"%d: take a new snapshot", at.Revision)
	}
	base := bases[len(bases)-1]
	if err := s.begin(ctx, base, at, scope); err != nil {
		return nil, err
	}
	tail.OnlyEncrypted = base.Encrypted
	for reach := base.Revision; reach < at.Revision; {
		segment, err := tail.Next(ctx, reach)
		if err != nil {
			return nil, err
		}
		if segment == nil {
			return nil, failure(archive.NotFound, nil, "the changes behind revision %d are no longer stored", reach)
		}
		if err := s.shelf.takeSegment(segment, reach); err != nil {
			return nil, err
		}
		reach = segment.Last
	}
	return s.shelf.all()
}

// begin fills the shelf with what a snapshot holds.
func (s *stored) begin(ctx context.Context, base archive.Base, at archive.Standing, scope Scope) error {
	s.shelf.close()
	s.shelf = nil
	file := filepath.Join(s.dir, "base.db")
	defer func() { _ = os.Remove(file) }()

	s.log.Info("fetching the snapshot", "revision", base.Revision)
	from, err := archive.In(s.Place, base.Key)
	if err != nil {
		return err
	}
	from.IdentityFile = s.IdentityFile
	from.SHA256 = base.SHA256
	if _, err := archive.Fetch(ctx, from, file); err != nil {
		return err
	}

	holds, err := archive.Examine(ctx, file)
	if err != nil {
		return err
	}
	if holds.CompactRevision > at.Revision { // it may have more than its record says
		return failure(archive.NotFound, nil, "the snapshot has compacted revision %d: take a new one", at.Revision)
	}
	if s.shelf, err = newShelf(filepath.Join(s.dir, "keys.db"), scope, at.Revision); err != nil {
		return err
	}
	return s.shelf.takeBase(ctx, file)
}

func (s *stored) watch(ctx context.Context, clusterID uint64, behind place, to chan<- stream.Batch) error {
	w := &storedWatch{stored: s, id: strconv.FormatUint(clusterID, 16), reach: behind.Revision, sum: behind.Sum, to: to}
	for ctx.Err() == nil {
		if err := w.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		sleep(ctx, lookEvery)
	}
	return nil
}

// storedWatch tells what is stored behind a revision.
type storedWatch struct {
	*stored
	id    string
	reach int64
	// sum of the records of the revision reach; empty when they were not seen.
	sum string
	to  chan<- stream.Batch
	// missing is since when what is stored does not follow on reach; zero while it does.
	missing time.Time
	// newest is the revision of the newest snapshot, as it was seen at a time.
	newest int64
	seen   time.Time
	// sealed: that snapshot is encrypted.
	sealed bool
	// whole is the time up to which all that was written is here.
	whole time.Time
}

// look tells what is new.
func (w *storedWatch) look(ctx context.Context) error {
	began := time.Now()
	if err := w.lookForBases(ctx); err != nil {
		return err
	}
	tail, err := w.kept.Tail(ctx, w.id)
	if err != nil {
		return err
	}
	tail.OnlyEncrypted = w.sealed
	wrong := w.follow(ctx, tail)
	if wrong != nil && !stream.Unusable(wrong) {
		return wrong
	}
	patience := doubt
	if wrong != nil || tail.Missing(w.reach) != "" {
		patience = lookEvery
	}
	switch {
	case patience == doubt && w.newest <= w.reach:
		w.missing = time.Time{}
		return w.tellWhole(ctx, tail)
	case w.missing.IsZero():
		w.missing = began
	case began.Sub(w.missing) >= patience:
		return failure(stores.StreamCompacted, wrong, "what is stored does not follow on revision %d", w.reach)
	}
	return nil
}

// tellWhole tells up to when all is here: what the stream has left of that in the store, and not when that was read. A
// stream that has ended says nothing more.
func (w *storedWatch) tellWhole(ctx context.Context, tail *stream.Tail) error {
	at, err := tail.Whole(ctx, w.reach)
	if err != nil || at.IsZero() {
		return err
	}
	w.whole = later(w.whole, at)
	return w.tell(ctx, stream.Nothing(w.reach, w.whole))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// lookForBases notices a snapshot of another cluster, or of a revision that no segment leads to.
func (w *storedWatch) lookForBases(ctx context.Context) error {
	if time.Since(w.seen) < basesEvery {
		return nil
	}
	id, bases, err := w.bases(ctx)
	if err != nil {
		return err
	}
	if id != w.id {
		return failure(stores.StreamOtherCluster, nil, "the newest snapshot is of cluster %s, and %s was mirrored", id,
			w.id)
	}
	newest := bases[len(bases)-1]
	w.newest = newest.Revision
	w.sealed = newest.Encrypted
	w.seen = time.Now()
	return nil
}

// follow tells the segments that follow without a gap.
func (w *storedWatch) follow(ctx context.Context, tail *stream.Tail) error {
	for {
		segment, err := tail.Next(ctx, w.reach)
		if err != nil || segment == nil {
			return err
		}
		batch, err := segment.Behind(w.reach)
		if err != nil {
			return err
		}
		if w.sum != "" && batch.Before() != "" && w.sum != batch.Before() {
			return failure(stores.StreamOtherCluster, nil, "the source has had another history behind revision %d",
				w.reach)
		}
		if err := w.tell(ctx, batch); err != nil {
			return err
		}
		w.whole = later(w.whole, batch.Arrived())
		w.reach = batch.Last()
		w.sum = batch.Sum()
	}
}

func (w *storedWatch) tell(ctx context.Context, batch stream.Batch) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case w.to <- batch:
		return nil
	}
}
