//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/real/paused"
)

// TestUpkeep: what clusters need in their lives, and what becomes of members that fail, told on one cluster.
func TestUpkeep(t *testing.T) {
	beside(t)
	c := newCluster(t, three)
	c.tell("Plugin", (*cluster).answersByPlugin)
	c.tell("DefragmentationOnRequest", (*cluster).defragmentsOnRequest)
	c.tell("ACorruptMemberIsReplaced", (*cluster).replacesACorruptMember)
	c.tell("ACrashingMemberIsGivenUp", (*cluster).givesACrashingMemberUp)
	c.tell("ALearnerThatComesToNothingIsTriedAgain", (*cluster).triesALearnerAgain)
	c.tell("AnEmptiedVolumeUnderLoad", (*cluster).forgetsNothing)
	c.tell("RoomIsMadeInTime", (*cluster).makesRoomInTime)
	c.tell("NoSpaceIsCleared", (*cluster).clearsNoSpace)
}

// overwrite writes values of half a MiB over the same key until etcd refuses one, n at most, and returns what it said.
func overwrite(t *testing.T, client *clientv3.Client, n int) error {
	t.Helper()
	value := strings.Repeat("x", 512<<10)
	for range n {
		if err := putting(t, client, "large", value); err != nil {
			return err
		}
	}
	return nil
}

// readyWithoutSpace waits until each member answers the kubelet's question for readiness with yes, while there is no
// space.
func (c *cluster) readyWithoutSpace() {
	c.t.Helper()
	asks := lab.httpClient()
	asks.Timeout = patience
	for _, pod := range c.pods() {
		probe := pod.Spec.Containers[0].ReadinessProbe.HTTPGet
		url := "http://" + objects.HostPort(pod.Status.PodIP, probe.Port.IntValue()) + probe.Path
		eventually(c.t, pod.Name+" is ready by "+probe.Path, func() string {
			code, said, err := page(asks, url)
			return while(err != nil || code != http.StatusOK, code, said, err) // it may be an election
		})
	}
}

// makesRoomInTime: a database at 90 % of its quota that has free space is defragmented before etcd refuses writes. It
// has become that large, and free space in it, before it gets the quota, which is made for the largest: etcd tells a
// size only with the next commit, and members commit in their own time.
func (c *cluster) makesRoomInTime() {
	client, w := c.client(), c.writes()
	require.NoError(c.t, overwrite(c.t, client, 32))
	last, err := client.Get(c.t.Context(), "large")
	require.NoError(c.t, err)
	compacts(c.t, client, last.Header.Revision, clientv3.WithCompactPhysical())
	var largest int64
	for _, pod := range c.pods() {
		largest = max(largest, c.hasCompacted(pod.Name, smallQuota/2))
	}
	c.hasQuota(largest / 95 * 100)
	var run *v1beta1.DefragmentationStatus
	eventually(c.t, "members have been defragmented", func() string {
		run = c.object().Status.Defragmentation
		return while(run == nil || run.Trigger != v1beta1.TriggerNearQuota || run.CompletionTime.IsZero(),
			fmt.Sprintf("%+v", run))
	})
	assert.NotEmpty(c.t, run.Done)
	require.NoError(c.t, overwrite(c.t, client, 10), "there is room")
	w.losesNothing()
	assert.Empty(c.t, w.refused, "etcd has raised no alarm")
}

const smallQuota = 16 << 20

func (c *cluster) hasQuota(bytes int64) {
	c.edit(fmt.Sprintf(`{"options":{"quotaBackendBytes":%d}}`, bytes))
	c.converges(3)
}

func (c *cluster) clearsNoSpace() {
	if c.object().Spec.Options.QuotaBackendBytes == nil {
		c.hasQuota(smallQuota)
	}
	started, client := c.lives(), c.client()
	c.edit(`{"suspend":true}`) // or Quorate makes room before all have been asked
	c.meets("etcdcluster/demo", "Suspended")
	require.ErrorContains(c.t, overwrite(c.t, client, 100), "database space exceeded")
	c.readyWithoutSpace()
	c.edit(`{"suspend":false}`)

	took := eventually(c.t, "etcd accepts writes again", func() string {
		if _, err := client.Put(c.t.Context(), "small", "again"); err != nil {
			return c.object().Status.Rule + ": " + err.Error()
		}
		return c.notConverged(3)
	})
	status := c.object().Status
	run := status.Defragmentation
	require.NotNil(c.t, run)
	assert.Equal(c.t, v1beta1.TriggerNoSpace, run.Trigger)
	assert.NotEmpty(c.t, run.Done, "who was near the quota; a member that lagged may not have come there")
	assert.True(c.t, slices.ContainsFunc(status.History, func(e v1beta1.HistoryEntry) bool {
		return strings.HasPrefix(e.Step, "compact to revision ")
	}), "its memory of that may be lost with a status; what it has done is not")
	require.NotNil(c.t, run.Reclaimed)
	c.t.Logf("cleared %.0f s after the first refusal, the run itself took %s and reclaimed %s", took.Seconds(),
		run.CompletionTime.Sub(run.StartTime.Time), run.Reclaimed)
	require.NoError(c.t, overwrite(c.t, client, 10), "there is room")
	assert.Equal(c.t, started, c.lives(), "no member was restarted for it")
}

