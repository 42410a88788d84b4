//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// loses takes members away with their claims, at once, as nodes with local disks do that burn down.
func (c *cluster) loses(members ...string) {
	c.t.Helper()
	kube(c.t, append([]string{"-n", c.ns, "delete", "pvc", "--wait=false"}, members...)...)
	kube(c.t, append([]string{"-n", c.ns, "delete", "pod", "--force", "--grace-period=0"}, members...)...)
}

// present are the keys below a prefix.
func (c *cluster) present(prefix string) map[string]bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r, err := c.client().Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(c.t, err)
	all := map[string]bool{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = true
	}
	return all
}

// follower is a member that does not lead, with its volume.
func (c *cluster) follower() (follower string, others []string) {
	c.t.Helper()
	s := c.object().Status
	for _, m := range s.Members {
		if m.Name != s.Leader && follower == "" {
			follower = m.Name
		} else {
			others = append(others, m.Name)
		}
	}
	return follower, others
}

// missing are those of the keys that are not there.
func missing(keys []string, present map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return present[key] })
}

// shares waits until a member itself has what a writer has been acknowledged by now, and returns how much that is: of what comes later, this
// member may lack what the others have acknowledged without it.
func (c *cluster) shares(member string, w *writer) int {
	c.t.Helper()
	n := w.count.Load()
	last := w.key(n)
	eventually(c.t, 30*time.Second, member+" has "+last, func() string {
		out, err := c.etcdctl(member, "get", "--consistency=s", "--keys-only", last)
		if err != nil {
			return err.Error()
		}
		if strings.TrimSpace(out) != last {
			return "it has not"
		}
		return ""
	})
	return int(n)
}

func TestALostQuorumComesBackFromASurvivor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	w.wrote(300)
	before := c.object().Status.ClusterID

	survivor, others := c.follower()
	sure := c.shares(survivor, w)
	c.loses(others...)
	w.ends()
	said := c.decides("QuorumLost", "FromSurvivor is possible", 60*time.Second)
	_, command, _ := strings.Cut(said, "FromSurvivor is possible: kubectl ")
	command, _, _ = strings.Cut(command, ";")
	kube(t, strings.Fields(command)...)

	took := c.converges(3, 180*time.Second)
	o := c.object()
	assert.Equal(t, int64(2), o.Status.Epoch)
	assert.NotEqual(t, before, o.Status.ClusterID)
	there := c.present("key")
	assert.Empty(t, missing(w.acked[:sure], there), "acknowledged and on the survivor")
	t.Logf("a lost quorum of 3 was back with 3 voters after %.1f s; of %d acknowledged writes, %d were on the survivor for sure, %d are gone", took.Seconds(), len(w.acked), sure, len(missing(w.acked, there)))
	claim, found := get[corev1.PersistentVolumeClaim](t, c.ns, "pvc", survivor)
	require.True(t, found, "the survivor's volume is kept")
	assert.NotEmpty(t, claim.Annotations[hooks.AnnotationQuarantined])
	w2 := c.writesWith(c.client(), "after")
	w2.losesNothing()
}

func TestALostQuorumComesBackByItself(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  recovery: {quorumLoss: FromSurvivor, after: 30s}")
	c.converges(3, 60*time.Second)
	w := c.writes()
	w.wrote(300)
	_, others := c.follower()
	// Killed beside their claims first: what has a volume comes back, and is no loss.
	kube(t, append([]string{"-n", c.ns, "delete", "pod", "--force", "--grace-period=0"}, others...)...)
	c.converges(3, 90*time.Second)
	require.Equal(t, int64(1), c.object().Status.Epoch)
	w.losesNothing()

	w = c.writesWith(c.client(), "second")
	w.wrote(200)
	survivor, others := c.follower()
	sure := c.shares(survivor, w)
	c.loses(others...)
	w.ends()
	c.decides("Recover", "FromSurvivor begins at", 60*time.Second)
	took := c.converges(3, 240*time.Second)
	require.Equal(t, int64(2), c.object().Status.Epoch)
	there := c.present("second")
	assert.Empty(t, missing(w.acked[:sure], there), "acknowledged and on the survivor")
	t.Logf("by itself, with 30 s of waiting: %.1f s; of %d acknowledged writes, %d were on the survivor for sure, %d are gone", took.Seconds(), len(w.acked), sure, len(missing(w.acked, there)))
}

func TestALostMemoryClusterIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {medium: Memory, size: 128Mi}\n  recovery: {quorumLoss: Recreate, after: 30s}")
	c.converges(3, 60*time.Second)
	_, others := c.follower()
	kube(t, append([]string{"-n", c.ns, "delete", "pod", "--force", "--grace-period=0"}, others...)...)
	c.decides("Recover", "Recreate begins at", 60*time.Second)
	took := c.converges(3, 180*time.Second)
	require.Equal(t, int64(2), c.object().Status.Epoch)
	assert.Empty(t, c.present("key"))
	t.Logf("a Memory cluster that lost its quorum began anew after %.1f s, with 30 s of waiting", took.Seconds())
}

func TestRestoreInPlaceAndBack(t *testing.T) {
	t.Parallel()
	s := store(t)
	c := newCluster(t, three)
	s.credentials(c)
	c.converges(3, 90*time.Second)
	w := c.writesWith(c.client(), "before")
	w.wrote(100)
	w.ends()
	taken := c.snapshots("monday", s.yaml(c.ns), 120*time.Second)
	require.False(t, taken.Status.VerifiedAt.IsZero(), taken.Status.Message)
	later := c.writesWith(c.client(), "later")
	later.wrote(100)
	later.ends()
	seen := c.revision()

	watching, stop := context.WithTimeout(t.Context(), 10*time.Minute)
	defer stop()
	watch := c.client().Watch(watching, "before", clientv3.WithPrefix(), clientv3.WithRev(seen))
	begin := time.Now()
	c.edit(`{"restore":{"id":"one","snapshot":{"name":"monday"}}}`)
	c.inEpoch(2, 180*time.Second)
	c.converges(3, 120*time.Second)
	assert.Empty(t, missing(w.acked, c.present("before")), "the snapshot has all of it")
	assert.Empty(t, c.present("later"), "written after the snapshot")
	assert.Greater(t, c.revision(), seen+500_000_000, "whoever has seen more than the snapshot must notice")
	t.Logf("restored in place after %.1f s", time.Since(begin).Seconds())
	var told error
	for r := range watch {
		if told = r.Err(); told != nil {
			break
		}
	}
	require.ErrorIs(t, told, rpctypes.ErrCompacted, "what a watcher that had seen more than the snapshot is told")

	c.edit(`{"restore":{"id":"back","snapshot":null,"epoch":1}}`)
	c.inEpoch(3, 180*time.Second)
	c.converges(3, 120*time.Second)
	assert.Empty(t, missing(later.acked, c.present("later")), "what was there before the restore is there again")
}

// inEpoch waits until the cluster is in this epoch and serves.
func (c *cluster) inEpoch(n int64, within time.Duration) {
	c.t.Helper()
	eventually(c.t, within, fmt.Sprintf("epoch %d serves", n), func() string {
		o := c.object()
		available := meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.Available)
		if o.Status.Epoch == n && available && o.Status.ClusterID != "" {
			return ""
		}
		restored := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Restored)
		if restored == nil {
			return fmt.Sprintf("epoch %d, %s", o.Status.Epoch, o.Status.Phase)
		}
		return fmt.Sprintf("epoch %d, %s, %s: %s", o.Status.Epoch, o.Status.Phase, restored.Reason, restored.Message)
	})
}

