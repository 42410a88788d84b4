//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// TestMembersBesideOthers alternates changes of members by Quorate with the same ones by a script: kubectl and etcdctl,
// without a moment of thought. It runs on demand: `make bench`. Where other operators are installed (`make
// bench-operators`), they make the same changes.
func TestMembersBesideOthers(t *testing.T) {
	measurement(t)
	rounds := 3
	if n, err := strconv.Atoi(os.Getenv("QUORATE_ROUNDS")); err == nil {
		rounds = n
	}
	who := []string{"Quorate", "by hand"}
	contestants := map[string]func(*testing.T, times){
		"Quorate": func(t *testing.T, took times) {
			begin := time.Now()
			c := newCluster(t, three)
			c.converges(3)
			took[rows[0]] = append(took[rows[0]], time.Since(begin))
			c.changesMembers(took, c)
		},
		"by hand": func(t *testing.T, took times) {
			c := inNamespace(t)
			begin := time.Now()
			c.adds(byHandManifest(c.ns))
			c.meets("pod --all", "Ready")
			took[rows[0]] = append(took[rows[0]], time.Since(begin))
			c.changesMembers(took, &hand{cluster: c, members: []int{0, 1, 2}, next: 3})
		},
	}
	for _, name := range strings.Fields(os.Getenv("QUORATE_BESIDE")) {
		who = append(who, name)
		contestants[name] = func(t *testing.T, took times) { changesOther(t, took, others[name]) }
	}
	results := map[string]times{}
	for i := range rounds {
		for _, name := range who {
			if results[name] == nil {
				results[name] = times{}
			}
			t.Run(fmt.Sprintf("%s-%d", strings.ToLower(strings.ReplaceAll(name, " ", "-")), i), func(t *testing.T) {
				contestants[name](t, results[name])
			})
		}
	}
	fmt.Printf("\n| seconds: median (min-max) of %d | %s |\n|%s\n", rounds, strings.Join(who, " | "),
		strings.Repeat("---|", len(who)+1))
	for _, row := range rows {
		cells := []string{row}
		for _, name := range who {
			cells = append(cells, cellOf(results[name][row], rounds))
		}
		fmt.Printf("| %s |\n", strings.Join(cells, " | "))
	}
}

// cellOf tells how often a change was not done, too.
func cellOf(took []time.Duration, rounds int) string {
	switch {
	case len(took) == 0:
		return fmt.Sprintf("0 of %d", rounds)
	case len(took) < rounds:
		return fmt.Sprintf("%s, %d of %d", spanOf(took), len(took), rounds)
	}
	return spanOf(took)
}

// times are what each change took, by its row.
type times map[string][]time.Duration

// rows are the changes, in their order.
var rows = []string{"founded", "3 to 5", "5 to 3 right after that", "5 to 3", "claim and pod of a follower lost",
	"claim and pod of the leader lost"}

// changer changes the members of a cluster.
type changer interface {
	// scalesTo returns when there are n.
	scalesTo(n int)
	// losesMember has the claim and the pod of a member deleted, and returns when another one has taken its place.
	losesMember(leads bool)
}

// changesMembers takes the time of each change.
func (c *cluster) changesMembers(took times, by changer) {
	c.t.Helper()
	timed := func(row int, change func()) {
		begin := time.Now()
		change()
		took[rows[row]] = append(took[rows[row]], time.Since(begin))
	}
	timed(1, func() { by.scalesTo(5) })
	timed(2, func() { by.scalesTo(3) })
	by.scalesTo(5)
	time.Sleep(facts.CallsEnd + 5*time.Second)
	timed(3, func() { by.scalesTo(3) })
	timed(4, func() { by.losesMember(false) })
	timed(5, func() { by.losesMember(true) })
}

func (c *cluster) scalesTo(n int) {
	c.t.Helper()
	c.edit(fmt.Sprintf(`{"replicas":%d}`, n))
	c.converges(n)
}

func (c *cluster) losesMember(leads bool) {
	c.t.Helper()
	members := c.object().Status.Members
	gone := members[slices.IndexFunc(members, func(m v1beta1.MemberStatus) bool { return m.Leader == leads })].Name
	c.deletesBoth(gone)
	eventually(c.t, gone+" is replaced", func() string {
		if slices.ContainsFunc(c.object().Status.Members,
			func(m v1beta1.MemberStatus) bool { return m.Name == gone }) {
			return "it is a member"
		}
		return c.notConverged(3)
	})
}

// deletesBoth deletes a member's claim and pod, and waits until they are gone.
func (c *cluster) deletesBoth(member string) {
	c.t.Helper()
	c.kube("delete", "pvc", member, "--wait=false")
	c.kube("delete", "pod", member, "--wait=true")
}

func nameByHand(n int) string { return fmt.Sprintf("demo-%d", n) }

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
		if h.leads(nameByHand(last)) {
			last = h.members[len(h.members)-2]
		}
		h.removes(last)
		h.deletesBoth(nameByHand(last))
	}
}

func (h *hand) losesMember(leads bool) {
	h.t.Helper()
	gone := h.members[slices.IndexFunc(h.members, func(m int) bool { return h.leads(nameByHand(m)) == leads })]
	h.deletesBoth(nameByHand(gone))
	h.removes(gone)
	h.adds()
}

