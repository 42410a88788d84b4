//go:build unix

package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

const (
	refused = "unreachable: connection refused"
	silent  = "no answer in time"
)

func TestObserve(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3)
		var clusterID uint64

		chapter(t, "three healthy members tell one membership", func(t *testing.T) {
			m, health := look(t, c.Endpoints())
			clusterID = m.ClusterID
			require.Len(t, m.Members, 3)
			for i, member := range c.Members {
				entry := m.Members[slices.IndexFunc(m.Members,
					func(e observation.Member) bool { return e.Name == member.Name })]
				assert.Equal(t, observation.Member{
					ID: idOf(t, m, member), Name: member.Name, PeerURLs: []string{member.PeerURL},
					ClientURLs: []string{member.ClientURL},
				}, entry)
				h := health[fmt.Sprintf("demo-%d", i)]
				assert.True(t, h.Serving())
				assert.Equal(t, entry.ID, h.MemberID)
				assert.Equal(t, m.Leader, h.Leader)
				assert.Equal(t, version, h.Version)
				assert.Positive(t, h.RaftIndex)
				assert.Positive(t, h.DBSize)
				assert.Empty(t, h.Alarms)
			}
			t.Logf("%s: one Observe of three members takes %s (median of 20)", version,
				median(20, func() { look(t, c.Endpoints()) }))
		})

		chapter(t, "an alarm belongs to the member that raised it", func(t *testing.T) {
			m, _ := look(t, c.Endpoints())
			leader, followers := leaderAndFollowers(t, c)
			sick := idOf(t, m, followers[0])
			setAlarm(t, leader, pb.AlarmRequest_ACTIVATE, sick)
			_, health := look(t, c.Endpoints())
			for _, member := range c.Members {
				want := []string(nil)
				if member == followers[0] {
					want = []string{"NOSPACE"}
				}
				assert.Equal(t, want, health[member.Name].Alarms, member.Name)
			}
			setAlarm(t, leader, pb.AlarmRequest_DEACTIVATE, sick)
			_, health = look(t, c.Endpoints())
			assert.Empty(t, health[followers[0].Name].Alarms)
		})

		chapter(t, "another cluster at a reused address does not count", func(t *testing.T) {
			other := etcdproc.Start(t, version, "other", 1)
			endpoints := c.Endpoints()
			endpoints[0].ClientURL = other.Members[0].ClientURL
			m, health := look(t, endpoints)
			assert.Equal(t, clusterID, m.ClusterID)
			assert.Contains(t, health["demo-0"].Err, etcdops.ErrOtherEtcd.Error())
			assert.True(t, health["demo-1"].Serving())

			m, health = new(etcdops.Etcd).Observe(t.Context(), endpoints[:1])
			assert.Nil(t, m, "a stranger's own list does not count either")
			assert.Contains(t, health["demo-0"].Err, etcdops.ErrOtherEtcd.Error())
		})

		leader, followers := leaderAndFollowers(t, c)

		chapter(t, "a member that is refused costs no time", func(t *testing.T) {
			followers[0].Kill()
			d, health := timedLook(t, c)
			t.Logf("it took %s", d)
			assert.Equal(t, observation.Health{Err: refused}, health[followers[0].Name])
			followers[0].Restart()
			c.WaitServing(c.Members...)
		})

		chapter(t, "a paused follower costs one timeout", func(t *testing.T) {
			followers[0].Pause()
			d, health := timedLook(t, c)
			followers[0].Resume()
			assert.GreaterOrEqual(t, d, etcdops.DefaultTimeout)
			t.Logf("it took %s", d)
			assert.Equal(t, observation.Health{Err: silent}, health[followers[0].Name])
		})

		chapter(t, "a paused leader costs three timeouts at most, and another is found", func(t *testing.T) {
			leader, _ = leaderAndFollowers(t, c)
			leader.Pause()
			d, _, health := timed(c)
			t.Logf("it took %s", d)
			assert.Equal(t, observation.Health{Err: silent}, health[leader.Name])
			etcdproc.Eventually(t, "another member leads", func(ctx context.Context) error {
				m, _ := new(etcdops.Etcd).Observe(ctx, c.Endpoints())
				return while(m == nil || m.Leader == 0 || m.Leader == idOf(t, m, leader), "%+v", m)
			})
			leader.Resume()
			c.WaitServing(c.Members...)
		})

		chapter(t, "with two of three down we are blind and told why", func(t *testing.T) {
			leader, followers = leaderAndFollowers(t, c)
			followers[0].Kill()
			followers[1].Kill()
			etcdproc.Eventually(t, "the last one notices", func(ctx context.Context) error {
				m, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints())
				assert.Nil(t, m)
				assert.Equal(t, refused, health[followers[0].Name].Err)
				assert.Equal(t, refused, health[followers[1].Name].Err)
				h := health[leader.Name]
				return while(h.Err != "" || h.Serving(), "%+v", h)
			})
			d, m, _ := timed(c)
			assert.Nil(t, m)
			t.Logf("no member follows a leader, so the list is not asked for: it took %s", d)
		})

		chapter(t, "a member that starts without a quorum takes connections and says nothing", func(t *testing.T) {
			leader.Kill()
			leader.Restart()
			etcdproc.Eventually(t, "it takes connections", func(ctx context.Context) error {
				m, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints(leader))
				assert.Nil(t, m)
				h := health[leader.Name]
				return while(h.Err != silent, "%+v", h)
			})
		})

		chapter(t, "the membership comes back with the quorum", func(t *testing.T) {
			followers[0].Restart()
			m, _ := look(t, c.Endpoints())
			assert.Equal(t, clusterID, m.ClusterID)
			assert.Len(t, m.Members, 3)
		})
	})
}

