package stream

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

func keysFile(t *testing.T, keys ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stream.key")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(keys, "\n")), 0o600))
	return file
}

func TestKeys(t *testing.T) {
	none, err := ReadKeys("")
	require.NoError(t, err)
	assert.Empty(t, none)
	for _, bad := range [][]string{{""}, {"too short"}, {strings.Repeat("k", 40), "too short"}} {
		_, err := ReadKeys(keysFile(t, bad...))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "too short")
	}
	_, err = ReadKeys(filepath.Join(t.TempDir(), "none"))
	assert.Equal(t, archive.WrongKey, archive.ReasonOf(err))
}

// TestStreamSigns: what a stream stores is signed by the first key, and believed by who knows one of them.
func TestStreamSigns(t *testing.T) {
	dir := t.TempDir()
	old, now := strings.Repeat("o", 40), strings.Repeat("n", 40)
	folder, err := archive.OpenFolder(t.Context(), archive.Place{URL: "file:///s", Dir: dir}, "", true)
	require.NoError(t, err)
	t.Cleanup(func() { _ = folder.Close() })
	w := &writer{session: session{Options: Options{Tail: "tail", FlushAfter: time.Hour, KeysFile: keysFile(t, now, old),
		Form: archive.Form{Compression: v1beta1.CompressZstd}, Log: slog.New(slog.DiscardHandler)}, folder: folder,
		prefix: "tail/c1/", clusterID: "c1", monitor: NewMonitor(time.Hour)}}
	w.leaser.failed = time.Now() // no etcd is asked
	w.monitor.begin("c1", 4)
	w.monitor.lag.until = time.Now()
	require.NoError(t, w.store(t.Context(), made(t, 5, 9)))
	w.leaveHead(t.Context(), folder)

	for _, test := range []struct {
		keys   string
		signed bool
	}{
		{"", true}, {keysFile(t, now), true}, {keysFile(t, strings.Repeat("x", 40), now), true}, {keysFile(t, old), false},
	} {
		tail, err := OpenTail(t.Context(), archive.Place{URL: "file:///s/tail/c1", Dir: dir}, Opening{KeysFile: test.keys})
		require.NoError(t, err)
		assert.Equal(t, test.keys != "", tail.Trusted())
		assert.Equal(t, test.signed, tail.Head.Revision == 9)
		assert.Equal(t, test.signed, tail.Headless() == "")
		_, err = tail.Next(t.Context(), 4)
		if test.signed {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, "tail/c1/5-9.seg.zst")
		}
		require.NoError(t, tail.Close())
	}
}
