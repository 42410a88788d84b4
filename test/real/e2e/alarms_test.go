//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
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

// makesRoomInTime: a database at 90 % of its quota that has free space is defragmented before etcd refuses writes. It has
// become that large, and free space in it, before it gets the quota, which is made for the largest: etcd tells a size
// only with the next commit, and members commit in their own time.
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
	var run *v1alpha1.DefragmentationStatus
	eventually(c.t, "members have been defragmented", func() string {
		run = c.object().Status.Defragmentation
		return while(run == nil || run.Trigger != v1alpha1.TriggerNearQuota || run.CompletionTime.IsZero(),
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
	run := c.object().Status.Defragmentation
	require.NotNil(c.t, run)
	assert.Equal(c.t, v1alpha1.TriggerNoSpace, run.Trigger)
	assert.NotEmpty(c.t, run.Done, "who was near the quota; a member that lagged may not have come there")
	assert.NotZero(c.t, c.object().Status.Internal.Defragmentation.Compacted)
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
	assert.Contains(c.t, c.hasOperation("now", v1alpha1.OperationSucceeded), "3 members defragmented")
	c.converges(3)
	w.losesNothing()
	run := c.object().Status.Defragmentation
	assert.Equal(c.t, v1alpha1.TriggerRequest, run.Trigger)
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
