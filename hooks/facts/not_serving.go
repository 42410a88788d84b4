package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// The words of the scheduler and of the kubelet about a pod, as far as they are said again in a status: one line,
// bounded, without what a URL may hold in secret, and without what differs from one try to the next (S16). Every rule
// that waits for a member says the same of it: see WhyNotServing.

// Alarms are those of a kind that have been raised, in order. They may name members that are no longer listed, or no
// member (ID 0).
func (f *Facts) Alarms(kind string) []observation.Alarm {
	if f.Etcd == nil {
		return nil
	}
	list := objects.Filter(f.Etcd.Alarms, func(a observation.Alarm) bool { return a.Kind == kind })
	slices.SortFunc(list, func(a, b observation.Alarm) int { return cmp.Compare(a.MemberID, b.MemberID) })
	return list
}

// WhyPodsNotServing is what a message says of the pods of these members while etcd's list is not known.
func (f *Facts) WhyPodsNotServing(names []string) string {
	var all objects.GroupedReasons
	for _, name := range names {
		m := f.unlisted(name)
		if what := f.WhyNotServing(m); what != "" && !f.Distrusts(m.Health) {
			all.Add(name, what)
		}
	}
	return following(all)
}

// unlisted is a member of which no list of etcd tells in this call, as last known.
func (f *Facts) unlisted(name string) *Member {
	m := &Member{PodName: name, Pod: f.Children.Pods[name], Health: f.Health[name]}
	for _, s := range f.Cluster.Status.Members {
		if id, err := strconv.ParseUint(s.ID, 16, 64); err == nil && s.Name == name {
			m.ID = id
		}
	}
	return m
}

// following are the reasons as they follow a sentence; empty for none.
func following(all objects.GroupedReasons) string {
	if len(all) == 0 {
		return ""
	}
	return "; " + all.String()
}

// withoutVolume says that a pod waits for the volumes of its claims, when the scheduler does; empty when it waits for
// something else.
func (f *Facts) withoutVolume(pod *corev1.Pod, scheduler string) string {
	if !strings.Contains(strings.ToLower(strings.ReplaceAll(scheduler, " ", "")), "persistentvolume") {
		return ""
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := f.All.Claims[volume.PersistentVolumeClaim.ClaimName]
		if claim == nil || claim.Status.Phase != corev1.ClaimPending {
			continue
		}
		class := "the default storage class"
		if name := claim.Spec.StorageClassName; name != nil {
			class = "storage class " + *name
		}
		return fmt.Sprintf("; its claim has no volume of %s: `kubectl describe pvc -n %s -l %s=%s` shows why",
			class, f.Cluster.Namespace, objects.LabelCluster, f.Cluster.Name)
	}
	return ""
}

// WordsForEnd is how a container of the pod ended, and which, unless it is etcd's.
func WordsForEnd(pod *corev1.Pod, t *corev1.ContainerStateTerminated) string {
	words := fmt.Sprintf("exit %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" { // such as OOMKilled
		words += ", " + t.Reason
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.LastTerminationState.Terminated == t || s.State.Terminated == t {
			words += " of its init container " + s.Name
		}
	}
	return words
}

// WhyNotServing says what the member's pod shows; empty when that is nothing in particular, or passes by itself.
func (f *Facts) WhyNotServing(m *Member) string {
	if m.Pod == nil || m.Serving() {
		return ""
	}
	if m.Answers() {
		return fmt.Sprintf("it is more than %d entries behind another one, and may be waiting for a snapshot",
			MostBehind)
	}
	if PrepareRefused(m.Pod) {
		return "its data directory was empty"
	}
	for _, shows := range []func(*Member) string{func(m *Member) string { return f.lostNode(m) },
		func(m *Member) string { return f.unscheduled(m) }, Unpulled,
		func(m *Member) string { return f.fullDisk(m) }, func(m *Member) string { return f.crashes(m) },
		CrashesBefore, newImage} {
		if what := shows(m); what != "" {
			return what
		}
	}
	if f.Distrusts(m.Health) {
		return "it does not trust the present authority"
	}
	return ""
}

// newImage says which image a container has not started with since it was put into the pod: it may be on its way, or
// not be there.
func newImage(m *Member) string {
	if m.Pod.DeletionTimestamp != nil || !m.Restarting() {
		return ""
	}
	return "it has not started with its new image " + m.Pod.Annotations[objects.AnnotationImage] + " yet"
}

func (f *Facts) lostNode(m *Member) string {
	if nodeGone(m.Pod, f.Now) {
		return "its node does not answer"
	}
	return ""
}

// nodeGone reports whether the pod's node did not do what it was asked to, or Kubernetes says that it is lost.
func nodeGone(pod *corev1.Pod, now time.Time) bool {
	return pod.Spec.NodeName != "" && (graceOver(pod, now) || pod.Status.Reason == "NodeLost")
}

// unscheduled says why no node takes the member's pod; empty when one does.
func (f *Facts) unscheduled(m *Member) string {
	for _, c := range m.Pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
			c.Reason == corev1.PodReasonUnschedulable {
			return "no node accepts its pod" + objects.Colon(objects.Scheduler(c.Message)) + f.withoutVolume(m.Pod,
				c.Message)
		}
	}
	return ""
}

// crashes tells of a container of Quorate's that has ended since the member became unreachable, also while it is just
// trying again.
func (f *Facts) crashes(m *Member) string {
	if t := f.crashed(m); t != nil {
		return "it crashes: " + WordsForEnd(m.Pod, t)
	}
	return ""
}

