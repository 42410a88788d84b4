//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/rescue"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// lazy makes a member's database lag behind its log: what is applied is written to the database every hour, not ten
// times a second.
var lazy = []string{"--backend-batch-interval=1h", "--backend-batch-limit=1000000"}

// programs are those of a version.
func programs(t *testing.T, version string) seed.Programs {
	return seed.Programs{Etcd: etcdproc.Program(t, version, "etcd"), Etcdutl: etcdproc.Program(t, version, "etcdutl")}
}

// seeded starts a cluster whose members are filled as these options say, each at its own place. It may not serve yet.
func seeded(t *testing.T, version, name string, n int, o seed.Options) (*etcdproc.Cluster, []stores.Restore) {
	t.Helper()
	var told []stores.Restore
	c := etcdproc.StartSeeded(t, version, name, n, func(m *etcdproc.Member, initial, token string) {
		report, err := seed.Restore(t.Context(), of(t, version, o, m, initial, token))
		require.NoError(t, err)
		told = append(told, report)
	})
	return c, told
}

// of are the options for a member of a new cluster of this version.
func of(t *testing.T, version string, o seed.Options, m *etcdproc.Member, initial, token string) seed.Options {
	t.Helper()
	o.DataDir = m.DataDir()
	o.Name = m.Name
	o.PeerURL = m.PeerURL
	o.InitialCluster = initial
	o.Token = token
	o.EtcdVersion = version
	o.Programs = programs(t, version)
	return o
}

// survive starts a cluster of one from the directory of a member that is down, at a peer URL of its own unless one is
// given.
func survive(t *testing.T, version, name string, from *etcdproc.Member, after *int64, at ...string) (*etcdproc.Cluster,
	stores.Restore) {
	t.Helper()
	return surviveFrom(t, version, name, from.DataDir(), after, at...)
}

// surviveFrom is survive with a directory.
func surviveFrom(t *testing.T, version, name, from string, after *int64, at ...string) (*etcdproc.Cluster,
	stores.Restore) {
	t.Helper()
	place, err := filepath.EvalSymlinks(from)
	require.NoError(t, err)
	before := tree(t, place)
	var report stores.Restore
	c := etcdproc.StartSeeded(t, version, name, 1, func(m *etcdproc.Member, initial, token string) {
		if len(at) > 0 {
			m.PeerURL, initial = at[0], m.Name+"="+at[0]
		}
		var err error
		report, err = seed.Restore(t.Context(), of(t, version, seed.Options{BeginAfter: after, FromData: from}, m,
			initial, token))
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

// TestSurvivorKeepsItsWholeLog: entries that no member knew to be committed may have been acknowledged by those that
// are gone.
func TestSurvivorKeepsItsWholeLog(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 3, lazy...)
		leader, followers := leaderAndFollowers(t, old)
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
		_, err := seed.Inspection(leader.DataDir(), "")
		require.ErrorContains(t, err, "in use", "it still runs")
		killAll(old)

		found, err := seed.Inspection(leader.DataDir(), "")
		require.NoError(t, err)
		unknown := found.LastIndex - found.Commit
		require.NotZero(t, unknown, "the tail is what no member knew to be committed: %+v", found)
		other, err := seed.Inspection(followers[0].DataDir(), "")
		require.NoError(t, err)
		require.Less(t, other.LastIndex, found.LastIndex)
		require.Equal(t, other.ClusterID, found.ClusterID)
		require.NotEqual(t, other.MemberID, found.MemberID)

		fresh, report := survive(t, version, "fresh", leader, nil, leader.PeerURL)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
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
		require.EqualValues(t, 200, count(t, forced, "known"))
		require.Zero(t, count(t, forced, "unknown"), "what was not known to be committed is gone")
	})
}

// TestSurvivorHasWhatWasAcknowledged: a follower that has an entry learns later, or never, that it is committed.
func TestSurvivorHasWhatWasAcknowledged(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 3)
		leader, followers := leaderAndFollowers(t, old)
		followers[1].Pause()
		client := leader.Client()
		revision := put(t, client, "acknowledged", 300)
		leader.Pause()
		killAll(old)

		fresh, report := survive(t, version, "fresh", followers[0], new(int64))
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		require.EqualValues(t, 300, count(t, client, "acknowledged"))
		require.Equal(t, revision+seed.BeginGap, report.Revision)
		require.Equal(t, revision+seed.BeginGap+1, put(t, client, "more", 1))
	})
}

