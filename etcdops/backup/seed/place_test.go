package seed

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// TestNoRoom: nothing is fetched when it will not fit, and what is there stays.
func TestNoRoom(t *testing.T) {
	dir := t.TempDir()
	o := Options{
		DataDir: filepath.Join(dir, "data"), WALDir: filepath.Join(dir, "log", "wal"), Size: 1 << 60,
		Fetch: func(context.Context, string) (*stores.Artifact, error) { t.Fatal("fetched"); return nil, nil },
	}
	_, err := Restore(t.Context(), o)
	require.Equal(t, noSpace, archive.ReasonOf(err), "%v", err)
	require.ErrorContains(t, err, "1152921504606.8 MB is needed (the database)")
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)

	_, free, err := room(dir)
	require.NoError(t, err)
	require.NoError(t, checkRoom(needs{dir, free / 2, "one"}))
	err = checkRoom(needs{dir, free/2 + free/4, "one"}, needs{filepath.Join(dir, "not", "there"), free / 2, "another"})
	require.ErrorContains(t, err, "(one, another)", "what is on one volume adds up")
}
