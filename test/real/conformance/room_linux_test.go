//go:build releases

package conformance

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestSurvivorOnASmallVolume: the log of a member takes several times what its database does. Only what is in no
// database yet is copied, so a volume on which the member ran has room for it.
func TestSurvivorOnASmallVolume(t *testing.T) {
	t.Parallel()
	const version = "3.6.16"
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m"); err != nil {
		t.Skipf("mounting takes root and its capabilities: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	old := etcdproc.Start(t, version, "old", 1)
	client := old.Members[0].Client()
	for i := range 160 {
		r, err := client.Put(t.Context(), "k", strings.Repeat(fmt.Sprint(i%10), 1<<20))
		require.NoError(t, err)
		if i%20 == 19 {
			_, err = client.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
			require.NoError(t, err)
		}
	}
	old.Members[0].Stop()
	log, err := filepath.Glob(filepath.Join(old.Members[0].DataDir(), "member", "wal", "*.wal"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(log), 3, "64 MiB each")
	o := once(t, dir, "", false)
	o.Fetch, o.FromData = nil, old.Members[0].DataDir()
	report, err := seed.Restore(t.Context(), o)
	require.NoError(t, err)
	require.EqualValues(t, 1, report.Keys)
}
