//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// live writes, deletes and compacts at random, so that histories differ in all ways that count.
func live(t *testing.T, m *etcdproc.Member, seed uint64, steps int) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 7))
	client := m.Client()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	compacted := int64(0)
	for range steps {
		key := fmt.Sprint("key-", random.IntN(40))
		var revision int64
		switch random.IntN(10) {
		case 0, 1, 2:
			answer, err := client.Delete(ctx, key)
			require.NoError(t, err)
			revision = answer.Header.Revision
		case 3:
			answer, err := client.Txn(ctx).Then(clientv3.OpPut(key, "in a transaction"),
				clientv3.OpDelete("no-such-key"), clientv3.OpPut("other", key)).Commit()
			require.NoError(t, err)
			revision = answer.Header.Revision
		default:
			answer, err := client.Put(ctx, key, fmt.Sprint(random.Uint64()))
			require.NoError(t, err)
			revision = answer.Header.Revision
		}
		if at := revision - int64(random.IntN(30)); random.IntN(60) == 0 && at > compacted {
			_, err := client.Compact(ctx, at, clientv3.WithCompactPhysical())
			require.NoError(t, err)
			compacted = at
		}
	}
}

func order(t *testing.T, version, dir string, endpoints ...string) archive.Order {
	programs := seed.Programs{Etcd: etcdproc.Program(t, version, "etcd"), Etcdutl: etcdproc.Program(t, version, "etcdutl")}
	return archive.Order{
		Cluster: archive.Cluster{Endpoints: endpoints},
		Place:   archive.Place{URL: "file:///backups", Dir: dir},
		Key:     "demo.db.zst.age", Form: archive.Form{Compression: v1beta1.CompressZstd},
		Verify: true, Etcd: programs.Etcd, Restore: programs.OnTrial,
		Scratch: scratch(t),
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
}

// A snapshot is taken from a follower, verified without an identity, and read back with one. What the database
// says of itself is what etcd says: hash, revision and keys.
func TestSnapshot(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3)
		leader, _ := leaderAndFollowers(t, c)
		dir := t.TempDir()
		o := order(t, version, dir, leader.ClientURL)
		identity, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		o.Form.Recipients = []age.Recipient{identity.Recipient()}

		for seed := range uint64(6) {
			live(t, leader, seed, int(seed)*50)
			etcdproc.Eventually(t, "all have everything", func(ctx context.Context) error { return level(ctx, c) })
			discard(t, o)
			report, err := archive.Take(context.Background(), o)
			require.NoError(t, err)
			assert.NotEqual(t, leader.Name, report.Member)
			assert.Equal(t, version, report.EtcdVersion)
			require.False(t, report.VerifiedAt.IsZero())
			revision, compacted, keys, hash := says(t, leader)
			assert.Equal(t, revision, report.Revision)
			assert.Equal(t, max(compacted, 0), report.CompactRevision)
			assert.Equal(t, keys, report.Keys)
			assert.Equal(t, hash, report.Hash)
			assert.Equal(t, keys, report.Contents.Total.Keys)
			assert.Empty(t, report.Contents.Prefixes, "names of keys are for those who can decrypt it")
		}
		left, err := os.ReadDir(o.Scratch)
		require.NoError(t, err)
		assert.Empty(t, left, "verification leaves nothing behind")

		identities := filepath.Join(t.TempDir(), "identity")
		require.NoError(t, os.WriteFile(identities, []byte(identity.String()+"\n"), 0o600))
		holds, err := archive.ContentsOf(t.Context(), o.Place, o.Key, identities)
		require.NoError(t, err)
		assert.Positive(t, holds.Total.Revisions)
		assert.Positive(t, holds.InUse)
		_, err = archive.ContentsOf(t.Context(), o.Place, o.Key, "")
		assert.Equal(t, archive.WrongKey, archive.ReasonOf(err))
		fetched := filepath.Join(t.TempDir(), "fetched.db")
		record, err := archive.Fetch(context.Background(), archive.Source{URL: "file:///backups/demo.db.zst.age",
			StoreDir: dir, IdentityFile: identities}, fetched)
		require.NoError(t, err)
		contents, err := archive.Examine(context.Background(), fetched)
		require.NoError(t, err)
		assert.Equal(t, record.Hash, contents.Hash)

		again, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		assert.Equal(t, record.Completed, again.Completed, "what is there is not taken twice")
		discard(t, o)
		o.Unless = &archive.Unless{Revision: record.Revision, ClusterID: record.ClusterID,
			AuthRevision: record.AuthRevision}
		skipped, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		assert.True(t, skipped.Skipped)
		client := leader.Client()
		_, err = client.RoleAdd(context.Background(), "reader")
		require.NoError(t, err)
		changed, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		assert.False(t, changed.Skipped, "a role more, and the keys are as they were")
		assert.Equal(t, record.Revision, changed.Revision)
		assert.Greater(t, changed.AuthRevision, record.AuthRevision)
	})
}

