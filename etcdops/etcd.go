// Package etcdops is the only code of Quorate that talks to etcd. Type Etcd implements [hooks.Etcd] over the network:
// Observe asks, Do carries out one step. It decides nothing, and keeps nothing between two calls but [Disks].
//
// Every call opens a client of its own for each member that it talks to and closes it before it returns. A client over
// several endpoints would hide which member answered, and a client that is kept would hide that an address now belongs
// to another pod.
package etcdops

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/etcdops/token"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Deadlines of single calls unless Etcd says otherwise. Both end earlier when the caller's context does.
const (
	// DefaultTimeout is for a question: Status answers from memory, MemberList after one round of heartbeats.
	DefaultTimeout = 1500 * time.Millisecond
	// defaultStepTimeout is for a change. etcd answers it when the change is applied; a leadership transfer may take an
	// election timeout (1 s by default).
	defaultStepTimeout = 3 * time.Second
)

// Names of the calls that an Observer hears of, besides the verb of each step.
const (
	callStatus     = "status"
	callMemberList = "member-list"
	callAlarmList  = "alarm-list"
	callHash       = "hash-kv"
	callAuth       = "auth"
	callLogin      = "login"
	callMetrics    = "metrics"
	// callAuthRead and callAuthChange are the single calls of an authorize.
	callAuthRead   = "auth-read"
	callAuthChange = "auth-change"
)

// Etcd implements [hooks.Etcd] over the network. The zero value works; the fields may not change once it is in use.
type Etcd struct {
	// Timeout of one question to one member; 0 is DefaultTimeout.
	Timeout time.Duration
	// StepTimeout of one change; 0 is 3 s.
	StepTimeout time.Duration
	// Dial connects to an address such as 10.244.1.7:2379; nil is plain TCP. Proxies from the environment are never
	// used: the addresses are those of pods.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS holds what we show to members that speak it, and the authorities that must have signed their certificates;
	// nil for clusters in plain text.
	TLS *tls.Config
	// external is how the members of the etcd that a cluster has joined are reached; nil where there are none, or in
	// plain text.
	external *External
	// peer is what members show each other: with it members that ask clients for no certificate are asked which
	// authorities they trust. token signs what Quorate comes with to those; root is where root's password is, for one
	// that takes no such token. Each is nil where there is none. See [Own].
	peer  func() *tls.Config
	token func() *token.Key
	root  *users.PasswordFrom
	// logins are what members gave for that password in this call.
	logins *logins
	// Password is what is under a key of a Secret in the cluster's namespace; needed for Authorize only.
	Password func(secret, key string) (string, error)
	// Disks keeps what members' metrics have told of their disks. Nil asks for none.
	Disks *Disks
	// Observer hears of every call after it ended: its name, how long it took, and what came of it (nil, or an error
	// that wraps one of this package). It may be called from several goroutines at once. Nil hears nothing.
	Observer func(call string, took time.Duration, err error)
	// Tracer hears of every request to a member when it begins: the member's name (of another etcd, its address) and the
	// method, such as /etcdserverpb.Cluster/MemberList. What it returns hears gRPC's code when the request has ended. It
	// may be called from several goroutines at once. Nil hears nothing.
	Tracer func(ctx context.Context, member, method string) (ended func(code uint32))
}

var _ hooks.Etcd = (*Etcd)(nil)

// External is how members are reached that are not ours.
type External struct {
	// TLS holds what we show to them, and the authorities that must have signed their certificates.
	TLS *tls.Config
	// User and Password are how we log in to them, where they don't know us by a certificate; empty for no user.
	User, Password string
}

// Beside is the same for one cluster beside members that are not ours.
func (e *Etcd) Beside(external External) hooks.Etcd {
	own := *e
	own.external = &external
	return &own
}

