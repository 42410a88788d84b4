//go:build unix

package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// ready is what a readiness probe gets within so long: etcd's status code, or 0 for no answer.
func ready(m *etcdproc.Member, within time.Duration) int {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	code, _, err := page(ctx, nil, m.ClientURL+"/readyz")
	if err != nil {
		return 0
	}
	return code
}

// putMiB writes so many values of 1 MiB, until one is refused.
func putMiB(t *testing.T, m *etcdproc.Member, n int, key func(i int) string) error {
	t.Helper()
	client := m.Client()
	value := string(bytes.Repeat([]byte("x"), 1<<20))
	for i := range n {
		if _, err := client.Put(t.Context(), key(i), value); err != nil {
			return err
		}
	}
	return nil
}

func same(int) string      { return "same" }
func another(i int) string { return fmt.Sprint("another-", i) }

// tries calls things by name: those that are named are refused with this error, and the others are not.
func tries(t *testing.T, m *etcdproc.Member, refusal error, refused map[string]bool) {
	t.Helper()
	client := m.Client()
	for what, f := range map[string]func(ctx context.Context) error{
		"a read": func(ctx context.Context) error { _, err := client.Get(ctx, "x"); return err },
		"a serializable read": func(ctx context.Context) error {
			_, err := client.Get(ctx, "x", clientv3.WithSerializable())
			return err
		},
		"a write":    func(ctx context.Context) error { _, err := client.Put(ctx, "x", "y"); return err },
		"a deletion": func(ctx context.Context) error { _, err := client.Delete(ctx, "no-such-key"); return err },
		"a lease":    func(ctx context.Context) error { _, err := client.Grant(ctx, 100); return err },
		"a watch": func(ctx context.Context) error {
			first := <-client.Watch(ctx, "x", clientv3.WithCreatedNotify())
			return first.Err()
		},
		"the member list": func(ctx context.Context) error { _, err := client.MemberList(ctx); return err },
		"a hash":          func(ctx context.Context) error { _, err := client.HashKV(ctx, m.ClientURL, 0); return err },
		"a user": func(ctx context.Context) error {
			if _, err := client.UserAdd(ctx, "someone", "x"); err != nil &&
				!errors.Is(err, rpctypes.ErrUserAlreadyExist) {
				return err
			}
			_, err := client.UserDelete(ctx, "someone")
			return err
		},
	} {
		etcdproc.Eventually(t, what, func(ctx context.Context) error {
			err := f(ctx)
			if refused[what] && errors.Is(err, refusal) {
				return nil
			}
			if refused[what] {
				return fmt.Errorf("not refused so: %w", err)
			}
			return err
		})
	}
}

// changesOfMembers are those that must go on under an alarm: another leads, a learner comes, votes, and goes.
func changesOfMembers(t *testing.T, c *etcdproc.Cluster) {
	t.Helper()
	_, followers := leaderAndFollowers(t, c)
	m, _ := look(t, c.Endpoints())
	repeat(t, c, decision.MoveLeader{To: idOf(t, m, followers[1]), Name: followers[1].Name})
	others := slices.Clone(c.Members)
	learner := c.NewMember("guest")
	settle(t, c, add(learner))
	c.Join(learner, others...)
	c.WaitServing(learner)
	m, _ = look(t, c.Endpoints())
	id := idOf(t, m, learner)
	settle(t, c, decision.Promote{ID: id, Name: learner.Name})
	settle(t, c, decision.Remove{ID: id, Name: learner.Name})
	c.Members = others
}

