package answer

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// fill lets a pod that begins get its data, if its epoch has any.
func fill(f *facts.Facts, pod *corev1.Pod) {
	e := f.Epoch
	if !e.Filled() {
		return
	}
	switch e.Source {
	case record.SourceSnapshot:
		if e.Snapshot != nil {
			fromSnapshot(f, pod, e.Snapshot)
		}
	case record.SourceEmpty:
		seedBy(f, pod, seedContainer(f, pod, []string{"--empty"}), nil)
	case record.SourceClaims:
		if e.Claim != nil {
			fromVolume(f, pod, *e.Claim)
		}
	case record.SourceSurvivor:
		if e.Member != "" {
			fromRunning(f, pod, e.Member)
		} else {
			fromVolume(f, pod, survivorVolume(f, e.Survivor))
		}
	}
	pod.Spec.Containers[0].Env = append(environment(f.Cluster),
		ResumeEnv()...) // it finds its data, or does not start
}

// awaitPredecessor holds a member back that is made ready before its epoch begins.
func awaitPredecessor(f *facts.Facts, pod *corev1.Pod) {
	if !f.Epoch.Began() {
		awaitWord(pod)
	}
}

// awaitWord has prepare wait until an annotation of the pod says that the member may start.
func awaitWord(pod *corev1.Pod) {
	prepare := facts.PrepareOf(pod)
	prepare.Args = append(prepare.Args, "--await="+facts.GateMount+"/begins")
	prepare.VolumeMounts = append(prepare.VolumeMounts, corev1.VolumeMount{Name: facts.VolumeGate, MountPath: facts.GateMount,
		ReadOnly: true})
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		corev1.Volume{Name: facts.VolumeGate, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "begins",
				FieldRef: objects.AnnotationField(objects.AnnotationBegins)}},
		}}})
}

// ofEpoch has a pod name the record of its epoch: without that the kubelet does not start it.
func ofEpoch(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: facts.EnvEpoch, ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name},
			Key: record.KeyToken},
	}}
}

func fromSnapshot(f *facts.Facts, pod *corev1.Pod, from *record.Resolved) {
	access := stores.AccessTo(from.Store, from.ServiceAccountName, true)
	if from.Identity.Name != "" {
		access.Identify(from.Identity)
	}
	if from.Tail != "" && from.Keys.Name != "" {
		access.Believe(from.Keys)
	}
	args := append([]string{"--url=" + from.URL}, access.Args...)
	if from.SHA256 != "" {
		args = append(args, "--sha256="+from.SHA256)
	}
	if from.Tail != "" {
		args = append(args, "--tail-url="+from.Tail)
	}
	switch {
	case from.Until > 0:
		args = append(args, fmt.Sprintf("--until-revision=%d", from.Until))
	case !from.UntilTime.IsZero():
		args = append(args, "--until-time="+from.UntilTime.UTC().Format(time.RFC3339Nano))
	case from.AsFar:
		args = append(args, "--as-far-as-possible")
	}
	seed := seedContainer(f, pod, args)
	seed.Env = append(seed.Env, access.Env...)
	if from.SHA256 == "" {
		insist(pod, &seed, facts.EnvSHA256, objects.AnnotationSHA256, f.Epoch.Sum)
	}
	if f.Epoch.UnknownEnd() {
		insist(pod, &seed, facts.EnvUntil, objects.AnnotationUntil, facts.RevisionText(f.Epoch.Until))
	}
	seed.VolumeMounts = append(seed.VolumeMounts, access.Mounts...)
	pod.Spec.ServiceAccountName = cmp.Or(from.ServiceAccountName, pod.Spec.ServiceAccountName)
	for k, label := range access.Labels {
		pod.Labels[k] = label
	}
	seedBy(f, pod, seed, access.Volumes)
}

// survivorVolume is that of a member of an earlier epoch.
func survivorVolume(f *facts.Facts, member string) record.FormerClaim {
	of := record.FormerClaim{Name: member, Path: facts.DefaultDataPath}
	if f.All.Claims[facts.WALClaim(member)] != nil {
		of.WAL = facts.WALClaim(member)
	}
	return of
}

// fromVolume has the pod copy what the volume of a member holds that runs no more.
func fromVolume(f *facts.Facts, pod *corev1.Pod, of record.FormerClaim) {
	list, mounts := mountsOf(of)
	args := []string{"--from-data=" + facts.DataIn(of)}
	if wal := facts.WALIn(of); wal != "" {
		args = append(args, "--from-wal="+wal)
	}
	seed := seedContainer(f, pod, args)
	seed.VolumeMounts = append(seed.VolumeMounts, mounts...)
	seedBy(f, pod, seed, list)
}