// TestSurvivorKeepsAllKindsOfData: users and roles, leases, alarms, deletions, compactions, transactions on
// revisions, all of it in the log alone.
func TestSurvivorKeepsAllKindsOfData(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*etcdproc.Patience)
		defer cancel()
		old := etcdproc.Start(t, version, "old", 3, lazy...)
		leader, followers := leaderAndFollowers(t, old)
		followers[1].Pause() // so that the other one has all that is acknowledged
		client := leader.Client()
		put(t, client, "key", 100)
		lease, err := client.Grant(ctx, 3600)
		require.NoError(t, err)
		ok := done(t)
		ok(client.Put(ctx, "leased", "value", clientv3.WithLease(lease.ID)))
		_, err = client.Delete(ctx, "key-1", clientv3.WithPrefix()) // and key-10 to key-19
		require.NoError(t, err)
		first, err := client.Get(ctx, "key-2")
		require.NoError(t, err)
		done, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("key-2"), "=",
			first.Kvs[0].ModRevision)).Then(clientv3.OpPut("key-2", "changed")).Commit()
		require.NoError(t, err)
		require.True(t, done.Succeeded)
		ok(client.Compact(ctx, done.Header.Revision))
		for _, user := range []string{"root", "alice"} {
			ok(client.UserAdd(ctx, user, "secret"))
		}
		ok(client.UserGrantRole(ctx, "root", "root"))
		ok(client.AuthEnable(ctx))
		root := leader.ClientOf(clientv3.Config{Username: "root", Password: "secret"}, "")
		written, err := root.Put(ctx, "by-root", "value")
		require.NoError(t, err)
		ok(clientv3.NewMaintenance(root).AlarmList(ctx))
		raw := etcdserverpb.NewMaintenanceClient(root.ActiveConnection())
		_, err = raw.Alarm(ctx, &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 7,
			Alarm: etcdserverpb.AlarmType_NOSPACE})
		require.NoError(t, err)
		killAll(old)

		fresh, report := survive(t, version, "fresh", followers[0], nil)
		require.Equal(t, written.Header.Revision, report.Revision)
		etcdproc.Eventually(t, "root logs in", func(ctx context.Context) error {
			root = fresh.Members[0].ClientOf(clientv3.Config{Username: "root", Password: "secret"}, "")
			_, err := root.Get(ctx, "by-root")
			if err != nil {
				err = errors.Join(err, root.Close())
			}
			return err
		})
		nameless := fresh.Members[0].Client()
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
		ok(root.AlarmDisarm(ctx, &clientv3.AlarmMember{}))
		ok(root.Put(ctx, "more", "value"))
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
		copied := learner.Client()
		etcdproc.Eventually(t, "the learner has them", func(ctx context.Context) error {
			s, err := copied.Status(ctx, learner.ClientURL)
			if err == nil && s.Header.Revision < revision {
				err = fmt.Errorf("revision %d", s.Header.Revision)
			}
			return err
		})
		killAll(old)
		fresh, report := survive(t, version, "fresh", learner, nil)
		require.Equal(t, revision, report.Revision)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
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
		member.Stop()
		snapshots, err := filepath.Glob(filepath.Join(filepath.Dir(db), "*.snap"))
		require.NoError(t, err)
		require.NotEmpty(t, snapshots)
		newest := filepath.Base(snapshots[len(snapshots)-1]) // term-index.snap
		sent := filepath.Join(filepath.Dir(db), newest[17:33]+".snap.db")
		require.NoError(t, os.Rename(db, sent))
		require.NoError(t, os.WriteFile(db, before, 0o600))

		fresh, report := survive(t, version, "fresh", member, nil)
		require.Equal(t, revision, report.Revision)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		require.EqualValues(t, 20, count(t, client, "before"))
		require.EqualValues(t, 300, count(t, client, "after"))

		// Without it there is a hole, over which nothing leads.
		require.NoError(t, os.Remove(sent))
		_, err = seed.Inspection(member.DataDir(), "")
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
		member.Kill()
		logs, err := filepath.Glob(filepath.Join(member.DataDir(), "member", "wal", "*.wal"))
		require.NoError(t, err)
		raw, err := os.ReadFile(logs[0])
		require.NoError(t, err)
		end := bytes.LastIndexByte(raw, 'x') + 1
		clear(raw[end-50_000:])
		require.NoError(t, os.WriteFile(logs[0], raw, 0o600))

		before, err := seed.Inspection(member.DataDir(), "")
		require.NoError(t, err)
		require.NotZero(t, before.LastIndex)
		fresh, _ := survive(t, version, "fresh", member, nil)
		fresh.WaitServing(fresh.Members...)
		client = fresh.Members[0].Client()
		require.EqualValues(t, 50, count(t, client, "whole"))
		require.Zero(t, count(t, client, "torn"))
	})
}

