//go:build unix

package conformance

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3compactor"

	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestTheDatabaseGrowsAsComputed: database and memory of a real etcd stay below the account of hooks/defaults/load.go,
// and the account is no more than three times what there is.
func TestTheDatabaseGrowsAsComputed(t *testing.T) {
	loads := []growing{{300, 6_000}, {1 << 10, 3_000}, {100 << 10, 100}}
	eachVersion(t, func(t *testing.T, version string) {
		for _, g := range loads {
			t.Run(fmt.Sprintf("%d bytes", g.value), func(t *testing.T) { g.play(t, version) })
		}
	})
}

// growing is so many keys, written over at random in rounds of half as many writes. What was written before the last
// round but one is compacted after each.
type growing struct{ value, keys int }

func (g growing) play(t *testing.T, version string) {
	c := etcdproc.Start(t, version, "demo", 1, "--quota-backend-bytes=8000000000", "--backend-batch-limit=100")
	m := c.Members[0]
	size := func() int64 {
		status, err := m.Client().Status(t.Context(), m.ClientURL)
		require.NoError(t, err)
		return status.DbSize
	}
	var all []int
	for i := range g.keys {
		all = append(all, i)
	}
	old := g.write(t, m, all)
	require.Eventually(t, func() bool { return size() >= int64(g.keys*g.value) }, time.Minute, 10*time.Millisecond,
		"etcd writes to its database a while after it has answered")
	holds(t, "new keys", size(), defaults.LiveBytes(int64(g.keys), int64(g.value)))

	most := int64(0)
	for range 6 {
		var some []int
		for range g.keys / 2 {
			some = append(some, rand.IntN(g.keys))
		}
		now := g.write(t, m, some)
		most = max(most, size())
		_, err := m.Client().Compact(t.Context(), old, clientv3.WithCompactPhysical())
		require.NoError(t, err)
		old = now
	}
	need := defaults.Load{Keys: int64(g.keys), Value: int64(g.value), Writes: int64(g.keys), History: time.Second}.Need()
	holds(t, "written over", most,
		defaults.LiveBytes(int64(g.keys), int64(g.value))+defaults.PastBytes(int64(g.keys), int64(g.value)))
	assert.Less(t, resident(t, m), size()+need.Index+need.Fixed, "memory")
}

// holds insists that a number was computed well.
func holds(t *testing.T, what string, measured, computed int64) {
	t.Helper()
	t.Logf("%s: %d KiB measured, %d computed", what, measured>>10, computed>>10)
	assert.LessOrEqual(t, measured, computed, what)
	assert.LessOrEqual(t, computed, 3*measured, what)
}

// write writes these keys, a few in each transaction, and returns the last revision.
func (g growing) write(t *testing.T, m *etcdproc.Member, keys []int) int64 {
	const key = "/registry/things/%010d"
	text := strings.Repeat("x", g.value-len(fmt.Sprintf(key, 0)))
	client := m.Client()
	revision := int64(0)
	for len(keys) > 0 {
		ops := map[int]clientv3.Op{} // a transaction takes a key once
		together := min(len(keys), 100, 1<<20/g.value)
		for _, n := range keys[:together] {
			ops[n] = clientv3.OpPut(fmt.Sprintf(key, n), text)
		}
		answer, err := client.Txn(t.Context()).Then(slices.Collect(maps.Values(ops))...).Commit()
		require.NoError(t, err)
		revision = answer.Header.Revision
		keys = keys[together:]
	}
	return revision
}

// resident is how much memory a member takes, with the part of the database that is in it.
func resident(t *testing.T, m *etcdproc.Member) int64 {
	_, text, err := page(t.Context(), http.DefaultTransport, m.ClientURL+"/metrics")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		t.Skip("etcd knows its memory on Linux alone")
	}
	bytes, err := strconv.ParseFloat(found[1], 64)
	require.NoError(t, err)
	return int64(bytes)
}

// TestPeriodicCompactionKeepsAsComputed: etcd's own compactor keeps as long a history as the account says and not much
// less, while a member leads for long, and when one that has just started leads instead.
func TestPeriodicCompactionKeepsAsComputed(t *testing.T) {
	for _, retention := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, 61 * time.Minute, 24 * time.Hour} {
		t.Run(retention.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &history{began: time.Now()}
				every := min(retention, time.Hour)
				leader := h.leads(t, retention)
				time.Sleep(5*retention + every/2)
				assert.InDelta(t, retention+every/10+every, h.longest, float64(every/50), "one leads")

				time.Sleep(time.Until(h.compacted.Add(every - time.Second)))
				leader.Stop()
				leader = h.leads(t, retention)
				time.Sleep(2 * retention)
				leader.Stop()
				assert.LessOrEqual(t, h.longest, defaults.Kept(retention), "another leads")
				assert.InDelta(t, defaults.Kept(retention), h.longest, float64(every/10), "another leads")
			})
		})
	}
}

// history has a revision for each millisecond.
type history struct {
	began time.Time
	// first is the oldest revision that there is, compacted when that was last moved, and longest how much there was.
	first     int64
	compacted time.Time
	longest   time.Duration
}

// leads is the compactor of a member that starts, and leads.
func (h *history) leads(t *testing.T, retention time.Duration) v3compactor.Compactor {
	c, err := v3compactor.New(nil, v3compactor.ModePeriodic, retention, h, h)
	require.NoError(t, err)
	c.Run()
	return c
}

func (h *history) Rev() int64 { return time.Since(h.began).Milliseconds() }

func (h *history) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	h.longest = max(h.longest, time.Duration(h.Rev()-h.first)*time.Millisecond)
	h.first = max(h.first, r.GetRevision())
	h.compacted = time.Now()
	return nil, nil
}
