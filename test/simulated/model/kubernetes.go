package model

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// shown is what the caches show: frozen ones an old state, the others what is.
func (s *state) shown() view {
	v := s.live
	if s.frozen&podCache != 0 {
		v.pods = s.seen.pods
	}
	if s.frozen&claimCache != 0 {
		v.claims = s.seen.claims
	}
	if s.frozen&recordCache != 0 {
		v.record = s.seen.record
	}
	if s.frozen&parentCache != 0 {
		v.parent = s.seen.parent
	}
	return v
}

func (s *state) freeze(kind uint8) {
	s.frozen |= kind
	switch kind {
	case podCache:
		s.seen.pods = s.live.pods
	case claimCache:
		s.seen.claims = s.live.claims
	case recordCache:
		s.seen.record = s.live.record
	case parentCache:
		s.seen.parent = s.live.parent
	}
}

func (s *state) thaw(kind uint8) {
	s.frozen &^= kind
	switch kind {
	case podCache:
		s.seen.pods, s.unseen = [maxMembers]pod{}, false
	case claimCache:
		s.seen.claims = [maxMembers]claim{}
	case recordCache:
		s.seen.record = record{}
	case parentCache:
		s.seen.parent = parent{}
	}
}

// revise gives whatever of these pods and of the record has changed another revision.
func (s *state) revise(pods [maxMembers]pod, r record) {
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
	at        uint8
	object    object
	backwards bool // in the opposite order
	pardoned  bool
}

const (
	nowhere uint8 = iota
	beforeStep
	afterStep
	beforeObject // in the middle of applying, before this one is deleted or written
	beforeStatus
)

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
func (m *Model) look(s *state, v *view) *verdict { return m.judge.on(s.observe(v)) }

