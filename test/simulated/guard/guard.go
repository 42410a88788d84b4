// Package guard says what etcd itself lets through when its members are to change: the checks of
// strict-reconfig-check and of learners, as in 3.5.30, 3.6.11, 3.7.0 and later; Rules has what was otherwise before.
// The stories' world and the exhaustive model both ask it, and test/real/conformance asks real servers the same and
// compares. The errors are those of package etcdops.
package guard

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/etcdops"
)

// Member is what the guards look at of one member.
type Member struct {
	Learner bool
	// Started: it has published its name and client URLs.
	Started bool
	// Connected: it runs, and hears the member that is asked. Settled: for at least five seconds (HealthInterval).
	Connected, Settled bool
	// InSync: the leader has sent it 90 % of its log or more. It need not live for that. A new leader has sent
	// nothing to anybody yet, so that a member which died before is not in sync with it.
	InSync bool
	// Asked: it is the member that answers. It is always connected to itself.
	Asked bool
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

// AddLearner is Rules.AddLearner of today's releases.
func AddLearner(all []Member, taken bool) error { return Rules{}.AddLearner(all, taken) }

// AddVoter is Rules.AddVoter of today's releases.
func AddVoter(all []Member, taken bool) error { return Rules{}.AddVoter(all, taken) }

// mayGrow is whether enough voters are settled for one more member.
func (r Rules) mayGrow(voters []Member) bool {
	if r.EveryVoter {
		return settled(voters) == len(voters)
	}
	return len(voters) <= 1 || settled(voters) >= quorum(len(voters)+1)
}

// AddLearner is whether a member may be added that does not vote yet. taken: a member has its peer URL.
// (mayAddMember in etcdserver/server.go, ValidateConfigurationChange in etcdserver/api/membership/cluster.go.)
func (r Rules) AddLearner(all []Member, taken bool) error {
	voters := votersOf(all)
	switch {
	case !r.mayGrow(voters):
		return etcdops.ErrUnhealthy
	case taken:
		return etcdops.ErrPeerURLExists
	case len(voters) < len(all):
		return etcdops.ErrTooManyLearners
	}
	return nil
}

// AddVoter is whether a member may be added that votes at once. Quorate never does it (S4); the model shows why.
// (IsReadyToAddVotingMember in etcdserver/api/membership/cluster.go.)
func (r Rules) AddVoter(all []Member, taken bool) error {
	voters := votersOf(all)
	started := count(voters, func(m Member) bool { return m.Started })
	switch {
	case (started != 1 || len(voters) != 1) && started < quorum(len(voters)+1):
		return etcdops.ErrNotEnoughStarted
	case !r.mayGrow(voters):
		return etcdops.ErrUnhealthy
	case taken:
		return etcdops.ErrPeerURLExists
	}
	return nil
}

// Promote is whether member i may become a voter; -1 is a member that is not listed. A learner that has died since it
// caught up passes (rule S5). That it is a learner is looked at last, so that a voter which is behind is "not ready"
// too. (mayPromoteMember, isLearnerReady, IsReadyToPromoteMember; ValidateConfigurationChange.)
func Promote(all []Member, i int) error {
	if i < 0 {
		return etcdops.ErrMemberGone
	}
	voters := votersOf(all)
	started := count(voters, func(m Member) bool { return m.Started }) + 1
	switch {
	case !all[i].InSync:
		return etcdops.ErrLearnerNotReady
	case started < quorum(len(voters)+1):
		return etcdops.ErrNotEnoughStarted
	case !all[i].Learner:
		return etcdops.ErrNotLearner
	}
	return nil
}

// Remove is whether member i may be removed. (mayRemoveMember, IsReadyToRemoveVotingMember.)
func Remove(all []Member, i int) error {
	if i < 0 {
		return etcdops.ErrMemberGone
	}
	if all[i].Learner {
		return nil
	}
	voters := votersOf(all)
	others := votersOf(slices.Delete(slices.Clone(all), i, i+1))
	switch {
	case len(others) == 0, count(others, func(m Member) bool { return m.Started }) < quorum(len(others)):
		return etcdops.ErrNotEnoughStarted
	case all[i].Connected && settled(voters)-1 < quorum(len(others)):
		return etcdops.ErrUnhealthy
	}
	return nil
}

// MoveLeader is whether the leader, which is asked, hands over to member i.
func MoveLeader(all []Member, i int) error {
	switch {
	case i < 0, all[i].Learner:
		return etcdops.ErrBadTransferee
	case !all[i].Connected:
		return etcdops.ErrNoAnswer
	}
	return nil
}

func votersOf(all []Member) []Member {
	return slices.DeleteFunc(slices.Clone(all), func(m Member) bool { return m.Learner })
}

func settled(voters []Member) int {
	return count(voters, func(m Member) bool { return m.Asked || m.Settled })
}

func count(list []Member, is func(Member) bool) int {
	n := 0
	for _, m := range list {
		if is(m) {
			n++
		}
	}
	return n
}

func quorum(n int) int { return n/2 + 1 }
