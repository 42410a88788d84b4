//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/test/real/chaos"
)

// life is one life of a cluster, and the human in it.
type life struct {
	storm *storm
	*cluster
	dice     *rand.Rand
	memory   bool
	replicas int
	// ops and version are what the spec says of them.
	ops     int
	version string
}

// spec of the cluster as it should be now.
func (l *life) spec() string {
	spec := fmt.Sprintf("  replicas: %d\n  version: %s\n  options: {extraArgs: {max-txn-ops: \"%d\"}}\n", l.replicas, l.version,
		l.ops)
	if l.memory {
		spec += "  storage: {medium: Memory, size: 512Mi}\n"
	}
	return spec
}

// life lives one life: from the creation under faults to the deletion under faults. When the time is over, the human
// only finishes what is under way.
func (s *storm) life(round int, deadline time.Time) {
	t := s.t
	c := namespaced(t, fmt.Sprintf("e2e-chaos-%d", round))
	l := &life{storm: s, cluster: c, dice: chaos.Dice(s.seed, "life", uint64(round)), memory: round%2 == 1, replicas: 3,
		ops: 500, version: "3.6.16"}
	s.space.Store(&c.ns)
	s.schedule.Start()
	defer s.schedule.Stop()

	began := time.Now()
	c.apply(l.spec())
	l.whole("create", began)
	clients := newClients(c, s.seed, s.breaks)
	for _, do := range l.plan() {
		if time.Now().After(deadline) {
			break
		}
		began := time.Now()
		l.whole(do(l), began)
	}
	if l.replicas != 3 {
		began := time.Now()
		l.whole(l.scale(3), began)
	}

	s.calm()
	eventually(t, "converged without faults", func() string { return l.wrong() })
	clients.judge()
	s.intact()
	s.count(clients)
	calm := s.withoutFaults(l)
	eventually(t, "the end state is that of a run without faults", func() string { // the status comes before the rest
		is := c.endState()
		return while(is != calm, "it is\n"+is+"\nand not\n"+calm)
	})
	l.delete()
	s.intact()
}

// count adds what the clients did to the report.
func (s *storm) count(clients *clients) {
	for range clients.acked {
		s.schedule.Count("operations of clients", "acknowledged")
	}
	for range clients.unknown {
		s.schedule.Count("operations of clients", "outcome unknown")
	}
}

// plan is what the human does in this life, in the order of the dice.
func (l *life) plan() []func(*life) string {
	deeds := []func(*life) string{
		(*life).deletePod, (*life).loseData, (*life).roll, (*life).changeVersion, (*life).changeVersion,
		(*life).loseStatus,
		(*life).rescale, (*life).rescale, meanwhile((*life).killMetacontroller), meanwhile((*life).deletePod),
		meanwhile((*life).loseData), halfway((*life).roll),
	}
	l.dice.Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
	return deeds
}

// whole waits until the cluster is what its spec asks for, by its status, by its pods and claims, and by etcd's own
// words. The human hurts nothing before.
func (l *life) whole(what string, began time.Time) {
	l.t.Helper()
	eventually(l.t, fmt.Sprintf("%s: whole again", what), func() string { l.storm.intact(); return l.wrong() })
	l.storm.schedule.Count("human: "+deed(what), "whole again")
	l.t.Logf("%s took %.1f s", what, time.Since(began).Seconds())
}

