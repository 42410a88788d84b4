package etcdops

import (
	"context"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// serveWith is serve with options of the server's, behind a listener of the test's.
func (f *fake) serveWith(t *testing.T, of func(net.Listener) net.Listener, options ...grpc.ServerOption) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(options...)
	pb.RegisterClusterServer(s, f)
	pb.RegisterMaintenanceServer(s, f)
	go func() { _ = s.Serve(of(l)) }()
	t.Cleanup(s.Stop)
	f.endpoint.ClientURL = "http://" + l.Addr().String()
}

func plainly(l net.Listener) net.Listener { return l }

// before does something before each answer.
func before(do func(context.Context) error) grpc.ServerOption {
	return grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo,
		answer grpc.UnaryHandler) (any, error) {
		if err := do(ctx); err != nil {
			return nil, err
		}
		return answer(ctx, r)
	})
}

// TestACompressedListIsNotUnpacked: 64 MiB that take 64 KiB on the wire, though the program links what could unpack
// them.
func TestACompressedListIsNotUnpacked(t *testing.T) {
	f := fakes(t, 1)[0]
	var sent atomic.Int64
	f.members[0].Name = strings.Repeat("x", 64<<20)
	f.serveWith(t, func(l net.Listener) net.Listener { return &counted{Listener: l, sent: &sent} },
		before(func(ctx context.Context) error {
			if method, _ := grpc.Method(ctx); method == pb.Cluster_MemberList_FullMethodName {
				return grpc.SetSendCompressor(ctx, "gzip")
			}
			return nil
		}))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e := &Etcd{Timeout: time.Minute}
	membership, health := e.Observe(t.Context(), []observation.Endpoint{f.endpoint})
	runtime.ReadMemStats(&after)
	require.Nil(t, membership)
	require.Contains(t, health[f.endpoint.Name].Err, "its answer can't be read")
	require.Less(t, sent.Load(), int64(1<<20))
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(100<<20), "64 MiB to pack it, and little to refuse it")
}

// counted counts what goes out.
type counted struct {
	net.Listener

	sent *atomic.Int64
}

func (l *counted) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countedConn{c, l.sent}, err
}

type countedConn struct {
	net.Conn

	sent *atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	return c.Conn.Write(p)
}

// dribbling sends the first bytes at once, so that a connection comes about, and then one each ten milliseconds.
type dribbling struct{ net.Listener }

func (l dribbling) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &dribblingConn{Conn: c, free: 200}, err
}

type dribblingConn struct {
	net.Conn

	free int
}

func (c *dribblingConn) Write(p []byte) (int, error) {
	for i := range p {
		if c.free--; c.free < 0 {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// TestDeadlinesAreKept: whatever answers at an address, endlessly, slowly or never, a look ends in its time.
func TestDeadlinesAreKept(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func(t *testing.T, f *fake){
		"a list of 3 MiB, byte by byte": func(t *testing.T, f *fake) {
			t.Helper()
			f.members[0].Name = strings.Repeat("x", 3<<20)
			f.serveWith(t, func(l net.Listener) net.Listener { return dribbling{l} })
		},
		"a status of 3 MiB, byte by byte": func(t *testing.T, f *fake) {
			t.Helper()
			f.status.Version = strings.Repeat("x", 3<<20)
			f.serveWith(t, func(l net.Listener) net.Listener { return dribbling{l} })
		},
		"no answer at all": func(t *testing.T, f *fake) {
			t.Helper()
			f.serveWith(t, plainly, before(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
		},
		"no word of HTTP": func(t *testing.T, f *fake) {
			t.Helper()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			f.endpoint.ClientURL = "http://" + l.Addr().String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fakes(t, 1)[0]
			serve(t, f)
			e := &Etcd{Timeout: 200 * time.Millisecond}
			began := time.Now()
			membership, health := e.Observe(t.Context(), []observation.Endpoint{f.endpoint})
			require.Less(t, time.Since(began), 10*time.Second,
				"three timeouts, on a busy machine; byte by byte it takes eight hours")
			require.Nil(t, membership)
			require.Less(t, len(health[f.endpoint.Name].Err), 300)
			again := e.Again([]observation.Endpoint{f.endpoint})
			membership, health = again.Observe(t.Context())
			again.Close()
			require.Less(t, time.Since(began), 20*time.Second)
			require.Nil(t, membership)
			require.Less(t, len(health[f.endpoint.Name].Err), 300)
		})
	}
}

// TestWordsOfNoEtcd: what an address says in headers and errors is bounded as its answers are.
func TestWordsOfNoEtcd(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for name, do := range map[string]func(context.Context) error{
		"an error": func(context.Context) error { return status.Error(codes.Internal, long) },
		"an error that answers": func(context.Context) error {
			return status.Error(codes.Unavailable, "etcdserver: "+long)
		},
		"one that ends the line": func(context.Context) error {
			return status.Error(codes.FailedPrecondition, "no\r\n\x1b[2J"+long[:100])
		},
		"headers": func(ctx context.Context) error {
			return grpc.SetHeader(ctx, metadata.Pairs("a", long, "b", long, "c", long, "d", long, "e", long, "f", long))
		},
		"trailers": func(ctx context.Context) error { return grpc.SetTrailer(ctx, metadata.Pairs("a", long)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fakes(t, 1)[0]
			f.serveWith(t, plainly, before(do))
			e := &Etcd{Timeout: 10 * time.Second}
			asked := []observation.Endpoint{f.endpoint}
			for _, observe := range []func() (*observation.Membership, map[string]observation.Health){
				func() (*observation.Membership, map[string]observation.Health) { return e.Observe(t.Context(), asked) },
				func() (*observation.Membership, map[string]observation.Health) {
					return e.Again(asked).Observe(t.Context())
				},
			} {
				membership, health := observe()
				require.Nil(t, membership)
				said := health[f.endpoint.Name].Err
				require.NotEmpty(t, said)
				require.Less(t, len(said), 300)
				require.NotContains(t, said, "\x1b")
				require.NotContains(t, said, "\n")
			}
		})
	}
}
