package etcdops

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// Again asks the members of one cluster over connections that it keeps. A kept connection leads to the process that it
// was made to, and to no other; what that process tells in handshakes (Certificate, Trusts) is as it was when the
// connection was made. See docs/decisions/0045-unchanged-calls.md.
type Again struct {
	etcd      *Etcd
	endpoints []observation.Endpoint

	lock  sync.Mutex
	kept  []*kept
	ended bool
}

// Again asks these members again and again; nil where something is asked that a kept connection can't tell.
func (e *Etcd) Again(endpoints []observation.Endpoint) *Again {
	for _, endpoint := range endpoints {
		if endpoint.External || endpoint.AsksAuth || endpoint.PeerAddress != "" ||
			endpoint.MetricsURL != "" {
			return nil
		}
	}
	own := *e
	own.peer = nil
	own.token = nil
	own.root = nil
	own.Password = nil
	own.logins = nil
	return &Again{etcd: &own, endpoints: endpoints}
}

// Observe is that of [hooks.Etcd]; errors may have other words. After an error of any member the connections are
// closed, and the next call makes new ones. After Close it tells nothing.
func (a *Again) Observe(ctx context.Context) (*observation.Membership, map[string]observation.Health) {
	a.lock.Lock()
	defer a.lock.Unlock()
	if a.ended {
		return nil, nil
	}
	if a.kept == nil {
		a.connect(ctx)
	}
	contacts := make([]*contact, len(a.endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range a.endpoints {
		c := &contact{endpoint: endpoint, conn: a.kept[i], told: &a.kept[i].told, err: a.kept[i].err}
		contacts[i] = c
		if c.err == nil {
			wg.Go(func() {
				a.etcd.askStatus(ctx, c)
				c.judge()
			})
		}
	}
	wg.Wait()
	membership := a.etcd.findMembership(ctx, contacts)
	health := make(map[string]observation.Health, len(contacts))
	for _, c := range contacts {
		health[c.endpoint.Name] = c.health(contacts)
	}
	if slices.ContainsFunc(a.kept, (*kept).spent) || membership == nil ||
		slices.ContainsFunc(contacts, func(c *contact) bool { return c.err != nil }) {
		a.hangUp()
	}
	return membership, health
}

func (a *Again) connect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.etcd.timeout())
	defer cancel()
	a.kept = make([]*kept, len(a.endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range a.endpoints {
		wg.Go(func() { a.kept[i] = a.etcd.keep(ctx, endpoint) })
	}
	wg.Wait()
}

// Connections is how many it has.
func (a *Again) Connections() int { return len(a.endpoints) }

// Close lets go of the connections, once the call that uses them has ended.
func (a *Again) Close() {
	a.lock.Lock()
	defer a.lock.Unlock()
	a.ended = true
	a.hangUp()
}

func (a *Again) hangUp() {
	for _, k := range a.kept {
		if k.conn != nil {
			_ = k.conn.Close()
		}
	}
	a.kept = nil
}

// kept is a connection to a member: HTTP/2 without gRPC's client, which takes several times the memory.
type kept struct {
	etcd   *Etcd
	member observation.Endpoint

	conn *http.ClientConn
	talk *talk
	told handshake
	err  error

	scheme, host string
}

var _ grpc.ClientConnInterface = (*kept)(nil)

// spent reports whether the connection will soon have brought more than it may without a slot, which are for those
// that are closed again.
func (k *kept) spent() bool { return k.talk != nil && k.talk.brought.Load() > smallTalk/2 }

// transport makes HTTP/2 of connections that are there. What a member may send unasked is bounded.
var transport = &http.Transport{
	DialContext:            dialed,
	DialTLSContext:         dialed,
	MaxResponseHeaderBytes: largestHeaders,
	DisableCompression:     true,
	Protocols:              onlyHTTP2(),
	HTTP2: &http.HTTP2Config{MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window,
		MaxReadFrameSize: largestFrame},
}

// largestFrame is in bytes; HTTP/2 allows no smaller bound (RFC 9113, section 6.5.2).
const largestFrame = 16 << 10

func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

type connKey struct{}

// dialed is the connection in the context.
func dialed(ctx context.Context, _, _ string) (net.Conn, error) {
	conn, is := ctx.Value(connKey{}).(net.Conn)
	if !is {
		return nil, errors.New("no connection was made")
	}
	return conn, nil
}

// keep connects to a member.
func (e *Etcd) keep(ctx context.Context, endpoint observation.Endpoint) *kept {
	k := &kept{etcd: e, member: endpoint, scheme: "http", host: "etcd"}
	conn, err := e.dial(ctx, endpoint)
	if err != nil {
		k.err = because(ErrUnreachable, lastClause(err.Error()))
		return k
	}
	if t, is := conn.(*talk); is {
		t.kept = true
		k.talk = t
	}
	if config := e.tls(endpoint, &k.told); config != nil {
		config.ServerName = endpoint.ServerName
		config.NextProtos = []string{"h2"}
		k.scheme = "https"
		k.host = endpoint.ServerName
		secured := tls.Client(conn, config)
		err = secured.HandshakeContext(ctx)
		conn = secured
	}
	if err == nil {
		k.conn, err = transport.NewClientConn(context.WithValue(ctx, connKey{}, conn), k.scheme, k.host+":2379")
	}
	if err != nil {
		_ = conn.Close()
		k.err = because(ErrHandshake, lastClause(err.Error()))
	}
	return k
}

// Invoke implements [grpc.ClientConnInterface].
func (k *kept) Invoke(ctx context.Context, method string, args, reply any, _ ...grpc.CallOption) error {
	return k.etcd.traced(ctx, k.member, method, func() error { return k.invoke(ctx, method, args, reply) })
}

// invoke is one unary call (gRPC over HTTP2, PROTOCOL-HTTP2.md of gRPC).
func (k *kept) invoke(ctx context.Context, method string, args, reply any) error {
	body, err := framed(args)
	if err != nil {
		return err
	}
	request := &http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: k.scheme, Host: k.host, Path: method}, Host: k.host,
		Header: http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	if deadline, has := ctx.Deadline(); has {
		left := max(1, time.Until(deadline).Milliseconds())
		request.Header["Grpc-Timeout"] = []string{strconv.FormatInt(left, 10) + "m"}
	}
	response, err := k.conn.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return unavailable(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, messageHead+largestAnswer+1))
	if err != nil {
		return unavailable(ctx, err)
	}
	if len(text) > messageHead+largestAnswer {
		return because(ErrOtherEtcd, tooLong)
	}
	if err := answered(response); err != nil {
		return err
	}
	return unframed(text, reply)
}

