package model

import (
	"fmt"
	"math/rand/v2"
)

// walk goes where no search gets: random steps until there are enough of them, in episodes that each begin afresh and
// end with all faults over, after which the cluster must converge. The same seed takes the same steps.
func (m *model) walk(seed uint64, steps int) (episodes int, broken *breach[action]) {
	m.prepare()
	r := rand.New(rand.NewPCG(seed, 2))
	for steps > 0 {
		episodes++
		n, b := m.episode(r, min(steps, 20+r.IntN(100)))
		if b != nil {
			return episodes, b
		}
		steps -= max(n, 1)
	}
	return episodes, nil
}

// episode takes steps that change something, as many as asked for or as there are.
func (m *model) episode(r *rand.Rand, steps int) (taken int, b *breach[action]) {
	s := m.first()
	var path []action
	for idle := 0; taken < steps && idle < 100; idle++ {
		a, before := choose(r, m.possible(&s, nil)), s
		if broken := m.do(&s, a); len(broken) > 0 {
			return taken, &breach[action]{Rules: broken, Path: append(path, a)}
		}
		if canonical(&s); s == before {
			continue
		}
		path = append(path, a)
		taken, idle = taken+1, 0
	}
	broken := m.recover(&s)
	if len(broken) == 0 && !m.converged(&s) && !m.bereft(&s) {
		_, v := m.rest(&s)
		broken = []string{fmt.Sprintf("liveness: nothing fails any more, and the cluster stays in %s", v.rule)}
	}
	if len(broken) > 0 {
		return taken, &breach[action]{Rules: broken, Path: path}
	}
	return taken, nil
}

// choose takes an action by chance: calls and what goes on by itself more often than trouble.
func choose(r *rand.Rand, list []action) action {
	for {
		a := list[r.IntN(len(list))]
		if classes[a.deed] == usual || r.IntN(6) == 0 {
			return a
		}
	}
}

// recover ends all faults that can end, and lets everything run.
func (m *model) recover(s *worldState) (broken []string) {
	if s.flight.phase != none {
		broken = m.goOn(s)
	}
	for _, kind := range caches {
		s.thaw(kind)
	}
	s.down, s.nospace, s.unreachable, s.Isolated, s.stuck = false, false, 0, 0, 0
	for n := range s.lost.All {
		m.reboot(s, n)
	}
	if s.live.parent.template == unplaced {
		m.takeBack(s, action{x: aTemplate})
	}
	if s.live.parent.version == unpullable {
		m.takeBack(s, action{x: aVersion})
	}
	canonical(s)
	return append(broken, m.settle(s)...)
}
