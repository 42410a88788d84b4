package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// older is the release that the tour begins with where it is at hand, to show an upgrade.
const older = "3.6.16"

// tour plays what Quorate is for, on real etcds, while a client writes.
type tour struct {
	*try
	c   *console
	ctx context.Context
}

// patience is how long one part of the tour may take.
const patience = 3 * time.Minute

// until waits for a state. The error says what was waited for.
func (t *tour) until(what string, is func() bool) error {
	t.c.wait(what)
	defer t.c.wait("")
	for began := time.Now(); !is(); {
		if time.Since(began) > patience {
			return fmt.Errorf("gave up after %s of waiting until %s", patience, what)
		}
		select {
		case <-t.ctx.Done():
			return t.ctx.Err()
		case <-time.After(100 * time.Millisecond):
			t.c.wait(what)
		}
	}
	return nil
}

// part begins one of the tour.
func (t *tour) part(format string, args ...any) {
	t.c.say("\n=== "+format, args...)
}

// play is the whole tour.
func (t *tour) play() error {
	release := version.Version
	_, upgrades := built(older, "etcd")
	if upgrades {
		release = older
	}
	if err := t.create(release); err != nil {
		return err
	}
	w, err := t.startWriter(t.ctx)
	if err != nil {
		return err
	}
	for _, part := range []func() error{func() error { return t.change(upgrades) }, t.kill, t.grow, t.shrink, t.lose} {
		if err := part(); err != nil {
			w.stop()
			return err
		}
		t.list()
	}
	return t.count(w)
}

func (t *tour) create(release string) error {
	t.part("Create an etcd of three members, version %s, as manifests/samples/etcdcluster.yaml does", release)
	began := time.Now()
	c, err := sample(release)
	if err == nil {
		err = t.apply(c)
	}
	if err != nil {
		return err
	}
	if err := t.until("three members serve", t.serves(3)); err != nil {
		return err
	}
	client, err := t.client()
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	read := ""
	err = t.until("the first value is written and read back", func() bool {
		ctx, cancel := context.WithTimeout(t.ctx, 2*time.Second)
		defer cancel()
		if _, err := client.Put(ctx, "greeting", "hello"); err != nil {
			return false
		}
		got, err := client.Get(ctx, "greeting")
		if err != nil || len(got.Kvs) != 1 {
			return false
		}
		read = string(got.Kvs[0].Value)
		return true
	})
	if err != nil {
		return err
	}
	t.c.say("Three members serve, and the first value is read back (greeting: %s): %.1f s after it was applied.", read,
		time.Since(began).Seconds())
	t.list()
	line, err := t.line()
	if err == nil {
		t.c.say("From another terminal:\n  %s get greeting", line)
		t.c.say("From now on a client writes, all the time.")
	}
	return err
}

func (t *tour) kill() error {
	t.part("Kill demo-1's etcd: it is started again on its data")
	before := etcdOf(t.pod("demo-1")).ContainerID
	if err := t.killEtcd("demo-1"); err != nil {
		return err
	}
	again := func() bool {
		now := etcdOf(t.pod("demo-1"))
		return now.State.Running != nil && now.ContainerID != before
	}
	return t.until("demo-1 runs again and all serve", both(again, t.settled(3)))
}

// lose takes the member that has been there longest. One that was added just now is not removed before calls from
// before that are over (S9), which would be 20 s of waiting.
func (t *tour) lose() error {
	lost := t.pods()[0].Name
	t.part("Lose %s's disk, and its pod: it is replaced by a new member", lost)
	if err := t.loseMember(lost); err != nil {
		return err
	}
	return t.until("a successor votes and "+lost+" is removed", both(func() bool { return t.pod(lost) == nil },
		t.settled(3)))
}

func (t *tour) grow() error {
	t.part("Scale to five members")
	t.ask(func() { t.world.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(5)) }) })
	return t.until("five members serve", t.settled(5))
}

func (t *tour) shrink() error {
	t.part("Scale back to three")
	t.ask(func() { t.world.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(3)) }) })
	return t.until("three members are left", t.settled(3))
}

// change is an upgrade where a second release is at hand, else another flag.
func (t *tour) change(upgrades bool) error {
	if upgrades {
		t.part("Upgrade to etcd %s: one member after the other, the leader last", version.Version)
		t.ask(func() { t.world.EditSpec(func(s *v1beta1.EtcdClusterSpec) { s.Version = version.Version }) })
		return t.until("all members run "+version.Version,
			both(t.settled(3), func() bool { return t.cluster().Status.Version == version.Version }))
	}
	t.part("Change a flag of etcd (max-txn-ops): one member after the other is restarted with it, the leader last")
	t.c.say("To see an upgrade here, build a second release once (`make etcd-binaries`), or type `upgrade %s` at the "+
		"prompt.", older)
	t.ask(func() {
		t.world.EditSpec(func(s *v1beta1.EtcdClusterSpec) {
			s.Options.ExtraArgs = map[string]v1beta1.ExtraArg{"max-txn-ops": "200"}
		})
	})
	return t.until("all members run with it", t.settled(3))
}

func (t *tour) count(w *writer) error {
	there, err := w.end(t.ctx)
	if err != nil {
		return fmt.Errorf("what was written can't be read back: %w", err)
	}
	t.part("%d writes were acknowledged meanwhile, %d of them are there; at most %.1f s passed from one to the next",
		w.acked, there, w.gap.Seconds())
	if there != w.acked {
		return fmt.Errorf("%d acknowledged writes are lost", w.acked-there)
	}
	return nil
}

// list shows etcd's member list.
func (t *tour) list() {
	lines, err := t.members(t.ctx)
	if err != nil {
		t.c.say("etcd's member list can't be had: %v", err)
		return
	}
	t.c.say("etcd's member list:")
	for _, line := range lines {
		t.c.say("  %s", line)
	}
}

func both(a, b func() bool) func() bool { return func() bool { return a() && b() } }

// serves reports whether so many members' pods are ready.
func (t *try) serves(n int) func() bool {
	return func() bool {
		ready := slices.DeleteFunc(slices.Clone(t.pods()), func(p *corev1.Pod) bool { return !ready(p) })
		return len(ready) == n
	}
}

// settled reports whether so many members serve, and nothing is left to do about the spec as it is.
func (t *try) settled(n int) func() bool {
	return func() bool {
		c := t.cluster()
		return c != nil && c.Status.ObservedGeneration == c.Generation && c.Status.Rule == "Converged" &&
			len(t.pods()) == n && t.serves(n)()
	}
}

func (t *try) pod(name string) (p *corev1.Pod) {
	t.ask(func() { p = t.world.Pod(name) })
	return p
}

func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// etcdOf is the status of a pod's etcd.
func etcdOf(p *corev1.Pod) corev1.ContainerStatus {
	if p == nil || len(p.Status.ContainerStatuses) == 0 {
		return corev1.ContainerStatus{}
	}
	return p.Status.ContainerStatuses[0]
}

// uid of a pod; empty for none.
func uid(p *corev1.Pod) types.UID {
	if p == nil {
		return ""
	}
	return p.UID
}
