//go:build unix && releases

package conformance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	commands "github.com/quorate-dev/quorate/etcdops/backup/snapshot"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/real/chaos"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// envProgram tells the program of a test to be quorate-snapshot with these arguments.
const envProgram = "QUORATE_TEST_PROGRAM"

func init() {
	args := strings.Split(os.Getenv(envProgram), "\n")
	run := map[string]func(context.Context, []string, io.Writer, io.Writer) int{
		"mirror": commands.Mirror, "stream": commands.Stream,
	}[args[0]]
	if run != nil {
		os.Exit(run(context.Background(), args[1:], os.Stdout, os.Stderr))
	}
}

// process is one that mirrors, or streams to a directory.
type process struct {
	t     *testing.T
	args  []string
	run   *exec.Cmd
	ended chan struct{}
}

// startProcess starts quorate-snapshot with these arguments.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{t: t, args: args}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func startStream(t *testing.T, dir string, m *etcdproc.Member, from int64, more ...string) *process {
	t.Helper()
	return startProcess(t, append([]string{"stream", "--endpoint=" + m.ClientURL, "--store-url=file:///backups",
		"--store-dir=" + dir, "--tail=tail", fmt.Sprint("--from-revision=", from), "--flush-after=200ms", "--listen="},
		more...)...)
}

func (p *process) start() {
	own, err := os.Executable()
	require.NoError(p.t, err)
	p.run = exec.Command(own)
	p.run.Env = append(os.Environ(), envProgram+"="+strings.Join(p.args, "\n"))
	p.run.Stderr = os.Stderr
	require.NoError(p.t, p.run.Start())
	p.ended = make(chan struct{})
	go func(run *exec.Cmd, ended chan<- struct{}) {
		_ = run.Wait()
		close(ended)
	}(p.run, p.ended)
}

func (p *process) kill() {
	_ = p.run.Process.Kill()
	<-p.ended
}

// goOn starts one again that has ended by itself.
func (p *process) goOn() {
	select {
	case <-p.ended:
		p.start()
	default:
	}
}

// told is what a member said of its keys at a revision.
type told struct {
	revision, compacted int64
	hash                string
}

// churn is a random history: transactions of up to 128 operations, one in another, leases that are granted, attached,
// revoked and run out, deletions of ranges, and compactions up to the last revision.
type churn struct {
	t         *testing.T
	m         *etcdproc.Member
	client    *clientv3.Client
	random    *rand.Rand
	leases    []clientv3.LeaseID
	revision  int64
	compacted int64
	told      []told
	// stored is up to where it may be compacted.
	stored func() int64
}

func (c *churn) now(ctx context.Context) int64 {
	answer, err := c.client.Get(ctx, "\x00", clientv3.WithCountOnly())
	require.NoError(c.t, err)
	c.revision = answer.Header.Revision
	return c.revision
}

func (c *churn) key() string { return fmt.Sprintf("key-%02d", c.random.IntN(60)) }

// lease is that of the next key; mostly none.
func (c *churn) lease(ctx context.Context) []clientv3.OpOption {
	switch {
	case c.random.IntN(12) == 0:
		granted, err := c.client.Grant(ctx, []int64{3600, 7200, 1}[c.random.IntN(3)])
		require.NoError(c.t, err)
		if granted.TTL > 10 {
			c.leases = append(c.leases, granted.ID)
		}
		return []clientv3.OpOption{clientv3.WithLease(granted.ID)}
	case len(c.leases) > 0 && c.random.IntN(4) == 0:
		return []clientv3.OpOption{clientv3.WithLease(c.leases[c.random.IntN(len(c.leases))])}
	}
	return nil
}

func (c *churn) transaction(ctx context.Context) {
	var ops []clientv3.Op
	for _, i := range c.random.Perm(128)[:1+c.random.IntN(128)] {
		key := fmt.Sprintf("txn-%03d", i)
		switch c.random.IntN(4) {
		case 0:
			ops = append(ops, clientv3.OpDelete(key))
		case 1:
			ops = append(ops, clientv3.OpGet(key))
		default:
			ops = append(ops, clientv3.OpPut(key, fmt.Sprint(c.random.Uint64())))
		}
	}
	answer, err := c.client.Txn(ctx).Then(ops...).Commit()
	require.NoError(c.t, err)
	c.revision = answer.Header.Revision
}

