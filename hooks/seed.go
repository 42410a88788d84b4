package hooks

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// How the initial members of an epoch come to their data: an init container fills the data directory before prepare guards it. It runs in
// etcd's own image, with quorate-snapshot in it, so that the tools are of the very version that etcd has.

const (
	volumeSurvivor    = "survivor"
	volumeSurvivorWAL = "survivor-wal"
	volumeGate        = "gate"
	survivorMount     = "/survivor"
	survivorWALMount  = "/survivor-wal"
	gateMount         = "/var/run/quorate-gate"
	// envEpoch names the record of the epoch: a pod whose epoch is over does not start, for want of it.
	envEpoch = "EPOCH"
)

// fill lets a pod that begins get its data, if its epoch has any.
func (v *view) fill(pod *corev1.Pod) {
	e := v.epoch
	switch e.source {
	case SourceSnapshot:
		if e.snapshot != nil {
			v.fromSnapshot(pod, e.snapshot)
		}
	case SourceSurvivor:
		if e.member != "" {
			v.fromRunning(pod, e.member)
		} else {
			v.fromSurvivor(pod)
		}
	default:
		return
	}
	pod.Spec.Containers[0].Env = append(environment(v.Cluster), resumeEnv()...) // it finds its data, or does not start
}

// await holds a member back that is made ready before its epoch begins.
func (v *view) await(pod *corev1.Pod) {
	if v.epoch.began() {
		return
	}
	prepare := prepareOf(pod)
	prepare.Args = append(prepare.Args, "--await="+gateMount+"/begins")
	prepare.VolumeMounts = append(prepare.VolumeMounts, corev1.VolumeMount{Name: volumeGate, MountPath: gateMount, ReadOnly: true})
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volumeGate, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
		Items: []corev1.DownwardAPIVolumeFile{{Path: "begins", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" + AnnotationBegins + "']"}}},
	}}})
}

// ofEpoch has a pod name the record of its epoch: without that the kubelet does not start it.
func ofEpoch(record string) corev1.EnvVar {
	return corev1.EnvVar{Name: envEpoch, ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: record}, Key: EpochKeyToken},
	}}
}

// namesRecord is the record of the epoch that the pod was made for; empty when it names none.
func namesRecord(pod *corev1.Pod) string {
	for _, e := range prepareOf(pod).Env {
		if e.Name == envEpoch && e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return e.ValueFrom.ConfigMapKeyRef.Name
		}
	}
	return ""
}

// awaits reports whether the pod was made before its epoch began.
func awaits(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == volumeGate {
			return true
		}
	}
	return false
}

func prepareOf(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == ContainerPrepare {
			return &pod.Spec.InitContainers[i]
		}
	}
	return &corev1.Container{}
}

func (v *view) fromSnapshot(pod *corev1.Pod, from *resolved) {
	access := accessTo(from.Store, from.ServiceAccountName, true)
	if from.IdentitySecret != "" {
		access.identify(from.IdentitySecret)
	}
	args := append([]string{"--url=" + from.URL}, access.Args...)
	if from.SHA256 != "" {
		args = append(args, "--sha256="+from.SHA256)
	}
	if from.BumpRevision > 0 {
		args = append(args, fmt.Sprintf("--bump-revision=%d", from.BumpRevision))
	}
	seed := v.seedContainer(pod, args)
	seed.Env, seed.EnvFrom = append(seed.Env, access.Env...), access.EnvFrom
	seed.VolumeMounts = append(seed.VolumeMounts, access.Mounts...)
	pod.Spec.ServiceAccountName = from.ServiceAccountName
	for k, label := range access.Labels {
		pod.Labels[k] = label
	}
	v.seedBy(pod, seed, access.Volumes)
}

func (v *view) fromSurvivor(pod *corev1.Pod) {
	of := v.epoch.survivor
	seed := v.seedContainer(pod, []string{"--from-data=" + survivorMount + "/data"})
	volumes := []corev1.Volume{claimVolume(volumeSurvivor, of)}
	seed.VolumeMounts = append(seed.VolumeMounts, corev1.VolumeMount{Name: volumeSurvivor, MountPath: survivorMount, ReadOnly: true})
	if v.all.Claims[WALClaim(of)] != nil {
		seed.Args = append(seed.Args, "--from-wal="+survivorWALMount+"/wal")
		volumes = append(volumes, claimVolume(volumeSurvivorWAL, WALClaim(of)))
		seed.VolumeMounts = append(seed.VolumeMounts, corev1.VolumeMount{Name: volumeSurvivorWAL, MountPath: survivorWALMount, ReadOnly: true})
	}
	v.seedBy(pod, seed, volumes)
}

// fromRunning has the pod fetch what a member of the epoch before has applied. It has no quorum any more, so nothing comes after that.
func (v *view) fromRunning(pod *corev1.Pod, member string) {
	args := []string{"--from-member=" + ClientURL(v.Cluster, member)}
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	if secret := OperatorSecret(v.Cluster); secret != "" {
		args = append(args, "--ca="+operatorDir+"/"+KeyTrust, "--cert="+operatorDir+"/"+KeyCertificate, "--cert-key="+operatorDir+"/"+KeyPrivate)
		volumes, mounts = []corev1.Volume{operatorVolume(secret)}, []corev1.VolumeMount{{Name: volumeOperator, MountPath: operatorDir, ReadOnly: true}}
	}
	seed := v.seedContainer(pod, args)
	seed.VolumeMounts = append(seed.VolumeMounts, mounts...)
	v.seedBy(pod, seed, volumes)
}