func (c *cluster) defragmentsOnRequest() {
	client := c.client()
	require.NoError(c.t, overwrite(c.t, client, 60))
	last, err := client.Get(context.Background(), "large")
	require.NoError(c.t, err)
	compacts(c.t, client, last.Header.Revision, clientv3.WithCompactPhysical())

	w := c.writes() // without which etcd does not count what is free
	for _, pod := range c.pods() {
		c.hasCompacted(pod.Name, 8<<20)
	}
	c.operates("now", "type: Defragment")
	assert.Contains(c.t, c.hasOperation("now", v1beta1.OperationSucceeded), "3 members defragmented")
	c.converges(3)
	w.losesNothing()
	run := c.object().Status.Defragmentation
	assert.Equal(c.t, v1beta1.TriggerRequest, run.Trigger)
	assert.Len(c.t, run.Done, 3)
	require.NotNil(c.t, run.Reclaimed)
	assert.Positive(c.t, run.Reclaimed.Value())
	for _, pod := range c.pods() {
		eventually(c.t, pod.Name+" tells its size", func() string {
			s, err := c.endpoint(pod.Name)
			if err != nil {
				return err.Error()
			}
			assert.Less(c.t, s.DBSize, int64(10<<20), "%s had 30 MiB", pod.Name)
			return ""
		})
	}
	c.t.Logf("%s reclaimed in %s", run.Reclaimed, run.CompletionTime.Sub(run.StartTime.Time))
}

// compacts drops the history before a revision.
func compacts(t *testing.T, client *clientv3.Client, revision int64, options ...clientv3.CompactOption) {
	t.Helper()
	_, err := answered(t, func(ctx context.Context) (any, error) { return client.Compact(ctx, revision, options...) })
	if !errors.Is(err, rpctypes.ErrCompacted) { // by a request whose answer got lost
		require.NoError(t, err)
	}
}

// hasCompacted waits until less than this many bytes of a member's database are in use. Who asks for a compaction
// waits for that of one member: the others do theirs in their own time, and defragmentation can only give back what
// they have done. It returns the size of the database in bytes, with what is free in it.
func (c *cluster) hasCompacted(member string, bytes int64) (size int64) {
	c.t.Helper()
	eventually(c.t, member+" has compacted", func() string {
		s, err := c.endpoint(member)
		if err != nil || s.DBSizeInUse == 0 || s.DBSizeInUse > bytes {
			return fmt.Sprintf("%d bytes are in use: %v", s.DBSizeInUse, err)
		}
		size = s.DBSize
		return ""
	})
	return size
}

func (c *cluster) replacesACorruptMember() {
	client := c.client()
	const value = "a value that is on the disk of every member"
	for i := range 50 {
		require.NoError(c.t, putting(c.t, client, fmt.Sprintf("key-%02d", i), fmt.Sprintf("%s %02d", value, i)))
	}
	victim := c.leader() // the hardest one: it hands over first
	c.damage(victim, value+" 17", value+" 71", value+" 49")

	last, err := client.Get(context.Background(), "key-00")
	require.NoError(c.t, err)
	compacts(c.t, client, last.Header.Revision-1)
	took := eventually(c.t, victim+" was replaced", func() string {
		if _, there := c.ids()[victim]; there {
			return victim + " is still a member: " + c.object().Status.Rule
		}
		return c.notConverged(3)
	})
	c.t.Logf("replaced %.0f s after the compaction", took.Seconds())
	require.NoError(c.t, putting(c.t, client, "after", "wards"))
	for _, pod := range c.pods() {
		eventually(c.t, pod.Name+" has the data", func() string {
			out, err := c.etcdctl(pod.Name, "get", "--consistency=s", "--print-value-only", "key-17")
			if err != nil {
				return err.Error()
			}
			assert.Equal(c.t, value+" 17", strings.TrimSpace(out), pod.Name)
			return ""
		})
	}
}

