//go:build linux

package main

import (
	"sync"
	"time"
)

// A queue hands out numbers as client-go's work queue does: what is added twice before it is handed out is handed out
// once, and what is added while a worker has it comes back when the worker is done.
type queue struct {
	mu         sync.Mutex
	waits      sync.Cond
	order      []int
	dirty      map[int]bool
	processing map[int]bool
	since      map[int]time.Time // when what waits was added
	closed     bool
}

func newQueue() *queue {
	q := &queue{dirty: map[int]bool{}, processing: map[int]bool{}, since: map[int]time.Time{}}
	q.waits.L = &q.mu
	return q
}

func (q *queue) add(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dirty[n] || q.closed {
		return
	}
	q.dirty[n] = true
	q.since[n] = time.Now()
	if !q.processing[n] {
		q.order = append(q.order, n)
		q.waits.Signal()
	}
}

// get waits for a number, and says since when it has waited; false when the queue is closed.
func (q *queue) get() (int, time.Time, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.order) == 0 && !q.closed {
		q.waits.Wait()
	}
	if q.closed {
		return 0, time.Time{}, false
	}
	n := q.order[0]
	q.order = q.order[1:]
	q.processing[n] = true
	delete(q.dirty, n)
	return n, q.since[n], true
}

func (q *queue) done(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.processing, n)
	if q.dirty[n] {
		q.order = append(q.order, n)
		q.waits.Signal()
	}
}

// left is how many wait or are worked on.
func (q *queue) left() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.order) + len(q.processing)
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.waits.Broadcast()
}