// adds a member as a learner, and promotes it once etcd allows that.
func (h *hand) adds() {
	h.t.Helper()
	n := h.next
	h.next++
	at, url := h.members[0], urlByHand(h.ns, n, 2380)
	h.asked(nameByHand(at), "member", "add", nameByHand(n), "--learner", "--peer-urls="+url)
	h.members = append(h.members, n)
	h.cluster.adds(memberByHand(h.ns, n, h.members, "existing"))
	h.asked(nameByHand(at), "member", "promote", h.id(at, n))
	h.meets("pod/"+nameByHand(n), "Ready")
}

// removes a member from etcd.
func (h *hand) removes(n int) {
	h.t.Helper()
	h.members = slices.DeleteFunc(h.members, func(m int) bool { return m == n })
	h.asked(nameByHand(h.members[0]), "member", "remove", h.id(h.members[0], n))
}

// id is that of a member in etcd, in hexadecimal.
func (h *hand) id(at, n int) string {
	h.t.Helper()
	for line := range strings.Lines(h.asked(nameByHand(at), "member", "list")) {
		if strings.Contains(line, urlByHand(h.ns, n, 2380)) {
			id, _, _ := strings.Cut(line, ",")
			return id
		}
	}
	h.t.Fatalf("etcd does not list demo-%d", n)
	return ""
}

// leads reports whether the member in that pod leads.
func (c *cluster) leads(pod string) bool {
	c.t.Helper()
	var s endpointStatus
	eventually(c.t, pod+" says who leads", func() (why string) {
		var err error
		s, err = c.endpoint(pod)
		return failure(err)
	})
	return s.Leader == s.Header.MemberID
}

// operator is another one, with the smallest cluster that its own samples would make: no TLS, a volume for each member.
type operator struct {
	resource string // as kubectl has it
	size     string // the field of the number of members
	manifest string
}

var others = map[string]operator{
	"cozystack": {"etcdclusters.etcd-operator.cozystack.io", "replicas", `
apiVersion: etcd-operator.cozystack.io/v1alpha2
kind: EtcdCluster
metadata: {name: demo}
spec: {replicas: 3, version: 3.6.16, storage: {size: 1Gi}}
`},
	"etcd-io": {"etcdclusters.operator.etcd.io", "size", `
apiVersion: operator.etcd.io/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec: {size: 3, version: v3.6.16, storageSpec: {accessModes: ReadWriteOnce, volumeSizeRequest: 1Gi}}
`},
}

// othersMay is how long a change of theirs may take before it counts as not done.
const othersMay = 10 * time.Minute

// other is a cluster of another operator's. What became of it is read from its pods and its etcd, not from a status.
type other struct {
	*cluster
	operator
}

// changesOther takes the time of each change. A change that is not done ends the round.
func changesOther(t *testing.T, took times, by operator) {
	t.Helper()
	o := &other{inNamespace(t), by}
	begin := time.Now()
	o.adds(by.manifest)
	o.settles(3)
	took[rows[0]] = append(took[rows[0]], time.Since(begin))
	o.changesMembers(took, o)
}

func (o *other) scalesTo(n int) {
	o.t.Helper()
	o.kube("patch", o.resource, name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{%q:%d}}`, o.size, n))
	o.settles(n)
}

func (o *other) losesMember(leads bool) {
	o.t.Helper()
	pods := list[corev1.Pod](o.t, o.ns, "pods")
	gone := pods[slices.IndexFunc(pods, func(p corev1.Pod) bool { return o.leads(p.Name) == leads })]
	for _, v := range gone.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			o.kube("delete", "pvc", v.PersistentVolumeClaim.ClaimName, "--wait=false")
		}
	}
	o.t.Logf("before: %s", o.asked(gone.Name, "member", "list"))
	o.kube("delete", "pod", gone.Name, "--wait=true")
	o.settles(3)
	pods = list[corev1.Pod](o.t, o.ns, "pods")
	o.t.Logf("after: %s", o.asked(pods[0].Name, "member", "list"))
}

// settles waits until there are n pods, all ready, and n voters in etcd that have begun.
func (o *other) settles(n int) {
	o.t.Helper()
	within(o.t, othersMay, fmt.Sprintf("%d members", n), func() string {
		pods := list[corev1.Pod](o.t, o.ns, "pods")
		if len(pods) != n {
			return fmt.Sprintf("%d pods", len(pods))
		}
		for _, p := range pods {
			if p.DeletionTimestamp != nil || !ready(&p) {
				return p.Name + " is not ready"
			}
		}
		var all struct {
			Members []struct {
				Name      string
				IsLearner bool
			}
		}
		out, err := o.etcdctl(pods[0].Name, "member", "list", "-w", "json")
		if err != nil {
			return err.Error()
		}
		require.NoError(o.t, json.Unmarshal([]byte(out), &all))
		for _, m := range all.Members {
			if m.IsLearner || m.Name == "" {
				return m.Name + " does not vote"
			}
		}
		return while(len(all.Members) != n, fmt.Sprintf("%d members", len(all.Members)))
	})
}
