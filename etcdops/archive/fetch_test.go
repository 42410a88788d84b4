package archive

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sealed is a database as etcd sends it: with its hash at the end.
func sealed(database []byte) []byte {
	sum := sha256.Sum256(database)
	return append(append([]byte{}, database...), sum[:]...)
}

func TestFetchTakesWhatEtcdctlSaved(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "db")
	saved := sealed([]byte("a database"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "old.db"), saved, 0o600))
	size, err := SizeOf(context.Background(), Source{URL: "file:///old.db", StoreDir: dir})
	require.NoError(t, err)
	assert.EqualValues(t, len(saved), size)
	_, err = SizeOf(context.Background(), Source{URL: "file:///none.db", StoreDir: dir})
	assert.Equal(t, NotFound, ReasonOf(err), "%v", err)
	found, err := Fetch(context.Background(), Source{URL: "file:///old.db", StoreDir: dir}, to)
	require.NoError(t, err)
	assert.EqualValues(t, len(saved), found.Size)
	fetched, err := os.ReadFile(to)
	require.NoError(t, err)
	assert.Equal(t, saved, fetched)

	_, err = Fetch(context.Background(), Source{URL: "file:///old.db", StoreDir: dir, SHA256: "0f"}, to)
	assert.Equal(t, Damaged, ReasonOf(err), "%v", err)
	_, err = os.Stat(to)
	assert.True(t, errors.Is(err, os.ErrNotExist), "nothing is left that looks whole")

	_, err = Fetch(context.Background(), Source{URL: "file:///none.db", StoreDir: dir}, to)
	assert.Equal(t, NotFound, ReasonOf(err), "%v", err)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "old.db"), saved[:len(saved)-1], 0o600))
	_, err = Fetch(context.Background(), Source{URL: "file:///old.db", StoreDir: dir}, to)
	assert.Equal(t, Damaged, ReasonOf(err), "%v", err)
}
