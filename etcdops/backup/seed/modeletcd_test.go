package seed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
)

const (
	clusterID     = 0xc1
	clusterIDText = "c1"
)

// transaction is what etcd committed at a revision, and how it was then.
type transaction struct {
	events []*mvccpb.Event
	// records are those that etcd has of it, each with its name.
	records []string
	// leases and users at the last moment of the revision.
	leases map[int64]int64
	auth   int64
}

// history are the transactions of an etcd by their revisions; none of 0 and 1.
type history []*transaction

// committed is an etcd in memory: the keys, leases, users and compactions of one history, and how it serves them.
type committed struct {
	history
	keys            map[string]*mvccpb.KeyValue
	leases          map[int64]int64
	auth, compacted int64
	values, granted int64
	watches         []*watch
}

func newCommitted() *committed {
	c := &committed{keys: map[string]*mvccpb.KeyValue{}, leases: map[int64]int64{}, auth: 1}
	c.history = history{{}, {leases: map[int64]int64{}, auth: 1}}
	return c
}

func (h history) revision() int64 { return int64(len(h) - 1) }

// op is a change within a transaction; without a value the key is deleted.
type op struct {
	key, value string
	lease      int64
}

// commit commits a transaction, unless it changes nothing.
func (c *committed) commit(ops ...op) {
	revision, t := c.revision()+1, &transaction{}
	for _, o := range ops {
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(o.key), ModRevision: revision}}
		old := c.keys[o.key]
		switch {
		case o.value != "":
			e.Kv.Value, e.Kv.Lease, e.Kv.CreateRevision, e.Kv.Version = []byte(o.value), o.lease, revision, 1
			if old != nil {
				e.Kv.CreateRevision, e.Kv.Version = old.CreateRevision, old.Version+1
			}
			c.keys[o.key] = e.Kv
		case old == nil:
			continue
		default:
			e.Type = mvccpb.Event_DELETE
			delete(c.keys, o.key)
		}
		t.records = append(t.records, recordOf(e, revision, len(t.events)))
		t.events = append(t.events, e)
	}
	if len(t.events) > 0 {
		c.history = append(c.history, t)
	}
	c.note()
}

// note keeps how leases and users are.
func (c *committed) note() {
	c.history[c.revision()].leases, c.history[c.revision()].auth = maps.Clone(c.leases), c.auth
}

// recordOf is a record of the bucket key, as etcd writes it.
func recordOf(e *mvccpb.Event, revision int64, sub int) string {
	kv, mark := e.Kv, ""
	if e.Type == mvccpb.Event_DELETE {
		kv, mark = &mvccpb.KeyValue{Key: kv.Key}, "t"
	}
	value, _ := proto.Marshal(kv) // never fails
	return fmt.Sprintf("%016x_%016x%s=%s", revision, sub, mark, value)
}

// revoke ends a lease: its keys are deleted in one revision.
func (c *committed) revoke(id int64) {
	var ops []op
	for _, key := range slices.Sorted(maps.Keys(c.keys)) {
		if c.keys[key].Lease == id {
			ops = append(ops, op{key: key})
		}
	}
	delete(c.leases, id)
	c.commit(ops...)
}

// back puts the disk back to how it was at a revision.
func (c *committed) back(revision int64) {
	old := c.history[:revision+1]
	c.history = slices.Clone(old)
	c.keys = map[string]*mvccpb.KeyValue{}
	for _, t := range old {
		for _, e := range t.events {
			c.keys[string(e.Kv.Key)] = e.Kv
			if e.Type == mvccpb.Event_DELETE {
				delete(c.keys, string(e.Kv.Key))
			}
		}
	}
	last := *old[revision]
	c.history[revision] = &last // what comes is not its
	c.leases, c.auth = maps.Clone(last.leases), last.auth
	c.compacted = min(c.compacted, revision)
	for _, s := range c.watches {
		s.broken = true
	}
}

// compact compacts up to a revision. A watch that lags may lose what it has not been sent.
func (c *committed) compact(revision int64, slow func() bool) {
	c.compacted = revision
	for _, s := range c.watches {
		s.lags = s.lags || slow()
	}
}

// left are the events of a revision that a member reads from its database.
func (c *committed) left(revision int64) []*mvccpb.Event {
	all := c.history[revision].events
	if revision != c.compacted {
		return all
	}
	var left []*mvccpb.Event
	for i, e := range all {
		again := slices.ContainsFunc(all[i+1:], func(o *mvccpb.Event) bool { return string(o.Kv.Key) == string(e.Kv.Key) })
		if e.Type == mvccpb.Event_PUT && !again {
			left = append(left, e)
		}
	}
	return left
}

