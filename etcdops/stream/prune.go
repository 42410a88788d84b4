package stream

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/etcdops/archive"
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
	beside := path.Dir(strings.Trim(s.Tail, "/")) + "/"
	if beside == "./" {
		beside = ""
	}
	all, err := s.folder.Snapshots(ctx, beside)
	for _, base := range all {
		if base.ClusterID == s.clusterID && (oldest == 0 || base.Revision < oldest) {
			oldest = base.Revision
		}
	}
	return oldest, err
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