// layouts are where others have the data directory in a member's volume, by their public sources.
var layouts = map[string]string{
	"Quorate":                    "data",
	"Bitnami's chart":            "data",         // mounted at /bitnami/etcd, ETCD_DATA_DIR=/bitnami/etcd/data
	"coreos/etcd-operator":       "data",         // mounted at /var/etcd, --data-dir=/var/etcd/data
	"etcd-io/etcd-operator":      ".",            // mounted at ETCD_DATA_DIR
	"cozystack, before v1alpha2": "default.etcd", // mounted at /var/run/etcd, --data-dir=/var/run/etcd/default.etcd
	"cozystack":                  ".",            // mounted at --data-dir=/var/lib/etcd
	"gardener/etcd-druid":        "new.etcd",     // mounted at /var/etcd/data, data-dir: /var/etcd/data/new.etcd
}

// TestClaimsInEveryLayout: the volumes of three members, as others leave them. Of two of them, one has all that was
// acknowledged, and tells that they are a quorum. None is changed.
func TestClaimsInEveryLayout(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "former", 3)
		client := old.Members[0].Client()
		put(t, client, "acknowledged", 100)
		_, err := seed.Inspection(old.Members[0].DataDir(), "")
		require.ErrorContains(t, err, "in use")
		killAll(old)

		volumes, begun := t.TempDir(), map[string]bool{}
		at := func(m *etcdproc.Member, path string) string { return filepath.Join(volumes, m.Name, path) }
		for layout, path := range layouts {
			for _, m := range old.Members { // the volume is made afresh, and has the directory there
				place := at(m, path)
				require.NoError(t, os.RemoveAll(at(m, "")))
				require.NoError(t, os.MkdirAll(filepath.Dir(place), 0o700))
				require.NoError(t, os.Symlink(m.DataDir(), place))
			}
			told := map[string]stores.Inspection{}
			best := old.Members[0]
			for _, m := range old.Members[:2] {
				report, err := seed.Inspection(at(m, path), "")
				require.NoError(t, err, layout)
				told[m.Name] = report
				most := told[best.Name]
				if report.LastTerm > most.LastTerm || report.LastTerm == most.LastTerm &&
					report.LastIndex > most.LastIndex {
					best = m
				}
			}
			one, other := told["former-0"], told["former-1"]
			require.Equal(t, one.ClusterID, other.ClusterID)
			require.Equal(t, one.Electorates, other.Electorates)
			require.Len(t, one.Electorates, 1)
			require.Len(t, one.Electorates[0], 3)
			require.Equal(t, "former-0", one.Members[one.MemberID])
			require.Equal(t, "former-1", one.Members[other.MemberID])
			if begun[path] {
				continue // it is the same place
			}
			begun[path] = true
			fresh, _ := surviveFrom(t, version, "fresh", at(best, path), nil)
			fresh.WaitServing(fresh.Members...)
			client := fresh.Members[0].Client()
			require.EqualValues(t, 100, count(t, client, "acknowledged"), layout)
			killAll(fresh)
		}
	})
}

// TestWhoCouldVote: a member's directory tells whose votes may count, also by changes of members that only its log has.
func TestWhoCouldVote(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 1, lazy...)
		first := old.Members[0]
		learner := old.NewMember("old-1")
		settle(t, old, decision.AddLearner{Name: learner.Name, PeerURL: learner.PeerURL})
		old.Join(learner, first)
		old.WaitServing(first, learner)
		m, _ := look(t, old.Endpoints())
		ids := []string{strconv.FormatUint(idOf(t, m, first), 16), strconv.FormatUint(idOf(t, m, learner), 16)}
		killAll(old)

		told, err := seed.Inspection(first.DataDir(), "")
		require.NoError(t, err)
		require.Len(t, told.Electorates, 2, "%+v", told)
		require.Equal(t, ids[:1], told.Electorates[0], "it votes alone")
		require.ElementsMatch(t, ids, told.Electorates[1], "and if the learner voted")
		require.Contains(t, told.Members, ids[1])
	})
}