// mountsOf are what mounts a volume, for reading alone.
func mountsOf(of record.FormerClaim) (list []corev1.Volume, mounts []corev1.VolumeMount) {
	list = []corev1.Volume{objects.ClaimVolume(facts.VolumeSurvivor, of.Name)}
	mounts = []corev1.VolumeMount{{Name: facts.VolumeSurvivor, MountPath: facts.SurvivorMount, ReadOnly: true}}
	if of.WAL != "" {
		list = append(list, objects.ClaimVolume(facts.VolumeSurvivorWAL, of.WAL))
		mounts = append(mounts, corev1.VolumeMount{Name: facts.VolumeSurvivorWAL, MountPath: facts.SurvivorWALMount,
			ReadOnly: true})
	}
	return list, mounts
}

// fromRunning has the pod fetch what a member of the epoch before has applied. It has no quorum any more, so nothing
// comes after that.
func fromRunning(f *facts.Facts, pod *corev1.Pod, member string) {
	args := []string{"--from-member=" + objects.ClientURL(f.Cluster, member, f.Address(member))}
	var list []corev1.Volume
	var mounts []corev1.VolumeMount
	if secret := objects.OperatorSecret(f.Cluster); secret != "" {
		args = append(args, objects.OperatorFlags()...)
		list = []corev1.Volume{objects.OperatorVolume(secret)}
		mounts = []corev1.VolumeMount{objects.OperatorMount()}
	}
	if objects.NeedsToken(f.Cluster) {
		args = append(args, objects.TokenFlags()...)
		list = append(list, objects.TokenVolume(f.Cluster.Name))
		mounts = append(mounts, objects.TokenMount())
	}
	seed := seedContainer(f, pod, args)
	seed.VolumeMounts = append(seed.VolumeMounts, mounts...)
	seedBy(f, pod, seed, list)
}

// seedContainer fills the data directory of the pod's member.
func seedContainer(f *facts.Facts, pod *corev1.Pod, from []string) corev1.Container {
	version := f.VersionNow()
	peerURL := f.Epoch.Initial[pod.Name] // etcdutl refuses another one than the list has
	c := corev1.Container{
		Name:            objects.ContainerSeed,
		Image:           f.Settings.Etcd(&f.Cluster.Spec, version),
		ImagePullPolicy: f.Cluster.Spec.Image.PullPolicy,
		Command:         []string{objects.ToolsBinary},
		Args: append([]string{"restore", "--data-dir=" + objects.DataDir, "--marker=" + objects.MarkerFile,
			"--name=" + pod.Name, "--peer-url=" + peerURL, "--etcd-version=" + version, f.Epoch.BeginArg()}, from...),
		Env: append([]corev1.EnvVar{objects.Temporary(facts.StateMount)},
			recordEnv(f.Epoch.Record.Name)...),
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                objects.Before(pod.Spec.Containers[0].Resources),
		VolumeMounts: []corev1.VolumeMount{objects.ToolsMount(), {Name: facts.VolumeData, MountPath: facts.DataMount},
			{Name: facts.VolumeState, MountPath: facts.StateMount}},
	}
	if f.HasWAL(pod.Name) {
		c.Args = append(c.Args, "--wal-dir="+facts.WALDir)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: facts.VolumeWAL,
			MountPath: facts.WALMount})
	}
	return c
}

// seedBy puts the container before prepare.
func seedBy(f *facts.Facts, pod *corev1.Pod, seed corev1.Container, mounts []corev1.Volume) {
	pod.Spec.Volumes = append(append(pod.Spec.Volumes, objects.ToolsVolume()), mounts...)
	before := pod.Spec.InitContainers[:len(pod.Spec.InitContainers)-1]
	prepare := pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	pod.Spec.InitContainers = append(append([]corev1.Container{}, before...), objects.ToolsContainer(f.Settings.Images,
		seed.Resources), seed, prepare)
}

// insist has a pod take only the database that the record has the SHA-256 of, or end where the record says, when it
// starts: a variable that is an annotation, which has this value once it is known. On Memory a pod is made before that.
func insist(pod *corev1.Pod, seed *corev1.Container, variable, annotation, value string) {
	seed.Env = append(seed.Env, corev1.EnvVar{Name: variable,
		ValueFrom: &corev1.EnvVarSource{FieldRef: objects.AnnotationField(annotation)}})
	if value != "" {
		pod.Annotations[annotation] = value
	}
}

// noteFilling puts on a pod what it must be filled with, once that is known, where it reads that.
func noteFilling(f *facts.Facts, pod *corev1.Pod) {
	for _, of := range [][3]string{{facts.EnvSHA256, objects.AnnotationSHA256, f.Epoch.Sum},
		{facts.EnvUntil, objects.AnnotationUntil, facts.RevisionText(f.Epoch.Until)}} {
		if of[2] != "" && facts.Insists(pod, of[0]) {
			pod.Annotations[of[1]] = of[2]
		}
	}
}
