//go:build e2e

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// TestASpareVotes: a voter's volume is destroyed under a writer, first without a spare and then with one. Each member
// has a gibibyte.
func TestASpareVotes(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  storage: {size: 3Gi}\n")
	c.converges(3)
	c.holds(1024)
	without := c.losesAVolume()
	c.converges(3)
	c.edit(`{"spares":1}`)
	c.hasASpare()
	with := c.losesAVolume()
	c.hasASpare()
	assert.Len(t, c.keeps("ballast"), 1024)
	t.Logf("three voters again after %.1f s without a spare, and after %.1f s with one", without.Seconds(), with.Seconds())
	assert.Less(t, with, without)
	c.edit(`{"spares":0}`)
	c.converges(3)
}

// hasASpare waits until there is one, and nothing is left to do.
func (c *cluster) hasASpare() {
	c.t.Helper()
	eventually(c.t, "there is a spare", func() string {
		s := c.object().Status
		for _, m := range s.Members {
			if m.Role == v1beta1.Spare && m.Ready && s.Rule == "Converged" {
				return ""
			}
		}
		return fmt.Sprintf("%s: %+v", s.Rule, s.Members)
	})
}

// losesAVolume with its pod, and tells after how long three voters serve again.
func (c *cluster) losesAVolume() time.Duration {
	c.t.Helper()
	w := c.writes()
	w.wrote(30)
	member, _ := c.follower()
	c.kube("delete", "pvc", member, "--wait=false")
	begin := time.Now()
	c.kube("delete", "pod", member, "--force", "--grace-period=0")
	eventually(c.t, "three voters serve without "+member, func() string {
		serve := 0
		for _, m := range c.object().Status.Members {
			if m.Name != member && m.Role == v1beta1.Voter && m.Ready {
				serve++
			}
		}
		return while(serve < 3, serve, " serve")
	})
	took := time.Since(begin)
	w.losesNothing()
	return took
}