// NewStream implements [grpc.ClientConnInterface]. Nothing that is asked again is a stream.
func (k *kept) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "no stream is kept")
}

// unavailable is an error of the connection, in gRPC's words.
func unavailable(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil {
		return ended
	}
	return status.Error(codes.Unavailable, err.Error())
}

// answered is the error that the member's answer is; nil for a message. What goes before and what goes behind is one
// where there is no message.
func answered(response *http.Response) error {
	if response.StatusCode != http.StatusOK {
		return because(errRefused, response.Status)
	}
	code, said := response.Trailer.Get("Grpc-Status"), response.Trailer.Get("Grpc-Message")
	if code == "" {
		code, said = response.Header.Get("Grpc-Status"), response.Header.Get("Grpc-Message")
	}
	if code == "0" {
		return nil
	}
	number, err := strconv.ParseUint(code, 10, 32)
	if err != nil {
		return because(ErrOtherEtcd, notMade)
	}
	if plain, err := url.PathUnescape(said); err == nil {
		said = plain
	}
	return status.Error(codes.Code(number), said)
}

// messageHead is in bytes: whether a message is compressed, and its length.
const messageHead = 5

func framed(message any) ([]byte, error) {
	text, err := codec.Marshal(message)
	if err != nil {
		return nil, fmt.Errorf("a question can't be written: %w", err)
	}
	defer text.Free()
	body := make([]byte, messageHead, messageHead+text.Len())
	binary.BigEndian.PutUint32(body[1:], uint32(text.Len()))
	return append(body, text.Materialize()...), nil
}

var errFraming = errors.New(notMade)

func unframed(text []byte, into any) error {
	if len(text) < messageHead || text[0] != 0 || int(binary.BigEndian.Uint32(text[1:])) != len(text)-messageHead {
		return because(ErrOtherEtcd, errFraming.Error())
	}
	if err := codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(text[messageHead:])}, into); err != nil {
		return because(ErrOtherEtcd, err.Error())
	}
	return nil
}
