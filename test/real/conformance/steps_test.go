//go:build unix

package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestGrowAndShrink goes the way that a cluster goes. What is refused on it, the walks ask (membership_test.go).
func TestGrowAndShrink(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		began := time.Now()
		c := etcdproc.Start(t, version, "demo", 3)
		t.Logf("%s: three members serve %s after their start", version, time.Since(began).Round(10*time.Millisecond))
		voters := c.Endpoints()
		learner := c.NewMember("demo-3")
		var before *observation.Membership
		var learnerID uint64

		chapter(t, "an addition right after the start is asked to wait", func(t *testing.T) {
			before, _ = look(t, voters)
			require.ErrorIs(t, new(etcdops.Etcd).Do(t.Context(), add(learner), before, voters), etcdops.ErrUnhealthy)
		})

		chapter(t, "it is accepted once the connections are 5 seconds old", func(t *testing.T) {
			settle(t, c, add(learner))
			t.Logf("%s: accepted %s after the start", version, time.Since(began).Round(100*time.Millisecond))
			m, health := look(t, c.Endpoints())
			learnerID = idOf(t, m, learner)
			entry := m.Members[indexOf(m, learnerID)]
			assert.True(t, entry.Learner)
			assert.False(t, entry.Started())
			assert.Equal(t, refused, health[learner.Name].Err)
		})

		chapter(t, "a step on an outdated membership is refused", func(t *testing.T) {
			for _, step := range []decision.Step{
				add(c.Members[3]), decision.Promote{ID: learnerID}, decision.Remove{ID: before.Members[0].ID},
				decision.MoveLeader{To: before.Members[0].ID},
			} {
				require.ErrorIs(t, new(etcdops.Etcd).Do(t.Context(), step, before, voters),
					etcdops.ErrMembershipChanged)
			}
		})

		chapter(t, "a peer URL that is none is refused", func(t *testing.T) {
			require.Error(t, do(t, c, decision.AddLearner{Name: "demo-4", PeerURL: "demo-4"}))
		})

		chapter(t, "a learner that never started is not promoted", func(t *testing.T) {
			require.ErrorIs(t, do(t, c, decision.Promote{ID: learnerID, Name: learner.Name}), etcdops.ErrLearnerCutOff)
		})

		chapter(t, "a running learner answers its status and refuses the member list", func(t *testing.T) {
			c.Join(learner, c.Members[:3]...)
			c.WaitServing(learner)
			m, health := look(t, c.Endpoints())
			assert.True(t, health[learner.Name].Learner)
			assert.True(t, health[learner.Name].Serving())
			assert.True(t, m.Members[indexOf(m, learnerID)].Started())
			client := learner.Client()
			_, err := client.MemberList(t.Context())
			require.Equal(t, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner), err)

			m, health = new(etcdops.Etcd).Observe(t.Context(), c.Endpoints(learner))
			assert.Nil(t, m, "a learner alone tells no membership")
			assert.True(t, health[learner.Name].Serving())
		})

		chapter(t, "a learner that has caught up is promoted", func(t *testing.T) {
			settle(t, c, decision.Promote{ID: learnerID, Name: learner.Name})
			m, _ := look(t, c.Endpoints())
			assert.False(t, m.Members[indexOf(m, learnerID)].Learner)
		})

		chapter(t, "a promotion made twice changes nothing", func(t *testing.T) {
			etcdproc.Eventually(t, "etcd says that it votes", func(context.Context) error {
				err := do(t, c, decision.Promote{ID: learnerID, Name: learner.Name})
				require.Error(t, err)
				if !errors.Is(err, etcdops.ErrNotLearner) {
					return err
				}
				return nil
			})
		})

		leader, followers := leaderAndFollowers(t, c)

		chapter(t, "the leadership moves to a follower", func(t *testing.T) {
			m, _ := look(t, c.Endpoints())
			to := idOf(t, m, followers[0])
			began := time.Now()
			require.NoError(t, new(etcdops.Etcd).Do(t.Context(), decision.MoveLeader{To: to, Name: followers[0].Name},
				m, c.Endpoints()))
			t.Logf("%s: a transfer takes %s", version, time.Since(began).Round(time.Millisecond))
			now, _ := look(t, c.Endpoints())
			assert.Equal(t, to, now.Leader)
			require.ErrorIs(t, new(etcdops.Etcd).Do(t.Context(), decision.MoveLeader{To: to}, m, c.Endpoints()),
				etcdops.ErrNotLeader, "the same decision once more")
			leader, followers = followers[0], append(followers[1:], leader)
		})

		chapter(t, "a follower is removed, and its process ends", func(t *testing.T) {
			m, _ := look(t, c.Endpoints())
			gone := decision.Remove{ID: idOf(t, m, followers[0]), Name: followers[0].Name}
			settle(t, c, gone)
			t.Logf("%s: the process of a removed member ends with code %d", version,
				followers[0].ExitCode(etcdproc.Patience))
			require.ErrorIs(t, do(t, c, gone), etcdops.ErrMemberGone, "removed twice")
			followers[0].Restart()
			t.Logf("%s: started again, it ends with code %d", version, followers[0].ExitCode(etcdproc.Patience))
		})

		chapter(t, "a member that was removed while it was down ends when it comes back", func(t *testing.T) {
			m, _ := look(t, c.Endpoints())
			followers[1].Kill()
			settle(t, c, decision.Remove{ID: idOf(t, m, followers[1]), Name: followers[1].Name})
			followers[1].Restart()
			t.Logf("%s: it ends with code %d", version, followers[1].ExitCode(etcdproc.Patience))
			m, _ = look(t, c.Endpoints())
			assert.Len(t, m.Members, 2)
		})
	})
}

