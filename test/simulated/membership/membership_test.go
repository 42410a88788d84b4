package membership

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/etcdops"
)

func TestSet(t *testing.T) {
	s := Set(0).With(5).With(1).With(3).Without(5)
	assert.Equal(t, []int{1, 3}, slices.Collect(s.All))
	assert.Equal(t, []int{1, 3, 2, 1}, []int{s.Lowest(), s.Highest(), s.Size(), s.Below(3).Size()})
	assert.True(t, s.Has(3) && !s.Has(5))
}

func TestWhoFollowsALeader(t *testing.T) {
	three := Cluster{Voters: 0b0111, Learners: 0b1000, Running: 0b1011, Leader: 1}
	assert.Equal(t, Set(0b1011), three.Following())
	three.Isolated = 0b0001
	assert.Zero(t, three.Following(), "the leader hears no majority")
	assert.False(t, three.HasQuorum())
	alone := Cluster{Voters: 0b01, Running: 0b01, Isolated: 0b01, Leader: 1}
	assert.Equal(t, Set(0b01), alone.Following(), "a single voter is its own majority")
	alone.Leader = 0
	assert.True(t, alone.HasQuorum() && !alone.Leads())
	assert.False(t, Cluster{}.HasQuorum())
}

func TestMembersWithoutData(t *testing.T) {
	c := Cluster{Voters: 0b011, Learners: 0b100, Started: 0b001}
	assert.NoError(t, c.Bootstrap(0, 0b001), "no other member answers")
	assert.ErrorIs(t, c.Bootstrap(0, 0b010), ErrBootstrapped)
	assert.NoError(t, c.Bootstrap(1, 0b001))
	assert.NoError(t, c.Join(2, 0b111, 0b001))
	assert.ErrorIs(t, c.Join(2, 0b011, 0b001), ErrToldOthers)
	assert.ErrorIs(t, c.Join(2, 0b111, 0b100), ErrNoPeer)
	assert.ErrorIs(t, c.Join(3, 0b111, 0b001), ErrNoPeer, "it is not listed")
}

func TestVersions(t *testing.T) {
	v := Version{}.Decide(6, 7, true)
	assert.Equal(t, Version{Agreed: 6}, v)
	assert.Equal(t, v, v.Decide(7, 7, false), "one of them is not known")
	v = v.Decide(7, 7, true)
	assert.Error(t, v.Takes(6, false))
	_, err := v.EnableDowngrade(5)
	assert.ErrorIs(t, err, etcdops.ErrDowngradeTarget)

	v, err = v.EnableDowngrade(6)
	assert.NoError(t, err)
	assert.Error(t, v.Takes(6, false), "before the cluster has agreed on it")
	v = v.Decide(6, 7, true)
	assert.Equal(t, Version{Agreed: 6, Downgrade: 6}, v)
	assert.NoError(t, v.Takes(6, false))
	assert.NoError(t, v.Takes(7, false), "as it was")
	assert.Error(t, v.Takes(6, true))
	assert.Error(t, v.Takes(8, false))
	assert.Equal(t, Version{Agreed: 6}, v.Decide(6, 6, true))
}

func TestRefusalsThatNoGuardMakes(t *testing.T) {
	s := asked(settled, settled)
	assert.NoError(t, s.UpdatePeerURL(1, 1))
	assert.NoError(t, s.UpdatePeerURL(1, 2))
	assert.ErrorIs(t, s.UpdatePeerURL(1, 0), etcdops.ErrPeerURLExists)
	assert.ErrorIs(t, s.UpdatePeerURL(2, 2), etcdops.ErrMemberGone)
	s.Lax, s.Settled = true, 0
	_, err := s.AddVoter(2)
	assert.NoError(t, err)
	after, err := s.Remove(1)
	assert.NoError(t, err)
	assert.Equal(t, Cluster{Voters: 0b01, Started: 0b01, InSync: 0b11, Removed: 0b10}, after)
}
