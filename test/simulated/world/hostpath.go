package world

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Nodes that pods name themselves, and the directories on them: these outlive pods, claims and EtcdClusters.

// pinnedTo is the node that the pod asks for by name; empty for none.
func pinnedTo(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// directoryOf is the place of the pod's data, when that is a directory on its node.
func directoryOf(pod *corev1.Pod) (string, bool) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
	if i < 0 {
		return "", false
	}
	return pinnedTo(pod) + ":" + pod.Spec.Volumes[i].HostPath.Path, true
}

// Reimage sets the node under a pod up again, under its old name: its disk is empty, what prepare kept on it too, and
// the kubelet starts the same pod once more.
func (w *World) Reimage(name string) {
	pod := w.Pod(name)
	w.WipeData(name)
	delete(w.Markers, pod.UID)
}
