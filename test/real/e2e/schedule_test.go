//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// schedule as it is, and its snapshots with the oldest first.
func (c *cluster) schedule(object string) (*v1beta1.EtcdSnapshotSchedule, []v1beta1.EtcdSnapshot) {
	c.t.Helper()
	s, _ := get[v1beta1.EtcdSnapshotSchedule](c.t, c.ns, "etcdsnapshotschedule", object)
	all := list[v1beta1.EtcdSnapshot](c.t, c.ns, "etcdsnapshot")
	slices.SortFunc(all, func(a, b v1beta1.EtcdSnapshot) int { return strings.Compare(a.Name, b.Name) })
	return s, all
}

// schedules makes an EtcdSnapshotSchedule with these fields, of snapshots with those. Yearly has a stream.
func (c *cluster) schedules(object, fields, snapshots string) {
	c.t.Helper()
	c.addsOurs("EtcdSnapshotSchedule", object, fmt.Sprintf("%s, template: {spec: {clusterRef: {name: %s}, %s}}", fields,
		name, snapshots))
}

const yearly = `schedule: "0 0 1 1 *", stream: {flushAfter: 2s}`

func (c *cluster) put(value string) {
	c.t.Helper()
	require.NoError(c.t, putting(c.t, c.client(), "key", value))
}

// TestSchedule: a snapshot every minute. What is unchanged is not stored again, of what is stored the last two are
// kept, what is let go is gone from the bucket, and a schedule that is deleted leaves the rest.
func TestSchedule(t *testing.T) {
	beside(t)
	store := store(t)
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  storage: {size: 1Gi}")
	store.credentials(c)
	c.converges(1)
	c.put("first")
	c.schedules("often", `schedule: "* * * * *", timeZone: America/New_York, retention: {last: 2}`,
		"deletionPolicy: Delete, store: "+store.yaml(c.ns))

	// ended waits for the next snapshot to be finished in this way, and returns it.
	seen, written := map[string]bool{}, time.Now()
	put := func(value string) {
		t.Helper()
		c.put(value)
		written = time.Now()
	}
	ended := func(phase v1beta1.SnapshotPhase) (found v1beta1.EtcdSnapshot) {
		t.Helper()
		eventually(t, fmt.Sprintf("a snapshot is %s", phase), func() string {
			s, all := c.schedule("often")
			for _, found = range all {
				if seen[found.Name] || found.Status.Phase == "" || found.Status.Phase == v1beta1.SnapshotPending ||
					found.Status.Phase == v1beta1.SnapshotRunning {
					continue
				}
				seen[found.Name] = true
				if found.Status.Phase == v1beta1.SnapshotSkipped && phase != v1beta1.SnapshotSkipped &&
					found.CreationTimestamp.Time.Before(written) {
					continue // its minute began before the data for it was written
				}
				require.Equal(t, phase, found.Status.Phase, "%s: %s", found.Name, found.Status.Message)
				return ""
			}
			return "none of " + fmt.Sprint(len(all)) + ": " + s.Status.Message
		})
		late := found.CreationTimestamp.Sub(runOf(t, found.Name))
		t.Logf("%s was made %s after its time", found.Name, late)
		return found
	}
	first := ended(v1beta1.SnapshotSucceeded)
	require.False(t, first.Status.VerificationTime.IsZero())
	unchanged := ended(v1beta1.SnapshotSkipped)
	assert.Equal(t, first.Status.Revision, unchanged.Status.Revision)
	eventually(t, "what is unchanged counts as verified until now", func() string {
		s, _ := c.schedule("often")
		v := s.Status.LastVerified
		return while(v == nil || v.Name != first.Name || v.Time.Before(&unchanged.CreationTimestamp),
			fmt.Sprintf("%+v", v))
	})
	put("second")
	second := ended(v1beta1.SnapshotSucceeded)
	put("third")
	third := ended(v1beta1.SnapshotSucceeded)
	var left []string
	for _, s := range []*v1beta1.EtcdSnapshot{&second, &third} {
		left = append(left, snapshot.Key(s), snapshot.Key(s)+stores.ContentsSuffix, snapshot.Key(s)+".json")
	}
	eventually(t, "the first is gone, and what was stored of it", func() string {
		_, all := c.schedule("often")
		if all[0].Name != first.Name && slices.Equal(store.stored(c), left) {
			return ""
		}
		return fmt.Sprintf("%s is %s: %s; the bucket has %v", all[0].Name, all[0].Status.Phase, all[0].Status.Message,
			store.stored(c))
	})

	c.upgradesAfterASnapshot("often")

	c.kube("patch", "etcdsnapshotschedule", "often", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
	refused, err := kubectl("", "-n", c.ns, "delete", "etcdsnapshotschedule", "often", "--cascade=foreground")
	require.ErrorContains(t, err, "without --cascade=foreground", refused)
	c.kube("delete", "etcdsnapshotschedule", "often")
	_, all := c.schedule("often")
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		assert.Empty(t, s.OwnerReferences, s.Name)
		assert.Nil(t, s.DeletionTimestamp, s.Name)
		assert.Equal(t, "often", s.Annotations[objects.AnnotationRetained], s.Name)
	}
	assert.Contains(t, names, third.Name, "a schedule with the policy Retain leaves its snapshots")
}

