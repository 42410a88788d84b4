package answer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// exchange gives a desired pod another image for etcd, and a note of the container that is to end by that.
func exchange(f *facts.Facts, pod *corev1.Pod) {
	wanted := f.Settings.Etcd(&f.Cluster.Spec, f.VersionNow())
	if made := facts.MadeForVersion(pod); made != objects.VersionOf(wanted) {
		pod.Annotations[objects.AnnotationFlagsFor] = made
	}
	pod.Annotations[objects.AnnotationImage] = wanted
	if id := facts.ContainerOf(pod); id != "" {
		pod.Annotations[objects.AnnotationExchanged] = id
		noteRestart(f, pod)
	}
	pod.Spec.Containers = slices.Clone(pod.Spec.Containers)
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == objects.ContainerEtcd {
			pod.Spec.Containers[i].Image = wanted
		}
	}
}

// noteTemplate puts on a pod of what template it is.
func noteTemplate(f *facts.Facts, pod *corev1.Pod, version string) {
	pod.Annotations[objects.AnnotationTemplate] = f.TemplateNow(version)
}