// operatorVolume holds the certificate that Quorate shows to members.
func operatorVolume(secret string) corev1.Volume {
	return corev1.Volume{Name: volumeOperator, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: secret, DefaultMode: new(int32(0o440)),
		Items: []corev1.KeyToPath{{Key: KeyCertificate, Path: KeyCertificate}, {Key: KeyPrivate, Path: KeyPrivate}, {Key: KeyTrust, Path: KeyTrust}},
	}}}
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// seedContainer fills the data directory of the pod's member.
func (v *view) seedContainer(pod *corev1.Pod, from []string) corev1.Container {
	version := v.versionNow()
	c := corev1.Container{
		Name:            ContainerSeed,
		Image:           v.Settings.image(&v.Cluster.Spec, version),
		ImagePullPolicy: v.Cluster.Spec.Image.PullPolicy,
		Command:         []string{toolsBinary},
		Args: append([]string{"restore", "--data-dir=" + DataDir, "--marker=" + MarkerFile, "--scratch=" + ScratchDir,
			"--name=" + pod.Name, "--peer-url=" + PeerURL(v.Cluster, pod.Name), "--etcd-version=" + version}, from...),
		Env:                      append(toolsEnv(), bootstrapEnv(v.epoch.record.Name)...),
		SecurityContext:          restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
		VolumeMounts: append(toolsMounts(), corev1.VolumeMount{Name: volumeData, MountPath: dataMount}, corev1.VolumeMount{Name: volumeState, MountPath: stateMount}),
	}
	if v.hasWAL(pod.Name) {
		c.Args = append(c.Args, "--wal-dir="+WALDir)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeWAL, MountPath: walMount})
	}
	return c
}

// seedBy puts the container before prepare.
func (v *view) seedBy(pod *corev1.Pod, seed corev1.Container, volumes []corev1.Volume) {
	pod.Spec.Volumes = append(append(pod.Spec.Volumes, toolsVolumes(nil)...), volumes...)
	before := pod.Spec.InitContainers[:len(pod.Spec.InitContainers)-1]
	prepare := pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	pod.Spec.InitContainers = append(append([]corev1.Container{}, before...), toolsContainer(v.Settings), seed, prepare)
}

// seeded reports whether the pod's data directory is filled, or was not to be.
func seeded(pod *corev1.Pod) bool {
	s := seedStatus(pod)
	return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

// seedFailure is why the pod's data directory could not be filled at the last try; nil while nothing is known to be wrong.
func seedFailure(pod *corev1.Pod) *RestoreReport {
	s := seedStatus(pod)
	if s == nil {
		return nil
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t == nil || t.ExitCode == 0 {
			continue
		}
		report, err := readReport[RestoreReport](t.Message)
		if err != nil || report.Error == "" {
			return &RestoreReport{Error: fmt.Sprintf("the container %s ended with code %d: %.300s", ContainerSeed, t.ExitCode, or(t.Message, t.Reason))}
		}
		return report
	}
	return nil
}

func seedStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if pod == nil {
		return nil
	}
	for i := range pod.Status.InitContainerStatuses {
		if s := &pod.Status.InitContainerStatuses[i]; s.Name == ContainerSeed {
			return s
		}
	}
	return nil
}

// ---- which snapshot

// SnapshotsNamed are the EtcdSnapshots that the spec names.
func SnapshotsNamed(c *v1alpha1.EtcdCluster) []string {
	var names []string
	if b := c.Spec.Bootstrap; b != nil && b.Snapshot != nil && b.Snapshot.Name != "" {
		names = append(names, b.Snapshot.Name)
	}
	if r := c.Spec.Restore; r != nil && r.Snapshot != nil && r.Snapshot.Name != "" {
		names = append(names, r.Snapshot.Name)
	}
	return distinct(names)
}

// resolve is the snapshot that the source names, or what stands in its way.
func (v *view) resolve(s *v1alpha1.SnapshotSource) (*resolved, string) {
	r := &resolved{URL: s.URL, IdentitySecret: s.IdentitySecret, ServiceAccountName: s.ServiceAccountName, BumpRevision: defaultBump}
	if s.BumpRevision != nil {
		r.BumpRevision = *s.BumpRevision
	}
	if s.Store != nil {
		r.Store = *s.Store
	}
	if s.Name == "" {
		return r, ""
	}
	snapshot := v.Related.Snapshots[s.Name]
	switch {
	case snapshot == nil:
		return nil, fmt.Sprintf("EtcdSnapshot %s does not exist in namespace %s", s.Name, v.Cluster.Namespace)
	case !restorable(snapshot):
		return nil, unrestorable(snapshot)
	}
	r.URL, r.SHA256 = snapshot.Status.URI, snapshot.Status.SHA256
	if s.Store == nil {
		r.Store = snapshot.Spec.Store
	}
	r.ServiceAccountName = or(r.ServiceAccountName, snapshot.Spec.Job.ServiceAccountName)
	return r, ""
}

// defaultBump is by how much a restored revision is raised: more than anybody writes between a snapshot and its restore (etcd's own advice,
// etcd.io, disaster recovery).
const defaultBump = 1_000_000_000