// An etcd that Quorate does not run: its users are on, its certificates are for another name than the endpoints have,
// and it advertises URLs that were not allowed.
func TestSnapshotOfAnother(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ca := etcdproc.NewAuthority(t)
		c := etcdproc.StartTLS(t, version, "demo", 3, ca)
		root := c.Members[0].Client()
		_, err := root.UserAdd(t.Context(), "root", "secret")
		require.NoError(t, err)
		_, err = root.UserGrantRole(t.Context(), "root", "root")
		require.NoError(t, err)
		_, err = root.AuthEnable(t.Context())
		require.NoError(t, err)

		o := order(t, version, t.TempDir())
		for _, m := range c.Members[:2] {
			o.Cluster.Endpoints = append(o.Cluster.Endpoints, strings.Replace(m.ClientURL, "127.0.0.1", "localhost", 1))
		}
		o.Cluster.OnlyEndpoints = true
		o.Cluster.TLS = ca.Client("stranger")
		o.Cluster.Username, o.Cluster.Password = "root", "secret"
		_, err = archive.Take(context.Background(), o)
		require.Equal(t, archive.Unreachable, archive.ReasonOf(err), "no certificate is for that name: %v", err)
		o.Cluster.TLS.ServerName = "127.0.0.1"
		report, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		assert.NotEqual(t, c.Members[2].Name, report.Member)
		assert.NotEqual(t, c.Members[2].Name, report.HashOf)
		assert.False(t, report.VerifiedAt.IsZero())
		discard(t, o)
		o.Cluster.Password = "wrong"
		_, err = archive.Take(context.Background(), o)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "wrong")
	})
}

// What etcdctl saved is taken, and holds what is stored without compression and encryption. The files differ: etcd
// writes to its database at times without a request, and leaves pages free.
func TestSnapshotByEtcdctl(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		live(t, c.Members[0], 1, 200)
		dir := t.TempDir()
		saved := filepath.Join(dir, "saved.db")
		out, err := exec.Command(etcdproc.Program(t, version, "etcdctl"), "--endpoints="+c.Members[0].ClientURL,
			"snapshot", "save", saved).CombinedOutput()
		require.NoError(t, err, "%s", out)
		fetched := filepath.Join(t.TempDir(), "fetched.db")
		_, err = archive.Fetch(context.Background(), archive.Source{URL: "file:///saved.db", StoreDir: dir}, fetched)
		require.NoError(t, err)

		o := order(t, version, dir, c.Members[0].ClientURL)
		o.Key, o.Form.Compression = "plain.db", v1beta1.CompressNone
		report, err := archive.Take(context.Background(), o)
		require.NoError(t, err)
		assert.Equal(t, c.Members[0].Name, report.Member, "the leader, when no other member is there")
		plain, err := archive.Examine(context.Background(), filepath.Join(dir, "backups", "plain.db"))
		require.NoError(t, err)
		old, err := archive.Examine(context.Background(), fetched)
		require.NoError(t, err)
		plain.Free = old.Free // etcd writes at times without a request, to other pages
		assert.Equal(t, old, plain)
		status, err := exec.Command(etcdproc.Program(t, version, "etcdutl"), "snapshot", "status",
			filepath.Join(dir, "backups", "plain.db")).CombinedOutput()
		require.NoError(t, err, "%s", status)
		assert.True(t, bytes.Contains(status, fmt.Append(nil, report.Revision)), "%s", status)
	})
}

// scratch is a directory whose path leaves room for that of a socket.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "q")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// discard makes room for another snapshot under the same name.
func discard(t *testing.T, o archive.Order) {
	t.Helper()
	require.NoError(t, archive.Discard(context.Background(), o.Place, o.Key))
}

// level fails until all members have the same revision.
func level(ctx context.Context, c *etcdproc.Cluster) error {
	seen := map[int64]bool{}
	for _, m := range c.Members {
		client := m.Client()
		status, err := client.Status(ctx, m.ClientURL)
		_ = client.Close()
		if err != nil {
			return err
		}
		seen[status.Header.Revision] = true
	}
	return while(len(seen) > 1, "revisions differ: %v", seen)
}

// says is what etcd itself says of its keys.
func says(t *testing.T, m *etcdproc.Member) (revision, compacted, keys int64, hash string) {
	t.Helper()
	client := m.Client()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	count, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly())
	require.NoError(t, err)
	answer, err := client.HashKV(ctx, m.ClientURL, count.Header.Revision)
	require.NoError(t, err)
	return count.Header.Revision, answer.CompactRevision, count.Count, fmt.Sprintf("%08x", answer.Hash)
}

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
		s.applyAll(t, wantOf([]users.RoleWant{role("reader", permit(v1beta1.Read, "a", "b"))},
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
