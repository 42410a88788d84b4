package seed

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// FuzzDirectory: whatever the directory of a member holds, which rescue and Quorate look at, looking ends, with an
// error that says why or without, and touches little memory.
func FuzzDirectory(f *testing.F) {
	const log, db = "member/wal/0000000000000000-0000000000000000.wal", "member/snap/db"
	sound := map[string][]byte{log: soundLog(f), db: soundMembers(f)}
	f.Add(false, uint32(0), []byte{})
	for _, at := range []uint32{0, 7, 8, 16, 40, 64, 200, 4096, 8192, 8200, 12288, 16384} {
		for _, inDB := range []bool{false, true} {
			f.Add(inDB, at, []byte{0xff, 0xff, 0xff, 0xff})
			f.Add(inDB, at, []byte{0, 0, 0, 0, 0, 0, 0, 1})
		}
	}
	f.Fuzz(func(t *testing.T, inDB bool, at uint32, text []byte) {
		dir, damages := t.TempDir(), log
		if inDB {
			damages = db
		}
		for name, content := range sound {
			if name == damages {
				content = bytes.Clone(content)
				copy(content[int(at)%len(content):], text)
			}
			path := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
			require.NoError(t, os.WriteFile(path, content, 0o600))
		}
		before := resident(t, "VmRSS")
		counted := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) == nil // the peak, from here; on Linux alone
		ended := make(chan []error, 1)
		go func() {
			_, inspected := Inspection(dir, "")
			_, listed := List(dir)
			ended <- []error{inspected, listed}
		}()
		select {
		case all := <-ended:
			for _, err := range all {
				require.True(t, err == nil || archive.Words(err) != "", "%v", err)
			}
		case <-time.After(20 * time.Second):
			require.Fail(t, "it does not end")
		}
		if counted {
			require.Less(t, resident(t, "VmHWM")-before, 64<<20)
		}
	})
}

// resident is a count of resident bytes in this process's status. bbolt asks for as much as a damaged bucket says that
// it has, up to 4 GiB, but touches no more than the file has.
func resident(t *testing.T, name string) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(status), name+":")
	require.True(t, found)
	var kib int
	_, err = fmt.Sscan(rest, &kib)
	require.NoError(t, err)
	return kib << 10
}

// soundLog is the used part of a member's log: etcd makes its files large.
func soundLog(f *testing.F) (used []byte) {
	f.Helper()
	dir := newLog(f, func(w *wal.WAL) { save(f, w, 20, entries(2, 1, 24, 100)) })
	names, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	require.NoError(f, err)
	require.Len(f, names, 1)
	file, err := os.Open(names[0])
	require.NoError(f, err)
	defer file.Close()
	used, err = io.ReadAll(io.LimitReader(file, 16<<10))
	require.NoError(f, err)
	return used
}

// soundMembers is a database that lists two members.
func soundMembers(f *testing.F) []byte {
	f.Helper()
	path := filepath.Join(f.TempDir(), "db")
	require.NoError(f, makeEmpty(path))
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(f, err)
	require.NoError(f, db.Update(func(tx *bolt.Tx) error {
		members, err := tx.CreateBucketIfNotExists([]byte("members"))
		require.NoError(f, err)
		require.NoError(f, members.Put([]byte("5"), []byte(`{"id":5,"name":"demo-0","peerURLs":["http://a:2380"]}`)))
		return members.Put([]byte("7"), []byte(`{"id":7,"name":"demo-1","isLearner":true}`))
	}))
	require.NoError(f, db.Close())
	content, err := os.ReadFile(path)
	require.NoError(f, err)
	return content
}
