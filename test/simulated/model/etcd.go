package model

import (
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/test/simulated/guard"
)

// manner is how a step reaches etcd, or an answer the API server.
type manner struct {
	// racing: two calls have read the member list at the same moment.
	racing bool
	// pardoned: a fault came after the decision, which is then judged by what was known.
	pardoned bool
}

// carryOut asks etcd for a step that was decided on this member list, as package etcdops does: it needs a member that
// can be asked among those that the hooks see, and unless two calls race, the list must still be the same. It returns
// whether etcd did it, and which rules of safety that broke.
func (m *Model) carryOut(s *state, t step, on membership, seen *view, how manner) (done bool, broken []string) {
	changed := on != membership{s.voters, s.learners}
	if !m.canAsk(s, t, on, seen) || changed && !how.racing || !m.allows(s, t) {
		return false, nil
	}
	n := int(t.member)
	if t.kind == promote && !m.Unproved && s.learners.has(n) && !s.hears(n, seen) {
		return false, nil
	}
	before, lasting := s.hasQuorum(), s.lasts()
	switch t.kind {
	case addLearner, addVoter:
		if n < int(s.used) {
			broken = append(broken, "S9: the name "+name(n)+" is used again")
		}
		s.used = max(s.used, t.member+1)
		s.learners = s.learners.with(n)
		if t.kind == addVoter {
			s.learners, s.voters = s.learners.without(n), s.voters.with(n)
			broken = append(broken, "S4: "+name(n)+" votes and has never been a learner")
		}
		if s.learners.size() > 1 {
			broken = append(broken, "S3: two learners at once")
		}
	case promote:
		s.learners, s.voters = s.learners.without(n), s.voters.with(n)
	case remove:
		s.voters, s.learners, s.published = s.voters.without(n), s.learners.without(n), s.published.without(n)
		s.removed = s.removed.with(n)
	case moveLeader:
		s.lead(n)
	case enableDowngrade:
		s.lowered = t.member
	case cancelDowngrade:
		s.lowered = 0
	}
	switch asked := t.as(m.judge.cluster(&s.live.parent)); {
	case how.pardoned:
	case before && !s.hasQuorum():
		broken = append(broken, "S1: "+asked.String()+" took the quorum away")
	case lasting && !s.lasts() && !s.unseen && s.live.parent.replicas > 0: // a pause stops everybody, as asked
		broken = append(broken, "S1: "+asked.String()+" leaves no quorum of voters that go on serving")
	}
	return true, broken
}

// lasts reports whether the voters that serve and will go on serving are a quorum.
func (s *state) lasts() bool { return s.steady().size() >= quorum(s.voters.size()) }

// canAsk reports whether the hooks reach a member that may be asked for the step: one that follows a leader and is
// not the one that goes, and for some steps the leader alone.
func (m *Model) canAsk(s *state, t step, on membership, seen *view) bool {
	o := s.observe(seen)
	able := o.following & on.voters
	switch t.kind {
	case remove:
		able = able.without(int(t.member))
	case promote, moveLeader:
		able &= s.leaderSet()
	}
	return able != 0
}

// hears reports whether what the leader writes now arrives at the learner, and the hooks see it there: etcdops proves
// that before a promotion.
func (s *state) hears(n int, seen *view) bool {
	return s.leaderSet()&s.connected() != 0 && s.connected().has(n) && s.observe(seen).answering.has(n)
}

// leaderSet is the leader, or nobody.
func (s *state) leaderSet() set {
	if s.leader == 0 {
		return 0
	}
	return one(int(s.leader) - 1)
}

// allows asks etcd's guards.
func (m *Model) allows(s *state, t step) bool {
	if m.Lax && t.kind == remove {
		return true
	}
	var all []guard.Member
	at := -1
	following := s.following()
	for n := range s.members().all {
		if n == int(t.member) {
			at = len(all)
		}
		all = append(all, guard.Member{
			Learner: s.learners.has(n), Started: s.published.has(n), Asked: s.leaderSet().has(n),
			Connected: following.has(n), Settled: following.has(n) && !s.young.has(n), InSync: s.synced.has(n),
		})
	}
	var err error
	switch t.kind {
	case addLearner:
		err = guard.AddLearner(all, at >= 0)
	case addVoter:
		err = guard.AddVoter(all, at >= 0)
	case promote:
		err = guard.Promote(all, at)
	case remove:
		err = guard.Remove(all, at)
	case moveLeader:
		err = guard.MoveLeader(all, at)
	case enableDowngrade:
		return s.lowered == t.member || s.lowered == 0 && s.agreed == t.member+1
	}
	return err == nil
}

