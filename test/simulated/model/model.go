package model

import (
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// model is a world to be searched: how it begins, and how much may go wrong.
type model struct {
	Medium   v1beta1.Medium
	Replicas int
	// Spares is how many learners stay.
	Spares int
	// Ready begins with a cluster that has converged, instead of one that has just been asked for.
	Ready bool
	// Faults, Edits and Hitches are how many of each may happen on one path. A fault takes or silences something, an
	// edit is a person's change of the spec, a hitch is a cache that lags or a call that overlaps with what else
	// happens. A call that is cut off needs no budget: it may always be.
	Faults, Edits, Hitches int
	// Evictions are how many pods may be evicted on one path, each when the PodDisruptionBudget lets it go.
	Evictions int
	// Sizes, Versions and Templates are what the spec may be edited to, From the version that it begins with.
	Sizes               []int
	Versions, Templates []uint8
	From                uint8
	// Just are the only faults that may happen; nil for all.
	Just []deed
	// Young lets etcd insist on connections of five seconds.
	Young bool
	// SelfHosted: the API server has its data in this etcd. While it does not serve no call comes, nothing is written
	// and no one edits. Edits include those that the API server refuses, as if it had not (selfhosted.go).
	SelfHosted bool

	// Workers search side by side; 0 is one for each processor. With one the same search finds the same way.
	Workers int

	// What follows makes a wrong model of it, to show that the search finds what is wrong.

	// Decide is hooks.Decide unless it is set.
	Decide func(observation.Observation) decision.Decision
	// Unverified leaves out what hooks.Verify says to each decision: what happens then has to show it.
	Unverified bool
	// AddsVoters makes voters of the members that the hooks add as learners.
	AddsVoters bool
	// Unproved promotes learners without a proof that they hear the leader.
	Unproved bool
	// Lax is etcd that lets every member be removed, as without strict-reconfig-check.
	Lax bool

	judge *judge
	// minors: members of different minor versions meet.
	minors bool
}

// prepare makes the model ready for use.
func (m *model) prepare() {
	if m.judge != nil {
		return
	}
	decide := m.Decide
	if decide == nil {
		decide = hooks.Decide
	}
	m.judge = newJudge(m.Medium, decide, !m.Unverified)
	m.judge.selfHosted, m.judge.evictions, m.judge.spares = m.SelfHosted, m.Evictions > 0, m.Spares
	for _, v := range m.Versions {
		m.minors = m.minors || minorOf(v) != minorOf(m.From)
	}
}

// first is the state in which everything begins.
func (m *model) first() worldState {
	m.prepare()
	var s worldState
	s.live.parent = parent{replicas: uint8(m.Replicas), version: m.From}
	if m.Ready {
		m.settle(&s)
	}
	s.faults, s.edits, s.hitches, s.evictions = uint8(m.Faults), uint8(m.Edits), uint8(m.Hitches), uint8(m.Evictions)
	canonical(&s)
	return s
}

// settle lets everything run without a fault until nothing moves any more; it returns the rules that were broken.
func (m *model) settle(s *worldState) (broken []string) {
	for range 500 {
		before := *s
		broken = append(broken, m.pass(s)...)
		if *s == before {
			return broken
		}
	}
	return append(broken, "S16: still busy")
}

// pass is one round in which each part moves once.
func (m *model) pass(s *worldState) (broken []string) {
	broken = m.sync(s, cut{})
	s.collect()
	for n := range maxMembers {
		broken = append(broken, m.kubelet(s, n)...)
	}
	s.later()
	m.tick(s)
	for n := range (s.Learners & s.Following()).All {
		s.catchUp(n)
	}
	canonical(s)
	return broken
}

// later lets time pass: grace periods end, connections grow old, and so does what the status knows.
func (s *worldState) later() {
	s.Young = 0
	s.age()
	for _, r := range s.records() {
		if r.choice.withdrawn == justWithdrawn {
			r.choice.withdrawn = longWithdrawn
		}
	}
	for _, v := range []*view{&s.live, &s.seen, &s.flight.view} {
		for n := range v.pods {
			if v.pods[n].deleting == leaving {
				v.pods[n].deleting = overdue
			}
			v.pods[n].fresh = false
			if v.pods[n].withdrawn == justWithdrawn {
				v.pods[n].withdrawn = longWithdrawn
			}
		}
	}
}

func (s *worldState) age() {
	for _, p := range []*clusterStatus{&s.live.parent.status, &s.seen.parent.status, &s.flight.view.parent.status,
		&s.flight.answer.status} {
		p.old = p.voters | p.learners
	}
}

// rest says how a state stands that nothing moves any more: whether a call changes nothing, and whether that is as
// the spec wants it.
func (m *model) rest(s *worldState) (quiet bool, v *verdict) {
	if s.frozen != 0 || s.flight.phase != none || s.down || s.nospace || s.lost|s.stuck|s.unreachable|s.Isolated != 0 {
		return false, nil
	}
	shown := s.shown()
	v = m.look(s, &shown)
	quiet = v.step.kind == noStep && !v.answer.changes(&shown) && v.answer.status == shown.parent.status
	return quiet, v
}

// changes reports whether the answer deletes or writes anything.
func (a *reply) changes(v *view) bool {
	for n := range maxMembers {
		if a.podDo[n] > keep || a.claims[n] == create || a.deletesPod(v, n) || a.deletesClaim(v, n) {
			return true
		}
	}
	return a.write
}

// converged reports whether the cluster is as the spec wants it, with nothing left over.
func (m *model) converged(s *worldState) bool {
	quiet, v := m.rest(s)
	if quiet && s.live.parent.replicas == 0 {
		return s.pods()&^s.leavingClaims() == 0
	}
	if m.SelfHosted && quiet && v.rule == "Suspended" { // with nothing half done
		return s.Learners == 0 && s.pods() == s.Voters
	}
	if !quiet || !v.settled {
		return false
	}
	refused := v.rule == "Upgrade" // and a person has to decide
	members := s.Voters | s.Learners
	for n := range members.All {
		p := &s.live.pods[n]
		if p.version != s.live.parent.version && !refused || p.template != s.live.parent.template ||
			s.proc[n] != p.version {
			return false
		}
	}
	tidy := s.Learners.Size() == m.Spares && s.Voters.Size() == int(s.live.parent.replicas) && s.pods() == members &&
		s.Following() == members
	return tidy && (m.Medium == v1beta1.Memory || s.claims() == members)
}

func (s *worldState) pods() set { return where(func(n int) bool { return s.live.pods[n].uid != 0 }) }

func (s *worldState) claims() set {
	return where(func(n int) bool { return s.live.claims[n].uid != 0 })
}

func (s *worldState) leavingClaims() set {
	return where(func(n int) bool { return s.live.claims[n].deleting })
}

// bereft reports whether faults have left less than a majority with data, after which no cluster may come back by
// itself. Before the first quorum is recorded, a member counts that may still begin; afterwards it is unknown, while
// blind, whether an empty volume was never used or was emptied (S10).
func (m *model) bereft(s *worldState) bool {
	voters := s.Voters
	if !s.formed {
		if !s.live.record.founded {
			return false
		}
		voters = s.live.record.initial
	}
	held, doomed := 0, s.doomed(m.Medium)
	for n := range voters.All {
		if s.data[n] != nothing && !doomed.Has(n) || !s.live.record.quorate && !s.born.Has(n) && m.onGround(s, n) {
			held++
		}
	}
	return held < membership.Quorum(voters.Size())
}

// doomed are the members whose data will be gone, whatever is done: in the memory of a node that is lost or of a
// pod that has been deleted, or on a claim that is being deleted and that no pod holds any more.
func (s *worldState) doomed(medium v1beta1.Medium) set {
	all := where(func(n int) bool {
		p := &s.live.pods[n]
		return medium == v1beta1.Memory && p.deleting != stays || s.live.claims[n].deleting && !p.bound
	})
	if medium == v1beta1.Memory {
		all |= s.lost
	}
	return all
}

// onGround reports whether what the member may start on is there.
func (m *model) onGround(s *worldState, n int) bool {
	uid := s.live.record.startsOn[n]
	if m.Medium == v1beta1.Memory {
		return uid != 0 && s.live.pods[n].uid == uid
	}
	return uid != 0 && s.live.claims[n].uid == uid
}
