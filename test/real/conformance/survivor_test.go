//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/seed"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// lazy makes a member's database lag behind its log: what is applied is written to the database every hour, not ten
// times a second.
var lazy = []string{"--backend-batch-interval=1h", "--backend-batch-limit=1000000"}

// programs are those of a version.
func programs(t *testing.T, version string) seed.Programs {
	return seed.Programs{Etcd: etcdproc.Program(t, version, "etcd"), Etcdutl: etcdproc.Program(t, version, "etcdutl")}
}

// survive starts a cluster of one from the directory of a member that is down, at a peer URL of its own unless one is
// given.
func survive(t *testing.T, version, name string, from *etcdproc.Member, bump int64, at ...string) (*etcdproc.Cluster,
	reports.Restore) {
	t.Helper()
	return surviveFrom(t, version, name, from.DataDir(), bump, at...)
}

// surviveFrom is survive with a directory.
func surviveFrom(t *testing.T, version, name, from string, bump int64, at ...string) (*etcdproc.Cluster,
	reports.Restore) {
	t.Helper()
	place, err := filepath.EvalSymlinks(from)
	require.NoError(t, err)
	before := tree(t, place)
	var report reports.Restore
	c := etcdproc.StartSeeded(t, version, name, 1, func(m *etcdproc.Member, initial, token string) {
		if len(at) > 0 {
			m.PeerURL, initial = at[0], m.Name+"="+at[0]
		}
		var err error
		report, err = seed.Restore(t.Context(), seed.Options{
			DataDir: m.DataDir(), Name: m.Name, PeerURL: m.PeerURL, InitialCluster: initial, Token: token,
			EtcdVersion: version, Programs: programs(t, version), BumpRevision: bump, FromData: from,
		})
		require.NoError(t, err)
	})
	require.Equal(t, before, tree(t, place), "the survivor's directory is as it was")
	return c, report
}

// tree is what a directory holds: sizes and times of its files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			files[path] = fmt.Sprint(info.Size(), info.ModTime())
		}
		return err
	}))
	return files
}

// put writes keys one after the other and returns the last revision.
func put(t *testing.T, client *clientv3.Client, prefix string, n int) int64 {
	t.Helper()
	var revision int64
	for i := range n {
		ctx, cancel := context.WithTimeout(t.Context(), etcdproc.Patience)
		r, err := client.Put(ctx, fmt.Sprintf("%s-%d", prefix, i), "value")
		cancel()
		require.NoError(t, err)
		revision = r.Header.Revision
	}
	return revision
}

// count is how many keys begin with a prefix.
func count(t *testing.T, client *clientv3.Client, prefix string) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), etcdproc.Patience)
	defer cancel()
	r, err := client.Get(ctx, prefix+"-", clientv3.WithPrefix(), clientv3.WithCountOnly())
	require.NoError(t, err)
	return r.Count
}

// leaderOf tells the leader from the others.
func leaderOf(t *testing.T, c *etcdproc.Cluster) (leader *etcdproc.Member, others []*etcdproc.Member) {
	t.Helper()
	m, _ := look(t, c.Endpoints())
	for _, member := range c.Members {
		if idOf(t, m, member) == m.Leader {
			leader = member
		} else {
			others = append(others, member)
		}
	}
	return leader, others
}

// TestSurvivorKeepsItsWholeLog: entries that no member knew to be committed may have been acknowledged by those that
// are gone.
func TestSurvivorKeepsItsWholeLog(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 3, lazy...)
		leader, followers := leaderOf(t, old)
		client := leader.Client()
		put(t, client, "known", 200)

		// The last entries reach the leader's log and no other.
		for _, f := range followers {
			f.Pause()
		}
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := client.Put(ctx, fmt.Sprintf("unknown-%d", i), "value")
			cancel()
			require.Error(t, err, "no follower acknowledged it")
		}
		_, err := seed.Survey(leader.DataDir(), "")
		require.ErrorContains(t, err, "in use", "it still runs")
		killAll(old)
		require.NoError(t, client.Close())

		found, err := seed.Survey(leader.DataDir(), "")
		require.NoError(t, err)
		unknown := found.LastIndex - found.Commit
		require.NotZero(t, unknown, "the tail is what no member knew to be committed: %+v", found)
		other, err := seed.Survey(followers[0].DataDir(), "")
		require.NoError(t, err)
		require.Less(t, other.LastIndex, found.LastIndex)
		require.Equal(t, other.ClusterID, found.ClusterID)
		require.NotEqual(t, other.MemberID, found.MemberID)

		fresh, report := survive(t, version, "fresh", leader, 0, leader.PeerURL)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		defer client.Close()
		require.EqualValues(t, 200, count(t, client, "known"))
		require.EqualValues(t, unknown, count(t, client, "unknown"))
		require.EqualValues(t, 201+unknown, report.Revision, "one for each write, from 1 on")
		require.EqualValues(t, 200+unknown, report.Keys)
		require.EqualValues(t, 202+unknown, put(t, client, "more", 1), "revisions go on")

		list, err := client.MemberList(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Members, 1)
		require.Equal(t, "fresh-0", list.Members[0].Name)
		require.NotEqual(t, found.ClusterID, strconv.FormatUint(list.Header.ClusterId, 16))
		hash, err := client.HashKV(t.Context(), fresh.Members[0].ClientURL, report.Revision)
		require.NoError(t, err)
		require.Equal(t, report.Hash, fmt.Sprintf("%08x", hash.Hash))

		// The others come back, and are two of three: their epoch goes on without knowing that it is over. Who starts
		// this one must have stopped them for good; but they can't meet the new cluster, which is another one.
		for _, f := range followers {
			f.Restart()
		}
		old.WaitServing(followers...)
		theirs := followers[0].Client()
		defer theirs.Close()
		put(t, theirs, "theirs", 1)
		require.Zero(t, count(t, client, "theirs"))
		list, err = client.MemberList(t.Context())
		require.NoError(t, err)
		require.Len(t, list.Members, 1)

		// Why it is not done by etcd's own --force-new-cluster.
		killAll(old)
		fresh.Members[0].Kill() // it has the same peer URL
		leader.RestartAlone()
		old.WaitServing(leader)
		forced := leader.Client()
		defer forced.Close()
		require.EqualValues(t, 200, count(t, forced, "known"))
		require.Zero(t, count(t, forced, "unknown"), "what was not known to be committed is gone")
	})
}