// lead makes n the leader, who knows of a learner's progress only what it sees itself.
func (s *state) lead(n int) {
	s.leader = uint8(n) + 1
	s.synced = 0
	s.sync()
}

// sync lets the leader find out which of the learners that it hears are up to date.
func (s *state) sync() {
	for l := range (s.learners & s.connected()).all {
		if s.data[l] == whole {
			s.synced = s.synced.with(l)
		}
	}
}

// tick lets etcd move: removed members stop, a leader is elected, and who follows one publishes itself.
func (m *Model) tick(s *state) {
	if s.leads() {
		for n := range (s.removed & s.connected()).all {
			s.stop(n)
		}
	}
	if s.hasQuorum() && !s.leads() {
		s.lead(s.component().lowest())
	}
	if s.leads() {
		s.sync()
	}
	s.published |= s.following()
	if m.minors && s.leads() {
		s.agree()
	}
}

// agree lets the leader set the version that the cluster as a whole has: the lowest minor version of its members once
// it knows all of them, and down only when that was asked for.
func (s *state) agree() {
	lowest, all := uint8(99), s.members()&^s.running == 0
	for n := range (s.members() & s.running).all {
		lowest = min(lowest, minorOf(s.proc[n]))
	}
	switch {
	case s.lowered != 0:
		s.agreed = s.lowered
		if all && s.everybodyAt(s.lowered) {
			s.lowered = 0
		}
	case all:
		s.agreed = max(s.agreed, lowest)
	}
}

func (s *state) everybodyAt(minor uint8) bool {
	for n := range s.members().all {
		if minorOf(s.proc[n]) != minor {
			return false
		}
	}
	return true
}

// tooOld reports whether etcd of this version does not start in the cluster: it is older than what was agreed on, or
// not what a downgrade goes to. A member that has run before may start again as it was while the downgrade is under
// way.
func (s *state) tooOld(version uint8) bool {
	minor := minorOf(version)
	if s.lowered != 0 {
		return minor != s.lowered && (minor != s.lowered+1 || s.agreed != s.lowered)
	}
	return minor < s.agreed
}

// catchUp brings a learner up to date with the leader.
func (s *state) catchUp(n int) {
	s.data[n] = whole
	s.synced = s.synced.with(n)
}

func (s *state) stop(n int) {
	s.running, s.young, s.proc[n] = s.running.without(n), s.young.without(n), 0
}

// begin is what etcd makes of an empty data directory: false when it ends with an error.
func (m *Model) begin(s *state, n int, p *pod) (ok bool, broken []string) {
	switch p.start {
	case bootstraps:
		if ok = s.bootstrap(n); !ok {
			return false, nil
		}
	case joins:
		if !s.anyPeer(n) || !s.members().has(n) || p.told != s.members() {
			return false, nil
		}
	default:
		return false, nil
	}
	if s.born.has(n) {
		if !s.voters.has(n) {
			return false, nil // a learner that finds its log shorter than the leader remembers ends with a panic
		}
		if !m.madeLate(s, n) {
			broken = append(broken, "S10: "+name(n)+" begins with an empty directory, and has had data")
		}
	}
	s.born = s.born.with(n)
	s.data[n] = whole
	if p.start == joins {
		s.data[n] = behind
	}
	return true, broken
}

// madeLate reports whether the pod runs on another claim than the recorded one. That is a known bug, told in
// test/simulated/scenario/testdata/open/claim_made_late.txt: neither a pod nor a hook with an old view can tell.
func (m *Model) madeLate(s *state, n int) bool {
	return m.Medium == v1alpha1.Persistent && s.live.claims[n].uid != s.live.record.startsOn[n] && s.live.record.founded
}

// bootstrap is etcd's static bootstrap: all who are told the same list form the same cluster.
func (s *state) bootstrap(n int) bool {
	switch {
	case !s.live.record.exists || !s.live.record.initial.has(n):
		return false
	case !s.formed:
		s.formed, s.voters = true, s.live.record.initial
		s.used = max(s.used, uint8(s.voters.highest())+1)
		return true
	}
	already := s.published.has(n) && s.anyPeer(n) // "has already been bootstrapped"
	return !already
}

// anyPeer reports whether another member runs that can be asked.
func (s *state) anyPeer(n int) bool { return s.formed && s.members().without(n)&s.connected() != 0 }
