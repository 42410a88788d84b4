package model

import (
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// result of a search.
type result struct {
	// States, different ones; Transitions between them, and how many of them were ours and judged; Depth of the
	// longest way that was needed; Decisions that were really made, for different observations.
	States, Transitions, Depth, Decisions int
	// Converged states, and those in which faults have taken a majority's data, which end otherwise.
	Converged, Bereft int
	Took              time.Duration
	// Memory that was in use at the end, in bytes.
	Memory uint64
	// Broken is the first way to a broken rule, or to a state that is stuck; nil when there is none.
	Broken *breach
	// Rules counts the states in which each rule decides.
	Rules map[string]int
}

// breach is a way that breaks a rule.
type breach struct {
	Rules []string
	Path  []action
}

func (r *result) String() string {
	return fmt.Sprintf("%d states, %d transitions, depth %d, %d decisions, %d converged, %d bereft of their data; "+
		"%s, %d MiB",
		r.States, r.Transitions, r.Depth, r.Decisions, r.Converged, r.Bereft, r.Took.Round(time.Millisecond),
		r.Memory>>20)
}

// key of a value: 128 bits, so that two among a billion are taken for one with a chance of one in 10^20.
type key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func keyOf[T comparable](t T) key {
	return key{maphash.Comparable(seeds[0], t), maphash.Comparable(seeds[1], t)}
}

// search is a breadth-first walk through all states.
type search struct {
	m      *model
	limit  int // states, at most; 0 for no limit
	shards [256]struct {
		sync.Mutex
		known map[key]uint32
	}
	states atomic.Uint32
	// from is how each state was first reached.
	from []origin
	// edges are the ways out of each state that need no fault.
	edges [][]uint32
	kinds []kind
	mu    sync.Mutex
	// breach is the first one of the level.
	breach      *breakingStep
	transitions atomic.Int64
}

type origin struct {
	state uint32
	by    action
}

// kind of a state, for liveness.
type kind uint8

const (
	ordinary  kind = iota
	goal           // converged
	lost           // a majority's data is gone
	lostQuiet      // and it ends there
)

type breakingStep struct {
	rules []string
	at    uint32
	by    action
}

// found is a state that is new in this level.
type found struct {
	id    uint32
	state worldState
	from  origin
}

// search visits every state, up to a limit (0 for none). It ends with the first broken rule.
func (m *model) search(limit int) *result {
	began := time.Now()
	s := &search{m: m, limit: limit}
	for i := range s.shards {
		s.shards[i].known = map[key]uint32{}
	}
	first := m.first()
	s.id(&first)
	s.from = []origin{{}}
	level := []found{{state: first}}
	r := &result{}
	for len(level) > 0 && s.breach == nil && (limit == 0 || int(s.states.Load()) < limit) {
		r.Depth++
		level = s.expand(level)
		for _, f := range level {
			for len(s.from) <= int(f.id) {
				s.from = append(s.from, origin{})
			}
			s.from[f.id] = f.from
		}
	}
	r.States, r.Transitions, r.Decisions = int(s.states.Load()), int(s.transitions.Load()), m.judge.decisions()
	switch {
	case s.breach != nil:
		r.Broken = &breach{Rules: s.breach.rules, Path: append(s.path(s.breach.at), s.breach.by)}
	case len(level) == 0:
		s.liveness(r)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.Took, r.Memory = time.Since(began), memory.HeapInuse+memory.StackInuse
	return r
}

// id of a state, and whether it is new.
func (s *search) id(t *worldState) (uint32, bool) {
	k := keyOf(*t)
	shard := &s.shards[k[0]%256]
	shard.Lock()
	defer shard.Unlock()
	if id, known := shard.known[k]; known {
		return id, false
	}
	id := s.states.Add(1) - 1
	shard.known[k] = id
	return id, true
}

// expand visits the states of a level and returns the next one.
func (s *search) expand(level []found) []found {
	workers := s.m.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	fresh := make([][]found, workers)
	ways := make([][]way, workers)
	var next atomic.Int64
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for {
				i := int(next.Add(64)) - 64
				if i >= len(level) {
					return
				}
				for _, f := range level[i:min(i+64, len(level))] {
					fresh[w], ways[w] = s.visit(&f, fresh[w], ways[w])
				}
			}
		})
	}
	wait.Wait()
	for len(s.edges) < int(s.states.Load()) {
		s.edges = append(s.edges, nil)
		s.kinds = append(s.kinds, ordinary)
	}
	for _, list := range ways {
		for _, w := range list {
			s.edges[w.from], s.kinds[w.from] = w.to, w.kind
		}
	}
	return slices.Concat(fresh...)
}

