package etcdops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/certtest"
)

// elsewhere is an endpoint of another etcd, where 10.1.0.0/16 is allowed.
func elsewhere(url string) observation.Endpoint {
	return observation.Endpoint{Name: url, ClientURL: url, External: true, Namespace: "shop",
		Allowed: &objects.AllowedEndpoints{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}}
}

// TestWhatIsNotAllowedIsNotDialed: not by its address, not by a name that is allowed and leads there, and not without
// a list. What listens there hears nothing, and the words are the same whether anything does.
func TestWhatIsNotAllowedIsNotDialed(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	var heard atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			heard.Add(1)
			_ = conn.Close()
		}
	}()
	_, open, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	everything := &objects.AllowedEndpoints{Networks: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"),
		netip.MustParsePrefix("::/0")}, Hosts: []string{"localhost"}}
	var urls []observation.Endpoint
	for _, allowed := range []*objects.AllowedEndpoints{nil, {}, everything} {
		for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1",
			"localhost.shop.svc"} {
			for _, port := range []string{open, "1"} {
				e := elsewhere("http://" + host + ":" + port)
				e.Name, e.Allowed = fmt.Sprint(len(urls)), allowed
				urls = append(urls, e)
			}
		}
	}
	_, health := (&Etcd{}).Observe(t.Context(), urls)
	for _, e := range urls {
		if !strings.Contains(e.ClientURL, ".svc:") { // it is looked up
			assert.Equal(t, "unreachable: this installation of Quorate does not allow its address", health[e.Name].Err,
				"%+v", e)
		}
	}
	assert.Zero(t, heard.Load())
}

const peerSays = "marked-words-of-the-peer"

// talker answers every call with a status of its own.
type talker struct {
	pb.UnimplementedMaintenanceServer
	code codes.Code
	says string
}

func (s *talker) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return nil, status.Error(s.code, s.says)
}

// TestWhatAnswersElsewhereIsToldInOurWords: whatever is at an endpoint that a spec names, none of its words is told,
// and one tenant can't read another's banner.
func TestWhatAnswersElsewhereIsToldInOurWords(t *testing.T) {
	plain := func(serve func(net.Conn)) func(net.Listener) {
		return func(l net.Listener) {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					serve(conn)
					// What it has not read would have the kernel reset the connection, and what it said be lost.
					_ = conn.(*net.TCPConn).CloseWrite() //nolint:forcetypeassert // of a TCP listener
					_, _ = io.Copy(io.Discard, conn)
				}()
			}
		}
	}
	talks := func(code codes.Code, says string) func(net.Listener) {
		return func(l net.Listener) {
			s := grpc.NewServer()
			pb.RegisterMaintenanceServer(s, &talker{code: code, says: says})
			_ = s.Serve(l)
		}
	}
	web := func(l net.Listener) {
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		protocols.SetHTTP1(true)
		_ = (&http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", peerSays)
			w.WriteHeader(http.StatusTeapot)
			_, _ = w.Write([]byte(peerSays))
		})}).Serve(l)
	}
	const none = "unreachable: its answer is not from etcd"
	for name, c := range map[string]struct {
		scheme string
		serve  func(net.Listener)
		want   string
	}{
		"a banner":        {"http", plain(func(c net.Conn) { _, _ = c.Write([]byte("SSH-2.0-" + peerSays + "\r\n")) }), none},
		"it hangs up":     {"http", plain(func(net.Conn) {}), none},
		"a web server":    {"http", web, none},
		"another service": {"http", func(l net.Listener) { _ = grpc.NewServer().Serve(l) }, none},
		"words, unknown":  {"http", talks(codes.Unknown, peerSays), none},
		"words, internal": {"http", talks(codes.Internal, "etcdserver: "+peerSays), none},
		"words, unavailable": {"http", talks(codes.Unavailable, "etcdserver: "+peerSays),
			"unreachable: it is not connected"},
		"words, as of TLS": {"http", talks(codes.Unavailable, "tls: "+peerSays),
			"TLS handshake failed: the two sides don't accept each other's certificate"},
		"words, denied": {"http", talks(codes.PermissionDenied, peerSays), none},
		"words, too large": {"http", talks(codes.ResourceExhausted, "grpc: received message "+peerSays),
			"another etcd answers at this address: its answer is longer than an etcd's can be"},
		"etcd's own": {"http", talks(codes.InvalidArgument, "etcdserver: authentication failed, invalid user "+
			"ID or password"), "etcd refused: authentication failed, invalid user ID or password"},
		"plain text by TLS": {"https", plain(func(c net.Conn) { _, _ = c.Write([]byte(peerSays + peerSays)) }),
			"TLS handshake failed: first record does not look like a TLS handshake"},
		"another's by TLS": {"https", func(l net.Listener) {
			web(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{marked(t, "10.1.2.3")}}))
		}, "TLS handshake failed: failed to verify certificate: x509: certificate signed by unknown authority"},
		"another name's by TLS": {"https",
			func(l net.Listener) { web(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{marked(t)}})) },
			"TLS handshake failed: failed to verify certificate: x509: certificate is valid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer listener.Close()
			go c.serve(listener)
			e := elsewhere(c.scheme + "://10.1.2.3:2379")
			if c.scheme == "https" {
				e.ServerName = "10.1.2.3"
			}
			etcd := &Etcd{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "tcp", listener.Addr().String())
			}}
			_, health := etcd.Observe(t.Context(), []observation.Endpoint{e})
			assert.Equal(t, c.want, health[e.Name].Err)
			assert.NotContains(t, health[e.Name].Err, peerSays)
		})
	}
}

// marked is a certificate that has marked words wherever it may have words; without addresses it is for another name.
func marked(t *testing.T, addresses ...string) tls.Certificate {
	t.Helper()
	template := x509.Certificate{Subject: pkix.Name{CommonName: peerSays, Organization: []string{peerSays}},
		DNSNames: []string{peerSays + ".example"}, IPAddresses: []net.IP{net.ParseIP("10.9.9.9")}}
	for _, a := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(a))
	}
	return certtest.New(t, template, nil).TLS()
}

// TestAnEndpointMayHaveAnIPv6Address: it is asked where the URL says, and shows a certificate for that address. Go
// looks at the name before the authority, so that another etcd's certificate shows whether the name is right.
func TestAnEndpointMayHaveAnIPv6Address(t *testing.T) {
	for shown, want := range map[string]string{"fd00::7": "certificate signed by unknown authority",
		"fd00::8": "certificate is valid"} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer listener.Close()
		served := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{marked(t, shown)}})
		go func() { _ = grpc.NewServer().Serve(served) }()
		var dialed atomic.Value
		etcd := &Etcd{Dial: func(ctx context.Context, address string) (net.Conn, error) {
			dialed.Store(address)
			var d net.Dialer
			return d.DialContext(ctx, "tcp", listener.Addr().String())
		}}
		e := elsewhere("https://[fd00::7]:2379")
		e.ServerName, e.Allowed.Networks = "fd00::7", []netip.Prefix{netip.MustParsePrefix("fd00::/64")}
		_, health := etcd.Observe(t.Context(), []observation.Endpoint{e})
		assert.Contains(t, health[e.Name].Err, want)
		assert.Equal(t, "[fd00::7]:2379", dialed.Load())
	}
}
