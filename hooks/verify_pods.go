package hooks

import (
	"cmp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// pods checks what runs.
func (j *judgement) pods() {
	if j.v.replicas == 0 && !j.besideForeign() {
		j.protectingPods()
		return // a pause stops everything else, as asked
	}
	rolled := j.podsThatGo()
	j.require(len(rolled) <= 1, "S2", "several pods go at once: %v", rolled)
	j.require(len(rolled) == 0 || len(j.exchanged()) == 0, "S2",
		"a pod goes while the image of another is exchanged: %v, %v", rolled, j.exchanged())
	j.require(len(j.exchanged()) <= 1, "S2", "several images are exchanged at once: %v", j.exchanged())
	for _, m := range j.v.members {
		j.require(j.pod(m.name) != nil || slices.Contains(rolled, m.name) || !j.needsPod(m), "S12",
			"the member %s has no pod in the answer", m.name)
		for _, name := range []string{m.name, m.name + "-wal"} {
			j.require(j.o.Children.Claims[name] == nil || j.hasClaim(name), "S12",
				"the member %s has no claim %s in the answer", m.name, name)
		}
		if now := j.pod(m.name); now != nil && j.v.epoch.provisioned() && j.masked(m.name) {
			j.require(now.Labels[objects.LabelRole] == "fenced", "S8",
				"clients are led to %s, where another member answers", m.name)
		}
		j.require(!j.masked(m.name) || !slices.Contains(rolled, m.name), "S8",
			"the pod of %s goes, where another member answers", m.name)
	}
	for _, pod := range j.d.Children.Pods {
		if j.o.Children.Pods[pod.Name] == nil {
			j.newPod(pod)
		}
	}
	j.broughtBack()
	j.led()
}

// broughtBack: while blind, whatever may hold the data of a member that has run gets its pod back. No certificate
// that is lacking keeps it away.
func (j *judgement) broughtBack() {
	if e := j.v.epoch; j.v.Etcd != nil || e == nil || e.record == nil || !e.hadQuorum() || !e.began() || j.v.memory() {
		return
	}
	for _, name := range j.v.names {
		had := j.o.Children.Pods[name] != nil
		j.require(had || j.pod(name) != nil || !j.v.storageUsable(name) || j.v.fenced(name), "S11",
			"blind, and the pod %s does not come back", name)
	}
}

// protectingPods checks that a pause stops no pod whose data would go with it.
func (j *judgement) protectingPods() {
	for name, pod := range j.o.Children.Pods {
		if !j.claimBeingDeleted(name) || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" || finished(pod) ||
			j.v.epoch == nil {
			continue
		}
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!ours || j.pod(name) != nil, "S12", "the pod %s goes, and with it the data on a claim that is "+
			"being deleted", name)
	}
}

// needsPod reports whether the member must have a pod in the answer: all must but strangers, members whose pod has
// ended, and those that have none and can't be given one yet, for want of the record or of what they would run on.
func (j *judgement) needsPod(m *member) bool {
	if m.name == "" || finished(m.pod) {
		return false
	}
	if m.pod == nil && j.v.fenced(m.name) {
		return false
	}
	return m.pod != nil || (len(j.v.certificateProblems) == 0 || m.Started()) && j.v.epoch.provisioned() &&
		!j.v.mayBeMade(m) && !j.v.memory() && j.v.storageUsable(m.name) && !j.v.joinsOnAnotherClaim(m)
}

// podsThatGo are the members' pods that the answer takes away although nobody else has.
func (j *judgement) podsThatGo() []string {
	var rolled []string
	for name, pod := range j.o.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		if j.pod(name) != nil || pod.DeletionTimestamp != nil || finished(pod) || !ours {
			continue
		}
		neverTaken := !j.v.memory() && j.v.epoch != nil && !j.v.epoch.hadQuorum() && pod.Spec.NodeName == ""
		j.require(j.v.Etcd != nil || neverTaken, "S11", "the pod %s goes while blind", name)
		m := j.v.find(name)
		if m != nil {
			j.podGoes(m)
		}
		if m != nil || j.v.Etcd == nil {
			rolled = append(rolled, name)
		}
	}
	return rolled
}

// podGoes checks that a member's pod may go: a late call may find the learner of now voting.
func (j *judgement) podGoes(m *member) {
	j.chosen(m, m.name, string(m.pod.UID))
	if !m.Learner {
		j.require(!m.serving() || j.mayRestart(m), "S1", "the pod %s goes, which serves", m.name)
		j.require(j.othersStay(m) >= quorum(len(j.v.voters)), "S1",
			"the pod %s goes, and too few other voters serve and stay", m.name)
	}
}

