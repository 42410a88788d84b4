package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A view is what a lagging cache of Metacontroller shows of one kind (the parent, or one kind of children) of one
// cluster. It may stand still for a while and then skip states; it never goes back.
type view[T any] struct {
	same   func(a, b T) bool
	states []T // that Metacontroller has sent, each once; the first is what was shown last
	frozen time.Time
}

// glance is what a view shows to one call.
type glance[T any] struct {
	shown T
	stale bool
	// missed is how many states were never shown to any caller and are now past.
	missed int
	// rest is how long the view will stand still.
	rest time.Duration
}

// show adds the newest state and says what the lagging cache shows now.
func (v *view[T]) show(newest T, dice *rand.Rand, now time.Time) glance[T] {
	if n := len(v.states); n == 0 || !v.same(v.states[n-1], newest) {
		v.states = append(v.states, newest)
	} else {
		v.states[n-1] = newest
	}
	if dice == nil {
		v.frozen = time.Time{}
		return v.advance(len(v.states)-1, 0)
	}
	freezes, length, at := dice.IntN(100) < freezePercent, between(dice, 300*time.Millisecond, longestFreeze),
		dice.Uint64()
	switch {
	case now.Before(v.frozen):
		return v.advance(0, v.frozen.Sub(now))
	case freezes: // at any of the states that have come since the last call
		v.frozen = now.Add(length)
		return v.advance(int(at%uint64(len(v.states))), length)
	}
	return v.advance(len(v.states)-1, 0)
}

func (v *view[T]) advance(by int, rest time.Duration) glance[T] {
	v.states = v.states[by:]
	return glance[T]{shown: v.states[0], stale: len(v.states) > 1, missed: max(0, by-1), rest: rest}
}

const (
	freezePercent = 8 // of all calls, for each kind on its own
	longestFreeze = 8 * time.Second
)

// views are all views of one cluster.
type views struct {
	parent   view[object]
	children map[string]*view[map[string]object]
}

// lagged is a call as lagging caches would have sent it.
type lagged struct {
	call  *call
	stale []string // the kinds that are
	// missed are the kinds of which states were passed over.
	missed []string
	// rest is the time after which the last kind catches up.
	rest time.Duration
}

// lag makes of a call what lagging caches would have sent.
func (v *views) lag(c *call, dice *rand.Rand, now time.Time) *lagged {
	l := &lagged{call: &call{whole: c.whole, children: map[string]map[string]object{}}}
	v.parent.same = func(a, b object) bool { return a.meta.ResourceVersion == b.meta.ResourceVersion }
	parent := v.parent.show(c.parent, dice, now)
	l.call.parent = parent.shown
	l.note("parent", parent.stale, parent.missed, parent.rest)
	if v.children == nil {
		v.children = map[string]*view[map[string]object]{}
	}
	for _, kind := range kindsOf(c) {
		if v.children[kind] == nil {
			v.children[kind] = &view[map[string]object]{same: same}
		}
		g := v.children[kind].show(c.children[kind], dice, now)
		l.call.children[kind] = g.shown
		l.note(kind, g.stale, g.missed, g.rest)
	}
	return l
}

func (l *lagged) note(kind string, stale bool, missed int, rest time.Duration) {
	if stale {
		l.stale = append(l.stale, kind)
	}
	for range missed {
		l.missed = append(l.missed, kind)
	}
	l.rest = max(l.rest, rest)
}

func kindsOf(c *call) []string {
	var kinds []string
	for kind := range c.children {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

func same(a, b map[string]object) bool {
	if len(a) != len(b) {
		return false
	}
	for name, o := range a {
		if other, there := b[name]; !there || o.meta.ResourceVersion != other.meta.ResourceVersion {
			return false
		}
	}
	return true
}

// asIfStale makes of the answer to a stale view what Metacontroller would have done with it had its own caches been
// so stale: the API server refuses what is based on an old object. An update of one that has changed is a conflict, a
// creation of one that exists is refused, an update of one that is gone fails, a deletion reaches only the very
// object that was seen (its UID goes along).
func (a *answer) asIfStale(shown, actual *call) error {
	asked := a.asked()
	a.Children = nil
	for kind, objects := range actual.children {
		for name, is := range objects {
			was, seen := shown.children[kind][name]
			want, wanted := asked[kind][name]
			delete(asked[kind], name)
			switch {
			case seen && was.meta.UID == is.meta.UID && !wanted: // a deletion
			case seen && was.meta.UID == is.meta.UID && was.meta.ResourceVersion == is.meta.ResourceVersion:
				a.Children = append(a.Children, want)
			default:
				unchanged, err := is.asItIs()
				if err != nil {
					return fmt.Errorf("%s: %w", kind, err)
				}
				a.Children = append(a.Children, unchanged)
			}
		}
	}
	for kind, objects := range asked { // of these none exists
		for name, want := range objects {
			if _, seen := shown.children[kind][name]; !seen {
				a.Children = append(a.Children, want)
			}
		}
	}
	if shown.parent.meta.Generation != actual.parent.meta.Generation {
		// Metacontroller would say itself that this status is that of an older spec; through us it would not.
		a.Status = statusOf(actual.parent)
	}
	return nil
}

// cut makes of an answer what is left of it when Metacontroller dies while it applies it: of its deletions, creations
// and updates, in this order as Metacontroller makes them, only some first ones happen, and the status is not
// written. It reports how many of how many; an answer that changes nothing can't be cut.
func (a *answer) cut(actual *call, dice *rand.Rand) (done, of int, err error) {
	type change struct {
		do   func()
		undo func() error
	}
	var kept []child
	keep := func(c child) func() { return func() { kept = append(kept, c) } }
	var deletions, others []change
	asked := a.asked()
	for _, kind := range kindsOf(actual) {
		for name, is := range actual.children[kind] {
			stay := func() error {
				unchanged, err := is.asItIs()
				kept = append(kept, unchanged)
				return err
			}
			want, wanted := asked[kind][name]
			delete(asked[kind], name)
			switch unchanged, err := is.asItIs(); {
			case err != nil:
				return 0, 0, err
			case !wanted && is.meta.DeletionTimestamp == nil:
				deletions = append(deletions, change{func() {}, stay})
			case wanted && !equal(unchanged.raw, want.raw):
				others = append(others, change{keep(want), stay})
			case wanted:
				kept = append(kept, want)
			}
		}
		for _, want := range asked[kind] {
			others = append(others, change{keep(want), func() error { return nil }})
		}
	}
	changes := slices.Concat(deletions, others) // the order within each is that of Go's maps, as in Metacontroller
	if len(changes) == 0 {
		return 0, 0, nil
	}
	done = dice.IntN(len(changes))
	for i, c := range changes {
		if i < done {
			c.do()
		} else if err := c.undo(); err != nil {
			return 0, 0, err
		}
	}
	a.Children, a.Status = kept, statusOf(actual.parent)
	return done, len(changes), nil
}
