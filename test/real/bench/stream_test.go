//go:build linux && releases

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

var (
	streamChanges = flag.Int("stream.changes", 0, "measure a stream of so many changes, and its restore; 0 measures none")
	etcdbrctl     = flag.String("stream.etcdbrctl", "", "etcdbrctl of etcd-backup-restore, to be measured, too")
	mirrorKeys    = flag.Int("mirror.keys", 0, "measure mirrors of so many keys; 0 measures none")
)

// A tool is a process that runs beside an etcd until it is stopped.
type tool struct {
	*exec.Cmd
	said bytes.Buffer
}

func starts(t *testing.T, line ...string) *tool {
	t.Helper()
	p := &tool{Cmd: exec.Command(line[0], line[1:]...)}
	p.Stdout, p.Stderr = &p.said, &p.said
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// ends stops it, and tells what it has used.
func (p *tool) ends() string {
	_ = p.Process.Signal(os.Interrupt)
	_ = p.Wait()
	return p.used()
}

func (p *tool) used() string {
	return fmt.Sprintf("%.1f s of CPU | %d MiB resident at most",
		(p.ProcessState.UserTime() + p.ProcessState.SystemTime()).Seconds(),
		p.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10)
}

// putMany puts n keys of 100 bytes, 64 at once, over so many names. It returns the last revision and each put's time.
func putMany(t *testing.T, m *etcdproc.Member, n, names int, prefix string) (revision int64, took []time.Duration) {
	t.Helper()
	client := m.Client()
	took = make([]time.Duration, n)
	var next, last atomic.Int64
	var writers sync.WaitGroup
	value := strings.Repeat("v", 100)
	for range 64 {
		writers.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				began := time.Now()
				answer, err := client.Put(context.Background(), fmt.Sprintf("%s%07d", prefix, i%names), value)
				if err != nil {
					t.Errorf("put %d: %v", i, err)
					return
				}
				took[i] = time.Since(began)
				for was := last.Load(); was < answer.Header.Revision && !last.CompareAndSwap(was, answer.Header.Revision); {
					was = last.Load()
				}
			}
		})
	}
	writers.Wait()
	return last.Load(), took
}

func percentile(all []time.Duration, percent int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*percent/100]
}

// A keeper stores a snapshot of a member and what changes behind it in a folder, and restores it from there.
type keeper struct {
	name string
	// begin takes the snapshot, and has the line of the process that stores the changes.
	begin func(m *etcdproc.Member) (line []string)
	// base is the snapshot, and files are those with changes, below the folder; revision is the last one in such a
	// file, which its name tells.
	base     string
	files    string
	revision func(file string) string
	// restore is the line that fills the folder restored up to a revision; 0 is the snapshot alone.
	restore func(until int64) []string
}

