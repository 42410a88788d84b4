package objects

import (
	corev1 "k8s.io/api/core/v1"
)

// Volumes of that program.
const (
	volumeTools = "tools"
	// VolumeScratch is the name of [ScratchVolume].
	VolumeScratch = "scratch"
)

// SnapshotProgram is the program in Quorate's image that comes near stores and etcd's own files. The image's entrypoint
// is the other one.
const SnapshotProgram = "/quorate-snapshot"

// TrimProgram is the one that runs beside etcd.
const TrimProgram = "/quorate-trim"

// ToolsContainer puts that program where the containers of other images can run it: [ToolsVolume] and [ToolsMount] are
// its volumes. It is an init container before one with these resources.
func ToolsContainer(s Images, main corev1.ResourceRequirements) corev1.Container {
	return corev1.Container{
		Name:            containerTools,
		Image:           s.Image,
		ImagePullPolicy: s.ImagePullPolicy,
		Command:         []string{SnapshotProgram},
		Args:            []string{"copy-self", "--to=" + ToolsBinary},
		SecurityContext: Restricted(),
		Resources:       Before(main),
		VolumeMounts:    []corev1.VolumeMount{{Name: volumeTools, MountPath: toolsDir}},
	}
}

// ToolsBinary is that program in a container of another image.
const ToolsBinary = toolsDir + SnapshotProgram

// ToolsVolume holds the binary.
func ToolsVolume() corev1.Volume {
	return corev1.Volume{Name: volumeTools, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// ToolsMount is for the container that runs the binary.
func ToolsMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: volumeTools, MountPath: toolsDir, ReadOnly: true}
}

// ScratchVolume is on the node's disk, for what is needed once.
func ScratchVolume() corev1.Volume {
	return corev1.Volume{Name: VolumeScratch,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

// ScratchMount is where a container finds [ScratchVolume].
func ScratchMount() corev1.VolumeMount {
	return corev1.VolumeMount{Name: VolumeScratch, MountPath: ScratchDir}
}

// Temporary keeps temporary files where there is room for them: nothing else can be written to.
func Temporary(dir string) corev1.EnvVar { return corev1.EnvVar{Name: "TMPDIR", Value: dir} }