// deed is what the human did, without names and numbers.
func deed(what string) string {
	var words []string
	for word := range strings.FieldsSeq(what) {
		if strings.HasPrefix(word, name+"-") {
			word = "a member"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// wrong is what is not yet as the spec wants it; empty when nothing is.
func (l *life) wrong() string {
	if w := l.notConverged(l.replicas); w != "" {
		return w
	}
	return l.unhealthy()
}

// unhealthy is what is wrong with the members, whatever the status says.
func (l *life) unhealthy() string {
	pods := l.pods()
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || !ready(&pod) {
			return pod.Name + " is not ready, or is ending"
		}
		etcd := pod.Spec.Containers[0]
		if !slices.Contains(etcd.Command, fmt.Sprintf("--max-txn-ops=%d", l.ops)) ||
			!strings.HasSuffix(etcd.Image, ":v"+l.version) {
			return pod.Name + " is not as the spec wants it"
		}
	}
	if !l.memory {
		var claims []string
		for _, claim := range list[corev1.PersistentVolumeClaim](l.t, l.ns, "pvc") {
			claims = append(claims, claim.Name)
			if claim.DeletionTimestamp != nil {
				return claim.Name + " is being deleted"
			}
		}
		if !sameNames(claims, podNames(pods)) {
			return fmt.Sprintf("the claims are %s, the pods %s", claims, podNames(pods))
		}
	}
	return l.storm.wrongMembers(pods, l.replicas)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func podNames(pods []corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	return names
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// ---- what the human does

func (l *life) scale(to int) string {
	l.replicas = to
	l.edit(fmt.Sprintf(`{"replicas":%d}`, to))
	return fmt.Sprintf("scale to %d", to)
}

// victim is one of the pods.
func (l *life) victim() corev1.Pod {
	pods := l.pods()
	return pods[l.dice.IntN(len(pods))]
}

// deletePod deletes a pod, in half of the cases without grace, as when a node fails.
func (l *life) deletePod() string {
	victim := l.victim()
	if l.dice.IntN(2) == 0 {
		l.kills(victim.Name)
	} else {
		l.deletes("pods", victim.Name)
	}
	l.another(victim)
	return "delete the pod of " + victim.Name
}

// loseData takes a member's claim and pod away. (On Memory the pod is all that there is to lose.) A voter is then
// replaced; a learner that has not begun has no data, and begins in a new pod.
func (l *life) loseData() string {
	victim := l.victim()
	if !l.memory {
		l.deletes("pvc", victim.Name)
	}
	l.deletes("pods", victim.Name)
	l.another(victim)
	if victim.Labels["etcd.quorate.dev/role"] == "voter" {
		eventually(l.t, victim.Name+" is no member any more", func() string {
			l.storm.intact()
			_, there := l.ids()[victim.Name]
			return while(there, "it is one")
		})
	}
	return "lose the data of " + victim.Name
}

// roll edits the template.
func (l *life) roll() string {
	l.ops += 100
	l.edit(fmt.Sprintf(`{"options":{"extraArgs":{"max-txn-ops":"%d"}}}`, l.ops))
	return "roll"
}

// changeVersion goes to the next minor version, or back.
func (l *life) changeVersion() string {
	was := l.version
	if l.version = "3.7.3"; was == l.version {
		l.version = "3.6.16"
	}
	l.edit(fmt.Sprintf(`{"version":%q}`, l.version))
	return "go from " + was + " to " + l.version
}

// halfway takes a pod away while members are restarted or succeeded one after the other.
func halfway(change func(*life) string) func(*life) string {
	return func(l *life) string {
		before := l.uids()
		what := change(l)
		eventually(l.t, "the change is under way", func() string {
			l.storm.intact()
			return while(maps.Equal(before, l.uids()), "still the same pods")
		})
		return l.deletePod() + " meanwhile " + what
	}
}

// loseStatus empties the status, on which nothing but words depends.
func (l *life) loseStatus() string {
	l.kube("patch", "etcdcluster", name, "--subresource=status", "--type=json", "-p",
		`[{"op":"remove","path":"/status"}]`)
	return "lose the status"
}

// killMetacontroller kills it; Kubernetes starts another.
func (l *life) killMetacontroller() string {
	killsMetacontroller(l.t)
	return "kill Metacontroller"
}

// rescale takes the cluster from 3 to 5 or back.
func (l *life) rescale() string { return l.scale(8 - l.replicas) }

// meanwhile does something while the cluster grows or shrinks. Only one member is hurt by it.
func meanwhile(do func(*life) string) func(*life) string {
	return func(l *life) string {
		before := len(l.ids())
		what := l.rescale()
		eventually(l.t, "the change is under way", func() string {
			l.storm.intact()
			return while(len(l.ids()) == before, fmt.Sprintf("still %d members", before))
		})
		return do(l) + " meanwhile " + what
	}
}

// delete deletes the cluster under faults; nothing of it may stay.
func (l *life) delete() {
	l.storm.schedule.Start()
	defer l.storm.calm()
	l.kube("delete", "etcdcluster", name, "--wait=false")
	eventually(l.t, "nothing is left", func() string {
		if _, found := get[metav1.PartialObjectMetadata](l.t, l.ns, "etcdcluster", name); found {
			return "the EtcdCluster"
		}
		return strings.Join(l.left(), " ")
	})
}

// ---- the end state

// withoutFaults is the end state of a cluster that was created with this spec and met no faults.
func (s *storm) withoutFaults(l *life) string {
	s.t.Helper()
	spec := l.spec()
	if s.reference[spec] == "" {
		ns := fmt.Sprintf("e2e-chaos-calm-%d", len(s.reference))
		calm := &life{storm: s, cluster: namespaced(s.t, ns), memory: l.memory, replicas: l.replicas,
			ops: l.ops, version: l.version}
		calm.apply(spec)
		eventually(s.t, "the run without faults converged", func() string { return calm.wrong() })
		s.reference[spec] = calm.endState()
		kube(s.t, "-n", ns, "delete", "etcdcluster", name, "--wait=false") // the machine is small
	}
	return s.reference[spec]
}

// endState is everything of a cluster that a person could find different: without UIDs, addresses and times, and with
// its members numbered from 0.
func (c *cluster) endState() string {
	c.t.Helper()
	var pairs []string
	pods := c.pods()
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(pad(a.Name), pad(b.Name)) })
	for i, pod := range slices.Backward(pods) { // demo-10 before demo-1, which it begins with
		pairs = append(pairs, pod.Name, fmt.Sprintf("member-%d", i))
	}
	renamed := strings.NewReplacer(append(pairs, c.ns, "NAMESPACE")...)
	var lines []string
	line := func(format string, args ...any) { lines = append(lines, renamed.Replace(fmt.Sprintf(format, args...))) }
	for _, pod := range pods {
		etcd := pod.Spec.Containers[0]
		line("pod %s %s %s %s %s", pod.Name, ours(pod.Labels), etcd.Image, etcd.Command,
			pod.Annotations["etcd.quorate.dev/pod-template-hash"])
		for _, v := range pod.Spec.Volumes {
			line("volume %s of %s: claim %t, memory %t", v.Name, pod.Name, v.PersistentVolumeClaim != nil,
				v.EmptyDir != nil && v.EmptyDir.Medium == "Memory")
		}
	}
	for _, claim := range list[corev1.PersistentVolumeClaim](c.t, c.ns, "pvc") {
		line("claim %s %s %s %s", claim.Name, ours(claim.Labels), claim.Status.Phase,
			claim.Spec.Resources.Requests.Storage())
	}
	for _, cm := range list[corev1.ConfigMap](c.t, c.ns, "cm") {
		if len(ours(cm.Labels)) > 0 {
			says := recordtest.Says(&cm)
			line("record %s %s: data %s, annotations %s, %d founders, version %s", cm.Name, ours(cm.Labels),
				keys(cm.Data), keys(ours(cm.Annotations)), len(says.Initial), says.Version)
		}
	}
	for _, secret := range list[corev1.Secret](c.t, c.ns, "secrets") {
		line("secret %s %s: %s, data %s, annotations %s", secret.Name, ours(secret.Labels), secret.Type,
			keys(secret.Data), keys(ours(secret.Annotations)))
	}
	for _, svc := range list[corev1.Service](c.t, c.ns, "svc") {
		line("service %s %s selects %s, annotations %s", svc.Name, ours(svc.Labels), svc.Spec.Selector,
			keys(ours(svc.Annotations)))
	}
	for _, b := range list[policyv1.PodDisruptionBudget](c.t, c.ns, "pdb") {
		line("budget %s %s: at least %s", b.Name, ours(b.Labels), b.Spec.MinAvailable)
	}
	for _, p := range list[networkingv1.NetworkPolicy](c.t, c.ns, "netpol") {
		line("policy %s %s selects %s: %s, %d rules", p.Name, ours(p.Labels), p.Spec.PodSelector.MatchLabels,
			p.Spec.PolicyTypes, len(p.Spec.Ingress))
	}
	o := c.object()
	s := o.Status
	line("status %s, %d ready, epoch %d version %s, finalizers %s", s.Rule, s.ReadyReplicas, s.Epoch, s.Version, o.Finalizers)
	for _, m := range s.Members {
		line("member %s %s ready %t version %s alarms %s", m.Name, m.Role, m.Ready, m.Version, m.Alarms)
	}
	for _, condition := range s.Conditions {
		line("condition %s %s %s", condition.Type, condition.Status, condition.Reason)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// pad makes names sort by their numbers.
func pad(name string) string { return fmt.Sprintf("%10s", name) }

// ours are the labels or annotations of Quorate's own domain.
func ours(all map[string]string) map[string]string {
	some := maps.Clone(all)
	maps.DeleteFunc(some, func(k, _ string) bool { return !strings.HasPrefix(k, "etcd.quorate.dev/") })
	return some
}

func keys[T any](all map[string]T) string {
	raw, _ := json.Marshal(slices.Sorted(maps.Keys(all)))
	return string(raw)
}