// quorateKeeps is our own.
func quorateKeeps(t *testing.T, version, dir string) keeper {
	store := []string{"--store-url=file:///store", "--store-dir=" + dir}
	restore := []string{*snapshotOf, "restore", "--data-dir=" + filepath.Join(dir, "restored"), "--name=b",
		"--etcd-version=" + version, "--etcdutl=" + etcdproc.Program(t, version, "etcdutl"),
		"--etcd=" + etcdproc.Program(t, version, "etcd"), "--marker=" + filepath.Join(dir, "none"),
		"--peer-url=http://127.0.0.1:3", "--url=file://" + filepath.Join(dir, "store", "one.db")}
	return keeper{name: "quorate-snapshot", base: "store/one.db", files: "store/tail/*/*",
		begin: func(m *etcdproc.Member) []string {
			out, err := exec.Command(*snapshotOf, append([]string{"snapshot", "--endpoint=" + m.ClientURL, "--key=one.db",
				"--verify=false", "--compression=none"}, store...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			client := m.Client()
			is, err := client.Status(t.Context(), m.ClientURL)
			require.NoError(t, err)
			return append([]string{*snapshotOf, "stream", "--endpoint=" + m.ClientURL, "--tail=tail", "--listen=",
				fmt.Sprint("--from-revision=", is.Header.Revision)}, store...)
		}, revision: func(file string) string {
			name, _, _ := strings.Cut(file, ".")
			_, last, _ := strings.Cut(name, "-")
			return last
		}, restore: func(until int64) []string {
			if until == 0 {
				return restore
			}
			folder, err := filepath.Glob(filepath.Join(dir, "store", "tail", "*"))
			require.NoError(t, err)
			require.Len(t, folder, 1)
			return append(restore, "--tail-url=file://"+folder[0], fmt.Sprint("--until-revision=", until))
		}}
}

// backupRestoreKeeps is etcd-backup-restore, the tool of etcd-druid.
func backupRestoreKeeps(t *testing.T, dir string) keeper {
	home, err := os.UserHomeDir() // below which it has local stores
	require.NoError(t, err)
	folder, err := filepath.Rel(home, filepath.Join(dir, "store"))
	require.NoError(t, err)
	store := []string{"--storage-provider=Local", "--store-container=" + folder}
	return keeper{name: "etcdbrctl", base: "store/v2/Full-*", files: "store/v2/Incr-*",
		begin: func(m *etcdproc.Member) []string {
			return append([]string{*etcdbrctl, "snapshot", "--endpoints=" + m.ClientURL, "--insecure-transport",
				"--delta-snapshot-period=10s", "--schedule=0 0 1 1 *"}, store...)
		}, revision: func(file string) string { return strings.Split(file, "-")[2] }, restore: func(int64) []string {
			return append([]string{*etcdbrctl, "restore", "--data-dir=" + filepath.Join(dir, "restored"), "--name=b",
				"--initial-cluster=b=http://127.0.0.1:3", "--initial-advertise-peer-urls=http://127.0.0.1:3"}, store...)
		}}
}

// TestStreamAndRestore measures what a stream costs the writers, and a restore of a snapshot of 1 GiB with the changes
// behind it, beside `etcdutl snapshot restore` of the snapshot alone, and beside etcd-backup-restore where that is on
// the machine:
//
//	make bench-streams ETCDBRCTL=/path/to/etcdbrctl
func TestStreamAndRestore(t *testing.T) {
	if *streamChanges == 0 {
		t.Skip("-stream.changes says how many")
	}
	version := etcdproc.Versions[0] // that etcd-backup-restore is made for
	dir := t.TempDir()
	keepers := []keeper{quorateKeeps(t, version, dir)}
	if *etcdbrctl != "" {
		keepers = append(keepers, backupRestoreKeeps(t, dir))
	}
	for i, k := range keepers {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "store")))
		m := etcdproc.Start(t, version, k.name, 1, "--quota-backend-bytes=8589934592").Members[0]
		fillMiB(t, m, 1024)
		end := stores(t, k, m, dir)
		if i == 0 {
			puts(t, m, "without")
		}
		m.Kill()
		if i == 0 {
			restores(t, "etcdutl snapshot restore, of the snapshot alone", dir, []string{
				etcdproc.Program(t, version, "etcdutl"), "snapshot", "restore", filepath.Join(dir, "store", "one.db"),
				"--data-dir=" + filepath.Join(dir, "restored")})
			restores(t, k.name+", of the snapshot alone", dir, k.restore(0))
		}
		restores(t, k.name, dir, k.restore(end))
	}
}

func puts(t *testing.T, m *etcdproc.Member, what string) (last int64) {
	t.Helper()
	began := time.Now()
	last, took := putMany(t, m, *streamChanges, 100_000, "change-")
	fmt.Printf("| %d puts, %s | %.1f s | p50 %.1f ms | p99 %.1f ms |\n", *streamChanges, what,
		time.Since(began).Seconds(), percentile(took, 50).Seconds()*1e3, percentile(took, 99).Seconds()*1e3)
	return last
}

// stores is how the puts go while they are stored, until the last one is: that has the revision end.
func stores(t *testing.T, k keeper, m *etcdproc.Member, dir string) (end int64) {
	t.Helper()
	process := starts(t, k.begin(m)...)
	for before, size := int64(-1), int64(0); size == 0 || size != before; time.Sleep(time.Second) { // it grows no more
		require.NoError(t, t.Context().Err())
		before, size = size, 0
		files, err := filepath.Glob(filepath.Join(dir, k.base))
		require.NoError(t, err)
		for _, file := range files {
			if info, err := os.Stat(file); err == nil {
				size += info.Size()
			}
		}
	}
	end = puts(t, m, k.name)
	began := time.Now()
	var size, segments int64
	for stored := int64(0); stored < end; time.Sleep(100 * time.Millisecond) {
		require.Less(t, time.Since(began), 15*time.Minute, "%s: %s", k.name, &process.said)
		files, err := filepath.Glob(filepath.Join(dir, k.files))
		require.NoError(t, err)
		size, segments = 0, 0
		for _, file := range files {
			revision, _ := strconv.ParseInt(k.revision(filepath.Base(file)), 10, 64)
			stored = max(stored, revision)
			if info, err := os.Stat(file); err == nil {
				size, segments = size+info.Size(), segments+1
			}
		}
	}
	after := time.Since(began)
	fmt.Printf("| %s | %s | %d MiB stored in %d segments, the last %.1f s after the last put |\n", k.name,
		process.ends(), size>>20, segments, after.Seconds())
	return end
}

