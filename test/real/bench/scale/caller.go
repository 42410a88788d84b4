//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/simulated/metacontroller"
)

// A caller is one CompositeController of Metacontroller: a queue of parents, and workers that call a hook for each.
type caller struct {
	hook    string // URL, with the token as the password
	dial    string // where it is reached
	trust   *tls.Config
	body    func(to *bytes.Buffer, parent int)
	answers func(parent int, body []byte, repeat func(after time.Duration)) error
	counts  func(parent int) bool // whose times are measured; nil for all
	reuse   bool
	patient bool // asks again when a 429 says, as 4.17.2 does

	queue *queue
	mu    sync.Mutex
	tries map[int]int
	tally tally
}

// tally is what was measured since it was emptied.
type tally struct {
	took    []time.Duration
	silent  []time.Duration // the same of calls whose times are not measured with the others
	late    []time.Duration // from being in the queue to the answer
	since   []time.Duration // from the call before about the same parent
	refused map[int]int     // by HTTP status; 0 for no answer
	drained []time.Duration // from each resync until nothing was left
	writes  int             // answers with another status or other children than the one before
}

func newCaller(hook, at string, trust *tls.Config) *caller {
	return &caller{hook: hook, dial: at, trust: trust, queue: newQueue(), tries: map[int]int{},
		tally: tally{refused: map[int]int{}}}
}

// transport is http.DefaultTransport, by which Metacontroller calls: no more than two idle connections are kept, so
// that most calls of many workers begin with a handshake.
func (c *caller) transport(workers int) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // as documented
	t.Proxy, t.TLSClientConfig = nil, c.trust
	t.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, c.dial)
	}
	if c.reuse {
		t.MaxIdleConnsPerHost = workers
	}
	return t
}

// work empties the queue with so many workers until ctx ends.
func (c *caller) work(ctx context.Context, workers int) *sync.WaitGroup {
	transport := c.transport(workers)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var body bytes.Buffer
			for {
				parent, since, ok := c.queue.get()
				if !ok {
					return
				}
				c.call(ctx, transport, parent, since, &body)
				c.queue.done(parent)
			}
		})
	}
	context.AfterFunc(ctx, c.queue.close)
	return &wg
}

// call makes one call. One that fails is repeated after 5 ms, and twice as long each time, as client-go's rate
// limiter does.
func (c *caller) call(ctx context.Context, transport http.RoundTripper, parent int, since time.Time,
	body *bytes.Buffer) {
	c.body(body, parent)
	began := time.Now()
	code, later, answer, err := post(ctx, transport, c.hook, body.Bytes())
	took := time.Since(began)
	if ctx.Err() != nil {
		return
	}
	c.mu.Lock()
	if err != nil || code != http.StatusOK {
		c.tally.refused[code]++
		c.tries[parent]++
		again := time.Millisecond * 5 << min(c.tries[parent]-1, 17)
		if c.patient && code == http.StatusTooManyRequests {
			again = later
		}
		c.mu.Unlock()
		time.AfterFunc(again, func() { c.queue.add(parent) })
		return
	}
	if c.counts == nil || c.counts(parent) {
		c.tally.took = append(c.tally.took, took)
		c.tally.late = append(c.tally.late, time.Since(since))
	} else {
		c.tally.silent = append(c.tally.silent, took)
	}
	delete(c.tries, parent)
	c.mu.Unlock()
	if err := c.answers(parent, answer,
		func(after time.Duration) { time.AfterFunc(after, func() { c.queue.add(parent) }) }); err != nil {
		fmt.Println("scale: an answer can't be used:", err)
	}
}

func post(ctx context.Context, transport http.RoundTripper, url string, body []byte) (code int, later time.Duration,
	answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second} // the webhook's timeout
	resp, err := client.Do(request)
	if err != nil {
		return 0, 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	later, _ = time.ParseDuration(resp.Header.Get("Retry-After") + "s") // none is at once
	return resp.StatusCode, later, answer, err
}

// reset empties the tally and returns what was in it.
func (c *caller) reset() tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tally
	c.tally = tally{refused: map[int]int{}}
	return t
}

// resync puts all parents into the queue, every period, in the same order, which is any.
func (c *caller) resync(ctx context.Context, parents int, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		began := time.Now()
		for n := range parents {
			c.queue.add(n)
		}
		c.drain(ctx, began, tick.C)
		if ctx.Err() != nil {
			return
		}
	}
}

// drain waits for the next tick, and notes when nothing was left before it.
func (c *caller) drain(ctx context.Context, began time.Time, tick <-chan time.Time) {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	empty := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
			return
		case <-look.C:
			if !empty && c.queue.left() == 0 {
				empty = true
				c.mu.Lock()
				c.tally.drained = append(c.tally.drained, time.Since(began))
				c.mu.Unlock()
			}
		}
	}
}

// answered reads an answer about a cluster, and lets the next call show what it says.
func (f *fleet) answered(c *caller) func(int, []byte, func(time.Duration)) error {
	return func(n int, raw []byte, repeat func(time.Duration)) error {
		var answer struct {
			Status             json.RawMessage `json:"status"`
			Children           json.RawMessage `json:"children"`
			ResyncAfterSeconds float64         `json:"resyncAfterSeconds"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			return err
		}
		k := f.clusters[n]
		now, before := time.Now(), k.asked
		k.asked = now
		c.mu.Lock()
		if !before.IsZero() {
			c.tally.since = append(c.tally.since, now.Sub(before))
		}
		differs := !bytes.Equal(k.lastStatus, answer.Status) || !bytes.Equal(k.lastChildren, answer.Children)
		if differs && k.lastStatus != nil {
			c.tally.writes++
		}
		c.mu.Unlock()
		if answer.ResyncAfterSeconds > 0 {
			repeat(time.Duration(answer.ResyncAfterSeconds * float64(time.Second)))
		}
		if !differs {
			return nil
		}
		if k.lastStatus != nil {
			repeat(0) // as Metacontroller does when the status changes
		}
		k.lastStatus, k.lastChildren = answer.Status, answer.Children
		return k.shows(answer.Status, f.parent.Generation)
	}
}

// shows makes a status the one of the next call, as Metacontroller writes it.
func (k *cluster) shows(status []byte, generation int64) error {
	var told v1beta1.EtcdClusterStatus
	if err := json.Unmarshal(status, &told); err != nil {
		return err
	}
	written, err := json.Marshal(metacontroller.Observed(told, generation))
	k.values["status"] = string(written)
	return err
}

// quantile of durations that need not be in order; 0 of none.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

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
