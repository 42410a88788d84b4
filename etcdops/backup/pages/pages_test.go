package pages

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// record is a record of a bucket.
type record struct{ bucket, name, value string }

// read is all that a database has, by our own way.
func read(path string) (all []record, free *Free, err error) {
	d, err := Open(path, 0)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	free, err = d.All(context.Background(), func(bucket []byte) Each {
		all = append(all, record{bucket: string(bucket)})
		return func(name, value []byte) error {
			all = append(all, record{string(bucket), string(name), string(value)})
			return nil
		}
	})
	return all, free, err
}

// readByBolt is the same by bbolt.
func readByBolt(t *testing.T, path string) (all []record) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
			all = append(all, record{bucket: string(bucket)})
			return b.ForEach(func(name, value []byte) error {
				all = append(all, record{string(bucket), string(name), string(value)})
				return nil
			})
		})
	}))
	return all
}

// made is a database with a history: values of all sizes, and pages that were used before.
func made(tb testing.TB, path string, seed uint64, listed bool) {
	tb.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: !listed, NoSync: true,
		FreelistType: bolt.FreelistMapType})
	require.NoError(tb, err)
	random := rand.New(rand.NewPCG(seed, 0))
	buckets := []string{"key", "meta", "lease", "empty"}
	for range 30 {
		require.NoError(tb, db.Update(func(tx *bolt.Tx) error {
			var wrong error
			for i, name := range buckets {
				b, err := tx.CreateBucketIfNotExists([]byte(name))
				wrong = errors.Join(wrong, err)
				for range []int{60, 1, 8, 0}[i] {
					name := binary.BigEndian.AppendUint64(nil, random.Uint64N(900))
					value := make([]byte, random.IntN([]int{50, 900, 12_000}[random.IntN(3)]))
					wrong = errors.Join(wrong, b.Put(append(name, "_12345678"...), value))
					gone := binary.BigEndian.AppendUint64(nil, random.Uint64N(900))
					wrong = errors.Join(wrong, b.Delete(append(gone, "_12345678"...)))
				}
			}
			return wrong
		}))
	}
	require.NoError(tb, db.Close())
}

// TestAsBolt: what is read is what bbolt reads, in its order, and from any name on; and the pages that are free are
// those that it would find.
func TestAsBolt(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		path := filepath.Join(t.TempDir(), "db")
		made(t, path, seed, seed%2 == 0)
		want := readByBolt(t, path)
		all, free, err := read(path)
		require.NoError(t, err)
		require.Equal(t, want, all)
		require.Zero(t, free.Lost)
		require.NoError(t, checked(path))

		d, err := Open(path, 0)
		require.NoError(t, err)
		for n := range uint64(40) {
			from := binary.BigEndian.AppendUint64(nil, n*20)
			var some, wanted []record
			require.NoError(t, d.From(t.Context(), []byte("key"), from, func(name, value []byte) error {
				some = append(some, record{"key", string(name), string(value)})
				return nil
			}))
			for _, r := range want {
				if r.bucket == "key" && r.name >= string(from) {
					wanted = append(wanted, r)
				}
			}
			require.Equal(t, wanted, some)
			value, err := d.Get(t.Context(), []byte("key"), []byte(wanted[0].name))
			require.NoError(t, err)
			require.Equal(t, wanted[0].value, string(value))
		}
		value, err := d.Get(t.Context(), []byte("key"), []byte("none"))
		require.NoError(t, err)
		require.Nil(t, value)
		require.NoError(t, d.Close())
	}
}

// checked is what bbolt's own check says.
func checked(path string) error {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) (err error) {
		for wrong := range tx.Check() {
			err = errors.Join(err, wrong)
		}
		return err
	})
}

// TestWrittenList: bbolt opens a database with the list that was written, as whole as it was, and goes on in it.
func TestWrittenList(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		path := filepath.Join(t.TempDir(), "db")
		made(t, path, seed, seed%2 == 0)
		want, free, err := read(path)
		require.NoError(t, err)
		require.NoError(t, free.Write(path))
		require.NoError(t, checked(path))
		for _, listed := range []bool{true, false} {
			db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: !listed, FreelistType: bolt.FreelistMapType})
			require.NoError(t, err)
			if listed {
				require.Equal(t, len(free.ids), db.Stats().FreePageN)
			}
			require.NoError(t, db.Update(func(tx *bolt.Tx) error {
				return tx.Bucket([]byte("empty")).Put(make([]byte, 8), make([]byte, 5000))
			}))
			require.NoError(t, db.Close())
			require.NoError(t, checked(path))
		}
		all, _, err := read(path)
		require.NoError(t, err)
		require.Equal(t, len(want)+1, len(all))
	}
	t.Run("many", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "db")
		made(t, path, 1, false)
		_, free, err := read(path)
		require.NoError(t, err)
		for len(free.ids) <= manyFree {
			free.ids = append(free.ids, free.end)
			free.end++
		}
		require.NoError(t, free.Write(path))
		require.NoError(t, checked(path))
		_, again, err := read(path)
		require.NoError(t, err)
		require.Zero(t, again.Lost)
	})
}

