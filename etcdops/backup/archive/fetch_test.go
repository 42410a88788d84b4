package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/quorate-dev/quorate/hooks/contents"
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

// TestWhatIsStoredDoesNotGrow: a few KB say that they are much more. A database gets no larger than its record says, or
// than what is stored where there is no record; and what is read into memory, than its reader allows.
func TestWhatIsStoredDoesNotGrow(t *testing.T) {
	dir, to := t.TempDir(), filepath.Join(t.TempDir(), "db")
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	bomb := encoder.EncodeAll(make([]byte, 256<<20), nil)
	require.Less(t, len(bomb), 64<<10)
	for name, record := range map[string]string{"old.db": "", "new.db.zst": `{"sha256": "0f", "size": 1000000}`} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), bomb, 0o600))
		if record != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), []byte(record), 0o600))
		}
		largest := int64(0)
		ctx, stop := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			for ctx.Err() == nil {
				if file, err := os.Stat(to); err == nil {
					largest = max(largest, file.Size())
				}
			}
		}()
		_, err := Fetch(ctx, Source{URL: "file:///" + name, StoreDir: dir}, to)
		stop()
		<-watched
		assert.Equal(t, Damaged, ReasonOf(err), "%v", err)
		assert.ErrorContains(t, err, "holds more than the")
		assert.Less(t, largest, int64(2<<20), name)
	}

	folder, err := OpenFolder(t.Context(), Place{URL: "file:///", Dir: dir}, "", false)
	require.NoError(t, err)
	defer folder.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err = folder.Get(t.Context(), "new.db.zst", 1<<20)
	runtime.ReadMemStats(&after)
	assert.ErrorContains(t, err, "is larger than anything that is stored there")
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// FuzzRecord: whatever is beside an artifact, or in its place, it ends with an error or an artifact, and takes no
// memory to speak of.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"sha256": "0f", "size": 12}`), []byte("a database"))
	f.Add([]byte(`{"sha256": "0f", "size": -1, "leases": {}}`), zstdMagic)
	f.Add([]byte(`[[[[`), ageMagic)
	f.Fuzz(func(t *testing.T, record, artifact []byte) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.db"), artifact, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a.db.json"), record, 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		found, err := Fetch(t.Context(), Source{URL: "file:///a.db", StoreDir: dir}, filepath.Join(dir, "out"))
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
		if err == nil {
			require.NotEmpty(t, found.SHA256)
		}
	})
}

// FuzzExamine: whatever a database holds, examining it ends, with an error or not, and takes little memory.
func FuzzExamine(f *testing.F) {
	sound := databaseFile(f)
	f.Add(uint32(0), []byte{})
	for _, at := range []uint32{16, 4096, 8192, 8200, 12288, 16384} {
		f.Add(at, []byte{0xff, 0xff, 0xff, 0xff})
		f.Add(at, []byte{0, 0, 0, 0, 0, 0, 0, 1})
	}
	f.Fuzz(func(t *testing.T, at uint32, text []byte) {
		damaged := bytes.Clone(sound)
		copy(damaged[int(at)%len(damaged):], text)
		path := filepath.Join(t.TempDir(), "db")
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ended := make(chan error, 1)
		go func() {
			account := contents.New()
			_, err := Account(t.Context(), path, account)
			account.Report(mostPrefixes)
			ended <- err
		}()
		select {
		case err := <-ended:
			require.True(t, err == nil || ReasonOf(err) != "", "%v", err)
		case <-time.After(20 * time.Second):
			require.Fail(t, "it does not end")
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	})
}

func databaseFile(tb testing.TB) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "db")
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(tb, err)
	require.NoError(tb, db.Update(func(tx *bolt.Tx) error {
		keys, err := tx.CreateBucket(keyBucket)
		for i := range 100 {
			name := binary.BigEndian.AppendUint64(nil, uint64(i+2))
			name = binary.BigEndian.AppendUint64(append(name, '_'), 0)
			err = errors.Join(err, keys.Put(name, []byte{0x0a, 1, byte('a' + i%26)}))
		}
		_, wrong := tx.CreateBucket(metaBucket)
		return errors.Join(err, wrong)
	}))
	require.NoError(tb, db.Close())
	text, err := os.ReadFile(path)
	require.NoError(tb, err)
	return text
}
