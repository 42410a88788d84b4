package mirror

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
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
