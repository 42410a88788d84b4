//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
)

// TestMembersBesideOthers alternates what a cluster of Quorate's goes through with the same by hand: a program that
// watches and doesn't think, in plain text and with TLS. It runs on demand: `make bench`. Where other operators are
// installed (`make bench-operators`), they make the same changes of members. One judge says for all when it is done.
func TestMembersBesideOthers(t *testing.T) {
	measurement(t)
	rounds := 10
	if n, err := strconv.Atoi(os.Getenv("QUORATE_ROUNDS")); err == nil {
		rounds = n
	}
	who := []string{"Quorate", "by hand", "by hand with TLS"}
	contestants := map[string]func(*testing.T, times){
		"Quorate": func(t *testing.T, took times) {
			begin := time.Now()
			o := &ourCluster{judges(inNamespace(t), nil)}
			o.config = rereading(o.ns, name+"-client-tls")
			o.apply(three)
			o.serves(3, "")
			took[rows[0]] = append(took[rows[0]], time.Since(begin))
			o.changesMembers(took, o)
		},
		"by hand":          func(t *testing.T, took times) { changesByHand(t, took, false) },
		"by hand with TLS": func(t *testing.T, took times) { changesByHand(t, took, true) },
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
	fmt.Printf("\n| seconds: median (min-max) of %d | %s | ratio |\n|%s\n", rounds, strings.Join(who, " | "),
		strings.Repeat("---|", len(who)+2))
	for _, row := range rows {
		cells := []string{row}
		for _, name := range who {
			cells = append(cells, cellOf(results[name][row], rounds))
		}
		a, b := results["Quorate"][row], results["by hand"][row]
		if len(a) > 0 && len(b) > 0 {
			cells = append(cells, fmt.Sprintf("%.2f", median(a).Seconds()/median(b).Seconds()))
		}
		fmt.Printf("| %s |\n", strings.Join(cells, " | "))
	}
}

func changesByHand(t *testing.T, took times, secured bool) {
	t.Helper()
	begin := time.Now()
	h := byHand(inNamespace(t), secured)
	took[rows[0]] = append(took[rows[0]], time.Since(begin))
	h.changesMembers(took, h)
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
var rows = []string{"founded", "a pod deleted", "3 to 5", "5 to 3 right after that", "5 to 3",
	"claim and pod of a follower lost", "claim and pod of the leader lost", "3.6.16 to 3.7.3"}

// changer changes the members of a cluster, and returns when that is done.
type changer interface {
	losesPod()
	scalesTo(n int)
	// losesMember deletes the claim and the pod of a member; another one takes its place.
	losesMember(leads bool)
	upgrades(version string)
}

// changesMembers takes the time of each change.
func (c *cluster) changesMembers(took times, by changer) {
	c.t.Helper()
	timed := func(row int, change func()) {
		begin := time.Now()
		change()
		took[rows[row]] = append(took[rows[row]], time.Since(begin))
	}
	timed(1, by.losesPod)
	timed(2, func() { by.scalesTo(5) })
	timed(3, func() { by.scalesTo(3) })
	by.scalesTo(5)
	time.Sleep(facts.CallsEnd + 5*time.Second)
	timed(4, func() { by.scalesTo(3) })
	timed(5, func() { by.losesMember(false) })
	timed(6, func() { by.losesMember(true) })
	c.settles()
	timed(7, func() { by.upgrades("3.7.3") })
}

// ours is a cluster that Quorate runs.
type ourCluster struct{ *judge }

func (o *ourCluster) losesPod() {
	o.t.Helper()
	was := o.observed("demo-1").UID
	o.loses("pods", "demo-1")
	o.until("demo-1 is another pod", func(pods map[string]*corev1.Pod) string {
		return while(pods["demo-1"] == nil || pods["demo-1"].UID == was)
	})
	o.serves(3, "")
}

func (o *ourCluster) scalesTo(n int) {
	o.t.Helper()
	o.edit(fmt.Sprintf(`{"replicas":%d}`, n))
	o.serves(n, "")
}

func (o *ourCluster) losesMember(leads bool) {
	o.t.Helper()
	gone := o.any(func(pod string) bool { return o.leads(pod) == leads })
	o.loses("pvc", gone)
	o.loses("pods", gone)
	o.until(gone+" is gone", func(pods map[string]*corev1.Pod) string { return while(pods[gone] != nil) })
	o.serves(3, "")
}

func (o *ourCluster) upgrades(version string) {
	o.t.Helper()
	o.edit(fmt.Sprintf(`{"version":%q}`, version))
	o.serves(3, version)
}

// operator is another one, with the smallest cluster that its own samples would make: no TLS, a volume for each member.
type operator struct {
	resource string // as kubectl has it
	size     string // the field of the number of members
	prefix   string // of versions
	manifest string
}

var others = map[string]operator{
	"cozystack": {"etcdclusters.etcd-operator.cozystack.io", "replicas", "", `
apiVersion: etcd-operator.cozystack.io/v1alpha2
kind: EtcdCluster
metadata: {name: demo}
spec: {replicas: 3, version: 3.6.16, storage: {size: 1Gi}}
`},
	"etcd-io": {"etcdclusters.operator.etcd.io", "size", "v", `
apiVersion: operator.etcd.io/v1alpha1
kind: EtcdCluster
metadata: {name: demo}
spec: {size: 3, version: v3.6.16, storageSpec: {accessModes: ReadWriteOnce, volumeSizeRequest: 1Gi}}
`},
}

// othersMay is how long a change of theirs may take before it counts as not done.
const othersMay = 10 * time.Minute

// other is a cluster of another operator's.
type other struct {
	*judge
	operator
}

// changesOther takes the time of each change. A change that is not done ends the round.
func changesOther(t *testing.T, took times, by operator) {
	t.Helper()
	o := &other{judges(inNamespace(t), nil), by}
	begin := time.Now()
	o.adds(by.manifest)
	o.serves(3, "")
	took[rows[0]] = append(took[rows[0]], time.Since(begin))
	o.changesMembers(took, o)
}

func (o *other) losesPod() {
	o.t.Helper()
	o.loses("pods", o.any(func(pod string) bool { return true }))
	o.serves(3, "")
}

func (o *other) scalesTo(n int) {
	o.t.Helper()
	o.kube("patch", o.resource, name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{%q:%d}}`, o.size, n))
	o.serves(n, "")
}

func (o *other) losesMember(leads bool) {
	o.t.Helper()
	gone := o.observed(o.any(func(pod string) bool { return o.leads(pod) == leads }))
	for _, v := range gone.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			o.loses("pvc", v.PersistentVolumeClaim.ClaimName)
		}
	}
	o.loses("pods", gone.Name)
	o.until(gone.Name+" is another pod", func(pods map[string]*corev1.Pod) string {
		pod := pods[gone.Name]
		return while(pod != nil && pod.UID == gone.UID)
	})
	o.serves(3, "")
}

func (o *other) upgrades(version string) {
	o.t.Helper()
	o.kube("patch", o.resource, name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"version":%q}}`, o.prefix+version))
	o.serves(3, version)
}
