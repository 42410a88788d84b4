package model

import (
	"math/bits"
)

// canonical makes one state of all that differ in no more than how far the numbers of members lie apart, and in what
// the UIDs are: members keep their order, and objects who is who. It returns the old number of each new one.
func canonical(s *worldState) (old [maxMembers]uint8) {
	s.forget()
	r := s.relevant()
	s.renumber(r)
	s.renewUIDs()
	i := 0
	for n := range r.All {
		old[i] = uint8(n)
		i++
	}
	return old
}

// forget drops what can make no difference any more.
func (s *worldState) forget() {
	if s.hitches == 0 && s.flight.phase == none {
		s.age() // no call can be held any more: how old members are only delays
	}
	r := s.relevant()
	for _, facts := range []*set{&s.Running, &s.Young, &s.marked, &s.prepared, &s.Started, &s.InSync, &s.born,
		&s.Removed} {
		*facts &= r
	}
	s.InSync &= s.Learners
	if s.Leader > 0 && !s.Voters.Has(int(s.Leader)-1) {
		s.Leader = 0
	}
	for _, v := range []*view{&s.live, &s.seen, &s.flight.view} {
		v.record.initial &= r
		v.parent.status.keep(r)
	}
	s.flight.answer.record.initial &= r
	s.flight.answer.status.keep(r)
	s.forgetRevisions()
}

// forgetRevisions keeps of revisions no more than whether those that are shown are the current ones.
func (s *worldState) forgetRevisions() {
	for n := range maxMembers {
		live, seen, held := &s.live.pods[n], &s.seen.pods[n], &s.flight.view.pods[n]
		rank(&live.rev, &seen.rev, &held.rev, seen.uid != 0, held.uid != 0)
	}
	live, seen, held := &s.live.record, &s.seen.record, &s.flight.view.record
	rank(&live.rev, &seen.rev, &held.rev, seen.exists, held.exists)
}

// rank numbers revisions from 0, the latest last.
func rank(live, seen, held *uint8, shown, holds bool) {
	if *live|*seen|*held == 0 {
		return
	}
	old := [...]uint8{*live, *seen, *held}
	counts := [...]bool{true, shown, holds}
	for i, r := range []*uint8{live, seen, held} {
		*r = 0
		for j := range old {
			earlier := counts[i] && counts[j] && old[j] < old[i]
			for k := range j {
				earlier = earlier && (!counts[k] || old[k] != old[j]) // each once
			}
			if earlier {
				*r++
			}
		}
	}
}

func (p *clusterStatus) keep(r set) {
	p.voters, p.learners, p.old = p.voters&r, p.learners&r, p.old&r
}

func (p *clusterStatus) squeeze(r set) {
	p.voters, p.learners, p.old = squeezed(p.voters, r), squeezed(p.learners, r), squeezed(p.old, r)
}

// relevant are the numbers that something still refers to, and the highest one ever used, which no member may get
// again (S9).
func (s *worldState) relevant() set {
	r := s.Members() | s.lost | s.stuck | s.unreachable | s.Isolated
	if s.used > 0 {
		r = r.With(int(s.used) - 1)
	}
	r |= where(func(n int) bool { return s.data[n] != nothing })
	r |= s.live.relevant() | s.seen.relevant()
	if s.flight.phase != none {
		r |= s.flight.relevant()
	}
	return r
}

func (f *flight) relevant() set {
	r := f.view.relevant() | f.list.voters | f.list.learners | f.answer.record.relevant()
	if f.step.ofMember() {
		r = r.With(int(f.step.member))
	}
	for n := range maxMembers {
		if f.answer.podDo[n] == create || f.answer.podDo[n]&admit != 0 || f.answer.claims[n] == create {
			r = r.With(n) | f.answer.pods[n].told
		}
	}
	return r
}

func (v *view) relevant() set {
	r := v.record.relevant()
	for n := range maxMembers {
		if v.pods[n].uid != 0 || v.claims[n].uid != 0 {
			r = r.With(n) | v.pods[n].told
		}
	}
	return r
}

func (r *record) relevant() set {
	all := r.started() | r.dropped
	if r.exists && !r.quorate {
		all |= r.initial
	}
	if r.choice.member > 0 {
		all = all.With(int(r.choice.member) - 1)
	}
	return all
}

