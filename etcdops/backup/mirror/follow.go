package mirror

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
)

const (
	// askEvery is how often a member of the source is asked whether there is more; after silence the next one is.
	askEvery, silence = time.Second, time.Minute
	// placeEvery is how often the place follows revisions of which nothing is mirrored.
	placeEvery = 5 * time.Second
	// held is how many bytes of changes wait for a transaction before nothing more is taken.
	held = 4 << 20
)

// change is what one revision of the source does to the destination.
type change struct {
	revision int64
	// ops may have a key more than once: the last one counts.
	ops  []op
	size int
	// sum of the records of the revision.
	sum string
}

// queue are changes that are not written yet, in their order.
type queue struct {
	Scope
	holes   []string
	changes []change
	size    int
}

// add takes the changes of a batch.
func (q *queue) add(b stream.Batch) error {
	var sum stream.Sum
	open := change{}
	end := func() {
		if open.revision > 0 {
			open.sum = sum.Of()
			q.changes = append(q.changes, open)
			q.size += open.size
		}
	}
	err := b.Each(func(c stream.Change) error {
		if c.Revision != open.revision {
			end()
			open = change{revision: c.Revision}
		}
		sum.Add(c)
		name, mirrored := q.to(string(c.Key), q.holes)
		if !mirrored {
			return nil
		}
		o := op{key: name, deleted: c.Deleted}
		if !c.Deleted {
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(c.Value, &kv); err != nil {
				return failure(failed, nil, "an event of the source can't be read")
			}
			o.value = kv.Value
		}
		open.ops = append(open.ops, o)
		open.size = open.size + o.size()
		return nil
	})
	end()
	return err
}

// next are the first revisions, as many as fit into a transaction of so many operations, and always one. Of a key that
// changes more than once the last operation is left, except in one that is larger: that is written in parts.
func (q *queue) next(most int) (ops []op, n int) {
	if first := q.changes[0].ops; len(first) > most {
		return first, 1
	}
	at := map[string]int{}
	size := 0
	for ; n < len(q.changes); n++ {
		c := q.changes[n]
		more := 0
		for _, o := range c.ops {
			if _, known := at[o.key]; !known {
				more++
			}
		}
		if n > 0 && (len(ops)+more > most || size+c.size > partSize) {
			break
		}
		for _, o := range c.ops {
			if i, known := at[o.key]; known {
				ops[i] = o
				continue
			}
			at[o.key] = len(ops)
			ops = append(ops, o)
		}
		size += c.size
	}
	return ops, n
}

// join makes one of all revisions up to one that was written in part, and tells whether that has arrived: between them
// the destination is not whole.
func (q *queue) join(towards int64) bool {
	n := 0
	var all change
	for ; n < len(q.changes) && q.changes[n].revision <= towards; n++ {
		c := q.changes[n]
		all = change{revision: c.revision, ops: append(all.ops, c.ops...), size: all.size + c.size, sum: c.sum}
	}
	if n > 0 {
		q.changes = append([]change{all}, q.changes[n:]...)
	}
	return n > 0 && all.revision == towards || n < len(q.changes)
}

// done lets go of the first revisions.
func (q *queue) done(n int) {
	for _, c := range q.changes[:n] {
		q.size -= c.size
	}
	if q.changes = q.changes[n:]; len(q.changes) == 0 {
		q.changes = nil
	}
}

// follow writes what changes behind the place, until the context ends or that can't go on.
func (m *mirror) follow(ctx context.Context, standing archive.Standing) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	from := m.to.is
	m.Log.Info("following", "clusterID", from.ClusterID, "revision", from.Revision, "source", standing.Revision)
	m.monitor.does(from.Doing, from.ClusterID, from.Revision)
	batches := make(chan stream.Batch, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- m.source.watch(ctx, standing.ClusterID, from, batches)
	}()
	q := &queue{Scope: m.Scope, holes: m.Scope.holes()}
	m.placed = time.Now()
	tick := time.NewTicker(placeEvery / 2)
	defer tick.Stop()
	for {
		select {
		case err := <-ended: // by the end of the context, too: then nil
			return err
		case b := <-batches:
			if err := m.take(q, b, batches); err != nil {
				return err
			}
			m.fails = time.Time{}
		case <-tick.C:
		}
		if err := m.flush(ctx, q); err != nil {
			return err
		}
	}
}

// take takes a batch, and those that have arrived meanwhile.
func (m *mirror) take(q *queue, b stream.Batch, more <-chan stream.Batch) error {
	for {
		if err := q.add(b); err != nil {
			return err
		}
		m.monitor.saw(b.Last(), b.Arrived(), b.Empty())
		if q.size > held {
			return nil
		}
		select {
		case b = <-more:
		default:
			return nil
		}
	}
}

// flush writes what is in the queue.
func (m *mirror) flush(ctx context.Context, q *queue) error {
	for len(q.changes) > 0 {
		if m.to.is.Doing == applying && !q.join(m.to.is.Towards) {
			return nil
		}
		ops, n := q.next(m.to.most - 1)
		last := q.changes[n-1]
		if len(ops) == 0 && n == len(q.changes) {
			m.monitor.wrote(last.revision, 0, false) // there is nothing to write
			if time.Since(m.placed) < placeEvery {
				q.changes = []change{{revision: last.revision, sum: last.sum}}
				return nil
			}
		}
		if err := m.write(ctx, ops, last); err != nil {
			return err
		}
		q.done(n)
	}
	return nil
}

// write writes the operations up to a revision: in one transaction, or in several when there are too many for one.
func (m *mirror) write(ctx context.Context, ops []op, last change) error {
	whole := m.to.is
	whole.Revision = last.revision
	whole.Sum = last.sum
	whole.Doing = ""
	count := len(ops)
	size := 0
	for _, o := range ops {
		size += o.size()
	}
	if count > m.to.most-1 || size > wholeSize && count > 1 {
		part := m.to.is
		part.Doing = applying
		part.Towards = last.revision
		m.Log.Warn("a revision is too large for one transaction of the destination: its keys change one part after "+
			"the other", "revision", last.revision, "operations", count, "bytes", size, "limit", m.to.most)
		m.monitor.does(applying, part.ClusterID, part.Revision)
		for len(ops) > 0 {
			n := fit(ops, m.to.most-1)
			if n == len(ops) {
				break
			}
			if err := m.to.write(ctx, ops[:n], part); err != nil {
				return err
			}
			ops = ops[n:]
		}
	}
	if err := m.to.write(ctx, ops, whole); err != nil {
		return err
	}
	m.placed = time.Now()
	m.monitor.wrote(last.revision, count, true)
	return nil
}

// fit is how many of the first operations are a part, one at least. etcd takes no key twice in one.
func fit(ops []op, most int) (n int) {
	size := 0
	known := map[string]struct{}{}
	for _, o := range ops {
		_, twice := known[o.key]
		if n > 0 && (n == most || size+o.size() > partSize || twice) {
			break
		}
		n = n + 1
		size = size + o.size()
		known[o.key] = struct{}{}
	}
	return n
}