// twice puts a key and deletes it in one revision, which etcd lets pass in transactions of their own.
func (c *churn) twice(ctx context.Context) {
	key := c.key()
	answer, err := c.client.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(key, "for a moment")}, nil),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpDelete(key)}, nil)).Commit()
	require.NoError(c.t, err)
	c.revision = answer.Header.Revision
}

func (c *churn) step(ctx context.Context) {
	switch c.random.IntN(14) {
	case 0, 1:
		answer, err := c.client.Delete(ctx, c.key())
		require.NoError(c.t, err)
		c.revision = answer.Header.Revision
	case 2:
		from := c.key()
		answer, err := c.client.Delete(ctx, from, clientv3.WithRange(from[:5]+"\xff"))
		require.NoError(c.t, err)
		c.revision = answer.Header.Revision
	case 3:
		c.transaction(ctx)
	case 4:
		c.twice(ctx)
	case 5:
		if len(c.leases) > 3 {
			_, err := c.client.Revoke(ctx, c.leases[0])
			require.NoError(c.t, err)
			c.leases = c.leases[1:]
		}
	default:
		answer, err := c.client.Put(ctx, c.key(), strings.Repeat("v", c.random.IntN(300)), c.lease(ctx)...)
		require.NoError(c.t, err)
		c.revision = answer.Header.Revision
	}
	if c.random.IntN(40) == 0 {
		at := min(c.revision-int64(c.random.IntN(20)), c.stored())
		if at <= c.compacted {
			return
		}
		_, err := c.client.Compact(ctx, at, clientv3.WithCompactPhysical())
		require.NoError(c.t, err)
		c.compacted = at
	}
	if c.random.IntN(6) == 0 {
		c.ask(ctx)
	}
}

func (c *churn) ask(ctx context.Context) {
	answer, err := c.client.HashKV(ctx, c.m.ClientURL, c.revision)
	require.NoError(c.t, err)
	c.told = append(c.told, told{c.revision, max(answer.CompactRevision, 0), fmt.Sprintf("%08x", answer.Hash)})
}

// look says what is stored behind a revision.
func lookAtTail(t *testing.T, dir, identity string, from int64) stores.Tail {
	t.Helper()
	report, err := stream.Look(context.Background(), stream.Asked{
		Place:  archive.Place{URL: "file:///backups", Dir: dir},
		Prefix: "tail", FromRevision: from, Opening: stream.Opening{IdentityFile: identity},
	})
	require.NoError(t, err)
	return report
}

// restoring restores a snapshot in a file, and what is stored behind it.
type restoring struct{ version, dir, identity, keys, file, id string }

func (r restoring) to(t *testing.T, o seed.Options) stores.Restore {
	t.Helper()
	tail, err := stream.OpenTail(context.Background(), archive.Place{URL: "file:///backups/tail/" + r.id, Dir: r.dir},
		stream.Opening{IdentityFile: r.identity, KeysFile: r.keys})
	require.NoError(t, err)
	defer tail.Close()
	o.EtcdVersion, o.Programs, o.Fetch, o.Tail = r.version, programs(t, r.version), fetching(r.file), tail
	report, err := seed.Restore(context.Background(), o)
	require.NoError(t, err)
	return report
}