// TestOneVoterDown: of four. Of three, and all that is refused, is in the walks (TestGuardsOfThreeVoters).
func TestOneVoterDown(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 4)
		addAndRemove := func(t *testing.T) {
			learner := c.NewMember(fmt.Sprintf("demo-%d", len(c.Members))) // a name is used once (S9)
			settle(t, c, add(learner))
			m, _ := look(t, c.Endpoints())
			settle(t, c, decision.Remove{ID: idOf(t, m, learner), Name: learner.Name})
		}

		chapter(t, "with one of four voters down a learner is added", func(t *testing.T) {
			c.Members[3].Kill()
			addAndRemove(t)
		})

		chapter(t, "the dead voter is removed", func(t *testing.T) {
			m, _ := look(t, c.Endpoints())
			require.NoError(t, do(t, c, decision.Remove{ID: idOf(t, m, c.Members[3]), Name: "demo-3"}))
			addAndRemove(t) // three voters, all connected for 5 seconds
		})
	})
}

// TestAPeerURLAgain shows why names are used once (S9).
func TestAPeerURLAgain(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		again := c.NewMember("demo-1")
		addAndRemove := func(t *testing.T) (uint64, error) {
			if err := do(t, c, add(again)); err != nil {
				return 0, err
			}
			m, _ := look(t, c.Endpoints())
			id := idOf(t, m, again)
			return id, do(t, c, decision.Remove{ID: id, Name: again.Name})
		}

		chapter(t, "within the second of its removal a peer URL is refused, and later it gets a new ID",
			func(t *testing.T) {
				first, err := addAndRemove(t)
				require.NoError(t, err)
				seen := map[error]bool{}
				etcdproc.Eventually(t, "both answers", func(context.Context) error {
					id, err := addAndRemove(t)
					switch {
					case errors.Is(err, etcdops.ErrPeerURLUsed):
						seen[etcdops.ErrPeerURLUsed] = true
					case err == nil:
						assert.NotEqual(t, first, id)
						seen[nil] = true
					default:
						require.NoError(t, err)
					}
					return while(len(seen) < 2, "seen only %v", seen)
				})
			})
	})
}

// TestADeadLearner shows why rule S5 exists: nothing of etcd protects this step, so etcdops sees for itself that the
// leader reaches the learner.
func TestADeadLearner(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		learner := c.NewMember("demo-1")
		settle(t, c, add(learner)) // a single voter is not asked to wait
		c.Join(learner, c.Members[0])
		caughtUp(t, c, learner)
		m, _ := look(t, c.Endpoints())
		promote := decision.Promote{ID: idOf(t, m, learner), Name: learner.Name}

		chapter(t, "a dead learner that is behind is not promoted", func(t *testing.T) {
			learner.Kill()
			c.Members[0].Put(20)
			require.ErrorIs(t, promotedByEtcd(t, c, promote.ID), etcdops.ErrLearnerNotReady)
			learner.Restart()
			caughtUp(t, c, learner)
		})

		chapter(t, "a dead or a paused learner that had caught up is not promoted by us", func(t *testing.T) {
			learner.Kill()
			require.ErrorIs(t, do(t, c, promote), etcdops.ErrLearnerCutOff)
			learner.Restart()
			caughtUp(t, c, learner)
			learner.Pause()
			require.ErrorIs(t, do(t, c, promote), etcdops.ErrLearnerCutOff)
			learner.Resume()
			caughtUp(t, c, learner)
		})

		chapter(t, "a dead learner that had caught up is promoted by etcd, and the quorum is lost", func(t *testing.T) {
			learner.Kill()
			require.NoError(t, promotedByEtcd(t, c, promote.ID))
			etcdproc.Eventually(t, "no member leads any more", func(ctx context.Context) error {
				m, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints())
				return while(m != nil || health["demo-0"].Serving(), "%+v", health)
			})
		})

		chapter(t, "the quorum returns with the member", func(t *testing.T) {
			learner.Restart()
			m, _ := look(t, c.Endpoints())
			assert.Len(t, m.Members, 2)
			assert.False(t, m.Members[indexOf(m, promote.ID)].Learner)
		})
	})
}

// promotedByEtcd asks the leader for a promotion, without what etcdops looks at first.
func promotedByEtcd(t *testing.T, c *etcdproc.Cluster, id uint64) error {
	t.Helper()
	leader, _ := leaderAndFollowers(t, c)
	client := leader.Client()
	_, err := client.MemberPromote(t.Context(), id)
	return inOurWords(err)
}

// caughtUp waits until the member knows of every entry that the leader has committed.
func caughtUp(t *testing.T, c *etcdproc.Cluster, member *etcdproc.Member) {
	t.Helper()
	etcdproc.Eventually(t, member.Name+" has caught up", func(ctx context.Context) error {
		m, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints())
		h := health[member.Name]
		if m == nil || !h.Serving() {
			return fmt.Errorf("%+v", health)
		}
		for name, other := range health {
			if other.RaftIndex > h.RaftIndex {
				return fmt.Errorf("%s is at %d, %s at %d", member.Name, h.RaftIndex, name, other.RaftIndex)
			}
		}
		return nil
	})
}

func indexOf(m *observation.Membership, id uint64) int {
	for i, member := range m.Members {
		if member.ID == id {
			return i
		}
	}
	return -1
}