// TestSurvivorHasWhatWasAcknowledged: a follower that has an entry learns later, or never, that it is committed.
func TestSurvivorHasWhatWasAcknowledged(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 3)
		leader, followers := leaderOf(t, old)
		followers[1].Pause()
		client := leader.Client()
		revision := put(t, client, "acknowledged", 300)
		leader.Pause()
		killAll(old)
		require.NoError(t, client.Close())

		fresh, report := survive(t, version, "fresh", followers[0], 1000)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		defer client.Close()
		require.EqualValues(t, 300, count(t, client, "acknowledged"))
		require.Equal(t, revision+1000, report.Revision)
		require.Equal(t, revision+1001, put(t, client, "more", 1))
	})
}

// TestSurvivorKeepsAllKindsOfData: users and roles, leases, alarms, deletions, compactions, transactions on
// revisions, all of it in the log alone.
func TestSurvivorKeepsAllKindsOfData(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*etcdproc.Patience)
		defer cancel()
		old := etcdproc.Start(t, version, "old", 3, lazy...)
		leader, followers := leaderOf(t, old)
		followers[1].Pause() // so that the other one has all that is acknowledged
		client := leader.Client()
		put(t, client, "key", 100)
		lease, err := client.Grant(ctx, 3600)
		require.NoError(t, err)
		_, err = client.Put(ctx, "leased", "value", clientv3.WithLease(lease.ID))
		require.NoError(t, err)
		_, err = client.Delete(ctx, "key-1", clientv3.WithPrefix()) // and key-10 to key-19
		require.NoError(t, err)
		first, err := client.Get(ctx, "key-2")
		require.NoError(t, err)
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("key-2"), "=",
			first.Kvs[0].ModRevision)).Then(clientv3.OpPut("key-2", "changed")).Commit()
		require.NoError(t, err)
		require.True(t, done.Succeeded)
		_, err = client.Compact(ctx, done.Header.Revision)
		require.NoError(t, err)
		for _, user := range []string{"root", "alice"} {
			_, err = client.UserAdd(ctx, user, "secret")
			require.NoError(t, err)
		}
		_, err = client.UserGrantRole(ctx, "root", "root")
		require.NoError(t, err)
		_, err = client.AuthEnable(ctx)
		require.NoError(t, err)
		root := leader.ClientOf(clientv3.Config{Username: "root", Password: "secret"}, "")
		written, err := root.Put(ctx, "by-root", "value")
		require.NoError(t, err)
		_, err = clientv3.NewMaintenance(root).AlarmList(ctx)
		require.NoError(t, err)
		raw := etcdserverpb.NewMaintenanceClient(root.ActiveConnection())
		_, err = raw.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 7,
			Alarm: etcdserverpb.AlarmType_NOSPACE})
		require.NoError(t, err)
		require.NoError(t, root.Close())
		require.NoError(t, client.Close())
		killAll(old)

		fresh, report := survive(t, version, "fresh", followers[0], 0)
		require.Equal(t, written.Header.Revision, report.Revision)
		etcdproc.Eventually(t, "root logs in", func(ctx context.Context) error {
			root = fresh.Members[0].ClientOf(clientv3.Config{Username: "root", Password: "secret"}, "")
			_, err := root.Get(ctx, "by-root")
			if err != nil {
				err = errors.Join(err, root.Close())
			}
			return err
		})
		defer root.Close()
		nameless := fresh.Members[0].Client()
		defer nameless.Close()
		_, err = nameless.Get(ctx, "by-root")
		require.ErrorContains(t, err, "user name is empty", "users are enabled")
		require.EqualValues(t, 89, count(t, root, "key"))
		changed, err := root.Get(ctx, "key-2")
		require.NoError(t, err)
		require.Equal(t, "changed", string(changed.Kvs[0].Value))
		users, err := root.UserList(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"root", "alice"}, users.Users)
		left, err := root.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
		require.NoError(t, err)
		require.Greater(t, left.TTL, int64(3000))
		require.Equal(t, [][]byte{[]byte("leased")}, left.Keys)
		_, err = root.Get(ctx, "key-3", clientv3.WithRev(first.Header.Revision))
		require.ErrorContains(t, err, "compacted")
		alarms, err := root.AlarmList(ctx)
		require.NoError(t, err)
		require.Len(t, alarms.Alarms, 1)
		require.EqualValues(t, 7, alarms.Alarms[0].MemberID, "the alarm of a member that is gone is still there, "+
			"until it is disarmed")
		_, err = root.Put(ctx, "more", "value")
		require.ErrorContains(t, err, "space exceeded")
		_, err = root.AlarmDisarm(ctx, &clientv3.AlarmMember{})
		require.NoError(t, err)
		_, err = root.Put(ctx, "more", "value")
		require.NoError(t, err)
	})
}

