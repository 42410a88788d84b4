//go:build unix

package conformance

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/prepare"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestTheMarkOfPrepare: every release of etcd begins where quorate prepare has left its mark, and takes it away. So
// an empty directory with a mark is one that etcd has not begun in, and one without it was emptied (S10).
func TestTheMarkOfPrepare(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		disks := map[*etcdproc.Member]string{}
		prepares := func(m *etcdproc.Member) error {
			var c prepare.Command
			flags := flag.NewFlagSet("prepare", flag.ContinueOnError)
			c.Flags(flags)
			require.NoError(t, flags.Parse([]string{
				"--data-dir=" + m.DataDir(), "--marker=" + filepath.Join(disks[m], "started"),
				"--start=" + objects.StartBootstrap,
			}))
			return c.Run(t.Context())
		}
		c := etcdproc.StartSeeded(t, version, "demo", 3, func(m *etcdproc.Member, _, _ string) {
			disks[m] = t.TempDir()
			require.NoError(t, prepares(m))
			require.NoError(t, prepares(m), "the node is rebooted before etcd was there")
		})
		c.WaitServing(c.Members...)
		left, err := filepath.Glob(filepath.Join(c.Members[0].DataDir(), "member", "wal", "quorate-*"))
		require.NoError(t, err)
		require.Empty(t, left)
		lost := c.Members[0]
		lost.Kill()
		require.NoError(t, prepares(lost), "it has its data")
		lost.Wipe()
		require.ErrorIs(t, prepares(lost), prepare.ErrDataLost)
	})
}
