package hooks

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Which role pods show while no quorum answers. It may be Quorate alone that reaches no member, and clients are
// served meanwhile; so the client Service must not lose every member that is restarted then. Three things stand
// for the answer that a pod is otherwise asked for before clients are led to it (roleOf). It stands on the very
// claims, or on the node, that the record names for its member. The record does not say that another etcd has
// answered there since the member last did. And the kubelet says that it is ready: its etcd has a quorum then, and
// votes, for /readyz fails on a learner (installReadyzEndpoints in etcd's etcdserver/api/etcdhttp/health.go).

// roleWhileBlind is the role that a pod is to show while no quorum answers; empty for none.
func (v *view) roleWhileBlind(pod *corev1.Pod) string {
	was, other := pod.Labels[objects.LabelRole], slices.Contains(v.epoch.mismatched, pod.Name)
	switch {
	case !v.epoch.hadQuorum():
		return was
	case v.otherAnswers(pod.Name), was == roleVoter && other:
		return roleFenced
	case (was == "" || was == roleLearner) && readyPod(pod) && !other && v.onRecordedStorage(pod):
		return roleVoter
	}
	return was
}

// onRecordedStorage reports whether the pod is on all that the record names for its member, and on nothing else.
func (v *view) onRecordedStorage(pod *corev1.Pod) bool {
	switch {
	case v.memory():
		return v.epoch.mayStartEmpty(pod.Name, pod.UID)
	case v.hostPath():
		node := string(v.epoch.recorded(pod.Name))
		return node != "" && pinnedTo(pod) == node && directoryIn(pod) == directory(v.Cluster, pod.Name)
	}
	return v.storageUsable(pod.Name) && v.mayBegin(pod.Name)
}

// otherAnswers reports whether a member of another cluster, or one that is not the member, answers at a member's
// address.
func (v *view) otherAnswers(name string) bool {
	h, heard := v.Health[name]
	return heard && h.MemberID != 0 && (h.Err != "" || h.ClusterID != v.epoch.clusterID)
}

// mismatches are the members at whose addresses another etcd has answered since they last did: those that the
// record names, with those where one has now. While blind none is taken off.
func (v *view) mismatches() []string {
	if v.Etcd == nil {
		others := filter(v.names, func(name string) bool { return v.epoch.hadQuorum() && v.otherAnswers(name) })
		return union(v.epoch.mismatched, others)
	}
	var list []string
	for _, m := range v.members {
		if m.name != "" && (v.mismatched(m) || slices.Contains(v.epoch.mismatched, m.name) && !m.serving()) {
			list = append(list, m.name)
		}
	}
	return list
}

func readNames(text string) []string {
	return filter(strings.Split(text, ","), func(name string) bool { return name != "" })
}
