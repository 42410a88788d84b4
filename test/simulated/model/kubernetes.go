package model

import (
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/simulated/membership"
	"github.com/quorate-dev/quorate/test/simulated/metacontroller"
)

// take has some kinds as another view has them.
func (v *view) take(kinds uint8, of *view) {
	if kinds&podCache != 0 {
		v.pods = of.pods
	}
	if kinds&claimCache != 0 {
		v.claims = of.claims
	}
	if kinds&recordCache != 0 {
		v.record = of.record
	}
	if kinds&parentCache != 0 {
		v.parent = of.parent
	}
}

// shown is what the caches show: frozen ones an old state, the others what is.
func (s *worldState) shown() view {
	v := s.live
	v.take(s.frozen, &s.seen)
	return v
}

func (s *worldState) freeze(kind uint8) {
	s.frozen |= kind
	s.seen.take(kind, &s.live)
}

func (s *worldState) thaw(kind uint8) {
	s.frozen &^= kind
	s.seen.take(kind, &view{})
	s.unseen = s.unseen && kind != podCache
}

// revise gives whatever of these pods and of the record has changed another revision.
func (s *worldState) revise(pods [maxMembers]pod, r record) {
	for n := range pods {
		if p := &s.live.pods[n]; *p != pods[n] && p.uid == pods[n].uid {
			p.rev++
		}
	}
	if s.live.record != r {
		s.live.record.rev++
	}
}

// ---- a call of the hooks

// cut is where a call is cut off, and whether what it deletes is judged by what was known when it was decided.
type cut struct {
	metacontroller.Cut[object]
	pardoned bool
}

// Where calls are cut off, as numbers.
const (
	nowhere uint8 = iota
	beforeStep
	afterStep
	beforeObject
	beforeStatus
)

var points = [...]metacontroller.Point{beforeStep: metacontroller.BeforeStep, afterStep: metacontroller.AfterStep,
	beforeObject: metacontroller.BeforeObject, beforeStatus: metacontroller.BeforeStatus}

// object of the API server that an answer deletes or writes.
type object struct {
	kind   uint8
	number uint8
}

const (
	aPod uint8 = iota
	aClaim
	aRecord
)

// look observes and decides.
func (m *model) look(s *worldState, v *view) *verdict { return m.judge.on(s.observe(v)) }

// act carries the step out, unless there is none, and decides on the answer.
func (m *model) act(s *worldState, v *view, first *verdict, on memberList, how manner) (*verdict, []string) {
	if first.step.kind == noStep {
		return first, first.broken
	}
	t := m.mutated(first.step)
	done, broken := m.carryOut(s, t, on, v, how)
	o := s.observe(v)
	o.done, o.failed = first.step, !done
	then := m.judge.on(o)
	return then, concat(first.broken, broken, then.broken)
}

// mutated is the step, or what a mutant makes of it.
func (m *model) mutated(t step) step {
	if t.kind == addLearner && m.AddsVoters {
		t.kind = addVoter
	}
	return t
}

// sync is a whole call, applied.
func (m *model) sync(s *worldState, c cut) []string {
	v := s.shown()
	first := m.look(s, &v)
	if first.step.kind != noStep && c.At == metacontroller.BeforeStep {
		return first.broken
	}
	then, broken := m.act(s, &v, first, s.list(), manner{})
	if c.At == metacontroller.AfterStep {
		return broken
	}
	return concat(broken, m.apply(s, &v, &then.answer, c))
}

// twoSyncs are two calls that look at the same moment and both carry their step out.
func (m *model) twoSyncs(s *worldState) []string {
	v := s.shown()
	on := s.list()
	first := m.look(s, &v)
	second, broken := m.act(s, &v, first, on, manner{racing: true})
	late, more := m.act(s, &v, first, on, manner{racing: true})
	broken = concat(broken, more, m.apply(s, &v, &second.answer, cut{}))
	return concat(broken, m.apply(s, &v, &late.answer, cut{}))
}

// apply is what Metacontroller does with an answer to what it has shown.
func (m *model) apply(s *worldState, v *view, a *reply, c cut) (broken []string) {
	before := s.steady()
	c.Apply(
		func() bool {
			return c.Delete(a.deletes(v), func(o object) { broken = append(broken, m.delete(s, v, o)...) })
		},
		func() bool { return m.write(s, v, a, c) },
		func() { s.live.parent.status = a.status })
	return append(broken, m.stopped(s, v, before, c)...)
}