// restores is how long it takes to fill the folder restored.
func restores(t *testing.T, what, dir string, line []string) {
	t.Helper()
	took, used := runs(t, dir, line, "restored")
	fmt.Printf("| restore by %s | %s | %s |\n", what, took, used)
}

// runs a line some times in a folder of which these are removed before. It tells how long that took, with the median
// first, and what the last one has used.
func runs(t *testing.T, dir string, line []string, before ...string) (times, used string) {
	t.Helper()
	var took []time.Duration
	for range *snapshotRun {
		for _, folder := range before {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, folder)))
		}
		syscall.Sync()
		_ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0) // with root's rights
		process := &tool{Cmd: exec.Command(line[0], line[1:]...)}
		process.Env = append(os.Environ(), "ETCD_INITIAL_CLUSTER=b=http://127.0.0.1:3", "ETCD_INITIAL_CLUSTER_TOKEN=t")
		process.Dir = dir
		process.Stdout, process.Stderr = &process.said, &process.said
		began := time.Now()
		require.NoError(t, process.Start())
		require.NoError(t, process.Wait(), "%s: %s", line, &process.said)
		took = append(took, time.Since(began))
		used = process.used()
	}
	return fmt.Sprintf("%.1f s (%.1f to %.1f)", percentile(took, 50).Seconds(), took[0].Seconds(),
		took[len(took)-1].Seconds()), used
}

// TestMirrors measures `quorate-snapshot mirror` beside `etcdctl make-mirror`: the first copy, and how long after a put
// it is at the destination, at 500 puts in a second.
func TestMirrors(t *testing.T) {
	if *mirrorKeys == 0 {
		t.Skip("-mirror.keys says how many")
	}
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	m := etcdproc.Start(t, version, "source", 1).Members[0]
	putMany(t, m, *mirrorKeys, *mirrorKeys, "key-")
	for _, what := range []struct {
		name string
		line func(to string) []string
	}{
		{"etcdctl make-mirror", func(to string) []string {
			return []string{etcdproc.Program(t, version, "etcdctl"), "--endpoints=" + m.ClientURL, "make-mirror",
				strings.TrimPrefix(to, "http://")}
		}},
		{"quorate-snapshot mirror", func(to string) []string {
			return []string{*snapshotOf, "mirror", "--endpoint=" + m.ClientURL, "--to-endpoint=" + to, "--listen="}
		}},
	} {
		to := etcdproc.Start(t, version, strings.Fields(what.name)[0], 1).Members[0]
		client := to.Client()
		began := time.Now()
		process := starts(t, what.line(to.ClientURL)...)
		for {
			answer, err := client.Get(t.Context(), "key-", clientv3.WithPrefix(), clientv3.WithCountOnly())
			require.NoError(t, err)
			if answer.Count >= int64(*mirrorKeys) {
				break
			}
			require.Less(t, time.Since(began), 15*time.Minute, "%s: %s", what.name, &process.said)
			time.Sleep(200 * time.Millisecond)
		}
		copied := time.Since(began)
		behind := lag(t, m, client, strings.Fields(what.name)[0])
		fmt.Printf("| %s | %.1f s, %.0f keys/s | p50 %.0f ms | p99 %.0f ms | %s |\n", what.name, copied.Seconds(),
			float64(*mirrorKeys)/copied.Seconds(), percentile(behind, 50).Seconds()*1e3,
			percentile(behind, 99).Seconds()*1e3, process.ends())
		to.Kill()
	}
}

// lag puts the time under names that begin with a prefix for twenty seconds, and is how old it was when it was seen at
// the destination.
func lag(t *testing.T, source *etcdproc.Member, to *clientv3.Client, prefix string) (all []time.Duration) {
	t.Helper()
	const perSecond, n = 500, 20 * 500
	client := source.Client()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	seen := to.Watch(ctx, prefix, clientv3.WithPrefix())
	go func() {
		ticks := time.NewTicker(time.Second / perSecond)
		defer ticks.Stop()
		for i := range n {
			<-ticks.C
			key, now := fmt.Sprintf("%s-%03d", prefix, i%1000), fmt.Sprint(time.Now().UnixNano())
			if _, err := client.Put(ctx, key, now); err != nil {
				stop()
				return
			}
		}
		_, _ = client.Put(ctx, prefix+"-end", "")
	}()
	for answer := range seen {
		require.NoError(t, answer.Err())
		for _, event := range answer.Events {
			if string(event.Kv.Key) == prefix+"-end" {
				return all
			}
			at, err := strconv.ParseInt(string(event.Kv.Value), 10, 64)
			require.NoError(t, err)
			all = append(all, time.Since(time.Unix(0, at)))
		}
	}
	t.Fatalf("the watch ended after %d puts", len(all))
	return nil
}
