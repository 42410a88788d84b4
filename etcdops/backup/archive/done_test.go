package archive

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// A Job that runs again, when its pod or its report was lost, reports what is stored: etcd is not asked.
func TestDoneIsNotTakenAgain(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	order := Order{Place: Place{URL: "file:///folder", Dir: dir}, Key: "shop/demo/nightly.db.zst", Verify: true,
		Log: slog.New(slog.DiscardHandler)}
	store, err := openStore(ctx, order.Place, true)
	require.NoError(t, err)
	defer store.Close()
	object := filepath.Join(dir, "folder", order.Key)

	stored, _, err := store.put(ctx, order.Key, bytes.NewReader(sealed(make([]byte, 1<<20))),
		Form{Compression: v1alpha1.CompressZstd}, false)
	require.NoError(t, err)
	asked := func() bool {
		_, err := Take(ctx, order)
		return err != nil // there is no cluster that could be asked
	}
	assert.True(t, asked(), "without a record")

	require.NoError(t, store.finish(ctx, order.Key, stored))
	order.Verify = false
	assert.False(t, asked(), "with one that is not verified, when no verification is asked for")

	order.Verify = true
	written := stores.Snapshot{Artifact: *stored, VerifiedAt: time.Now().UTC().Truncate(time.Second)}
	require.NoError(t, store.finish(ctx, order.Key, &written))
	report, err := Take(ctx, order)
	require.NoError(t, err)
	assert.Equal(t, written, report)

	require.NoError(t, os.Truncate(object, stored.StoredSize-1))
	assert.True(t, asked(), "what is stored is not whole")
	require.NoError(t, os.WriteFile(object+recordSuffix, []byte("nonsense"), 0o600))
	assert.True(t, asked(), "what the record says can't be read")
}
