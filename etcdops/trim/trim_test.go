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
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// A log is one on disk, with the locks that etcd holds on it.
type log struct{ dir string }

// logOf is a log of files that begin at these indexes, with snapshots of those.
func logOf(t *testing.T, snapshots []int, indexes ...int) *log {
	l := &log{dir: t.TempDir()}
	require.NoError(t, os.MkdirAll(l.path("snap"), 0o700))
	require.NoError(t, os.MkdirAll(l.path("wal"), 0o700))
	for i, index := range indexes {
		l.write(t, fmt.Sprintf("%016x-%016x.wal", i, index), "x")
	}
	l.write(t, "1.tmp", "x")
	for _, index := range snapshots {
		s := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Term: new(uint64(2)), Index: new(uint64(index))}}
		require.NoError(t, snap.New(zap.NewNop(), l.path("snap")).SaveSnap(s))
	}
	return l
}

func (l *log) path(words ...string) string {
	return filepath.Join(append([]string{l.dir, "member"}, words...)...)
}

func (l *log) files() []string { return entries(l.path("wal"), ".wal") }

func (l *log) write(t *testing.T, name, text string) {
	require.NoError(t, os.WriteFile(l.path("wal", name), []byte(text), 0o600))
}

// append has etcd write to the last file.
func (l *log) append(t *testing.T) {
	files := l.files()
	now := time.Now().Add(time.Second)
	require.NoError(t, os.Chtimes(l.path("wal", files[len(files)-1]), now, now))
}

// held has etcd hold these files of the log, counted from the first, and perhaps the one that comes next.
func (l *log) held(t *testing.T, next bool, files ...int) *log {
	wanted := []string{}
	for _, i := range files {
		wanted = append(wanted, l.files()[i])
	}
	if next {
		wanted = append(wanted, "1.tmp")
	}
	for _, name := range wanted {
		f, err := fileutil.TryLockFile(l.path("wal", name), os.O_WRONLY, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
	}
	return l
}

// torn ends the snapshot of this index early.
func (l *log) torn(t *testing.T, index int) *log {
	path := l.path("snap", fmt.Sprintf("%016x-%016x.snap", 2, index))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text[:len(text)-1], 0o600))
	return l
}

// TestWhatIsRemoved: only what a whole snapshot covers, and what an etcd that writes to the log has let go.
func TestWhatIsRemoved(t *testing.T) {
	at := func(t *testing.T, snapshots ...int) *log { return logOf(t, snapshots, 0, 10, 20, 40, 60) }
	for name, c := range map[string]struct {
		log     *log
		removed int
	}{
		"released, and covered":                     {at(t, 50).held(t, true, 2, 3, 4), 2},
		"covered, and held still":                   {at(t, 50).held(t, true, 0, 1, 2, 3, 4), 0},
		"held from the second on":                   {at(t, 50).held(t, true, 1, 2, 3, 4), 1},
		"held in the middle":                        {at(t, 50).held(t, true, 1, 3, 4), 1},
		"not covered, although nothing is held":     {logOf(t, []int{5}, 0, 10, 20).held(t, true, 2), 0},
		"no snapshot":                               {at(t).held(t, true, 2, 3, 4), 0},
		"the newest snapshot is torn":               {at(t, 25, 50).torn(t, 50).held(t, true, 2, 3, 4), 2},
		"the newest is torn, the other covers less": {at(t, 15, 50).torn(t, 50).held(t, true, 2, 3, 4), 0},
		"all snapshots are torn":                    {at(t, 15, 50).torn(t, 50).torn(t, 15).held(t, true, 2, 3, 4), 0},
		"no etcd runs":                              {at(t, 50), 0},
		"etcd opens the files that it needs":        {at(t, 50).held(t, false, 3), 0},
		"etcd mends the last file before it opens":  {at(t, 50).held(t, false, 4), 0},
		"etcd ends, and has let the first ones go":  {at(t, 50).held(t, false, 3, 4), 0},
		"the snapshot begins the last file":         {logOf(t, []int{20}, 0, 10, 20).held(t, true, 1, 2), 1},
		"one file":                                  {logOf(t, []int{50}, 0).held(t, true, 0), 0},
		"nothing yet":                               {&log{dir: t.TempDir()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.log.files()
			trimmer := Of(c.log.dir, "")
			for range 2 {
				removed, err := trimmer.Once()
				require.NoError(t, err)
				assert.Empty(t, removed, "an etcd that is being killed lets go of files, too, and writes no more")
			}
			if len(before) > 0 {
				c.log.append(t)
			}
			removed, err := trimmer.Once()
			require.NoError(t, err)
			assert.Len(t, removed, c.removed)
			assert.Equal(t, before[c.removed:], c.log.files())
		})
	}
}

