//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// uids are the pods' UIDs by name.
func (c *cluster) uids() map[string]types.UID {
	c.t.Helper()
	all := map[string]types.UID{}
	for _, pod := range c.pods() {
		all[pod.Name] = pod.UID
	}
	return all
}

// versions waits until every member has said which one it runs, and returns these by name.
func (c *cluster) versions() map[string]string {
	c.t.Helper()
	var all map[string]string
	eventually(c.t, 60*time.Second, "every member has said its version", func() string {
		all = map[string]string{}
		for _, m := range c.object().Status.Members {
			if m.Version == "" {
				return m.Name + " has not"
			}
			all[m.Name] = m.Version
		}
		return ""
	})
	return all
}

// decides waits until the status has this rule as its phase, and words in its message, which it returns.
func (c *cluster) decides(rule, words string, within time.Duration) (message string) {
	c.t.Helper()
	eventually(c.t, within, rule+": "+words, func() string {
		o := c.object()
		if ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.Ready); ready != nil {
			message = ready.Message
		}
		if o.Status.ObservedGeneration != o.Generation || o.Status.Phase != rule || !strings.Contains(message, words) {
			return fmt.Sprintf("%s: %s", o.Status.Phase, message)
		}
		return ""
	})
	return message
}

func TestATemplateChangeIsRolled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	before, ids := c.uids(), c.ids()

	c.edit(`{"resources":{"requests":{"cpu":"55m"}},"options":{"snapshotCount":20000}}`)
	took := c.converges(3, 120*time.Second)
	w.losesNothing()
	assert.Equal(t, ids, c.ids(), "restarted, not replaced")
	for name, uid := range c.uids() {
		assert.NotEqual(t, before[name], uid)
	}
	assert.Equal(t, "55m", c.pods()[0].Spec.Containers[0].Resources.Requests.Cpu().String())
	t.Logf("three members were restarted in %.1f s; longest stall of a writer at 100/s: %d ms", took.Seconds(), w.stalled().Milliseconds())
	assert.Less(t, w.stalled(), longestStall)
}

func TestABadChangeStopsAtItsFirstMember(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three)
	c.converges(3, 60*time.Second)
	w := c.writes()
	before := c.uids()

	c.edit(`{"nodeSelector":{"kubernetes.io/os":"plan9"}}`)
	c.decides("Heal", "no node takes its pod", 60*time.Second)
	c.edit(`{"nodeSelector":null}`)
	c.converges(3, 90*time.Second)
	untouched := 0
	for name, uid := range c.uids() {
		if before[name] == uid {
			untouched++
		}
	}
	assert.Equal(t, 2, untouched, "nobody else was restarted")
	w.losesNothing()
}

func TestUpgradesAndDowngrades(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  replicas: 3\n  version: 3.5.35\n")
	c.converges(3, 60*time.Second)
	w := c.writes()
	ids := c.ids()

	c.edit(`{"version":"3.7.3"}`)
	c.decides("Upgrade", "3.5.35 -> 3.6.16 -> 3.7.3", 30*time.Second)
	for _, version := range c.versions() {
		require.Equal(t, "3.5.35", version)
	}

	for _, step := range []struct{ version, patch string }{
		{"3.7.3", `{"upgradePolicy":"Step"}`},
		{"3.6.16", `{"version":"3.6.16"}`},
		{"3.5.35", `{"version":"3.5.35"}`},
	} {
		c.edit(step.patch)
		took := c.converges(3, 240*time.Second)
		for _, version := range c.versions() {
			assert.Equal(t, step.version, version)
		}
		t.Logf("at %s after %.1f s; longest stall so far %d ms, %d writes repeated", step.version, took.Seconds(), w.stalled().Milliseconds(), w.retries())
	}
	assert.Equal(t, ids, c.ids(), "restarted, not replaced")
	w.losesNothing()
	assert.Less(t, w.stalled(), longestStall)
}

func TestAnImageIsExchangedInPlace(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  replicas: 3\n  version: 3.6.16\n  storage: {medium: Memory, size: 128Mi}\n")
	c.converges(3, 60*time.Second)
	w := c.writes()
	before := c.uids()

	c.edit(`{"version":"3.7.3"}`)
	took := c.converges(3, 180*time.Second)
	assert.Equal(t, before, c.uids(), "the pods stay, and with them what is in their memory")
	for _, version := range c.versions() {
		assert.Equal(t, "3.7.3", version)
	}
	w.losesNothing()
	t.Logf("3.6.16 to 3.7.3 on Memory in %.1f s", took.Seconds())

	// An image that is not there stops at the first member; taken back, that one comes back, with its data.
	c.edit(`{"image":{"repository":"nowhere.invalid/etcd"}}`)
	c.decides("Heal", "its image can't be pulled", 90*time.Second)
	c.edit(`{"image":{"repository":"gcr.io/etcd-development/etcd"}}`)
	c.converges(3, 90*time.Second)
	assert.Equal(t, before, c.uids())
}

func TestASingleMemberIsSucceededWithoutAPause(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "  replicas: 1\n  version: 3.6.16\n")
	c.converges(1, 60*time.Second)
	w := c.writes()
	c.edit(`{"resources":{"requests":{"cpu":"55m"}}}`)
	took := c.converges(1, 180*time.Second)
	assert.NotContains(t, c.ids(), "demo-0")
	w.losesNothing()
	t.Logf("one member was succeeded in %.1f s", took.Seconds())
	c.claims(1)
}
