package facts

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// Which role pods show while no quorum answers. It may be Quorate alone that reaches no member, and clients are
// served meanwhile; so the client Service must not lose every member that is restarted then. Three things stand
// for the answer that a pod is otherwise asked for before clients are led to it (RoleOf). It stands on the very
// claims, or on the node, that the record names for its member. The record does not say that another etcd has
// answered there since the member last did. And the kubelet says that it is ready: its etcd has a quorum then, and
// votes, for /readyz fails on a learner (installReadyzEndpoints in etcd's etcdserver/api/etcdhttp/health.go).

// RoleWhileBlind is the role that a pod is to show while no quorum answers; empty for none.
func (v *Facts) RoleWhileBlind(pod *corev1.Pod) string {
	was, other := pod.Labels[objects.LabelRole], slices.Contains(v.Epoch.Mismatched, pod.Name)
	switch {
	case !v.Epoch.HadQuorum():
		return was
	case v.otherAnswers(pod.Name), (was == RoleVoter || was == RoleLeaving) && other:
		return RoleFenced
	case slices.Contains([]string{"", RoleLearner, RoleLeaving}, was) && objects.Ready(pod) && !other && v.onRecordedStorage(pod):
		return RoleVoter
	}
	return was
}

// onRecordedStorage reports whether the pod is on all that the record names for its member, and on nothing else.
func (v *Facts) onRecordedStorage(pod *corev1.Pod) bool {
	switch {
	case v.Memory():
		return v.Epoch.MayStartEmpty(pod.Name, pod.UID)
	case v.HostPath():
		node := string(v.Epoch.Recorded(pod.Name))
		return node != "" && PinnedTo(pod) == node && DirectoryIn(pod) == Directory(v.Cluster,
			pod.Name)
	}
	unrecorded := func(claim string) bool { return v.Epoch.Recorded(claim) == "" }
	return v.StorageUsable(pod.Name) && v.MayBegin(pod.Name) &&
		!slices.ContainsFunc(OwnClaims(v.Cluster.Name, pod), unrecorded)
}

// otherAnswers reports whether a member of another cluster, or one that is not the member, answers at a member's
// address.
func (v *Facts) otherAnswers(name string) bool {
	h, heard := v.Health[name]
	return heard && h.MemberID != 0 && (h.Err != "" || h.ClusterID != v.Epoch.ClusterID)
}

// Mismatches are the members at whose addresses another etcd has answered since they last did: those that the
// record names, with those where one has now. While blind none is taken off.
func (v *Facts) Mismatches() []string {
	if v.Etcd == nil {
		others := objects.Filter(v.Names, func(name string) bool {
			return v.Epoch.HadQuorum() &&
				v.otherAnswers(name)
		})
		return objects.Union(v.Epoch.Mismatched, others)
	}
	var list []string
	for _, m := range v.Members {
		if m.PodName != "" && (v.Mismatched(m) || slices.Contains(v.Epoch.Mismatched, m.PodName) && !m.Answers()) {
			list = append(list, m.PodName)
		}
	}
	return list
}
