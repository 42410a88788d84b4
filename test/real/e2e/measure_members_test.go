//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/state"
)

// TestMembersBesideByHand alternates changes of members by Quorate with the same ones by a script: kubectl and etcdctl,
// without a moment of thought. It runs on demand: `make bench`.
func TestMembersBesideByHand(t *testing.T) {
	if os.Getenv("QUORATE_BENCH") == "" {
		t.Skip("a measurement, for `make bench`")
	}
	const rounds = 3
	rows := []string{"3 to 5", "5 to 3 right after that", "5 to 3", "claim and pod of a follower lost",
		"claim and pod of the leader lost"}
	ours, byHand := map[string][]time.Duration{}, map[string][]time.Duration{}
	for i := range rounds {
		t.Run(fmt.Sprintf("quorate-%d", i), func(t *testing.T) {
			c := newCluster(t, three)
			c.converges(3)
			c.changesMembers(ours, c.scalesTo, c.losesMember)
		})
		t.Run(fmt.Sprintf("by-hand-%d", i), func(t *testing.T) {
			c := inNamespace(t)
			_, err := kubectl(byHandManifest(c.ns), "apply", "-f", "-")
			require.NoError(t, err)
			c.meets("pod --all", "Ready")
			hand := &hand{cluster: c, members: []int{0, 1, 2}, next: 3}
			c.changesMembers(byHand, hand.scalesTo, hand.losesMember)
		})
	}
	fmt.Printf("\n| seconds: median (min-max) of %d | Quorate | by hand | ratio |\n|---|---|---|---|\n", rounds)
	for _, row := range rows {
		a, b := ours[row], byHand[row]
		fmt.Printf("| %s | %s | %s | %.2f |\n", row, spanOf(a), spanOf(b), median(a).Seconds()/median(b).Seconds())
	}
}

// changesMembers takes the time of each change.
func (c *cluster) changesMembers(took map[string][]time.Duration, scale func(int), lose func(leads bool)) {
	c.t.Helper()
	timed := func(row string, change func()) {
		begin := time.Now()
		change()
		took[row] = append(took[row], time.Since(begin))
	}
	timed("3 to 5", func() { scale(5) })
	timed("5 to 3 right after that", func() { scale(3) })
	scale(5)
	time.Sleep(state.CallsEnd + 5*time.Second)
	timed("5 to 3", func() { scale(3) })
	timed("claim and pod of a follower lost", func() { lose(false) })
	timed("claim and pod of the leader lost", func() { lose(true) })
}

func (c *cluster) scalesTo(n int) {
	c.t.Helper()
	c.edit(fmt.Sprintf(`{"replicas":%d}`, n))
	c.converges(n)
}

// losesMember has a member's claim and pod deleted, and waits until another one has taken its place.
func (c *cluster) losesMember(leads bool) {
	c.t.Helper()
	members := c.object().Status.Members
	gone := members[slices.IndexFunc(members, func(m v1alpha1.MemberStatus) bool { return m.Leader == leads })].Name
	c.deletesBoth(gone)
	eventually(c.t, gone+" is replaced", func() string {
		if slices.ContainsFunc(c.object().Status.Members,
			func(m v1alpha1.MemberStatus) bool { return m.Name == gone }) {
			return "it is a member"
		}
		return c.notConverged(3)
	})
}

// deletesBoth deletes a member's claim and pod, and waits until they are gone.
func (c *cluster) deletesBoth(member string) {
	c.t.Helper()
	kube(c.t, "-n", c.ns, "delete", "pvc", member, "--wait=false")
	kube(c.t, "-n", c.ns, "delete", "pod", member, "--wait=true")
}

// hand changes the members of a cluster by hand.
type hand struct {
	*cluster
	members []int // their numbers
	next    int
}

func (h *hand) scalesTo(n int) {
	h.t.Helper()
	for len(h.members) < n {
		h.adds()
	}
	for len(h.members) > n {
		last := h.members[len(h.members)-1]
		if h.leads(last) {
			last = h.members[len(h.members)-2]
		}
		h.removes(last)
		h.deletesBoth(fmt.Sprintf("demo-%d", last))
	}
}

func (h *hand) losesMember(leads bool) {
	h.t.Helper()
	gone := h.members[slices.IndexFunc(h.members, func(m int) bool { return h.leads(m) == leads })]
	h.deletesBoth(fmt.Sprintf("demo-%d", gone))
	h.removes(gone)
	h.adds()
}

// adds a member as a learner, and promotes it once etcd allows that.
func (h *hand) adds() {
	h.t.Helper()
	n := h.next
	h.next++
	at, url := h.members[0], urlByHand(h.ns, n, 2380)
	h.repeats(at, "member", "add", fmt.Sprintf("demo-%d", n), "--learner", "--peer-urls="+url)
	h.members = append(h.members, n)
	_, err := kubectl(memberByHand(h.ns, n, h.members, "existing"), "apply", "-f", "-")
	require.NoError(h.t, err)
	h.repeats(at, "member", "promote", h.id(at, n))
	h.meets(fmt.Sprintf("pod/demo-%d", n), "Ready")
}

// removes a member from etcd.
func (h *hand) removes(n int) {
	h.t.Helper()
	h.members = slices.DeleteFunc(h.members, func(m int) bool { return m == n })
	h.repeats(h.members[0], "member", "remove", h.id(h.members[0], n))
}

// id is that of a member in etcd, in hexadecimal.
func (h *hand) id(at, n int) string {
	h.t.Helper()
	for line := range strings.Lines(h.repeats(at, "member", "list")) {
		if strings.Contains(line, urlByHand(h.ns, n, 2380)) {
			id, _, _ := strings.Cut(line, ",")
			return id
		}
	}
	h.t.Fatalf("etcd does not list demo-%d", n)
	return ""
}

// leads reports whether that member leads.
func (h *hand) leads(n int) bool {
	h.t.Helper()
	var all []struct {
		Status struct {
			Header struct {
				ID uint64 `json:"member_id"`
			}
			Leader uint64
		}
	}
	require.NoError(h.t, json.Unmarshal([]byte(h.repeats(n, "endpoint", "status", "-w", "json")), &all))
	return all[0].Status.Leader == all[0].Status.Header.ID
}

// repeats runs etcdctl in a member's pod until etcd does what it is asked for.
func (h *hand) repeats(at int, args ...string) (said string) {
	h.t.Helper()
	eventually(h.t, "etcdctl "+strings.Join(args, " "), func() string {
		var err error
		if said, err = kubectl("", append([]string{"-n", h.ns, "exec", fmt.Sprintf("demo-%d", at), "--",
			"/usr/local/bin/etcdctl"}, args...)...); err != nil {
			return err.Error()
		}
		return ""
	})
	return said
}