// TestDefragmentation: the member answers nothing meanwhile, the others do, and it goes on when its caller has gone.
func TestDefragmentation(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 100 MB per member")
	}
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3, quiet(t, version)...)
		leader, followers := leaderAndFollowers(t, c)
		m := followers[0]
		require.NoError(t, putMiB(t, leader, 70, another))
		require.NoError(t, putMiB(t, leader, 30, same))
		on, health := look(t, c.Endpoints())
		defragment := decision.Defragment{ID: idOf(t, on, m), Name: m.Name}

		chapter(t, "a compaction frees space, and gives none back", func(t *testing.T) {
			repeat(t, c, decision.Compact{Revision: health[leader.Name].Revision})
			etcdproc.Eventually(t, "old revisions are gone", func(context.Context) error {
				leader.Put(1) // bbolt counts a page as free with the next transaction
				_, health = look(t, c.Endpoints())
				h := health[m.Name]
				return while(h.Err != "" || h.DBSizeInUse > 80<<20, "%d in use %s", h.DBSizeInUse, h.Err)
			})
			assert.Greater(t, health[m.Name].DBSize, int64(90<<20))
		})

		chapter(t, "a defragmentation goes on when its caller has gone", func(t *testing.T) {
			before := health[m.Name].DBSize
			began := time.Now()
			err := (&etcdops.Etcd{StepTimeout: 30 * time.Millisecond}).Do(t.Context(), defragment, on, c.Endpoints())
			require.ErrorIs(t, err, etcdops.ErrNoAnswer)
			assert.Zero(t, ready(m, 20*time.Millisecond), "a probe hears nothing")
			other := followers[1].Client()
			_, err = other.Put(t.Context(), "meanwhile", "written")
			require.NoError(t, err)

			_, after := (&etcdops.Etcd{Timeout: etcdproc.Patience}).Observe(t.Context(), c.Endpoints(m))
			assert.Empty(t, after[m.Name].Err)
			assert.Less(t, after[m.Name].DBSize, before-20<<20, "its status waits until it is done")
			now, _ := look(t, c.Endpoints())
			assert.Equal(t, on.Leader, now.Leader)
			t.Logf("%s: %d MB became %d MB in %s", version, before>>20, after[m.Name].DBSize>>20, time.Since(began))
		})

		chapter(t, "the others keep their size", func(t *testing.T) {
			_, health := (&etcdops.Etcd{Timeout: etcdproc.Patience}).Observe(t.Context(), c.Endpoints())
			assert.Greater(t, health[followers[1].Name].DBSize, int64(90<<20))
		})
	})
}

// TestNoSpace fills the quota, and empties it again.
func TestNoSpace(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3,
			append(quiet(t, version), fmt.Sprintf("--quota-backend-bytes=%d", 16<<20))...)
		leader, _ := leaderAndFollowers(t, c)
		var revision int64

		chapter(t, "one member or more raise the alarm", func(t *testing.T) {
			require.ErrorIs(t, putMiB(t, leader, 40, same), rpctypes.ErrNoSpace)
			etcdproc.Eventually(t, "the alarm is told", func(context.Context) error {
				m, health := look(t, c.Endpoints())
				if len(m.Alarms) == 0 {
					return fmt.Errorf("no alarm")
				}
				if revision = health[leader.Name].Revision; revision == 0 {
					return fmt.Errorf("%+v", health)
				}
				for _, a := range m.Alarms {
					assert.Equal(t, observation.AlarmNoSpace, a.Kind)
					assert.GreaterOrEqual(t, slices.IndexFunc(m.Members,
						func(e observation.Member) bool { return e.ID == a.MemberID }), 0)
				}
				return nil
			})
		})

		chapter(t, "keys and leases can't be added, all else goes on", func(t *testing.T) {
			tries(t, leader, rpctypes.ErrNoSpace, map[string]bool{"a write": true, "a lease": true})
			for _, m := range c.Members {
				assert.Equal(t, http.StatusOK, ready(m, etcdproc.Patience))
			}
			changesOfMembers(t, c)
		})

		chapter(t, "a compaction is done once", func(t *testing.T) {
			repeat(t, c, decision.Compact{Revision: revision})
			repeat(t, c, decision.Compact{Revision: revision})
			require.ErrorIs(t, do(t, c, decision.Compact{Revision: revision + 1000}), etcdops.ErrFutureRevision)
		})

		chapter(t, "after every member's defragmentation, writes go on with the end of the last alarm",
			func(t *testing.T) {
				m, _ := look(t, c.Endpoints())
				for _, member := range c.Members {
					repeat(t, c, decision.Defragment{ID: idOf(t, m, member), Name: member.Name})
				}
				require.ErrorIs(t, putMiB(t, leader, 1, same), rpctypes.ErrNoSpace)
				m, _ = look(t, c.Endpoints()) // more members may have raised theirs meanwhile
				for _, a := range m.Alarms {
					repeat(t, c, decision.Disarm{ID: a.MemberID, Kind: a.Kind})
					repeat(t, c, decision.Disarm{ID: a.MemberID, Kind: a.Kind}) // twice is once
				}
				require.NoError(t, putMiB(t, leader, 1, same))
				m, health := look(t, c.Endpoints())
				assert.Empty(t, m.Alarms)
				assert.Less(t, health[leader.Name].DBSize, int64(8<<20))
			})
	})
}

