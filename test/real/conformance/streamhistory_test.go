//go:build unix && releases

package conformance

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/seed"
	"github.com/quorate-dev/quorate/test/real/chaos"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

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
