package etcdops

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// What people ask of one member with their own rights, for kubectl quorate top; the server asks for no keys.
const (
	callKeys = "keys"
	// pageOfKeys are read at once, and largestPage is how many bytes they, or changes that come together, have at most.
	pageOfKeys  = 2000
	largestPage = 16 << 20
)

// asMany are for an answer that has more in it than others.
var asMany = []grpc.CallOption{grpc.ForceCodecV2(encoding.GetCodecV2("proto")), grpc.MaxCallRecvMsgSize(largestPage)}

// Keys tells the keys that a member has, page by page and without their values, as it has them: no quorum is asked.
func (e *Etcd) Keys(ctx context.Context, endpoint observation.Endpoint, each func(key []byte, leased bool)) error {
	c := &contact{endpoint: endpoint, told: &handshake{}}
	defer closeAll([]*contact{c})
	if e.ask(ctx, c); c.err != nil {
		return c.err
	}
	asked := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Limit: pageOfKeys, KeysOnly: true, Serializable: true}
	for {
		var page *pb.RangeResponse
		err := e.call(ctx, callKeys, e.stepTimeout(), func(ctx context.Context) (err error) {
			page, err = pb.NewKVClient(c.conn).Range(ctx, asked, asMany...)
			return err
		})
		if err != nil {
			return err
		}
		for _, kv := range page.GetKvs() {
			each(kv.GetKey(), kv.GetLease() != 0)
			asked.Key = append(append([]byte{}, kv.GetKey()...), 0)
		}
		if !page.GetMore() || len(page.GetKvs()) == 0 {
			return nil
		}
	}
}

// Writes tells each change that a member hears of, with the bytes of key and value, until the context ends.
func (e *Etcd) Writes(ctx context.Context, endpoint observation.Endpoint, each func(key []byte, bytes int)) error {
	c := &contact{endpoint: endpoint, told: &handshake{}}
	defer closeAll([]*contact{c})
	if e.ask(ctx, c); c.err != nil {
		return c.err
	}
	watch, err := pb.NewWatchClient(c.conn).Watch(ctx, asMany...)
	if err == nil {
		err = watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, Fragment: true}}})
	}
	for err == nil {
		var some *pb.WatchResponse
		if some, err = watch.Recv(); err == nil && some.GetCanceled() {
			return fmt.Errorf("%s ends the watch", endpoint.Name)
		}
		for _, event := range some.GetEvents() {
			each(event.GetKv().GetKey(), len(event.GetKv().GetKey())+len(event.GetKv().GetValue()))
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return explain(err)
}
