//go:build unix

package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/etcdops/prepare"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
	"github.com/quorate-dev/quorate/test/simulated/membership"
)

// ends waits for a process to end by itself, not well, and with these last words.
func ends(t *testing.T, m *etcdproc.Member, words string) {
	t.Helper()
	assert.NotZero(t, m.ExitCode(etcdproc.Patience))
	assert.True(t, m.Said(words), "%s ended without saying %q", m.Name, words)
}

// TestAnEmptiedDirectory shows why a member never runs again on an empty directory (S10): etcd lets it.
func TestAnEmptiedDirectory(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3)
		initial := c.Members[:3]
		leader, followers := leaderAndFollowers(t, c)
		leader.Put(20)
		lost := followers[0]
		m, _ := look(t, c.Endpoints())
		id := idOf(t, m, lost)

		chapter(t, "a bootstrap that finds its cluster running is refused", func(t *testing.T) {
			lost.Kill()
			lost.Wipe()
			c.Bootstrap(lost, initial...)
			ends(t, lost, membership.Cluster{Voters: 0b111, Started: 0b111}.Bootstrap(0, 0b110).Error())
		})

		chapter(t, "a voter joins again under its old ID, and panics while the leader remembers what it had",
			func(t *testing.T) {
				lost.Wipe()
				c.Join(lost, leader, followers[1])
				ends(t, lost, "tocommit(")
			})

		chapter(t, "under a new leader it forgets that it ever voted, and no one notices", func(t *testing.T) {
			m, _ := look(t, c.Endpoints())
			to := idOf(t, m, followers[1])
			require.NoError(t, new(etcdops.Etcd).Do(t.Context(), decision.MoveLeader{To: to, Name: followers[1].Name},
				m, c.Endpoints()))
			lost.Wipe()
			c.Join(lost, leader, followers[1])
			c.WaitServing(lost)
			caughtUp(t, c, lost)
			m, health := look(t, c.Endpoints())
			assert.Equal(t, id, health[lost.Name].MemberID)
			assert.Len(t, m.Members, 3)
		})

		chapter(t, "a bootstrap that finds no other member begins a second time", func(t *testing.T) {
			for _, member := range initial {
				member.Kill()
			}
			lost.Wipe()
			c.Bootstrap(lost, initial...)
			etcdproc.Eventually(t, "it waits for the others to elect it", func(ctx context.Context) error {
				require.True(t, lost.Running())
				_, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints(lost))
				return while(health[lost.Name].Err != silent, "%+v", health)
			})
		})

		chapter(t, "one that is told that it has begun ends, and writes nothing", func(t *testing.T) {
			lost.Kill()
			lost.Wipe()
			c.BootstrapAgain(lost)
			ends(t, lost, "error setting up initial cluster")
			assert.True(t, lost.Empty())
		})
	})
}

// TestALearnerOnAnEmptiedDirectory: it can lose nothing that was acknowledged, but its leader does not know that.
func TestALearnerOnAnEmptiedDirectory(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		learner := c.NewMember("demo-1")
		settle(t, c, add(learner))

		chapter(t, "a joining member that is told a wrong list is refused", func(t *testing.T) {
			c.Join(learner, c.Members[0], c.NewMember("demo-2"))
			ends(t, learner, "member count is unequal")
			learner.Wipe()
		})

		chapter(t, "a joining member that finds no other ends", func(t *testing.T) {
			c.Join(learner, c.Members[2])
			ends(t, learner, membership.Cluster{Voters: 0b01, Learners: 0b10}.Join(1, 0b10, 0).Error())
			learner.Wipe()
		})

		chapter(t, "a learner that has joined and lost its data panics", func(t *testing.T) {
			c.Join(learner, c.Members[0])
			caughtUp(t, c, learner)
			learner.Kill()
			learner.Wipe()
			c.Join(learner, c.Members[0])
			ends(t, learner, "tocommit(")
		})
	})
}

