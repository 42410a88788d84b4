package server

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestSeats: with 20 workers, a namespace has five calls at most about clusters that are slow. A cluster that answers
// again has done with that at once, and others are never refused.
func TestSeats(t *testing.T) {
	var s slowCalls
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	name := func(i int) types.UID { return types.UID(strings.Repeat("x", i+1)) }
	s.begin("other", "quiet", now).end(0, now)
	var calls []*slowCall
	for i := range 20 {
		calls = append(calls, s.begin("hostile", name(i), now))
		require.NotNil(t, calls[i], "nothing is known of it")
	}
	require.Equal(t, slowAfter/2, s.long())
	for i, c := range calls {
		require.Equal(t, i < 5, c.stays(), "they last")
	}
	for _, c := range calls {
		c.end(slowAfter/2, now)
	}
	require.Len(t, s.slow, 15, "those that were cut off")
	for _, c := range calls {
		c.stays() // too late
	}
	require.Empty(t, s.taken)
	for i := range 5 {
		s.begin("hostile", name(i), now).end(3*time.Second, now)
	}

	calls = nil
	for i := range 20 {
		c := s.begin("hostile", name(i), now)
		require.Equal(t, i < 5, c != nil, i)
		if c != nil {
			calls = append(calls, c)
			require.True(t, c.stays(), "it has its slot")
		}
	}
	require.False(t, s.begin("hostile", "healthy", now).stays())
	require.True(t, s.begin("other", "quiet", now).stays())
	calls[0].end(time.Millisecond, now) // its members are back
	require.NotNil(t, s.begin("hostile", name(10), now))
	require.Nil(t, s.begin("hostile", name(11), now))
	require.NotNil(t, s.begin("hostile", name(0), now))

	require.Len(t, s.slow, 19)
	now = now.Add(forgetAfter + time.Second)
	require.NotNil(t, s.begin("other", "quiet", now))
	require.Empty(t, s.slow, "what is not asked about is forgotten")
	require.Equal(t, s.atOnce(), s.most(), "it is the only one namespace")
	s.begin("third", "quiet", now)
	require.Equal(t, 5, s.most(), "how many workers there are is known for a while")
	for range 2 {
		now = now.Add(2 * peakOver)
		s.begin("other", "quiet", now)
		s.begin("third", "quiet", now)
	}
	require.Less(t, s.most(), 7)
}

// deaf is an etcd that answers nothing about the clusters of one namespace until the call's time is over, or until it
// is let go.
type deaf struct {
	healthy

	letGo chan struct{}
}

func (d deaf) Observe(ctx context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	if !strings.Contains(endpoints[0].PeerURL, ".hostile.svc") {
		return d.healthy.Observe(ctx, endpoints)
	}
	select {
	case <-ctx.Done():
	case <-d.letGo:
	}
	return nil, nil
}

// TestOneHostileAmongFifty: Metacontroller's 20 workers take one parent after the other out of one queue. A tenant with
// 200 clusters whose etcds never answer holds five of them, so that those of 50 others are asked about as if it were
// not there: no call of theirs begins later than when the hostile ones before it in the queue are refused, or cut off
// when they are not known to be slow yet. It counts who waits for what, and no time.
func TestOneHostileAmongFifty(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprintf("known to be slow: %t", known), func(t *testing.T) { oneHostileAmongFifty(t, known) })
	}
}

