package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/etcdops/trim"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// largest is how large a value may be in a request of etcd's, with its key and what is around it.
const largest = 3<<19 - 512

var long = flag.Bool("long", false, "fill volumes of all kinds, for docs/evidence/volumes.md: half an hour, as root")

// filling is how a volume is filled.
type filling struct {
	size, kind string
	value      int
	// over writes over a few keys for as long as it takes to write the volume's size twice, and compacts all the
	// time; else each value gets its own key, until etcd refuses one.
	over bool
}

func (f filling) String() string {
	how := "new keys"
	if f.over {
		how = "the same keys, compacted"
	}
	return fmt.Sprintf("%s of %s, values of %s, %s", f.size, f.kind, f.words(), how)
}

func (f filling) words() string {
	return map[int]string{100: "100 bytes", 8 << 10: "8 KiB", 64 << 10: "64 KiB", largest: "1.5 MiB"}[f.value]
}

// TestNoSpaceComesFirst: with our flags, and what runs beside etcd, a volume of any size that a spec may have is never
// full: the alarm NOSPACE comes first, however large values are; and where it does not come, as all is compacted that
// is written, neither does the end of the volume.
func TestNoSpaceComesFirst(t *testing.T) {
	all := []filling{{"512Mi", "tmpfs", largest, false}, {"512Mi", "tmpfs", largest, true}}
	if *long {
		all = nil
		for _, kind := range []string{"tmpfs", "ext4", "xfs"} {
			for _, size := range []string{"512Mi", "1Gi", "2Gi"} {
				for _, value := range []int{100, 8 << 10, 64 << 10, largest} {
					all = append(all, filling{size, kind, value, false}, filling{size, kind, value, true})
				}
			}
		}
	}
	for _, version := range etcdproc.Versions {
		for _, f := range all {
			t.Run(version+" "+f.String(), func(t *testing.T) { fills(t, version, f) })
		}
	}
}

// fills fills a volume, and has it defragmented when it is full.
func fills(t *testing.T, version string, f filling) {
	size := resource.MustParse(f.size)
	asked := v1beta1.EtcdClusterSpec{TLS: v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled},
		Storage: v1beta1.StorageSpec{Medium: v1beta1.Persistent, Size: size}}
	if f.kind == "tmpfs" {
		asked.Storage.Medium = v1beta1.Memory
	}
	mounts := func(m *etcdproc.Member, _, _ string) { mountVolume(t, f, m.DataDir()) }
	c := etcdproc.StartSeeded(t, version, "demo", 1, mounts, flagsOf(t, version, asked)...)
	m := c.Members[0]
	c.WaitServing(m)
	runBeside(t, m)
	least := watchFree(t, m.DataDir())

	w := &filler{filling: f, text: strings.Repeat("x", f.value), until: 2 * size.Value()}
	alarms, database := 0, int64(0)
	for {
		err := w.write(t.Context(), m)
		require.True(t, m.Running(), "etcd lives")
		status, err2 := m.Client().Status(t.Context(), m.ClientURL)
		require.NoError(t, err2)
		database = max(database, status.DbSize)
		if errors.Is(err, errDone) {
			break
		}
		require.ErrorIs(t, err, rpctypes.ErrNoSpace)
		alarms++
		makeRoom(t, m, status.Header.Revision)
		if !f.over {
			break
		}
	}
	require.True(t, m.Running(), "etcd lives")
	assert.Positive(t, least.Load())
	quota := defaults.QuotaOn(asked.Options, defaults.RoomFor(&asked))
	t.Logf("| %s | %s of %s | %s | %v | %d | %d | %d | %d | %d |", version, f.size, f.kind, f.words(), f.over,
		quota>>20, w.written.Load()>>20, database>>20, alarms, least.Load()>>20)
}

// makeRoom does what Quorate does after the alarm NOSPACE, where what is in the database is old: see
// hooks/rules/alarms.go.
func makeRoom(t *testing.T, m *etcdproc.Member, revision int64) {
	client := m.Client()
	if _, err := client.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		require.ErrorIs(t, err, rpctypes.ErrCompacted)
	}
	_, err := client.Defragment(t.Context(), m.ClientURL)
	require.NoError(t, err)
	_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)
}

