package server

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/metrics"
)

// keepAll is a decision that keeps every child as it was observed.
func keepAll(_ context.Context, o observation.Observation, _ hooks.Etcd) (decision.Decision, *decision.Outcome) {
	d := decision.Decision{Reason: decision.Reason{Rule: "Converged"}, Quiet: true}
	d.Children.Pods = slices.Collect(maps.Values(o.Children.Pods))
	d.Children.Claims = slices.Collect(maps.Values(o.Children.Claims))
	d.Children.ConfigMaps = slices.Collect(maps.Values(o.Children.ConfigMaps))
	d.Children.Services = slices.Collect(maps.Values(o.Children.Services))
	d.Children.Budgets = slices.Collect(maps.Values(o.Children.Budgets))
	d.Children.Policies = slices.Collect(maps.Values(o.Children.Policies))
	for _, p := range o.Children.Secrets {
		d.Children.Secrets = append(d.Children.Secrets, &decision.DesiredSecret{ObjectMeta: p.ObjectMeta, Type: p.Type})
	}
	return d, nil
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

func TestPages(t *testing.T) {
	s, _ := testServer(Options{})
	pages, hooks := s.pages(), s.Handler()
	require.Equal(t, 200, get(pages, "/healthz").Code)
	require.Equal(t, 200, get(pages, "/readyz").Code)
	s.stopping.Store(true)
	require.Equal(t, 503, get(pages, "/readyz").Code, "no new calls while shutting down")
	require.Equal(t, 200, get(pages, "/healthz").Code, "and no restart")
	for _, page := range []string{"/", "/healthz", "/readyz", "/metrics", "/debug/pprof/"} {
		require.Equal(t, 404, get(hooks, page).Code, "the hooks' port answers hooks alone: %s", page)
	}
	for _, hook := range []string{"/sync", "/finalize", "/customize"} {
		w := get(hooks, hook)
		require.Equal(t, 405, w.Code)
		errorOf(t, w)
		require.Equal(t, 404, post(pages, hook, steady(t)).Code, "and the pages' port none")
	}
	require.Equal(t, 405, post(pages, "/metrics", nil).Code)
}

func TestMetrics(t *testing.T) {
	m := metrics.New("v1.2.3", "0123abc")
	s, _ := testServer(Options{Metrics: m})
	s.syncFn = keepAll
	h := s.Handler()
	m.EtcdCall("status", time.Millisecond, nil)
	m.EtcdCall("status", time.Millisecond, errors.New("refused"))
	post(h, "/sync", steady(t))
	post(h, "/sync", nil)
	s.syncFn = stepped("")
	post(h, "/sync", steady(t))
	text := get(s.pages(), "/metrics").Body.String()
	for _, line := range []string{
		`quorate_build_info{commit="0123abc",version="v1.2.3"} 1`,
		`quorate_decisions_total{rule="Converged"} 1`,
		`quorate_decisions_total{rule="Grow"} 1`,
		`quorate_decisions_total{rule="Promote"} 1`,
		`quorate_steps_total{outcome="done",step="promote"} 1`,
		`quorate_hook_duration_seconds_count{code="200",hook="sync"} 2`,
		`quorate_hook_duration_seconds_count{code="400",hook="sync"} 1`,
		`quorate_etcd_call_duration_seconds_count{call="status"} 2`,
		`quorate_etcd_call_errors_total{call="status"} 1`,
		`quorate_clusters 1`, "quorate_violations_total 0", "go_goroutines", "process_resident_memory_bytes",
	} {
		require.Contains(t, text, line)
	}
}

// stepped is a decision after a step that ended with err.
func stepped(err string) func(context.Context, observation.Observation, hooks.Etcd) (decision.Decision,
	*decision.Outcome) {
	return func(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision,
		*decision.Outcome) {
		d, _ := keepAll(ctx, o, etcd)
		d.Reason = decision.Reason{Rule: "Grow", Message: "one more member"}
		return d, &decision.Outcome{Step: decision.Promote{ID: 1, Name: "orders-0"}, Rule: "Promote", Err: err}
	}
}

func TestLogs(t *testing.T) {
	s, log := testServer(Options{})
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	s.syncFn = keepAll
	h := s.Handler()
	lines := func() string { defer log.Reset(); return log.String() }

	post(h, "/sync", steady(t))
	require.Contains(t, lines(),
		`"level":"DEBUG","msg":"sync","cluster":"shop/orders","uid":"12c500ed-0b78-7910-5fb4-6af0f246be87","rule":"Converged"`)

	s.syncFn = stepped("etcdserver: unhealthy cluster")
	post(h, "/sync", steady(t))
	line := lines()
	require.Contains(t, line, `"level":"INFO"`)
	require.Contains(t, line,
		`"rule":"Grow","message":"one more member","step":"promote orders-0","step_rule":"Promote","outcome":"etcdserver: unhealthy cluster","duration_ms":0,"children":{"pods":3,"claims":3,"configmaps":1,"services":2,"budgets":1}}`)

	for range 5 {
		now = now.Add(10 * time.Second)
		post(h, "/sync", steady(t))
	}
	require.Empty(t, lines(), "the same is said once a minute")
	now = now.Add(10 * time.Second)
	post(h, "/sync", steady(t))
	require.Contains(t, lines(), `"held_back":5`)

	s.syncFn = stepped("")
	post(h, "/sync", steady(t))
	require.Contains(t, lines(), `"outcome":"done"`, "something else is said at once")

	now = now.Add(forgetAfter + time.Second)
	s.logged.sweep(now)
	require.Empty(t, s.logged.lines, "a cluster that is not asked about any more is forgotten")
}

func TestPanicIsAnError(t *testing.T) {
	s, log := testServer(Options{})
	s.syncFn = func(context.Context, observation.Observation, hooks.Etcd) (decision.Decision, *decision.Outcome) {
		panic("out of ideas")
	}
	h := s.Handler()
	for range 2 { // the second call shows that the turn was given back
		w := post(h, "/sync", steady(t))
		require.Equal(t, 500, w.Code)
		require.NotContains(t, errorOf(t, w), "ideas")
	}
	require.Contains(t, log.String(), "out of ideas")
	require.Contains(t, log.String(), "server_test.go", "with the stack")
	require.Contains(t, get(s.pages(), "/metrics").Body.String(),
		`quorate_hook_duration_seconds_count{code="500",hook="sync"} 2`)
	require.Empty(t, s.locks.queues)
}

func TestVerifyWithholdsAnswersAndSteps(t *testing.T) {
	broken := func(observation.Observation, decision.Decision) error { return errors.New("S7: a claim would go") }
	s, _ := testServer(Options{Verify: true})
	s.syncFn, s.verifyFn = keepAll, broken
	w := post(s.Handler(), "/sync", steady(t))
	require.Equal(t, 500, w.Code)
	require.Contains(t, errorOf(t, w), "S7")

	etcd := &steps{}
	s, _ = testServer(Options{Verify: true, Etcd: etcd})
	s.syncFn, s.decideFn = takeStep, func(observation.Observation) decision.Decision {
		return decision.Decision{Step: decision.Remove{ID: 1}}
	}
	s.verifyFn = func(_ observation.Observation, d decision.Decision) error {
		if d.Step != nil {
			return errors.New("S6: the last voter")
		}
		return nil
	}
	w = post(s.Handler(), "/sync", steady(t))
	require.Equal(t, 500, w.Code)
	require.Contains(t, errorOf(t, w), "S6")
	require.Zero(t, etcd.taken.Load(), "the step was not begun")

	s, _ = testServer(Options{Verify: true})
	require.Equal(t, 200, post(s.Handler(), "/sync", steady(t)).Code, "the real rules hold in the steady state")
}

// steps counts the steps that were taken; each waits for its context or for go on.
type steps struct {
	healthy
	taken atomic.Int32
	do    func(context.Context) error
}

func (s *steps) Do(ctx context.Context, _ decision.Step, _ *observation.Membership, _ []observation.Endpoint) error {
	s.taken.Add(1)
	if s.do != nil {
		return s.do(ctx)
	}
	return nil
}

// takeStep is a decision that takes a step whatever it sees.
func takeStep(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision, *decision.Outcome) {
	m, _ := etcd.Observe(ctx, nil)
	d, outcome := stepped("")(ctx, o, etcd)
	if err := etcd.Do(ctx, outcome.Step, m, nil); err != nil {
		outcome.Err = err.Error()
	}
	return d, outcome
}

func TestCallsForOneClusterTakeTurns(t *testing.T) {
	s, _ := testServer(Options{CallTimeout: 10 * time.Second})
	var running, most, calls atomic.Int32
	s.syncFn = func(ctx context.Context, o observation.Observation, e hooks.Etcd) (decision.Decision,
		*decision.Outcome) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		calls.Add(1)
		time.Sleep(5 * time.Millisecond)
		return keepAll(ctx, o, e)
	}
	h := s.Handler()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { require.Equal(t, 200, post(h, "/sync", steady(t)).Code) })
	}
	wg.Wait()
	require.EqualValues(t, 8, calls.Load())
	require.EqualValues(t, 1, most.Load(), "calls overlapped")
	require.Empty(t, s.locks.queues, "nothing is left of a cluster without calls")
}