// stopped says what is wrong with the voters that an answer has stopped, or will stop by another image.
func (m *model) stopped(s *worldState, v *view, before set, c cut) (broken []string) {
	// A call that has not seen the first quorum recorded may replace a pod that has meanwhile started (rule
	// Reschedule).
	if !v.record.quorate || c.pardoned || s.unseen || v.parent.replicas == 0 && !m.SelfHosted {
		return nil
	}
	after, q := s.steady(), membership.Quorum(s.Voters.Size())
	gone := before &^ after
	if before.Size() >= q && after.Size() < q {
		broken = append(broken, "S1: stopping members takes the quorum away")
	}
	// One that the hooks don't reach may be thought dead.
	if gone&^s.unreachable != 0 && (s.Voters&^after).Size() > 1 {
		broken = append(broken, "S2: "+namesOf(gone)+" is stopped, and another voter is down")
	}
	return broken
}

// delete is a deletion by UID.
func (m *model) delete(s *worldState, v *view, o object) (broken []string) {
	n := int(o.number)
	switch {
	case o.kind == aPod:
		if s.live.pods[n].uid == v.pods[n].uid {
			m.deletePod(s, n)
		}
	case s.live.claims[n].uid == v.claims[n].uid:
		if s.Members().Has(n) {
			broken = []string{"S7: the claim " + name(n) + " is deleted, whose member is in the cluster"}
		}
		m.deleteClaim(s, n)
	}
	return broken
}

// deletes are the objects that the answer omits.
func (a *reply) deletes(v *view) (list []object) {
	for n := range maxMembers {
		if a.deletesPod(v, n) {
			list = append(list, object{aPod, uint8(n)})
		}
	}
	for n := range maxMembers {
		if a.deletesClaim(v, n) {
			list = append(list, object{aClaim, uint8(n)})
		}
	}
	return list
}

// writes are the objects that the answer creates or updates.
func (a *reply) writes() (list []object) {
	for n := range maxMembers {
		if a.podDo[n] > keep {
			list = append(list, object{aPod, uint8(n)})
		}
	}
	for n := range maxMembers {
		if a.claims[n] == create {
			list = append(list, object{aClaim, uint8(n)})
		}
	}
	if a.write {
		list = append(list, object{aRecord, 0})
	}
	return list
}

func (a *reply) deletesPod(v *view, n int) bool {
	return v.pods[n].uid != 0 && v.pods[n].deleting == stays && a.podDo[n] == omit
}

func (a *reply) deletesClaim(v *view, n int) bool {
	return v.claims[n].uid != 0 && !v.claims[n].deleting && a.claims[n] == omit
}

// steady are the voters that serve, and will go on serving: their pods are neither deleted nor given another image.
// Those that a person has rescued need no pod.
func (s *worldState) steady() set {
	var all set
	for n := range s.Component().All {
		p := &s.live.pods[n]
		if p.deleting == stays && s.proc[n] == p.version || !s.prepared.Has(n) {
			all = all.With(n)
		}
	}
	return all
}

// write creates and updates; false when it was cut off.
func (m *model) write(s *worldState, v *view, a *reply, c cut) (whole bool) {
	whole = c.Write(a.writes(), func(o object) bool {
		switch n := int(o.number); o.kind {
		case aPod:
			m.writePod(s, v, a, n)
		case aClaim:
			if s.live.claims[n].uid == 0 {
				s.live.claims[n] = claim{uid: s.freshClaim(n)}
			}
		case aRecord:
			if s.live.record == v.record { // not there, or at the version that was seen
				s.live.record = a.record
				s.live.record.rev = v.record.rev // the next one is given at the end
			}
		}
		return true
	})
	if whole && a.budget != (budget{}) {
		s.budget = a.budget
	}
	return whole
}