// TestStream: whatever happens to an etcd, and to those who stream it, a restore at any revision has the hash that the
// etcd had. Two processes stream, encrypted and cut as it comes, and are killed again and again.
func TestStream(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 1)
		m := source.Members[0]
		client := m.Client()
		random := rand.New(rand.NewPCG(1, uint64(len(version))))
		c := &churn{t: t, m: m, client: client, random: random, stored: func() int64 { return math.MaxInt64 }}
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Minute)
		defer stop()
		for range 60 {
			c.step(ctx)
		}
		file := snapshotOf(t, version, m)
		base, err := archive.Examine(ctx, file)
		require.NoError(t, err)
		dir := t.TempDir()
		key, err := age.GenerateX25519Identity()
		require.NoError(t, err)
		identity := filepath.Join(t.TempDir(), "identity")
		require.NoError(t, os.WriteFile(identity, []byte(key.String()+"\n"), 0o600))
		streams := []*process{
			startStream(t, dir, m, base.Revision, "--max-size=4096", "--recipient="+key.Recipient().String()),
			startStream(t, dir, m, base.Revision, "--max-size=1500", "--compression=none"),
		}
		c.told, c.stored = nil, func() int64 { return lookAtTail(t, dir, identity, base.Revision).StoredRevision }
		var half time.Time
		var atHalf int64
		for i := range 1500 {
			if i == 750 {
				half, atHalf = time.Now(), c.now(ctx) // in this order
			}
			c.step(ctx)
			time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
			if random.IntN(150) == 0 {
				streams[i%2].kill()
				streams[i%2].start()
			}
		}
		etcdproc.Eventually(t, "leases of a second have run out", func(ctx context.Context) error {
			is, err := client.Leases(ctx)
			if err != nil {
				return err
			}
			for _, lease := range is.Leases {
				left, err := client.TimeToLive(ctx, lease.ID)
				if err != nil {
					return err
				}
				if left.GrantedTTL < 3600 {
					return fmt.Errorf("lease %x is there", lease.ID)
				}
			}
			return nil
		})
		end := c.now(ctx)
		c.ask(ctx)
		etcdproc.Eventually(t, "all is stored", func(context.Context) error {
			for _, s := range streams {
				s.goOn()
			}
			tail := lookAtTail(t, dir, identity, base.Revision)
			return while(tail.StoredRevision != end, "%+v, and not %d", tail, end)
		})

		restore := restoring{version: version, dir: dir, identity: identity, file: file,
			id: lookAtTail(t, dir, identity, base.Revision).ClusterID}
		whole := filepath.Join(t.TempDir(), "whole")
		report := restore.to(t, seed.Options{DataDir: whole, Name: "a", PeerURL: "http://127.0.0.1:1",
			InitialCluster: "a=http://127.0.0.1:1", Token: "whole"})
		require.Equal(t, end, report.Revision)
		for _, said := range c.told {
			database := filepath.Join(whole, "member", "snap", "db")
			hash, err := archive.HashAt(ctx, database, said.revision, said.compacted)
			require.NoError(t, err)
			require.Equal(t, said.hash, hash, "%+v", said)
		}
		t.Logf("%d revisions have the hash that they had, of %d to %d", len(c.told), base.Revision+1, end)
		byTime := restore.to(t, seed.Options{DataDir: filepath.Join(t.TempDir(), "half"), Name: "a",
			PeerURL: "http://127.0.0.1:1", InitialCluster: "a=http://127.0.0.1:1", Token: "half", UntilTime: half})
		require.LessOrEqual(t, byTime.UntilRevision, atHalf, "nothing that was written later")
		require.Greater(t, byTime.UntilRevision, base.Revision)
		require.False(t, byTime.UntilTime.After(half))

		for _, said := range []told{c.told[0], c.told[len(c.told)/2], c.told[len(c.told)-1]} {
			fresh := etcdproc.StartSeeded(t, version, "fresh", 1, func(m *etcdproc.Member, initial, token string) {
				restore.to(t, seed.Options{DataDir: m.DataDir(), Name: m.Name, PeerURL: m.PeerURL,
					InitialCluster: initial, Token: token, UntilRevision: said.revision})
			})
			fresh.WaitServing(fresh.Members...)
			is := &churn{t: t, m: fresh.Members[0], client: fresh.Members[0].Client(), revision: said.revision}
			require.Equal(t, said.revision, is.now(ctx))
			if said.compacted > base.CompactRevision {
				_, err := is.client.Compact(ctx, said.compacted, clientv3.WithCompactPhysical())
				require.NoError(t, err)
			}
			is.ask(ctx)
			require.Equal(t, said, is.told[0])
			if said.revision == end {
				require.Equal(t, leased(ctx, t, client), leased(ctx, t, is.client))
			}
			fresh.Members[0].Kill()
		}
		raised := etcdproc.StartSeeded(t, version, "raised", 1, func(m *etcdproc.Member, initial, token string) {
			restore.to(t, seed.Options{DataDir: m.DataDir(), Name: m.Name, PeerURL: m.PeerURL, InitialCluster: initial,
				Token: token, BeginAfter: new(int64)})
		})
		raised.WaitServing(raised.Members...)
		higher := &churn{t: t, m: raised.Members[0], client: raised.Members[0].Client()}
		require.Equal(t, end+seed.BeginGap, higher.now(ctx))
		require.Equal(t, leased(ctx, t, client), leased(ctx, t, higher.client))
	})
}

