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
func (f *Facts) RoleWhileBlind(pod *corev1.Pod) string {
	was := pod.Labels[objects.LabelRole]
	other := slices.Contains(f.Epoch.Mismatched, pod.Name)
	switch {
	case !f.Epoch.HadQuorum():
		return was
	case f.otherAnswers(pod.Name), (was == RoleVoter || was == RoleLeaving) && other:
		return RoleFenced
	case slices.Contains([]string{"", RoleLearner, RoleLeaving}, was) && objects.Ready(pod) && !other && f.onRecordedStorage(pod):
		return RoleVoter
	}
	return was
}

// onRecordedStorage reports whether the pod is on all that the record names for its member, and on nothing else.
func (f *Facts) onRecordedStorage(pod *corev1.Pod) bool {
	switch {
	case f.Memory():
		return f.Epoch.MayStartEmpty(pod.Name, pod.UID)
	case f.HostPath():
		node := string(f.Epoch.Recorded(pod.Name))
		return node != "" && PinnedTo(pod) == node && DirectoryIn(pod) == Directory(f.Cluster,
			pod.Name)
	}
	unrecorded := func(claim string) bool { return f.Epoch.Recorded(claim) == "" }
	return f.StorageUsable(pod.Name) && f.MayBegin(pod.Name) &&
		!slices.ContainsFunc(OwnClaims(f.Cluster.Name, pod), unrecorded)
}

// otherAnswers reports whether a member of another cluster, or one that is not the member, answers at a member's
// address.
func (f *Facts) otherAnswers(name string) bool {
	h, heard := f.Health[name]
	return heard && h.MemberID != 0 && (h.Err != "" || h.ClusterID != f.Epoch.ClusterID)
}

// Mismatches are the members at whose addresses another etcd has answered since they last did: those that the
// record names, with those where one has now. While blind none is taken off.
func (f *Facts) Mismatches() []string {
	if f.Etcd == nil {
		others := objects.Filter(f.Names, func(name string) bool {
			return f.Epoch.HadQuorum() &&
				f.otherAnswers(name)
		})
		return objects.Union(f.Epoch.Mismatched, others)
	}
	var list []string
	for _, m := range f.Members {
		if m.PodName != "" && (f.Mismatched(m) || slices.Contains(f.Epoch.Mismatched, m.PodName) && !m.Answers()) {
			list = append(list, m.PodName)
		}
	}
	return list
}