func (c *committed) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: clusterID, MemberId: 1, Revision: c.revision()}
}

// answer is what a member answers.
func (c *committed) answer(method string, request any, meanwhile func()) (proto.Message, error) {
	_, method, _ = strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch method {
	case "MemberList":
		return &pb.MemberListResponse{Header: c.header(), Members: []*pb.Member{{ID: 1, Name: "m",
			ClientURLs: []string{"http://etcd"}}}}, nil
	case "AuthStatus":
		return &pb.AuthStatusResponse{Header: c.header(), AuthRevision: uint64(c.auth)}, nil
	case "Range":
		if at := request.(*pb.RangeRequest).GetRevision(); at > 0 && at < c.compacted {
			return nil, rpctypes.ErrGRPCCompacted
		}
		return &pb.RangeResponse{Header: c.header()}, nil
	case "LeaseLeases":
		all := &pb.LeaseLeasesResponse{}
		for _, id := range slices.Sorted(maps.Keys(c.leases)) {
			all.Leases = append(all.Leases, &pb.LeaseStatus{ID: id})
		}
		meanwhile() // the header is filled once the list is copied
		all.Header = c.header()
		return all, nil
	case "LeaseTimeToLive":
		id := request.(*pb.LeaseTimeToLiveRequest).GetID()
		ttl := &pb.LeaseTimeToLiveResponse{Header: c.header(), ID: id, TTL: -1}
		if granted, is := c.leases[id]; is {
			ttl.TTL, ttl.GrantedTTL = granted, granted
		}
		return ttl, nil
	case "HashKV":
		return &pb.HashKVResponse{Header: c.header(), CompactRevision: c.compacted}, nil
	}
	return nil, status.Error(codes.Unimplemented, method)
}

// watch is one of all keys: a stream of gRPC.
type watch struct {
	w   *world
	who *process
	ctx context.Context
	// At is the revision that comes next, once the watch was asked for and begun; from is the first. Parts are what is
	// left of an answer.
	at, from        int64
	asked, begun    bool
	parts           [][]*mvccpb.Event
	lags            bool // what comes next is read from the database
	broken, waiting bool // it is broken off; its client waits to be told how far the member is
}

// cluster is the etcd of the model as a process reaches it.
func (w *world) cluster(who *process) archive.Cluster {
	unary := func(ctx context.Context, method string, request, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker,
		_ ...grpc.CallOption) error {
		var answer proto.Message
		err := w.ask(ctx, call{who: who, what: method, do: func() (err error) {
			answer, err = w.etcd.answer(method, request, w.meanwhile)
			if users, is := answer.(*pb.AuthStatusResponse); is && w.wrong == "users are those of before" {
				users.AuthRevision = 1
			}
			return err
		}})
		if err == nil {
			proto.Merge(reply.(proto.Message), answer)
		}
		return byGRPC(err)
	}
	opened := func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, _ grpc.Streamer,
		_ ...grpc.CallOption) (grpc.ClientStream, error) {
		return &watch{w: w, who: who, ctx: ctx, lags: true}, nil
	}
	return archive.Cluster{Endpoints: []string{"http://etcd"}, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(opened)}}
}

// byGRPC is an error as gRPC has it. Internal is none that etcd's client tries again.
func byGRPC(err error) error {
	if err == nil || status.Code(err) != codes.Unknown {
		return err
	}
	return status.Error(codes.Internal, err.Error())
}

// SendMsg implements [grpc.ClientStream].
func (s *watch) SendMsg(m any) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if create := m.(*pb.WatchRequest).GetCreateRequest(); create != nil {
		s.at, s.from, s.asked = create.StartRevision, create.StartRevision, true
	} else {
		s.waiting = true
	}
	s.w.ring()
	return nil
}

// RecvMsg implements [grpc.ClientStream].
func (s *watch) RecvMsg(m any) error {
	return byGRPC(s.w.ask(s.ctx, call{who: s.who, what: "watch", ready: s.ready, do: func() error {
		return s.next(m.(*pb.WatchResponse))
	}}))
}

func (s *watch) ready() bool {
	return s.broken || s.asked && (!s.begun || len(s.parts) > 0 || s.waiting || s.at <= s.w.etcd.revision())
}

