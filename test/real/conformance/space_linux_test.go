package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
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
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

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
	return fmt.Sprintf("%s of %s, values of %d, %s", f.size, f.kind, f.value, how)
}

// TestNoSpaceComesFirst: with our flags, and what runs beside etcd, a volume of any size that a spec may have is never
// full: the alarm NOSPACE comes first, however large values are; and where it does not come, as all is compacted that
// is written, neither does the end of the volume.
func TestNoSpaceComesFirst(t *testing.T) {
	const largest = 3<<19 - 512 // of a request of etcd's, with its key and what is around it
	all := []filling{{"512Mi", "tmpfs", largest, false}, {"512Mi", "tmpfs", largest, true}}
	if *long {
		all = nil
		for _, kind := range []string{"tmpfs", "ext4", "xfs"} {
			for _, size := range []string{"512Mi", "1Gi", "2Gi"} {
				for _, value := range []int{100, 8 << 10, 64 << 10, 1 << 20, largest} {
					all = append(all, filling{size, kind, value, false})
				}
				all = append(all, filling{size, kind, 8 << 10, true}, filling{size, kind, largest, true})
			}
		}
	}
	for _, version := range etcdproc.Versions {
		for _, f := range all {
			if f.value == 100 && f.size != "512Mi" {
				continue // hours
			}
			t.Run(version+" "+f.String(), func(t *testing.T) { fills(t, version, f) })
		}
	}
}

// fills fills a volume, and has it defragmented when it is full.
func fills(t *testing.T, version string, f filling) {
	size := resource.MustParse(f.size)
	asked := v1alpha1.EtcdClusterSpec{TLS: v1alpha1.TLSSpec{Mode: v1alpha1.TLSDisabled},
		Storage: v1alpha1.StorageSpec{Medium: v1alpha1.Persistent, Size: size}}
	if f.kind == "tmpfs" {
		asked.Storage.Medium = v1alpha1.Memory
	}
	mounts := func(m *etcdproc.Member, _, _ string) { mountVolume(t, f, m.DataDir()) }
	c := etcdproc.StartSeeded(t, version, "demo", 1, mounts, flagsOf(t, version, asked)...)
	m := c.Members[0]
	c.WaitServing(m)
	runBeside(t, m)
	least := watchFree(t, m.DataDir())

	written, err := writeAll(t, m, f, size.Value())
	if f.over {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	}
	require.True(t, m.Running(), "etcd lives")
	client := m.Client()
	status, err := client.Status(t.Context(), m.ClientURL)
	require.NoError(t, err)
	_, err = client.Defragment(t.Context(), m.ClientURL)
	require.NoError(t, err)
	require.True(t, m.Running(), "etcd lives")
	assert.Positive(t, least.Load())
	quota := spec.QuotaOn(asked.Options, spec.RoomFor(&asked))
	t.Logf("| %s | %s | %s | %d | %v | %d MiB | %d MiB | %d MiB | %d MiB |", version, f.kind, f.size, f.value, f.over,
		quota>>20, written>>20, status.DbSize>>20, least.Load()>>20)
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

// beside runs what runs beside etcd in its pod.
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

// watchFree keeps the least room that was ever left.
func watchFree(t *testing.T, dir string) *atomic.Int64 {
	var least atomic.Int64
	least.Store(1 << 62)
	go func() {
		for t.Context().Err() == nil {
			var s unix.Statfs_t
			if unix.Statfs(dir, &s) == nil {
				least.Store(min(least.Load(), int64(s.Bavail)*s.Bsize))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return &least
}

// filler writes as a filling says.
type filler struct {
	filling
	text           string
	count, written atomic.Int64
}

// writeAll writes by a few clients at once, and returns how many bytes were taken, and the first error.
func writeAll(t *testing.T, m *etcdproc.Member, f filling, size int64) (int64, error) {
	clients := 4
	if f.value < 1<<10 {
		clients = 100
	}
	w := &filler{filling: f, text: strings.Repeat("x", f.value)}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	var all sync.WaitGroup
	for i := range clients {
		client := m.Client()
		all.Go(func() {
			for ctx.Err() == nil && (!f.over || w.written.Load() < 2*size) {
				if err := w.one(ctx, client, i); err != nil {
					stop(err)
				}
			}
		})
	}
	all.Wait()
	return w.written.Load(), context.Cause(ctx)
}

// one writes one value.
func (w *filler) one(ctx context.Context, client *clientv3.Client, number int) error {
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
	if w.over && n%4 == 0 {
		_, err = client.Compact(ctx, answer.Header.Revision-1)
	}
	if errors.Is(err, rpctypes.ErrCompacted) { // another client was faster
		return nil
	}
	return err
}