// TestCheckedAsBoltDoes: whatever becomes of a page, what bbolt's check finds is found, and what it ends over.
func TestCheckedAsBoltDoes(t *testing.T) {
	t.Parallel()
	rounds := 100
	if testing.Short() {
		rounds = 30
	}
	found := 0
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(7, 7))
	for seed := range uint64(4) {
		path := filepath.Join(dir, "db")
		made(t, path, seed, seed%2 == 0)
		sound, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.Remove(path))
		for i := range rounds {
			raw := bytes.Clone(sound)
			damage(random, raw)
			file := filepath.Join(dir, fmt.Sprintf("%d-%d", seed, i))
			require.NoError(t, os.WriteFile(file, raw, 0o600))
			_, free, err := read(file)
			if err != nil || free.Lost > 0 {
				found++
				require.NoError(t, os.Remove(file))
			}
		}
	}
	require.Greater(t, found, rounds/4, "most damage is to pages that nothing is read from, but not all")
	// What ends in a fault can only be seen from outside.
	command := exec.Command(os.Args[0], "-test.run=^TestCheck$")
	command.Env = append(os.Environ(), "PAGES_CHECK="+dir)
	said, err := command.CombinedOutput()
	require.NoError(t, err, "only bbolt found what is wrong with the last of these: %s", said)
}

// TestCheck checks the files of a folder by bbolt, for another test.
func TestCheck(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(os.Getenv("PAGES_CHECK"), "*-*"))
	require.NoError(t, err)
	for _, file := range files {
		if os.Getenv("PAGES_CHECK") != "" {
			fmt.Println(file)
			require.NoError(t, checked(file))
			readByBolt(t, file)
		}
	}
}

// damage makes changes of the kinds that matter: in what pages say of themselves, and one page in place of another.
func damage(random *rand.Rand, raw []byte) {
	size := os.Getpagesize()
	pages := len(raw) / size
	at := (2 + random.IntN(pages-2)) * size
	switch random.IntN(5) {
	case 0: // a byte of what a page says of itself and its elements
		raw[at+random.IntN(64)] ^= 1 << random.IntN(8)
	case 1:
		raw[at+random.IntN(size)] ^= byte(1 + random.IntN(255))
	case 2: // a page twice
		copy(raw[at:at+size], raw[(2+random.IntN(pages-2))*size:])
	case 3:
		clear(raw[at : at+size])
	default:
		binary.NativeEndian.PutUint64(raw[at+headerSize+8:], uint64(random.IntN(pages+3)))
	}
}

// TestOpen: which of the two first pages counts, and what is no database.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "db")
	made(t, path, 1, false)
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	size := os.Getpagesize()
	for name, at := range map[string][]int{"the first": {20}, "the second": {size + 20}, "both": {20, size + 20}} {
		raw := bytes.Clone(sound)
		for _, i := range at {
			raw[i] ^= 1
		}
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		all, _, err := read(path)
		if len(at) == 2 {
			require.ErrorAs(t, err, new(Flaw), name)
			continue
		}
		require.Equal(t, readByBolt(t, path), all, name)
		require.NoError(t, err, name)
	}
	require.NoError(t, os.WriteFile(path, sound[:len(sound)/2/size*size], 0o600))
	_, _, err = read(path)
	require.ErrorAs(t, err, new(Flaw))
	for _, n := range []int{0, 10, size, 2 * size} {
		require.NoError(t, os.WriteFile(path, sound[:n], 0o600))
		_, _, err = read(path)
		require.ErrorAs(t, err, new(Flaw), n)
	}
	_, _, err = read(dir)
	require.Error(t, err)
	_, _, err = read(path + "-none")
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, other := range []int{1024, 16384, 65536} {
		path := filepath.Join(dir, fmt.Sprint(other))
		db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: other, NoFreelistSync: true})
		require.NoError(t, err)
		for range 2 { // the second is told of in the second of the two first pages
			require.NoError(t, db.Update(func(tx *bolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte("key"))
				return errors.Join(err, b.Put([]byte("a"), make([]byte, 100_000)))
			}))
		}
		require.NoError(t, db.Close())
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		raw[20] ^= 1
		require.NoError(t, os.WriteFile(path, raw, 0o600))
		all, _, err := read(path)
		require.NoError(t, err)
		require.NotEmpty(t, all)
	}
}

// TestInUse: a database that another process may write to is not read.
func TestInUse(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "db")
	made(t, path, 1, false)
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	_, err = Open(path, 10*time.Millisecond)
	require.ErrorIs(t, err, ErrInUse)
	require.NoError(t, db.Close())
	d, err := Open(path, 0)
	require.NoError(t, err)
	defer d.Close()
	require.ErrorIs(t, unix.Flock(func() int {
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return int(f.Fd())
	}(), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}
