//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/real/paused"
)

// dataOf is the data directory of a member that runs, as this machine sees it: the lab's nodes are namespaces of it.
// Zero for one that does not run now.
func (c *cluster) dataOf(member string) (pid int, dir string) {
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(c.t, err)
	flag := fmt.Appendf(nil, "://%s.%s-peers.%s.svc:2380\x00", member, name, c.ns)
	atAddress := fmt.Appendf(nil, "://%s.%s@", member, c.ns) // on the hosts' network
	for _, path := range all {
		if words, err := os.ReadFile(path); err == nil && bytes.HasPrefix(words, []byte("/usr/local/bin/etcd\x00")) &&
			(bytes.Contains(words, flag) || bytes.Contains(words, atAddress)) {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid, filepath.Join(filepath.Dir(path), "root/var/lib/etcd/data")
		}
	}
	return 0, ""
}

// spoil does something with a member's data, and ends its etcd at once.
func (c *cluster) spoil(member string, data func(dir string) error) {
	c.t.Helper()
	pid, dir := c.dataOf(member)
	require.NotZero(c.t, pid, "%s does not run", member)
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, paused.Process(ctx, pid)) // it must not write what is taken away
	require.NoError(c.t, data(dir))
	require.NoError(c.t, syscall.Kill(pid, syscall.SIGKILL))
}

// unreadable leaves the write-ahead log as it is, and the database as no database.
func unreadable(dir string) error {
	return os.WriteFile(filepath.Join(dir, "member/snap/db"), []byte(strings.Repeat("not a database ", 10000)), 0o600)
}

func emptied(dir string) error { return os.RemoveAll(filepath.Join(dir, "member")) }

// succeeds waits until a member is gone from the list and the cluster has converged without it, and returns the name
// of its successor, which is the newest member: it may be the second that was tried, where the first took too long.
func (c *cluster) succeeds(member string, meanwhile func()) string {
	c.t.Helper()
	eventually(c.t, member+" is succeeded", func() string {
		meanwhile()
		if _, there := c.ids()[member]; there {
			return member + " is still a member: " + c.notConverged(3)
		}
		return c.notConverged(3)
	})
	number := func(member string) int { n, _ := objects.Ordinal(name, member); return n }
	successor := slices.MaxFunc(slices.Collect(maps.Keys(c.ids())),
		func(a, b string) int { return number(a) - number(b) })
	require.Greater(c.t, number(successor), number(member), "no member came in the place of %s", member)
	return successor
}

// givesACrashingMemberUp tells the cluster to be patient first, so that what it says meanwhile is there for as long
// as this takes to read it.
func (c *cluster) givesACrashingMemberUp() {
	w := c.writes()
	member, _ := c.follower()
	c.edit(`{"memberReplacement":{"after":"24h","keepClaimFor":"24h"}}`)
	kept, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
	require.True(c.t, found)
	c.spoil(member, unreadable)
	eventually(c.t, "the message shows why", func() string {
		degraded := meta.FindStatusCondition(c.object().Status.Conditions, v1alpha1.Degraded)
		return while(degraded == nil || !strings.Contains(degraded.Message, "it crashes: exit"), fmt.Sprint(degraded))
	})
	c.edit(`{"memberReplacement":{"after":"30s"}}`)
	c.succeeds(member, func() {})
	claim, found := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
	require.True(c.t, found, "its claim is kept")
	assert.Equal(c.t, kept.UID, claim.UID)
	assert.Equal(c.t, "true", claim.Labels["etcd.quorate.dev/quarantined"])
	c.edit(`{"memberReplacement":{"keepClaimFor":"1s"}}`)
	eventually(c.t, "the claim goes", func() string {
		_, there := get[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc", member)
		return while(there, "it is there")
	})
	w.losesNothing()
}

// triesALearnerAgain that comes to nothing: no node will take its pod, because of a claim of a class without a
// provisioner.
func (c *cluster) triesALearnerAgain() {
	before := c.ids()
	c.edit(`{"memberReplacement":{"after":"30s"},"replicas":4,"storage":{"storageClassName":"no-class"}}`)
	first := ""
	eventually(c.t, "a second learner is tried", func() string {
		for member := range c.ids() {
			if _, voter := before[member]; voter {
				continue
			}
			if first == "" {
				first = member
			}
			if member != first {
				return ""
			}
		}
		return fmt.Sprint(c.ids(), c.object().Status.Internal.Replacement)
	})
	assert.NotContains(c.t, c.ids(), first)
	c.edit(`{"replicas":3}`)
	eventually(c.t, "it is taken back", func() string {
		ids := c.ids()
		return while(len(ids) != 3, fmt.Sprint(ids))
	})
	assert.Equal(c.t, before, c.ids())
	c.edit(`{"memberReplacement":null,"storage":{"storageClassName":null}}`)
}

// forgetsNothing empties a voter's data under load, and that of its successor: it has joined the members that
// it was told, and the same must not happen to it.
func (c *cluster) forgetsNothing() {
	c.edit(`{"memberReplacement":{"after":"30s"}}`)
	member, _ := c.follower()
	c.staysForgotten(c.staysForgotten(member))
	c.edit(`{"memberReplacement":null}`)
}

// staysForgotten empties a voter's data directory under load, in a pod that stays. Its etcd must not begin a second
// time, not even while no other member answers it: it could vote twice, and what was acknowledged could be lost.
func (c *cluster) staysForgotten(member string) (successor string) {
	c.t.Helper()
	w := c.writesWith(c.client(), "before-"+member)
	hasNotBegun := func() {
		_, dir := c.dataOf(member)
		_, err := os.Stat(filepath.Join(dir, "member/wal"))
		assert.True(c.t, dir == "" || err != nil, "%s has begun a second time", member)
	}
	c.whileOthersAreFrozen(member, func() {
		restarts := c.etcdOf(member).RestartCount
		c.spoil(member, emptied)
		eventually(c.t, member+" is started again, and ends", func() string {
			hasNotBegun()
			etcd := c.etcdOf(member)
			return while(etcd.RestartCount == restarts || etcd.State.Running != nil, fmt.Sprintf("%+v", etcd))
		})
	})
	successor = c.succeeds(member, hasNotBegun)
	w.losesNothing()
	return successor
}

func (c *cluster) etcdOf(member string) corev1.ContainerStatus {
	c.t.Helper()
	return objects.StatusOf(c.observed(member), objects.ContainerEtcd)
}

// whileOthersAreFrozen does something while no member but this one answers.
func (c *cluster) whileOthersAreFrozen(member string, do func()) {
	c.t.Helper()
	for other := range c.ids() {
		if other == member {
			continue
		}
		pid, _ := c.dataOf(other)
		require.NotZero(c.t, pid, "%s does not run", other)
		ctx, cancel := context.WithTimeout(c.t.Context(), patience)
		defer cancel()
		defer func() { assert.NoError(c.t, syscall.Kill(pid, syscall.SIGCONT)) }()
		require.NoError(c.t, paused.Process(ctx, pid))
	}
	do()
}
