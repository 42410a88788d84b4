//go:build linux && releases

package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/lone"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/hooks/contents"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

var (
	contentsMiB   = flag.Int("contents.mib", 0, "measure the account of a database of so many MiB; 0 measures none")
	contentsValue = flag.Int("contents.value", 1<<10, "bytes of a value")
)

// TestContents measures what it costs to count what fills a database, by turns with and without, beside its trial
// restore: make bench-contents.
func TestContents(t *testing.T) {
	if *contentsMiB == 0 {
		t.Skip("-contents.mib says how much")
	}
	file := filepath.Join(t.TempDir(), "db")
	fill(t, file, *contentsMiB<<20 / *contentsValue, *contentsValue)
	var with, without []time.Duration
	var holds *archive.Contents
	for range 3 {
		var took time.Duration
		took, holds, _ = examined(t, file, nil)
		without = append(without, took)
		account := contents.New()
		took, _, most := examined(t, file, account)
		with = append(with, took)
		fmt.Printf("%s without, %s with; %d MiB resident at most; estimated %v\n", without[len(without)-1], took, most>>10,
			account.Report(1).Estimated)
	}
	slices.Sort(with)
	slices.Sort(without)
	whole := without[1] + tried(t, file, holds)
	fmt.Printf("| %d MiB, %d records | %s | %s more | %.1f %% |\n", *contentsMiB, holds.Records, whole, with[1]-without[1],
		100*float64(with[1]-without[1])/float64(whole))
}

// tried is how long it takes to restore a database on trial, and to have it served.
func tried(t *testing.T, file string, holds *archive.Contents) time.Duration {
	t.Helper()
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	programs := seed.Programs{Etcd: etcdproc.Program(t, version, "etcd"), Etcdutl: etcdproc.Program(t, version, "etcdutl")}
	dir := t.TempDir()
	sockets, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	defer os.RemoveAll(sockets)
	began := time.Now()
	require.NoError(t, programs.OnTrial(t.Context(), file, filepath.Join(dir, "restored"), holds))
	e := lone.Etcd{Program: programs.Etcd, DataDir: filepath.Join(dir, "restored"), Dir: sockets}
	require.NoError(t, e.Run(t.Context(), func(ctx context.Context) error {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + e.Socket()}})
		if err != nil {
			return err
		}
		defer client.Close()
		for {
			if _, err = client.Get(ctx, "\x00", clientv3.WithCountOnly()); err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			time.Sleep(100 * time.Millisecond)
		}
		count, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
		if err == nil {
			require.Equal(t, holds.Keys, count.Count)
			_, err = client.HashKV(ctx, client.Endpoints()[0], holds.Revision)
		}
		return err
	}))
	return time.Since(began)
}

// examined is how long it takes, and the KiB that this process took for it at most.
func examined(t *testing.T, file string, account *contents.Account) (took time.Duration, holds *archive.Contents, most int) {
	t.Helper()
	debug.FreeOSMemory()
	require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
	began := time.Now()
	holds, err := archive.Account(context.Background(), file, account)
	took = time.Since(began)
	require.NoError(t, err)
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(status[bytes.Index(status, []byte("VmHWM:"))+6:]), "%d", &most)
	require.NoError(t, err)
	return took, holds, most
}

// fill makes a database as etcd does, of so many keys that were never compacted. One in five is written twice, and one
// prefix in three has one key.
func fill(t *testing.T, file string, keys, size int) {
	t.Helper()
	db, err := bolt.Open(file, 0o600, &bolt.Options{NoSync: true, NoFreelistSync: true})
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"alarm", "auth", "authRoles", "authUsers", "cluster", "key", "lease", "members",
			"members_removed", "meta"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	}))
	random := rand.NewChaCha8([32]byte{})
	value := make([]byte, size)
	const atOnce = 5000
	for from := 0; from < keys*6/5; from += atOnce {
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte("key"))
			b.FillPercent = 0.9
			for i := from; i < min(from+atOnce, keys*6/5); i++ {
				_, _ = io.ReadFull(random, value)
				key := fmt.Sprintf("/registry/kind-%d/namespace-%d/%d", i%keys%97, i%keys%1009, i%keys)
				if i%keys%3 == 0 {
					key = fmt.Sprintf("/sessions/%d/x", i%keys)
				}
				kv := &mvccpb.KeyValue{Key: []byte(key), Value: value, ModRevision: int64(i + 2), Version: int64(1 + i/keys)}
				record, err := proto.Marshal(kv)
				if err != nil {
					return err
				}
				name := append(binary.BigEndian.AppendUint64(nil, uint64(i+2)), '_', 0, 0, 0, 0, 0, 0, 0, 0)
				if err := b.Put(name, record); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	require.NoError(t, db.Close())
}
