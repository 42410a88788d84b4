//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
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

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// loses takes members away with their claims, at once, as nodes with local disks do that burn down.
func (c *cluster) loses(members ...string) {
	c.t.Helper()
	c.deletes("pvc", members...)
	c.kills(members...)
}

// present are the keys below a prefix.
func (c *cluster) present(prefix string) map[string]bool {
	c.t.Helper()
	r, err := getting(c.t, c.client(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
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

// shares waits until a member itself has what a writer has been acknowledged by now, and returns how much that is: of
// what comes later, this member may lack what the others have acknowledged without it.
func (c *cluster) shares(member string, w *writer) int {
	c.t.Helper()
	n := w.count.Load()
	last := w.key(n)
	pod := c.observed(member)
	// as the application: where auth is on, etcdctl in the pod may read nothing
	client := c.clientWith(rereading(c.ns, name+"-client-tls"), objects.HostPort(pod.Status.PodIP, objects.ClientPort))
	eventually(c.t, member+" has "+last, func() string {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		r, err := client.Get(ctx, last, clientv3.WithSerializable(), clientv3.WithCountOnly())
		switch {
		case err != nil:
			return err.Error()
		case r.Count == 0:
			return "it has not"
		}
		return ""
	})
	return int(n)
}

// TestEpochs: quorums and data that are lost, and come back, told on one cluster.
func TestEpochs(t *testing.T) {
	beside(t)
	s := store(t)
	c := newCluster(t, three+"  storage: {size: 1Gi}\n")
	s.credentials(c)
	c.tell("Snapshot", (*cluster).isStoredOnAClaim)
	c.tell("ANewClusterBeginsWithASnapshot", s.beginsACluster)
	c.tell("RestoreInPlaceAndBack", s.restoresInPlaceAndBack)
	c.tell("ALostQuorumComesBackFromASurvivor", (*cluster).comesBackFromASurvivor)
	c.tell("ALostQuorumComesBackByItself", (*cluster).comesBackByItself)
	c.tell("ALostClusterComesBackFromASnapshot", s.bringsALostClusterBack)
	c.tell("ANewClusterBeginsWithTheNewestSnapshotOrEmpty", s.beginsWithTheNewest)
}

func (c *cluster) comesBackFromASurvivor() {
	before := c.object().Status
	w, survivor, sure := c.losesItsQuorum(c.loses)
	said := c.decides("QuorumLost", "FromSurvivor is possible")
	require.Contains(c.t, said, fmt.Sprintf(": kubectl quorate recover -n %s demo FromSurvivor;", c.ns))
	c.operates("recover", fmt.Sprintf("type: Recover, recover: {epoch: %d, policy: FromSurvivor}", before.Epoch))

	c.survived(before.Epoch, w, sure)
	c.hasOperation("recover", v1beta1.OperationSucceeded)
	assert.NotEqual(c.t, before.ClusterID, c.object().Status.ClusterID)
	claim, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", survivor)
	require.True(c.t, found, "the survivor's volume is kept")
	assert.NotEmpty(c.t, claim.Annotations[objects.AnnotationQuarantined])
	c.writesWith(c.client(), "after").losesNothing()
}

// hasWritten is a writer that has ended.
func (c *cluster) hasWritten(word string) *writer {
	c.t.Helper()
	w := c.writesWith(c.client(), word)
	w.wrote(30)
	w.ends()
	return w
}

// losesItsQuorum under a writer: one follower is left, which has at least so much of what was acknowledged.
func (c *cluster) losesItsQuorum(takes func(members ...string)) (w *writer, survivor string, sure int) {
	c.t.Helper()
	w = c.writesWith(c.client(), c.word()+"-until-then")
	w.wrote(30)
	survivor, others := c.follower()
	sure = c.shares(survivor, w)
	takes(others...)
	w.ends()
	return w, survivor, sure
}

// survived waits until the cluster has come back after an epoch, with what was acknowledged and shared with the
// survivor for sure.
func (c *cluster) survived(epoch int64, w *writer, sure int) {
	c.t.Helper()
	begin := time.Now()
	c.afterEpoch(epoch)
	c.converges(3)
	there := c.present(w.word)
	assert.Empty(c.t, missing(w.acked[:sure], there), "acknowledged and on the survivor")
	c.t.Logf("back with 3 voters after %.1f s; of %d acknowledged writes, %d were on the survivor for sure, %d are "+
		"gone", time.Since(begin).Seconds(), len(w.acked), sure, len(missing(w.acked, there)))
}

func (c *cluster) comesBackByItself() {
	epoch := c.object().Status.Epoch
	c.edit(`{"recovery":{"quorumLoss":"FromSurvivor","after":"30s"}}`)
	w := c.writes()
	w.wrote(30)
	_, others := c.follower()
	// Killed beside their claims first: what has a volume comes back, and is no loss.
	c.kills(others...)
	c.converges(3)
	require.Equal(c.t, epoch, c.object().Status.Epoch)
	w.losesNothing()

	w, _, sure := c.losesItsQuorum(c.loses)
	c.survived(epoch, w, sure)
}

// comesBackFromALastMember: no volume can be copied, so the new members fetch what the last one has.
func (c *cluster) comesBackFromALastMember() {
	epoch := c.object().Status.Epoch
	c.edit(`{"recovery":{"quorumLoss":"FromSurvivor","after":"30s"}}`)
	w, _, sure := c.losesItsQuorum(c.kills)
	c.survived(epoch, w, sure)
	require.NotEmpty(c.t, c.object().Status.Origin.Evidence)
}

func (c *cluster) isRecreated() {
	epoch := c.object().Status.Epoch
	c.edit(`{"recovery":{"quorumLoss":"Recreate","after":"30s"}}`)
	c.put("of the former cluster")
	_, others := c.follower()
	c.kills(others...)
	c.afterEpoch(epoch)
	c.converges(3)
	assert.Empty(c.t, c.present("key"))
}

func (bucket *s3) restoresInPlaceAndBack(c *cluster) {
	epoch := c.object().Status.Epoch
	w := c.hasWritten("before")
	taken := c.snapshots("tuesday", bucket.yaml(c.ns)+", deletionPolicy: Delete")
	require.False(c.t, taken.Status.VerificationTime.IsZero(), taken.Status.Message)
	later := c.hasWritten("later")
	seen := c.revision()

	watching, stop := context.WithTimeout(c.t.Context(), patience)
	defer stop()
	watch := c.client().Watch(watching, "before", clientv3.WithPrefix(), clientv3.WithRev(seen))
	begin := time.Now()
	c.operates("one", "type: Restore, restore: {snapshot: {snapshotRef: {name: tuesday}}}")
	eventually(c.t, "the snapshot is in use", func() string {
		s, _ := c.snapshot("tuesday")
		return while(len(s.Status.UsedBy) == 0 && c.object().Status.Epoch == epoch, "not yet")
	})
	c.kube("delete", "etcdsnapshot", "tuesday", "--wait=false")
	restored := c.afterEpoch(epoch)
	c.converges(3)
	assert.Empty(c.t, missing(w.acked, c.present("before")), "the snapshot has all of it")
	assert.Empty(c.t, c.present("later"), "written after the snapshot")
	assert.Greater(c.t, c.revision(), seen+500_000_000, "a client that has seen more than the snapshot must notice")
	c.t.Logf("restored in place after %.1f s", time.Since(begin).Seconds())
	var told error
	for r := range watch {
		if told = r.Err(); told != nil {
			break
		}
	}
	require.ErrorIs(c.t, told, rpctypes.ErrCompacted, "what a watcher that had seen more than the snapshot is told")

	require.Contains(c.t, c.hasOperation("one", v1beta1.OperationSucceeded), "began with the restored data")
	c.operates("back", fmt.Sprintf("type: Restore, restore: {epoch: %d}", epoch))
	c.afterEpoch(restored)
	c.converges(3)
	assert.Empty(c.t, missing(later.acked, c.present("later")), "what was there before the restore is there again")
	eventually(c.t, "the snapshot that was deleted while it was restored is gone, and what was stored", func() string {
		_, there := c.snapshot("tuesday")
		stored := slices.DeleteFunc(bucket.stored(c),
			func(key string) bool { return !strings.Contains(key, "tuesday") })
		return while(there || len(stored) > 0, fmt.Sprint(there, stored))
	})
}

// afterEpoch waits until the cluster serves in a later epoch than this, and returns its number: one that was given up
// keeps its own.
func (c *cluster) afterEpoch(n int64) int64 {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("an epoch after %d serves", n), func() string {
		o := c.object()
		available := meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.Available)
		if o.Status.Epoch > n && available && o.Status.ClusterID != "" {
			return ""
		}
		restored := meta.FindStatusCondition(o.Status.Conditions, v1beta1.Restored)
		if restored == nil {
			return fmt.Sprintf("epoch %d, %s", o.Status.Epoch, o.Status.Rule)
		}
		return fmt.Sprintf("epoch %d, %s, %s: %s", o.Status.Epoch, o.Status.Rule, restored.Reason, restored.Message)
	})
	return c.object().Status.Epoch
}

// The cause here is an image that is not there. What is said of an etcd that never elects is in test/real/conformance
// (TestAStillbirth) and the story bootstrap_stillborn: it takes one that dies within a millisecond of its life.
func TestABootstrapThatStallsSaysSo(t *testing.T) {
	beside(t)
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  image: {repository: nowhere.invalid/etcd}\n  recovery: "+
		"{after: 30s}\n")
	c.decides("Start", "within 30s (demo-0: its image can't be pulled: ")
	degraded := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Degraded)
	require.Equal(t, "BootstrapStalled", degraded.Reason)

	_, command, _ := strings.Cut(degraded.Message, "by beginning again: kubectl quorate ")
	command, _, _ = strings.Cut(command, ";")
	require.Equal(t, fmt.Sprintf("recover -n %s demo Recreate --yes", c.ns), command)
	c.operates("again", "type: Recover, recover: {epoch: 1, policy: Recreate}")
	c.decides("Start", "preparing epoch 2: filling the volumes of demo-1 (its image can't be pulled: ")

	// Whichever of the two comes first is the one that is kept: it is one of them, and not both. The second is made
	// again with the corrected image, under another number.
	c.edit(`{"image":{"repository":"gcr.io/etcd-development/etcd"}}`)
	c.converges(1)
	o := c.object()
	require.False(t, meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.Degraded))
	require.Len(t, c.pods(), 1)
	require.Equal(t, o.Status.Epoch == 1, c.pods()[0].Name == "demo-0")
	c.hasOperation("again", map[bool]v1beta1.OperationPhase{true: v1beta1.OperationSucceeded,
		false: v1beta1.OperationFailed}[o.Status.Epoch == 2])
}