// TestStreamGap: a stream that comes too late says so, and goes on behind the gap when it is started again. The next
// snapshot is followed by what was stored meanwhile. It ends when users change, and streams no other cluster.
func TestStreamGap(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		m := etcdproc.Start(t, version, "source", 1).Members[0]
		client := m.Client()
		ctx, stop := context.WithTimeout(context.Background(), 3*time.Minute)
		defer stop()
		first := snapshotOf(t, version, m)
		old, err := archive.Examine(ctx, first)
		require.NoError(t, err)
		_, err = client.Compact(ctx, put(t, client, "lost", 10))
		require.NoError(t, err)
		dir := t.TempDir()
		o := stream.Options{Cluster: archive.Cluster{Endpoints: []string{m.ClientURL}}, Tail: "tail",
			Place: archive.Place{URL: "file:///backups", Dir: dir}, FromRevision: old.Revision,
			FlushAfter: 200 * time.Millisecond, MaxSize: 1 << 20, Log: slog.New(slog.DiscardHandler)}
		run := func(o stream.Options) (*stream.Monitor, chan stores.Stream) {
			monitor, ended := stream.NewMonitor(o.FlushAfter), make(chan stores.Stream, 1)
			go func() {
				report, _ := stream.Run(ctx, o, monitor) // the report has the error
				ended <- report
			}()
			return monitor, ended
		}
		_, ended := run(o)
		for report := (stores.Stream{}); report.Reason == ""; {
			put(t, client, "kept", 1)
			select {
			case report = <-ended:
				require.Equal(t, stores.StreamCompacted, report.Reason, "%+v", report)
				require.Positive(t, report.Segments, "what is behind the gap is stored")
			case <-time.After(50 * time.Millisecond):
			}
		}
		monitor, ended := run(o)
		second := snapshotOf(t, version, m)
		end := put(t, client, "more", 20)
		etcdproc.Eventually(t, "it goes on", func(context.Context) error {
			at := monitor.Report().StoredRevision
			return while(at != end, "%d is stored of %d", at, end)
		})
		is, err := archive.Examine(ctx, second)
		require.NoError(t, err)
		tail := lookAtTail(t, dir, "", is.Revision)
		require.Equal(t, end, tail.StoredRevision)
		require.Zero(t, lookAtTail(t, dir, "", old.Revision).StoredRevision)
		r := restoring{version: version, dir: dir, file: second, id: tail.ClusterID}
		require.Equal(t, end, r.to(t, seed.Options{DataDir: filepath.Join(t.TempDir(), "whole"), Name: "a",
			PeerURL: "http://127.0.0.1:1", InitialCluster: "a=http://127.0.0.1:1", Token: "whole"}).Revision)
		r.file = first
		gap := r.to(t, seed.Options{DataDir: filepath.Join(t.TempDir(), "gap"), Name: "a", PeerURL: "http://127.0.0.1:1",
			InitialCluster: "a=http://127.0.0.1:1", Token: "gap", AsFarAsPossible: true})
		require.Equal(t, old.Revision, gap.UntilRevision)
		require.Contains(t, gap.Ended, "are missing")

		other := o
		other.ClusterID = "abc"
		_, refused := run(other)
		require.Equal(t, stores.StreamOtherCluster, (<-refused).Reason)
		if testing.Short() {
			return
		}
		_, err = client.RoleAdd(ctx, "reader")
		require.NoError(t, err)
		require.Equal(t, stores.StreamUsersChanged, (<-ended).Reason)
	})
}

// leased are the keys that have leases, with the time that those were granted.
func leased(ctx context.Context, t *testing.T, client *clientv3.Client) map[string]int64 {
	t.Helper()
	keys, err := client.Get(ctx, "\x00", clientv3.WithFromKey())
	require.NoError(t, err)
	all := map[string]int64{}
	for _, kv := range keys.Kvs {
		if kv.Lease != 0 {
			granted, err := client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			require.NoError(t, err)
			all[string(kv.Key)] = granted.GrantedTTL
		}
	}
	return all
}

// acknowledged is an operation, and the revision at which etcd says that it was.
type acknowledged struct {
	chaos.Op
	revision int64
}

// witnessed is what clients did and saw.
type witnessed struct {
	began time.Time
	mu    sync.Mutex
	all   []acknowledged
}

// client does one operation after another until the context ends, without retries.
func (h *witnessed) client(ctx context.Context, client *clientv3.Client, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		op := chaos.Op{Client: number, Value: fmt.Sprintf("%d.%d", number, n),
			// A key is used for a short time, so that its history is judged in milliseconds.
			Key: fmt.Sprintf("key-%02d-%d", int(time.Since(h.began)/time.Second), rand.N(3))}
		switch rand.N(10) {
		case 0, 1, 2, 3:
			op.Verb = chaos.Put
		case 4, 5:
			op.Verb = chaos.Swap
			if before := h.do(client, op.Client, op.Key); before.Known {
				op.Expected = before.Read
			}
		case 6:
			op.Verb, op.Value = chaos.Delete, ""
		}
		h.add(h.run(client, op))
		time.Sleep(time.Duration(rand.N(10)) * time.Millisecond)
	}
}