// damage changes a value in a member's database, on the disk of its node, under the etcd that runs. It waits for the
// last value that was written: etcd writes to its database every 100 ms, and moves what it writes to.
func (c *cluster) damage(member, old, now, last string) {
	c.t.Helper()
	claim, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
	require.True(c.t, found)
	var volume corev1.PersistentVolume
	require.True(c.t, read(c.t, "/api/v1/persistentvolumes/"+claim.Spec.VolumeName, &volume))
	path := ""
	switch {
	case volume.Spec.HostPath != nil:
		path = volume.Spec.HostPath.Path
	case volume.Spec.Local != nil:
		path = volume.Spec.Local.Path
	}
	require.NotEmpty(c.t, path)
	// A node's disk is a folder beside the lab's kubeconfig.
	files, err := filepath.Glob(filepath.Join(filepath.Dir(os.Getenv("KUBECONFIG")), "node*", "disk", path, "data",
		"member", "snap", "db"))
	require.NoError(c.t, err)
	require.Len(c.t, files, 1, path)
	var raw []byte
	eventually(c.t, "everything is on the disk", func() string {
		if raw, err = os.ReadFile(files[0]); err != nil {
			return err.Error()
		}
		return while(!bytes.Contains(raw, []byte(last)), "the last value is not")
	})
	file, err := os.OpenFile(files[0], os.O_WRONLY, 0)
	require.NoError(c.t, err)
	defer func() { require.NoError(c.t, file.Close()) }()
	changed := 0
	for at := 0; ; changed++ {
		next := bytes.Index(raw[at:], []byte(old))
		if next < 0 {
			break
		}
		at += next
		_, err := file.WriteAt([]byte(now), int64(at))
		require.NoError(c.t, err)
		at += len(old)
	}
	require.NotZero(c.t, changed, "the value is not in the database")
}

// dataOf is the data directory of a member that runs, as this machine sees it: the lab's nodes are namespaces of it.
// Zero for one that does not run now.
func (c *cluster) dataOf(member string) (pid int, dir string) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(c.t, err)
	flag := fmt.Appendf(nil, "://%s.%s-peers.%s.svc:2380\x00", member, name, c.ns)
	atAddress := fmt.Appendf(nil, "://%s.%s@", member, c.ns) // on the hosts' network
	for _, path := range all {
		if words, err := os.ReadFile(path); err == nil && bytes.HasPrefix(words, []byte("/usr/local/bin/etcd\x00")) &&
			(bytes.Contains(words, flag) || bytes.Contains(words, atAddress)) {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, filepath.Join(filepath.Dir(path), "root/var/lib/etcd/data")
		}
	}
	return 0, ""
}

// spoil does something with a member's data, and ends its etcd at once.
func (c *cluster) spoil(member string, data func(dir string) error) {
	c.t.Helper()
	pid, dir := c.dataOf(member)
	require.NotZero(c.t, pid, "%s does not run", member)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, paused.Process(ctx, pid)) // it must not write what is taken away
	require.NoError(c.t, data(dir))
	require.NoError(c.t, syscall.Kill(pid, syscall.SIGKILL))
}

// unreadable leaves the write-ahead log as it is, and the database as no database.
func unreadable(dir string) error {
	return os.WriteFile(filepath.Join(dir, "member/snap/db"), []byte(strings.Repeat("not a database ", 10000)), 0o600)
}

func emptied(dir string) error { return os.RemoveAll(filepath.Join(dir, "member")) }

// succeeds waits until a member is gone from the list and the cluster has converged without it, and returns the name
// of its successor, which is the newest member: it may be the second that was tried, where the first took too long.
func (c *cluster) succeeds(member string, meanwhile func()) string {
	c.t.Helper()
	eventually(c.t, member+" is succeeded", func() string {
		meanwhile()
		if _, there := c.ids()[member]; there {
			return member + " is still a member: " + c.notConverged(3)
		}
		return c.notConverged(3)
	})
	number := func(member string) int { n, _ := objects.Ordinal(name, member); return n }
	successor := slices.MaxFunc(slices.Collect(maps.Keys(c.ids())),
		func(a, b string) int { return number(a) - number(b) })
	require.Greater(c.t, number(successor), number(member), "no member came in the place of %s", member)
	return successor
}

