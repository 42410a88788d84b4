package mirror

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// TestOneLargeRevision: one that deletes 600,000 keys is written in parts within half of the memory of the pod.
func TestOneLargeRevision(t *testing.T) {
	const keys = 600_000
	batch := deletion(t, keys)
	most := peak(func() {
		q := &queue{}
		require.NoError(t, q.add(batch))
		written := 0
		for len(q.changes) > 0 {
			ops, n := q.next(DefaultOps - 1)
			for len(ops) > 0 {
				part := fit(ops, DefaultOps-1)
				written, ops = written+part, ops[part:]
			}
			q.done(n)
		}
		require.Equal(t, keys, written)
	})
	runtime.KeepAlive(batch)
	require.Less(t, most, uint64(snapshot.JobMemory/2))
}

// deletion is one revision in which so many keys are deleted, as a stream has stored it.
func deletion(t *testing.T, keys int) stream.Batch {
	t.Helper()
	dir := t.TempDir()
	line, err := json.Marshal(stream.Header{Format: 1, ClusterID: "c1", First: 2, Last: 2, Events: int64(keys)})
	require.NoError(t, err)
	whole := bytes.NewBuffer(append(line, '\n'))
	for i := range keys {
		_, err := protodelim.MarshalTo(whole, &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{
			Key: fmt.Appendf(nil, "/registry/pods/default/web-%07d", i), ModRevision: 2}})
		require.NoError(t, err)
	}
	whole.WriteByte(0)
	sum := sha256.Sum256(whole.Bytes())
	whole.Write(sum[:])
	file := filepath.Join(dir, "tail", "c1", "2-2.seg")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o750))
	require.NoError(t, os.WriteFile(file, whole.Bytes(), 0o600))
	tail, err := stream.OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir}, stream.Opening{})
	require.NoError(t, err)
	defer tail.Close()
	segment, err := tail.Next(t.Context(), 1)
	require.NoError(t, err)
	batch, err := segment.Behind(1)
	require.NoError(t, err)
	return batch
}

// peak is how much the heap grows by at most, as often as it is looked at.
func peak(do func()) (most uint64) {
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	done, seen := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(seen)
		for {
			runtime.ReadMemStats(&now)
			if now.HeapAlloc > before.HeapAlloc {
				most = max(most, now.HeapAlloc-before.HeapAlloc)
			}
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	do()
	close(done)
	<-seen
	return most
}
