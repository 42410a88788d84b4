// Package chaos disturbs a running Quorate: a proxy between Metacontroller and the hooks, a proxy between the hooks
// and etcd, and the schedule of faults that both follow. It also keeps the history of the clients that write
// meanwhile, and judges it. Nothing of Quorate knows about it: the story is TestChaos in test/real/e2e, the figures
// are in docs/evidence/reliability.md.
package chaos

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// faultKind is one kind of disturbance.
type faultKind string

// calm is no fault.
const calm faultKind = ""

// Schedule decides about faults: the n-th call of a stream meets the same fault in every run with the same seed. How
// calls interleave, and therefore which call is the n-th, is up to the machine.
type Schedule struct {
	Seed uint64

	mu    sync.Mutex
	on    bool
	calls map[string]uint64
	tally map[string]map[string]int
}

// Start lets faults happen, Stop ends that. What was begun may go on for a while: see the Wait of the proxies.
func (s *Schedule) Start() { s.set(true) }

// Stop ends the injection of faults.
func (s *Schedule) Stop() { s.set(false) }

func (s *Schedule) set(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on = on
}

// Next is the source of all chance in the next call of a stream; nil while no faults happen.
func (s *Schedule) next(stream string) *rand.Rand {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return nil
	}
	if s.calls == nil {
		s.calls = map[string]uint64{}
	}
	s.calls[stream]++
	return Dice(s.Seed, stream, s.calls[stream])
}

// Dice is the source of chance of one call.
func Dice(seed uint64, stream string, call uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", stream, call)
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

// underway counts the calls that may meet a fault, and what of a fault goes on after them. (Not a sync.WaitGroup: it
// may not count up from zero again while a goroutine waits.)
type underway struct{ n atomic.Int64 }

func (u *underway) begin() { u.n.Add(1) }
func (u *underway) end()   { u.n.Add(-1) }

// wait waits until nothing is under way.
func (u *underway) wait() {
	for u.n.Load() > 0 {
		<-time.After(10 * time.Millisecond)
	}
}

// pick draws a fault by its weight out of 100; calm is what is left of them.
func pick(dice *rand.Rand, weights []weight) faultKind {
	n := dice.IntN(100)
	for _, w := range weights {
		if n -= w.percent; n < 0 {
			return w.fault
		}
	}
	return calm
}

// weight is how often a fault is injected.
type weight struct {
	fault   faultKind
	percent int
}

// between is a random duration.
func between(dice *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(dice.Int64N(int64(high-low)))
}

// Count counts an injection, or whatever else is worth a line of the report, and what came of it.
func (s *Schedule) Count(what, outcome string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tally == nil {
		s.tally = map[string]map[string]int{}
	}
	if s.tally[what] == nil {
		s.tally[what] = map[string]int{}
	}
	s.tally[what][outcome]++
}

// Counted is how often something was counted.
func (s *Schedule) Counted(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, count := range s.tally[what] {
		n += count
	}
	return n
}

// Table is what was counted, in Markdown, ready for docs/evidence/reliability.md.
func (s *Schedule) Table() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	b.WriteString("| what | times | what came of it |\n| --- | --- | --- |\n")
	for _, what := range slices.Sorted(maps.Keys(s.tally)) {
		outcomes := slices.SortedFunc(maps.Keys(s.tally[what]), func(a, b string) int {
			return cmp.Or(cmp.Compare(s.tally[what][b], s.tally[what][a]), cmp.Compare(a, b))
		})
		sum := 0
		var words []string
		for _, outcome := range outcomes {
			n := s.tally[what][outcome]
			sum += n
			words = append(words, fmt.Sprintf("%s %d", outcome, n))
		}
		fmt.Fprintf(&b, "| %s | %d | %s |\n", what, sum, strings.Join(words, ", "))
	}
	return b.String()
}