// TestASilentConnection keeps an etcd that speaks plain text from ending when it is told to: it waits for the
// connection's first bytes. So what tells one to end waits for a limited time (replay in etcdops/backup/seed).
func TestASilentConnection(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		m := etcdproc.Start(t, version, "demo", 1, "--log-level=info").Members[0]
		silent, err := net.Dial("tcp", strings.TrimPrefix(m.ClientURL, "http://"))
		require.NoError(t, err)
		// Connections are taken in the order in which they come: when this is answered, the silent one has been taken.
		m.Put(1)
		m.Terminate()
		etcdproc.Eventually(t, "it begins to end", func(context.Context) error {
			return while(!m.Said("closing etcd server"), "not yet")
		})
		assert.Never(t, func() bool { return !m.Running() }, 3*time.Second, 100*time.Millisecond)
		require.NoError(t, silent.Close())
		m.ExitCode(etcdproc.Patience)
		assert.False(t, m.Running())
	})
}

// stillbirth makes a member's data what it is when its first etcd ended after it had made the log, and before the
// first entries were in it.
func stillbirth(t *testing.T, m *etcdproc.Member) {
	t.Helper()
	m.Kill()
	dir := filepath.Join(m.DataDir(), "member", "wal")
	old, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{})
	require.NoError(t, err)
	whose, _, _, err := old.ReadAll()
	require.NoError(t, err)
	_ = old.Close() // which complains that it has no directory to close, as nothing is written
	m.Wipe()
	require.NoError(t, os.MkdirAll(filepath.Join(m.DataDir(), "member", "snap"), 0o700))
	made, err := wal.Create(zap.NewNop(), dir, whose)
	require.NoError(t, err)
	require.NoError(t, made.Close())
}

// TestAStillbirth: an etcd whose log is empty knows no voters, and stands for no election (hooks/facts/bootstrap.go).
func TestAStillbirth(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		chapter(t, "alone it never elects itself, and answers nothing", func(t *testing.T) {
			c := etcdproc.Start(t, version, "demo", 1, "--log-level=info")
			m := c.Members[0]
			stillbirth(t, m)
			c.Bootstrap(m, m)
			etcdproc.Eventually(t, "its time to stand for election has passed more than once",
				func(context.Context) error {
					if !m.Said("failed to publish local member to cluster through raft") { // after 7 seconds
						return errors.New("not yet")
					}
					return nil
				})
			membership, health := new(etcdops.Etcd).Observe(t.Context(), c.Endpoints())
			assert.Nil(t, membership)
			assert.Equal(t, etcdops.ErrNoAnswer.Error(), health[m.Name].Err)
		})
		chapter(t, "beside one that has its entries it votes, and gets what it lacks", func(t *testing.T) {
			c := etcdproc.Start(t, version, "demo", 3)
			killAll(c)
			stillbirth(t, c.Members[0])
			stillbirth(t, c.Members[1])
			for _, m := range c.Members {
				c.Bootstrap(m, c.Members...)
			}
			c.WaitServing(c.Members...)
		})
	})
}

