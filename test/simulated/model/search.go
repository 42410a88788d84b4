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

// space is what is searched: states S, and ways A that lead from one to another. It is used by many at once.
type space[S, A any] interface {
	// key of a state: states of the same key are one.
	key(*S) key
	kind(*S) kind
	// leave calls take for every way out of a state.
	leave(s *S, take func(way[S, A]))
}

// way out of a state.
type way[S, A any] struct {
	by A
	// to is the state that it leads to, until the next way is taken.
	to *S
	// free: it needs no fault.
	free bool
	// broken are the rules that it breaks.
	broken []string
}

// result of a search.
type result[A any] struct {
	// States, different ones; Transitions between them; Depth of the longest way that was needed; Decisions that were
	// really made, for different observations.
	States, Transitions, Depth, Decisions int
	// Converged states, and those in which faults have taken a majority's data, which end otherwise.
	Converged, Bereft int
	Took              time.Duration
	// Memory that was in use at the end, in bytes.
	Memory uint64
	// Broken is the first way to a broken rule, or to a state that is stuck; nil when there is none.
	Broken *breach[A]
}

// breach is a way that breaks a rule.
type breach[A any] struct {
	Rules []string
	Path  []A
}

func (r *result[A]) String() string {
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
type search[S, A any] struct {
	of     space[S, A]
	shards [256]struct {
		sync.Mutex
		known map[key]uint32
	}
	states atomic.Uint32
	// from is how each state was first reached.
	from []origin[A]
	// edges are the free ways out of each state.
	edges [][]uint32
	kinds []kind
	mu    sync.Mutex
	// breach is the first one. What comes after its state is not visited any more.
	breach      *breakingStep[A]
	transitions atomic.Int64
}

type origin[A any] struct {
	state uint32
	by    A
}

// kind of a state, for liveness.
type kind uint8

const (
	ordinary  kind = iota
	goal           // converged
	lost           // a majority's data is gone
	lostQuiet      // and it ends there
)

type breakingStep[A any] struct {
	rules []string
	at    uint32
	by    A
}

// found is a state that is new in this level.
type found[S, A any] struct {
	id    uint32
	state S
	from  origin[A]
}

// searchAll visits every state. It ends with the first broken rule. Workers search side by side; 0 is one for each
// processor.
func searchAll[S, A any](of space[S, A], first S, workers int) *result[A] {
	began := time.Now()
	s := &search[S, A]{of: of, from: []origin[A]{{}}}
	for i := range s.shards {
		s.shards[i].known = map[key]uint32{}
	}
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	s.id(&first)
	level := []found[S, A]{{state: first}}
	r := &result[A]{}
	for len(level) > 0 && s.breach == nil {
		r.Depth++
		level = s.expand(level, workers)
		for _, f := range level {
			for len(s.from) <= int(f.id) {
				s.from = append(s.from, origin[A]{})
			}
			s.from[f.id] = f.from
		}
	}
	r.States = int(s.states.Load())
	r.Transitions = int(s.transitions.Load())
	if s.breach != nil {
		r.Broken = &breach[A]{Rules: s.breach.rules, Path: append(s.path(s.breach.at), s.breach.by)}
	} else {
		s.liveness(r)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	r.Took, r.Memory = time.Since(began), memory.HeapInuse+memory.StackInuse
	return r
}

// id of a state, and whether it is new.
func (s *search[S, A]) id(t *S) (uint32, bool) {
	k := s.of.key(t)
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
func (s *search[S, A]) expand(level []found[S, A], workers int) []found[S, A] {
	fresh := make([][]found[S, A], workers)
	visits := make([][]visit, workers)
	var next atomic.Int64
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() {
			for {
				i := int(next.Add(batch)) - batch
				if i >= len(level) {
					return
				}
				for j := i; j < min(i+batch, len(level)); j++ {
					if f := &level[j]; !s.isOver(f.id) {
						fresh[w], visits[w] = s.visit(f, fresh[w], visits[w])
					}
				}
			}
		})
	}
	wait.Wait()
	for len(s.edges) < int(s.states.Load()) {
		s.edges = append(s.edges, nil)
		s.kinds = append(s.kinds, ordinary)
	}
	for _, list := range visits {
		for _, v := range list {
			s.edges[v.from], s.kinds[v.from] = v.to, v.kind
		}
	}
	return slices.Concat(fresh...)
}

// batch is how many states a worker takes at a time.
const batch = 16

// visit is what is known of a state that has been visited.
type visit struct {
	from uint32
	to   []uint32
	kind kind
}

func (s *search[S, A]) visit(f *found[S, A], fresh []found[S, A], visits []visit) ([]found[S, A], []visit) {
	v := visit{from: f.id, kind: s.of.kind(&f.state)}
	transitions := int64(0)
	s.of.leave(&f.state, func(w way[S, A]) {
		if len(w.broken) > 0 {
			s.report(&breakingStep[A]{w.broken, f.id, w.by})
		}
		id, isNew := s.id(w.to)
		if id == f.id {
			return
		}
		transitions++
		if isNew {
			fresh = append(fresh, found[S, A]{id, *w.to, origin[A]{f.id, w.by}})
		}
		if w.free && !slices.Contains(v.to, id) {
			v.to = append(v.to, id)
		}
	})
	s.transitions.Add(transitions)
	v.to = slices.Clone(v.to)
	return fresh, append(visits, v)
}

func (s *search[S, A]) report(b *breakingStep[A]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.breach == nil || b.at < s.breach.at {
		s.breach = b
	}
}

// isOver reports whether a rule was broken from an earlier state.
func (s *search[S, A]) isOver(id uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breach != nil && s.breach.at < id
}

// liveness looks for states from which nothing leads to the end that they should have.
func (s *search[S, A]) liveness(r *result[A]) {
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
		r.Broken = &breach[A]{Rules: []string{fmt.Sprintf("liveness: no way leads on from here, nor from %d other states",
			len(stuck)-1)}, Path: s.path(first)}
	}
}

// reversed are the edges the other way round.
type reversed struct {
	start []uint64
	from  []uint32
}

func (r *reversed) of(id uint32) []uint32 { return r.from[r.start[id]:r.start[id+1]] }

func (s *search[S, A]) reverse() *reversed {
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
func (s *search[S, A]) path(id uint32) []A {
	var path []A
	for ; id != 0; id = s.from[id].state {
		path = append(path, s.from[id].by)
	}
	slices.Reverse(path)
	return path
}

func (b *breach[A]) String() string { return strings.Join(b.Rules, "\n") }

// ---- the model as what is searched

// search visits every state of the model.
func (m *model) search() *result[action] {
	r := searchAll(m, m.first(), m.Workers)
	r.Decisions = m.judge.decisions()
	return r
}

func (m *model) key(s *worldState) key { return keyOf(*s) }

func (m *model) leave(s *worldState, take func(way[worldState, action])) {
	var room [64]action
	var t worldState
	for _, a := range m.possible(s, room[:0]) {
		t = *s
		broken := m.do(&t, a)
		canonical(&t)
		take(way[worldState, action]{a, &t, classes[a.deed] == usual, broken})
	}
}

func (m *model) kind(s *worldState) kind {
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
