//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// slower is by how much each sync of the slow disk takes longer.
const slower = 200 * time.Millisecond

// TestWhoLeads: the leadership leaves a disk that becomes slow under writers, and then goes to a preferred zone.
func TestWhoLeads(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  leadership: {avoidSlowDisks: true}\n")
	c.converges(3)
	c.tell("ItLeavesASlowDisk", (*cluster).leavesASlowDisk)
	c.tell("ItPrefersAZone", (*cluster).prefersAZone)
}

func (c *cluster) leavesASlowDisk() {
	strace, err := exec.LookPath("strace")
	require.NoError(c.t, err, "it makes a disk slow; bin/lab says which packages are missing")
	w, p := c.writes(), c.probes()
	w.wrote(200)
	leader := c.leader()
	began := c.slowsDown(strace, leader)
	eventually(c.t, "another member leads", func() string {
		now := c.object().Status.Leader
		return while(now == "" || now == leader, leader, " leads still")
	})
	left := time.Since(began)
	w.wrote(200)
	p.ends()
	w.losesNothing()
	before, after := p.p99(time.Time{}, began), p.p99(began.Add(left), time.Now())
	calm := p.lastOver(slower*3/4, began)
	c.t.Logf("another member led after %.1f s (wanted: 10), and the last put over %s ended %.1f s after the disk became "+
		"slow; p99 was %s before, and is %s", left.Seconds(), slower*3/4, calm.Seconds(), before, after)
	assert.Less(c.t, left, time.Minute, "two looks, a move, and what a busy machine takes")
	assert.Less(c.t, after, before+slower*3/4, "no put waits for the slow disk")
	eventually(c.t, "the advice names the disk", func() string {
		a := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Advised)
		return while(a == nil || !strings.Contains(a.Message, "the disk of "+leader+" was found slow"), a)
	})
}

// slowsDown makes each sync of a member's etcd slow, until the test ends. The result is since when.
func (c *cluster) slowsDown(strace, member string) time.Time {
	c.t.Helper()
	pid, _ := c.dataOf(member)
	require.NotZero(c.t, pid, "%s does not run", member)
	slow := exec.Command(strace, "-f", "-qq", "-o", "/dev/null", "-e", "trace=fdatasync,fsync", "-e",
		fmt.Sprintf("inject=fdatasync,fsync:delay_exit=%d", slower.Microseconds()), "-p", fmt.Sprint(pid))
	require.NoError(c.t, slow.Start())
	c.t.Cleanup(func() {
		_ = slow.Process.Signal(syscall.SIGINT) // it lets go of etcd
		_ = slow.Wait()
	})
	eventually(c.t, "strace holds "+member, func() string {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		require.NoError(c.t, err)
		return while(strings.Contains(string(status), "TracerPid:\t0\n"), "not yet")
	})
	return time.Now()
}

// prefersAZone: a follower's zone is preferred, and it leads.
func (c *cluster) prefersAZone() {
	leader := c.leader()
	follower := ""
	for _, pod := range c.pods() {
		if pod.Name != leader && pod.Labels[corev1.LabelTopologyZone] != c.observed(leader).Labels[corev1.LabelTopologyZone] {
			follower = pod.Name
		}
	}
	require.NotEmpty(c.t, follower, "no pod has a zone of its own: Kubernetes puts it on pods from 1.35 on")
	// what another story has found slow, or moved, is forgotten with the status
	c.kube("patch", "etcdcluster", name, "--subresource=status", "--type=merge", "-p",
		`{"status":{"internal":{"leadership":null}}}`)
	c.edit(fmt.Sprintf(`{"leadership":{"avoidSlowDisks":false,"preferredZones":[%q]}}`,
		c.observed(follower).Labels[corev1.LabelTopologyZone]))
	eventually(c.t, "a member in the preferred zone leads", func() string {
		now := c.object().Status.Leader
		return while(now != follower, now, " leads")
	})
}

// probes are puts, some twenty a second, and how long each took.
type probes struct {
	stop context.CancelFunc
	done chan struct{}
	took []probe
}

type probe struct {
	at   time.Time // when it was answered
	took time.Duration
}

func (c *cluster) probes() *probes {
	c.t.Helper()
	client := c.client()
	ctx, stop := context.WithCancel(context.Background())
	p := &probes{stop: stop, done: make(chan struct{})}
	c.t.Cleanup(p.ends)
	go func() {
		defer close(p.done)
		for ctx.Err() == nil {
			begin := time.Now()
			p.put(ctx, client)
			p.took = append(p.took, probe{at: time.Now(), took: time.Since(begin)})
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return p
}

// put puts until it is taken.
func (p *probes) put(ctx context.Context, client *clientv3.Client) {
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := client.Put(attempt, "probe", "")
		cancel()
		if err == nil {
			return
		}
	}
}

func (p *probes) ends() {
	p.stop()
	<-p.done
}

// p99 is how long 99 of 100 that were answered between took at most.
func (p *probes) p99(from, to time.Time) time.Duration {
	var all []time.Duration
	for _, one := range p.took {
		if one.at.Add(-one.took).After(from) && one.at.Before(to) {
			all = append(all, one.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)*99/100]
}

// lastOver is how long after a moment the last one was answered that took so long.
func (p *probes) lastOver(bound time.Duration, since time.Time) (last time.Duration) {
	for _, one := range p.took {
		if one.took > bound {
			last = max(last, one.at.Sub(since))
		}
	}
	return last
}
