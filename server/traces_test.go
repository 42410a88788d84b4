package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	told "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// receiver is a collector of OpenTelemetry.
type receiver struct {
	*httptest.Server

	lock   sync.Mutex
	raw    bytes.Buffer
	about  map[string]any
	spans  []*told.Span
	header http.Header
	asked  int
	answer http.HandlerFunc // nil for 200
}

func receives(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		if !assert.NoError(t, err) || !assert.Equal(t, "/v1/traces", request.URL.Path) {
			return
		}
		r.lock.Lock()
		r.asked++
		answer := r.answer
		r.header = request.Header
		r.lock.Unlock()
		if answer != nil {
			answer(w, request)
			return
		}
		var in collector.ExportTraceServiceRequest
		if !assert.NoError(t, proto.Unmarshal(body, &in)) {
			return
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		r.raw.Write(body)
		for _, resource := range in.ResourceSpans {
			r.about = values(resource.Resource.Attributes)
			for _, scope := range resource.ScopeSpans {
				r.spans = append(r.spans, scope.Spans...)
			}
		}
	}))
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
	})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	return r
}

// values are attributes as they are compared.
func values(all []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, one := range all {
		switch v := one.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			m[one.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[one.Key] = v.IntValue
		case *common.AnyValue_BoolValue:
			m[one.Key] = v.BoolValue
		default:
			m[one.Key] = one.Value.String()
		}
	}
	return m
}

// traced has a server send its traces, by the environment; flush sends what there is.
func traced(t *testing.T, s *Server) (flush func()) {
	t.Helper()
	traces, err := NewTraces(t.Context(), os.Getenv, "v0.1.0", s.log)
	require.NoError(t, err)
	require.NotNil(t, traces)
	s.options.Traces = traces
	if etcd, is := s.options.Etcd.(*etcdops.Etcd); is {
		etcd.Tracer = traces.Tracer()
	}
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = traces.Close(ended)
	})
	return func() { require.NoError(t, traces.provider.ForceFlush(t.Context())) }
}

func TestTracesOfACall(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	r := receives(t)
	s, _, request, _ := calm(t)
	flush := traced(t, s)
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	s.unchanged.forget(uidOf(request)) // what was kept before there were traces
	for range 2 {
		asked := httptest.NewRequest(http.MethodPost, "/sync", bytes.NewReader(raw))
		asked.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, asked)
		require.Equal(t, 200, w.Code)
	}
	require.Equal(t, 400, post(s.Handler(), "/snapshots/finalize", []byte("{")).Code)
	flush()

	assert.Equal(t, "Bearer abc", r.header.Get("Authorization"))
	assert.Equal(t, "quorate", r.about["service.name"])
	assert.Equal(t, "v0.1.0", r.about["service.version"])
	assert.Equal(t, "test", r.about["deployment.environment.name"])
	calls := map[string]*told.Span{}
	var hooks []map[string]any
	for _, span := range r.spans {
		if span.Kind == told.Span_SPAN_KIND_SERVER {
			calls[string(span.SpanId)] = span
			hooks = append(hooks, values(span.Attributes))
		}
	}
	call := func(repeated bool) map[string]any {
		return map[string]any{"http.route": "/sync", "http.response.status_code": int64(200), "quorate.name": "orders",
			"k8s.namespace.name": "shop", "quorate.rule": "Converged", "quorate.repeated": repeated}
	}
	assert.Equal(t, []map[string]any{call(false), call(true), {"http.route": "/snapshots/finalize",
		"http.response.status_code": int64(400), "k8s.namespace.name": "", "quorate.name": ""}}, hooks)
	requests := map[string]int{}
	for _, span := range r.spans {
		if span.Kind == told.Span_SPAN_KIND_SERVER {
			if span.Name == "/sync" {
				assert.Equal(t, "b7ad6b7169203331", hex.EncodeToString(span.ParentSpanId))
			}
			continue
		}
		require.Equal(t, told.Span_SPAN_KIND_CLIENT, span.Kind)
		above := calls[string(span.ParentSpanId)]
		require.NotNil(t, above, span.Name)
		assert.Equal(t, "0af7651916cd43dd8448eb211c80319c", hex.EncodeToString(span.TraceId))
		assert.LessOrEqual(t, above.StartTimeUnixNano, span.StartTimeUnixNano)
		assert.GreaterOrEqual(t, above.EndTimeUnixNano, span.EndTimeUnixNano)
		about := values(span.Attributes)
		assert.Equal(t, "grpc", about["rpc.system.name"])
		assert.Equal(t, "OK", about["rpc.response.status_code"])
		assert.Equal(t, strings.TrimPrefix(span.Name, "/"), about["rpc.method"])
		member, _ := about["quorate.member"].(string)
		assert.Contains(t, member, "orders-")
		requests[span.Name]++
	}
	assert.Equal(t, map[string]int{"/etcdserverpb.Maintenance/Status": 6, "/etcdserverpb.Cluster/MemberList": 2}, requests,
		"of the call that decides, and of the one that is answered as that")
}

