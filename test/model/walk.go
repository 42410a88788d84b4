package model

import (
	"fmt"
	"math/rand/v2"
)

// Walk goes where no search gets: random steps until there are enough of them, in episodes that each begin anew and end with
// all faults over, after which the cluster must converge. The same seed takes the same steps.
func (m *Model) Walk(seed uint64, steps int) (episodes int, broken *Breach) {
	m.prepare()
	r := rand.New(rand.NewPCG(seed, 2))
	for steps > 0 {
		episodes++
		n, b := m.episode(r, min(steps, 20+r.IntN(150)))
		if b != nil {
			return episodes, b
		}
		steps -= n
	}
	return episodes, nil
}

func (m *Model) episode(r *rand.Rand, steps int) (int, *Breach) {
	s := m.first()
	var path []action
	for i := range steps {
		a := choose(r, m.possible(&s, nil))
		path = append(path, a)
		if broken := m.do(&s, a); len(broken) > 0 {
			return i, &Breach{Rules: broken, Path: path}
		}
		canonical(&s)
	}
	broken := m.recover(&s)
	if len(broken) == 0 && !m.converged(&s) && !m.bereft(&s) {
		_, v := m.rest(&s)
		broken = []string{fmt.Sprintf("liveness: nothing fails any more, and the cluster stays in %s", v.rule)}
	}
	if len(broken) > 0 {
		return steps, &Breach{Rules: broken, Path: path}
	}
	return steps, nil
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
func (m *Model) recover(s *state) (broken []string) {
	if s.flight.phase != none {
		broken = m.goOn(s)
	}
	for _, kind := range caches {
		s.thaw(kind)
	}
	s.down, s.nospace, s.unreachable, s.isolated, s.stuck = false, false, 0, 0, 0
	for n := range s.lost.all {
		m.reboot(s, n)
	}
	canonical(s)
	return append(broken, m.settle(s)...)
}