// next is what the member sends next.
func (s *watch) next(answer *pb.WatchResponse) error {
	c := s.w.etcd
	answer.Header = c.header()
	switch {
	case s.broken:
		return errFault
	case !s.begun:
		s.begun, answer.Created = true, true
		c.watches = append(slices.DeleteFunc(c.watches, func(o *watch) bool { return o.ctx.Err() != nil }), s)
		return nil
	case len(s.parts) == 0 && s.lags && s.at < c.compacted:
		answer.Canceled, answer.CompactRevision = true, c.compacted
		return nil
	case len(s.parts) == 0:
		s.read(c)
	}
	if len(s.parts) == 0 {
		s.waiting = false
		return nil
	}
	answer.Events, s.parts = s.parts[0], s.parts[1:]
	answer.Fragment = len(s.parts) > 0
	for _, e := range answer.Events {
		s.w.sent += int64(proto.Size(e))
	}
	return nil
}

// read takes the next revisions, and cuts them into parts, or not.
func (s *watch) read(c *committed) {
	var events []*mvccpb.Event
	to := min(c.revision(), s.at+int64(s.w.dice.IntN(5)))
	for ; s.at <= to || len(events) == 0 && s.at <= c.revision(); s.at++ {
		// One revision that is the last looks alike whether it was read or not. Such a compaction is left out here.
		if s.lags && (s.at < c.revision() || s.at == s.from) {
			events = append(events, c.left(s.at)...)
		} else {
			events = append(events, c.history[s.at].events...)
		}
	}
	if s.at > c.revision() {
		s.lags = false
	}
	for s.w.faulty && len(events) > 1 && s.w.dice.IntN(2) == 0 {
		n := 1 + s.w.dice.IntN(len(events)-1)
		s.parts, events = append(s.parts, events[:n]), events[n:]
	}
	if len(events) > 0 {
		s.parts = append(s.parts, events)
	}
}

// Header implements [grpc.ClientStream].
func (s *watch) Header() (metadata.MD, error) { return nil, nil }

// Trailer implements [grpc.ClientStream].
func (s *watch) Trailer() metadata.MD { return nil }

// CloseSend implements [grpc.ClientStream].
func (s *watch) CloseSend() error { return nil }

// Context implements [grpc.ClientStream].
func (s *watch) Context() context.Context { return s.ctx }

// base is a snapshot: what a restore begins with.
type base struct {
	name                      string
	revision, auth, compacted int64
	at                        *transaction
	leases                    map[int64]int64
}

func (c *committed) snapshot(name string) *base {
	return &base{name: name, revision: c.revision(), auth: c.auth, compacted: c.compacted,
		at: c.history[c.revision()], leases: maps.Clone(c.leases)}
}

// replayed is what a restore gets that begins at a base and ends at a revision, 0 for the last that is stored: the
// records that it writes behind those of the base.
func (b *base) replayed(ctx context.Context, place archive.Place, until int64, wrong string) (*replay, []string, error) {
	tail, err := stream.OpenTail(ctx, place, stream.Opening{})
	if err != nil {
		return nil, nil, err
	}
	defer tail.Close()
	r := &replay{base: &archive.Contents{Revision: b.revision, AuthRevision: b.auth}, until: until, reach: b.revision,
		trusted: true, leases: leases{base: maps.Clone(b.leases), ttl: map[int64]int64{}, referred: map[int64]int64{}}}
	if until == 0 {
		r.until = tail.Reach(b.revision)
	}
	if b.compacted < b.revision {
		for _, e := range b.at.events {
			kv := e.Kv
			if e.Type == mvccpb.Event_DELETE {
				kv = &mvccpb.KeyValue{Key: kv.Key}
			}
			value, _ := proto.Marshal(kv) // never fails
			r.last.AddRecord(b.revision, e.Type == mvccpb.Event_DELETE, value)
		}
	}
	var records []string
	put := func(name, value []byte) error {
		records = append(records, fmt.Sprintf("%x_%x%s=%s", name[:8], name[9:17], name[17:], value))
		return nil
	}
	err = r.follow(ctx, tail, func(s *stream.Segment) error {
		switch {
		case wrong == "the sum of the segment before is not checked" && s.First > r.reach,
			wrong == "another content of what overlaps is taken" && s.First <= r.reach:
			s.Before, r.last = "", stream.Sum{}
		case wrong == "a list of leases is of the revision of its answer" && s.Leases != nil:
			s.Leases.Since = s.Leases.Revision
		}
		return r.apply(s, put)
	})
	return r, records, err
}

// meanwhile is what clients do while a member makes its answer.
func (w *world) meanwhile() {
	for range w.dice.IntN(3) * w.dice.IntN(3) {
		if w.dice.IntN(3) == 0 {
			w.etcd.granted++
			w.etcd.leases[w.etcd.granted] = 10 * w.etcd.granted
			w.etcd.note()
		}
		w.transaction()
	}
}