// upgradesAfterASnapshot: another minor version waits until the schedule, which no clock wakes, has taken a verified
// snapshot, as those that are there are old.
func (c *cluster) upgradesAfterASnapshot(schedule string) {
	c.t.Helper()
	c.kube("patch", "etcdsnapshotschedule", schedule, "--type=merge", "-p", `{"spec":{"schedule":"0 0 1 1 *"}}`)
	eventually(c.t, "no snapshot is being taken", func() string {
		s, _ := c.schedule(schedule)
		return while(len(s.Status.Active) > 0 || s.Status.ObservedGeneration != s.Generation, fmt.Sprint(s.Status.Active))
	})
	_, old := c.schedule(schedule)
	for _, s := range old {
		c.kube("patch", "etcdsnapshot", s.Name, "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"startTime":%q}}`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)))
	}
	c.edit(`{"version":"3.7.3"}`)
	c.converges(1)
	_, all := c.schedule(schedule)
	newest := all[len(all)-1]
	assert.NotEqual(c.t, old[len(old)-1].Name, newest.Name, "a snapshot was taken for the upgrade")
	assert.Equal(c.t, v1beta1.SnapshotSucceeded, newest.Status.Phase, newest.Status.Message)
	assert.Equal(c.t, "3.6.16", newest.Status.EtcdVersion)
	pod := c.pods()[0] // of another member: one alone goes to another minor version so
	started := objects.StatusOf(&pod, objects.ContainerEtcd).State.Running.StartedAt
	assert.True(c.t, newest.Status.VerificationTime.Before(&started), "%s, and etcd 3.7 was started %s",
		newest.Status.VerificationTime, started)
	assert.True(c.t, slices.ContainsFunc(c.object().Status.History,
		func(h v1beta1.HistoryEntry) bool { return h.Rule == "WaitForSnapshot" }))
	assert.Zero(c.t, c.object().Status.SnapshotWanted)
}

// runOf is the time in the name of a snapshot.
func runOf(t *testing.T, snapshot string) time.Time {
	t.Helper()
	run, err := time.Parse("20060102-1504", strings.TrimPrefix(snapshot, "often-"))
	require.NoError(t, err)
	return run
}

// acknowledged is a write that etcd has acknowledged.
type acknowledged struct {
	key      string
	revision int64
	at       time.Time
}

// putsUntil writes fifty keys in a second until the function is called, which returns those that were acknowledged.
func (c *cluster) putsUntil() (end func() []acknowledged) {
	c.t.Helper()
	client, word := c.client(), c.word()
	ctx, stop := context.WithCancel(c.t.Context())
	told := make(chan []acknowledged)
	go func() {
		var all []acknowledged
		defer func() { told <- all }()
		for n := 0; ctx.Err() == nil; n++ {
			key := fmt.Sprintf("%s-%06d", word, n)
			attempt, cancel := context.WithTimeout(ctx, time.Second)
			if r, err := client.Put(attempt, key, "value of "+key); err == nil {
				all = append(all, acknowledged{key, r.Header.Revision, time.Now()})
			}
			cancel()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() []acknowledged { stop(); return <-told }
}

// hasUntil insists that the cluster has what was acknowledged up to a revision, and nothing later. It tells how much is
// gone, and how long before a time the oldest of that was written.
func (c *cluster) hasUntil(last int64, all []acknowledged, lost time.Time) {
	c.t.Helper()
	there, gone, oldest := c.present(c.word()), 0, time.Duration(0)
	for _, w := range all {
		assert.Equal(c.t, w.revision <= last, there[w.key], "%s of revision %d, where %d is the last", w.key, w.revision,
			last)
		if w.revision > last {
			gone++
			oldest = max(oldest, lost.Sub(w.at))
		}
	}
	c.t.Logf("it ends at revision %d: of %d acknowledged writes %d are gone, the oldest was written %.1f s before", last,
		len(all), gone, oldest.Seconds())
}

// storedAfter waits until changes after a revision are stored, twice, and returns the last revision of them.
func (bucket *s3) storedAfter(c *cluster, begins int64) (last int64) {
	c.t.Helper()
	segment := regexp.MustCompile(`/[0-9]+-([0-9]+)` + archive.SegmentSuffix)
	eventually(c.t, "something of them is stored", func() string {
		keys, segments := strings.Join(bucket.stored(c), "\n"), 0
		for _, parts := range segment.FindAllStringSubmatch(keys, -1) {
			until, err := strconv.ParseInt(parts[1], 10, 64)
			require.NoError(c.t, err)
			if last = max(last, until); until > begins {
				segments++
			}
		}
		return while(segments < 2, keys)
	})
	return last
}

// streams waits until the schedule's stream stores what changes after another base than the one of before, if any.
func (c *cluster) streams(object, before string) *v1beta1.StreamStatus {
	c.t.Helper()
	var s *v1beta1.EtcdSnapshotSchedule
	took := eventually(c.t, "changes are stored", func() string {
		s, _ = c.schedule(object)
		if meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.Streaming) && s.Status.Stream.Base != before {
			return ""
		}
		return fmt.Sprintf("%s: %+v", s.Status.Message, meta.FindStatusCondition(s.Status.Conditions, v1beta1.Streaming))
	})
	c.t.Logf("changes are stored after %.1f s, from %s on", took.Seconds(), s.Status.Stream.Base)
	return s.Status.Stream
}

// forges puts into the store what would follow on the last segment, and returns its name.
func (bucket *s3) forges(c *cluster) string {
	c.t.Helper()
	segment := regexp.MustCompile(`^(.*/)[0-9]+-([0-9]+)(` + archive.SegmentSuffix + `.*)$`)
	last, file, forged := int64(0), "", ""
	for _, key := range bucket.stored(c) {
		parts := segment.FindStringSubmatch(key)
		if parts == nil {
			continue
		}
		if until, err := strconv.ParseInt(parts[2], 10, 64); err == nil && until > last {
			last, file = until, key
			forged = fmt.Sprintf("%s%d-%d%s", parts[1], until+1, until+9, parts[3])
		}
	}
	content, err := os.ReadFile(bucket.path(c, file))
	require.NoError(c.t, err)
	require.NoError(c.t, os.WriteFile(bucket.path(c, forged), content, 0o600))
	return path.Base(forged)
}

// TestStream: changes are stored as they come. Everything is lost at once, the stream's pod with what it has not yet
// stored too, and a recovery from a snapshot goes on to the last revision that is stored: what came after that is lost,
// and what others have put there is named.
func TestStream(t *testing.T) {
	beside(t)
	bucket := store(t)
	c := newCluster(t, three+"  storage: {size: 1Gi}\n")
	bucket.credentials(c)
	c.converges(3)
	c.schedules("yearly", yearly, "store: "+bucket.yaml(c.ns))
	stream := c.streams("yearly", "")
	assert.Equal(t, c.object().Status.ClusterID, stream.ClusterID)
	begins := c.revision()
	end := c.putsUntil()
	stored := bucket.storedAfter(c, begins)
	lost := time.Now()
	c.kills(stream.Pod)
	c.loses(podNames(c.pods())...)
	all := end()
	require.NotEmpty(t, all)
	forged := bucket.forges(c)
	c.decides("QuorumLost", "FromSnapshot is possible")
	begin := time.Now()
	c.operates("recover", "type: Recover, recover: {epoch: 1, policy: FromSnapshot}")
	c.afterEpoch(1)
	c.converges(3)
	took := time.Since(begin)
	cm, found := get[corev1.ConfigMap](t, c.ns, "cm", objects.EpochName(name, 2))
	require.True(t, found)
	until := recordtest.Says(cm).Until
	require.NotZero(t, until, "the end of the stream is written down")
	ends := fmt.Sprintf(" came from its stream, the last is %d, of ", until)
	assert.Contains(t, c.object().Status.Origin.Evidence, ends)
	assert.Contains(t, c.object().Status.Origin.Evidence, forged+" is not a segment of the stream that can be followed")
	assert.Contains(t, c.hasOperation("recover", v1beta1.OperationSucceeded), ends)
	c.hasUntil(until, all, lost)
	t.Logf("recovered after %.1f s", took.Seconds())
	assert.GreaterOrEqual(t, until, stored, "what was stored is there")
	another := c.streams("yearly", stream.Base) // another etcd needs another base, which is taken at once
	assert.Equal(t, c.object().Status.ClusterID, another.ClusterID)
	c.goesBackToAMoment()
}

// goesBackToAMoment by kubectl quorate, which finds a snapshot and the stream, and takes a snapshot before.
func (c *cluster) goesBackToAMoment() {
	c.t.Helper()
	does := c.doing()
	assert.Contains(c.t, does("snapshot", "--wait"), "Succeeded: ")
	c.put("good")
	<-time.After(2 * time.Second) // a time has whole seconds
	moment := time.Now().UTC().Format(time.RFC3339)
	<-time.After(2 * time.Second)
	c.put("bad")
	epoch := c.object().Status.Epoch
	said := does("restore", "--until", moment, "--wait")
	assert.Contains(c.t, said, "EtcdSnapshot demo-snapshot-")
	assert.Contains(c.t, said, "and what EtcdSnapshotSchedule yearly has stored after it, until "+moment)
	assert.Contains(c.t, said, "Succeeded: ")
	c.afterEpoch(epoch)
	c.converges(3)
	r, err := getting(c.t, c.client(), "key")
	require.NoError(c.t, err)
	require.Len(c.t, r.Kvs, 1)
	assert.Equal(c.t, "good", string(r.Kvs[0].Value))
}

// meetsMirror waits until the EtcdMirror standby has a condition that is True.
func (c *cluster) meetsMirror(condition string) (m *v1beta1.EtcdMirror, took time.Duration) {
	c.t.Helper()
	took = eventually(c.t, "the mirror is "+condition, func() string {
		m, _ = get[v1beta1.EtcdMirror](c.t, c.ns, "etcdmirror", "standby")
		if m.Status.ObservedGeneration == m.Generation && meta.IsStatusConditionTrue(m.Status.Conditions, condition) {
			return ""
		}
		return "it says: " + m.Status.Message // nothing, before there is a status
	})
	return m, took
}

// TestMirror: a cluster in another namespace has a copy of all keys and of each change, as in another region. The pod
// is killed, and goes on. It is promoted under a writer, which then moves: what was acknowledged before is there,
// everything up to the revision that the promotion names, and nothing later.
func TestMirror(t *testing.T) {
	beside(t)
	const one = "  replicas: 1\n  version: 3.6.16\n"
	former := newCluster(t, one)
	standby := namespaced(t, former.ns+"-standby")
	standby.apply(one)
	former.converges(1)
	standby.converges(1)
	end := former.putsUntil()

	operator := former.secretOf(name + "-operator-tls")
	standby.putsFor("elsewhere", "source-etcd", operator["tls.crt"], operator["tls.key"], operator["ca.crt"])
	standby.kube("label", "secret", "source-etcd", "etcd.quorate.dev/external=")
	standby.addsOurs("EtcdMirror", "standby", fmt.Sprintf("clusterRef: {name: %s}, source: {external: {"+
		"endpoints: ['https://%s'], serverName: %s.%s.svc, caSecretRef: {name: source-etcd}, "+
		"clientSecretRef: {name: source-etcd}}}", name,
		objects.HostPort(former.pods()[0].Status.PodIP, objects.ClientPort), name, former.ns))
	m, took := standby.meetsMirror(v1beta1.Mirroring)
	t.Logf("mirroring after %.1f s", took.Seconds())
	assert.False(t, m.Status.CopiedTime.IsZero())

	was, _ := get[corev1.Pod](t, standby.ns, "pods", m.Status.Pod)
	standby.kills(m.Status.Pod)
	eventually(t, "another pod mirrors", func() string {
		pod, found := get[corev1.Pod](t, standby.ns, "pods", was.Name)
		return while(!found || pod.UID == was.UID || !ready(pod), "none yet")
	})

	asked := time.Now()
	require.NoError(t, standby.merges("etcdmirror", "standby", `{"spec":{"promote":{}}}`))
	m, took = standby.meetsMirror(v1beta1.Promoted)
	all, revision := end(), m.Status.PromotedRevision
	t.Logf("promoted at revision %d after %.1f s", revision, took.Seconds())
	require.NotZero(t, revision)
	standby.hasUntil(revision, all, asked)
	before := 0
	for _, w := range all {
		if w.at.Before(asked) {
			before++
			assert.LessOrEqual(t, w.revision, revision, "%s was acknowledged before the promotion", w.key)
		}
	}
	t.Logf("%d writes were acknowledged before the promotion, and none is lost", before)
	assert.NotZero(t, before)

	standby.writesWith(standby.client(), "moved").losesNothing()
	eventually(t, "no pod mirrors any more", func() string {
		for _, pod := range list[corev1.Pod](t, standby.ns, "pods") {
			if pod.Labels[objects.LabelMirror] != "" {
				return pod.Name + " is there"
			}
		}
		return ""
	})
	standby.kube("delete", "etcdmirror", "standby", "--timeout="+patience.String())
}

// TestMirrorOfStored: a cluster has a copy of another one of which it sees only what a stream has stored. That one is
// lost, under a writer; a promotion ends at the last revision that is stored.
func TestMirrorOfStored(t *testing.T) {
	beside(t)
	const one = "  replicas: 1\n  version: 3.6.16\n"
	bucket := store(t)
	former := newCluster(t, one)
	standby := namespaced(t, former.ns+"-standby")
	standby.apply(one)
	bucket.credentials(former)
	bucket.credentials(standby)
	former.converges(1)
	standby.converges(1)
	former.schedules("yearly", yearly, "store: "+bucket.yaml(former.ns))
	former.streams("yearly", "")
	keys := former.secretOf(objects.StreamSecret("yearly"))[objects.KeyStream]
	standby.kube("create", "secret", "generic", "copied", "--from-literal="+objects.KeyStream+"="+string(keys))
	standby.kube("label", "secret", "copied", objects.LabelExternal+"=")
	standby.addsOurs("EtcdMirror", "standby", fmt.Sprintf("clusterRef: {name: %[1]s}, source: {stored: {"+
		"folder: %[2]s/%[1]s, keysSecretRef: {name: copied}, store: %[3]s}}", name, former.ns, bucket.yaml(former.ns)))
	begins := former.revision()
	end := former.putsUntil()
	_, took := standby.meetsMirror(v1beta1.Mirroring)
	t.Logf("mirroring after %.1f s", took.Seconds())
	eventually(t, "something that was written is at the destination", func() string {
		return while(len(standby.present(standby.word())) == 0, "nothing")
	})
	stored := bucket.storedAfter(former, begins)
	lost := time.Now()
	former.kube("delete", "etcdcluster", name, "--wait=false")
	all := end()
	require.NoError(t, standby.merges("etcdmirror", "standby", `{"spec":{"promote":{}}}`))
	m, took := standby.meetsMirror(v1beta1.Promoted)
	revision := m.Status.PromotedRevision
	t.Logf("promoted at revision %d after %.1f s", revision, took.Seconds())
	standby.hasUntil(revision, all, lost)
	assert.GreaterOrEqual(t, revision, stored, "what was stored is there")
}