// TestAVersionIsCorrectedBeforeTheClusterBegins: to one with other flags, since prepare has said that nothing has run.
func TestAVersionIsCorrectedBeforeTheClusterBegins(t *testing.T) {
	beside(t)
	c := newCluster(t, "  replicas: 3\n  version: 3.5.99\n")
	c.decides("Start", "its image can't be pulled: ")
	c.edit(`{"version":"3.7.3"}`)
	c.converges(3)
	for _, version := range c.versions() {
		assert.Equal(t, "3.7.3", version)
	}
}

// beginsACluster deletes the cluster, and makes another one of a snapshot.
func (bucket *s3) beginsACluster(c *cluster) {
	w := c.hasWritten(c.word())
	taken := c.snapshots("monday", bucket.yaml(c.ns))
	c.kube("delete", "etcdcluster", name)
	eventually(c.t, "the old cluster is gone", func() string { return strings.Join(c.left(), " ") })

	c.apply(three + fmt.Sprintf("  storage: {size: 1Gi}\n  bootstrap: {snapshot: {artifact: %s, store: %s}}\n",
		taken.Status.Artifact, bucket.yaml(c.ns)))
	took := c.converges(3)
	assert.Empty(c.t, missing(w.acked, c.present(w.word)))
	c.t.Logf("three members restored a snapshot and served after %.1f s", took.Seconds())

	c.operates("broken", "type: Restore, restore: {snapshot: {artifact: nothing.db, store: "+bucket.yaml(c.ns)+"}}")
	eventually(c.t, "the operation says why not", func() string {
		said := c.hasOperation("broken", v1beta1.OperationRunning)
		return while(!strings.Contains(said, "NotFound"), said)
	})
	c.writesWith(c.client(), "meanwhile").losesNothing()
	c.withdraws("broken")
	c.converges(3)
	assert.Equal(c.t, int64(1), c.object().Status.Epoch)
}

