package server

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// slowCall is from when on a call is slow, which one whose members answer is not: with all of a core busy and 100 workers, 99 of 100 take
	// less (docs/scale.md), and a member that is silent takes 1.5 s.
	slowCall = time.Second
	// seatsOf is which part of Metacontroller's workers may wait for slow clusters of one namespace.
	seatsOf = 4
	// peakOver is for how long it is remembered how many calls came at once, at least.
	peakOver = 10 * time.Minute
)

// seats keep the calls for slow clusters of one namespace from taking all of Metacontroller's workers. A worker makes one call at a time, so
// while all of them wait for a tenant's silent etcds, no other tenant is asked about. How many workers there are, nothing tells: it is at least
// how many calls were here at once.
type seats struct {
	mu         sync.Mutex
	calls      int
	peak, last int // most calls at once, since turned and in the time before
	turned     time.Time
	slow       map[types.UID]time.Time // clusters whose last call was slow, and when that was
	taken      map[string]int          // calls about slow clusters, by namespace
}

// sit takes a seat for a call; nil when the namespace has as many calls about slow clusters as it may. What it returns is called at the end of
// the call.
func (s *seats) sit(namespace string, cluster types.UID, now time.Time) (rise func(took time.Duration, now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.turned) > peakOver {
		s.peak, s.last, s.turned = s.calls, s.peak, now
		s.sweep(now)
	}
	s.peak = max(s.peak, s.calls+1)
	_, slow := s.slow[cluster]
	if slow {
		if s.taken[namespace] >= s.most() {
			return nil
		}
		if s.taken == nil {
			s.taken = map[string]int{}
		}
		s.taken[namespace]++
	}
	s.calls++
	return func(took time.Duration, now time.Time) { s.rise(namespace, cluster, slow, took, now) }
}

// most is how many calls about slow clusters a namespace may have at once.
func (s *seats) most() int { return max(1, max(s.peak, s.last)/seatsOf) }

func (s *seats) rise(namespace string, cluster types.UID, seated bool, took time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	if seated {
		if s.taken[namespace]--; s.taken[namespace] == 0 {
			delete(s.taken, namespace)
		}
	}
	if took < slowCall || cluster == "" {
		delete(s.slow, cluster)
		return
	}
	if s.slow == nil {
		s.slow = map[types.UID]time.Time{}
	}
	s.slow[cluster] = now
}

// sweep forgets clusters that are not asked about any more.
func (s *seats) sweep(now time.Time) {
	for cluster, at := range s.slow {
		if now.Sub(at) > forgetAfter {
			delete(s.slow, cluster)
		}
	}
}
