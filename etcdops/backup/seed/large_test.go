package seed

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// TestReplayOfOneLargeRevision: one that deletes 300,000 keys is replayed within a quarter of the memory that a Job
// has.
func TestReplayOfOneLargeRevision(t *testing.T) {
	const keys = 300_000
	dir, path := t.TempDir(), snapshotAt4(t)
	events := make([]*mvccpb.Event, keys)
	for i := range events {
		events[i] = deleting(fmt.Sprintf("/registry/pods/default/web-%07d", i), 5)
	}
	segment(t, dir, stream.Header{First: 5, Last: 5}, events...)
	clear(events)

	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	most, done, seen := uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(seen)
		for tick := time.Tick(5 * time.Millisecond); ; {
			runtime.ReadMemStats(&now)
			if now.HeapAlloc > before.HeapAlloc {
				most = max(most, now.HeapAlloc-before.HeapAlloc)
			}
			select {
			case <-done:
				return
			case <-tick:
			}
		}
	}()
	r, err := replayed(t, dir, path, 0)
	close(done)
	<-seen
	require.NoError(t, err)
	require.Equal(t, int64(5), r.reach)
	require.Less(t, most, uint64(snapshot.JobMemory/4))
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		require.Equal(t, 3+keys, tx.Bucket(keyOf).Stats().KeyN)
		return nil
	}))
}