func timed(c *etcdproc.Cluster) (time.Duration, *observation.Membership, map[string]observation.Health) {
	began := time.Now()
	m, health := new(etcdops.Etcd).Observe(context.Background(), c.Endpoints())
	return time.Since(began), m, health
}

// timedLook is the first Observe that finds a quorum, and its time. A busy machine may cost the members a leader for
// a moment, and then there is nothing to find.
func timedLook(t *testing.T, c *etcdproc.Cluster) (took time.Duration, health map[string]observation.Health) {
	t.Helper()
	etcdproc.Eventually(t, "a quorum answers", func(context.Context) (err error) {
		var m *observation.Membership
		if took, m, health = timed(c); m == nil {
			err = fmt.Errorf("%+v", health)
		}
		return err
	})
	return took, health
}

func median(n int, f func()) time.Duration {
	var all []time.Duration
	for range n {
		began := time.Now()
		f()
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[n/2]
}

// setAlarm raises or disarms a NOSPACE alarm in a member's name. etcd's API allows that without a full disk.
func setAlarm(t *testing.T, through *etcdproc.Member, action pb.AlarmRequest_AlarmAction, id uint64) {
	t.Helper()
	client := through.Client()
	_, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(),
		&pb.AlarmRequest{Action: action, MemberID: id, Alarm: pb.AlarmType_NOSPACE})
	require.NoError(t, err)
}

