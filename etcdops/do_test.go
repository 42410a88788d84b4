package etcdops

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// observed is the membership of three fakes, as a decision would have seen it.
func observed(t *testing.T, all []*fake) *observation.Membership {
	t.Helper()
	m, _ := new(Etcd).Observe(t.Context(), endpointsOf(all))
	require.NotNil(t, m)
	for _, f := range all {
		f.asked = nil
	}
	return m
}

func TestEachStepIsOneCallToTheLeader(t *testing.T) {
	tests := map[string]decision.Step{
		"MemberAdd [http://demo-3.demo-peers:2380] learner=true": decision.AddLearner{Name: "demo-3",
			PeerURL: peerURL(3)},
		"MemberRemove 3": decision.Remove{ID: 3, Name: "demo-2"},
		"MoveLeader 3":   decision.MoveLeader{To: 3, Name: "demo-2"},
	}
	for call, step := range tests {
		t.Run(step.String(), func(t *testing.T) {
			all := fakes(t, 3)
			require.NoError(t, new(Etcd).Do(t.Context(), step, observed(t, all), endpointsOf(all)))
			assert.Equal(t, []string{"MemberList", call}, all[0].calls())
			assert.Empty(t, all[1].calls())
			assert.Empty(t, all[2].calls())
		})
	}
}

func TestAStepOnAnotherMembershipIsRefused(t *testing.T) {
	tests := map[string]func(m *observation.Membership){
		"a member more":   func(m *observation.Membership) { m.Members = append(m.Members, observation.Member{ID: 4}) },
		"a member less":   func(m *observation.Membership) { m.Members = m.Members[:2] },
		"another member":  func(m *observation.Membership) { m.Members[2].ID = 4 },
		"another role":    func(m *observation.Membership) { m.Members[2].Learner = true },
		"another cluster": func(m *observation.Membership) { m.ClusterID++ },
	}
	for title, change := range tests {
		t.Run(title, func(t *testing.T) {
			all := fakes(t, 3)
			on := observed(t, all)
			change(on)
			err := new(Etcd).Do(t.Context(), decision.Remove{ID: 3, Name: "demo-2"}, on, endpointsOf(all))
			require.ErrorIs(t, err, ErrMembershipChanged)
			assert.EqualError(t, err, "remove demo-2: the membership has changed since the decision")
			assert.Equal(t, []string{"MemberList"}, all[0].calls())
		})
	}
}

func TestAStartIsNoChangeOfMembership(t *testing.T) {
	all := fakes(t, 3)
	on := observed(t, all)
	on.Members[2].Name, on.Members[2].ClientURLs = "", nil
	assert.NoError(t, new(Etcd).Do(t.Context(), decision.Remove{ID: 3, Name: "demo-2"}, on, endpointsOf(all)))
}

func TestNoStepIsTakenBlind(t *testing.T) {
	all := fakes(t, 3)
	require.ErrorIs(t, new(Etcd).Do(t.Context(), decision.Remove{ID: 3, Name: "demo-2"}, nil, endpointsOf(all)),
		errBlind)
	assert.Empty(t, all[0].calls())
}

func TestALeaderIsRemovedByAnother(t *testing.T) {
	all := fakes(t, 3)
	require.NoError(t, new(Etcd).Do(t.Context(), decision.Remove{ID: 1, Name: "demo-0"}, observed(t, all),
		endpointsOf(all)))
	assert.Empty(t, all[0].calls())
	assert.Equal(t, []string{"MemberList", "MemberRemove 1"}, all[1].calls())
}

func TestAnotherVoterServesWhenTheLeaderCannot(t *testing.T) {
	all := fakes(t, 3)
	on := observed(t, all)
	all[0].endpoint.ClientURL = refused(t)
	require.NoError(t, new(Etcd).Do(t.Context(), decision.Remove{ID: 3, Name: "demo-2"}, on, endpointsOf(all)))
	assert.Equal(t, []string{"MemberList", "MemberRemove 3"}, all[1].calls())
}

func TestOnlyTheLeaderPromotesAndHandsOver(t *testing.T) {
	for _, step := range []decision.Step{decision.Promote{ID: 3, Name: "demo-2"}, decision.MoveLeader{To: 3,
		Name: "demo-2"}} {
		all := fakes(t, 3)
		on := observed(t, all)
		all[0].endpoint.ClientURL = refused(t)
		err := new(Etcd).Do(t.Context(), step, on, endpointsOf(all))
		require.ErrorIs(t, err, ErrNoQuorum)
		assert.EqualError(t, err, step.String()+": the member list cannot be read: unreachable: connection refused")
		on.Leader = 0
		require.ErrorIs(t, new(Etcd).Do(t.Context(), step, on, endpointsOf(all)), ErrNoExecutor)
		assert.Empty(t, all[1].calls())
		assert.Empty(t, all[2].calls())
	}
}

