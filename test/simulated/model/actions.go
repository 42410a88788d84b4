package model

import (
	"slices"

	"github.com/quorate-dev/quorate/test/simulated/metacontroller"
)

// action is one thing that may happen next: which, to which member, and with what.
type action struct {
	deed deed
	n, x uint8
}

type deed uint8

// What may happen. The order is that of the search, and so of preference among stories of equal length.
const (
	callWhole deed = iota
	callCut
	callTwice
	callDecides
	callAnswers
	callGoesOn

	kubeletActs
	etcdTicks
	learnerCatchesUp
	claimsCollected
	timePasses
	cacheThaws
	etcdBack
	memberReached
	memberJoined
	nodeBack
	podTaken
	spaceFreed
	badTakenBack
	memberRescued

	podKilled
	podDeleted
	claimLost
	claimDeleted
	nodeLost
	podStuck
	etcdOut
	memberUnreachable
	memberIsolated
	leaderMoves
	statusWiped
	spaceOut

	podEvicted

	cacheFreezes

	sizeEdited
	versionEdited
	templateEdited
	refusedEdited
)

// class says what an action costs, and whether it may happen when faults have stopped.
type class uint8

const (
	usual  class = iota
	mishap       // costs nothing, but is no part of a life without faults
	fault
	edit
	hitch
	drain
)

var classes = [refusedEdited + 1]class{
	callWhole: usual, callCut: mishap, callTwice: mishap, callDecides: hitch, callAnswers: hitch, callGoesOn: usual,
	podKilled: fault, podDeleted: fault, claimLost: fault, claimDeleted: fault, nodeLost: fault, podStuck: fault,
	etcdOut:           fault,
	memberUnreachable: fault, memberIsolated: fault, leaderMoves: fault, statusWiped: fault, spaceOut: fault,
	podEvicted: drain, cacheFreezes: hitch, sizeEdited: edit, versionEdited: edit, templateEdited: edit,
	refusedEdited: edit,
}

// harmless are the faults that take no member away: they excuse nothing that we do after them.
var harmless = [refusedEdited + 1]bool{etcdOut: true, memberUnreachable: true, leaderMoves: true, statusWiped: true,
	spaceOut: true}

// possible appends every action that would change something, or may.
func (m *model) possible(s *worldState, list []action) []action {
	if m.unserved(s) {
		return m.withoutAPIServer(s, list)
	}
	list = m.calls(s, list)
	list = m.life(s, list)
	if s.faults > 0 {
		list = m.only(m.trouble(s, list), len(list))
	}
	if s.evictions > 0 {
		list = each(s.spared(), podEvicted, list)
	}
	if s.edits > 0 {
		list = m.people(s, list)
	}
	if s.hitches > 0 {
		for _, kind := range caches {
			if s.frozen&kind == 0 {
				list = append(list, action{cacheFreezes, 0, kind})
			}
		}
	}
	return list
}

// only leaves out the faults, from this place of the list on, that this model knows nothing of.
func (m *model) only(list []action, from int) []action {
	if m.Just == nil {
		return list
	}
	return append(list[:from],
		slices.DeleteFunc(list[from:], func(a action) bool { return !slices.Contains(m.Just, a.deed) })...)
}

// calls are what the hooks and Metacontroller may do.
func (m *model) calls(s *worldState, list []action) []action {
	list = append(list, action{deed: callWhole})
	v := s.shown()
	first := m.look(s, &v)
	steps := first.step.kind != noStep
	if steps {
		list = append(list, action{deed: callCut, x: beforeStep}, action{deed: callCut, x: afterStep})
	}
	if steps || first.answer.changes(&v) {
		list = append(list, action{deed: callTwice})
	}
	if !steps {
		list = cuts(&v, &first.answer, false, list)
	} else {
		after := *s
		then, _ := m.act(&after, &v, first, s.list(), manner{})
		list = cuts(&v, &then.answer, true, list)
	}
	if s.flight.phase != none {
		return append(list, action{deed: callGoesOn})
	}
	if s.hitches > 0 {
		if steps {
			list = append(list, action{deed: callDecides})
		}
		if steps || first.answer.changes(&v) {
			list = append(list, action{deed: callAnswers})
		}
	}
	return list
}

// cuts are the places at which the applying of an answer may be cut off, in either order of the objects. Before the
// first object is as good as before the status, with nothing to write, or as after the step.
func cuts(v *view, a *reply, stepped bool, list []action) []action {
	deletes, writes := a.deletes(v), a.writes()
	for i, o := range slices.Concat(deletes, writes) {
		if i > 0 {
			list = append(list, action{callCut, o.number, beforeObject | o.kind<<4})
		}
	}
	slices.Reverse(deletes)
	slices.Reverse(writes)
	for i, o := range slices.Concat(deletes, writes) {
		if i > 0 {
			list = append(list, action{callCut, o.number, beforeObject | o.kind<<4 | backwards})
		}
	}
	if a.status != v.parent.status && (stepped || len(deletes)+len(writes) > 0) {
		list = append(list, action{deed: callCut, x: beforeStatus})
	}
	return list
}

// backwards is the bit of an action that is cut off in the opposite order.
const backwards = 1 << 7

func (a action) cut() cut {
	return cut{Cut: metacontroller.Cut[object]{At: points[a.x&15], Object: object{a.x >> 4 & 7, a.n},
		Backwards: a.x&backwards != 0}}
}