// TestClientURLs: what spec.memberService takes for granted. A member publishes its client URLs at each start, under
// the ID that it has; etcd sorts them, so that no order can be told; and a client that takes its endpoints from the
// list works while some of them lead nowhere.
func TestClientURLs(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		c := etcdproc.Start(t, version, "demo", 3)
		m := c.Members[1]
		outside := []string{"http://demo-1.etcd.example.com:31234", "http://0.etcd.example.com:31234"}
		before := listed(t, c.Members[0])
		restartWith := func(urls ...string) {
			m.Stop()
			flag := "--advertise-client-urls=" + m.ClientURL
			for _, u := range urls {
				flag += "," + u
			}
			m.Become(version, flag)
			m.Restart()
			c.WaitServing(c.Members...)
		}
		published := func(want ...string) {
			slices.Sort(want)
			etcdproc.Eventually(t, "the list has the member's URLs", func(context.Context) error {
				has := listed(t, c.Members[0])[m.Name]
				return while(!slices.Equal(has.urls, want), "%v", has.urls)
			})
		}
		chapter(t, "a member that starts with another client URL publishes it, and stays the same member",
			func(t *testing.T) {
				restartWith(outside[0])
				published(m.ClientURL, outside[0])
				assert.Equal(t, before[m.Name].id, listed(t, c.Members[0])[m.Name].id)
			})
		chapter(t, "URLs are sorted, whatever the order in the flag", func(t *testing.T) {
			restartWith(outside...)
			published(append(outside, m.ClientURL)...)
		})
		chapter(t, "a client that syncs has all of them, and works beside those that lead nowhere", func(t *testing.T) {
			client := c.Members[0].Client()
			require.NoError(t, client.Sync(t.Context()))
			assert.ElementsMatch(t, append(outside, c.Members[0].ClientURL, m.ClientURL, c.Members[2].ClientURL),
				client.Endpoints())
			for i := range 20 {
				etcdproc.Eventually(t, "a write is taken", func(ctx context.Context) error {
					_, err := client.Put(ctx, fmt.Sprintf("key-%d", i), "x")
					return err
				})
			}
		})
		chapter(t, "they are gone with its next start", func(t *testing.T) {
			restartWith()
			published(m.ClientURL)
		})
	})
}

type entry struct {
	id   uint64
	urls []string
}

// listed is the member list, by name, as this member tells it.
func listed(t *testing.T, m *etcdproc.Member) map[string]entry {
	t.Helper()
	client := m.Client()
	all := map[string]entry{}
	etcdproc.Eventually(t, "the members are listed", func(ctx context.Context) error {
		list, err := client.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, one := range list.Members {
			all[one.GetName()] = entry{one.GetID(), one.GetClientURLs()}
		}
		return nil
	})
	return all
}

// TestObserveAgain: kept connections tell what new ones tell, with TLS and in plain text, until a member restarts.
func TestObserveAgain(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		s := startSecured(t, version, "kept", 3, simple)
		plain := etcdproc.Start(t, version, "plain", 1)
		for name, c := range map[string]struct {
			etcd *etcdops.Etcd
			of   *etcdproc.Cluster
		}{"TLS": {s.quorate(), s.Cluster}, "plain text": {new(etcdops.Etcd), plain}} {
			etcdproc.Eventually(t, "a quorum answers", func(ctx context.Context) error {
				m, health := c.etcd.Observe(ctx, c.of.Endpoints())
				return while(m == nil || m.Leader == 0, "%+v", health)
			})
			again := c.etcd.Again(c.of.Endpoints())
			defer again.Close()
			for range 3 {
				m, health := c.etcd.Observe(t.Context(), c.of.Endpoints())
				ours, theirs := again.Observe(t.Context())
				assert.Equal(t, m, ours, name)
				for member, h := range theirs {
					now := health[member]
					now.RaftIndex = h.RaftIndex // an election or a compaction may add an entry
					now.DBSize = h.DBSize
					now.DBSizeInUse = h.DBSizeInUse
					assert.Equal(t, now, h, name)
				}
			}
			t.Logf("%s, %s: kept %s, new %s (median of 20)", version, name,
				median(20, func() { again.Observe(t.Context()) }),
				median(20, func() { c.etcd.Observe(t.Context(), c.of.Endpoints()) }))
			c.of.Members[0].Stop()
			_, health := again.Observe(t.Context())
			assert.NotEmpty(t, health[c.of.Endpoints()[0].Name].Err, name)
		}
	})
}
