package answer

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// inDirectory puts a new pod in its member's directory on its node.
func inDirectory(f *facts.Facts, pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == facts.VolumeData {
			pod.Spec.Volumes[i].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: facts.Directory(f.Cluster, pod.Name), Type: new(corev1.HostPathDirectoryOrCreate),
			}}
		}
	}
	prepare := &pod.Spec.InitContainers[0]
	prepare.Env = append(prepare.Env, corev1.EnvVar{Name: facts.EnvBegins, ValueFrom: objects.FromInitialCluster()})
	own := ownContainer(f, pod.Name, prepare.Resources)
	pod.Spec.InitContainers = append([]corev1.Container{own}, pod.Spec.InitContainers...)
}

// Pinned is an affinity that also asks for this node. Of the terms one must hold, so each of them gets it; an empty
// one, which no node meets, stays empty.
func Pinned(a *corev1.Affinity, node string) *corev1.Affinity {
	a = a.DeepCopy()
	if a == nil {
		a = &corev1.Affinity{}
	}
	if a.NodeAffinity == nil {
		a.NodeAffinity = &corev1.NodeAffinity{}
	}
	if a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	this := corev1.NodeSelectorRequirement{Key: facts.NodeField, Operator: corev1.NodeSelectorOpIn,
		Values: []string{node}}
	required := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	var terms []corev1.NodeSelectorTerm
	for _, term := range required.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) > 0 {
			term.MatchFields = append(term.MatchFields, this)
			terms = append(terms, term)
		}
	}
	if len(required.NodeSelectorTerms) == 0 {
		terms = []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{this}}}
	}
	if len(terms) > 0 {
		required.NodeSelectorTerms = terms
	}
	return a
}

// ownContainer gives the directory, which the kubelet makes as root's, to etcd's user.
func ownContainer(f *facts.Facts, member string, resources corev1.ResourceRequirements) corev1.Container {
	own := prepareContainer(f.Observation, resources)
	own.Name = objects.ContainerChown
	own.Args = []string{"chown-data", "--dir=" + facts.DataMount, fmt.Sprintf("--user=%d", objects.UserID),
		"--named=" + facts.DirectoryName(f.Cluster, member)}
	own.VolumeMounts = []corev1.VolumeMount{{Name: facts.VolumeData, MountPath: facts.DataMount}}
	own.SecurityContext.RunAsNonRoot = new(false)
	own.SecurityContext.RunAsUser = new(int64(0))
	own.SecurityContext.RunAsGroup = new(int64(0))
	own.SecurityContext.Capabilities.Add = []corev1.Capability{"CHOWN"}
	return own
}
