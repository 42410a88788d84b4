package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// Faults between Quorate and etcd.
const (
	etcdRefused    faultKind = "etcd: request refused"        // as if nothing listened
	etcdDropped    faultKind = "etcd: request dropped"        // no answer
	etcdBroken     faultKind = "etcd: answer dropped"         // carried out, then the connection breaks
	etcdUnanswered faultKind = "etcd: answer never comes"     // carried out, then no answer
	etcdOverdue    faultKind = "etcd: request after timeout"  // carried out when no one waits any more
	etcdSlow       faultKind = "etcd: answer delayed"         // but in time, or nearly
	etcdAtOnce     faultKind = "etcd: request twice at once"  // one of the answers counts
	etcdAgain      faultKind = "etcd: request twice in a row" // one of the answers counts
)

// What only asks is asked all the time, and a call of the hook asks several times.
var (
	askWeights = []weight{
		{etcdRefused, 2}, {etcdDropped, 2}, {etcdBroken, 2}, {etcdUnanswered, 1}, {etcdOverdue, 1}, {etcdSlow, 4},
		{etcdAtOnce, 1}, {etcdAgain, 1},
	}
	changeWeights = []weight{
		{etcdRefused, 4}, {etcdDropped, 4}, {etcdBroken, 10}, {etcdUnanswered, 6}, {etcdOverdue, 8}, {etcdSlow, 8},
		{etcdAtOnce, 8}, {etcdAgain, 8},
	}
)

// Etcd is the proxy between Quorate and etcd. It takes each connection for one to the address that the caller meant,
// and connects to that: what routes the callers to it must keep the destination of their packets. TLS ends at it, and
// it speaks TLS of its own to the member.
type Etcd struct {
	Schedule *Schedule
	// Dial connects to a member.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// TLS is asked at every connection of Quorate for what the member of this name shows, and for what Quorate shows
	// to it. Nil: all speak plain text.
	TLS func(member string) (server, operator Keys, err error)
	// Saw hears of every call that a member has answered. It may be called from several goroutines at once.
	Saw func(method string, request, answer []byte)

	faults underway
}

// Server serves the proxy's side towards Quorate.
func (e *Etcd) Server() *grpc.Server {
	options := []grpc.ServerOption{grpc.UnknownServiceHandler(e.handle), grpc.ForceServerCodec(asBytes{})}
	if e.TLS != nil {
		options = append(options, grpc.Creds(middle{credentials.NewTLS(nil), e}))
	}
	return grpc.NewServer(options...)
}

// Wait waits until nothing of an earlier fault is under way any more. Stop the schedule first.
func (e *Etcd) Wait() { e.faults.wait() }

// message is one message of gRPC, not looked into.
type message struct{ bytes []byte }

// asBytes is a codec that leaves messages as they are.
type asBytes struct{}

func (asBytes) Name() string { return "proto" }

func (asBytes) Marshal(v any) ([]byte, error) {
	m, ok := v.(*message)
	if !ok {
		return nil, fmt.Errorf("a %T is no message", v)
	}
	return m.bytes, nil
}

func (asBytes) Unmarshal(data []byte, v any) error {
	m, ok := v.(*message)
	if !ok {
		return fmt.Errorf("a %T is no message", v)
	}
	m.bytes = append([]byte(nil), data...)
	return nil
}

// rpc is one call on its way through the proxy.
type rpc struct {
	e       *Etcd
	address string
	member  credentials.TransportCredentials
	full    string // /etcdserverpb.Cluster/MemberList
	request message
	header  metadata.MD
}

// handle serves one call; all those that Quorate makes are of one request and one answer.
func (e *Etcd) handle(_ any, stream grpc.ServerStream) error {
	e.faults.begin()
	defer e.faults.end()
	full, _ := grpc.MethodFromServerStream(stream)
	p, ok := peer.FromContext(stream.Context())
	if !ok || p.LocalAddr == nil {
		return status.Error(codes.Internal, "chaos: the address is not known")
	}
	c := &rpc{e: e, address: p.LocalAddr.String(), member: insecure.NewCredentials(), full: full}
	if l, ok := p.AuthInfo.(*link); ok {
		c.member = credentials.NewTLS(l.member)
	}
	c.header, _ = metadata.FromIncomingContext(stream.Context())
	if err := stream.RecvMsg(&c.request); err != nil {
		return err
	}
	answer, err := c.disturbed(stream.Context())
	if err != nil {
		return err
	}
	return stream.SendMsg(answer)
}

