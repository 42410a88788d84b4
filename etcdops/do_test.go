package etcdops

import (
	"errors"
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

// TestStepsInEtcd: which member carries a step out, by how many calls, and what is said where none does.
func TestStepsInEtcd(t *testing.T) {
	var (
		remove   = decision.Remove{ID: 3, Name: "demo-2"}
		promote  = decision.Promote{ID: 3, Name: "demo-2"}
		handOver = decision.MoveLeader{To: 3, Name: "demo-2"}
		add      = decision.AddLearner{Name: "demo-3", PeerURL: peerURL(3)}
		list     = []string{"MemberList"}
		refuses  = func(err error) change {
			return func(_ *testing.T, all []*fake, _ *observation.Membership) { all[0].step = err }
		}
		gone = func(t *testing.T, all []*fake, _ *observation.Membership) {
			all[0].endpoint.ClientURL = refused(t)
		}
		leaderless = func(_ *testing.T, _ []*fake, on *observation.Membership) { on.Leader = 0 }
		otherwise  = func(edit func(on *observation.Membership)) change {
			return func(_ *testing.T, _ []*fake, on *observation.Membership) { edit(on) }
		}
	)
	const changed = "remove demo-2: the membership has changed since the decision"
	for reason, c := range map[string]struct {
		step   decision.Step
		change change
		is     error  // nil: it is done
		says   string // empty for whatever
		asked  [3][]string
	}{
		"an addition is one call to the leader": {step: add,
			asked: [3][]string{{"MemberList", "MemberAdd [http://demo-3.demo-peers:2380] learner=true"}}},
		"so is a removal":        {step: remove, asked: [3][]string{{"MemberList", "MemberRemove 3"}}},
		"and a change of leader": {step: handOver, asked: [3][]string{{"MemberList", "MoveLeader 3"}}},
		"a leader is removed by another": {step: decision.Remove{ID: 1, Name: "demo-0"},
			asked: [3][]string{nil, {"MemberList", "MemberRemove 1"}}},
		"another voter serves when the leader can't": {step: remove, change: gone,
			asked: [3][]string{nil, {"MemberList", "MemberRemove 3"}}},
		"a start is no change of membership": {step: remove, change: otherwise(func(on *observation.Membership) {
			on.Members[2].Name = ""
			on.Members[2].ClientURLs = nil
		}), asked: [3][]string{{"MemberList", "MemberRemove 3"}}},

		"a member more": {remove, otherwise(func(on *observation.Membership) {
			on.Members = append(on.Members, observation.Member{ID: 4})
		}), ErrMembershipChanged, changed, [3][]string{list}},
		"a member less": {remove, otherwise(func(on *observation.Membership) { on.Members = on.Members[:2] }),
			ErrMembershipChanged, changed, [3][]string{list}},
		"another member": {remove, otherwise(func(on *observation.Membership) { on.Members[2].ID = 4 }),
			ErrMembershipChanged, changed, [3][]string{list}},
		"another role": {remove, otherwise(func(on *observation.Membership) { on.Members[2].Learner = true }),
			ErrMembershipChanged, changed, [3][]string{list}},
		"another cluster": {remove, otherwise(func(on *observation.Membership) { on.ClusterID++ }),
			ErrMembershipChanged, changed, [3][]string{list}},

		"only the leader promotes": {promote, gone, ErrNoQuorum,
			"promote demo-2: the member list cannot be read: unreachable: connection refused", [3][]string{}},
		"and hands over": {handOver, gone, ErrNoQuorum,
			"move leader to demo-2: the member list cannot be read: unreachable: connection refused", [3][]string{}},
		"without one no learner is promoted": {promote, leaderless, ErrNoExecutor, "", [3][]string{}},
		"and nothing handed over":            {handOver, leaderless, ErrNoExecutor, "", [3][]string{}},
		"no step at another etcd": {remove, func(_ *testing.T, all []*fake, _ *observation.Membership) {
			for _, f := range all {
				f.header.ClusterId = 0xC2
				f.members = []*pb.Member{{ID: 77, PeerURLs: []string{f.endpoint.PeerURL}}}
			}
		}, ErrOtherEtcd, "", [3][]string{list, list}},
		"a refusal is final: no other member is asked": {add, refuses(rpctypes.ErrGRPCUnhealthy), ErrUnhealthy,
			"add learner demo-3: etcd asks to wait: too few voters have been connected for 5 seconds",
			[3][]string{{"MemberList", "MemberAdd [http://demo-3.demo-peers:2380] learner=true"}}},
		"an addition is never told that the member is gone": {add, refuses(rpctypes.ErrGRPCMemberNotFound),
			ErrPeerURLUsed, "", [3][]string{{"MemberList", "MemberAdd [http://demo-3.demo-peers:2380] learner=true"}}},
		"one that hangs may have been carried out: it is not tried again": {add,
			func(_ *testing.T, all []*fake, _ *observation.Membership) { all[0].hang = true }, ErrNoAnswer, "",
			[3][]string{{"MemberList", "MemberAdd [http://demo-3.demo-peers:2380] learner=true"}}},
	} {
		t.Run(reason, func(t *testing.T) {
			all := fakes(t, 3)
			on := observed(t, all)
			if c.change != nil {
				c.change(t, all, on)
			}
			etcd := &Etcd{}
			if errors.Is(c.is, ErrNoAnswer) {
				etcd.StepTimeout = 100 * time.Millisecond
			}
			err := etcd.Do(t.Context(), c.step, on, endpointsOf(all))
			if c.is == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, c.is)
			}
			if c.says != "" {
				assert.EqualError(t, err, c.says)
			}
			for i, f := range all {
				assert.Equal(t, c.asked[i], f.calls(), f.endpoint.Name)
			}
		})
	}
}

// change is what has happened since a step was decided on.
type change = func(t *testing.T, all []*fake, on *observation.Membership)

func TestNoStepIsTakenBlind(t *testing.T) {
	all := fakes(t, 3)
	require.ErrorIs(t, new(Etcd).Do(t.Context(), decision.Remove{ID: 3, Name: "demo-2"}, nil, endpointsOf(all)),
		errBlind)
	assert.Empty(t, all[0].calls())
}

func TestALearnerServesNoStep(t *testing.T) {
	all := fakes(t, 2)
	all[0].members[1].IsLearner = true
	on := observed(t, all)
	err := new(Etcd).Do(t.Context(), decision.Remove{ID: 9, Name: "demo-9"}, on, endpointsOf(all[1:]))
	require.ErrorIs(t, err, ErrNoExecutor)
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
