package server

import (
	"context"
	"sync"
	"time"
)

// A pool is what all calls share of something, such as bytes of memory. A call that finds too little left waits. No
// tenant, which is a namespace, has more than half of it while it has anything at all, and of those who wait the tenant
// comes first who has least, and then who was served longest ago. What is larger than the pool is served alone.
type pool struct {
	size int64
	// rest is how long a tenant goes without, in times of what its last call held its part: 3 leaves three quarters of
	// a processor to others.
	rest time.Duration

	mu      sync.Mutex
	held    int64
	tenants map[string]*tenant
	waiting []*ticket
	served  uint64
	resting map[string]time.Time // until when
}

type tenant struct {
	held   int64
	calls  int    // that hold or wait
	served uint64 // when it was last
}

// quick is the longest hold after which a tenant does not rest.
const quick = 5 * time.Millisecond

// A ticket is a call's part of a pool.
type ticket struct {
	pool   *pool
	tenant string
	n      int64
	served chan struct{} // closed once it has its part
	since  time.Time     // when it got that
}

// take waits for n of the pool. The error is ctx's, when ctx ends first.
func (p *pool) take(ctx context.Context, of string, n int64) (*ticket, error) {
	t := &ticket{pool: p, tenant: of, n: n, served: make(chan struct{})}
	p.mu.Lock()
	p.tenantOf(of)
	p.tenants[of].calls++
	p.waiting = append(p.waiting, t)
	p.serve()
	p.mu.Unlock()
	select {
	case <-t.served:
		return t, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.waiting {
		if w == t {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			p.leave(t)
			p.serve() // it may have been before others
			return nil, ctx.Err()
		}
	}
	return t, nil // served in the same moment
}

// serve gives those who wait their parts. The lock is held.
func (p *pool) serve() {
	for {
		next := p.next()
		if next < 0 {
			return
		}
		t := p.waiting[next]
		if p.held > 0 && p.held+t.n > p.size {
			return
		}
		p.waiting = append(p.waiting[:next], p.waiting[next+1:]...)
		t.since = time.Now()
		p.held += t.n
		p.served++
		p.tenants[t.tenant].held += t.n
		p.tenants[t.tenant].served = p.served
		close(t.served)
	}
}

// next is whose turn it is among those whose tenant may have more; -1 for none. Of one tenant, who came first.
func (p *pool) next() int {
	best := -1
	for i, t := range p.waiting {
		own := p.tenants[t.tenant]
		if own.held > 0 && own.held+t.n > p.size/2 {
			continue
		}
		if _, rests := p.resting[t.tenant]; rests {
			continue
		}
		if best >= 0 {
			other := p.tenants[p.waiting[best].tenant]
			if own.held > other.held || own.held == other.held && own.served >= other.served {
				continue
			}
		}
		best = i
	}
	return best
}

func (p *pool) leave(t *ticket) {
	own := p.tenants[t.tenant]
	if own.calls--; own.calls == 0 {
		delete(p.tenants, t.tenant)
	}
}

// keep gives back all but n, which is no more than the ticket has.
func (t *ticket) keep(n int64) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= t.n {
		return
	}
	if n == 0 {
		p.restAfter(t)
	}
	p.held -= t.n - n
	p.tenants[t.tenant].held -= t.n - n
	t.n = n
	p.serve()
}

// restAfter lets the ticket's tenant rest. The lock is held.
func (p *pool) restAfter(t *ticket) {
	held := time.Since(t.since)
	if p.rest == 0 || held < quick {
		return
	}
	if p.resting == nil {
		p.resting = map[string]time.Time{}
	}
	rest := p.rest * held
	until := time.Now().Add(rest)
	p.resting[t.tenant] = until
	time.AfterFunc(rest, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.resting[t.tenant].Equal(until) { // else it rests for longer
			delete(p.resting, t.tenant)
			p.serve()
		}
	})
}

// of makes it the part of another tenant, which may then have more than half: its next calls wait for that.
func (t *ticket) of(tenant string) {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if tenant == t.tenant {
		return
	}
	p.tenants[t.tenant].held -= t.n
	p.leave(t)
	p.tenantOf(tenant)
	t.tenant = tenant
	p.tenants[tenant].held += t.n
	p.tenants[tenant].calls++
	p.serve()
}

// tenantOf sees to it that the tenant is known. The lock is held.
func (p *pool) tenantOf(name string) {
	if p.tenants == nil {
		p.tenants = map[string]*tenant{}
	}
	if p.tenants[name] == nil {
		p.tenants[name] = &tenant{}
	}
}

// end gives all of it back.
func (t *ticket) end() {
	t.keep(0)
	t.pool.mu.Lock()
	defer t.pool.mu.Unlock()
	t.pool.leave(t)
}
