package model

// do lets the action happen.
func (m *model) do(s *worldState, a action) (broken []string) {
	if a.deed != timePasses {
		defer s.revise(s.live.pods, s.live.record)
	}
	return m.happen(s, a)
}

func (m *model) happen(s *worldState, a action) (broken []string) {
	m.pay(s, a.deed)
	n := int(a.n)
	switch a.deed {
	case callWhole:
		return m.sync(s, cut{})
	case callCut:
		return m.sync(s, a.cut())
	case callTwice:
		return m.twoSyncs(s)
	case callDecides:
		s.flight.view = s.shown()
		s.flight.disturbed = s.unseen
		s.flight.phase, s.flight.step, s.flight.list = deciding, m.look(s, &s.flight.view).step,
			s.list()
	case callAnswers:
		v := s.shown()
		then, broken := m.act(s, &v, m.look(s, &v), s.list(), manner{})
		s.flight = flight{phase: answered, view: v, answer: then.answer, disturbed: s.unseen}
		return broken
	case callGoesOn:
		return m.goOn(s)
	case podEvicted:
		return m.evict(s, n)
	case kubeletActs:
		return m.kubelet(s, n)
	case etcdTicks:
		m.tick(s)
	case learnerCatchesUp:
		s.catchUp(n)
	case claimsCollected:
		s.collect()
	case timePasses:
		s.later()
	case cacheThaws:
		s.thaw(a.x)
	case cacheFreezes:
		s.freeze(a.x)
	default:
		m.befall(s, a)
	}
	return nil
}

// goOn ends the call that is under way.
func (m *model) goOn(s *worldState) []string {
	f := s.flight
	if f.phase == answered {
		s.flight = flight{}
		return m.apply(s, &f.view, &f.answer, cut{pardoned: f.disturbed})
	}
	// The decision was judged when it was made; what is left is its step.
	then, broken := m.act(s, &f.view, &verdict{plain: plain{step: f.step}}, f.list, manner{pardoned: f.disturbed})
	s.flight = flight{}
	return concat(broken, m.apply(s, &f.view, &then.answer, cut{pardoned: f.disturbed}))
}

// befall lets a fault happen or end, or a person edit.
func (m *model) befall(s *worldState, a action) {
	n := int(a.n)
	switch a.deed {
	case podKilled:
		m.dropPod(s, n)
	case podDeleted:
		m.deletePod(s, n)
	case claimLost:
		m.dropPod(s, n)
		s.dropClaim(n)
	case claimDeleted:
		m.deleteClaim(s, n)
	case nodeLost:
		s.lost = s.lost.With(n)
		s.stop(n)
	case nodeBack:
		m.reboot(s, n)
	case podStuck, podTaken:
		s.stuck ^= one(n)
	case etcdOut, etcdBack:
		s.down = !s.down
	case memberUnreachable, memberReached:
		s.unreachable ^= one(n)
	case memberIsolated, memberJoined:
		s.Isolated ^= one(n)
	case leaderMoves:
		s.lead(n)
	case statusWiped:
		s.live.parent.status = clusterStatus{}
	case spaceOut, spaceFreed:
		s.nospace = !s.nospace
	case sizeEdited:
		s.live.parent.replicas = a.x
	case versionEdited:
		s.live.parent.version = a.x
	case templateEdited:
		s.live.parent.template = a.x
	case refusedEdited:
		s.live.parent.refused = refusal(a.x)
	case badTakenBack:
		m.takeBack(s, a)
	case memberRescued:
		s.rescue(n)
	}
}

// takeBack corrects what can't work, as a person would.
func (m *model) takeBack(s *worldState, a action) {
	switch a.x {
	case aPendingPod:
		m.deletePod(s, int(a.n))
	case aTemplate:
		s.live.parent.template = 0
	case aRefusal:
		s.live.parent.refused, s.live.parent.replicas = asksNothing, uint8(m.Replicas)
	case aVersion:
		s.live.parent.version = m.From
	case aDowngrade:
		s.live.parent.version = nextMinor
	}
}

// pay takes the action's price.
func (m *model) pay(s *worldState, d deed) {
	switch classes[d] {
	case fault:
		s.faults--
		if !harmless[d] {
			s.disturb()
		}
	case drain:
		s.evictions--
		s.disturb()
	case edit:
		s.edits--
	case hitch:
		s.hitches--
	}
}

// disturb says that hooks which know an older state can't know what has just happened.
func (s *worldState) disturb() {
	s.flight.disturbed = s.flight.disturbed || s.flight.phase != none
	s.unseen = s.unseen || s.frozen&podCache != 0
}
