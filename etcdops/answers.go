package etcdops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	_ "google.golang.org/grpc/encoding/proto" // its codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/quorate-dev/quorate/etcdops/reach"
)

// All that comes from an etcd passes through this file: what a connection may bring before it takes one of a few slots
// (connect), how long an answer may be (asked), and how much may be made of it (weighing).
const (
	// smallTalk is how many bytes a connection brings without a slot. A handshake and the answers of nine members to
	// a look take some 8 KiB.
	smallTalk = 16 << 10
	// largeTalks is how many connections bring more at once.
	largeTalks = 16
	// connBuffer is in bytes, of what is read from a connection at once, and written.
	connBuffer = 4 << 10
	// window is what may be on its way in one answer; a fixed one does not grow.
	window = 64 << 10
	// perMessage and perValue are what a message and any other value in an answer take in memory besides their text,
	// in bytes: more than nearly all do.
	perMessage, perValue = 192, 24
	// mostWithin is how deep messages lie within messages; those of etcd that are asked for, two deep.
	mostWithin = 8
)

// slots are those of the connections that bring much.
var slots = make(chan struct{}, largeTalks)

// connect is the only place that connects to an etcd. Check looks at the address before anything is sent; nil takes
// any.
func (e *Etcd) connect(ctx context.Context, address string, check reach.Control) (net.Conn, error) {
	dial := e.Dial
	if dial == nil {
		dialer := net.Dialer{ControlContext: check}
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address)
		}
	}
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &talk{Conn: conn, over: make(chan struct{})}, nil
}

// A talk is a connection that waits for a slot before it brings more than smallTalk. All of them together hold in
// memory what their slots allow, however many there are.
type talk struct {
	net.Conn

	// kept: it is there between calls too, and takes no slot. It ends instead.
	kept bool
	// read: what it brings is read in small pieces and not kept, and takes no slot either.
	read    bool
	brought atomic.Int64
	over    chan struct{}
	lock    sync.Mutex
	seated  bool
	ended   bool
}

// Read implements net.Conn.
func (t *talk) Read(p []byte) (int, error) {
	much := t.brought.Load() >= smallTalk && !t.read
	if much && (t.kept || !t.wait()) {
		return 0, net.ErrClosed
	}
	n, err := t.Conn.Read(p)
	t.brought.Add(int64(n))
	return n, err
}

// wait waits for a slot; false when the connection is closed before.
func (t *talk) wait() bool {
	t.lock.Lock()
	seated := t.seated
	t.lock.Unlock()
	if seated {
		return true
	}
	select {
	case slots <- struct{}{}:
	case <-t.over:
		return false
	}
	t.lock.Lock()
	defer t.lock.Unlock()
	if t.ended {
		<-slots
		return false
	}
	t.seated = true
	return true
}

// Close implements net.Conn.
func (t *talk) Close() error {
	t.lock.Lock()
	if !t.ended {
		t.ended = true
		close(t.over)
		if t.seated {
			<-slots
		}
	}
	t.lock.Unlock()
	return t.Conn.Close()
}

// largestOf is how many bytes the answer to a call has at most.
func largestOf(method string) int {
	switch method {
	case pb.Auth_UserList_FullMethodName, pb.Auth_RoleList_FullMethodName:
		return largestList
	case pb.KV_Range_FullMethodName:
		return largestPage
	}
	return largestAnswer
}

// asked is how every call is made: with the bound for its answer, and without etcd's WaitForReady(true), which no field
// of its configuration reaches. Of two equal call options the last one counts.
func asked(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts,
		grpc.WaitForReady(false),
		grpc.MaxCallRecvMsgSize(largestOf(method)))...)
}

// packed is gzip, which unpacks nothing: what a connection brings is counted before. It is linked by what sends traces,
// and here, so that ours is the one that counts; no etcd packs an answer to a question that is not packed.
type packed struct{ encoding.Compressor }

func init() { encoding.RegisterCompressor(packed{encoding.GetCompressor(gzip.Name)}) }

// Decompress implements encoding.Compressor.
func (packed) Decompress(io.Reader) (io.Reader, error) { return nil, errNoText }

// codec is protobuf's, which counts before it decodes.
var codec encoding.CodecV2 = weighing{encoding.GetCodecV2("proto")}

type weighing struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (weighing) Unmarshal(data mem.BufferSlice, v any) error {
	message, is := v.(proto.Message)
	if !is {
		return fmt.Errorf("an answer is decoded into %T", v)
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	room := 4 * max(len(text.ReadOnlyData()), window)
	if err := weigh(text.ReadOnlyData(), message.ProtoReflect().Descriptor(), &room, 0); err != nil {
		return err
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text.ReadOnlyData(), message)
}

var (
	errTooMuch = errors.New(tooMany)
	errNoText  = errors.New(notMade)
)

// weigh takes from room what a message will take in memory.
func weigh(text []byte, of protoreflect.MessageDescriptor, room *int, depth int) error {
	*room -= perMessage
	if depth > mostWithin {
		return errNoText
	}
	for len(text) > 0 {
		number, kind, n := protowire.ConsumeTag(text)
		if n < 0 {
			return errNoText
		}
		text = text[n:]
		if n = protowire.ConsumeFieldValue(number, kind, text); n < 0 {
			return errNoText
		}
		value := text[:n]
		text = text[n:]
		*room -= perValue + len(value)
		if err := weighValue(value, kind, of.Fields().ByNumber(number), room, depth); err != nil {
			return err
		}
		if *room < 0 {
			return errTooMuch
		}
	}
	return nil
}

// weighValue takes from room what lies in a value: another message, or a list of numbers that are packed.
func weighValue(value []byte, kind protowire.Type, field protoreflect.FieldDescriptor, room *int, depth int) error {
	if field == nil || kind != protowire.BytesType {
		return nil
	}
	if within := field.Message(); within != nil {
		inner, _ := protowire.ConsumeBytes(value)
		return weigh(inner, within, room, depth+1)
	}
	if field.IsList() && field.Kind() != protoreflect.StringKind && field.Kind() != protoreflect.BytesKind {
		*room -= perValue * len(value)
	}
	return nil
}

// What is wrong with an answer that can't be taken.
const (
	tooLong   = "its answer is longer than an etcd's can be"
	tooMany   = "its answer holds more values than an etcd's can"
	notMade   = "its answer can't be read"
	received  = "grpc: received message" // begins what gRPC says of an answer that is larger than what we take
	undecoded = "grpc: failed to unmarshal the received message"
	unpacked  = "grpc: failed to decompress"
)

// noAnswer is what is wrong with an answer, by the words of gRPC or by these; empty for another error.
func noAnswer(said string) string {
	switch {
	case said == tooLong, strings.HasPrefix(said, received):
		return tooLong
	case said == tooMany, strings.HasPrefix(said, undecoded) && strings.HasSuffix(said, tooMany):
		return tooMany
	case said == notMade, strings.HasPrefix(said, undecoded), strings.HasPrefix(said, unpacked):
		return notMade
	}
	return ""
}