// config is how a client reaches one member. Whatever a cluster needs to be talked to, TLS and a user among it, goes
// here and nowhere else.
func (e *Etcd) config(ctx context.Context, endpoint observation.Endpoint, told *handshake) clientv3.Config {
	config := clientv3.Config{
		Context:   context.WithoutCancel(ctx), // of a login; what is asked later has its own
		TLS:       e.tls(endpoint, told),
		Endpoints: []string{named(endpoint)},
		Logger:    zap.NewNop(),
		// One try. By default etcd's client repeats a question that met "unavailable" up to 100 times, and waits for a
		// connection as long as the deadline allows (client/v3/options.go): a refused connection would cost all of it.
		MaxUnaryRetries: 1,
		// Without it, 2 GiB. Some calls take more, see asked.
		MaxCallRecvMsgSize: largestAnswer,
		DialOptions: []grpc.DialOption{
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec)),
			grpc.WithMaxHeaderListSize(largestHeaders), // without it, 16 MiB
			grpc.WithReadBufferSize(connBuffer),
			grpc.WithWriteBufferSize(connBuffer),
			grpc.WithStaticStreamWindowSize(window),
			grpc.WithStaticConnWindowSize(window),
			// Whatever name the client knows the member by, it is reached at its pod's address.
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn,
				error) {
				return e.dial(ctx, endpoint)
			}),
			grpc.WithChainUnaryInterceptor(e.interceptors(endpoint)...),
		},
	}
	if !endpoint.External && endpoint.ServerName != "" {
		config.DialOptions = append(config.DialOptions, grpc.WithPerRPCCredentials(&visit{e, endpoint.Name, told}))
	}
	if endpoint.External {
		config.DialOptions = append(config.DialOptions, grpc.WithChainUnaryInterceptor(inOurWords))
	}
	if endpoint.External && endpoint.ServerName != "" && e.external != nil { // no password is sent in plain text
		// With a user, the client logs in before its first call, and takes that long for it at most.
		config.Username = e.external.User
		config.Password = e.external.Password
		config.DialTimeout = e.timeout()
	}
	return config
}

// named is the endpoint under the name that the member's certificate is for. etcd's client checks the name in the URL
// and no other (ServerName in a TLS configuration is overridden, by endpoint.Interpret of its package
// internal/endpoint).
func named(endpoint observation.Endpoint) string {
	u, err := url.Parse(endpoint.ClientURL)
	if err != nil || endpoint.ServerName == "" {
		return endpoint.ClientURL
	}
	u.Host = net.JoinHostPort(endpoint.ServerName, u.Port())
	return u.String()
}

// address of the endpoint, such as 10.244.1.7:2379.
func address(endpoint observation.Endpoint) string {
	u, err := url.Parse(endpoint.ClientURL)
	if err != nil {
		return endpoint.ClientURL
	}
	return u.Host
}

// tls is how a client talks to one member, noting what the member tells about itself. Nothing of a session is kept
// for the next: what is told must be of now.
func (e *Etcd) tls(endpoint observation.Endpoint, told *handshake) *tls.Config {
	if endpoint.ServerName == "" {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case endpoint.External && e.external != nil && e.external.TLS != nil:
		config = e.external.TLS.Clone()
	case !endpoint.External && e.TLS != nil:
		config = e.TLS.Clone()
	}
	config.ClientSessionCache = nil
	own := config.Certificates
	config.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		told.asks(request.AcceptableCAs)
		if len(own) == 0 {
			return &tls.Certificate{}, nil
		}
		// With TLS 1.3 a server's refusal comes after the handshake, and may be overtaken by the end of the
		// connection. What it will refuse is known now.
		if request.SupportsCertificate(&own[0]) != nil {
			return nil, errNotTaken
		}
		return &own[0], nil
	}
	config.VerifyConnection = func(state tls.ConnectionState) error {
		told.shows(state.PeerCertificates[0])
		return nil
	}
	return config
}

// errNotTaken is why we end a handshake ourselves.
var errNotTaken = errors.New("tls: it takes no certificate of our authority")