func TestALearnerIsPromotedOnceAnEntryOfTheLeaderHasReachedIt(t *testing.T) {
	promote := decision.Promote{ID: 3, Name: "demo-2"}

	t.Run("it has", func(t *testing.T) {
		all := fakes(t, 3)
		require.NoError(t, new(Etcd).Do(t.Context(), promote, observed(t, all), endpointsOf(all)))
		assert.Equal(t, []string{"MemberList", "Alarm", "Status", "MemberPromote 3"}, all[0].calls())
		assert.Equal(t, []string{"Status"}, all[2].calls())
	})

	cutOff := map[string]struct {
		happens func(t *testing.T, learner *fake)
		says    string
	}{
		"it does not arrive": {
			func(_ *testing.T, f *fake) { f.status.RaftIndex = 99 },
			"promote demo-2: the learner is not connected to the leader: an entry that the leader wrote does not " +
				"arrive",
		},
		"the learner has died": {
			func(t *testing.T, f *fake) { f.endpoint.ClientURL = refused(t) },
			"promote demo-2: the learner is not connected to the leader: unreachable: connection refused",
		},
		"the learner has no address": {
			func(_ *testing.T, f *fake) { f.endpoint.PeerURL = "http://elsewhere:2380" },
			"promote demo-2: the learner is not connected to the leader: it has no address",
		},
	}
	for title, c := range cutOff {
		t.Run(title, func(t *testing.T) {
			all := fakes(t, 3)
			on := observed(t, all)
			c.happens(t, all[2])
			err := (&Etcd{Timeout: 2 * time.Second}).Do(t.Context(), promote, on, endpointsOf(all))
			require.ErrorIs(t, err, ErrLearnerCutOff)
			require.EqualError(t, err, c.says)
			assert.NotContains(t, all[0].calls(), "MemberPromote 3")
		})
	}
}

func TestALearnerServesNoStep(t *testing.T) {
	all := fakes(t, 2)
	all[0].members[1].IsLearner = true
	on := observed(t, all)
	err := new(Etcd).Do(t.Context(), decision.Remove{ID: 9, Name: "demo-9"}, on, endpointsOf(all[1:]))
	require.ErrorIs(t, err, ErrNoExecutor)
}

func TestNoStepAtAStranger(t *testing.T) {
	all := fakes(t, 3)
	on := observed(t, all)
	for _, f := range all {
		f.header.ClusterId = 0xC2
		f.members = []*pb.Member{{ID: 77, PeerURLs: []string{f.endpoint.PeerURL}}}
	}
	err := new(Etcd).Do(t.Context(), decision.Remove{ID: 3, Name: "demo-2"}, on, endpointsOf(all))
	require.ErrorIs(t, err, ErrStranger)
	assert.Equal(t, []string{"MemberList"}, all[0].calls())
	assert.Equal(t, []string{"MemberList"}, all[1].calls())
}

func TestARefusalIsFinal(t *testing.T) {
	all := fakes(t, 3)
	all[0].step = rpctypes.ErrGRPCUnhealthy
	err := new(Etcd).Do(t.Context(), decision.AddLearner{Name: "demo-3", PeerURL: peerURL(3)}, observed(t, all),
		endpointsOf(all))
	require.ErrorIs(t, err, ErrUnhealthy)
	assert.EqualError(t, err, "add learner demo-3: etcd asks to wait: too few voters have been connected for 5 seconds")
	assert.Len(t, all[0].calls(), 2, "no retries")
	assert.Empty(t, all[1].calls(), "no other member is asked")
}

func TestAnAdditionIsNeverToldThatTheMemberIsGone(t *testing.T) {
	all := fakes(t, 3)
	all[0].step = rpctypes.ErrGRPCMemberNotFound
	err := new(Etcd).Do(t.Context(), decision.AddLearner{Name: "demo-3", PeerURL: peerURL(3)}, observed(t, all),
		endpointsOf(all))
	require.ErrorIs(t, err, ErrPeerURLUsed)
}

func TestAStepThatHangsEndsAtItsDeadline(t *testing.T) {
	all := fakes(t, 3)
	all[0].hang = true
	on := observed(t, all)
	e := &Etcd{StepTimeout: 100 * time.Millisecond}
	err := e.Do(t.Context(), decision.AddLearner{Name: "demo-3", PeerURL: peerURL(3)}, on, endpointsOf(all))
	require.ErrorIs(t, err, ErrNoAnswer)
	assert.Empty(t, all[1].calls(), "it may have been carried out: not tried again")
}