func (h *witnessed) add(a acknowledged) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, a)
}

// do reads a key.
func (h *witnessed) do(client *clientv3.Client, number int, key string) acknowledged {
	return h.run(client, chaos.Op{Client: number, Key: key})
}

// run carries an operation out, and fills in what came of it.
func (h *witnessed) run(client *clientv3.Client, op chaos.Op) acknowledged {
	ctx, stop := context.WithTimeout(context.Background(), 2*time.Second)
	defer stop()
	op, header := op.Do(ctx, client, h.began)
	return acknowledged{op, header.GetRevision()}
}

// judge reads all keys of an etcd that ends at a revision. That and what the clients saw up to it must be one
// history: what was acknowledged behind it has never happened, and what was not acknowledged may have.
func (h *witnessed) judge(t *testing.T, is *clientv3.Client, end int64) error {
	t.Helper()
	var history chaos.History
	keys, before, after, unknown := map[string]bool{}, 0, 0, 0
	for _, a := range h.all {
		keys[a.Key] = true
		switch {
		case !a.Known:
			unknown++
		case a.revision > end:
			after++
			continue
		default:
			before++
		}
		history.Add(a.Op)
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		a := h.do(is, 100, key)
		require.True(t, a.Known)
		history.Add(a.Op)
	}
	require.Positive(t, before)
	t.Logf("up to revision %d: %d operations are there, %d later ones are not, %d may be", end, before, after, unknown)
	return history.Check(etcdproc.Patience)
}

// TestStreamHistory: clients write, read, swap and delete; then all members and both streams are killed at once. What
// the clients saw, and what they see after a restore at the last stored revision or at one before, is linearizable. It
// is not where one end is taken for the other.
func TestStreamHistory(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 3)
		h := &witnessed{began: time.Now()}
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var clients sync.WaitGroup
		for i := range 6 {
			client := source.Members[i%3].Client()
			clients.Go(func() { h.client(ctx, client, i) })
		}
		file := snapshotOf(t, version, source.Members[0])
		base, err := archive.Examine(ctx, file)
		require.NoError(t, err)
		dir := t.TempDir()
		streams := []*process{startStream(t, dir, source.Members[0], base.Revision, "--max-size=2000"),
			startStream(t, dir, source.Members[1], base.Revision, "--max-size=3000")}
		for range 3 {
			time.Sleep(time.Duration(500+rand.N(1000)) * time.Millisecond)
			one := streams[rand.N(2)]
			one.kill()
			one.start()
		}
		etcdproc.Eventually(t, "some is stored", func(context.Context) error {
			return while(lookAtTail(t, dir, "", base.Revision).StoredRevision < base.Revision+100,
				"less than 100 revisions are")
		})
		time.Sleep(time.Duration(rand.N(1000)) * time.Millisecond)
		killing := []func(){streams[0].kill, streams[1].kill}
		for _, m := range source.Members {
			killing = append(killing, m.Kill)
		}
		rand.Shuffle(len(killing), func(i, j int) { killing[i], killing[j] = killing[j], killing[i] })
		for _, kill := range killing {
			kill()
		}
		stop()
		clients.Wait()

		tail := lookAtTail(t, dir, "", base.Revision)
		middle := base.Revision + 1 + rand.N((tail.StoredRevision-base.Revision)/2)
		restore := restoring{version: version, dir: dir, file: file, id: tail.ClusterID}
		for end, other := range map[int64]int64{tail.StoredRevision: middle, middle: tail.StoredRevision} {
			fresh := etcdproc.StartSeeded(t, version, "fresh", 1, func(m *etcdproc.Member, initial, token string) {
				restore.to(t, seed.Options{DataDir: m.DataDir(), Name: m.Name, PeerURL: m.PeerURL,
					InitialCluster: initial, Token: token, UntilRevision: end})
			})
			fresh.WaitServing(fresh.Members...)
			client := fresh.Members[0].Client()
			require.NoError(t, h.judge(t, client, end))
			require.Error(t, h.judge(t, client, other))
		}
	})
}

