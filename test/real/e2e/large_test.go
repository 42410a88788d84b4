//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestLargeDatabase is what becomes of a cluster whose members have QUORATE_GIB gibibytes each (1), under nine writers
// that the Service spreads over the members: each thing with how long it took, and the longest stall of a writer.
func TestLargeDatabase(t *testing.T) {
	beside(t)
	gib := 1
	if said := os.Getenv("QUORATE_GIB"); said != "" {
		var err error
		gib, err = strconv.Atoi(said)
		require.NoError(t, err)
	}
	s := store(t)
	quota := gib<<30 + max(gib/8, 1)<<30 + 512<<20
	spec := func(replicas int) string {
		return fmt.Sprintf("  version: 3.6.16\n  replicas: %d\n  storage: {size: %dGi}\n"+
			"  options: {quotaBackendBytes: %d}\n", replicas, 3*gib+4, quota)
	}
	c := newCluster(t, spec(3))
	s.credentials(c)
	c.converges(3)
	l := &large{cluster: c, gib: gib}
	l.measures("written", func() { c.holds(1024 * gib) })
	without := l.measures("a voter's volume lost, without a spare", l.losesAVolume)
	c.converges(3)
	l.measures("a spare joins", func() {
		c.edit(`{"spares":1}`)
		l.hasASpare()
	})
	with := l.measures("a voter's volume lost, with a spare", l.losesAVolume)
	assert.Less(t, with.took, without.took)
	l.hasASpare()
	c.edit(`{"spares":0}`)
	c.converges(3)
	l.measures("all members restart", func() {
		c.edit(`{"options":{"logLevel":"warn"}}`)
		c.converges(3)
	})

	l.fragments()
	felt := l.measures("a follower defragments, by etcdctl", func() {
		member, _ := c.follower()
		_, err := c.etcdctl(member, "defrag", "--command-timeout=10m")
		require.NoError(t, err)
	})
	l.fragments()
	unfelt := l.measures("all defragment, by Quorate", func() {
		c.operates("now", "type: Defragment")
		t.Log(c.hasOperation("now", v1beta1.OperationSucceeded))
	})
	assert.Less(t, unfelt.stall(), felt.stall(), "clients have left before")
	c.converges(3)

	var taken *v1beta1.EtcdSnapshot
	l.measures("a snapshot is stored and restored on trial", func() { taken = c.snapshots("large", s.yaml(c.ns)) })
	ballast := c.keeps("ballast")
	require.Len(t, ballast, 1024*gib)
	other := namespaced(t, c.ns+"-other")
	s.credentials(other)
	l.measures("another cluster begins with the snapshot", func() {
		other.apply(spec(1) + fmt.Sprintf("  bootstrap: {snapshot: {artifact: %s, store: %s}}\n", taken.Status.Artifact,
			s.yaml(c.ns)))
		other.converges(1)
	})
	assert.Equal(t, ballast, other.keeps("ballast"))
	for _, row := range l.rows {
		t.Log(row)
	}
}

// large is a cluster with a large database.
type large struct {
	*cluster
	gib  int
	rows []string
}

// felt is how long something took, and the longest stall of each of nine writers in the meantime, sorted.
type felt struct {
	took   time.Duration
	stalls []time.Duration
}

// stall is the longest of all.
func (f felt) stall() time.Duration { return slices.Max(f.stalls) }

// measures how long it takes, beside writers of which none loses what was acknowledged.
func (l *large) measures(what string, done func()) felt {
	l.t.Helper()
	var writers []*writer
	for i := range 9 {
		writers = append(writers, l.writesWith(l.client(), fmt.Sprintf("%s%d", l.word(), i)))
	}
	for _, w := range writers {
		w.wrote(20)
	}
	begin := time.Now()
	done()
	f := felt{took: time.Since(begin)}
	for _, w := range writers {
		f.stalls = append(f.stalls, w.stalled().Round(10*time.Millisecond))
		w.losesNothing()
	}
	slices.Sort(f.stalls)
	row := fmt.Sprintf("%d GiB: %s: %.1f s; stalls %s", l.gib, what, f.took.Seconds(), f.stalls)
	l.t.Log(row)
	l.rows = append(l.rows, row)
	return f
}

// hasASpare waits until there is one, and nothing is left to do.
func (l *large) hasASpare() {
	l.t.Helper()
	eventually(l.t, "there is a spare", func() string {
		s := l.object().Status
		for _, m := range s.Members {
			if m.Role == v1beta1.Spare && m.Ready && s.Rule == "Converged" {
				return ""
			}
		}
		return fmt.Sprintf("%s: %+v", s.Rule, s.Members)
	})
}

// losesAVolume with its pod, and waits until three voters serve again.
func (l *large) losesAVolume() {
	l.t.Helper()
	member, _ := l.follower()
	l.kube("delete", "pvc", member, "--wait=false")
	l.kube("delete", "pod", member, "--force", "--grace-period=0")
	eventually(l.t, "three voters serve without "+member, func() string {
		serve := 0
		for _, m := range l.object().Status.Members {
			if m.Name != member && m.Role == v1beta1.Voter && m.Ready {
				serve++
			}
		}
		return while(serve < 3, serve, " serve")
	})
}

// fragments writes an eighth of the keys again, and waits until etcd counts what is free.
func (l *large) fragments() {
	l.t.Helper()
	l.holds(128 * l.gib)
	compacts(l.t, l.client(), l.revision(), clientv3.WithCompactPhysical())
	w := l.writes() // without which it does not
	for _, pod := range l.pods() {
		eventually(l.t, pod.Name+" has free space", func() string {
			s, err := l.endpoint(pod.Name)
			free := s.DBSize - s.DBSizeInUse
			return while(err != nil || free < 100*int64(l.gib)<<20, fmt.Sprintf("%d bytes are free: %v", free, err))
		})
	}
	w.losesNothing()
}