// The cause here is an image that is not there. What is said of an etcd that never elects is in test/conformance (TestAStillbirth) and the story
// bootstrap_stillborn: it takes one that dies within a millisecond of its life.
func TestABootstrapThatStallsSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  image: {repository: nowhere.invalid/etcd}\n  recovery: {after: 30s}\n")
	c.decides("Start", "within 30s (demo-0: its image can't be pulled)", 90*time.Second)
	degraded := meta.FindStatusCondition(c.object().Status.Conditions, v1alpha1.Degraded)
	require.Equal(t, "BootstrapStalled", degraded.Reason)

	_, command, _ := strings.Cut(degraded.Message, "by beginning anew: kubectl ")
	command, _, _ = strings.Cut(command, ";")
	kube(t, strings.Fields(command)...)
	eventually(t, 90*time.Second, "the first member is gone", func() string {
		if pods := c.pods(); len(pods) != 1 || pods[0].Name != "demo-1" {
			return fmt.Sprintf("%d pods", len(pods))
		}
		return ""
	})
	// Not before: the first member would come up after all, and it would be the one that is kept.
	c.edit(`{"image":{"repository":"gcr.io/etcd-development/etcd"}}`)
	c.inEpoch(2, 90*time.Second)
	c.converges(1, 60*time.Second)
	require.False(t, meta.IsStatusConditionTrue(c.object().Status.Conditions, v1alpha1.Degraded))
	require.Equal(t, "demo-1", c.pods()[0].Name)
}

func TestANewClusterBeginsWithASnapshot(t *testing.T) {
	t.Parallel()
	s := store(t)
	c := newCluster(t, three)
	s.credentials(c)
	c.converges(3, 90*time.Second)
	w := c.writes()
	w.wrote(100)
	w.ends()
	taken := c.snapshots("monday", s.yaml(c.ns), 120*time.Second)
	kube(t, "-n", c.ns, "delete", "etcdcluster", name)
	eventually(t, 60*time.Second, "the old cluster is gone", func() string {
		if left := len(c.pods()); left > 0 {
			return fmt.Sprintf("%d pods", left)
		}
		return ""
	})

	c.apply(three + fmt.Sprintf("  bootstrap: {snapshot: {url: %q, store: %s}}\n", taken.Status.URI, s.yaml(c.ns)))
	took := c.converges(3, 120*time.Second)
	assert.Empty(t, missing(w.acked, c.present("key")))
	t.Logf("three members restored a snapshot and served after %.1f s", took.Seconds())

	c.edit(`{"restore":{"id":"broken","snapshot":{"url":"` + s.url(c.ns) + `/nothing.db","store":` + fmt.Sprintf(`{"url":%q,"credentialsSecret":"s3"}`, s.url(c.ns)) + `}}}`)
	eventually(t, 90*time.Second, "the condition Restored says why not", func() string {
		restored := meta.FindStatusCondition(c.object().Status.Conditions, v1alpha1.Restored)
		if restored == nil || !strings.Contains(restored.Message, "NotFound") {
			return fmt.Sprint(restored)
		}
		return ""
	})
	w = c.writesWith(c.client(), "meanwhile")
	w.losesNothing()
	c.edit(`{"restore":null}`)
	c.converges(3, 90*time.Second)
	assert.Equal(t, int64(1), c.object().Status.Epoch)
}

func TestALostClusterComesBackFromASnapshot(t *testing.T) {
	t.Parallel()
	s := store(t)
	c := newCluster(t, three+"  recovery: {quorumLoss: FromSnapshot, after: 30s}")
	s.credentials(c)
	c.converges(3, 90*time.Second)
	w := c.writesWith(c.client(), "before")
	w.wrote(100)
	w.ends()
	c.snapshots("monday", s.yaml(c.ns), 120*time.Second)
	later := c.writesWith(c.client(), "later")
	later.wrote(100)
	later.ends()
	one, others := c.follower()
	c.loses(append(others, one)...)
	took := c.converges(3, 240*time.Second)
	require.Equal(t, int64(2), c.object().Status.Epoch)
	assert.Empty(t, missing(w.acked, c.present("before")), "the snapshot has all of it")
	assert.Empty(t, c.present("later"), "written after the newest snapshot")
	t.Logf("with every volume lost, three members were back from a snapshot after %.1f s, with 30 s of waiting", took.Seconds())
}