// TestStreamedLeases: no key comes back with a lease that is not there, however busily clients grant and attach: etcd
// copies its list of leases before it reads the revision of the answer.
func TestStreamedLeases(t *testing.T) {
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	m := etcdproc.Start(t, version, "source", 1).Members[0]
	file := snapshotOf(t, version, m)
	base, err := archive.Examine(t.Context(), file)
	require.NoError(t, err)
	dir := t.TempDir()
	startStream(t, dir, m, base.Revision)
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			client := m.Client()
			for i := range 250 {
				granted, err := client.Grant(t.Context(), 3600)
				if err == nil {
					_, err = client.Put(t.Context(), fmt.Sprint("key-", n, "-", i), "v", clientv3.WithLease(granted.ID))
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	end := put(t, m.Client(), "last", 1)
	var tail stores.Tail
	etcdproc.Eventually(t, "all is stored", func(context.Context) error {
		tail = lookAtTail(t, dir, "", base.Revision)
		return while(tail.StoredRevision != end, "%+v, and not %d", tail, end)
	})
	r := restoring{version: version, dir: dir, file: file, id: tail.ClusterID}
	fresh := etcdproc.StartSeeded(t, version, "fresh", 1, func(m *etcdproc.Member, initial, token string) {
		r.to(t, seed.Options{DataDir: m.DataDir(), Name: m.Name, PeerURL: m.PeerURL, InitialCluster: initial,
			Token: token})
	})
	fresh.WaitServing(fresh.Members...)
	client := fresh.Members[0].Client()
	is, err := client.Leases(t.Context())
	require.NoError(t, err)
	there := map[clientv3.LeaseID]bool{0: true}
	for _, lease := range is.Leases {
		there[lease.ID] = true
	}
	keys, err := client.Get(t.Context(), "key-", clientv3.WithPrefix())
	require.NoError(t, err)
	require.EqualValues(t, 2000, keys.Count)
	for _, kv := range keys.Kvs {
		require.True(t, there[clientv3.LeaseID(kv.Lease)], "%s has lease %x, which is not there", kv.Key, kv.Lease)
	}
}

// TestStreamedUsers: a change of users ends the stream with the next segment, and a restore before it: no deleted user
// comes back beside what was written after the deletion.
func TestStreamedUsers(t *testing.T) {
	version := etcdproc.Versions[len(etcdproc.Versions)-1]
	m := etcdproc.Start(t, version, "source", 1).Members[0]
	client := m.Client()
	_, err := client.UserAdd(t.Context(), "former", "a password")
	require.NoError(t, err)
	file := snapshotOf(t, version, m)
	base, err := archive.Examine(t.Context(), file)
	require.NoError(t, err)
	dir, began := t.TempDir(), time.Now()
	keys := filepath.Join(t.TempDir(), "stream.key")
	require.NoError(t, os.WriteFile(keys, []byte(strings.Repeat("k", 64)), 0o600))
	o := stream.Options{Cluster: archive.Cluster{Endpoints: []string{m.ClientURL}}, Tail: "tail",
		Place: archive.Place{URL: "file:///backups", Dir: dir}, FromRevision: base.Revision, KeysFile: keys,
		FlushAfter: 200 * time.Millisecond, MaxSize: 1 << 20, Log: slog.New(slog.DiscardHandler)}
	monitor, ended := stream.NewMonitor(o.FlushAfter), make(chan stores.Stream, 1)
	go func() {
		report, _ := stream.Run(t.Context(), o, monitor) // the report has the error
		ended <- report
	}()
	good := put(t, client, "before", 3)
	etcdproc.Eventually(t, "all is stored", func(context.Context) error {
		at := monitor.Report().StoredRevision
		return while(at != good, "%d is stored of %d", at, good)
	})
	_, err = client.UserDelete(t.Context(), "former")
	require.NoError(t, err)
	put(t, client, "after", 3)
	report := <-ended
	require.Equal(t, stores.StreamUsersChanged, report.Reason)
	t.Logf("the stream ended after %s", time.Since(began))

	r := restoring{version: version, dir: dir, keys: keys, file: file, id: report.ClusterID}
	is := r.to(t, seed.Options{DataDir: filepath.Join(t.TempDir(), "data"), Name: "a", PeerURL: "http://127.0.0.1:1",
		InitialCluster: "a=http://127.0.0.1:1", Token: "t", AsFarAsPossible: true})
	require.Equal(t, good, is.UntilRevision)
	require.Contains(t, is.Ended, "users or roles have changed")
}
