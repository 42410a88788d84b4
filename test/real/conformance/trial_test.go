//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestFlippedLease: one byte of a lease flips on a member's disk. The member has its leases in memory and does not
// notice; etcd that starts on a snapshot of it panics. Such a snapshot is not verified.
func TestFlippedLease(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		m := c.Members[0]
		client := m.Client()
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

		// ID, the first field of leasepb.Lease, is a number
		flip(t, m, binary.BigEndian.AppendUint64(nil, uint64(lease.ID)), 0x08)
		report, err := archive.Take(ctx, o)
		require.Error(t, err, "etcd panics on it")
		require.Equal(t, archive.Differs, archive.ReasonOf(err), "%v", err)
		require.True(t, report.VerifiedAt.IsZero())
	})
}

// TestTrialOfAllKinds: a cluster with users, leases and an alarm, half of whose history is compacted, is restored on
// trial as one of keys alone; and a role that etcd can't read is found.
func TestTrialOfAllKinds(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		s := startSecured(t, version, "demo", 3, simple)
		s.applyAll(t, wantOf([]users.RoleWant{role("reader", permit(v1alpha1.Read, "a", "b"))},
			users.UserWant{Name: "app", Roles: []string{"reader"}, Password: password("app", "1"), Applied: "1"}))
		client := s.client(clientv3.Config{}, "root")
		ctx, stop := context.WithTimeout(t.Context(), 2*etcdproc.Patience)
		defer stop()
		lease, err := client.Grant(ctx, 3600)
		require.NoError(t, err)
		for i := range 50 {
			_, err = client.Put(ctx, fmt.Sprint("key-", i%30), "value", clientv3.WithLease(lease.ID))
			require.NoError(t, err)
		}
		_, err = client.Compact(ctx, 20, clientv3.WithCompactPhysical())
		require.NoError(t, err)
		_, err = etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &etcdserverpb.AlarmRequest{
			Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE, MemberID: 7,
		})
		require.NoError(t, err)
		o := order(t, version, t.TempDir(), s.Members[0].ClientURL)
		o.Cluster.TLS = s.ca.Client("root")
		report, err := archive.Take(ctx, o)
		require.NoError(t, err)
		require.EqualValues(t, 30, report.Keys)
		require.Greater(t, report.AuthRevision, int64(1))
		require.NotEmpty(t, report.HashOf)
		require.NotEqual(t, report.Member, report.HashOf)
		discard(t, o)

		for _, m := range s.Members {
			flip(t, m, []byte("reader"), 0x0a) // name, the first field of authpb.Role, is bytes
		}
		_, err = archive.Take(ctx, o)
		require.Equal(t, archive.Differs, archive.ReasonOf(err), "%v", err)
	})
}

// flip changes the first byte of a record's value to a type of field that there is not, wherever the record stands in
// the database of a member that runs.
func flip(t *testing.T, m *etcdproc.Member, name []byte, first byte) {
	t.Helper()
	file := filepath.Join(m.DataDir(), "member", "snap", "db")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer f.Close()
	flipped := 0
	for record := append(name, first); ; flipped++ {
		at := bytes.Index(raw, record)
		if at < 0 {
			break
		}
		at += len(name)
		_, err := f.WriteAt([]byte{0x0f}, int64(at))
		require.NoError(t, err)
		raw[at] = 0x0f
	}
	require.NotZero(t, flipped)
}
