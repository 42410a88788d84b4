package stream

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// The watch is etcd's own call and not that of clientv3, which keeps what was not read yet in memory without a limit
// (serveSubstream in its watch.go). Here nothing is read while there is no room: gRPC then stops the member, and etcd
// takes the watch out of the way of its writers until there is (victims in its mvcc/watchable_store.go).

// window is how much gRPC takes from a member before it is read, in bytes.
const window = 1 << 20

// batch are some whole revisions in a row; none in one that tells that the cluster had no others at its time.
type batch struct {
	first, last int64
	events      int64
	records     []byte
	// before and sum are those of the records of the revision first - 1, and of last; before may be empty.
	before, sum string
	at          time.Time
	// leases of keys in it, and maybe of some behind it.
	leases map[int64]struct{}
}

// receiver watches all keys.
type receiver struct {
	cluster   archive.Cluster
	clusterID uint64
	// last revision that was received whole, and the sum of its records; empty when they were not seen.
	last int64
	sum  string
	// askEvery is how often the member is asked whether there is more, and silence after how long the next is asked.
	askEvery, silence time.Duration
	to                chan<- batch

	// open is what has arrived, up to a revision that may not be whole; begins is where that begins in its records.
	open   batch
	begins int
	// again is the sum of the records of last, which a watch begins with; intact tells whether no compaction has taken
	// any of a revision. Head is the revision of the member that has answered.
	again  Sum
	intact func(ctx context.Context, revision int64) (bool, error)
	head   int64
	// waits is since when the member is waited for, in Unix nanoseconds; 0 for not.
	waits atomic.Int64
	// latest is what a quorum said was the last revision, and when that was asked: the member that is watched may lag,
	// and tells its own. Reached is last, for who asks.
	latest  atomic.Pointer[Mark]
	reached atomic.Int64
}

// watch receives until the context ends or the watch breaks off. The next watch begins where it ended: with the last
// revision that is known, so that another history of the same cluster is noticed.
func (r *receiver) watch(ctx context.Context) error {
	client, err := r.cluster.Dial(grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		return unreachable(err)
	}
	defer client.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	watch, err := pb.NewWatchClient(client.ActiveConnection()).Watch(clientv3.WithRequireLeader(ctx))
	if err != nil {
		return unreachable(err)
	}
	r.open = batch{}
	r.begins = 0
	r.again = Sum{}
	r.intact = func(ctx context.Context, revision int64) (bool, error) { return whole(ctx, client, revision) }
	all := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: r.last, ProgressNotify: true,
		Fragment: true}
	err = watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: all}})
	if err != nil {
		return unreachable(err)
	}
	r.reached.Store(r.last)
	go r.ask(ctx, stop, client, watch)
	for {
		r.waits.Store(time.Now().UnixNano())
		answer, err := watch.Recv()
		r.waits.Store(0)
		if err != nil {
			return unreachable(err)
		}
		if err := r.take(ctx, answer); err != nil {
			return err
		}
	}
}

