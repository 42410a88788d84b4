package mirror

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// keys are some keys in their order.
type keys interface {
	// head is the next key and what it has; nil when there is none. It is the same until next.
	head(ctx context.Context) (*mvccpb.KeyValue, error)
	next()
}

// counted are keys that are counted.
type counted struct {
	keys
	n int64
}

func (c *counted) next() {
	c.n++
	c.keys.next()
}

// differ tells what must become of each key of one side so that it has what is wanted.
func differ(ctx context.Context, want, is keys, tell func(op) error) error {
	for {
		w, err := want.head(ctx)
		if err != nil {
			return err
		}
		i, err := is.head(ctx)
		if err != nil {
			return err
		}
		order := 0
		switch {
		case w == nil && i == nil:
			return nil
		case i == nil:
			order = -1
		case w == nil:
			order = 1
		default:
			order = bytes.Compare(w.Key, i.Key)
		}
		switch {
		case order > 0:
			err = tell(op{key: string(i.Key), deleted: true})
		case order < 0 || !bytes.Equal(w.Value, i.Value):
			err = tell(op{key: string(w.Key), value: w.Value})
		}
		if err != nil {
			return err
		}
		if order <= 0 {
			want.next()
		}
		if order >= 0 {
			is.next()
		}
	}
}

const (
	// pageSize is how many bytes a page should have, pageKeys how many keys the first one has, and mostKeys any.
	pageSize           = 1 << 20
	pageKeys, mostKeys = 8, 1000
)

// walk are the keys of some spans of an etcd, page by page.
type walk struct {
	client *clientv3.Client
	log    *slog.Logger
	// clusterID that must answer; 0 for any.
	clusterID uint64
	spans     []span
	// revision that all pages are of; 0 has each be the latest.
	revision int64
	// strip is the prefix of keys that add takes the place of.
	strip, add string
	// refusal gives an error its reason.
	refusal func(error) error

	page  []*mvccpb.KeyValue
	limit int64
}

func (w *walk) next() { w.page = w.page[1:] }

func (w *walk) head(ctx context.Context) (*mvccpb.KeyValue, error) {
	for len(w.page) == 0 {
		if len(w.spans) == 0 {
			return nil, nil
		}
		if err := w.turn(ctx); err != nil {
			return nil, err
		}
	}
	return w.page[0], nil
}

// turn reads the next page.
func (w *walk) turn(ctx context.Context) error {
	s := w.spans[0]
	w.limit = cmp.Or(w.limit, pageKeys)
	answer, err := again(ctx, w.log, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return w.client.Get(ctx, s.from, clientv3.WithRange(s.end), clientv3.WithLimit(w.limit),
			clientv3.WithRev(w.revision))
	})
	if err != nil {
		return w.refusal(err)
	}
	if id := answer.Header.GetClusterId(); w.clusterID != 0 && id != w.clusterID {
		return failure(stores.StreamOtherCluster, nil, "cluster %x answers, and %x was read", id, w.clusterID)
	}
	if !answer.More || len(answer.Kvs) == 0 {
		w.spans = w.spans[1:]
	} else {
		w.spans[0].from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
	}
	size := int64(0)
	for _, kv := range answer.Kvs {
		size += int64(op{key: string(kv.Key), value: kv.Value}.size())
		kv.Key = append([]byte(w.add), kv.Key[len(w.strip):]...)
	}
	if n := int64(len(answer.Kvs)); n > 0 { // as many as would have been right
		w.limit = min(max(n*pageSize/size, 1), mostKeys, 4*w.limit)
	}
	w.page = answer.Kvs
	return nil
}

// unread is an error of reading at the source.
func unread(err error) error {
	cause := archive.ByEtcd(err)
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, rpctypes.ErrCompacted):
		return failure(stores.StreamCompacted, cause, "etcd has compacted the revision that is read")
	case errors.Is(err, rpctypes.ErrFutureRev):
		return failure(stores.StreamOtherCluster, cause, "the source is behind a revision that it had")
	case lasting(err):
		return failure(archive.Denied, cause, "the source refuses us: all keys are read, by a user with the role root")
	}
	return failure(archive.Unreachable, cause, "the source does not answer")
}
