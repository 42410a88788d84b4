package membership

import (
	"fmt"

	"github.com/quorate-dev/quorate/etcdops"
)

// Server is the member that is asked to change the members, with what it sees of the others. Its answers are the
// cluster that comes of the change, or etcd's refusal, of which the cluster stays as it is.
type Server struct {
	Cluster
	// Connected: it is connected to them. Settled: for at least five seconds, and to itself always. (ActiveSince in
	// etcdserver/api/rafthttp/transport.go, numConnectedSince in etcdserver/util.go.)
	Connected, Settled Set
	// Lax: without strict-reconfig-check.
	Lax bool
	Rules
}

// Server is the leader.
func (c Cluster) Server() Server {
	following := c.Following()
	return Server{Cluster: c, Connected: following, Settled: following&^c.Young | c.LeaderSet()}
}

// Rules are what differs between releases. The zero value is that of 3.5.30, 3.6.11, 3.7.0 and later.
type Rules struct {
	// EveryVoter: a member is added only while all voters are settled, and not a quorum of them and the new one. So
	// it was before 3.5.30 and 3.6.11 (isConnectedFullySince, later isConnectedToQuorumAfterAddingNewMemberSince, in
	// etcdserver/util.go).
	EveryVoter bool
}

// Of are the rules of a release such as 3.6.16.
func Of(version string) Rules {
	var minor, patch int
	if _, err := fmt.Sscanf(version, "3.%d.%d", &minor, &patch); err != nil {
		return Rules{}
	}
	return Rules{EveryVoter: minor == 5 && patch < 30 || minor == 6 && patch < 11}
}

// AddLearner adds a member that does not vote yet, at a peer URL that only n has. (mayAddMember in
// etcdserver/server.go, ValidateConfigurationChange in etcdserver/api/membership/cluster.go.)
func (s Server) AddLearner(n int) (Cluster, error) {
	c := s.Cluster
	switch {
	case !s.mayGrow():
		return c, etcdops.ErrUnhealthy
	case c.Members().Has(n):
		return c, etcdops.ErrPeerURLExists
	case c.Learners != 0:
		return c, etcdops.ErrTooManyLearners
	}
	c.Learners = c.Learners.With(n)
	return c, nil
}

// AddVoter adds a member that votes at once. Quorate never does it (S4); the model shows why.
// (IsReadyToAddVotingMember in etcdserver/api/membership/cluster.go.)
func (s Server) AddVoter(n int) (Cluster, error) {
	c := s.Cluster
	started, alone := (c.Voters & c.Started).Size(), c.Voters.Size() == 1
	switch {
	case !s.Lax && started < Quorum(c.Voters.Size()+1) && (started != 1 || !alone):
		return c, etcdops.ErrNotEnoughStarted
	case !s.mayGrow():
		return c, etcdops.ErrUnhealthy
	case c.Members().Has(n):
		return c, etcdops.ErrPeerURLExists
	}
	c.Voters = c.Voters.With(n)
	return c, nil
}

// mayGrow is whether enough voters are settled for one more member.
func (s Server) mayGrow() bool {
	voters, settled := s.Voters.Size(), (s.Voters & s.Settled).Size()
	if s.EveryVoter {
		return s.Lax || settled == voters
	}
	return s.Lax || voters <= 1 || settled >= Quorum(voters+1)
}

// Promote makes a voter of a learner; one that has died since it caught up passes (rule S5). That it is a learner is
// looked at last, so that a voter which is behind is "not ready" too. (mayPromoteMember, isLearnerReady,
// IsReadyToPromoteMember; ValidateConfigurationChange.)
func (s Server) Promote(n int) (Cluster, error) {
	c := s.Cluster
	started := (c.Voters & c.Started).Size() + 1
	switch {
	case !c.Members().Has(n):
		return c, etcdops.ErrMemberGone
	case !c.InSync.Has(n):
		return c, etcdops.ErrLearnerNotReady
	case !s.Lax && started < Quorum(c.Voters.Size()+1):
		return c, etcdops.ErrNotEnoughStarted
	case !c.Learners.Has(n):
		return c, etcdops.ErrNotLearner
	}
	c.Learners, c.Voters = c.Learners.Without(n), c.Voters.With(n)
	return c, nil
}

// Remove removes a member for good. (mayRemoveMember, IsReadyToRemoveVotingMember.)
func (s Server) Remove(n int) (Cluster, error) {
	c := s.Cluster
	others := c.Voters.Without(n)
	strict := !s.Lax && c.Voters.Has(n)
	switch {
	case !c.Members().Has(n):
		return c, etcdops.ErrMemberGone
	case strict && (c.Started&others).Size() < Quorum(others.Size()):
		return c, etcdops.ErrNotEnoughStarted
	case strict && s.Connected.Has(n) && (c.Voters&s.Settled).Size()-1 < Quorum(others.Size()):
		return c, etcdops.ErrUnhealthy
	}
	c.Voters, c.Learners, c.Started = others, c.Learners.Without(n), c.Started.Without(n)
	c.Removed = c.Removed.With(n)
	return c, nil
}

// UpdatePeerURL is whether member n may be listed with a peer URL that only at has, which is n if no other one does.
// There are no guards. (UpdateMember; ValidateConfigurationChange.)
func (s Server) UpdatePeerURL(n, at int) error {
	switch {
	case !s.Members().Has(n):
		return etcdops.ErrMemberGone
	case at != n && s.Members().Has(at):
		return etcdops.ErrPeerURLExists
	}
	return nil
}

// MoveLeader is whether the leader, which is asked, hands over to member n. (MoveLeader in etcdserver/server.go.)
func (s Server) MoveLeader(n int) error {
	switch {
	case !s.Voters.Has(n):
		return etcdops.ErrBadTransferee
	case !s.Connected.Has(n):
		return etcdops.ErrNoAnswer
	}
	return nil
}