// TestRescueBegins: of three members one directory is left, or a snapshot. The etcd that is begun with it has all that
// this held, is another cluster, and begins above all revisions that were seen. What can't be begun with changes
// nothing.
func TestRescueBegins(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it gives files to etcd's user, which needs root")
	}
	eachVersion(t, func(t *testing.T, version string) {
		old := etcdproc.Start(t, version, "old", 3, lazy...)
		client := old.Members[0].Client()
		revision := put(t, client, "key", 200)
		snapshot := snapshotOf(t, version, old.Members[0])
		dir := filepath.Join(t.TempDir(), "demo-0")
		require.NoError(t, os.Mkdir(dir, 0o700))
		require.NoError(t, os.Symlink(old.Members[0].DataDir(), filepath.Join(dir, "data")))

		b := beginning{t: t, version: version, ca: etcdproc.NewAuthority(t)}
		require.Contains(t, b.refused("--dir="+dir), "in use")
		killAll(old)
		before := tree(t, old.Members[0].DataDir())
		found, err := seed.Inspection(old.Members[0].DataDir(), "")
		require.NoError(t, err)
		require.Contains(t, b.refused(), "one of --dir and --snapshot is required")
		require.Contains(t, b.refused("--dir="+dir, "--image=etcd:v3.4.0"), "both must be the same release")
		damaged := filepath.Join(t.TempDir(), "damaged.db")
		raw, err := os.ReadFile(snapshot)
		require.NoError(t, err)
		raw[len(raw)/2] ^= 1
		require.NoError(t, os.WriteFile(damaged, raw, 0o600))
		require.Contains(t, b.refused("--snapshot="+damaged), "nothing was begun")

		clusters := map[uint64]string{}
		for _, source := range []string{"--dir=" + dir, "--dir=" + dir, "--snapshot=" + snapshot} {
			served, end := b.serves(source)
			require.EqualValues(t, 200, count(t, served, "key"), source)
			r, err := served.Get(t.Context(), "key-199")
			require.NoError(t, err)
			require.Greater(t, r.Header.Revision, revision+seed.BeginGap-1)
			require.NotContains(t, clusters, r.Header.ClusterId, "each is a cluster of its own")
			require.NotEqual(t, found.ClusterID, fmt.Sprintf("%x", r.Header.ClusterId))
			clusters[r.Header.ClusterId] = source
			end()
		}
		require.Equal(t, before, tree(t, old.Members[0].DataDir()), "the directory is as it was")
	})
}

// beginning is what all tries have in common.
type beginning struct {
	t       *testing.T
	version string
	ca      *etcdproc.Authority
}

func (b *beginning) run(to, manifests string, port int, args ...string) (said string, code int) {
	var out bytes.Buffer
	code = rescue.Run(b.t.Context(), append([]string{"begin", "--to=" + to, "--manifests=" + manifests,
		"--programs=" + filepath.Dir(etcdproc.Program(b.t, b.version, "etcd")), "--image=etcd:v" + b.version,
		"--address=127.0.0.1", fmt.Sprint("--client-port=", port), fmt.Sprint("--peer-port=", etcdproc.Port(b.t)),
		"--ca-cert=" + b.ca.File("ca.crt"), "--ca-key=" + b.ca.File("ca.key")}, args...), &out, &out)
	return out.String(), code
}

// refused is why nothing was begun.
func (b *beginning) refused(args ...string) string {
	b.t.Helper()
	to, manifests := filepath.Join(b.t.TempDir(), "begun"), b.t.TempDir()
	said, code := b.run(to, manifests, 1, args...)
	require.NotZero(b.t, code, said)
	require.NoDirExists(b.t, to)
	files, err := os.ReadDir(manifests)
	require.NoError(b.t, err)
	require.Empty(b.t, files)
	return said
}

// serves begins, and starts etcd as the static pod says.
func (b *beginning) serves(args ...string) (client *clientv3.Client, end func()) {
	b.t.Helper()
	to, manifests, port := filepath.Join(b.t.TempDir(), "begun"), b.t.TempDir(), etcdproc.Port(b.t)
	said, code := b.run(to, manifests, port, args...)
	require.Zero(b.t, code, said)
	require.Contains(b.t, said, fmt.Sprintf("--etcd-servers=https://127.0.0.1:%d", port))
	text, err := os.ReadFile(filepath.Join(manifests, "rescue-begun.yaml"))
	require.NoError(b.t, err)
	var pod corev1.Pod
	require.NoError(b.t, yaml.Unmarshal(text, &pod))
	container := pod.Spec.Containers[0]
	var flags []string
	for _, flag := range container.Command[1:] {
		flags = append(flags, strings.ReplaceAll(flag, container.VolumeMounts[0].MountPath,
			pod.Spec.Volumes[0].HostPath.Path))
	}
	etcd := exec.Command(etcdproc.Program(b.t, b.version, "etcd"), flags...)
	var log bytes.Buffer
	etcd.Stdout, etcd.Stderr = &log, &log
	require.NoError(b.t, etcd.Start())
	client, err = clientv3.New(clientv3.Config{Endpoints: []string{fmt.Sprintf("https://127.0.0.1:%d", port)},
		TLS: b.ca.Client("root")})
	require.NoError(b.t, err)
	return client, func() {
		require.NoError(b.t, client.Close())
		_ = etcd.Process.Kill()
		_ = etcd.Wait()
		if b.t.Failed() {
			b.t.Log(log.String())
		}
	}
}
