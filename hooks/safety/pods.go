package safety

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// checkPods checks what runs.
func checkPods(j *judgement) {
	if j.f.Replicas == 0 && !besideExternal(j) {
		protectingPods(j)
		return // a pause stops everything else, as asked
	}
	rolled := podsThatGo(j)
	j.require(len(rolled) <= 1, "S2", "several pods go at once: %v", rolled)
	j.require(len(rolled) == 0 || len(exchanged(j)) == 0, "S2",
		"a pod goes while the image of another is exchanged: %v, %v", rolled, exchanged(j))
	j.require(len(exchanged(j)) <= 1, "S2", "several images are exchanged at once: %v", exchanged(j))
	for _, m := range j.f.Members {
		j.require(podIn(j, m.PodName) != nil || slices.Contains(rolled, m.PodName) || !needsPod(j, m), "S12",
			"the member %s has no pod in the answer", m.PodName)
		for _, name := range []string{m.PodName, m.PodName + "-wal"} {
			j.require(j.o.Children.Claims[name] == nil || hasClaim(j, name), "S12",
				"the member %s has no claim %s in the answer", m.PodName, name)
		}
		if now := podIn(j, m.PodName); now != nil && j.f.Epoch.Provisioned() && masked(j, m.PodName) {
			j.require(now.Labels[objects.LabelRole] == "fenced", "S8",
				"clients are led to %s, where another member answers", m.PodName)
		}
		j.require(!masked(j, m.PodName) || !slices.Contains(rolled, m.PodName), "S8",
			"the pod of %s goes, where another member answers", m.PodName)
	}
	for _, pod := range j.d.Children.Pods {
		if j.o.Children.Pods[pod.Name] == nil {
			newPod(j, pod)
		}
	}
	letGo(j)
	broughtBack(j)
	led(j)
	ledAway(j)
	guarded(j)
}

// broughtBack: while blind, whatever may hold the data of a member that has run gets its pod back. No certificate
// that is lacking keeps it away, but a Secret whose owner has not agreed.
func broughtBack(j *judgement) {
	e := j.f.Epoch
	if j.f.Etcd != nil || e == nil || e.Record == nil || j.f.Memory() {
		return
	}
	if !e.HadQuorum() || !e.Began() {
		return
	}
	for _, name := range j.f.Names {
		had := j.o.Children.Pods[name] != nil
		can := j.f.StorageUsable(name) && !j.f.Fenced(name) && j.f.OwnersAgree() && !j.f.ToBeAdded(name)
		j.require(had || podIn(j, name) != nil || !can, "S11", "blind, and the pod %s does not come back", name)
	}
}

// protectingPods checks that a pause stops no pod whose data would go with it.
func protectingPods(j *judgement) {
	for name, pod := range j.o.Children.Pods {
		if j.f.Epoch == nil || !claimBeingDeleted(j, name) {
			continue
		}
		if pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || facts.Finished(pod) {
			continue
		}
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!ours || podIn(j, name) != nil, "S12", "the pod %s goes, and with it the data on a claim that is "+
			"being deleted", name)
	}
}

// needsPod reports whether the member must have a pod in the answer: all must, except unmanaged members, members whose
// pod has ended, and those that have none and can't be given one yet, because the record or what they would run on is
// missing.
func needsPod(j *judgement, m *facts.Member) bool {
	if m.PodName == "" || facts.Finished(m.Pod) {
		return false
	}
	if m.Pod == nil && j.f.Fenced(m.PodName) {
		return false
	}
	certified := len(j.f.CertificateProblems) == 0 || m.Started() && j.f.OwnersAgree()
	if m.Pod != nil {
		return true
	}
	if !certified || !j.f.Epoch.Provisioned() || j.f.MayBeMade(m) || j.f.Memory() {
		return false
	}
	return j.f.StorageUsable(m.PodName) && !j.f.JoinsOnAnotherClaim(m)
}

