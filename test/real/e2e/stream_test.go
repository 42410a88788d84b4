//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

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

// hasUntil insists that the cluster has what was acknowledged up to a revision, and nothing later. It tells how much that
// is, and how long before a time the oldest of it was written.
func (c *cluster) hasUntil(last int64, all []acknowledged, lost time.Time) {
	c.t.Helper()
	there, gone, oldest := c.present(c.word()), 0, time.Duration(0)
	for _, w := range all {
		assert.Equal(c.t, w.revision <= last, there[w.key], "%s of revision %d, which ends at %d", w.key, w.revision, last)
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
func (c *cluster) streams(object, before string) *v1alpha1.StreamStatus {
	c.t.Helper()
	var s *v1alpha1.EtcdSnapshotSchedule
	took := eventually(c.t, "changes are stored", func() string {
		s, _ = c.schedule(object)
		if meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.Streaming) && s.Status.Stream.Base != before {
			return ""
		}
		return fmt.Sprintf("%s: %+v", s.Status.Message, meta.FindStatusCondition(s.Status.Conditions, v1alpha1.Streaming))
	})
	c.t.Logf("changes are stored after %.1f s, from %s on", took.Seconds(), s.Status.Stream.Base)
	return s.Status.Stream
}

// TestStream: changes are stored as they come. Everything is lost at once, the stream's pod with what it has not yet
// stored too, and a recovery from a snapshot goes on to the last revision that is stored: what came after that is lost.
func TestStream(t *testing.T) {
	beside(t)
	bucket := store(t)
	c := newCluster(t, three+"  storage: {size: 128Mi}\n")
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
	c.decides("QuorumLost", "FromSnapshot is possible")
	begin := time.Now()
	c.operates("recover", "type: Recover, recover: {epoch: 1, policy: FromSnapshot}")
	c.inEpoch(2)
	c.converges(3)
	took := time.Since(begin)
	record, found := get[corev1.ConfigMap](t, c.ns, "cm", objects.EpochName(name, 2))
	require.True(t, found)
	until, err := strconv.ParseInt(record.Annotations[objects.AnnotationUntil], 10, 64)
	require.NoError(t, err, "the end of the stream is written down")
	ends := fmt.Sprintf(" came from its stream, the last is %d, of ", until)
	assert.Contains(t, c.object().Status.Origin.Evidence, ends)
	assert.Contains(t, c.hasOperation("recover", v1alpha1.OperationSucceeded), ends)
	c.hasUntil(until, all, lost)
	t.Logf("recovered after %.1f s", took.Seconds())
	assert.GreaterOrEqual(t, until, stored, "what was stored is there")
	another := c.streams("yearly", stream.Base) // another etcd needs another base, which is taken at once
	assert.Equal(t, c.object().Status.ClusterID, another.ClusterID)
}