func (c *rpc) method() string { return path.Base(c.full) }

// changes reports whether the call changes something in etcd.
func (c *rpc) changes() bool {
	switch c.method() {
	case "Status", "MemberList", "Alarm":
		return false
	}
	return true
}

func (c *rpc) disturbed(ctx context.Context) (*message, error) {
	dice := c.e.Schedule.next("etcd " + c.method())
	if dice == nil {
		return c.carryOut(ctx)
	}
	weights := askWeights
	if c.changes() {
		weights = changeWeights
	}
	fault := pick(dice, weights)
	what := string(fault)
	if fault == calm {
		what = "calls of etcd, undisturbed"
	}
	answer, err := c.meet(ctx, fault, dice)
	c.e.Schedule.Count(what, c.method())
	return answer, err
}

var (
	errRefused = status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: chaos: connect: connection refused"`)
	errBroken  = status.Error(codes.Unavailable, "error reading from server: EOF")
)

func (c *rpc) meet(ctx context.Context, fault faultKind, dice *rand.Rand) (*message, error) {
	switch fault {
	case etcdRefused:
		return nil, errRefused
	case etcdDropped:
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case etcdBroken:
		_, _ = c.carryOut(ctx)
		return nil, errBroken
	case etcdUnanswered:
		_, _ = c.carryOut(ctx)
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case etcdOverdue:
		c.later(between(dice, 0, 4*time.Second), ctx.Done())
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	case etcdSlow:
		delay := between(dice, 50*time.Millisecond, 1600*time.Millisecond)
		answer, err := c.carryOut(ctx)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		return answer, err
	case etcdAtOnce, etcdAgain:
		return c.twice(ctx, fault, dice.IntN(2))
	default:
		return c.carryOut(ctx)
	}
}

// later carries the call out a while after its caller has given it up.
func (c *rpc) later(delay time.Duration, givenUp <-chan struct{}) {
	c.e.faults.begin()
	go func() {
		defer c.e.faults.end()
		<-givenUp
		<-time.After(delay)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err := c.carryOut(ctx)
		if c.changes() {
			c.e.Schedule.Count("etcd: "+c.method()+" after its timeout", outcome(err))
		}
	}()
}

// twice carries the call out twice and answers with the first or the second answer.
func (c *rpc) twice(ctx context.Context, fault faultKind, counts int) (*message, error) {
	type result struct {
		answer *message
		err    error
	}
	second := make(chan result, 1)
	carryOut := func() {
		answer, err := c.carryOut(ctx)
		second <- result{answer, err}
	}
	if fault == etcdAtOnce {
		go carryOut()
	}
	answer, err := c.carryOut(ctx)
	if fault == etcdAgain {
		carryOut()
	}
	both := []result{{answer, err}, <-second}
	if c.changes() {
		c.e.Schedule.Count("etcd: "+c.method()+" twice", outcome(both[0].err)+" and "+outcome(both[1].err))
	}
	return both[counts].answer, both[counts].err
}

// outcome is what came of a change, in etcd's words.
func outcome(err error) string {
	if err == nil {
		return "done"
	}
	return "\"" + status.Convert(err).Message() + "\""
}

// carryOut makes the call at the member, over a connection of its own: what is kept open would hide that the address
// has another owner now.
func (c *rpc) carryOut(ctx context.Context) (*message, error) {
	conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(c.member),
		grpc.WithContextDialer(c.e.Dial), grpc.WithDefaultCallOptions(grpc.ForceCodec(asBytes{})))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var answer message
	if err := conn.Invoke(metadata.NewOutgoingContext(ctx, c.header), c.full, &c.request, &answer); err != nil {
		return nil, err
	}
	if c.e.Saw != nil {
		c.e.Saw(c.method(), c.request.bytes, answer.bytes)
	}
	return &answer, nil
}