// beginsWithTheNewest deletes the cluster, and makes another one that looks into the store: where its snapshots are, and
// then where there are none.
func (bucket *s3) beginsWithTheNewest(c *cluster) {
	w := c.hasWritten(c.word())
	taken := c.snapshots("thursday", bucket.yaml(c.ns))
	begins := func(more string) *v1beta1.OriginStatus {
		c.kube("delete", "etcdcluster", name)
		eventually(c.t, "the old cluster is gone", func() string { return strings.Join(c.left(), " ") })
		c.apply(three + fmt.Sprintf("  storage: {size: 1Gi}\n  bootstrap: {latestSnapshot: {ifNone: BeginEmpty, store: %s%s}}\n",
			bucket.yaml(c.ns), more))
		took := c.converges(3)
		c.t.Logf("three members began with what a store had after %.1f s", took.Seconds())
		origin := c.object().Status.Origin
		require.NotNil(c.t, origin)
		return origin
	}
	found := begins("")
	assert.Contains(c.t, found.Snapshot, taken.Status.Artifact)
	assert.Empty(c.t, missing(w.acked, c.present(w.word)))
	none := begins(", folder: none/there")
	assert.Contains(c.t, none.Evidence, "has no snapshot")
	assert.Empty(c.t, c.present(w.word))
}

