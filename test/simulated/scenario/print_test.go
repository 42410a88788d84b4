package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// check is how things are: what the status says first, then what is.
func (s *story) check(args) string {
	var b strings.Builder
	line := func(what string, parts []string) {
		if len(parts) > 0 {
			fmt.Fprintf(&b, "%-11s%s\n", what+":", strings.Join(parts, ", "))
		}
	}
	if c := s.w.Cluster(); c != nil {
		how, others := []string{c.Status.Rule, fmt.Sprintf("%d/%d", c.Status.ReadyReplicas, defaults.Replicas(c))}, []string{}
		for _, c := range odd(c.Status.Conditions) {
			if is := fmt.Sprintf("%s=%s", c.Type, c.Status); s.repeats(c.Message) {
				how = append(how, is)
			} else {
				others = append(others, is+s.more(c.Type, c.Message))
			}
		}
		line("status", how)
		for _, other := range others {
			line("condition", []string{other})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.w.Etcd.Clusters)) {
		c := s.w.Etcd.Clusters[id]
		line("etcd", []string{fmt.Sprintf("cluster %x", c.ID)})
		line("members", s.members(id))
	}
	var pods, claims []string
	for _, pod := range s.w.Pods() {
		pods = append(pods, pod.Name+" "+podState(pod))
	}
	for _, claim := range s.w.Claims() {
		claims = append(claims, claim.Name+size(claim)+owner(claim)+kept(claim)+going(claim))
	}
	line("pods", pods)
	line("claims", claims)
	for _, record := range s.records() {
		says := recordtest.Says(record)
		cluster := "cluster "
		if says.ClusterID != 0 {
			cluster += objects.Hex(says.ClusterID)
		}
		line("record", []string{fmt.Sprintf("next %d", says.NextOrdinal), cluster})
	}
	if b.Len() == 0 {
		return "nothing is left\n"
	}
	return b.String()
}

// space is how large the databases of running members are, the alarms, and what the status says of defragmentation.
func (s *story) space(args) string {
	var b strings.Builder
	for _, pod := range s.w.Pods() {
		if size, inUse, runs := s.w.Database(pod.Name); runs {
			fmt.Fprintf(&b, "%s: %s, %s in use\n", pod.Name, mebibytes(size), mebibytes(inUse))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.w.Etcd.Clusters)) {
		for _, a := range s.w.Etcd.Clusters[id].Alarms {
			fmt.Fprintf(&b, "alarm %s of %x\n", a.Kind, a.MemberID)
		}
	}
	d := s.w.Cluster().Status.Defragmentation
	if d == nil {
		return b.String()
	}
	clock := func(t metav1.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.UTC().Format("2 15:04:05")
	}
	fmt.Fprintf(&b, "run: %s, request %q, started %s, finished %s, compacted %d, done %v", d.Trigger, d.Request,
		clock(d.StartTime), clock(d.CompletionTime), s.w.Cluster().Status.Internal.Defragmentation.Compacted, d.Done)
	if d.Reclaimed != nil {
		b.WriteString(", reclaimed " + mebibytes(d.Reclaimed.Value()))
	}
	fmt.Fprintf(&b, ", next %s\n", clock(d.NextScheduleTime))
	return b.String()
}

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// revisions are those that each epoch has given out, and what is noted of them.
func (s *story) revisions(args) string {
	var b strings.Builder
	list := slices.SortedFunc(maps.Values(s.w.Etcd.Clusters),
		func(a, b world.Cluster) int { return cmp.Or(a.Epoch-b.Epoch, cmp.Compare(a.ID, b.ID)) })
	for _, c := range list {
		if c.Leader != 0 {
			fmt.Fprintf(&b, "epoch %d: %d to %d\n", c.Epoch, c.Begin, c.Revision)
		}
	}
	for _, record := range s.records() {
		if noted := recordtest.Says(record).Highest; noted > 0 {
			fmt.Fprintf(&b, "%s: below %d\n", record.Name, noted)
		}
	}
	return b.String()
}

