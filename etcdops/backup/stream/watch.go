package stream

import (
	"context"
	"log/slog"
	"time"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// Batch is some whole revisions in a row that a member has sent; none in one that tells that there are no others.
type Batch = batch

// Watching says what Watch receives.
type Watching struct {
	Cluster   archive.Cluster
	ClusterID uint64
	// Last revision that is known, and the Sum of its records as Batch has it; empty when they were not seen.
	Last int64
	Sum  string
	// The member is asked each AskEvery whether there is more, and another one after it was silent for Silence.
	AskEvery, Silence time.Duration
	Log               *slog.Logger
}

// Watch receives all changes behind a revision, until the context ends or another try won't help: then the error has a
// reason. While nothing is taken from the channel, nothing is read, so that memory has a bound.
func Watch(ctx context.Context, w Watching, to chan<- Batch) error {
	r := &receiver{cluster: w.Cluster, clusterID: w.ClusterID, last: w.Last, sum: w.Sum, to: to, askEvery: w.AskEvery,
		silence: w.Silence}
	return r.run(ctx, w.Log)
}

// Last is the last revision, of all before when the batch has none.
func (b *batch) Last() int64 { return b.last }

// Empty reports whether it only tells that the cluster had no others when it had arrived.
func (b *batch) Empty() bool { return b.events == 0 }

// Arrived is when it had arrived.
func (b *batch) Arrived() time.Time { return b.at }

// Before is the Sum of the records of the revision before the batch's first; empty when they were not seen.
func (b *batch) Before() string { return b.before }

// Sum is that of the records of its last revision.
func (b *batch) Sum() string { return b.sum }

// Each tells all changes, in their order. They are valid as long as the batch is.
func (b *batch) Each(tell func(Change) error) error {
	s := Segment{Header: Header{First: b.first, Last: b.last, Events: b.events}, records: b.records}
	return s.Each(tell)
}