// hash is that of all keys and their history at a revision, as the first member tells it.
func (c *cluster) hash(revision int64) uint32 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := c.client()
	r, err := client.HashKV(ctx, client.Endpoints()[0], revision)
	require.NoError(c.t, err)
	return r.Hash
}

// TestAGibibyte: 1 GiB goes through S3 into another cluster, and is the same there.
func TestAGibibyte(t *testing.T) {
	t.Parallel()
	s := store(t)
	const spec = "  version: 3.6.16\n  replicas: 1\n  storage: {size: 3Gi}\n"
	c := newCluster(t, spec)
	s.credentials(c)
	c.converges(1, 90*time.Second)
	c.holds(1024)
	begin := time.Now()
	taken := c.snapshots("large", s.yaml(c.ns), 10*time.Minute)
	t.Logf("1 GiB was stored and restored on trial after %.1f s, %s of it", time.Since(begin).Seconds(), taken.Status.Duration.Duration)
	hash := c.hash(taken.Status.Revision)

	other := namespaced(t, c.ns+"-other")
	s.credentials(other)
	other.apply(spec + fmt.Sprintf("  bootstrap: {snapshot: {url: %q, bumpRevision: 0, store: %s}}\n", taken.Status.URI, s.yaml(c.ns)))
	took := other.converges(1, 10*time.Minute)
	t.Logf("1 GiB was restored and served after %.1f s", took.Seconds())
	assert.Equal(t, hash, other.hash(taken.Status.Revision))
	assert.Len(t, other.present("ballast"), 1024)
}

// TestTheStoreIsGoneForAWhile: what can't be stored is tried again, and says why meanwhile.
func TestTheStoreIsGoneForAWhile(t *testing.T) {
	t.Parallel()
	s, err := newS3(s3Port + 1)
	require.NoError(t, err)
	t.Cleanup(s.stop)
	s.answers(t)
	c := newCluster(t, "  version: 3.6.16\n  replicas: 1\n")
	s.credentials(c)
	c.converges(1, 90*time.Second)
	s.stop()
	c.asksFor("patient", "store: "+s.yaml(c.ns))
	eventually(t, 2*time.Minute, "the message says that the store can't be reached", func() string {
		o, _ := c.snapshot("patient")
		require.NotEqual(t, v1alpha1.SnapshotFailed, o.Status.Phase, o.Status.Message)
		if !strings.Contains(o.Status.Message, "can't be reached") {
			return o.Status.Message
		}
		return ""
	})
	require.NoError(t, s.start())
	c.ends("patient", v1alpha1.SnapshotSucceeded, 4*time.Minute)
}

// TestALostMemoryQuorumComesBackFromASurvivor: no volume can be copied, so the new members fetch what the last one has.
func TestALostMemoryQuorumComesBackFromASurvivor(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {medium: Memory, size: 256Mi}\n  recovery: {quorumLoss: FromSurvivor, after: 30s}")
	c.converges(3, 60*time.Second)
	w := c.writes()
	w.wrote(300)
	survivor, others := c.follower()
	sure := c.shares(survivor, w)
	kube(t, append([]string{"-n", c.ns, "delete", "pod", "--force", "--grace-period=0"}, others...)...)
	w.ends()
	took := c.converges(3, 180*time.Second)
	o := c.object()
	require.Equal(t, int64(2), o.Status.Epoch)
	require.NotEmpty(t, o.Status.Origin.Evidence)
	there := c.present("key")
	assert.Empty(t, missing(w.acked[:sure], there), "acknowledged and on the last member")
	t.Logf("a Memory cluster came back from its last member after %.1f s, with 30 s of waiting; of %d acknowledged writes, %d were on it for sure, %d are gone", took.Seconds(), len(w.acked), sure, len(missing(w.acked, there)))
}