// operations are how far they have come, and whether they wait for a person, the oldest first.
func (s *story) operations(args) string {
	var b strings.Builder
	for _, op := range s.w.AllOperations() {
		fmt.Fprintf(&b, "%s: %s", op.Name, op.Status.Phase)
		if meta.IsStatusConditionTrue(op.Status.Conditions, v1beta1.Stalled) && !op.Status.Phase.Ended() {
			b.WriteString(", Stalled")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// users are those that the etcd has to which clients speak, whether they have the passwords that are in the generated
// Secrets, and whether it asks clients who they are.
func (s *story) users(args) string {
	a := s.w.Auth()
	line := "off"
	if a.Enabled {
		line = "on"
	}
	for _, name := range slices.Sorted(maps.Keys(a.Users)) {
		password := "an old password"
		secret := s.w.Secret(users.PasswordSecret(s.w.Cluster().Name, name))
		if secret != nil && a.Users[name].Password == string(secret.UID)+"/"+secret.ResourceVersion {
			password = "its password"
		}
		line += fmt.Sprintf(", %s with %s", name, password)
	}
	return line + "\n"
}

// certificates are the Secrets, and what each running member trusts: in clients, and where that differs, in peers.
func (s *story) certificates(args) string {
	var lines []string
	for _, secret := range s.w.Secrets() {
		if secret.Certificate == nil {
			continue
		}
		line := fmt.Sprintf("%s: %s, trusts %s", secret.Name, world.Describe(secret), world.IDs(secret.Trust))
		if secret.Previous != nil {
			line += ", keeps " + secret.Previous.ID
		}
		if secret.Flaw != "" {
			line += "; " + secret.Flaw
		}
		lines = append(lines, line)
	}
	for _, pod := range s.w.Pods() {
		proc, runs := s.w.Procs[pod.UID]
		if !runs {
			continue
		}
		line := pod.Name + ": trusts " + world.IDs(proc.Clients)
		if peers := world.IDs(proc.Peers); peers != world.IDs(proc.Clients) {
			line += ", in peers " + peers
		}
		lines = append(lines, line)
	}
	return strings.Join(together(lines, ofName), "\n") + "\n"
}

// together tells in one line what is said of several names. Parts of a line are what stands before the name, the name,
// and what is said of it; without a name the line stands alone.
func together(lines []string, parts func(line string) (before, name, said string)) []string {
	var told []string
	last := ""
	for _, line := range lines {
		before, name, said := parts(line)
		if n := len(told) - 1; n >= 0 && name != "" && before+said == last {
			told[n] = strings.TrimSuffix(told[n], said) + ", " + name + said
			continue
		}
		told = append(told, line)
		last = before + said
	}
	return told
}

// ofName parts a line that begins with a name.
func ofName(line string) (before, name, said string) {
	i := strings.Index(line, ":")
	return "", line[:i], line[i:]
}

func (s *story) members(id uint64) []string {
	var all []string
	c := s.w.Etcd.Clusters[id]
	for _, m := range c.Members {
		words := strings.SplitN(m.PeerURLs[0][strings.Index(m.PeerURLs[0], "//")+2:], ".", 2)[:1]
		words = append(words, fmt.Sprintf("%x", m.ID))
		if m.Learner {
			words = append(words, "learner")
		}
		if m.ID == c.Leader {
			words = append(words, "leader")
		}
		all = append(all, strings.Join(words, " "))
	}
	return all
}

// odd are the conditions that are not as in a healthy cluster.
func odd(all []metav1.Condition) []metav1.Condition {
	usual := map[string]metav1.ConditionStatus{v1beta1.Available: metav1.ConditionTrue,
		v1beta1.Secured: metav1.ConditionTrue, v1beta1.Restored: metav1.ConditionTrue}
	return slices.DeleteFunc(slices.Clone(all), func(c metav1.Condition) bool {
		if c.Type == v1beta1.Ready { // Reconciling or Stalled says it
			return true
		}
		return (c.Status == metav1.ConditionTrue) == (usual[c.Type] == metav1.ConditionTrue)
	})
}

func podState(p *corev1.Pod) string {
	state := strings.ToLower(string(p.Status.Phase))
	if len(p.Spec.SchedulingGates) > 0 {
		state = "gated"
	}
	for _, c := range p.Status.InitContainerStatuses {
		if c.State.Waiting != nil && c.State.Waiting.Message != "" {
			state = c.State.Waiting.Message
		}
		if c.LastTerminationState.Terminated != nil {
			state = fmt.Sprintf("prepare exits %d", c.LastTerminationState.Terminated.ExitCode)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			state = strings.TrimSpace(w.Reason + " " + w.Message)
		}
	}
	if state == "" {
		state = "pending"
	}
	if node := p.Spec.NodeName; node != "" && !strings.HasPrefix(node, "node-of-") {
		state += " on " + node
	}
	return state + going(p)
}

func going(o metav1.Object) string {
	if o.GetDeletionTimestamp() != nil {
		return " (being deleted)"
	}
	return ""
}

// size of a claim and of its volume, and the claim's class, as far as they are not the usual ones.
func size(c *corev1.PersistentVolumeClaim) string {
	var odd string
	if asks, has := c.Spec.Resources.Requests.Storage().String(),
		c.Status.Capacity.Storage().String(); c.Status.Phase == corev1.ClaimBound && has != asks {
		odd = " " + has + " to be " + asks
	} else if asks != "1Gi" {
		odd = " " + asks
	}
	if class := world.ClassOf(c); class != "default" {
		odd += " " + class
	}
	return odd
}

// kept tells of a claim that is marked, or kept without its member.
func kept(claim *corev1.PersistentVolumeClaim) string {
	switch {
	case claim.Annotations[objects.AnnotationQuarantined] != "":
		return " (quarantined)"
	case claim.Annotations[objects.AnnotationFailedMember] != "":
		return " (failed member)"
	}
	return ""
}

// clients are the pods that the client Service leads to.
func (s *story) clients(args) string {
	service, ok := s.w.Objects[world.Key{Kind: world.ServiceKind, Name: s.w.Cluster().Name}].(*corev1.Service)
	if !ok {
		return "no Service\n"
	}
	return strings.Join(s.behind(service), ", ") + "\n"
}

// endpoints are the client URLs of etcd's member list, and the members' own Services: the name that external-dns gives
// each, its port on the nodes, and the pods behind it.
func (s *story) endpoints(args) string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(s.w.Etcd.Clusters)) {
		for _, m := range s.w.Etcd.Clusters[id].Members {
			fmt.Fprintf(&b, "%s: %s\n", m.Name, strings.Join(m.ClientURLs, " "))
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.w.Objects), func(a, b world.Key) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		service, is := s.w.Objects[key].(*corev1.Service)
		if !is || service.Annotations[objects.AnnotationHostname] == "" {
			continue
		}
		fmt.Fprintf(&b, "%s:%d -> %s\n", service.Annotations[objects.AnnotationHostname], service.Spec.Ports[0].NodePort,
			strings.Join(s.behind(service), ", "))
	}
	return b.String()
}

// behind are the pods that a Service leads to.
func (s *story) behind(service *corev1.Service) []string {
	var all []string
	for _, pod := range s.w.Pods() {
		if chosen := labels.SelectorFromSet(service.Spec.Selector); chosen.Matches(labels.Set(pod.Labels)) {
			all = append(all, pod.Name)
		}
	}
	return all
}

func owner(o metav1.Object) string {
	if len(o.GetOwnerReferences()) == 0 {
		return " (orphan)"
	}
	return ""
}

func (s *story) records() []*corev1.ConfigMap {
	var all []*corev1.ConfigMap
	for key, o := range s.w.Objects {
		if record, ok := o.(*corev1.ConfigMap); ok && strings.Contains(key.Name, "-epoch-") {
			all = append(all, record)
		}
	}
	slices.SortFunc(all, func(a, b *corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
	return all
}