// way is what is known of a state that has been visited.
type way struct {
	from uint32
	to   []uint32
	kind kind
}

func (s *search) visit(f *found, fresh []found, ways []way) ([]found, []way) {
	w := way{from: f.id, kind: s.m.kindOf(&f.state)}
	var room [64]action
	list := s.m.possible(&f.state, room[:0])
	var to []uint32
	for _, a := range list {
		t := f.state
		broken := s.m.do(&t, a)
		if len(broken) > 0 {
			s.report(&breakingStep{broken, f.id, a})
		}
		canonical(&t)
		id, isNew := s.id(&t)
		if id == f.id {
			continue
		}
		s.transitions.Add(1)
		if isNew {
			fresh = append(fresh, found{id, t, origin{f.id, a}})
		}
		if classes[a.deed] == usual && !slices.Contains(to, id) {
			to = append(to, id)
		}
	}
	w.to = slices.Clone(to)
	return fresh, append(ways, w)
}

func (s *search) report(b *breakingStep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breach == nil || b.at < s.breach.at {
		s.breach = b
	}
}

func (m *model) kindOf(s *worldState) kind {
	switch {
	case m.bereft(s):
		if m.unserved(s) {
			return lostQuiet // for a person, with the newest snapshot
		}
		if quiet, v := m.rest(s); quiet && documented(v.rule) {
			return lostQuiet
		}
		return lost
	case m.converged(s):
		return goal
	}
	return ordinary
}

// documented reports whether a cluster that has lost a majority's data may end in this rule (docs/troubleshooting.md).
func documented(rule string) bool {
	return slices.Contains([]string{"QuorumLost", "Blind", "Start", "Pause"}, rule)
}

// liveness looks for states from which nothing leads to the end that they should have.
func (s *search) liveness(r *result) {
	into := s.reverse()
	alive := make([]bool, len(s.kinds))
	reach := func(is kind) {
		var queue []uint32
		for id, k := range s.kinds {
			if k == is && !alive[id] {
				alive[id] = true
				queue = append(queue, uint32(id))
			}
		}
		for len(queue) > 0 {
			id := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			for _, from := range into.of(id) {
				if !alive[from] {
					alive[from] = true
					queue = append(queue, from)
				}
			}
		}
	}
	reach(goal)
	var stuck []uint32
	for id, k := range s.kinds {
		switch k {
		case goal:
			r.Converged++
		case lost, lostQuiet:
			r.Bereft++
		case ordinary:
			if !alive[id] {
				stuck = append(stuck, uint32(id))
			}
		}
	}
	reach(lostQuiet)
	for id, k := range s.kinds {
		if k == lost && !alive[id] {
			stuck = append(stuck, uint32(id))
		}
	}
	if len(stuck) > 0 {
		first := slices.Min(stuck)
		r.Broken = &breach{Rules: []string{fmt.Sprintf("liveness: no way leads on from here, nor from %d other states",
			len(stuck)-1)}, Path: s.path(first)}
	}
}

// reversed are the edges the other way round.
type reversed struct {
	start []uint64
	from  []uint32
}

func (r *reversed) of(id uint32) []uint32 { return r.from[r.start[id]:r.start[id+1]] }

func (s *search) reverse() *reversed {
	r := &reversed{start: make([]uint64, len(s.edges)+1)}
	for _, e := range s.edges {
		for _, to := range e {
			r.start[to+1]++
		}
	}
	for i := range s.edges {
		r.start[i+1] += r.start[i]
	}
	r.from = make([]uint32, r.start[len(s.edges)])
	at := slices.Clone(r.start)
	for id, e := range s.edges {
		for _, to := range e {
			r.from[at[to]] = uint32(id)
			at[to]++
		}
	}
	return r
}

// path is the way to a state, in the numbers that its members had at each step.
func (s *search) path(id uint32) []action {
	var path []action
	for ; id != 0; id = s.from[id].state {
		path = append(path, s.from[id].by)
	}
	slices.Reverse(path)
	return path
}

func (b *breach) String() string { return strings.Join(b.Rules, "\n") }
