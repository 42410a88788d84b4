package stream

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// answer is one of a member of cluster c1 that is at a revision.
func answer(revision int64, fragment bool, events ...*mvccpb.Event) *pb.WatchResponse {
	return &pb.WatchResponse{Header: &pb.ResponseHeader{ClusterId: 0xc1, Revision: revision}, Events: events,
		Fragment: fragment}
}

// receiving is a receiver that has come to a revision, and what it passes on.
func receiving(last int64) (*receiver, chan batch) {
	to := make(chan batch, 1000)
	r := &receiver{clusterID: 0xc1, last: last, to: to,
		intact: func(context.Context, int64) (bool, error) { return true, nil }}
	r.latest.Store(&Mark{Revision: last, At: time.Now().UTC()})
	return r, to
}

// TestAMemberThatLags: what it calls its last revision is no sign that all is there. The time of such a sign is that
// before the cluster was asked.
func TestAMemberThatLags(t *testing.T) {
	r, to := receiving(4)
	asked := time.Now().UTC().Add(-time.Minute)
	r.latest.Store(&Mark{Revision: 6, At: asked})
	require.NoError(t, r.take(t.Context(), answer(4, false)))
	assert.Empty(t, to, "a quorum has revision 6")
	require.NoError(t, r.take(t.Context(), answer(6, false, put("a", 5), put("a", 6))))
	<-to
	require.NoError(t, r.take(t.Context(), answer(6, false)))
	b := <-to
	assert.True(t, b.Empty())
	assert.Equal(t, asked, b.Arrived())
}

// TestFragments: however a member cuts its answers, whole revisions are passed on, each once and in order, with the sum
// of the one before.
func TestFragments(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		r, to := receiving(4)
		var events []*mvccpb.Event
		for revision := int64(4); revision <= 20; revision++ { // 4 is seen again
			for i := range 1 + random.IntN(4) {
				events = append(events, put(fmt.Sprint("key-", i), revision))
			}
		}
		whole := func(n int) bool { return n == len(events) || events[n].Kv.ModRevision != events[n-1].Kv.ModRevision }
		for from := 0; from < len(events); {
			to := min(from+1+random.IntN(6), len(events))
			require.NoError(t, r.take(t.Context(), answer(20, !whole(to) || to < len(events) && random.IntN(2) == 0,
				events[from:to]...)))
			from = to
		}
		close(to)
		sums := map[int64]string{}
		reach, n := int64(4), int64(0)
		for b := range to {
			require.Equal(t, reach+1, b.first)
			require.NotEmpty(t, b.before)
			if sum, seen := sums[b.first-1]; seen {
				require.Equal(t, sum, b.before)
			}
			s := &Segment{Header: Header{First: b.first, Last: b.last, Events: b.events}, records: b.records}
			var sum Sum
			require.NoError(t, s.Each(func(c Change) error { sum.Add(c); n++; return nil }))
			require.Equal(t, sum.Of(), b.sum)
			sums[b.last], reach = b.sum, b.last
		}
		require.EqualValues(t, 20, reach)
		again := int64(0)
		for _, e := range events {
			if e.Kv.ModRevision == 4 {
				again++
			}
		}
		require.Equal(t, int64(len(events)), n+again)
	}
}

type answers []*pb.WatchResponse

func TestAnswers(t *testing.T) {
	canceled := func(compacted int64, why string) *pb.WatchResponse {
		a := answer(9, false)
		a.Canceled, a.CompactRevision, a.CancelReason = true, compacted, why
		return a
	}
	other := answer(5, false, put("a", 5))
	other.Header.ClusterId = 0xc2
	for name, test := range map[string]struct {
		answers answers
		reason  string
	}{
		"the next revisions":      {answers{answer(6, false, put("a", 5), put("a", 6))}, ""},
		"nothing new":             {answers{answer(4, false)}, ""},
		"a revision is left out":  {answers{answer(6, false, put("a", 6))}, failed},
		"one in the middle":       {answers{answer(7, false, put("a", 5), put("a", 7))}, failed},
		"a step back":             {answers{answer(7, false, put("a", 5), put("a", 6), put("a", 5))}, failed},
		"an older one":            {answers{answer(7, false, put("a", 3))}, failed},
		"a later one is there":    {answers{answer(5, false)}, failed},
		"another cluster":         {answers{other}, stores.StreamOtherCluster},
		"compacted":               {answers{canceled(8, "")}, stores.StreamCompacted},
		"no permission":           {answers{canceled(0, "etcdserver: permission denied")}, archive.Denied},
		"no leader":               {answers{canceled(0, "etcdserver: no leader")}, archive.Unreachable},
		"the last one again":      {answers{answer(4, false, put("was", 4)), answer(5, false, put("a", 5))}, ""},
		"the last one is another": {answers{answer(4, false, put("is", 4))}, stores.StreamOtherCluster},
		"the last one has one more": {answers{answer(5, true, put("was", 4), put("x", 4), put("a", 5))},
			stores.StreamOtherCluster},
		"the last one is another, cut": {answers{answer(5, true, put("is", 4)), answer(5, false, put("a", 5))},
			stores.StreamOtherCluster},
	} {
		r, to := receiving(4)
		r.sum = sumOf(appendRecord(nil, put("was", 4)))
		var err error
		for _, a := range test.answers {
			if err = r.take(t.Context(), a); err != nil {
				break
			}
		}
		if test.reason == "" {
			assert.NoError(t, err, name)
			continue
		}
		assert.Equal(t, test.reason, archive.ReasonOf(err), "%s: %v", name, err)
		assert.Empty(t, to, name)
	}
}

