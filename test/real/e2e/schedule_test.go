//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// schedule as it is, and its snapshots with the oldest first.
func (c *cluster) schedule(object string) (*v1alpha1.EtcdSnapshotSchedule, []v1alpha1.EtcdSnapshot) {
	c.t.Helper()
	s, _ := get[v1alpha1.EtcdSnapshotSchedule](c.t, c.ns, "etcdsnapshotschedule", object)
	all := list[v1alpha1.EtcdSnapshot](c.t, c.ns, "etcdsnapshot")
	slices.SortFunc(all, func(a, b v1alpha1.EtcdSnapshot) int { return strings.Compare(a.Name, b.Name) })
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
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n  storage: {size: 128Mi}")
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
	ended := func(phase v1alpha1.SnapshotPhase) (found v1alpha1.EtcdSnapshot) {
		t.Helper()
		eventually(t, fmt.Sprintf("a snapshot is %s", phase), func() string {
			s, all := c.schedule("often")
			for _, found = range all {
				if seen[found.Name] || found.Status.Phase == "" || found.Status.Phase == v1alpha1.SnapshotPending ||
					found.Status.Phase == v1alpha1.SnapshotRunning {
					continue
				}
				seen[found.Name] = true
				if found.Status.Phase == v1alpha1.SnapshotSkipped && phase != v1alpha1.SnapshotSkipped &&
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
	first := ended(v1alpha1.SnapshotSucceeded)
	require.False(t, first.Status.VerificationTime.IsZero())
	unchanged := ended(v1alpha1.SnapshotSkipped)
	require.NotNil(t, unchanged.Spec.Unless)
	assert.Equal(t, first.Status.Revision, unchanged.Spec.Unless.Revision)
	eventually(t, "what is unchanged counts as verified until now", func() string {
		s, _ := c.schedule("often")
		v := s.Status.LastVerified
		return while(v == nil || v.Name != first.Name || v.Time.Before(&unchanged.CreationTimestamp),
			fmt.Sprintf("%+v", v))
	})
	put("second")
	second := ended(v1alpha1.SnapshotSucceeded)
	put("third")
	third := ended(v1alpha1.SnapshotSucceeded)
	var left []string
	for _, s := range []*v1alpha1.EtcdSnapshot{&second, &third} {
		left = append(left, snapshot.Key(s), snapshot.Key(s)+".json")
	}
	eventually(t, "the first is gone, and what was stored of it", func() string {
		_, all := c.schedule("often")
		if all[0].Name != first.Name && slices.Equal(store.stored(c), left) {
			return ""
		}
		return fmt.Sprintf("%s is %s: %s; the bucket has %v", all[0].Name, all[0].Status.Phase, all[0].Status.Message,
			store.stored(c))
	})

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
	assert.Subset(t, names, []string{second.Name, third.Name}, "a schedule with the policy Retain leaves its snapshots")
}

// runOf is the time in the name of a snapshot.
func runOf(t *testing.T, snapshot string) time.Time {
	t.Helper()
	run, err := time.Parse("20060102-1504", strings.TrimPrefix(snapshot, "often-"))
	require.NoError(t, err)
	return run
}