// precious is a value of which a byte will be another on one member's disk.
const precious = "a-value-that-no-other-key-has-0123456789"

// damage writes through a member and then flips a byte in its database, under its feet: data pages have no checksum
// in bbolt, and a running etcd maps the file.
func damage(t *testing.T, m *etcdproc.Member) {
	t.Helper()
	client := m.Client()
	_, err := client.Put(t.Context(), "precious", precious)
	require.NoError(t, err)
	m.Put(30)
	path := filepath.Join(m.DataDir(), "member", "snap", "db")
	etcdproc.Eventually(t, "the value is on disk", func(context.Context) error {
		raw, err := os.ReadFile(path)
		if err == nil && (!bytes.Contains(raw, []byte(precious)) || !bytes.Contains(raw, []byte("key-29"))) {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer file.Close()
	for at := bytes.Index(raw, []byte(precious)); at >= 0; at = bytes.Index(raw, []byte(precious)) {
		raw[at] = '!'
		_, err = file.WriteAt(raw[at:at+1], int64(at))
		require.NoError(t, err)
	}
}

// impatient are our flags, with a leader that compares hashes every second instead of every minute.
func impatient(t *testing.T, version string, extra ...string) []string {
	t.Helper()
	compare := "--compact-hash-check-time=1s"
	if strings.HasPrefix(version, "3.5.") {
		compare = "--experimental-compact-hash-check-time=1s"
	}
	return slices.Concat(quiet(t, version), []string{compare}, extra)
}

// TestDamageAtAStart: a member that starts compares itself with its peers, and ends when one of them differs. Etcd 3.5
// does not know its peers at that moment, unless there is a snapshot on its disk: the test has it made.
func TestDamageAtAStart(t *testing.T) {
	const words = "found data inconsistency with peers"
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3, impatient(t, version, "--snapshot-count=10")...)
		_, followers := leaderAndFollowers(t, c)
		sick, well := followers[0], followers[1]
		damage(t, sick)

		chapter(t, "a well member does not start beside a damaged one that runs", func(t *testing.T) {
			well.Stop()
			well.Restart()
			assert.Equal(t, 1, well.ExitCode(etcdproc.Patience))
			assert.True(t, well.Said(words))
		})
		chapter(t, "it starts while that one is down", func(t *testing.T) {
			sick.Stop()
			well.Restart()
			c.WaitServing(well)
		})
		chapter(t, "the damaged one does not start, and raises no alarm", func(t *testing.T) {
			sick.Restart()
			assert.Equal(t, 1, sick.ExitCode(etcdproc.Patience))
			assert.True(t, sick.Said(words))
			m, _ := look(t, c.Endpoints())
			assert.Empty(t, m.Alarms)
			assert.Equal(t, http.StatusOK, ready(well, etcdproc.Patience))
		})
	})
}

// TestDamageWhileItRuns: a compaction brings it to light, the cluster stops taking writes, and goes on once the
// member is replaced.
func TestDamageWhileItRuns(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		for _, role := range []string{"a follower", "the leader"} {
			t.Run(role, func(t *testing.T) {
				t.Parallel()
				c := etcdproc.Start(t, version, "demo", 3, impatient(t, version)...)
				sick, followers := leaderAndFollowers(t, c)
				if role == "a follower" {
					sick, followers[0] = followers[0], sick
				}
				damaged(t, version, c, sick, followers)
			})
		}
	})
}

