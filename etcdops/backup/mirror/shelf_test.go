package mirror

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// TestShelfIsBounded: values of a MiB are written down long before there are as many as small ones, and all are there.
func TestShelfIsBounded(t *testing.T) {
	s, err := newShelf(filepath.Join(t.TempDir(), "keys.db"), Scope{}, 1)
	require.NoError(t, err)
	defer s.close()
	const n, size = 20, 1 << 20
	for i := range n {
		kv := &mvccpb.KeyValue{Key: fmt.Appendf(nil, "k%02d", i), Value: bytes.Repeat([]byte{1}, size)}
		record, err := proto.Marshal(kv)
		require.NoError(t, err)
		require.NoError(t, s.take(false, record))
		require.Less(t, s.size, shelfBytes)
		require.LessOrEqual(t, len(s.open)*size, shelfBytes)
	}
	require.NoError(t, s.flush())
	all, err := s.all()
	require.NoError(t, err)
	for i := range n {
		kv, err := all.head(t.Context())
		require.NoError(t, err)
		require.NotNil(t, kv)
		assert.Equal(t, fmt.Sprintf("k%02d", i), string(kv.Key))
		assert.Len(t, kv.Value, size)
		all.next()
	}
	kv, err := all.head(t.Context())
	require.NoError(t, err)
	assert.Nil(t, kv)
}

// TestShelfOfARestoredSource: the record by which a restore has raised the revision is no key.
func TestShelfOfARestoredSource(t *testing.T) {
	s, err := newShelf(filepath.Join(t.TempDir(), "keys.db"), Scope{ToPrefix: "/to/"}, 1)
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, s.take(false, nil))
	require.NoError(t, s.flush())
	all, err := s.all()
	require.NoError(t, err)
	first, err := all.head(t.Context())
	require.NoError(t, err)
	assert.Nil(t, first)
}

// TestAStreamThatIsDead: what is stored is up to when its stream says so. That a mirror could read the store says
// nothing of the etcd behind it.
func TestAStreamThatIsDead(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content any) {
		t.Helper()
		text, err := json.Marshal(content)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	file("s/base.db.json", stores.Artifact{SHA256: "x", ClusterID: "c1", Revision: 4})
	place := archive.Place{URL: "file:///s", Dir: dir}
	kept, err := stream.OpenKept(t.Context(), place, stream.Opening{}, "tail")
	require.NoError(t, err)
	defer kept.Close()
	to := make(chan stream.Batch, 9)
	w := &storedWatch{stored: &stored{Stored: Stored{Place: place, Tail: "tail"}, kept: kept}, id: "c1", reach: 4, to: to}
	require.NoError(t, w.look(t.Context()))
	assert.Empty(t, to, "no stream has told anything")

	died := time.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	file("s/tail/c1/head.json", stream.Head{ClusterID: "c1", Revision: 4, At: died})
	require.NoError(t, w.look(t.Context()))
	b := <-to
	assert.True(t, b.Empty())
	assert.Equal(t, died, b.Arrived())

	file("s/tail/c1/head.json", stream.Head{ClusterID: "c1", Revision: 5, At: time.Now()})
	require.NoError(t, w.look(t.Context()))
	assert.Empty(t, to, "revision 5 is not there yet")
}
