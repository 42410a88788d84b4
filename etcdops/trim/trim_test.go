//go:build linux

package trim

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
)

// A log is one on disk, with the locks that etcd holds on it.
type log struct{ dir string }

// logOf is a log of files that begin at these indexes, with a snapshot of that one.
func logOf(t *testing.T, snapshot int, indexes ...int) *log {
	l := &log{dir: t.TempDir()}
	for _, dir := range []string{"wal", "snap"} {
		require.NoError(t, os.MkdirAll(filepath.Join(l.dir, "member", dir), 0o700))
	}
	for i, index := range indexes {
		l.write(t, "wal", fmt.Sprintf("%016x-%016x.wal", i, index))
	}
	l.write(t, "snap", fmt.Sprintf("%016x-%016x.snap", 2, snapshot))
	l.write(t, "wal", "1.tmp")
	return l
}

func (l *log) write(t *testing.T, dir, name string) {
	require.NoError(t, os.WriteFile(filepath.Join(l.dir, "member", dir, name), []byte("x"), 0o600))
}

// held has etcd hold these files of the log, counted from the first, and perhaps the one that comes next.
func (l *log) held(t *testing.T, next bool, files ...int) *log {
	names := entries(filepath.Join(l.dir, "member", "wal"), ".wal")
	wanted := []string{}
	for _, i := range files {
		wanted = append(wanted, names[i])
	}
	if next {
		wanted = append(wanted, "1.tmp")
	}
	for _, name := range wanted {
		f, err := fileutil.TryLockFile(filepath.Join(l.dir, "member", "wal", name), os.O_WRONLY, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
	}
	return l
}

// TestWhatIsRemoved: only what a snapshot covers, and what an etcd that writes to the log has let go.
func TestWhatIsRemoved(t *testing.T) {
	for name, c := range map[string]struct {
		log     *log
		removed int
	}{
		"released, and covered":                    {logOf(t, 50, 0, 10, 20, 40, 60).held(t, true, 2, 3, 4), 2},
		"covered, and held still":                  {logOf(t, 50, 0, 10, 20, 40, 60).held(t, true, 0, 1, 2, 3, 4), 0},
		"held from the second on":                  {logOf(t, 50, 0, 10, 20, 40, 60).held(t, true, 1, 2, 3, 4), 1},
		"not covered, although nothing is held":    {logOf(t, 5, 0, 10, 20).held(t, true, 2), 0},
		"no etcd runs":                             {logOf(t, 50, 0, 10, 20, 40, 60), 0},
		"etcd mends the last file before it opens": {logOf(t, 50, 0, 10, 20, 40, 60).held(t, false, 4), 0},
		"etcd ends, and has let the first ones go": {logOf(t, 50, 0, 10, 20, 40, 60).held(t, false, 3, 4), 0},
		"the snapshot begins the last file":        {logOf(t, 20, 0, 10, 20).held(t, true, 1, 2), 1},
		"one file":                                 {logOf(t, 50, 0).held(t, true, 0), 0},
		"nothing yet":                              {&log{dir: t.TempDir()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := entries(filepath.Join(c.log.dir, "member", "wal"), ".wal")
			removed, err := Of(c.log.dir, "").Once()
			require.NoError(t, err)
			assert.Len(t, removed, c.removed)
			assert.Equal(t, before[c.removed:], entries(filepath.Join(c.log.dir, "member", "wal"), ".wal"))
		})
	}
}

// TestEtcdMeetsWhatIsRemoved: a file that etcd has opened a moment ago to remove it is locked, which it takes for a
// reason to try later; one that is gone would end it.
func TestEtcdMeetsWhatIsRemoved(t *testing.T) {
	l := logOf(t, 50, 0, 10, 20, 40, 60).held(t, true, 2, 3, 4)
	first := filepath.Join(l.dir, "member", "wal", entries(filepath.Join(l.dir, "member", "wal"), ".wal")[0])
	opened, err := os.OpenFile(first, os.O_WRONLY, 0o600)
	require.NoError(t, err)
	defer func() { _ = opened.Close() }()
	removed, err := Of(l.dir, "").Once()
	require.NoError(t, err)
	require.Len(t, removed, 2)
	assert.True(t, locked(fmt.Sprintf("/proc/self/fd/%d", opened.Fd())), "for as long as etcd may take to lock it")
}

func TestRunEndsWithItsPod(t *testing.T) {
	l := logOf(t, 50, 0, 10, 20, 40, 60).held(t, true, 2, 3, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	assert.Zero(t, Run(ctx, []string{"--data-dir=" + l.dir}, io.Discard))
	assert.Len(t, entries(filepath.Join(l.dir, "member", "wal"), ".wal"), 3)
	assert.Equal(t, 2, Run(ctx, []string{"--no-such-flag"}, io.Discard))
}
