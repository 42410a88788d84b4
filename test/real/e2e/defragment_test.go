//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestADefragmentationThatClientsDontFeel: each member has QUORATE_GIB gibibytes in use (1) and as many that nothing is
// in. First one member defragments as `etcdctl defrag` would have it, under nine writers that are spread over the
// members by the Service, then all of them by an EtcdOperation.
func TestADefragmentationThatClientsDontFeel(t *testing.T) {
	beside(t)
	gib := 1
	if said := os.Getenv("QUORATE_GIB"); said != "" {
		var err error
		gib, err = strconv.Atoi(said)
		require.NoError(t, err)
	}
	quota := strconv.Itoa(gib*5/2<<30 + 256<<20)
	c := newCluster(t, three+"  storage: {size: "+strconv.Itoa(6*gib+2)+"Gi}\n  options: {quotaBackendBytes: "+quota+
		", autoCompaction: {revisions: 100}}\n")
	c.converges(3)
	c.hasAsMuchFreeAsInUse(gib)

	felt := c.feels(func() {
		member, _ := c.follower()
		begin := time.Now()
		_, err := c.etcdctl(member, "defrag", "--command-timeout=5m")
		require.NoError(t, err)
		t.Logf("%s has defragmented within %.1f s", member, time.Since(begin).Seconds())
	})
	c.hasAsMuchFreeAsInUse(gib)
	unfelt := c.feels(func() {
		c.operates("now", "type: Defragment")
		t.Log(c.hasOperation("now", v1beta1.OperationSucceeded))
	})
	t.Logf("the longest stall of each writer: %s as etcdctl does it, and %s as Quorate does", felt, unfelt)
	assert.Less(t, slices.Max(unfelt), slices.Max(felt))
}

// hasAsMuchFreeAsInUse writes all keys twice, and waits until etcd has compacted the first values.
func (c *cluster) hasAsMuchFreeAsInUse(gib int) {
	c.t.Helper()
	c.holds(1024 * gib)
	c.holds(1024 * gib)
	w := c.writes() // without which etcd does not count what is free
	for _, pod := range c.pods() {
		c.hasCompacted(pod.Name, int64(gib)*5/4<<30)
	}
	w.losesNothing()
}

// feels is the longest stall of each of nine writers while this is done, sorted.
func (c *cluster) feels(done func()) (stalls []time.Duration) {
	c.t.Helper()
	var writers []*writer
	for i := range 9 {
		writers = append(writers, c.writesWith(c.client(), c.word()+strconv.Itoa(i)))
	}
	for _, w := range writers {
		w.wrote(30)
	}
	done()
	for _, w := range writers {
		stalls = append(stalls, w.stalled().Round(10*time.Millisecond))
		w.losesNothing()
	}
	slices.Sort(stalls)
	return stalls
}
