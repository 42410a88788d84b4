package model

import (
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/simulated/membership"
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
func (m *model) carryOut(s *worldState, t step, on memberList, seen *view, how manner) (done bool, broken []string) {
	changed := on != s.list()
	after, err := m.ask(s, t)
	if !m.canAsk(s, t, on, seen) || changed && !how.racing || err != nil {
		return false, nil
	}
	n := int(t.member)
	if t.kind == promote && !m.Unproved && s.Learners.Has(n) && !s.hears(n, seen) {
		return false, nil
	}
	before, lasting := s.HasQuorum(), s.lasts()
	s.Cluster = after
	switch t.kind {
	case addLearner, addVoter:
		if n < int(s.used) {
			broken = append(broken, "S9: the name "+name(n)+" is used again")
		}
		s.used = max(s.used, t.member+1)
		if t.kind == addVoter {
			broken = append(broken, "S4: "+name(n)+" votes and has never been a learner")
		}
		if s.Learners.Size() > 1 {
			broken = append(broken, "S3: two learners at once")
		}
	case moveLeader:
		s.lead(n)
	}
	switch asked := t.as(m.judge.cluster(&s.live.parent)); {
	case how.pardoned:
	case before && !s.HasQuorum():
		broken = append(broken, "S1: "+asked.String()+" took the quorum away")
	case lasting && !s.lasts() && !s.unseen && s.live.parent.replicas > 0: // a pause stops all, as asked
		broken = append(broken, "S1: "+asked.String()+" leaves no quorum of voters that go on serving")
	}
	return true, broken
}

// lasts reports whether the voters that serve and will go on serving are a quorum.
func (s *worldState) lasts() bool { return s.steady().Size() >= membership.Quorum(s.Voters.Size()) }

// canAsk reports whether the hooks reach a member that may be asked for the step: one that follows a leader and is
// not the one that goes, and for some steps the leader alone.
func (m *model) canAsk(s *worldState, t step, on memberList, seen *view) bool {
	o := s.observe(seen)
	able := o.following & on.voters
	switch t.kind {
	case remove:
		able = able.Without(int(t.member))
	case promote, moveLeader:
		able &= s.LeaderSet()
	}
	return able != 0
}

// hears reports whether what the leader writes now arrives at the learner, and the hooks see it there: etcdops proves
// that before a promotion.
func (s *worldState) hears(n int, seen *view) bool {
	return s.LeaderSet()&s.Connected() != 0 && s.Connected().Has(n) && s.observe(seen).answering.Has(n)
}

// ask is what etcd answers, and makes of itself.
func (m *model) ask(s *worldState, t step) (after membership.Cluster, err error) {
	etcd, n := s.Server(), int(t.member)
	etcd.Lax = m.Lax
	switch t.kind {
	case addLearner:
		return etcd.AddLearner(n)
	case addVoter:
		return etcd.AddVoter(n)
	case promote:
		return etcd.Promote(n)
	case remove:
		return etcd.Remove(n)
	case moveLeader:
		err = etcd.MoveLeader(n)
	case enableDowngrade:
		etcd.Version, err = etcd.EnableDowngrade(t.member)
	case cancelDowngrade:
		etcd.Downgrade = 0
	}
	return etcd.Cluster, err
}

// lead makes n the leader, who knows of a learner's progress only what it sees itself.
func (s *worldState) lead(n int) {
	s.Leader = uint8(n) + 1
	s.InSync = 0
	s.sync()
}

// sync lets the leader find out which of the learners that it hears are up to date.
func (s *worldState) sync() {
	for l := range (s.Learners & s.Connected()).All {
		if s.data[l] == whole {
			s.InSync = s.InSync.With(l)
		}
	}
}

// tick lets etcd move: removed members stop, a leader is elected, and who follows one publishes itself.
func (m *model) tick(s *worldState) {
	if s.Leads() {
		for n := range (s.Removed & s.Connected()).All {
			s.stop(n)
		}
	}
	if s.HasQuorum() && !s.Leads() {
		s.lead(s.Component().Lowest())
	}
	if s.Leads() {
		s.sync()
	}
	s.Started |= s.Following()
	if m.minors && s.Leads() {
		s.agree()
	}
}

// agree lets the leader set the version that the cluster as a whole has.
func (s *worldState) agree() {
	lowest, highest := uint8(99), uint8(0)
	for n := range (s.Members() & s.Running).All {
		minor := minorOf(s.proc[n])
		lowest, highest = min(lowest, minor), max(highest, minor)
	}
	s.Version = s.Decide(lowest, highest, s.Members()&^s.Running == 0)
}

// catchUp brings a learner up to date with the leader.
func (s *worldState) catchUp(n int) {
	s.data[n] = whole
	s.InSync = s.InSync.With(n)
}

func (s *worldState) stop(n int) {
	s.Running, s.Young, s.proc[n] = s.Running.Without(n), s.Young.Without(n), 0
}

// begin is what etcd makes of an empty data directory: false when it ends with an error.
func (m *model) begin(s *worldState, n int, p *pod) (ok bool, broken []string) {
	switch p.start {
	case bootstraps:
		if ok = s.bootstrap(n); !ok {
			return false, nil
		}
	case joins:
		if s.Join(n, p.told, s.Connected()) != nil {
			return false, nil
		}
	default:
		return false, nil
	}
	if s.born.Has(n) {
		if !s.Voters.Has(n) {
			return false, nil // a learner that finds its log shorter than the leader remembers ends with a panic
		}
		if !m.madeLate(s, n) {
			broken = append(broken, "S10: "+name(n)+" begins with an empty directory, and has had data")
		}
	}
	s.born = s.born.With(n)
	s.data[n] = whole
	if p.start == joins {
		s.data[n] = behind
	}
	return true, broken
}

// madeLate reports whether the pod runs on another claim than the recorded one. That is a known bug, told in
// test/simulated/scenario/testdata/open/claim_made_late.txt: neither a pod nor a hook with an old view can tell.
func (m *model) madeLate(s *worldState, n int) bool {
	return m.Medium == v1beta1.Persistent && s.live.claims[n].uid != s.live.record.startsOn[n] && s.live.record.founded
}

// bootstrap is etcd's static bootstrap: all who are told the same list form the same cluster.
func (s *worldState) bootstrap(n int) bool {
	switch {
	case !s.live.record.exists || !s.live.record.initial.Has(n):
		return false
	case !s.formed:
		s.formed, s.Voters = true, s.live.record.initial
		s.used = max(s.used, uint8(s.Voters.Highest())+1)
		return true
	}
	return s.Bootstrap(n, s.Connected()) == nil
}
