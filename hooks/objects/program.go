package hooks

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Volumes of that program.
const (
	volumeTools   = "tools"
	volumeScratch = "scratch"
)

// snapshotProgram is the program in Quorate's image that comes near stores and etcd's own files. The image's entrypoint is the other one.
const snapshotProgram = "/quorate-snapshot"

// toolsContainer puts that program where the containers of other images can run it: toolsVolume and toolsMount are its
// volumes. It is an init container.
func toolsContainer(s Sources) corev1.Container {
	return corev1.Container{
		Name:            ContainerTools,
		Image:           s.Image,
		ImagePullPolicy: s.ImagePullPolicy,
		Command:         []string{snapshotProgram},
		Args:            []string{"tool", "--to=" + toolsBinary},
		SecurityContext: restricted(),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeTools, MountPath: ToolsDir}},
	}
}

// toolsBinary is that program in a container of another image.
const toolsBinary = ToolsDir + snapshotProgram

// toolsVolume holds the binary, and toolsMount is for the container that runs it.
func toolsVolume() corev1.Volume {
	return corev1.Volume{Name: volumeTools, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func toolsMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeTools, MountPath: ToolsDir, ReadOnly: true}
}

// scratchVolume is on the node's disk, for what is needed once. Nil is no limit but the node's.
func scratchVolume(limit *resource.Quantity) corev1.Volume {
	if limit != nil {
		limit = new(canonical(*limit))
	}
	return corev1.Volume{Name: volumeScratch, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: limit}}}
}

func scratchMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeScratch, MountPath: ScratchDir}
}

// temporary keeps temporary files where there is room for them: nothing else can be written to.
func temporary(dir string) corev1.EnvVar { return corev1.EnvVar{Name: "TMPDIR", Value: dir} }
