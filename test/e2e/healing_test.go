//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// dataOf is the data directory of a member that runs, as this machine sees it: the lab's nodes are namespaces of it. Zero for one that does
// not run now.
func (c *cluster) dataOf(member string) (pid int, dir string) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(c.t, err)
	flag := fmt.Appendf(nil, "://%s.%s-peers.%s.svc:2380\x00", member, name, c.ns)
	for _, path := range all {
		if words, err := os.ReadFile(path); err == nil && bytes.HasPrefix(words, []byte("/usr/local/bin/etcd\x00")) && bytes.Contains(words, flag) {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, filepath.Join(filepath.Dir(path), "root/var/lib/etcd/data")
		}
	}
	return 0, ""
}

// spoil lets somebody do what they like with a member's data, and ends its etcd at once.
func (c *cluster) spoil(member string, data func(dir string) error) {
	c.t.Helper()
	pid, dir := c.dataOf(member)
	require.NotZero(c.t, pid, "%s does not run", member)
	process, err := os.FindProcess(pid)
	require.NoError(c.t, err)
	require.NoError(c.t, process.Signal(syscall.SIGSTOP))
	require.NoError(c.t, data(dir))
	require.NoError(c.t, process.Kill())
}

// unreadable leaves the write-ahead log as it is, and the database as no database.
func unreadable(dir string) error {
	return os.WriteFile(filepath.Join(dir, "member/snap/db"), []byte(strings.Repeat("not a database ", 10000)), 0o600)
}

func emptied(dir string) error { return os.RemoveAll(filepath.Join(dir, "member")) }

// succeeds waits until a member is gone from the list and the cluster has converged without it, and returns the name of its successor. That may
// be the second that was tried, where the first took too long.
func (c *cluster) succeeds(member string, within time.Duration, meanwhile func()) string {
	c.t.Helper()
	before := c.ids()
	eventually(c.t, within, member+" is succeeded", func() string {
		meanwhile()
		if _, there := c.ids()[member]; there {
			return member + " is still a member: " + c.notConverged(3)
		}
		return c.notConverged(3)
	})
	for successor := range c.ids() {
		if _, known := before[successor]; !known {
			return successor
		}
	}
	require.Fail(c.t, "nobody came in the place of "+member)
	return ""
}

func TestACrashingMemberIsGivenUp(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  memberReplacement: {after: 30s, keepClaimFor: 40s}\n")
	c.converges(3, 60*time.Second)
	w := c.writes()
	kept, found := get[corev1.PersistentVolumeClaim](t, c.ns, "pvc", "demo-1")
	require.True(t, found)
	c.spoil("demo-1", unreadable)
	said := ""
	var claim *corev1.PersistentVolumeClaim // as it is while it is kept
	c.succeeds("demo-1", 150*time.Second, func() {
		for _, condition := range c.object().Status.Conditions {
			if condition.Type == "Degraded" && strings.Contains(condition.Message, "it crashes: exit") {
				said = condition.Message
			}
		}
		if now, found := get[corev1.PersistentVolumeClaim](t, c.ns, "pvc", "demo-1"); found && now.Labels["etcd.quorate.dev/quarantined"] == "true" {
			claim = now
		}
	})
	assert.NotEmpty(t, said, "the message says why")
	require.NotNil(t, claim, "its claim is kept")
	assert.Equal(t, kept.UID, claim.UID)
	since, err := time.Parse(time.RFC3339, claim.Annotations["etcd.quorate.dev/quarantined"])
	require.NoError(t, err)
	eventually(t, 120*time.Second, "the claim goes", func() string {
		if _, there := get[corev1.PersistentVolumeClaim](t, c.ns, "pvc", "demo-1"); there {
			return "it is there"
		}
		return ""
	})
	assert.GreaterOrEqual(t, time.Since(since), 40*time.Second)
	w.losesNothing()
}

func TestALearnerThatComesToNothingIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  memberReplacement: {after: 30s}\n")
	c.converges(3, 60*time.Second)
	uids := c.ids()
	// No node will take its pod: a claim of a class that nobody provisions.
	c.edit(`{"replicas":4,"storage":{"storageClassName":"nobody"}}`)
	eventually(t, 180*time.Second, "a second learner is tried", func() string {
		s := c.object().Status
		if _, there := c.ids()["demo-4"]; !there || s.Replacement == nil || s.Replacement.Failures != 1 {
			return fmt.Sprint(c.ids(), s.Replacement)
		}
		return ""
	})
	assert.NotContains(t, c.ids(), "demo-3")
	c.edit(`{"replicas":3}`)
	eventually(t, 90*time.Second, "it is taken back", func() string {
		if ids := c.ids(); len(ids) != 3 {
			return fmt.Sprint(ids)
		}
		return ""
	})
	assert.Equal(t, uids, c.ids())
}

func TestAnEmptiedVolumeUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  memberReplacement: {after: 30s}\n")
	successor := c.staysForgotten("demo-1")
	c.staysForgotten(successor) // it has joined, and was told whom: the same must not happen to it
}

func TestAnEmptiedMemoryUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t, three+"  storage: {medium: Memory, size: 128Mi}\n  memberReplacement: {after: 30s}\n")
	c.staysForgotten(c.staysForgotten("demo-1"))
}

// staysForgotten empties a voter's data directory under load, in a pod that stays. Its etcd must not begin a second time: it could vote
// twice, and what was acknowledged could be lost.
func (c *cluster) staysForgotten(member string) (successor string) {
	c.t.Helper()
	c.converges(3, 90*time.Second)
	w := c.writesWith(c.client(), "before-"+member)
	c.spoil(member, emptied)
	successor = c.succeeds(member, 180*time.Second, func() {
		_, dir := c.dataOf(member)
		_, err := os.Stat(filepath.Join(dir, "member/wal"))
		assert.True(c.t, dir == "" || err != nil, "%s has begun a second time", member)
	})
	w.losesNothing()
	return successor
}