func TestWaitingInVain(t *testing.T) { synctest.Test(t, waitingInVain) }

func waitingInVain(t *testing.T) {
	s, _ := testServer(Options{CallTimeout: 8 * time.Second})
	entered, leave := make(chan struct{}), make(chan struct{})
	s.syncFn = func(ctx context.Context, o observation.Observation, e hooks.Etcd) (decision.Decision,
		*decision.Outcome) {
		close(entered)
		<-leave
		return keepAll(ctx, o, e)
	}
	h := s.Handler()
	done := make(chan int)
	go func() { done <- post(h, "/sync", steady(t)).Code }()
	<-entered
	began := time.Now()
	w := post(h, "/sync", steady(t))
	require.Equal(t, 429, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Equal(t, 4*time.Second, time.Since(began), "half of the call's time is left for the call itself")
	errorOf(t, w)

	other := edited(t, func(r map[string]any) { at(r, "parent", "metadata")["uid"] = "another" })
	s.syncFn = keepAll
	require.Equal(t, 200, post(h, "/sync", other).Code, "another cluster does not wait")
	close(leave)
	require.Equal(t, 200, <-done)
	require.Empty(t, s.locks.queues)
}

// TestClientGoesAway: before a step, nothing is done; a step under way is finished.
func TestClientGoesAway(t *testing.T) {
	ctx, goAway := context.WithCancel(context.Background())
	call := func(h http.Handler) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/sync",
			bytes.NewReader(steady(t))).WithContext(ctx))
	}
	etcd := &steps{do: func(step context.Context) error {
		goAway()
		_, limited := step.Deadline()
		require.True(t, limited)
		require.NoError(t, step.Err(), "the step must not see that the client is gone")
		return nil
	}}
	s, _ := testServer(Options{Etcd: etcd})
	s.syncFn = takeStep
	call(s.Handler())
	require.EqualValues(t, 1, etcd.taken.Load())

	call(s.Handler()) // the client is gone already
	require.EqualValues(t, 1, etcd.taken.Load(), "no step without a client")
}