// podsThatGo are the members' pods that the answer takes away, and that were not going anyway.
func podsThatGo(j *judgement) []string {
	var rolled []string
	for name, pod := range j.o.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		if podIn(j, name) != nil || pod.DeletionTimestamp != nil || facts.Finished(pod) || !ours {
			continue
		}
		idle := !j.f.Memory() && j.f.Epoch != nil && !j.f.Epoch.HadQuorum() && facts.WaitsForSeed(pod)
		j.require(j.f.Etcd != nil || idle, "S11", "the pod %s goes while blind", name)
		j.require(!j.f.ToBeAdded(name) || j.f.Dropped(name), "S2", "the pod %s goes, in which a member may start", name)
		m := j.f.Find(name)
		if m != nil {
			podGoes(j, m)
		}
		if m != nil || j.f.Etcd == nil {
			rolled = append(rolled, name)
		}
	}
	return rolled
}

// podGoes checks that a member's pod may go: a late call may find the learner of now voting.
func podGoes(j *judgement, m *facts.Member) {
	chosen(j, m, record.Choice{Name: m.PodName, Pod: string(m.Pod.UID)})
	if !m.Learner {
		j.require(!m.Serving() || mayRestart(j, m), "S1", "the pod %s goes, which serves", m.PodName)
		j.require(othersStay(j, m) >= facts.Quorum(len(j.f.Voters)), "S1",
			"the pod %s goes, and too few other voters serve and stay", m.PodName)
	}
}

// exchanged are the voters whose etcd the answer ends by giving its pod another image.
func exchanged(j *judgement) []string {
	var list []string
	for _, m := range j.f.Voters {
		now := podIn(j, m.PodName)
		if m.Pod == nil || now == nil || facts.NeverRan(m.Pod) || etcdImage(now) == etcdImage(m.Pod) {
			continue
		}
		j.require(!m.Serving() || mayRestart(j, m), "S1", "the image of %s is exchanged, which serves", m.PodName)
		chosen(j, m, record.Choice{Name: m.PodName, Pod: string(m.Pod.UID), Container: cmp.Or(facts.ContainerOf(m.Pod), "-")})
		j.require(othersStay(j, m) >= facts.Quorum(len(j.f.Voters)), "S1",
			"the image of %s is exchanged, and too few other voters serve and stay", m.PodName)
		list = append(list, m.PodName)
	}
	return list
}

// chosen requires that the record names the voter, with the pod or container that is to end, and that that was not
// withdrawn since.
func chosen(j *judgement, m *facts.Member, what record.Choice) {
	named := j.f.Epoch.Choice
	what.Down = named.Down
	j.require(named == what, "S2", "%s is restarted, and the record names %+v instead of %+v", m.PodName, named, what)
	j.require(m.Pod.Annotations[objects.AnnotationWithdrawn] == "", "S2",
		"%s is restarted, although that was withdrawn", m.PodName)
}

