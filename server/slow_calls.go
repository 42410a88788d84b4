package server

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// slowAfter is from when on a call is slow, which one whose members answer is not: with all of a core busy and 100
	// workers, 99 of 100 take less (docs/evidence/scale.md), and a member that is silent takes 1.5 s.
	slowAfter = time.Second
	// longFor is from when on a call needs a slot, for each call that comes at once: while all of a core is busy with
	// 20 workers, 99 of 100 calls take less than half of it.
	longFor = 25 * time.Millisecond
	// slotsOf is which part of Metacontroller's workers may wait for slow clusters of one namespace.
	slotsOf = 4
	// peakOver is for how long it is remembered how many calls came at once, at least.
	peakOver = 10 * time.Minute
)

// slowCalls keep the calls for slow clusters of one namespace from taking all of Metacontroller's workers. A worker
// makes one call at a time, so while all of them wait for a tenant's silent etcds, no other tenant is asked about. How
// many workers there are, nothing tells: it is at least how many calls were here at once.
//
// A call about a cluster whose last one was slow takes a slot before it begins. Any other takes one once it has
// lasted, or is cut off: so a namespace has no more of the workers when nothing is known of its clusters yet, or when
// they answer and stop answering by turns.
type slowCalls struct {
	mu         sync.Mutex
	calls      int
	peak, last int // most calls at once, since turned and in the time before
	turned     time.Time
	slow       map[types.UID]time.Time // clusters whose last call was slow, and when that was
	taken      map[string]int          // slots, by namespace
	asked      map[string]time.Time    // namespaces that were asked about, and when last
}

// slowCall is one call.
type slowCall struct {
	of        *slowCalls
	namespace string
	cluster   types.UID
	taken     bool
	over, cut bool
}

// begin begins a call; nil when its cluster is slow and the namespace has all its slots taken. End ends it.
func (s *slowCalls) begin(namespace string, cluster types.UID, now time.Time) *slowCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) > peakOver {
		s.last = s.peak
		s.peak = s.calls
		s.turned = now
		s.sweep(now)
	}
	s.peak = max(s.peak, s.calls+1)
	if s.asked == nil {
		s.asked = map[string]time.Time{}
	}
	s.asked[namespace] = now
	call := &slowCall{of: s, namespace: namespace, cluster: cluster}
	if _, slow := s.slow[cluster]; slow && !call.take() {
		return nil
	}
	s.calls++
	return call
}

// most is how many slots a namespace has: all while there is no other.
func (s *slowCalls) most() int {
	if len(s.asked) == 1 {
		return s.atOnce()
	}
	return max(1, s.atOnce()/slotsOf)
}

func (s *slowCalls) atOnce() int { return max(s.peak, s.last) }

// long is when a call that has no slot needs one.
func (s *slowCalls) long() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return min(max(time.Duration(s.atOnce())*longFor, slowAfter/4), slowAfter)
}

// take takes a slot if there is one.
func (c *slowCall) take() bool {
	if c.of.taken[c.namespace] >= c.of.most() {
		return false
	}
	if c.of.taken == nil {
		c.of.taken = map[string]int{}
	}
	c.of.taken[c.namespace]++
	c.taken = true
	return true
}

// stays reports whether the call may last: it has a slot, or gets one. If not, its cluster is slow.
func (c *slowCall) stays() bool {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.cut = !c.over && !c.taken && !c.take()
	return !c.cut
}

// end ends the call, which took so long.
func (c *slowCall) end(took time.Duration, now time.Time) {
	s := c.of
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	c.over = true
	if c.taken {
		if s.taken[c.namespace]--; s.taken[c.namespace] == 0 {
			delete(s.taken, c.namespace)
		}
	}
	if took < slowAfter && !c.cut || c.cluster == "" {
		delete(s.slow, c.cluster)
		return
	}
	if s.slow == nil {
		s.slow = map[types.UID]time.Time{}
	}
	s.slow[c.cluster] = now
}

// sweep forgets what is not asked about any more.
func (s *slowCalls) sweep(now time.Time) {
	maps.DeleteFunc(s.slow, func(_ types.UID, at time.Time) bool { return now.Sub(at) > forgetAfter })
	maps.DeleteFunc(s.asked, func(_ string, at time.Time) bool { return now.Sub(at) > forgetAfter })
}
