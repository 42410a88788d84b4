//go:build unix && releases

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// minorOf is the version that a cluster of this one has, such as 3.6.0.
func minorOf(version string) string {
	return version[:strings.LastIndex(version, ".")] + ".0"
}

// clusterVersion is what a member takes for the version of the cluster.
func clusterVersion(m *etcdproc.Member) string {
	_, text, err := page(context.Background(), nil, m.ClientURL+"/version")
	if err != nil {
		return err.Error()
	}
	var said struct{ Etcdcluster string }
	_ = json.Unmarshal([]byte(text), &said)
	return said.Etcdcluster
}

// downgradeEnabled is whether a member believes that a downgrade is enabled: 3.5 says so to its peers only.
func downgradeEnabled(m *etcdproc.Member) string {
	_, text, err := page(context.Background(), nil, m.PeerURL+"/downgrade/enabled")
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(text)
}

// tells waits until every member tells that the cluster and its data have this version. Etcd 3.5 has no version of
// data.
func tells(t *testing.T, c *etcdproc.Cluster, version string) {
	t.Helper()
	began := time.Now()
	etcdproc.Eventually(t, "the cluster is at "+version,
		func(ctx context.Context) error { return allTell(ctx, c, version) })
	t.Logf("the cluster is at %s after %s", version, time.Since(began))
}

func allTell(ctx context.Context, c *etcdproc.Cluster, version string) error {
	_, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints())
	for _, m := range c.Members {
		h := health[m.Name]
		if h.StorageVersion != version && !strings.HasPrefix(h.Version, "3.5.") || clusterVersion(m) != version {
			return fmt.Errorf("%s: %+v, cluster %s", m.Name, h, clusterVersion(m))
		}
	}
	return nil
}

// stays makes sure that the cluster keeps a version: a leader looks every 4 seconds (monitorVersionInterval in
// etcdserver/server.go).
func stays(t *testing.T, c *etcdproc.Cluster, version string) {
	t.Helper()
	time.Sleep(5 * time.Second)
	require.NoError(t, allTell(t.Context(), c, version))
}

// downgrading is where the members say that a downgrade goes, once they all say the same: a follower may learn it
// later. Those of 3.5 say nothing.
func downgrading(t *testing.T, c *etcdproc.Cluster) (target string) {
	t.Helper()
	etcdproc.Eventually(t, "the members agree on where they go", func(context.Context) error {
		_, health := look(t, c.Endpoints())
		targets := map[string]bool{}
		target = ""
		for _, h := range health {
			if h.Err == "" && !strings.HasPrefix(h.Version, "3.5.") {
				targets[h.Downgrade], target = true, h.Downgrade
			}
		}
		return while(len(targets) > 1, "%+v", health)
	})
	return target
}

// ended waits until no member believes in a downgrade any more.
func ended(t *testing.T, c *etcdproc.Cluster) {
	t.Helper()
	began := time.Now()
	etcdproc.Eventually(t, "the downgrade ends", func(context.Context) error {
		for _, m := range c.Members {
			if said := downgradeEnabled(m); said != "false" {
				return fmt.Errorf("%s: %s", m.Name, said)
			}
		}
		return nil
	})
	t.Logf("the downgrade ends after %s", time.Since(began))
}

// enable lets the cluster go down, and waits until it has.
func enable(t *testing.T, c *etcdproc.Cluster, version string) {
	t.Helper()
	repeat(t, c, decision.EnableDowngrade{Version: minorOf(version)})
	tells(t, c, minorOf(version))
}

// snapshot makes every member of 3.6 write a snapshot to its disk: that happens when the version of the cluster goes
// down (ClusterVersionSet in 3.6's etcdserver/apply/apply.go).
func snapshot(t *testing.T, c *etcdproc.Cluster) {
	t.Helper()
	enable(t, c, "3.5.0")
	repeat(t, c, decision.CancelDowngrade{})
	tells(t, c, "3.6.0")
}

// restartAs ends a member and starts it on its data with another version.
func restartAs(t *testing.T, c *etcdproc.Cluster, m *etcdproc.Member, version string) {
	t.Helper()
	m.Stop()
	m.Become(version, quiet(t, version)...)
	m.Restart()
	c.WaitServing(m)
}

// A writer writes until it is told to stop, and keeps what was acknowledged.
type writer struct {
	client  *clientv3.Client
	stop    context.CancelFunc
	done    sync.WaitGroup
	keys    []string
	failed  int
	longest time.Duration
}