// removed has two files removed, after what happens in between.
func removed(t *testing.T, between func(l *log)) *log {
	l := logOf(t, []int{50}, 0, 10, 20, 40, 60).held(t, true, 2, 3, 4)
	trimmer := Of(l.dir, "")
	_, err := trimmer.Once()
	require.NoError(t, err)
	l.append(t)
	between(l)
	_, err = trimmer.Once()
	require.NoError(t, err)
	return l
}

// TestEtcdMeetsWhatIsRemoved: a file that etcd has opened a moment ago to remove it is locked, which it takes for a
// reason to try later; one that is gone would end it.
func TestEtcdMeetsWhatIsRemoved(t *testing.T) {
	var opened *os.File
	l := removed(t, func(l *log) {
		var err error
		opened, err = os.OpenFile(l.path("wal", l.files()[0]), os.O_WRONLY, 0)
		require.NoError(t, err)
	})
	defer func() { _ = opened.Close() }()
	assert.Len(t, l.files(), 3)
	assert.True(t, locked(fmt.Sprintf("/proc/self/fd/%d", opened.Fd())), "for as long as etcd may take to lock it")
}

// TestEtcdIsFaster: what etcd itself removes, or is about to, is left to it.
func TestEtcdIsFaster(t *testing.T) {
	l := removed(t, func(l *log) { require.NoError(t, os.Remove(l.path("wal", l.files()[0]))) })
	assert.Len(t, l.files(), 4, "the next round has the other one")
	l = removed(t, func(l *log) { l.held(t, false, 0) })
	assert.Len(t, l.files(), 5)
}

// TestStartsFromWhatIsLeft: etcd's own code writes a log of many files, and starts from it whenever it ends.
func TestStartsFromWhatIsLeft(t *testing.T) {
	was := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 8 << 10
	defer func() { wal.SegmentSizeBytes = was }()
	l := logOf(t, nil)
	require.NoError(t, os.RemoveAll(l.path("wal")))
	w, err := wal.Create(zap.NewNop(), l.path("wal"), []byte("x"))
	require.NoError(t, err)
	snaps := snap.New(zap.NewNop(), l.path("snap"))
	trimmer, index, gone := Of(l.dir, ""), uint64(0), 0
	for range 4 {
		w.SetUnsafeNoFsync()
		disk := storage.NewStorage(zap.NewNop(), w, snaps)
		for range 60 {
			index++
			e := &raftpb.Entry{Term: new(uint64(1)), Index: new(index), Data: make([]byte, 1<<10)}
			require.NoError(t, disk.Save(&raftpb.HardState{Term: new(uint64(1)), Commit: new(index)}, []*raftpb.Entry{e}))
			if index%20 == 0 {
				s := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Term: new(uint64(1)), Index: new(index),
					ConfState: &raftpb.ConfState{Voters: []uint64{1}}}}
				require.NoError(t, disk.SaveSnap(s))
				require.NoError(t, disk.Release(s))
			}
			files, err := trimmer.Once()
			require.NoError(t, err)
			gone += len(files)
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, disk.Close())
		for range 3 {
			files, err := trimmer.Once()
			require.NoError(t, err)
			require.Empty(t, files)
		}
		valid, err := wal.ValidSnapshotEntries(zap.NewNop(), l.path("wal"))
		require.NoError(t, err)
		newest, err := snaps.LoadNewestAvailable(valid)
		require.NoError(t, err)
		m := newest.GetMetadata()
		w, err = wal.Open(zap.NewNop(), l.path("wal"), &walpb.Snapshot{Index: m.Index, Term: m.Term})
		require.NoError(t, err)
		_, _, left, err := w.ReadAll()
		require.NoError(t, err)
		require.Len(t, left, int(index-m.GetIndex()))
	}
	assert.Greater(t, gone, 10)
	require.NoError(t, w.Close())
}

func TestRunEndsWithItsPod(t *testing.T) {
	l := logOf(t, []int{50}, 0, 10, 20, 40, 60).held(t, true, 2, 3, 4)
	ctx, cancel := context.WithTimeout(t.Context(), 3*every)
	defer cancel()
	time.AfterFunc(every, func() { l.append(t) })
	assert.Zero(t, Run(ctx, []string{"--data-dir=" + l.dir}, io.Discard))
	assert.Len(t, l.files(), 3)
	assert.Equal(t, 2, Run(ctx, []string{"--no-such-flag"}, io.Discard))
}
