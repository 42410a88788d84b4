package mirror

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// While a destination is not whole, its place is written each beatEvery at least, so that a process beside sees that
// this one is there. One that has been silent for takeover is followed by another one.
const (
	beatEvery = time.Second
	takeover  = 5 * time.Second
)

// copy makes the destination what the source is at a revision: the first time, and behind a gap.
func (m *mirror) copy(ctx context.Context, standing archive.Standing) error {
	next := m.to.is
	whole := m.to.is
	next.Doing = copying
	next.Towards = standing.Revision
	if next.Revision > 0 {
		next.Doing = reconciling
	}
	whole.ClusterID = idOf(standing)
	whole.Revision = standing.Revision
	whole.Sum = ""
	whole.Doing = ""
	m.Log.Info("copying all keys", "clusterID", whole.ClusterID, "revision", standing.Revision, "was", next.Revision)
	m.monitor.does(next.Doing, whole.ClusterID, next.Revision)
	began := time.Now()
	all, err := m.source.keys(ctx, standing, m.Scope)
	if err != nil {
		return err
	}
	want := &counted{keys: all}
	wrote, err := m.to.become(ctx, want, next, whole)
	if err != nil {
		return err
	}
	m.Log.Info("copied", "revision", standing.Revision, "keys", want.n, "written", wrote, "took",
		time.Since(began).Round(time.Millisecond))
	return nil
}

func idOf(standing archive.Standing) string { return fmt.Sprintf("%x", standing.ClusterID) }

// beating are keys beside which something else is done now and then.
type beating struct {
	keys
	beat func() error
}

func (b beating) head(ctx context.Context) (*mvccpb.KeyValue, error) {
	if err := b.beat(); err != nil {
		return nil, err
	}
	return b.keys.head(ctx)
}

// become makes the keys of the destination those that are wanted, and tells how many differed. The place is next until
// the last transaction, in which it becomes whole.
func (d *destination) become(ctx context.Context, want keys, next, whole place) (wrote int, err error) {
	if err := d.write(ctx, nil, next); err != nil {
		return 0, err
	}
	var ops []op
	size := 0
	last := time.Now()
	flush := func(to place) error {
		err := d.write(ctx, ops, to)
		wrote = wrote + len(ops)
		ops = nil
		size = 0
		last = time.Now()
		return err
	}
	is := &walk{client: d.client, log: d.log, spans: next.toSpans(),
		refusal: func(err error) error { return d.refusal(err, 0) }}
	beat := func() error {
		if time.Since(last) < beatEvery {
			return nil
		}
		return flush(next)
	}
	err = differ(ctx, beating{want, beat}, is, func(o op) error {
		if len(ops) > 0 && (len(ops) == d.most-1 || size+o.size() > partSize) {
			if err := flush(next); err != nil {
				return err
			}
		}
		ops = append(ops, o)
		size = size + o.size()
		return nil
	})
	if err != nil {
		return wrote, err
	}
	return wrote, flush(whole)
}
