// Package membership is what etcd's servers answer when their members change, start, elect a leader and agree on a
// version. It holds the rules as pure functions over one small value. The stories' world and the exhaustive model both
// run on it, and test/real/conformance asks real servers the same and compares. The errors that etcd's client gets are
// those of package etcdops.
//
// server.go has the checks of strict-reconfig-check and of learners, bootstrap.go how a member begins, version.go the
// cluster's version, and this file who follows a leader. Files of etcd are named as they are in its module server/v3.
package membership

import "math/bits"

// Set of members, by number. A member's number is whatever its cluster knows it by: its place in a list, or in its
// name.
type Set uint16

func (s Set) Has(n int) bool    { return s>>n&1 == 1 }
func (s Set) With(n int) Set    { return s | 1<<n }
func (s Set) Without(n int) Set { return s &^ (1 << n) }
func (s Set) Size() int         { return bits.OnesCount16(uint16(s)) }
func (s Set) Below(n int) Set   { return s & (1<<n - 1) }
func (s Set) Lowest() int       { return bits.TrailingZeros16(uint16(s)) }
func (s Set) Highest() int      { return bits.Len16(uint16(s)) - 1 }

// All ranges over the numbers, from the lowest on.
func (s Set) All(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(s.Lowest()) {
			return
		}
	}
}

// Cluster is what has been agreed on of the members, and how they stand: a plain value.
type Cluster struct {
	// Voters and Learners are the members, Started those that have published their names and client URLs, Removed
	// those that may never come back.
	Voters, Learners, Started, Removed Set
	// InSync are those to which the leader has sent 90 % of its log or more (isLearnerReady in etcdserver/server.go).
	// They need not live for that. A new leader has sent nothing yet.
	InSync Set
	// Running are those whose etcd runs, Isolated those that don't hear the others, and Young those that run since less
	// than five seconds (HealthInterval in etcdserver/server.go).
	Running, Isolated, Young Set
	// Leader is the number of the last one that was elected, plus 1; 0 for none.
	Leader uint8
	Version
}

// Members are all that are listed.
func (c Cluster) Members() Set { return c.Voters | c.Learners }

// Connected are those that run, and hear the others.
func (c Cluster) Connected() Set { return c.Running &^ c.Isolated }

// LeaderSet is the leader alone, or none.
func (c Cluster) LeaderSet() Set {
	if c.Leader == 0 {
		return 0
	}
	return Set(0).With(int(c.Leader) - 1)
}

// Component is the voters that hear each other; with one voter alone isolation does not matter.
func (c Cluster) Component() Set {
	if c.Voters.Size() == 1 {
		return c.Voters & c.Running
	}
	return c.Voters & c.Connected()
}

// HasQuorum reports whether a majority of the voters hear each other.
func (c Cluster) HasQuorum() bool { return c.Component().Size() >= Quorum(c.Voters.Size()) }

// Leads reports whether a majority hears the leader now.
func (c Cluster) Leads() bool { return c.HasQuorum() && c.Component()&c.LeaderSet() != 0 }

// Following are the members that follow the leader now.
func (c Cluster) Following() Set {
	if !c.Leads() {
		return 0
	}
	return c.Component() | c.Learners&c.Connected()
}

// Quorum is how many of n voters agree on something (quorum in etcdserver/util.go).
func Quorum(n int) int { return n/2 + 1 }