// etcdImage is the image of the pod's etcd.
func etcdImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == objects.ContainerEtcd {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// othersStay counts the other voters that serve and will go on serving.
func othersStay(j *judgement, m *facts.Member) int {
	return len(objects.Filter(j.f.Voters, func(o *facts.Member) bool { return o.ID != m.ID && stays(j, o) }))
}

// stays reports whether a voter serves, and will go on: no late call can remove it, its pod was not deleted, or given
// another image from which it has yet to start, and no late call can do that.
func stays(j *judgement, m *facts.Member) bool {
	switch {
	case !m.Serving() || removalPending(j, m):
		return false
	case m.PodName == "" || m.Pod == nil:
		return m.PodName == "" && besideExternal(j)
	}
	ends := m.Pod.Annotations[objects.AnnotationExchanged]
	return m.Pod.DeletionTimestamp == nil && (ends == "" || ends != facts.ContainerOf(m.Pod)) && !restartPending(j, m)
}

// restartPending reports whether a late call may restart the voter: the record names its pod or container, and that
// was not withdrawn for as long as calls live.
func restartPending(j *judgement, m *facts.Member) bool {
	since, err := time.Parse(time.RFC3339, m.Pod.Annotations[objects.AnnotationWithdrawn])
	named := j.f.Epoch.Choice
	chosen := named.Name == m.PodName && named.Pod == string(m.Pod.UID) &&
		(named.Container == "" || named.Container == cmp.Or(facts.ContainerOf(m.Pod), "-"))
	return chosen && (err != nil || j.o.Now.Sub(since) < facts.CallsEnd)
}

// mayRestart reports whether a voter that serves may be stopped to be started again: with its data where it stays, not
// while it leads, and with all voters serving and none joining.
func mayRestart(j *judgement, m *facts.Member) bool {
	stays := !j.f.Memory() || podIn(j, m.PodName) != nil
	asked := (unlike(j, m) || leavesClients(j, m)) && stays || j.f.Fenced(m.PodName)
	return asked && m.ID != j.f.Etcd.Leader && facts.Serving(j.f.Voters) == len(j.f.Voters) && joining(j) == nil
}

// unlike reports whether the member is not as the spec and the record want it.
func unlike(j *judgement, m *facts.Member) bool {
	if m.Pod == nil {
		return false
	}
	anyPeer := facts.TLSFlagsOf(m.Pod).AnyPeer && !besideExternal(j)
	if anyPeer || outTrusted(j, m) || tlsFlagsWrong(j, m) {
		return true
	}
	if volumeUnlike(j, m) || outsideUnlike(j, m) || j.f.TemplateOutdated(m.Pod) {
		return true
	}
	return m.Pod.Annotations[objects.AnnotationImage] != j.o.Settings.Etcd(&j.o.Cluster.Spec, j.f.Epoch.Version)
}

// volumeUnlike reports whether the member's volume, or what etcd knows of it, is not as the spec wants it.
func volumeUnlike(j *judgement, m *facts.Member) bool {
	quota, known := defaults.QuotaOf(m.Pod)
	stale := known && quota != j.f.RoomOf(m.PodName).Quota
	if m.Claim == nil || !j.f.OnClaims() {
		return stale && !j.f.OnClaims()
	}
	s := j.o.Cluster.Spec.Storage
	wal := j.o.Children.Claims[m.PodName+"-wal"]
	other := unlikeClaim(m.Claim, defaults.StorageSize(&j.f.Cluster.Spec), s.StorageClassName) ||
		(wal == nil) != (s.WAL == nil)
	if wal != nil && s.WAL != nil {
		other = other || unlikeClaim(wal, defaults.WALSize(s.WAL), s.WAL.StorageClassName)
	}
	growing := func(c *corev1.PersistentVolumeClaim) bool {
		if c == nil || c.Status.Capacity.Storage().IsZero() {
			return false
		}
		return c.Status.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0
	}
	migrates := s.Migration == v1beta1.MigrateReplace && other
	return migrates || stale || growing(m.Claim) || growing(wal)
}

// claimsInOrder reports whether all claims that a new pod names are there and ours, and whether the record names all
// of them: the pod's own, and one for the log when the record has one.
func claimsInOrder(j *judgement, pod *corev1.Pod) (usable, recorded bool) {
	wal := pod.Name + "-wal"
	named := facts.OwnClaims(j.o.Cluster.Name, pod)
	usable = slices.Contains(named, pod.Name)
	recorded = usable
	for _, name := range named {
		claim := j.o.Children.Claims[name]
		j.require(claim == nil || claim.Annotations[objects.AnnotationQuarantined] == "", "S10",
			"a new pod %s on a claim in quarantine", pod.Name)
		usable = usable && j.f.Usable(claim)
		recorded = recorded && claim != nil && j.f.Epoch.MayStartEmpty(name, claim.UID)
	}
	j.require(j.f.Epoch.Recorded(wal) == "" || slices.Contains(named, wal), "S10",
		"a new pod %s leaves out the volume %s, which holds its log", pod.Name, wal)
	return usable, recorded
}

func newPod(j *judgement, pod *corev1.Pod) {
	j.require(facts.PodStart(pod) != objects.StartBootstrap || pod.Annotations[objects.AnnotationInitialCluster] ==
		objects.FormatPairs(j.f.Epoch.Initial, "="), "S10", "a new pod %s begins another cluster than the "+
		"record's", pod.Name)
	if defaults.OnNodes(&j.o.Cluster.Spec) {
		newPodOnNode(j, pod)
		return
	}
	start := facts.PodStart(pod)
	m := j.f.Find(pod.Name)
	usable, recorded := claimsInOrder(j, pod)
	gate := j.f.Memory() && facts.Gated(pod) && j.f.Epoch.Recorded(pod.Name) == ""
	j.require(gate || j.f.Memory() || usable, "S10", "a new pod %s without a claim that is observed as ours", pod.Name)
	switch start {
	case objects.StartBootstrap:
		j.require(gate || recorded, "S10", "a new pod %s may begin empty, but not on this claim", pod.Name)
		j.require(m == nil || !m.Started(), "S10", "a new pod %s may begin empty, but the member has run", pod.Name)
	case objects.StartJoin:
		j.require(waitsToJoin(j, pod) || newLearner(m), "S10", "a new pod %s joins, but is no new learner", pod.Name)
		j.require(gate || recorded, "S10", "a new pod %s may begin empty, but not on this claim", pod.Name)
	case objects.StartResume:
		j.require(!j.f.Memory(), "S10", "a new memory pod %s can't have data to resume", pod.Name)
	default:
		j.require(false, "S10", "a new pod %s does not say how it starts", pod.Name)
	}
}

// newLearner reports whether the member is a learner that has never started.
func newLearner(m *facts.Member) bool { return m != nil && m.Learner && !m.Started() }

// waitsToJoin reports whether the pod's etcd can't start before its member is added.
func waitsToJoin(j *judgement, pod *corev1.Pod) bool {
	return facts.WaitsToJoin(pod) && !objects.MayBegin(pod) && j.f.ToBeAdded(pod.Name)
}

// letGo: a pod that was made before its member was added gets to its etcd once that is a learner whose number is
// recorded as used, and on the recorded claims.
func letGo(j *judgement) {
	for _, pod := range j.d.Children.Pods {
		old := j.o.Children.Pods[pod.Name]
		if old == nil || !facts.WaitsToJoin(old) || facts.WaitsToJoin(pod) {
			continue
		}
		j.require(newLearner(j.f.Find(pod.Name)), "S4", "the pod %s may start, and is no new learner's", pod.Name)
		j.require(j.f.OrdinalReserved(pod.Name), "S9", "the pod %s may start before its number is recorded", pod.Name)
		usable, recorded := claimsInOrder(j, pod)
		j.require(usable && recorded, "S10", "the pod %s may start, and not on this claim", pod.Name)
	}
}

// newPodOnNode: a pod that may begin empty is on the node that the record names, and any other where it may find its
// member's data: on the node, and in a directory that no other member has.
func newPodOnNode(j *judgement, pod *corev1.Pod) {
	m := j.f.Find(pod.Name)
	recorded := string(j.f.Epoch.Recorded(pod.Name))
	node := facts.PinnedTo(pod)
	j.require(node != "" && (recorded == "" || node == recorded), "S10",
		"a new pod %s is for node %q, and the member's data on %q", pod.Name, node, recorded)
	own := strings.HasSuffix(facts.DirectoryIn(pod), "-"+string(j.o.Cluster.UID)+"/"+pod.Name)
	j.require(own && len(facts.ClaimsIn(pod)) == 0, "S10", "a new pod %s is not in a directory of its own", pod.Name)
	switch facts.PodStart(pod) {
	case objects.StartBootstrap:
		has := j.o.Cluster.Status
		// the status tells of an epoch before
		early := has.ClusterID == "" || has.Epoch > 0 && has.Epoch < int64(j.f.Epoch.N)
		j.require(recorded != "" && (j.f.Etcd != nil || !j.f.Epoch.HadQuorum() && early), "S10",
			"a new pod %s may begin empty, and no record says where", pod.Name)
		j.require(m == nil || !m.Started(), "S10", "a new pod %s may begin empty, but the member has run", pod.Name)
	case objects.StartJoin:
		j.require(recorded != "" && m != nil && m.Learner && !m.Started(), "S10",
			"a new pod %s joins, but is no new learner whose node is recorded", pod.Name)
	default:
		j.require(facts.PodStart(pod) == objects.StartResume, "S10", "a new pod %s does not say how it starts",
			pod.Name)
		j.require(!objects.MayBegin(pod), "S10",
			"a new pod %s resumes, and says that it may begin", pod.Name)
	}
}

func podIn(j *judgement, name string) *corev1.Pod {
	return objects.First(j.d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == name })
}