// traceMark is in all that no trace may have.
const traceMark = "ThisIsTheMark"

// AuthStatus implements [pb.AuthServer], as what follows does.
func (m *member) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Header: m.header()}, nil
}

func (m *member) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Header: m.header(), Roles: []string{traceMark}}, nil
}

func (m *member) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	return &pb.AuthUserListResponse{Header: m.header()}, nil
}

func (m *member) RoleGet(context.Context, *pb.AuthRoleGetRequest) (*pb.AuthRoleGetResponse, error) {
	return &pb.AuthRoleGetResponse{Header: m.header()}, nil
}

func (m *member) RoleGrantPermission(context.Context, *pb.AuthRoleGrantPermissionRequest) (
	*pb.AuthRoleGrantPermissionResponse, error) {
	return &pb.AuthRoleGrantPermissionResponse{Header: m.header()}, nil
}

func (m *member) RoleAdd(context.Context, *pb.AuthRoleAddRequest) (*pb.AuthRoleAddResponse, error) {
	return &pb.AuthRoleAddResponse{Header: m.header()}, nil
}

func (m *member) UserAdd(_ context.Context, r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	return nil, status.Error(codes.Code(4711), "no "+r.Name+" with "+r.Password)
}

// TestNoSecretIsInATrace: neither what a Secret holds, nor keys, users, passwords, tokens of callers, messages, what etcd
// says, nor what a panic says.
func TestNoSecretIsInATrace(t *testing.T) {
	r := receives(t)
	s, _, request, _ := calm(t)
	flush := traced(t, s)
	password := traceMark + "Password"
	etcd, _ := s.options.Etcd.(*etcdops.Etcd)
	etcd.Password = func(string, string) (string, error) { return password, nil }
	from := &users.PasswordFrom{Secret: traceMark, Key: traceMark, Version: "1"}
	step := decision.Authorize{Want: users.Want{
		Roles: []users.RoleWant{{Name: traceMark, Permits: []users.Permit{
			{Keys: users.Keys{Key: traceMark, End: traceMark + "x"}, Access: v1beta1.Read}}}},
		Users: []users.UserWant{{Name: traceMark, Roles: []string{traceMark}, Password: from}},
	}}
	s.syncFn = func(ctx context.Context, o observation.Observation, etcd hooks.Etcd) (decision.Decision,
		*decision.Outcome) {
		endpoints := facts.Endpoints(o)
		o.Etcd, o.Health = etcd.Observe(ctx, endpoints)
		err := etcd.Do(ctx, step, o.Etcd, endpoints)
		if !assert.ErrorContains(t, err, password, "so it came from etcd") {
			return decision.Decision{}, nil
		}
		d := hooks.Decide(o)
		d.Reason.Message = err.Error()
		return d, &decision.Outcome{Step: step, Rule: "Authorize", Err: err.Error()}
	}
	marked := base64.StdEncoding.EncodeToString([]byte(traceMark))
	at(request, "children", groupSecrets)["orders-user.root"] = map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": "orders-user.root", "namespace": "shop", "uid": "7",
			"annotations": map[string]any{"kubectl.kubernetes.io/last-applied-configuration": traceMark}},
		"data": map[string]any{"password": marked}}
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	ask := func() int {
		asked := httptest.NewRequest(http.MethodPost, "/sync?"+traceMark, bytes.NewReader(raw))
		asked.Header.Set("Authorization", "Bearer "+traceMark)
		asked.Header.Set("User-Agent", traceMark)
		asked.Header.Set("Baggage", "key="+traceMark)
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, asked)
		return w.Code
	}
	require.Equal(t, 200, ask())
	s.syncFn = func(context.Context, observation.Observation, hooks.Etcd) (decision.Decision, *decision.Outcome) {
		panic(traceMark)
	}
	require.Equal(t, 500, ask())
	flush()

	var failed, panicked int
	for _, span := range r.spans {
		about := values(span.Attributes)
		if span.Name == "/etcdserverpb.Auth/UserAdd" {
			failed++
			assert.Equal(t, "UNKNOWN", about["rpc.response.status_code"], "there is no such code")
			assert.Equal(t, told.Status_STATUS_CODE_ERROR, span.Status.Code)
		}
		if about["quorate.step"] != nil {
			assert.Equal(t, "authorize", about["quorate.step"])
			assert.Equal(t, "failed", about["quorate.step.outcome"])
		}
		if about["http.response.status_code"] == int64(500) {
			panicked++
			assert.Equal(t, told.Status_STATUS_CODE_ERROR, span.Status.Code)
		}
	}
	assert.Equal(t, 1, failed)
	assert.Equal(t, 1, panicked)
	for _, secret := range []string{traceMark, marked} {
		assert.NotContains(t, r.raw.String(), secret)
	}
}