// exchanged are the voters whose etcd the answer ends by giving its pod another image.
func (j *judgement) exchanged() []string {
	var list []string
	for _, m := range j.v.voters {
		now := j.pod(m.name)
		if m.pod == nil || now == nil || neverRan(m.pod) || etcdImage(now) == etcdImage(m.pod) {
			continue
		}
		j.require(!m.serving() || j.mayRestart(m), "S1", "the image of %s is exchanged, which serves", m.name)
		j.chosen(m, m.name, string(m.pod.UID), cmp.Or(containerOf(m.pod), "-"))
		j.require(j.othersStay(m) >= quorum(len(j.v.voters)), "S1",
			"the image of %s is exchanged, and too few other voters serve and stay", m.name)
		list = append(list, m.name)
	}
	return list
}

// chosen requires that the record names the voter, with the pod or container that is to end, and that that was not
// withdrawn since.
func (j *judgement) chosen(m *member, what ...string) {
	named := strings.Fields(strings.TrimSuffix(j.v.epoch.record.Annotations[objects.AnnotationChosen], " down"))
	j.require(slices.Equal(named, what), "S2", "%s is restarted, and the record names %q instead of %q", m.name, named,
		what)
	j.require(m.pod.Annotations[objects.AnnotationWithdrawn] == "", "S2",
		"%s is restarted, although that was withdrawn", m.name)
}

func etcdImage(pod *corev1.Pod) string {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == objects.ContainerEtcd {
			return pod.Spec.Containers[i].Image
		}
	}
	return ""
}

// othersStay counts the other voters that serve and will go on serving.
func (j *judgement) othersStay(m *member) int {
	return len(filter(j.v.voters, func(o *member) bool { return o.ID != m.ID && j.stays(o) }))
}

// stays reports whether a voter serves, and will go on: no late call can remove it, its pod was not deleted, or given
// another image from which it has yet to start, and no late call can do that.
func (j *judgement) stays(m *member) bool {
	switch {
	case !m.serving() || j.removalPending(m):
		return false
	case m.name == "" || m.pod == nil:
		return m.name == "" && j.besideForeign()
	}
	ends := m.pod.Annotations[objects.AnnotationExchanged]
	return m.pod.DeletionTimestamp == nil && (ends == "" || ends != containerOf(m.pod)) && !j.restartPending(m)
}

// restartPending reports whether a late call may restart the voter: the record names its pod or container, and that
// was not withdrawn for as long as calls live.
func (j *judgement) restartPending(m *member) bool {
	since, err := time.Parse(time.RFC3339, m.pod.Annotations[objects.AnnotationWithdrawn])
	named := append(strings.Fields(strings.TrimSuffix(j.v.epoch.record.Annotations[objects.AnnotationChosen], " down")),
		"", "", "")
	chosen := named[0] == m.name && named[1] == string(m.pod.UID) &&
		(named[2] == "" || named[2] == cmp.Or(containerOf(m.pod), "-"))
	return chosen && (err != nil || j.o.Now.Sub(since) < CallsEnd)
}

// mayRestart reports whether a voter that serves may be stopped to be started again: with its data where it stays, not
// while it leads, and with all voters serving and nobody joining.
func (j *judgement) mayRestart(m *member) bool {
	stays := !j.v.memory() || j.pod(m.name) != nil
	asked := j.unlike(m) && stays || j.v.fenced(m.name)
	return asked && m.ID != j.v.Etcd.Leader && serving(j.v.voters) == len(j.v.voters) && j.v.learner() == nil
}

// unlike reports whether the member is not as the spec and the record want it.
func (j *judgement) unlike(m *member) bool {
	if m.pod == nil {
		return false
	}
	return j.outTrusted(m) || j.tlsFlagsWrong(m) || tlsFlagsOf(m.pod).anyPeer && !j.besideForeign() ||
		j.volumeUnlike(m) || j.v.templateOutdated(m.pod) ||
		m.pod.Annotations[objects.AnnotationImage] != j.o.Settings.Etcd(&j.o.Cluster.Spec, j.v.epoch.version)
}

// volumeUnlike reports whether the member's volume, or what etcd knows of it, is not as the spec wants it.
func (j *judgement) volumeUnlike(m *member) bool {
	quota, known := quotaOf(m.pod)
	if onNodes(&j.o.Cluster.Spec) {
		return known && quota != quotaBytes(j.o.Cluster.Spec.Options, storageSize(&j.o.Cluster.Spec))
	}
	if m.claim == nil || j.v.memory() {
		return false
	}
	s := j.o.Cluster.Spec.Storage
	wal := j.o.Children.Claims[m.name+"-wal"]
	other := unlikeClaim(m.claim, storageSize(&j.o.Cluster.Spec), s.StorageClassName) || (wal == nil) != (s.WAL == nil)
	if wal != nil && s.WAL != nil {
		other = other || unlikeClaim(wal, walSize(s.WAL), s.WAL.StorageClassName)
	}
	growing := func(c *corev1.PersistentVolumeClaim) bool {
		return c != nil && c.Status.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0
	}
	stale := known && quota != quotaBytes(j.o.Cluster.Spec.Options, *m.claim.Spec.Resources.Requests.Storage())
	return s.Migration == v1alpha1.MigrateReplace && other || growing(m.claim) || growing(wal) || stale
}