// handshake is what a member tells about itself before it answers anything.
type handshake struct {
	lock        sync.Mutex
	certificate string
	// asked: it asks for a certificate, of one of these authorities.
	asked       bool
	authorities []string
}

// asks notes that the member asks for a certificate of one of these authorities.
func (h *handshake) asks(subjects [][]byte) {
	h.trusts(subjects)
	h.lock.Lock()
	defer h.lock.Unlock()
	h.asked = true
}

func (h *handshake) trusts(subjects [][]byte) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.authorities = nil
	for _, raw := range subjects {
		sum := sha256.Sum256(raw)
		h.authorities = append(h.authorities, hex.EncodeToString(sum[:]))
	}
	slices.Sort(h.authorities)
	h.authorities = slices.Compact(h.authorities)
}

// shows is noted before the member has asked for ours.
func (h *handshake) shows(c *x509.Certificate) {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.asked = false
	sum := sha256.Sum256(c.Raw)
	h.certificate = hex.EncodeToString(sum[:])
}

// told is what the member has told by now.
func (h *handshake) told() (certificate string, authorities []string) {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.certificate, h.authorities
}

// anonymous reports whether the member was reached, and asked for no certificate.
func (h *handshake) anonymous() bool {
	h.lock.Lock()
	defer h.lock.Unlock()
	return h.certificate != "" && !h.asked
}

func (e *Etcd) dial(ctx context.Context, endpoint observation.Endpoint) (net.Conn, error) {
	if endpoint.External {
		return e.dialExternal(ctx, endpoint)
	}
	return e.connect(ctx, address(endpoint), nil)
}

// open makes a client for one member. It does not connect yet: the first call does.
func (e *Etcd) open(ctx context.Context, endpoint observation.Endpoint) (*clientv3.Client, error) {
	return e.openTelling(ctx, endpoint, &handshake{})
}

// openTelling is open, and what the member tells is kept in told.
func (e *Etcd) openTelling(ctx context.Context, endpoint observation.Endpoint, told *handshake) (*clientv3.Client,
	error) {
	client, err := clientv3.New(e.config(ctx, endpoint, told))
	return client, explain(err)
}

// call runs one call under a deadline, says what came of it in this package's errors, and tells the Observer.
func (e *Etcd) call(ctx context.Context, name string, timeout time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	began := time.Now()
	err := explain(f(ctx))
	if e.Observer != nil {
		e.Observer(name, time.Since(began), err)
	}
	return err
}

// traced makes one request to a member, and tells the Tracer.
func (e *Etcd) traced(ctx context.Context, member observation.Endpoint, method string, request func() error) error {
	if e.Tracer == nil {
		return request()
	}
	name := member.Name
	if member.External { // that is its URL, which another etcd may have told
		name = address(member)
	}
	ended := e.Tracer(ctx, name, method)
	err := request()
	s, is := status.FromError(err)
	if !is { // the request was not made by gRPC
		s = status.FromContextError(err)
	}
	ended(uint32(s.Code()))
	return err
}

func (e *Etcd) interceptors(member observation.Endpoint) []grpc.UnaryClientInterceptor {
	if e.Tracer == nil {
		return []grpc.UnaryClientInterceptor{asked}
	}
	return []grpc.UnaryClientInterceptor{e.tracing(member), asked}
}

// tracing tells the Tracer of all that a client asks of a member.
func (e *Etcd) tracing(member observation.Endpoint) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
		opts ...grpc.CallOption) error {
		return e.traced(ctx, member, method, func() error { return invoke(ctx, method, req, reply, conn, opts...) })
	}
}

func (e *Etcd) timeout() time.Duration     { return cmp.Or(e.Timeout, DefaultTimeout) }
func (e *Etcd) stepTimeout() time.Duration { return cmp.Or(e.StepTimeout, defaultStepTimeout) }
