package server

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// parentLocks let the calls for one parent take turns. A parent takes up memory only while a call for it runs or waits.
type parentLocks struct {
	mu     sync.Mutex
	queues map[types.UID]*queue
}

type queue struct {
	turn  chan struct{} // holds a token while a call runs
	calls int           // that run or wait; guarded by parentLocks.mu
}

// lock waits for the turn of a call for this parent and returns the function that ends it. The error is ctx's, when
// ctx ends first.
func (t *parentLocks) lock(ctx context.Context, parent types.UID) (end func(), err error) {
	t.mu.Lock()
	if t.queues == nil {
		t.queues = map[types.UID]*queue{}
	}
	q := t.queues[parent]
	if q == nil {
		q = &queue{turn: make(chan struct{}, 1)}
		t.queues[parent] = q
	}
	q.calls++
	t.mu.Unlock()

	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if q.calls--; q.calls == 0 {
			delete(t.queues, parent)
		}
	}
	select {
	case q.turn <- struct{}{}:
		return func() { <-q.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
