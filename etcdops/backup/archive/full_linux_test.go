package archive

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// small is a folder on a disk of 1 MiB.
func small(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("mounting takes root and its capabilities: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// A disk that fills up, at the store or here, is said to be full, and nothing is left on it.
func TestFullDisk(t *testing.T) {
	ctx, sent := context.Background(), database(4<<20)
	full := small(t)
	place := Place{URL: "file:///folder", Dir: full}
	s, err := openStore(ctx, place, true)
	require.NoError(t, err)
	defer s.Close()
	for _, compression := range []v1beta1.Compression{v1beta1.CompressNone, v1beta1.CompressZstd} {
		_, _, err = s.put(ctx, key, bytes.NewReader(sent), Form{Compression: compression}, false)
		assert.Equal(t, NoSpace, ReasonOf(err), "%v", err)
		assert.Empty(t, files(t, full))
	}

	roomy, dir := newFolder(t)
	stored, back, err := roomy.put(ctx, key, bytes.NewReader(sent),
		Form{Compression: v1beta1.CompressZstd, Recipients: nil}, false)
	require.NoError(t, err)
	require.Nil(t, back)
	require.NoError(t, roomy.finish(ctx, key, stored))
	_, err = Fetch(ctx, Source{URL: "file:///folder/" + key, StoreDir: dir}, filepath.Join(full, "db"))
	assert.Equal(t, NoSpace, ReasonOf(err), "%v", err)
	assert.Empty(t, files(t, full))
}
