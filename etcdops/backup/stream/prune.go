package stream

import (
	"context"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// pruneEvery is how often segments are removed that no restore needs.
const pruneEvery = time.Hour

// prune removes them until the context ends: those that two rounds in a row find, as a store's list may lag behind. A
// stream goes on without it.
func (s session) prune(ctx context.Context) {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		oldest, err := s.oldestBase(ctx)
		if err == nil {
			err = s.removeUpTo(ctx, min(before, oldest))
			before = oldest
		}
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("segments that no restore needs are not removed", "reason", archive.Words(err))
		}
	}
}

// oldestBase is the lowest revision of the snapshots of this cluster, which are beside the tail; 0 when there are none.
// What can't be told of one is an error: it may be the oldest.
func (s session) oldestBase(ctx context.Context) (oldest int64, err error) {
	all, err := s.bases(ctx)
	for _, base := range all {
		if oldest == 0 || base.Revision < oldest {
			oldest = base.Revision
		}
	}
	return oldest, err
}

func (s session) bases(ctx context.Context) ([]archive.Base, error) {
	all, err := (&Kept{folder: s.folder, tail: s.Tail}).Bases(ctx)
	return slices.DeleteFunc(all, func(base archive.Base) bool { return base.ClusterID != s.clusterID }), err
}

// uncovered is an error when no snapshot that is stored has the users of now and is followed without a gap up to the
// revision that this stream follows on: the stream that noticed was killed before it told, or none ran then. A snapshot
// that is being taken has some time to come.
func (s session) uncovered(ctx context.Context, standing archive.Standing, from int64) error {
	for sleep(ctx, patience); ctx.Err() == nil; sleep(ctx, patience) {
		bases, err := s.bases(ctx)
		all, wrong := spans(ctx, s.folder, s.prefix)
		if err != nil || wrong != nil || len(bases) == 0 {
			continue // it can't be told
		}
		bases = slices.DeleteFunc(bases, func(base archive.Base) bool {
			_, reach := chain(all, base.Revision)
			return reach < from
		})
		if len(bases) == 0 {
			return failure(stores.StreamCompacted, nil, "no snapshot that is stored is followed without a gap by what "+
				"comes behind revision %d: take a new snapshot", from)
		}
		if !slices.ContainsFunc(bases, func(base archive.Base) bool {
			return base.AuthRevision == 0 || base.AuthRevision >= standing.AuthRevision
		}) {
			return errUsersChanged
		}
		return nil
	}
	return nil
}

// removeUpTo removes the segments that end at a revision or before it.
func (s session) removeUpTo(ctx context.Context, revision int64) error {
	all, err := spans(ctx, s.folder, s.prefix)
	if err != nil {
		return err
	}
	for _, span := range all {
		if span.Last > revision {
			continue
		}
		if err := s.folder.Delete(ctx, span.Name); err != nil {
			return err
		}
	}
	return nil
}