// givesACrashingMemberUp tells the cluster to be patient first, so that what it says meanwhile is there for as long
// as this takes to read it.
func (c *cluster) givesACrashingMemberUp() {
	w := c.writes()
	member, _ := c.follower()
	c.edit(`{"memberReplacement":{"after":"24h","keepVolumesFor":"24h"}}`)
	kept, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
	require.True(c.t, found)
	c.spoil(member, unreadable)
	eventually(c.t, "the message shows why", func() string {
		degraded := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Degraded)
		return while(degraded == nil || !strings.Contains(degraded.Message, "it crashes: exit"), fmt.Sprint(degraded))
	})
	c.edit(`{"memberReplacement":{"after":"30s"}}`)
	c.succeeds(member, func() {})
	claim, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
	require.True(c.t, found, "its claim is kept")
	assert.Equal(c.t, kept.UID, claim.UID)
	assert.Equal(c.t, "true", claim.Labels["etcd.quorate.dev/quarantined"])
	c.edit(`{"memberReplacement":{"keepVolumesFor":"1s"}}`)
	eventually(c.t, "the claim goes", func() string {
		_, there := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
		return while(there, "it is there")
	})
	w.losesNothing()
}

// triesALearnerAgain that comes to nothing: no node will take its pod, because of a claim of a class without a
// provisioner.
func (c *cluster) triesALearnerAgain() {
	before := c.ids()
	c.edit(`{"memberReplacement":{"after":"30s"},"replicas":4,"storage":{"storageClassName":"no-class"}}`)
	first := ""
	eventually(c.t, "a second learner is tried", func() string {
		for member := range c.ids() {
			if _, voter := before[member]; voter {
				continue
			}
			if first == "" {
				first = member
			}
			if member != first {
				return ""
			}
		}
		return fmt.Sprint(c.ids(), c.object().Status.Internal.Replacement)
	})
	assert.NotContains(c.t, c.ids(), first)
	c.edit(`{"replicas":3}`)
	eventually(c.t, "it is taken back", func() string {
		ids := c.ids()
		return while(len(ids) != 3, fmt.Sprint(ids))
	})
	assert.Equal(c.t, before, c.ids())
	c.edit(`{"memberReplacement":null,"storage":{"storageClassName":null}}`)
}

// forgetsNothing empties a voter's data under load, and that of its successor: it has joined the members that
// it was told, and the same must not happen to it.
func (c *cluster) forgetsNothing() {
	c.edit(`{"memberReplacement":{"after":"30s"}}`)
	member, _ := c.follower()
	c.staysForgotten(c.staysForgotten(member))
	c.edit(`{"memberReplacement":null}`)
}

// staysForgotten empties a voter's data directory under load, in a pod that stays. Its etcd must not begin a second
// time, not even while no other member answers it: it could vote twice, and what was acknowledged could be lost.
func (c *cluster) staysForgotten(member string) (successor string) {
	c.t.Helper()
	w := c.writesWith(c.client(), "before-"+member)
	hasNotBegun := func() {
		_, dir := c.dataOf(member)
		_, err := os.Stat(filepath.Join(dir, "member/wal"))
		assert.True(c.t, dir == "" || err != nil, "%s has begun a second time", member)
	}
	c.whileOthersAreFrozen(member, func() {
		restarts := c.etcdOf(member).RestartCount
		c.spoil(member, emptied)
		eventually(c.t, member+" is started again, and ends", func() string {
			hasNotBegun()
			etcd := c.etcdOf(member)
			return while(etcd.RestartCount == restarts || etcd.State.Running != nil, fmt.Sprintf("%+v", etcd))
		})
	})
	successor = c.succeeds(member, hasNotBegun)
	w.losesNothing()
	return successor
}

func (c *cluster) etcdOf(member string) corev1.ContainerStatus {
	c.t.Helper()
	return objects.StatusOf(c.observed(member), objects.ContainerEtcd)
}

// whileOthersAreFrozen does something while no member but this one answers.
func (c *cluster) whileOthersAreFrozen(member string, do func()) {
	c.t.Helper()
	for other := range c.ids() {
		if other == member {
			continue
		}
		pid, _ := c.dataOf(other)
		require.NotZero(c.t, pid, "%s does not run", other)
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		defer func() { assert.NoError(c.t, syscall.Kill(pid, syscall.SIGCONT)) }()
		require.NoError(c.t, paused.Process(ctx, pid))
	}
	do()
}