// act carries the step out, unless there is none, and decides on the answer.
func (m *Model) act(s *state, v *view, first *verdict, on membership, how manner) (*verdict, []string) {
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
func (m *Model) mutated(t step) step {
	if t.kind == addLearner && m.AddsVoters {
		t.kind = addVoter
	}
	return t
}

// sync is a whole call, applied.
func (m *Model) sync(s *state, c cut) []string {
	v := s.shown()
	first := m.look(s, &v)
	if first.step.kind != noStep && c.at == beforeStep {
		return first.broken
	}
	then, broken := m.act(s, &v, first, membership{s.voters, s.learners}, manner{})
	if c.at == afterStep {
		return broken
	}
	return concat(broken, m.apply(s, &v, &then.answer, c))
}

// twoSyncs are two calls that look at the same moment and both carry their step out.
func (m *Model) twoSyncs(s *state) []string {
	v := s.shown()
	on := membership{s.voters, s.learners}
	first := m.look(s, &v)
	second, broken := m.act(s, &v, first, on, manner{racing: true})
	late, more := m.act(s, &v, first, on, manner{racing: true})
	broken = concat(broken, more, m.apply(s, &v, &second.answer, cut{}))
	return concat(broken, m.apply(s, &v, &late.answer, cut{}))
}

// apply is what Metacontroller does with an answer to what it has shown: deletions by UID, then creations and updates
// going on past errors, then the status.
func (m *Model) apply(s *state, v *view, a *answer, c cut) []string {
	before := s.steady()
	cutOff := false
	var broken []string
	if broken, cutOff = m.deleteOmitted(s, v, a, c); !cutOff {
		cutOff = m.write(s, v, a, c)
	}
	broken = concat(broken, m.stopped(s, v, before, c))
	if cutOff || c.at == beforeStatus {
		return broken
	}
	s.live.parent.status = a.status
	return broken
}

func (m *Model) deleteOmitted(s *state, v *view, a *answer, c cut) (broken []string, cutOff bool) {
	for _, o := range c.order(a.deletes(v)) {
		if c.at == beforeObject && c.object == o {
			return broken, true
		}
		broken = concat(broken, m.delete(s, v, o))
	}
	return broken, false
}

// stopped says what is wrong with the voters that an answer has stopped, or will stop by another image.
func (m *Model) stopped(s *state, v *view, before set, c cut) (broken []string) {
	// Who has not seen the first quorum recorded may make a pod anew that has meanwhile started (rule Reschedule).
	if !v.record.quorate || c.pardoned || s.unseen || v.parent.replicas == 0 {
		return nil
	}
	after, q := s.steady(), quorum(s.voters.size())
	gone := before &^ after
	if before.size() >= q && after.size() < q {
		broken = append(broken, "S1: stopping members takes the quorum away")
	}
	// One that the hooks don't reach may be thought dead.
	if gone&^s.unreachable != 0 && (s.voters&^after).size() > 1 {
		broken = append(broken, "S2: "+gone.names()+" is stopped, and another voter is down")
	}
	return broken
}

// delete is a deletion by UID.
func (m *Model) delete(s *state, v *view, o object) (broken []string) {
	n := int(o.number)
	switch {
	case o.kind == aPod:
		if s.live.pods[n].uid == v.pods[n].uid {
			m.deletePod(s, n)
		}
	case s.live.claims[n].uid == v.claims[n].uid:
		if s.members().has(n) {
			broken = []string{"S7: the claim " + name(n) + " is deleted, whose member is in the cluster"}
		}
		m.deleteClaim(s, n)
	}
	return broken
}

// order is that in which Metacontroller goes through the objects.
func (c cut) order(objects []object) []object {
	if c.backwards {
		slices.Reverse(objects)
	}
	return objects
}

// deletes are the objects that the answer omits.
func (a *answer) deletes(v *view) (list []object) {
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
func (a *answer) writes() (list []object) {
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

func (a *answer) deletesPod(v *view, n int) bool {
	return v.pods[n].uid != 0 && v.pods[n].deleting == stays && a.podDo[n] == omit
}

func (a *answer) deletesClaim(v *view, n int) bool {
	return v.claims[n].uid != 0 && !v.claims[n].deleting && a.claims[n] == omit
}

// steady are the voters that serve, and will go on serving: nobody has deleted their pods, or put another image into
// them.
func (s *state) steady() set {
	var all set
	for n := range s.component().all {
		if p := &s.live.pods[n]; p.deleting == stays && s.proc[n] == p.version {
			all = all.with(n)
		}
	}
	return all
}

// write creates and updates; true when it was cut off.
func (m *Model) write(s *state, v *view, a *answer, c cut) bool {
	for _, o := range c.order(a.writes()) {
		if c.at == beforeObject && c.object == o {
			return true
		}
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
	}
	return false
}

func (m *Model) writePod(s *state, v *view, a *answer, n int) {
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
func (m *Model) freshPod(s *state, n int) uint8 {
	uid := max(s.live.pods[n].uid, s.seen.pods[n].uid, s.flight.view.pods[n].uid)
	for _, r := range s.records() {
		if int(r.choice.member) == n+1 {
			uid = max(uid, r.choice.pod)
		}
	}
	if m.Medium == v1alpha1.Memory {
		uid = max(uid, s.recorded(n))
	}
	return uid + 1
}

func (s *state) freshClaim(n int) uint8 {
	return 1 + max(s.live.claims[n].uid, s.seen.claims[n].uid, s.flight.view.claims[n].uid, s.recorded(n))
}

// recorded is the highest UID that any copy of the record holds for the member.
func (s *state) recorded(n int) uint8 {
	return max(s.live.record.startsOn[n], s.seen.record.startsOn[n], s.flight.view.record.startsOn[n],
		s.flight.answer.record.startsOn[n])
}

func (m *Model) deletePod(s *state, n int) {
	switch p := &s.live.pods[n]; {
	case p.deleting != stays:
	case p.bound:
		p.deleting = leaving
	default:
		m.dropPod(s, n)
	}
}

func (m *Model) dropPod(s *state, n int) {
	s.live.pods[n] = pod{}
	s.stop(n)
	s.marked, s.prepared = s.marked.without(n), s.prepared.without(n)
	if m.Medium == v1alpha1.Memory {
		s.data[n] = nothing
	}
}

func (m *Model) deleteClaim(s *state, n int) {
	switch {
	case s.live.claims[n].deleting:
	case s.live.pods[n].bound:
		s.live.claims[n].deleting = true
	default:
		s.dropClaim(n)
	}
}

func (s *state) dropClaim(n int) {
	s.live.claims[n] = claim{}
	s.data[n] = nothing
}

// collect takes claims away that are being deleted and that no pod uses.
func (s *state) collect() {
	for n := range maxMembers {
		if s.live.claims[n].deleting && !s.live.pods[n].bound {
			s.dropClaim(n)
		}
	}
}

// ---- kubelets

// kubelet does what there is to do for the pod of a member.
func (m *Model) kubelet(s *state, n int) []string {
	p := &s.live.pods[n]
	switch {
	case p.uid == 0, s.lost.has(n) && p.bound:
		return nil
	case p.deleting != stays:
		m.dropPod(s, n)
		return nil
	case !p.bound && m.held(s, n):
		return nil
	}
	p.bound = true
	if s.running.has(n) && s.proc[n] == p.version {
		return nil
	}
	s.stop(n)
	status, broken := m.start(s, n, p)
	if status == runs || status == crashes && (p.status != crashes || p.exchanged) {
		p.exchanged, p.turn = false, s.freshTurn(n)
	}
	p.status, p.fresh = status, m.minors && status == runs
	return broken
}

// freshTurn is that of a container of which nobody knows yet.
func (s *state) freshTurn(n int) uint8 {
	turn := max(s.live.pods[n].turn, s.seen.pods[n].turn, s.flight.view.pods[n].turn)
	for _, r := range s.records() {
		if int(r.choice.member) == n+1 && r.choice.turn > 0 && r.choice.turn != unseenTurn {
			turn = max(turn, r.choice.turn-1)
		}
	}
	return turn + 1
}

// records are all copies of the record.
func (s *state) records() [4]*record {
	return [...]*record{&s.live.record, &s.seen.record, &s.flight.view.record, &s.flight.answer.record}
}

// held reports whether something keeps the pod from being given a node.
func (m *Model) held(s *state, n int) bool {
	noClaim := m.Medium == v1alpha1.Persistent && (s.live.claims[n].uid == 0 || s.live.claims[n].deleting)
	return noClaim || s.live.pods[n].gated || s.lost.has(n) || s.stuck.has(n) || s.live.pods[n].template == unplaced
}

// start runs prepare, then etcd, and says how the pod stands.
func (m *Model) start(s *state, n int, p *pod) (status uint8, broken []string) {
	if !s.prepared.has(n) {
		if s.data[n] == nothing && (p.start == resumes || s.marked.has(n)) {
			return again(p, refused, refusedAgain), nil
		}
		s.marked, s.prepared = s.marked.with(n), s.prepared.with(n)
	}
	switch {
	case p.version == unpullable:
		return again(p, unpulled, unpulledAgain), nil
	case p.oldFlags && minorOf(p.version) >= 7, !p.oldFlags && minorOf(p.version) < 6: // 3.6 knows both
		return crashes, nil
	}
	if s.data[n] == nothing {
		var ok bool
		if ok, broken = m.begin(s, n, p); !ok {
			return crashes, broken
		}
	}
	joining := s.data[n] == behind && s.lowered != 0 // nobody joins during a downgrade
	if s.removed.has(n) || joining || m.minors && s.tooOld(p.version) {
		return crashes, broken
	}
	s.running, s.proc[n] = s.running.with(n), p.version
	if m.minors && s.agreed != 0 && minorOf(p.version) > s.agreed+1 {
		broken = append(broken, fmt.Sprintf("S18: %s runs %s in a cluster that has agreed on 3.%d", name(n),
			versions[p.version], s.agreed))
	}
	if m.Young {
		s.young = s.young.with(n)
	}
	return runs, broken
}

// again is how the kubelet reports the same trouble of a pod in which etcd has run before.
func again(p *pod, first, later uint8) uint8 {
	if p.ran() {
		return later
	}
	return first
}

// reboot restarts the node under a pod: what was in memory is gone, and prepare runs again.
func (m *Model) reboot(s *state, n int) {
	s.lost = s.lost.without(n)
	if s.live.pods[n].uid == 0 {
		return
	}
	s.stop(n)
	s.prepared = s.prepared.without(n)
	if m.Medium == v1alpha1.Memory {
		s.data[n] = nothing
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