// ask asks how far the cluster is, and the member for progress. It ends a watch that has been silent for too long, or
// behind what the cluster had before that.
func (r *receiver) ask(ctx context.Context, stop func(), client *clientv3.Client, watch pb.Watch_WatchClient) {
	tick := time.NewTicker(r.askEvery)
	defer tick.Stop()
	var first *Mark // of those that the member has not reached
	for {
		if first != nil && r.reached.Load() >= first.Revision {
			first = nil
		}
		if first != nil && time.Since(first.At) > r.silence {
			stop()
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if since := r.waits.Load(); since > 0 && time.Since(time.Unix(0, since)) > r.silence {
			stop()
			return
		}
		if mark := r.standing(ctx, client); mark != nil {
			r.latest.Store(mark)
			first = cmp.Or(first, mark)
		}
		_ = watch.Send(&pb.WatchRequest{ // Recv tells why
			RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	}
}

// standing is the last revision of the cluster, and a time before it was asked; nil where a quorum does not answer.
func (r *receiver) standing(ctx context.Context, client *clientv3.Client) *Mark {
	mark := &Mark{At: time.Now().UTC()}
	ctx, stop := context.WithTimeout(ctx, max(r.askEvery, leasesTime))
	defer stop()
	answer, err := client.Get(ctx, "\x00", clientv3.WithCountOnly())
	if err != nil {
		return nil
	}
	mark.Revision = answer.Header.GetRevision()
	return mark
}

func unreachable(err error) error {
	return failure(archive.Unreachable, archive.ByEtcd(err), "the cluster can't be watched")
}

// take takes an answer of the member.
func (r *receiver) take(ctx context.Context, answer *pb.WatchResponse) error {
	switch {
	case answer.GetHeader().GetClusterId() != r.clusterID:
		return otherCluster("cluster %x answers, and %x was watched", answer.GetHeader().GetClusterId(), r.clusterID)
	case answer.CompactRevision > 0:
		return failure(stores.StreamCompacted, nil, "revision %d is wanted, and etcd has compacted all before %d: "+
			"what was between is lost to the stream; take a new snapshot", r.last, answer.CompactRevision)
	case answer.Canceled:
		return canceled(answer.CancelReason)
	case answer.Created:
		return nil
	}
	r.head = answer.GetHeader().GetRevision()
	defer func() { r.reached.Store(r.last) }()
	for _, e := range answer.Events {
		if err := r.event(ctx, e); err != nil {
			return err
		}
	}
	if answer.Fragment {
		return r.pass(ctx, r.begins)
	}
	if len(answer.Events) > 0 {
		if err := r.known(ctx); err != nil {
			return err
		}
		return r.pass(ctx, len(r.open.records))
	}
	// A member tells its revision when it has sent all up to that.
	if revision := answer.GetHeader().GetRevision(); revision > r.last {
		return failure(failed, nil, "the member says that it has sent all up to revision %d, and %d was the last",
			revision, r.last)
	}
	latest := r.latest.Load()
	if latest == nil || latest.Revision > r.last {
		return nil
	}
	return r.send(ctx, batch{first: r.last + 1, last: r.last, at: latest.At})
}

// canceled is a watch that etcd has ended; isWatchPermitted in its v3rpc/watch.go has the reasons.
func canceled(why string) error {
	reason := archive.Unreachable
	if strings.Contains(why, "permission denied") || strings.Contains(why, "user name is empty") {
		reason = archive.Denied
	}
	return failure(reason, archive.ByEtcd(errors.New(why)), "etcd has ended the watch: all keys are read as a user "+
		"with the role root")
}

func otherCluster(format string, args ...any) error {
	return failure(stores.StreamOtherCluster, nil, format, args...)
}

// event takes the next event of a watch, which is of the last revision again, of the open one, or of the next.
func (r *receiver) event(ctx context.Context, e *mvccpb.Event) error {
	revision := e.GetKv().GetModRevision()
	if revision == r.last && r.open.last == 0 {
		raw, _ := proto.Marshal(e) // never fails: it has just been read
		r.again.Add(Change{Revision: revision, raw: raw})
		return nil
	}
	if r.open.last == 0 {
		if err := r.known(ctx); err != nil {
			return err
		}
		if err := r.complete(ctx, revision); err != nil {
			return err
		}
		r.open = batch{first: r.last + 1, last: r.last, before: r.sum, leases: map[int64]struct{}{}}
		r.begins = 0
	}
	switch revision {
	case r.open.last:
		if revision < r.open.first {
			return outOfOrder(r.open.last, revision)
		}
	case r.open.last + 1:
		r.open.last = revision
		r.begins = len(r.open.records)
	default:
		return outOfOrder(r.open.last, revision)
	}
	if lease := e.GetKv().GetLease(); lease != 0 {
		r.open.leases[lease] = struct{}{}
	}
	r.open.events++
	r.open.records = appendRecord(r.open.records, e)
	return nil
}

func outOfOrder(before, after int64) error {
	return failure(failed, nil, "etcd has sent revision %d behind %d", after, before)
}

// known compares the last revision with what it was when it was received first. It is seen once more when a watch
// begins, and never later.
func (r *receiver) known(ctx context.Context) error {
	sum := r.again.Of()
	r.again = Sum{}
	if sum == "" || r.sum == sum {
		return nil
	}
	switch intact, err := r.intact(ctx, r.last); {
	case err != nil:
		return unreachable(err)
	case intact && r.sum != "":
		return otherCluster("revision %d is not what it was: the cluster has another history now, as after a disk "+
			"that was put back; take a new snapshot", r.last)
	case intact:
		r.sum = sum
	}
	return nil
}

// complete is an error when a compaction of a revision may have taken records of it before it was sent first. That is
// so where the member has read it from its database, as for a watch that lags (syncWatchers in etcd's
// mvcc/watchable_store.go): then it has come further. The watch that begins next learns of the compaction.
func (r *receiver) complete(ctx context.Context, revision int64) error {
	if revision >= r.head {
		return nil
	}
	switch intact, err := r.intact(ctx, revision); {
	case err != nil:
		return unreachable(err)
	case !intact:
		return failure(failed, nil, "etcd has compacted revision %d, and may have done so before it was sent", revision)
	}
	return nil
}

// whole reports whether all records of a revision are there. A compaction of that very revision takes what a later
// change of it has replaced, as where a transaction puts a key and deletes it; the revision before can't be read then.
func whole(ctx context.Context, client *clientv3.Client, revision int64) (bool, error) {
	if revision < 2 {
		return true, nil
	}
	_, err := client.Get(ctx, "\x00", clientv3.WithCountOnly(), clientv3.WithRev(revision-1))
	if errors.Is(err, rpctypes.ErrCompacted) {
		return false, nil
	}
	return err == nil, err
}

func appendRecord(to []byte, e *mvccpb.Event) []byte {
	to = protowire.AppendVarint(to, uint64(proto.Size(e)))
	to, _ = proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(to, e) // never fails: it has just been read
	return to
}

// pass passes on what has arrived, up to so many bytes of records: the border of a revision.
func (r *receiver) pass(ctx context.Context, to int) error {
	if to == 0 || r.open.last == 0 {
		return nil
	}
	b := r.open
	rest := b.records[to:]
	if len(rest) > 0 { // its last revision is not whole yet
		return r.passBut(ctx, rest)
	}
	b.sum = sumOf(b.records[r.begins:])
	r.last = b.last
	r.sum = b.sum
	r.open = batch{}
	r.begins = 0
	return r.send(ctx, b)
}

// passBut passes on all but the last revision, whose records so far are the rest.
func (r *receiver) passBut(ctx context.Context, rest []byte) error {
	b := r.open
	b.records = b.records[:len(b.records)-len(rest)]
	b.last--
	seg := Segment{Header: Header{First: b.first, Last: b.last}, records: b.records}
	var sum Sum
	events := int64(0)
	_ = seg.Each(func(c Change) error { // the count of events is what is asked here
		events++
		sum.Add(c)
		return nil
	})
	b.sum = sum.Of()
	next := batch{first: r.open.last, last: r.open.last, before: b.sum, events: b.events - events,
		records: append([]byte(nil), rest...), leases: maps.Clone(b.leases)}
	b.events = events
	r.last = b.last
	r.sum = b.sum
	r.open = next
	r.begins = 0
	return r.send(ctx, b)
}

func (r *receiver) send(ctx context.Context, b batch) error {
	if b.at.IsZero() {
		b.at = time.Now().UTC()
	}
	select {
	case r.to <- b:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