// TestTheSameStepTwiceAtOnce: of two hooks that decide the same at the same moment, one does it and the other is
// refused, or hears nothing: raft has one change of members under way at a time, and makes of a second one an empty
// entry, whose answer etcd waits for and never gets (S15; stepLeader in raft.go).
func TestTheSameStepTwiceAtOnce(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 1)
		twice := func(t *testing.T, step decision.Step, refusals ...error) {
			t.Helper()
			m, _ := look(t, c.Endpoints())
			errs := make([]error, 2)
			var both sync.WaitGroup
			for i := range errs {
				both.Go(func() { errs[i] = new(etcdops.Etcd).Do(t.Context(), step, m, c.Endpoints()) })
			}
			both.Wait()
			if errs[0] != nil {
				errs[0], errs[1] = errs[1], errs[0]
			}
			require.NoError(t, errs[0])
			require.Error(t, errs[1], "both were done")
			// The second may also have looked at the list when the first was done.
			for _, refusal := range append(refusals, etcdops.ErrMembershipChanged, etcdops.ErrNoAnswer) {
				if errors.Is(errs[1], refusal) {
					return
				}
			}
			t.Errorf("the second: %v", errs[1])
		}

		idNow := func() uint64 {
			m, _ := look(t, c.Endpoints())
			return idOf(t, m, c.Members[len(c.Members)-1])
		}

		chapter(t, "an addition", func(t *testing.T) {
			twice(t, add(c.NewMember("demo-1")), etcdops.ErrPeerURLExists, etcdops.ErrTooManyLearners)
		})
		chapter(t, "a removal", func(t *testing.T) {
			twice(t, decision.Remove{ID: idNow(), Name: "demo-1"}, etcdops.ErrMemberGone)
		})
		learner := c.NewMember("demo-2")
		require.NoError(t, do(t, c, add(learner)))
		c.Join(learner, c.Members[0])
		caughtUp(t, c, learner)
		chapter(t, "a promotion", func(t *testing.T) {
			// Its log is short: the entry that the first call writes before the promotion puts it below etcd's nine
			// tenths.
			twice(t, decision.Promote{ID: idNow(), Name: "demo-2"}, etcdops.ErrNotLearner, etcdops.ErrLearnerNotReady)
		})
	})
}

// TestNothingAcknowledgedIsLost: what a client was told is written is there when the leader that took it is dead.
func TestNothingAcknowledgedIsLost(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3)
		leader, followers := leaderAndFollowers(t, c)
		before, _ := look(t, c.Endpoints())
		client := followers[0].Client()
		began, acknowledged := make(chan struct{}), make(chan []string)
		go func() {
			var keys []string
			for i := 0; ; i++ {
				key := fmt.Sprintf("acknowledged-%d", i)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := client.Put(ctx, key, "value")
				if cancel(); err != nil {
					acknowledged <- keys
					return
				}
				if keys = append(keys, key); len(keys) == 50 {
					close(began)
				}
			}
		}()
		<-began
		leader.Kill()
		keys := <-acknowledged // the first write that fails is the last

		etcdproc.Eventually(t, "another member leads", func(ctx context.Context) error {
			m, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints())
			return while(m == nil || m.Leader == 0 || m.Leader == before.Leader, "%+v", health)
		})
		for _, key := range keys {
			found, err := client.Get(t.Context(), key)
			require.NoError(t, err)
			require.Len(t, found.Kvs, 1, key)
		}
		t.Logf("%s: %d keys", version, len(keys))
	})
}

// TestTheMarkOfPrepare: every release of etcd begins where quorate prepare has left its mark, and takes it away. So
// an empty directory with a mark is one that etcd has not begun in, and one without it was emptied (S10).
func TestTheMarkOfPrepare(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		disks := map[*etcdproc.Member]string{}
		prepares := func(m *etcdproc.Member) error {
			var c prepare.Command
			flags := flag.NewFlagSet("prepare", flag.ContinueOnError)
			c.Flags(flags)
			require.NoError(t, flags.Parse([]string{
				"--data-dir=" + m.DataDir(), "--marker=" + filepath.Join(disks[m], "started"),
				"--start=" + objects.StartBootstrap,
			}))
			return c.Run(t.Context())
		}
		c := etcdproc.StartSeeded(t, version, "demo", 3, func(m *etcdproc.Member, _, _ string) {
			disks[m] = t.TempDir()
			require.NoError(t, prepares(m))
			require.NoError(t, prepares(m), "the node is rebooted before etcd was there")
		})
		c.WaitServing(c.Members...)
		left, err := filepath.Glob(filepath.Join(c.Members[0].DataDir(), "member", "wal", "quorate-*"))
		require.NoError(t, err)
		require.Empty(t, left)
		lost := c.Members[0]
		lost.Kill()
		require.NoError(t, prepares(lost), "it has its data")
		lost.Wipe()
		require.ErrorIs(t, prepares(lost), prepare.ErrDataLost)
	})
}