// TestLearnerSurvives: etcd's own --force-new-cluster would leave it without a voter.
func TestLearnerSurvives(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1, lazy...)
		learner := old.NewMember("old-1")
		settle(t, old, decision.AddLearner{Name: learner.Name, PeerURL: learner.PeerURL})
		old.Join(learner, old.Members[0])
		client := old.Members[0].Client()
		revision := put(t, client, "key", 100)
		require.NoError(t, client.Close())
		copied := learner.Client()
		etcdproc.Eventually(t, "the learner has them", func(ctx context.Context) error {
			s, err := copied.Status(ctx, learner.ClientURL)
			if err == nil && s.Header.Revision < revision {
				err = fmt.Errorf("revision %d", s.Header.Revision)
			}
			return err
		})
		require.NoError(t, copied.Close())
		killAll(old)
		fresh, report := survive(t, version, "fresh", learner, 0)
		require.Equal(t, revision, report.Revision)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		defer client.Close()
		require.Equal(t, revision+1, put(t, client, "more", 1))
	})
}

// TestSurvivorThatWasSentADatabase: the leader had sent it one, and it was stopped before it took that up. The
// directory is put together: the database of before in its place, that of after as etcd leaves the one that was sent.
func TestSurvivorThatWasSentADatabase(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1, "--snapshot-count=100")
		member := old.Members[0]
		db := filepath.Join(member.DataDir(), "member", "snap", "db")
		client := member.Client()
		put(t, client, "before", 20)
		member.Stop()
		before, err := os.ReadFile(db)
		require.NoError(t, err)
		member.Restart()
		old.WaitServing(member)
		revision := put(t, client, "after", 300)
		require.NoError(t, client.Close())
		member.Stop()
		snapshots, err := filepath.Glob(filepath.Join(filepath.Dir(db), "*.snap"))
		require.NoError(t, err)
		require.NotEmpty(t, snapshots)
		newest := filepath.Base(snapshots[len(snapshots)-1]) // term-index.snap
		sent := filepath.Join(filepath.Dir(db), newest[17:33]+".snap.db")
		require.NoError(t, os.Rename(db, sent))
		require.NoError(t, os.WriteFile(db, before, 0o600))

		fresh, report := survive(t, version, "fresh", member, 0)
		require.Equal(t, revision, report.Revision)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		defer client.Close()
		require.EqualValues(t, 20, count(t, client, "before"))
		require.EqualValues(t, 300, count(t, client, "after"))

		// Without it there is a hole, over which nothing leads.
		require.NoError(t, os.Remove(sent))
		_, err = seed.Survey(member.DataDir(), "")
		require.Error(t, err)
		require.True(t, archive.Reasoned(err), "%v", err)
	})
}

// TestSurvivorWhoseEndIsTorn: the power went while the last entry was written. etcd would go on without it.
func TestSurvivorWhoseEndIsTorn(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1, lazy...)
		member := old.Members[0]
		client := member.Client()
		put(t, client, "whole", 50)
		_, err := client.Put(t.Context(), "torn-0", strings.Repeat("x", 100_000))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		member.Kill()
		logs, err := filepath.Glob(filepath.Join(member.DataDir(), "member", "wal", "*.wal"))
		require.NoError(t, err)
		raw, err := os.ReadFile(logs[0])
		require.NoError(t, err)
		end := bytes.LastIndexByte(raw, 'x') + 1
		clear(raw[end-50_000:])
		require.NoError(t, os.WriteFile(logs[0], raw, 0o600))

		before, err := seed.Survey(member.DataDir(), "")
		require.NoError(t, err)
		require.NotZero(t, before.LastIndex)
		fresh, _ := survive(t, version, "fresh", member, 0)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		defer client.Close()
		require.EqualValues(t, 50, count(t, client, "whole"))
		require.Zero(t, count(t, client, "torn"))
	})
}