// A compaction of the last revision may have taken some of its records: then nothing follows from them.
func TestLastRevisionCompacted(t *testing.T) {
	for _, known := range []string{"", "known"} {
		r, to := receiving(4)
		r.sum, r.intact = known, func(context.Context, int64) (bool, error) { return false, nil }
		require.NoError(t, r.take(t.Context(), answer(5, false, put("left", 4), put("a", 5))))
		assert.Equal(t, known, (<-to).before)
	}
}

// A watch that lags reads from a database: what a compaction may have taken some of is not passed on.
func TestLaggingWatch(t *testing.T) {
	for head, passes := range map[int64]bool{5: true, 9: false} {
		r, to := receiving(4)
		r.intact = func(_ context.Context, revision int64) (bool, error) { return revision != 5, nil }
		err := r.take(t.Context(), answer(head, false, put("left", 5)))
		assert.Equal(t, passes, err == nil, head)
		assert.Equal(t, passes, len(to) == 1, head)
	}
}

// writing is a writer into a directory.
func writing(t *testing.T, dir string, o Options) *writer {
	t.Helper()
	o.Place = archive.Place{URL: "file:///s", Dir: dir}
	folder, err := archive.OpenFolder(t.Context(), o.Place, "", true)
	require.NoError(t, err)
	t.Cleanup(func() { _ = folder.Close() })
	o.Log, o.Cluster = slog.New(slog.DiscardHandler), archive.Cluster{Endpoints: []string{"http://127.0.0.1:1"}}
	monitor := NewMonitor(o.FlushAfter)
	monitor.begin("c1", 4)
	s := session{Options: o, folder: folder, prefix: folderOf("tail", "c1"), clusterID: "c1", monitor: monitor}
	return &writer{session: s, leaser: leaser{asked: time.Now(), ttl: map[int64]int64{7: 60}}}
}

// What two writers store of the same revisions, cut as it comes and in any order, is one tail.
func TestTwoWriters(t *testing.T) {
	dir := t.TempDir()
	for n, size := range []int{300, 700} {
		w := writing(t, dir, Options{FlushAfter: time.Hour, MaxSize: size})
		r, to := receiving(4)
		for revision := int64(5); revision <= 40; revision++ {
			events := []*mvccpb.Event{put("a", revision), deletion("b", revision)}
			require.NoError(t, r.take(t.Context(), answer(revision, false, events...)))
			w.add(<-to)
			if revision%7 == int64(n) {
				require.NoError(t, r.take(t.Context(), answer(revision, false)))
				w.add(<-to)
			}
			w.cut(false)
		}
		require.NoError(t, w.finish(t.Context(), nil, nil))
		assert.Zero(t, w.held)
		is := w.monitor.Report()
		assert.EqualValues(t, 40, is.StoredRevision)
		assert.False(t, is.StoredTime.IsZero())
	}
	tail := openTail(t, dir)
	got, err := read(tail, 4, 40)
	require.NoError(t, err)
	assert.Len(t, got, 36)
	assert.Greater(t, len(tail.spans), 4)
	listed, err := os.ReadDir(dir + "/s/tail/c1")
	require.NoError(t, err)
	assert.Len(t, listed, len(tail.spans), "nothing else is left there")
}

// A store that fails makes the stream wait, and end with the reason when it is told to.
func TestStoreThatFails(t *testing.T) {
	dir := t.TempDir()
	w := writing(t, dir, Options{FlushAfter: time.Hour, MaxSize: 1})
	require.NoError(t, os.WriteFile(dir+"/s/tail", nil, 0o600)) // no folder can be made there
	r, to := receiving(4)
	require.NoError(t, r.take(t.Context(), answer(5, false, put("a", 5))))
	w.add(<-to)
	w.cut(false)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	require.Error(t, w.store(ctx, w.queue[0]))
	assert.EqualValues(t, 4, w.monitor.Report().StoredRevision)
	assert.Positive(t, w.held)
}

func TestMonitor(t *testing.T) {
	m := NewMonitor(time.Minute)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	m.begin("c1", 4)
	code, _ := ask("/health")
	assert.Equal(t, 200, code, "it has just begun")
	m.lag.began = time.Now().Add(-4 * time.Minute)
	m.saw(9, time.Now(), true)
	code, said := ask("/health")
	assert.Equal(t, 503, code)
	assert.Contains(t, said, "the last 4m0s is not stored; revision 4 is, and 9 has arrived")
	m.stored(8, 100)
	code, _ = ask("/health")
	assert.Equal(t, 503, code)
	m.stored(9, 100)
	code, _ = ask("/health")
	assert.Equal(t, 200, code)
	m.saw(9, time.Now().Add(-10*time.Minute), true)
	code, _ = ask("/health")
	assert.Equal(t, 503, code, "nothing was heard for ten minutes")
	_, said = ask("/metrics")
	assert.Contains(t, said, "\nquorate_stream_stored_revision 9\n")
	assert.Contains(t, said, "# TYPE quorate_stream_bytes_total counter\nquorate_stream_bytes_total 200\n")
	_, said = ask("/status")
	report, err := stores.Read[stores.Stream](said)
	require.NoError(t, err)
	assert.Equal(t, "c1", report.ClusterID)
	assert.EqualValues(t, 2, report.Segments)
	code, _ = ask("/other")
	assert.Equal(t, 404, code)
}