// crashed is how a container of Quorate's ended since the member became unreachable; nil for none.
func (f *Facts) crashed(m *Member) *corev1.ContainerStateTerminated {
	if m.Pod == nil {
		return nil
	}
	for _, t := range Failures(m.Pod) {
		if r := f.LastStatus(m); r == nil || t.FinishedAt.IsZero() ||
			!t.FinishedAt.Add(time.Minute).Before(r.LastTransitionTime.Time) {
			return t
		}
	}
	return nil
}

// InCrashLoop reports whether the etcd of a member that no list tells of ends again and again, also while it is just
// trying again.
func (f *Facts) InCrashLoop(name string) bool {
	m := f.unlisted(name)
	if m.Pod == nil || f.Health[name].Serving() || f.DiskFull(m) && f.MoreRoom(name) {
		return false
	}
	return Crashing(m.Pod) || triesAgain(m.Pod, f.Now)
}

// longestLoop is for how long a container must run before the kubelet takes its earlier ends for past.
const longestLoop = 10 * time.Minute

// triesAgain reports whether etcd has ended with an error more than once, and has not outlived its last run yet.
func triesAgain(pod *corev1.Pod, now time.Time) bool {
	etcd := objects.StatusOf(pod, objects.ContainerEtcd)
	ended := etcd.LastTerminationState.Terminated
	if ended == nil || ended.ExitCode == 0 || etcd.RestartCount < 2 {
		return false
	}
	lived := ended.FinishedAt.Sub(ended.StartedAt.Time)
	if lived >= longestLoop {
		return false
	}
	runs := etcd.State.Running
	return runs == nil || now.Sub(runs.StartedAt.Time) <= max(lived, time.Minute)
}

// DiskFull reports whether the unreachable member's etcd has died of a full disk: the end of its log says so (ENOSPC).
func (f *Facts) DiskFull(m *Member) bool {
	t := f.crashed(m)
	return !m.Serving() && t != nil && strings.Contains(t.Message, objects.DiskFullWords)
}

// fullDisk says so, and what to do.
func (f *Facts) fullDisk(m *Member) string {
	switch {
	case !f.DiskFull(m):
		return ""
	case f.HostPath():
		return "the disk of its node is full: make room there"
	case f.Memory():
		return "its memory for data is full: raise spec.storage.size"
	case f.HasWAL(m.PodName):
		return "one of its volumes is full: raise spec.storage.size and spec.storage.wal.size"
	}
	return "its volume is full: raise spec.storage.size"
}

// Mismatched reports whether the member answers as another one, or did and has not answered as itself since.
func (f *Facts) Mismatched(m *Member) bool {
	return m.Impostor() || m.Pod != nil && m.Pod.Labels[objects.LabelRole] == RoleFenced && !m.Serving()
}

// Mismatch says who answers at the address of a mismatched member.
func (f *Facts) Mismatch(m *Member) string {
	answers := "answered as another member and does not answer now"
	if m.Impostor() {
		answers = fmt.Sprintf("answers as member %s of cluster %s", objects.Hex(m.Health.MemberID),
			objects.Hex(m.Health.ClusterID))
	}
	return fmt.Sprintf("it %s, and should be member %s of cluster %s: it gets no clients and Quorate leaves it as it "+
		"is until you decide: see "+v1beta1.Docs+"troubleshooting.md#mismatch",
		answers, objects.Hex(m.ID), objects.Hex(f.Etcd.ClusterID))
}

// Strange says what to do about a member that is not of Quorate's making. It may be on purpose: a cluster that moves.
func (f *Facts) Strange(m *Member) string {
	role := "votes"
	if m.Learner {
		role = "is a learner"
	}
	return fmt.Sprintf("unmanaged member %s (%s) %s in this cluster and was not added by Quorate, which leaves it alone: if "+
		"it should not be there, remove it with etcdctl member remove %s",
		objects.Hex(m.ID), strings.Join(m.PeerURLs, ", "), role, objects.Hex(m.ID))
}

// The values of LabelRole. The client Service leads to voters.
const (
	RoleVoter   = "voter"
	RoleLearner = "learner"
	RoleFenced  = "fenced"
	RoleLeaving = "leaving"
)

// RoleOf is the role that the member's observed pod is to show. A pod that resumes a member shows it once the member
// has answered as itself: before that it is not known whose data it found. What it is while blind, roles.go says.
func (f *Facts) RoleOf(m *Member, leaves bool) string {
	was := m.Pod.Labels[objects.LabelRole]
	switch {
	case f.Mismatched(m):
		return RoleFenced
	case m.Learner:
		return RoleLearner
	case leaves:
		return RoleLeaving
	case m.Serving(), PodStart(m.Pod) == objects.StartBootstrap && was == "":
		return RoleVoter
	}
	return was
}

// ClientSelector chooses the pods that clients are led to: those of voters.
func ClientSelector(c *v1beta1.EtcdCluster) map[string]string {
	selector := objects.Selector(c)
	selector[objects.LabelRole] = RoleVoter
	return selector
}

// MismatchedPods are how many pods look healthy to Kubernetes and count for nothing in the cluster.
func (f *Facts) MismatchedPods() int {
	return len(objects.Filter(f.Members, func(m *Member) bool { return f.Mismatched(m) }))
}