// life is what goes on by itself, and what faults leave when they end.
func (m *model) life(s *worldState, list []action) []action {
	p := &s.live.parent.status
	later := s.Young != 0 || p.old != p.voters|p.learners || s.live.record.choice.withdrawn == justWithdrawn
	for n := range maxMembers {
		p := &s.live.pods[n]
		if p.uid != 0 && (!s.Running.Has(n) || p.deleting != stays || p.status != runs || s.proc[n] != p.version ||
			!s.prepared.Has(n)) {
			list = append(list, action{kubeletActs, uint8(n), 0})
		}
		if s.live.claims[n].deleting && !p.bound {
			list = append(list, action{deed: claimsCollected})
		}
		later = later || p.deleting == leaving && s.lost.Has(n) || p.fresh || p.withdrawn == justWithdrawn
	}
	list = append(list, action{deed: etcdTicks})
	for n := range (s.Learners & s.Following()).All {
		if s.data[n] == behind {
			list = append(list, action{learnerCatchesUp, uint8(n), 0})
		}
	}
	if later && s.flight.phase != deciding && !s.outlived() { // no call takes that long to reach etcd
		list = append(list, action{deed: timePasses})
	}
	for _, kind := range caches {
		if s.frozen&kind != 0 {
			list = append(list, action{cacheThaws, 0, kind})
		}
	}
	if s.down {
		list = append(list, action{deed: etcdBack})
	}
	if s.nospace {
		list = append(list, action{deed: spaceFreed})
	}
	if s.live.parent.template == unplaced {
		list = append(list, action{badTakenBack, 0, aTemplate})
	}
	for n := range maxMembers {
		// While blind nothing else replaces it.
		if p := &s.live.pods[n]; p.uid != 0 && !p.bound && p.template == unplaced &&
			s.live.parent.template != unplaced {
			list = append(list, action{badTakenBack, uint8(n), aPendingPod})
		}
	}
	if m.SelfHosted && (s.live.parent.refused.invalid() || int(s.live.parent.replicas) < m.Replicas) {
		list = append(list, action{badTakenBack, 0, aRefusal})
	}
	if s.live.parent.version == unpullable {
		list = append(list, action{badTakenBack, 0, aVersion})
	}
	lacking := s.Voters.Size() < int(s.live.parent.replicas) || s.Learners != 0 || s.leavingClaims()&s.Voters != 0
	// agreed on while it was turned back, and now it can't be told
	strayed := s.Agreed > minorOf(s.live.parent.version) && !s.HasQuorum()
	if (s.Downgrade != 0 && lacking || strayed) && s.live.parent.version != nextMinor {
		list = append(list, action{badTakenBack, 0, aDowngrade})
	}
	for _, e := range []struct {
		who set
		end deed
	}{{s.unreachable, memberReached}, {s.Isolated, memberJoined}, {s.lost, nodeBack}, {s.stuck, podTaken}} {
		list = each(e.who, e.end, list)
	}
	return list
}

// outlived reports whether a call is under way that ends before anything relies on that.
func (s *worldState) outlived() bool {
	withdrawn := slices.ContainsFunc(s.live.pods[:], func(p pod) bool { return p.withdrawn == justWithdrawn })
	return s.flight.phase != none && (withdrawn || s.live.record.choice.withdrawn == justWithdrawn)
}

func each(who set, d deed, list []action) []action {
	for n := range who.All {
		list = append(list, action{d, uint8(n), 0})
	}
	return list
}

// trouble is what may go wrong.
func (m *model) trouble(s *worldState, list []action) []action {
	for n := range maxMembers {
		p, c := &s.live.pods[n], &s.live.claims[n]
		if p.uid != 0 {
			list = append(list, action{podKilled, uint8(n), 0})
			if p.deleting == stays {
				list = append(list, action{podDeleted, uint8(n), 0})
			}
			if p.bound && !s.lost.Has(n) {
				list = append(list, action{nodeLost, uint8(n), 0})
			}
			if !p.bound && !s.stuck.Has(n) {
				list = append(list, action{podStuck, uint8(n), 0})
			}
		}
		if c.uid != 0 {
			list = append(list, action{claimLost, uint8(n), 0})
			if !c.deleting {
				list = append(list, action{claimDeleted, uint8(n), 0})
			}
		}
	}
	if s.formed && !s.down {
		list = append(list, action{deed: etcdOut})
	}
	list = each(s.Running&^s.unreachable, memberUnreachable, list)
	if s.Members().Size() > 1 {
		list = each(s.Running&^s.Isolated, memberIsolated, list)
	}
	if s.Leads() {
		list = each(s.Component()&^s.LeaderSet(), leaderMoves, list)
		if !s.nospace {
			list = append(list, action{deed: spaceOut})
		}
	}
	if s.live.parent.status.hasID {
		list = append(list, action{deed: statusWiped})
	}
	return list
}

// people are those who edit.
func (m *model) people(s *worldState, list []action) []action {
	for _, size := range m.Sizes {
		if uint8(size) != s.live.parent.replicas {
			list = append(list, action{sizeEdited, 0, uint8(size)})
		}
	}
	if m.SelfHosted {
		for r := asksNothing + 1; r < allRefused; r++ {
			if r != s.live.parent.refused {
				list = append(list, action{refusedEdited, 0, uint8(r)})
			}
		}
	}
	for _, v := range m.Versions {
		if v != s.live.parent.version {
			list = append(list, action{versionEdited, 0, v})
		}
	}
	for _, t := range m.Templates {
		if t != s.live.parent.template {
			list = append(list, action{templateEdited, 0, t})
		}
	}
	return list
}

// What was wrong with a spec that is taken back.
const (
	aTemplate uint8 = iota
	aVersion
	aPendingPod
	aRefusal   // of what a self-hosted etcd must not do
	aDowngrade // in the middle of which a member was lost: no member can join, or one of the lower version can't start
)