// bringsALostClusterBack of which every volume is lost.
func (bucket *s3) bringsALostClusterBack(c *cluster) {
	epoch := c.object().Status.Epoch
	c.edit(`{"recovery":{"quorumLoss":"FromSnapshot","after":"30s"}}`)
	w := c.hasWritten(c.word())
	c.snapshots("wednesday", bucket.yaml(c.ns))
	c.hasWritten("newest")
	one, others := c.follower()
	c.loses(append(others, one)...)
	begin := time.Now()
	c.afterEpoch(epoch)
	c.converges(3)
	assert.Empty(c.t, missing(w.acked, c.present(w.word)), "the snapshot has all of it")
	assert.Empty(c.t, c.present("newest"), "written after the newest snapshot")
	c.t.Logf("three members were back from a snapshot after %.1f s, with 30 s of waiting", time.Since(begin).Seconds())
}

// kept is what etcd tells of a key.
type kept struct {
	value                      [sha256.Size]byte
	created, modified, version int64
}

// keeps is all of a prefix. A key is read by itself: all of them may be more than one answer holds.
func (c *cluster) keeps(prefix string) map[string]kept {
	c.t.Helper()
	client := c.client()
	all := map[string]kept{}
	for key := range c.present(prefix) {
		r, err := getting(c.t, client, key)
		require.NoError(c.t, err)
		require.Len(c.t, r.Kvs, 1, key)
		kv := r.Kvs[0]
		all[key] = kept{sha256.Sum256(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version}
	}
	return all
}

// TestVolumeSnapshots of all members, one after the other and under a writer: a cluster that begins with claims made of
// them has all that was acknowledged before the first.
func TestVolumeSnapshots(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  storage: {size: 512Mi, storageClassName: expandable}\n")
	c.converges(3)
	w := c.writes()
	w.wrote(50)
	sure := int(w.count.Load())
	for i := range 3 {
		c.adds(fmt.Sprintf("apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot\nmetadata: {name: of-%d, namespace: "+
			"%s}\nspec: {source: {persistentVolumeClaimName: demo-%d}}\n", i, c.ns, i))
		eventually(t, "the volume is copied", func() string {
			ready, err := kubectl("", "-n", c.ns, "get", "volumesnapshot", fmt.Sprintf("of-%d", i), "-o",
				"jsonpath={.status.readyToUse}")
			return while(ready != "true", ready, failure(err))
		})
		w.wrote(10)
	}
	w.losesNothing()
	c.kube("delete", "etcdcluster", name)
	eventually(t, "the claims are gone", func() string {
		return while(len(list[corev1.PersistentVolumeClaim](t, c.ns, "pvc")) > 0, "not yet")
	})

	for i := range 3 {
		c.adds(fmt.Sprintf("apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: former-%d, namespace: %s}\nspec:\n"+
			"  storageClassName: expandable\n  accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 512Mi}}\n"+
			"  dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: of-%d}\n", i, c.ns, i))
	}
	c.apply(three + "  storage: {size: 512Mi, storageClassName: expandable}\n" +
		"  bootstrap: {claims: {names: [former-0, former-1, former-2]}}\n")
	took := c.converges(3)
	kept := c.present(w.word)
	assert.Empty(t, missing(w.acked[:sure], kept))
	t.Logf("of %d writes, %d before the first copy, %d are there, after %.1f s", len(w.acked), sure, len(kept), took.Seconds())
	c.writesWith(c.client(), "after").losesNothing()
}

// TestClaims: a cluster is deleted under a writer and leaves its claims. One of the same name begins with them: not
// with one alone, and with a quorum's it has all that was acknowledged. The old claims stay as they are.
func TestClaims(t *testing.T) {
	beside(t)
	spec := three + "  storage: {size: 1Gi}\n  deletionPolicy: Retain\n"
	c := newCluster(t, spec)
	c.converges(3)
	former := c.object().Status.ClusterID
	w := c.writes()
	w.wrote(30)
	c.kube("delete", "etcdcluster", name)
	w.ends()
	uids := map[string]string{}
	for _, claim := range c.claims(3) {
		uids[claim.Name] = string(claim.UID)
	}
	eventually(t, "all but the claims is gone", func() string {
		left := c.left()
		if len(left) == 3 && strings.Count(strings.Join(left, " "), "pvc/") == 3 {
			return ""
		}
		return strings.Join(left, " ")
	})

	c.apply(spec + "  bootstrap: {claims: {names: [demo-1]}}\n")
	said := c.decides("RecordEpoch", "which is no quorum")
	assert.Contains(t, said, "the claims are of 1 of the 3 former members")
	assert.Contains(t, said, "those of demo-0, demo-2 are missing")
	assert.Empty(t, c.pods())

	c.edit(`{"bootstrap":{"claims":{"names":["demo-0","demo-1","demo-2"]}}}`)
	took := c.converges(3)
	assert.Empty(t, missing(w.acked, c.present(w.word)))
	t.Logf("three members served what three claims had, %d writes, after %.1f s", len(w.acked), took.Seconds())
	s := c.object().Status
	require.NotNil(t, s.Origin)
	assert.Equal(t, "Claims", s.Origin.Source)
	assert.Contains(t, s.Origin.Evidence, "of etcd cluster "+former)
	assert.NotEqual(t, former, s.ClusterID)
	for _, claim := range c.claims(6) {
		if uid := uids[claim.Name]; uid != "" {
			assert.Equal(t, uid, string(claim.UID))
			assert.Empty(t, claim.OwnerReferences)
			delete(uids, claim.Name)
		}
	}
	assert.Empty(t, uids, "claims that are gone")
	c.writesWith(c.client(), "after").losesNothing()
}