// listen serves hooks and pages on loopback ports until the test calls stop, which returns Serve's error.
func listen(t *testing.T, s *Server) (hooks, pages string, stop func() error) {
	t.Helper()
	h, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, h, p) }()
	t.Cleanup(cancel)
	return "http://" + h.Addr().String(), "http://" + p.Addr().String(), func() error { cancel(); return <-served }
}

func TestShutdownFinishesCalls(t *testing.T) {
	s, _ := testServer(Options{DrainDelay: 50 * time.Millisecond})
	entered, leave := make(chan struct{}), make(chan struct{})
	s.syncFn = func(ctx context.Context, o observation.Observation, e hooks.Etcd) (decision.Decision,
		*decision.Outcome) {
		close(entered)
		<-leave
		return keepAll(ctx, o, e)
	}
	url, pages, stop := listen(t, s)
	code := make(chan int)
	go func() {
		resp, err := http.Post(url+"/sync", "application/json", bytes.NewReader(steady(t)))
		if err != nil {
			code <- 0
			return
		}
		resp.Body.Close()
		code <- resp.StatusCode
	}()
	<-entered
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	require.Eventually(t, func() bool {
		resp, err := http.Get(pages + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusServiceUnavailable
	}, 2*time.Second, time.Millisecond, "/readyz fails while the listener is still open")
	select {
	case err := <-stopped:
		t.Fatal("stopped with a call in flight", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(leave)
	require.Equal(t, 200, <-code)
	require.NoError(t, <-stopped)
	_, err := http.Get(pages + "/readyz")
	require.Error(t, err, "the listener is closed")
}

func TestShutdownIsBounded(t *testing.T) {
	s, _ := testServer(Options{DrainDelay: -1, ShutdownTimeout: 50 * time.Millisecond})
	entered := make(chan struct{})
	s.syncFn = func(ctx context.Context, _ observation.Observation, _ hooks.Etcd) (decision.Decision,
		*decision.Outcome) {
		close(entered)
		<-ctx.Done()
		return decision.Decision{}, nil
	}
	url, _, stop := listen(t, s)
	go func() { _, _ = http.Post(url+"/sync", "application/json", bytes.NewReader(steady(t))) }()
	<-entered
	require.ErrorContains(t, stop(), "cut off")
}
