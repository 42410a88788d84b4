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
	return fmt.Sprintf("%.1f s of CPU | %d MiB resident at most",
		(p.ProcessState.UserTime() + p.ProcessState.SystemTime()).Seconds(),
		p.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10)
}

// putMany puts n keys of 100 bytes, 64 at once, over so many names. It returns the last revision and each put's time.
func putMany(t *testing.T, m *etcdproc.Member, n, names int, prefix string) (revision int64, took []time.Duration) {
	t.Helper()
	client := m.Client()
	defer client.Close()
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

// TestStreamAndRestore measures what a stream costs the writers, and a restore of a snapshot of 1 GiB with the changes
// behind it, beside `etcdutl snapshot restore` of the snapshot alone:
//
//	make bench-streams
func TestStreamAndRestore(t *testing.T) {
	if *streamChanges == 0 {
		t.Skip("-stream.changes says how many")
	}
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	m := etcdproc.Start(t, version, "bench", 1, "--quota-backend-bytes=8589934592").Members[0]
	fillMiB(t, m, 1024)
	dir := t.TempDir()
	etcdutl := etcdproc.Program(t, version, "etcdutl")
	store := []string{"--store-url=file:///store", "--store-dir=" + dir}
	out, err := exec.Command(*snapshotOf, append([]string{"snapshot", "--endpoint=" + m.ClientURL, "--key=one.db",
		"--verify=false", "--compression=none"}, store...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	client := m.Client()
	defer client.Close()
	is, err := client.Status(t.Context(), m.ClientURL)
	require.NoError(t, err)
	base := is.Header.Revision

	alone := func(what string) int64 {
		began := time.Now()
		revision, took := putMany(t, m, *streamChanges, 100_000, "change-")
		fmt.Printf("| %d puts, %s | %.1f s | p50 %.1f ms | p99 %.1f ms |\n", *streamChanges, what,
			time.Since(began).Seconds(), percentile(took, 50).Seconds()*1e3, percentile(took, 99).Seconds()*1e3)
		return revision
	}
	streaming := starts(t, append([]string{*snapshotOf, "stream", "--endpoint=" + m.ClientURL, "--tail=tail",
		fmt.Sprint("--from-revision=", base), "--listen="}, store...)...)
	end := alone("with a stream")
	began := time.Now()
	var size, segments int64
	etcdproc.Eventually(t, "all is stored", func(context.Context) error {
		stored := int64(0)
		size, segments = 0, 0
		files, err := filepath.Glob(filepath.Join(dir, "store", "tail", "*", "*"))
		for _, file := range files {
			name, _, _ := strings.Cut(filepath.Base(file), ".")
			_, last, _ := strings.Cut(name, "-")
			revision, _ := strconv.ParseInt(last, 10, 64)
			stored = max(stored, revision)
			if info, err := os.Stat(file); err == nil {
				size, segments = size+info.Size(), segments+1
			}
		}
		if err == nil && stored < end {
			err = fmt.Errorf("%d of %d", stored, end)
		}
		return err
	})
	stored := time.Since(began)
	fmt.Printf("| the stream | %s | %d MiB stored in %d segments, the last %.1f s after the last put |\n",
		streaming.ends(), size>>20, segments, stored.Seconds())
	alone("without one")
	m.Kill()

	restored := filepath.Join(dir, "restored")
	into := []string{"--data-dir=" + restored, "--name=b", "--etcd-version=" + version, "--etcdutl=" + etcdutl,
		"--etcd=" + etcdproc.Program(t, version, "etcd"), "--marker=" + filepath.Join(dir, "none"),
		"--peer-url=http://127.0.0.1:3", "--url=file://" + filepath.Join(dir, "store", "one.db")}
	cluster, err := filepath.Glob(filepath.Join(dir, "store", "tail", "*"))
	require.NoError(t, err)
	require.Len(t, cluster, 1)
	for _, what := range []struct {
		name string
		line []string
	}{
		{"etcdutl snapshot restore, of the snapshot alone", []string{etcdutl, "snapshot", "restore",
			filepath.Join(dir, "store", "one.db"), "--data-dir=" + restored}},
		{"the snapshot alone", append([]string{*snapshotOf, "restore"}, into...)},
		{"with the changes", append([]string{*snapshotOf, "restore", "--tail-url=file://" + cluster[0],
			fmt.Sprint("--until-revision=", end)}, into...)},
	} {
		var took []time.Duration
		used := ""
		for range *snapshotRun {
			require.NoError(t, os.RemoveAll(restored))
			process := &tool{Cmd: exec.Command(what.line[0], what.line[1:]...)}
			process.Env = append(os.Environ(), "ETCD_INITIAL_CLUSTER=b=http://127.0.0.1:3", "ETCD_INITIAL_CLUSTER_TOKEN=t")
			process.Stdout, process.Stderr = &process.said, &process.said
			began := time.Now()
			require.NoError(t, process.Start())
			require.NoError(t, process.Wait(), "%s: %s", what.name, &process.said)
			took = append(took, time.Since(began))
			used = fmt.Sprintf("%.1f s of CPU | %d MiB resident at most",
				(process.ProcessState.UserTime() + process.ProcessState.SystemTime()).Seconds(),
				process.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10)
		}
		fmt.Printf("| %s | %.1f s (%.1f to %.1f) | %s |\n", what.name, percentile(took, 50).Seconds(),
			took[0].Seconds(), took[len(took)-1].Seconds(), used)
	}
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
		_ = client.Close()
		to.Kill()
	}
}

// lag puts the time under names that begin with a prefix for twenty seconds, and is how old it was when it was seen at
// the destination.
func lag(t *testing.T, source *etcdproc.Member, to *clientv3.Client, prefix string) (all []time.Duration) {
	t.Helper()
	const perSecond, n = 500, 20 * 500
	client := source.Client()
	defer client.Close()
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	seen := to.Watch(ctx, prefix, clientv3.WithPrefix())
	go func() {
		ticks := time.NewTicker(time.Second / perSecond)
		defer ticks.Stop()
		for i := range n {
			<-ticks.C
			if _, err := client.Put(ctx, fmt.Sprintf("%s-%03d", prefix, i%1000), fmt.Sprint(time.Now().UnixNano())); err != nil {
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