func damaged(t *testing.T, version string, c *etcdproc.Cluster, sick *etcdproc.Member, well []*etcdproc.Member) {
	damage(t, sick)
	c.WaitServing(c.Members...)
	m, health := look(t, c.Endpoints())
	require.Positive(t, health[sick.Name].Revision)
	id := idOf(t, m, sick)
	raised := id
	if strings.HasPrefix(version, "3.5.") {
		raised = 0 // "It isn't clear which member's data is corrupted" (CompactHashCheck in etcdserver/corrupt.go)
	}
	corrupt := observation.Alarm{MemberID: raised, Kind: observation.AlarmCorrupt}

	chapter(t, "a compaction brings it to light", func(t *testing.T) {
		for _, h := range health {
			require.Nil(t, h.Hash, "no member is asked for a hash yet")
		}
		repeat(t, c, decision.Compact{Revision: health[sick.Name].Revision - 5})
		etcdproc.Eventually(t, "the alarm is raised", func(context.Context) error {
			if m, health = look(t, c.Endpoints()); len(m.Alarms) == 0 {
				return fmt.Errorf("no alarm")
			}
			for _, member := range c.Members {
				if health[member.Name].Hash == nil {
					return fmt.Errorf("%s has told no hash: %+v", member.Name, health)
				}
			}
			return nil
		})
		assert.Equal(t, []observation.Alarm{corrupt}, m.Alarms)
	})

	chapter(t, "the hashes tell whose data it is", func(t *testing.T) {
		assert.Equal(t, health[well[0].Name].Hash, health[well[1].Name].Hash)
		other := *health[sick.Name].Hash
		assert.NotEqual(t, health[well[0].Name].Hash.Value, other.Value)
		other.Value = health[well[0].Name].Hash.Value
		assert.Equal(t, *health[well[0].Name].Hash, other, "of the same revisions")
	})

	chapter(t, "keys can be read and not written, members can be changed, no member is ready", func(t *testing.T) {
		tries(t, well[1], rpctypes.ErrCorrupt, map[string]bool{"a write": true, "a deletion": true, "a lease": true})
		require.ErrorIs(t, do(t, c, decision.Compact{Revision: health[sick.Name].Revision}), etcdops.ErrCorrupt)
		for _, member := range c.Members {
			assert.Equal(t, http.StatusServiceUnavailable, ready(member, etcdproc.Patience), member.Name)
		}
		changesOfMembers(t, c)
	})

	chapter(t, "the alarm outlives its member, and goes on blocking", func(t *testing.T) {
		settle(t, c, decision.Remove{ID: id, Name: sick.Name})
		m, health = look(t, c.Endpoints(well...))
		assert.Len(t, m.Members, 2)
		assert.Contains(t, m.Alarms, corrupt)
		require.ErrorIs(t, putMiB(t, well[0], 1, same), rpctypes.ErrCorrupt)
	})

	chapter(t, "disarmed, it is gone for good", func(t *testing.T) {
		// There may be two: while a fourth member voted, no majority of the same hash was left, and etcd raised one
		// of member 0 besides.
		for _, a := range m.Alarms {
			assert.Contains(t, []uint64{0, raised}, a.MemberID)
			require.NoError(t, new(etcdops.Etcd).Do(t.Context(), decision.Disarm{ID: a.MemberID, Kind: a.Kind}, m,
				c.Endpoints(well...)))
		}
		require.NoError(t, putMiB(t, well[0], 1, same))
		time.Sleep(3 * time.Second) // a leader compares every second
		m, health = look(t, c.Endpoints(well...))
		assert.Empty(t, m.Alarms)
		assert.Equal(t, http.StatusOK, ready(well[0], etcdproc.Patience))
		assert.Nil(t, health[well[0].Name].Hash, "no member is asked for a hash any more")
	})
}