// TestStrangersMakeNoSpan: who may not call fills no collector.
func TestStrangersMakeNoSpan(t *testing.T) {
	r := receives(t)
	s, _ := testServer(Options{})
	flush := traced(t, s)
	var err error
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(rightToken), 0o600))
	s.options.Callers, err = NewCallers(CallerFiles{Token: file}, s.log)
	require.NoError(t, err)
	require.Equal(t, 401, post(s.Handler(), "/sync", steady(t)).Code)
	flush()
	assert.Empty(t, r.spans)
}

// TestACollectorThatFails: the log says once what is wrong, with neither what was sent to it nor what it answered.
func TestACollectorThatFails(t *testing.T) {
	const secret = "ThePassword"
	for name, c := range map[string]struct {
		answer http.HandlerFunc // nil for a door that is closed
		says   string
	}{
		"refuses": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.Header.Get("Authorization"), http.StatusUnauthorized)
		}, "the collector answers with status 401"},
		"is too busy": {func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, r.Header.Get("Authorization"), http.StatusServiceUnavailable)
		}, "the collector answers that it is not able to take them now"},
		"takes a part": {func(w http.ResponseWriter, r *http.Request) {
			said, _ := proto.Marshal(&collector.ExportTraceServiceResponse{PartialSuccess: &collector.ExportTracePartialSuccess{
				RejectedSpans: 1, ErrorMessage: r.Header.Get("Authorization")}})
			w.Header().Set("Content-Type", "application/x-protobuf")
			_, _ = w.Write(said)
		}, "does not take all of them"},
		"is silent":    {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "does not answer in time"},
		"is not there": {nil, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			r := receives(t)
			if r.answer = c.answer; c.answer == nil {
				r.Close()
			}
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", strings.Replace(r.URL, "http://", "http://user:"+secret+"@", 1))
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+secret+",another"+secret)
			t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "100")
			s, log := testServer(Options{})
			flush := traced(t, s)
			for range 3 {
				require.Equal(t, 200, post(s.Handler(), "/sync", steady(t)).Code)
				flush()
			}
			assert.Equal(t, 1, strings.Count(log.String(), "traces are not sent"), log.String())
			assert.Contains(t, log.String(), c.says)
			assert.Equal(t, 1, strings.Count(log.String(), `does not count","error":"parse headers"`))
			assert.NotContains(t, log.String(), secret)
		})
	}
}

// TestASilentCollectorHoldsNothingUp: spans are dropped when 2048 wait, and the server ends when it should.
func TestASilentCollectorHoldsNothingUp(t *testing.T) {
	r := receives(t)
	r.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	s, _ := testServer(Options{})
	traced(t, s)
	traces := s.options.Traces
	ctx, span := traces.tracer.Start(t.Context(), "/sync")
	many := func(n int) {
		for range n {
			traces.Tracer()(ctx, "orders-0", pb.Cluster_MemberList_FullMethodName)(0)
		}
	}
	many(4000)
	require.Eventually(t, func() bool {
		r.lock.Lock()
		defer r.lock.Unlock()
		return r.asked > 0
	}, 10*time.Second, time.Millisecond)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	many(100_000)
	span.End()
	runtime.GC()
	runtime.ReadMemStats(&after)
	assert.Less(t, after.HeapAlloc, before.HeapAlloc+8<<20)
	ended, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, traces.Close(ended), context.DeadlineExceeded)
}