func oneHostileAmongFifty(t *testing.T, known bool) {
	t.Helper()
	etcd := deaf{letGo: make(chan struct{})}
	s, _ := testServer(Options{Etcd: etcd, CallTimeout: time.Hour})
	h := s.Handler()
	body := func(namespace, uid string) []byte {
		text := strings.ReplaceAll(string(steady(t)), "12c500ed-0b78-7910-5fb4-6af0f246be87", uid)
		text = strings.ReplaceAll(text, ".shop.svc", "."+namespace+".svc")
		return []byte(strings.ReplaceAll(text, `"namespace":"shop"`, `"namespace":"`+namespace+`"`))
	}
	const workers, hostile, others = 20, 200, 50
	for i := range hostile { // as they were asked about before
		if known {
			s.slow.begin("hostile", types.UID("hostile-"+time.Duration(i).String()), time.Now()).end(time.Minute,
				time.Now())
		}
	}
	s.slow.begin("shop", "a", time.Now()).end(0, time.Now())
	s.slow.peak = workers

	queue := make(chan []byte, hostile+others)
	for i := range hostile {
		queue <- body("hostile", "hostile-"+time.Duration(i).String())
		if i%(hostile/others) == 0 {
			queue <- body("shop-"+time.Duration(i).String(), "shop-"+time.Duration(i).String())
		}
	}
	close(queue)
	var mu sync.Mutex
	codes := map[string]map[int]int{"hostile": {}, "shop": {}}
	answered := make(chan struct{}, others)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for call := range queue {
				who := "shop"
				if strings.Contains(string(call), `"namespace":"hostile"`) {
					who = "hostile"
				}
				code := post(h, "/sync", call).Code
				mu.Lock()
				codes[who][code]++
				mu.Unlock()
				if who == "shop" {
					answered <- struct{}{}
				}
			}
		})
	}
	for range others { // all of them, while the hostile calls that were let in still wait
		select {
		case <-answered:
		case <-time.After(time.Minute):
			t.Fatal("a cluster of another tenant was not asked about")
		}
	}
	close(etcd.letGo)
	all.Wait()
	require.Equal(t, map[int]int{http.StatusOK: others}, codes["shop"])
	require.Equal(t, hostile, codes["hostile"][http.StatusTooManyRequests]+codes["hostile"][http.StatusOK])
	require.GreaterOrEqual(t, codes["hostile"][http.StatusTooManyRequests], hostile-2*workers, "the others may have "+
		"come when etcd answered again")
	require.Contains(t, get(s.pages(), "/metrics").Body.String(),
		`quorate_calls_put_off_total{namespace="hostile",reason="slow"} `)
}

// stopsIn is an etcd in which a call that is cut off is as far as told.
type stopsIn struct {
	healthy

	step bool
	cut  *<-chan struct{}
}

func (e stopsIn) Observe(ctx context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	if *e.cut == nil {
		*e.cut = ctx.Done()
		if !e.step {
			<-ctx.Done()
		}
	}
	return e.healthy.Observe(ctx, endpoints)
}

func (e stopsIn) Do(ctx context.Context, _ decision.Step, _ *observation.Membership, _ []observation.Endpoint) error {
	<-*e.cut
	return ctx.Err()
}

// TestWhatIsCutOff: a call that is cut off before its step has decided nothing. One whose step was begun goes on to its
// answer.
func TestWhatIsCutOff(t *testing.T) {
	for _, step := range []bool{false, true} {
		s, log := testServer(Options{Etcd: stopsIn{step: step, cut: new(<-chan struct{})}})
		s.syncFn = func(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision,
			*decision.Outcome) {
			o.Etcd, o.Health = etcd.Observe(ctx, nil)
			d, outcome := stepped("")(ctx, o, etcd)
			if err := etcd.Do(ctx, outcome.Step, o.Etcd, nil); err != nil {
				outcome.Err = err.Error()
			}
			return d, outcome
		}
		s.slow.taken = map[string]int{"shop": 100}
		s.slow.begin("other", "quiet", time.Now()).end(0, time.Now())
		w := post(s.Handler(), "/sync", steady(t))
		if !step {
			require.Equal(t, http.StatusTooManyRequests, w.Code, w.Body)
			require.Equal(t, "5", w.Header().Get("Retry-After"))
			require.NotContains(t, log.String(), `"step"`)
			continue
		}
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		require.Contains(t, log.String(), `"outcome":"done"`)
	}
}
