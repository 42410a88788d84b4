//go:build linux && releases

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/hooks/contents"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

var contentsMiB = flag.Int("contents.mib", 0, "measure the account of so many MiB in values of 1 KiB; 0 measures none")

// TestContents measures what it costs to count what fills a database, beside its trial restore: make bench-contents.
// One key in five is written twice, and one prefix in three has one key.
func TestContents(t *testing.T) {
	if *contentsMiB == 0 {
		t.Skip("-contents.mib says how much")
	}
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	m := etcdproc.Start(t, version, "bench", 1, "--quota-backend-bytes=16000000000").Members[0]
	spread(t, m, *contentsMiB<<10)
	dir := t.TempDir()
	began := time.Now()
	programs := seed.Programs{Etcd: etcdproc.Program(t, version, "etcd"), Etcdutl: etcdproc.Program(t, version, "etcdutl")}
	var log bytes.Buffer
	report, err := archive.Take(t.Context(), archive.Order{Cluster: archive.Cluster{Endpoints: []string{m.ClientURL}},
		Place: archive.Place{URL: "file:///", Dir: dir}, Key: "one.db", Verify: true, Etcd: programs.Etcd,
		Restore: programs.OnTrial, Scratch: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err, log.String())
	fmt.Printf("a snapshot of %d keys, verified, took %s:\n%s", report.Keys, time.Since(began), log.String())
	file := filepath.Join(dir, "one.db")
	var with, without []time.Duration
	for range 5 {
		took, _ := examined(t, file, nil)
		without = append(without, took)
		account := contents.New()
		took, most := examined(t, file, account)
		with = append(with, took)
		fmt.Printf("%s without, %s with; %d MiB resident at most; estimated %v\n", without[len(without)-1], took, most>>10,
			account.Report(1).Estimated)
	}
	slices.Sort(with)
	slices.Sort(without)
	fmt.Printf("| %d MiB | %s | %s |\n", *contentsMiB, without[2], with[2])
}

// examined is how long it takes, and the KiB that this process took for it at most.
func examined(t *testing.T, file string, account *contents.Account) (took time.Duration, most int) {
	t.Helper()
	debug.FreeOSMemory()
	require.NoError(t, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0))
	began := time.Now()
	_, err := archive.Account(context.Background(), file, account)
	took = time.Since(began)
	require.NoError(t, err)
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, err = fmt.Sscanf(string(status[bytes.Index(status, []byte("VmHWM:"))+6:]), "%d", &most)
	require.NoError(t, err)
	return took, most
}

// spread writes so many keys.
func spread(t *testing.T, m *etcdproc.Member, keys int) {
	t.Helper()
	client := m.Client()
	var writers sync.WaitGroup
	failed := make(chan error, 8)
	for w := range 8 {
		writers.Go(func() {
			random := rand.NewChaCha8([32]byte{byte(w)})
			value := make([]byte, 1<<10)
			for from := w * 100; from < keys*6/5; from += 800 {
				var puts []clientv3.Op
				for i := from; i < from+100; i++ {
					_, _ = io.ReadFull(random, value)
					key := fmt.Sprintf("/registry/kind-%d/namespace-%d/%d", i%keys%97, i%keys%1009, i%keys)
					if i%3 == 0 {
						key = fmt.Sprintf("/sessions/%d/x", i%keys)
					}
					puts = append(puts, clientv3.OpPut(key, string(value)))
				}
				if _, err := client.Txn(context.Background()).Then(puts...).Commit(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	writers.Wait()
	close(failed)
	require.NoError(t, <-failed)
}