// TestStartsFromATrimmedLog: a member that ends or is killed while its log is shortened starts from what is left, and
// has all that it has promised.
func TestStartsFromATrimmedLog(t *testing.T) {
	kills := 2
	if *long {
		kills = 20
	}
	asked := v1beta1.EtcdClusterSpec{TLS: v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled},
		Storage: v1beta1.StorageSpec{Medium: v1beta1.Memory, Size: resource.MustParse("1Gi")}}
	for _, version := range etcdproc.Versions {
		t.Run(version, func(t *testing.T) {
			c := etcdproc.Start(t, version, "demo", 1, flagsOf(t, version, asked)...)
			m := c.Members[0]
			runBeside(t, m)
			w := &filler{filling: filling{value: largest, over: true}, text: strings.Repeat("x", largest), until: 1 << 62}
			for i := range kills {
				end := m.Kill
				if i%2 == 1 {
					end = m.Stop
				}
				ctx, ended := context.WithCancel(t.Context())
				time.AfterFunc(2*time.Second+time.Duration(i)*61*time.Millisecond, func() {
					end()
					ended()
				})
				_ = w.write(ctx, m)
				<-ctx.Done()
				m.Restart()
				c.WaitServing(m)
				status, err := m.Client().Status(t.Context(), m.ClientURL)
				require.NoError(t, err)
				require.GreaterOrEqual(t, status.Header.Revision, w.promised.Load())
			}
			t.Logf("%s: %d kills, %d MiB written", version, kills, w.written.Load()>>20)
		})
	}
}

// mountVolume mounts a volume of this kind at the directory.
func mountVolume(t *testing.T, f filling, dir string) {
	size := resource.MustParse(f.size)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	if f.kind == "tmpfs" {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size.Value())); err != nil {
			t.Skipf("mounting takes root and its capabilities: %v", err)
		}
	} else {
		image := filepath.Join(t.TempDir(), "volume")
		file, err := os.Create(image)
		require.NoError(t, err)
		require.NoError(t, errors.Join(file.Truncate(size.Value()), file.Close()))
		for _, command := range []string{"mkfs." + f.kind + " -q " + image, "mount -o loop " + image + " " + dir} {
			if f.kind == "ext4" { // as the kubelet makes it
				command = strings.Replace(command, "-q", "-q -m0", 1)
			}
			words := strings.Fields(command)
			out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
			require.NoError(t, err, string(out))
		}
		_ = os.Remove(filepath.Join(dir, "lost+found"))
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// runBeside runs what runs beside etcd in its pod.
func runBeside(t *testing.T, m *etcdproc.Member) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		trim.Run(ctx, []string{"--data-dir=" + m.DataDir()}, io.Discard)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// watchFree keeps the least room that was ever left. What xfs has allocated behind the ends of files counts as free: it
// is given back when the volume is full.
func watchFree(t *testing.T, dir string) *atomic.Int64 {
	var least atomic.Int64
	least.Store(1 << 62)
	go func() {
		for t.Context().Err() == nil {
			var s unix.Statfs_t
			if unix.Statfs(dir, &s) == nil {
				least.Store(min(least.Load(), int64(s.Bavail)*s.Bsize+behindEnds(dir)))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return &least
}

func behindEnds(dir string) int64 {
	var all int64
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		var s unix.Stat_t
		if unix.Stat(path, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFREG {
			all += max(0, s.Blocks*512-(s.Size+s.Blksize-1)/s.Blksize*s.Blksize)
		}
		return nil
	})
	return all
}

// errDone is the end of a filling that writes over keys, or takes too long with small values.
var errDone = errors.New("done")

// filler writes as a filling says, up to so many bytes where it writes over keys.
type filler struct {
	filling
	text  string
	until int64
	// count is of values that were sent, written the bytes that were taken, and promised their last revision.
	count, written, promised atomic.Int64
}

// write writes by a few clients at once, and returns the first error.
func (w *filler) write(ctx context.Context, m *etcdproc.Member) error {
	clients := 4
	if w.value < 1<<10 {
		clients = 100
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if w.over || w.value < 1<<10 {
		enough := time.AfterFunc(time.Minute, func() { stop(errDone) })
		defer enough.Stop()
	}
	var all sync.WaitGroup
	for i := range clients {
		client := m.Client()
		all.Go(func() {
			for ctx.Err() == nil {
				if err := w.one(ctx, client, i); err != nil {
					stop(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// one writes one value.
func (w *filler) one(ctx context.Context, client *clientv3.Client, number int) error {
	if w.over && w.written.Load() >= w.until {
		return errDone
	}
	n := w.count.Add(1)
	key := fmt.Sprint("key-", n)
	if w.over {
		key = fmt.Sprint("key-", number)
	}
	answer, err := client.Put(ctx, key, w.text)
	if err != nil {
		return err
	}
	w.written.Add(int64(w.value))
	for p := w.promised.Load(); p < answer.Header.Revision && !w.promised.CompareAndSwap(p, answer.Header.Revision); {
		p = w.promised.Load()
	}
	if w.over && n%4 == 0 {
		_, err = client.Compact(ctx, answer.Header.Revision-1)
	}
	if errors.Is(err, rpctypes.ErrCompacted) { // another client was faster
		return nil
	}
	return err
}