// TestTracesAreSentAtTheEnd: what waits when the server ends.
func TestTracesAreSentAtTheEnd(t *testing.T) {
	r := receives(t)
	s, _ := testServer(Options{})
	traced(t, s)
	require.Equal(t, 200, post(s.Handler(), "/sync", steady(t)).Code)
	require.NoError(t, s.options.Traces.Close(t.Context()))
	assert.Len(t, r.spans, 1)
	require.Equal(t, 200, post(s.Handler(), "/sync", steady(t)).Code, "and it is asked for no more")
}

// TestAWrongVariable: it is told without its value, and traces are sent.
func TestAWrongVariable(t *testing.T) {
	const secret = "ThePassword"
	for name, value := range map[string]string{
		"OTEL_RESOURCE_ATTRIBUTES": "team=a," + secret,
		"OTEL_TRACES_SAMPLER":      secret,
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, value)
			r := receives(t)
			s, log := testServer(Options{})
			flush := traced(t, s)
			require.Equal(t, 200, post(s.Handler(), "/sync", steady(t)).Code)
			flush()
			assert.NotEmpty(t, r.spans)
			assert.Contains(t, log.String(), "does not count")
			assert.Contains(t, log.String(), name)
			assert.NotContains(t, log.String(), secret)
		})
	}
}

// TestSampledTraces: the standard variables say which.
func TestSampledTraces(t *testing.T) {
	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	r := receives(t)
	s, _ := testServer(Options{})
	flush := traced(t, s)
	require.Equal(t, 200, post(s.Handler(), "/sync", steady(t)).Code)
	flush()
	assert.Empty(t, r.spans)
}

// TestNoTracesUnlessAskedFor: without an endpoint there is nothing, and what can't be meant is said without a value.
func TestNoTracesUnlessAskedFor(t *testing.T) {
	const endpoint, at = "OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"
	for _, c := range []struct {
		env  map[string]string
		says string // of nothing: off; "sent": on
	}{
		{map[string]string{}, ""},
		{map[string]string{"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_SAMPLER": "always_on"}, ""},
		{map[string]string{endpoint: at, "OTEL_SDK_DISABLED": "TRUE"}, ""},
		{map[string]string{endpoint: at, "OTEL_TRACES_EXPORTER": "none"}, ""},
		{map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, "set OTEL_EXPORTER_OTLP_ENDPOINT"},
		{map[string]string{endpoint: at, "OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER is not otlp"},
		{map[string]string{endpoint: "collector:4317"}, endpoint + " is not a URL"},
		{map[string]string{endpoint: "http://u:secret@%zz"}, endpoint + " is not a URL"},
		{map[string]string{endpoint: at, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "unix:///secret"},
			"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is not a URL"},
		{map[string]string{endpoint: at, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is not http"},
		{map[string]string{endpoint: at, "OTEL_TRACES_EXPORTER": "otlp"}, "sent"},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": at + "/v1/traces",
			"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "sent"},
	} {
		before := runtime.NumGoroutine()
		err := wanted(func(name string) string { return c.env[name] })
		switch c.says {
		case "sent":
			require.NoError(t, err, c.env)
			continue
		case "":
			require.ErrorIs(t, err, errOff, c.env)
		default:
			require.ErrorContains(t, err, c.says)
			require.NotContains(t, err.Error(), "secret")
		}
		traces, err := NewTraces(t.Context(), func(name string) string { return c.env[name] }, "v0.1.0", slog.Default())
		require.Equal(t, c.says == "", err == nil)
		require.Nil(t, traces)
		require.Nil(t, traces.Tracer())
		require.NoError(t, traces.Close(t.Context()))
		require.Equal(t, before, runtime.NumGoroutine())
	}
}

// BenchmarkTraces is what traces cost of a call: with none of them, with one that is not sampled, and with one that is.
func BenchmarkTraces(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	sink := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { _ = sink.Serve(l) }()
	defer sink.Close()
	for _, sampler := range []string{"", "always_off", "always_on"} {
		b.Run("sampler="+sampler, func(b *testing.B) {
			s, _ := testServer(Options{})
			if sampler != "" {
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
				b.Setenv("OTEL_TRACES_SAMPLER", sampler)
				s.options.Traces, err = NewTraces(b.Context(), os.Getenv, "v0.1.0", s.log)
				require.NoError(b, err)
			}
			handler, body := s.Handler(), steady(b)
			b.ReportAllocs()
			for b.Loop() {
				require.Equal(b, http.StatusOK, post(handler, "/sync", body).Code)
			}
			require.NoError(b, s.options.Traces.Close(context.Background()))
		})
	}
}
