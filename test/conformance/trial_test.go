//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/test/conformance/etcdproc"
)

// TestFlippedLease: one byte of a lease flips on a member's disk. The member has its leases in memory and does not notice; etcd that starts on a
// snapshot of it panics. Such a snapshot is not verified.
func TestFlippedLease(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		m := c.Members[0]
		client := m.Client()
		defer client.Close()
		ctx, stop := context.WithTimeout(t.Context(), etcdproc.Patience)
		defer stop()
		lease, err := client.Grant(ctx, 3600)
		require.NoError(t, err)
		_, err = client.Put(ctx, "key", "value", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		o := order(t, version, t.TempDir(), m.ClientURL)
		_, err = archive.Take(ctx, o)
		require.NoError(t, err)
		discard(t, o)

		flip(t, filepath.Join(m.DataDir(), "member", "snap", "db"), lease.ID)
		report, err := archive.Take(ctx, o)
		require.Error(t, err, "etcd panics on it")
		require.Equal(t, archive.Damaged, archive.ReasonOf(err), "%v", err)
		require.True(t, report.VerifiedAt.IsZero())
	})
}

// flip changes a byte of a lease wherever it stands in a database: the first of its value, which names a field of leasepb.Lease.
func flip(t *testing.T, file string, lease clientv3.LeaseID) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	name := append(binary.BigEndian.AppendUint64(nil, uint64(lease)), 0x08) // ID, the first field, is a number
	flipped := 0
	for at := bytes.Index(raw, name); at >= 0; at = bytes.Index(raw, name) {
		_, err := f.WriteAt([]byte{0x0f}, int64(at+8)) // a wire type that there is not
		require.NoError(t, err)
		raw[at+8], flipped = 0x0f, flipped+1
	}
	require.NotZero(t, flipped)
}