// claimsInOrder reports whether all claims that a new pod names are there and ours, and whether the record names all
// of them: the pod's own, and one for the log when the record has one.
func (j *judgement) claimsInOrder(pod *corev1.Pod) (usable, recorded bool) {
	// others are those of a survivor, or of a store
	wal, named := pod.Name+"-wal", filter(claimsIn(pod), func(claim string) bool {
		member, ours := memberOfClaim(j.o.Cluster.Name, claim)
		return ours && member == pod.Name
	})
	usable = slices.Contains(named, pod.Name)
	recorded = usable
	for _, name := range named {
		claim := j.o.Children.Claims[name]
		j.require(claim == nil || claim.Annotations[objects.AnnotationQuarantined] == "", "S10",
			"a new pod %s on a claim in quarantine", pod.Name)
		usable = usable && j.v.usable(claim)
		recorded = recorded && claim != nil && j.v.epoch.mayStartEmpty(name, claim.UID)
	}
	j.require(j.v.epoch.recorded(wal) == "" || slices.Contains(named, wal), "S10",
		"a new pod %s leaves out the volume %s, which holds its log", pod.Name, wal)
	return usable, recorded
}

func (j *judgement) newPod(pod *corev1.Pod) {
	if onNodes(&j.o.Cluster.Spec) {
		j.newPodOnNode(pod)
		return
	}
	start, m := podStart(pod), j.v.find(pod.Name)
	usable, recorded := j.claimsInOrder(pod)
	gate := j.v.memory() && gated(pod) && j.v.epoch.recorded(pod.Name) == ""
	j.require(gate || j.v.memory() || usable, "S10", "a new pod %s without a claim that is observed as ours", pod.Name)
	switch start {
	case objects.StartBootstrap:
		j.require(gate || recorded, "S10", "a new pod %s may begin empty, but not on this claim", pod.Name)
		j.require(m == nil || !m.Started(), "S10", "a new pod %s may begin empty, but the member has run", pod.Name)
	case objects.StartJoin:
		j.require(m != nil && m.Learner && !m.Started(), "S10", "a new pod %s joins, but is no new learner", pod.Name)
		j.require(gate || recorded, "S10", "a new pod %s may begin empty, but not on this claim", pod.Name)
	case objects.StartResume:
		j.require(!j.v.memory(), "S10", "a new memory pod %s can't have data to resume", pod.Name)
	default:
		j.require(false, "S10", "a new pod %s does not say how it starts", pod.Name)
	}
}

// newPodOnNode: a pod that may begin empty is on the node that the record names, and any other where it may find its
// member's data: on the node, and in a directory that nobody else has.
func (j *judgement) newPodOnNode(pod *corev1.Pod) {
	m, recorded := j.v.find(pod.Name), string(j.v.epoch.recorded(pod.Name))
	node := pinnedTo(pod)
	j.require(node != "" && (recorded == "" || node == recorded), "S10",
		"a new pod %s is for node %q, and the member's data on %q", pod.Name, node, recorded)
	own := strings.HasSuffix(directoryIn(pod), "-"+string(j.o.Cluster.UID)+"/"+pod.Name)
	j.require(own && len(claimsIn(pod)) == 0, "S10", "a new pod %s is not in a directory of its own", pod.Name)
	switch podStart(pod) {
	case objects.StartBootstrap:
		has := j.o.Cluster.Status
		// the status tells of an epoch before
		early := has.ClusterID == "" || has.Epoch > 0 && has.Epoch < int64(j.v.epoch.n)
		j.require(recorded != "" && (j.v.Etcd != nil || !j.v.epoch.hadQuorum() && early), "S10",
			"a new pod %s may begin empty, and no record says where", pod.Name)
		j.require(m == nil || !m.Started(), "S10", "a new pod %s may begin empty, but the member has run", pod.Name)
	case objects.StartJoin:
		j.require(recorded != "" && m != nil && m.Learner && !m.Started(), "S10",
			"a new pod %s joins, but is no new learner whose node is recorded", pod.Name)
	default:
		j.require(podStart(pod) == objects.StartResume, "S10", "a new pod %s does not say how it starts", pod.Name)
		j.require(pod.Annotations[objects.AnnotationInitialCluster] == "", "S10",
			"a new pod %s resumes, and says that it may begin", pod.Name)
	}
}

func (j *judgement) pod(name string) *corev1.Pod {
	i := slices.IndexFunc(j.d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return j.d.Children.Pods[i]
}