// renumber closes the gaps between the relevant numbers.
func (s *worldState) renumber(r set) {
	shift := func(n uint8) uint8 { return uint8(r.Below(int(n)).Size()) }
	s.live.renumber(r, shift)
	s.used = shift(s.used)
	if r&(r+1) == 0 {
		// There are no gaps; only the marks may lie too high.
		s.seen.record.next = shift(s.seen.record.next)
		s.flight.view.record.next = shift(s.flight.view.record.next)
		s.flight.answer.record.next = shift(s.flight.answer.record.next)
		return
	}
	s.seen.renumber(r, shift)
	s.flight.renumber(r, shift)
	squeeze(&s.data, r)
	squeeze(&s.proc, r)
	for _, facts := range []*set{
		&s.Running, &s.Young, &s.marked, &s.prepared, &s.lost, &s.stuck, &s.unreachable, &s.Isolated,
		&s.Voters, &s.Learners, &s.Started, &s.InSync, &s.born, &s.Removed,
	} {
		*facts = squeezed(*facts, r)
	}
	if s.Leader > 0 {
		s.Leader = shift(s.Leader-1) + 1
	}
}

func (f *flight) renumber(r set, shift func(uint8) uint8) {
	f.view.renumber(r, shift)
	if f.step.ofMember() {
		f.step.member = shift(f.step.member)
	}
	f.list.voters, f.list.learners = squeezed(f.list.voters, r), squeezed(f.list.learners, r)
	f.answer.record.renumber(r, shift)
	f.answer.status.squeeze(r)
	squeeze(&f.answer.pods, r)
	for n := range f.answer.pods {
		f.answer.pods[n].told = squeezed(f.answer.pods[n].told, r)
	}
	squeeze(&f.answer.podDo, r)
	squeeze(&f.answer.claims, r)
}

func (v *view) renumber(r set, shift func(uint8) uint8) {
	v.record.renumber(r, shift)
	if r&(r+1) == 0 {
		return
	}
	v.parent.status.squeeze(r)
	squeeze(&v.pods, r)
	squeeze(&v.claims, r)
	for n := range v.pods {
		v.pods[n].told = squeezed(v.pods[n].told, r)
	}
}

func (r *record) renumber(relevant set, shift func(uint8) uint8) {
	r.next = shift(r.next)
	r.initial = squeezed(r.initial, relevant)
	r.dropped = squeezed(r.dropped, relevant)
	squeeze(&r.startsOn, relevant)
	if r.choice.member > 0 {
		r.choice.member = shift(r.choice.member-1) + 1
	}
}

// squeezed is the set in new numbers.
func squeezed(s, r set) set {
	if s == 0 || r&(r+1) == 0 {
		return s
	}
	var t set
	for n := range (s & r).All {
		t = t.With(r.Below(n).Size())
	}
	return t
}

// squeeze moves what is kept by member to the new numbers.
func squeeze[T any](list *[maxMembers]T, r set) {
	if r&(r+1) == 0 {
		return
	}
	i := 0
	for n := range r.All {
		list[i] = list[n]
		i++
	}
	var zero T
	for ; i < maxMembers; i++ {
		list[i] = zero
	}
}

// renewUIDs numbers the UIDs of each name from 1, in the order in which they were made. What a member starts on is a
// pod or a claim; its UID is renamed with both, which share their numbers. So is the UID of a pod that the record
// chooses, and the turns of containers, which begin with 0.
func (s *worldState) renewUIDs() {
	views := [...]*view{&s.live, &s.seen, &s.flight.view}
	for n := range maxMembers {
		var uids, turns alike
		for _, v := range views {
			uids.add(&v.pods[n].uid)
			uids.add(&v.claims[n].uid)
			turns.add(&v.pods[n].turn)
		}
		for _, r := range s.records() {
			uids.add(&r.startsOn[n])
			if c := &r.choice; int(c.member) == n+1 && !c.removes {
				uids.add(&c.pod)
				turns.addAfter(&c.turn)
			}
		}
		uids.renew(1)
		turns.renew(0)
	}
}

// alike are numbers that are equal or not, and else mean nothing.
type alike struct {
	used  uint32
	list  [14]*uint8 // of which 0 is none, or the first
	n     int
	after [4]*uint8 // of which 0 is none, and 1 the first
	m     int
}

func (o *alike) add(number *uint8) {
	o.used |= 1 << *number
	o.list[o.n] = number
	o.n++
}

// addAfter adds a number that is counted from 1.
func (o *alike) addAfter(number *uint8) {
	if *number > 0 && *number != unseenTurn {
		o.used |= 1 << (*number - 1)
		o.after[o.m] = number
		o.m++
	}
}

// renew closes the gaps between the numbers, from this one on; smaller ones stay.
func (o *alike) renew(from uint8) {
	if used := o.used >> from; used&(used+1) == 0 {
		return
	}
	renewed := func(number uint8) uint8 {
		if number < from {
			return number
		}
		return uint8(bits.OnesCount32(o.used>>from&(1<<(number-from)-1))) + from
	}
	for _, number := range o.list[:o.n] {
		*number = renewed(*number)
	}
	for _, number := range o.after[:o.m] {
		*number = renewed(*number-1) + 1
	}
}