func write(t *testing.T, c *etcdproc.Cluster) *writer {
	t.Helper()
	var urls []string
	for _, m := range c.Members {
		urls = append(urls, m.ClientURL)
	}
	client := c.Members[0].ClientOf(clientv3.Config{}, "root")
	client.SetEndpoints(urls...)
	ctx, stop := context.WithCancel(context.Background())
	w := &writer{client: client, stop: stop}
	t.Cleanup(func() { stop(); w.done.Wait(); _ = client.Close() })
	w.done.Go(func() {
		last := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			key := fmt.Sprintf("written-%06d", i)
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := client.Put(call, key, "value")
			cancel()
			switch {
			case err == nil:
				w.keys = append(w.keys, key)
				w.longest = max(w.longest, time.Since(last))
				last = time.Now()
			case ctx.Err() == nil:
				w.failed++
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	return w
}

// allThere ends the writer: whatever was acknowledged is there.
func (w *writer) allThere(t *testing.T) {
	t.Helper()
	w.stop()
	w.done.Wait()
	found, err := w.client.Get(t.Context(), "written-", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	there := map[string]bool{}
	for _, kv := range found.Kvs {
		there[string(kv.Key)] = true
	}
	for _, key := range w.keys {
		require.True(t, there[key], key)
	}
	assert.NotEmpty(t, w.keys)
	t.Logf("%d keys written, %d calls failed, the longest pause %s", len(w.keys), w.failed, w.longest)
}

// leaderLast are the members in the order in which they are restarted.
func leaderLast(t *testing.T, c *etcdproc.Cluster) []*etcdproc.Member {
	t.Helper()
	leader, followers := leaderAndFollowers(t, c)
	return append(followers, leader)
}

// eachStep tells a story once per pair of neighbouring versions.
func eachStep(t *testing.T, story func(t *testing.T, low, high string)) {
	t.Parallel()
	for i, high := range etcdproc.Versions[1:] {
		low := etcdproc.Versions[i]
		t.Run(low+" and "+high, func(t *testing.T) {
			t.Parallel()
			story(t, low, high)
		})
	}
}

// TestAllTheWayUpAndDown: member by member, on the same directories, under a client that writes.
func TestAllTheWayUpAndDown(t *testing.T) {
	if testing.Short() {
		t.Skip("restarts twelve members and waits for etcd's timers")
	}
	t.Parallel()
	versions := etcdproc.Versions
	c := etcdproc.Start(t, versions[0], "demo", 3, quiet(t, versions[0])...)
	w := write(t, c)
	for i, version := range versions[1:] {
		chapter(t, "up to "+version, func(t *testing.T) {
			for _, m := range leaderLast(t, c) {
				require.NoError(t, allTell(t.Context(), c, minorOf(versions[i])),
					"nothing has changed before the last member")
				restartAs(t, c, m, version)
			}
			tells(t, c, minorOf(version))
			if i == 0 {
				snapshot(t, c) // or 3.7 could not read the log: see TestEntriesOf35
			}
		})
	}
	for _, version := range []string{versions[1], versions[0]} {
		chapter(t, "down to "+version, func(t *testing.T) {
			require.ErrorIs(t, do(t, c, decision.EnableDowngrade{Version: "3.2.0"}), etcdops.ErrDowngradeTarget)
			repeat(t, c, decision.EnableDowngrade{Version: minorOf(version)})
			assert.Equal(t, minorOf(version), downgrading(t, c))
			repeat(t, c, decision.EnableDowngrade{Version: minorOf(version)}) // twice is once
			tells(t, c, minorOf(version))
			repeat(t, c, decision.EnableDowngrade{Version: minorOf(version)}) // also when it has come down
			for _, m := range leaderLast(t, c) {
				assert.Equal(t, minorOf(version), downgrading(t, c))
				restartAs(t, c, m, version)
			}
			ended(t, c)
			repeat(t, c, decision.CancelDowngrade{}) // there is nothing to cancel
			require.NoError(t, allTell(t.Context(), c, minorOf(version)))
		})
	}
	w.allThere(t)
}

// TestEntriesOf35: etcd 3.5 writes an entry into the log at each of its starts that 3.7 cannot read (publish in 3.5's
// etcdserver/server.go, a request of etcd's API 2). A cluster that has come from 3.5 needs a snapshot behind these,
// on the disk of every member, before 3.7 starts on it.
func TestEntriesOf35(t *testing.T) {
	const words = "unmarshal should never fail"
	t.Parallel()
	c := etcdproc.Start(t, "3.5.35", "demo", 1, quiet(t, "3.5.35")...)
	m := c.Members[0]
	restartAs(t, c, m, "3.6.16")
	tells(t, c, "3.6.0")

	chapter(t, "a new member of 3.7 panics on them", func(t *testing.T) {
		learner := c.NewMember("too-early")
		learner.Become("3.7.3", quiet(t, "3.7.3")...)
		settle(t, c, add(learner))
		on, _ := look(t, c.Endpoints(m))
		c.Join(learner, m)
		ends(t, learner, words)
		settle(t, c, decision.Remove{ID: idOf(t, on, learner), Name: learner.Name})
		c.Members = c.Members[:1]
	})
	chapter(t, "so does the member itself", func(t *testing.T) {
		m.Stop()
		m.Become("3.7.3", quiet(t, "3.7.3")...)
		m.Restart()
		ends(t, m, words)
	})
	chapter(t, "3.6 goes on with the same directory", func(t *testing.T) { restartAs(t, c, m, "3.6.16") })
	chapter(t, "a downgrade that the cluster follows makes the snapshot", func(t *testing.T) {
		snapshot(t, c)
		assert.True(t, joins(t, c, "in-time", "3.7.3"))
		restartAs(t, c, m, "3.7.3")
		tells(t, c, "3.7.0")
	})
}

// TestALowerVersionIsRefused: without the protocol, the process ends, and the directory is good for the higher version.
func TestALowerVersionIsRefused(t *testing.T) {
	words := map[string]string{"3.5.35": "server version is lower than determined cluster version",
		"3.6.16": `version \"3.7.0\" is not supported`}
	eachStep(t, func(t *testing.T, low, high string) {
		c := etcdproc.Start(t, high, "demo", 3, quiet(t, high)...)
		tells(t, c, minorOf(high))
		_, followers := leaderAndFollowers(t, c)
		m := followers[0]
		m.Stop()
		m.Become(low, quiet(t, low)...)
		m.Restart()
		assert.Equal(t, 1, m.ExitCode(etcdproc.Patience))
		assert.True(t, m.Said(words[low]))
		restartAs(t, c, m, high)
		tells(t, c, minorOf(high))
	})
}

// TestADowngradeTakenBack: with one of three down, the cluster stays low until that one is up again.
func TestADowngradeTakenBack(t *testing.T) {
	eachStep(t, func(t *testing.T, low, high string) {
		c := etcdproc.Start(t, high, "demo", 3, quiet(t, high)...)
		tells(t, c, minorOf(high))
		w := write(t, c)
		enable(t, c, low)
		_, followers := leaderAndFollowers(t, c)
		m := followers[0]
		restartAs(t, c, m, low)

		chapter(t, "cancelled, nothing changes while a member is low", func(t *testing.T) {
			repeat(t, c, decision.CancelDowngrade{})
			assert.Empty(t, downgrading(t, c))
			stays(t, c, minorOf(low))
		})
		chapter(t, "that member may start again as it is", func(t *testing.T) { restartAs(t, c, m, low) })
		chapter(t, "and with the higher version, which the cluster then has again", func(t *testing.T) {
			restartAs(t, c, m, high)
			tells(t, c, minorOf(high))
		})
		w.allThere(t)
	})
}

// TestAnUpgradeTakenBack: before the last member, the old version starts on the directories of the new one, and needs
// no protocol.
func TestAnUpgradeTakenBack(t *testing.T) {
	eachStep(t, func(t *testing.T, low, high string) {
		c := etcdproc.Start(t, low, "demo", 3, quiet(t, low)...)
		tells(t, c, minorOf(low))
		w := write(t, c)
		members := leaderLast(t, c)
		restartAs(t, c, members[0], high)
		restartAs(t, c, members[1], high)
		m, _ := look(t, c.Endpoints())
		repeat(t, c, decision.MoveLeader{To: idOf(t, m, members[0]), Name: members[0].Name})
		stays(t, c, minorOf(low))
		restartAs(t, c, members[1], low)
		restartAs(t, c, members[0], low)
		w.allThere(t)
	})
}

// TestALowLeader: one of 3.6 waits for the last member before it ends a downgrade; one of 3.5 asks for the versions
// of the cluster that the members know, and not for their own (isMatchedVersions in 3.5's
// etcdserver/cluster_util.go): it ends it at once. The others may go down all the same.
func TestALowLeader(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for etcd's timers")
	}
	eachStep(t, func(t *testing.T, low, high string) {
		c := etcdproc.Start(t, high, "demo", 3, quiet(t, high)...)
		tells(t, c, minorOf(high))
		enable(t, c, low)
		members := leaderLast(t, c)
		restartAs(t, c, members[0], low)
		m, _ := look(t, c.Endpoints())
		repeat(t, c, decision.MoveLeader{To: idOf(t, m, members[0]), Name: members[0].Name})
		if strings.HasPrefix(low, "3.5.") {
			ended(t, c)
		} else {
			time.Sleep(6 * time.Second) // it looks every 5 s (DefaultDowngradeCheckTime in embed/config.go)
			assert.Equal(t, minorOf(low), downgrading(t, c))
		}
		require.NoError(t, allTell(t.Context(), c, minorOf(low)))
		restartAs(t, c, members[1], high)
		restartAs(t, c, members[1], low)
		restartAs(t, c, members[2], low)
		ended(t, c)
		require.NoError(t, allTell(t.Context(), c, minorOf(low)))
	})
}

// joins adds a learner of a version, and says whether its process joins. If so, it votes, and is removed again.
func joins(t *testing.T, c *etcdproc.Cluster, name, version string) (joined bool) {
	t.Helper()
	others := slices.Clone(c.Members)
	learner := c.NewMember(name)
	learner.Become(version, quiet(t, version)...)
	settle(t, c, add(learner))
	m, _ := look(t, c.Endpoints())
	id := idOf(t, m, learner)
	c.Join(learner, others...)
	etcdproc.Eventually(t, name+" serves or ends", func(ctx context.Context) error {
		_, health := new(etcdops.Etcd).Observe(ctx, c.Endpoints(learner))
		joined = health[name].Serving()
		return while(!joined && learner.Running(), "%+v", health)
	})
	if joined {
		settle(t, c, decision.Promote{ID: id, Name: name})
	}
	settle(t, c, decision.Remove{ID: id, Name: name})
	learner.Kill()
	c.Members = others
	return joined
}

// TestANewMemberInADowngrade: while one is enabled, no process joins, of neither version: it asks for a cluster one
// above its own version, and that has come down already (allowedVersionRange in etcdserver/cluster_util.go).
func TestANewMemberInADowngrade(t *testing.T) {
	if testing.Short() {
		t.Skip("adds six members")
	}
	eachStep(t, func(t *testing.T, low, high string) {
		c := etcdproc.Start(t, high, "demo", 3, quiet(t, high)...)
		tells(t, c, minorOf(high))
		enable(t, c, low)
		chapter(t, "before the first member is down", func(t *testing.T) {
			assert.False(t, joins(t, c, "low-0", low))
			assert.False(t, joins(t, c, "high-0", high))
		})
		_, followers := leaderAndFollowers(t, c)
		restartAs(t, c, followers[0], low)
		chapter(t, "midway", func(t *testing.T) {
			assert.False(t, joins(t, c, "low-1", low))
			assert.False(t, joins(t, c, "high-1", high))
		})
		chapter(t, "cancelled midway, both join", func(t *testing.T) {
			repeat(t, c, decision.CancelDowngrade{})
			assert.True(t, joins(t, c, "low-2", low))
			assert.True(t, joins(t, c, "high-2", high))
		})
	})
}

// TestANewMemberInAnUpgrade: before the first member is up, and midway, one of the higher version joins, and one of
// the lower.
func TestANewMemberInAnUpgrade(t *testing.T) {
	if testing.Short() {
		t.Skip("adds three members")
	}
	eachStep(t, func(t *testing.T, low, high string) {
		c := etcdproc.Start(t, low, "demo", 3, quiet(t, low)...)
		tells(t, c, minorOf(low))
		assert.True(t, joins(t, c, "high-0", high))
		restartAs(t, c, leaderLast(t, c)[0], high)
		assert.True(t, joins(t, c, "high-1", high))
		assert.True(t, joins(t, c, "low-1", low))
		require.NoError(t, allTell(t.Context(), c, minorOf(low)))
	})
}

// TestFlagsOfAnotherVersion: whether an image alone may be changed, and the flags stay.
func TestFlagsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	starts := map[string]bool{"3.5.35 3.6.16": true, "3.6.16 3.7.3": true, "3.7.3 3.6.16": true}
	for _, of := range etcdproc.Versions {
		for _, on := range etcdproc.Versions {
			if of == on {
				continue
			}
			for name, spec := range map[string]v1beta1.EtcdClusterSpec{
				"plain": {TLS: v1beta1.TLSSpec{Mode: v1beta1.TLSDisabled}}, "TLS": {}} {
				t.Run(fmt.Sprintf("of %s on %s %s", of, on, name), func(t *testing.T) {
					t.Parallel()
					if starts[of+" "+on] {
						etcdproc.Start(t, on, "demo", 1, flagsOf(t, of, spec)...)
						return
					}
					c := etcdproc.Start(t, on, "demo", 0, flagsOf(t, of, spec)...)
					m := c.NewMember("demo-0")
					c.Bootstrap(m, m)
					assert.Equal(t, 2, m.ExitCode(etcdproc.Patience))
					assert.NoDirExists(t, m.DataDir(), "it has not checked its data")
				})
			}
		}
	}
}

// TestDamageThatIsNotSeen: 3.5 without a snapshot on its disk asks no other member when it starts (TestDamageAtAStart).
func TestDamageThatIsNotSeen(t *testing.T) {
	t.Parallel()
	const version = "3.5.35"
	c := etcdproc.Start(t, version, "demo", 3, impatient(t, version)...)
	_, followers := leaderAndFollowers(t, c)
	damage(t, followers[0])
	followers[0].Stop()
	followers[0].Restart()
	c.WaitServing(followers[0])
}