func (m *model) writePod(s *worldState, v *view, a *reply, n int) {
	p := &s.live.pods[n]
	switch {
	case a.podDo[n] == create && p.uid == 0:
		fresh := m.freshPod(s, n)
		*p = a.pods[n]
		p.uid = fresh
	case a.podDo[n] == create, *p != v.pods[n], p.deleting != stays: // exists, has changed, is not updated any more
	default:
		p.gated = p.gated && a.podDo[n]&release == 0
		if a.podDo[n]&forget != 0 {
			p.told = 0
		}
		if a.podDo[n]&admit != 0 {
			p.waits, p.told = false, a.pods[n].told
		}
		if a.podDo[n]&newImage != 0 {
			p.version, p.exchanged = a.pods[n].version, p.exchanged || p.ran()
		}
		switch {
		case a.podDo[n]&withdraw != 0:
			p.withdrawn = justWithdrawn
		case a.podDo[n]&unwithdraw != 0:
			p.withdrawn = notWithdrawn
		}
	}
}

// freshPod is a UID that no pod of this name has anywhere.
func (m *model) freshPod(s *worldState, n int) uint8 {
	uid := max(s.live.pods[n].uid, s.seen.pods[n].uid, s.flight.view.pods[n].uid)
	for _, r := range s.records() {
		if int(r.choice.member) == n+1 {
			uid = max(uid, r.choice.pod)
		}
	}
	if m.Medium == v1beta1.Memory {
		uid = max(uid, s.recorded(n))
	}
	return uid + 1
}

func (s *worldState) freshClaim(n int) uint8 {
	return 1 + max(s.live.claims[n].uid, s.seen.claims[n].uid, s.flight.view.claims[n].uid, s.recorded(n))
}

// recorded is the highest UID that any copy of the record holds for the member.
func (s *worldState) recorded(n int) uint8 {
	return max(s.live.record.startsOn[n], s.seen.record.startsOn[n], s.flight.view.record.startsOn[n],
		s.flight.answer.record.startsOn[n])
}

func (m *model) deletePod(s *worldState, n int) {
	switch p := &s.live.pods[n]; {
	case p.deleting != stays:
	case p.bound:
		p.deleting = leaving
	default:
		m.dropPod(s, n)
	}
}

// spared are the members whose pods may be evicted, as the API server reckons.
func (s *worldState) spared() set {
	var there, ready set
	for n := range maxMembers {
		if p := &s.live.pods[n]; p.uid != 0 && p.deleting == stays {
			there = there.With(n)
			if p.bound && (s.Following() & s.Voters).Has(n) {
				ready = ready.With(n)
			}
		}
	}
	least := int(s.budget.least)
	switch {
	case ready.Size() > least:
		return there
	case ready.Size() == least || s.budget.unready:
		return there &^ ready
	}
	return 0
}

// evict deletes a pod, as who drains a node does. A container that is just given another image is back in seconds: an
// eviction at that moment is a pause, and no loss.
func (m *model) evict(s *worldState, n int) (broken []string) {
	lasts := func() bool {
		stay := 0
		for n := range s.Component().All {
			if s.live.pods[n].deleting == stays {
				stay++
			}
		}
		return stay >= membership.Quorum(s.Voters.Size())
	}
	lasting, bereft := lasts(), m.bereft(s)
	m.deletePod(s, n)
	if lasting && !lasts() {
		broken = append(broken, "S1: the eviction of "+name(n)+" takes the quorum away")
	}
	if !bereft && m.bereft(s) {
		broken = append(broken, "S1: the eviction of "+name(n)+" takes the data of a majority away")
	}
	return broken
}

func (m *model) dropPod(s *worldState, n int) {
	s.live.pods[n] = pod{}
	s.stop(n)
	s.marked, s.prepared = s.marked.Without(n), s.prepared.Without(n)
	if m.Medium == v1beta1.Memory {
		s.data[n] = nothing
	}
}

func (m *model) deleteClaim(s *worldState, n int) {
	switch {
	case s.live.claims[n].deleting:
	case s.live.pods[n].bound:
		s.live.claims[n].deleting = true
	default:
		s.dropClaim(n)
	}
}

func (s *worldState) dropClaim(n int) {
	s.live.claims[n] = claim{}
	s.data[n] = nothing
}

// collect takes claims away that are being deleted and that no pod uses.
func (s *worldState) collect() {
	for n := range maxMembers {
		if s.live.claims[n].deleting && !s.live.pods[n].bound {
			s.dropClaim(n)
		}
	}
}

// concat joins lists of broken rules, which are nearly always empty.
func concat(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}
