package hooks

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// How the initial members of an epoch come to their data: an init container fills the data directory before prepare
// guards it. It runs in etcd's own image, with quorate-snapshot in it, so that the tools are of the very version that
// etcd has.

const (
	volumeSurvivor    = "survivor"
	volumeSurvivorWAL = "survivor-wal"
	volumeGate        = "gate"
	survivorMount     = "/survivor"
	survivorWALMount  = "/survivor-wal"
	gateMount         = "/var/run/quorate-gate"
	// envEpoch names the record of the epoch: a pod whose epoch is over does not start, for want of it.
	envEpoch = "EPOCH"
	// EnvSHA256 is the variable with the SHA-256, in hexadecimal, of the database that the member must be filled with;
	// empty while it is not known.
	EnvSHA256 = "SHA256"
)

// fill lets a pod that begins get its data, if its epoch has any.
func (v *view) fill(pod *corev1.Pod) {
	e := v.epoch
	if !e.filled() {
		return
	}
	switch e.source {
	case objects.SourceSnapshot:
		if e.snapshot != nil {
			v.fromSnapshot(pod, e.snapshot)
		}
	case objects.SourceEmpty:
		v.seedBy(pod, v.seedContainer(pod, []string{"--empty"}), nil)
	case objects.SourceSurvivor:
		if e.member != "" {
			v.fromRunning(pod, e.member)
		} else {
			v.fromSurvivor(pod)
		}
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
	prepare.VolumeMounts = append(prepare.VolumeMounts, corev1.VolumeMount{Name: volumeGate, MountPath: gateMount,
		ReadOnly: true})
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		corev1.Volume{Name: volumeGate, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "begins", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1",
				FieldPath: "metadata.annotations['" + objects.AnnotationBegins + "']"}}},
		}}})
}

// ofEpoch has a pod name the record of its epoch: without that the kubelet does not start it.
func ofEpoch(record string) corev1.EnvVar {
	return corev1.EnvVar{Name: envEpoch, ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: record},
			Key: objects.EpochKeyToken},
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
		if pod.Spec.InitContainers[i].Name == objects.ContainerPrepare {
			return &pod.Spec.InitContainers[i]
		}
	}
	return &corev1.Container{}
}

func (v *view) fromSnapshot(pod *corev1.Pod, from *resolved) {
	access := stores.AccessTo(from.Store, from.ServiceAccountName, true)
	if from.IdentitySecret != "" {
		access.Identify(from.IdentitySecret)
	}
	args := append([]string{"--url=" + from.URL}, access.Args...)
	if from.SHA256 != "" {
		args = append(args, "--sha256="+from.SHA256)
	}
	seed := v.seedContainer(pod, args)
	seed.Env = append(seed.Env, access.Env...)
	if from.SHA256 == "" {
		v.insistOnSum(pod, &seed)
	}
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
	seed.VolumeMounts = append(seed.VolumeMounts, corev1.VolumeMount{Name: volumeSurvivor, MountPath: survivorMount,
		ReadOnly: true})
	if v.all.Claims[WALClaim(of)] != nil {
		seed.Args = append(seed.Args, "--from-wal="+survivorWALMount+"/wal")
		volumes = append(volumes, claimVolume(volumeSurvivorWAL, WALClaim(of)))
		seed.VolumeMounts = append(seed.VolumeMounts,
			corev1.VolumeMount{Name: volumeSurvivorWAL, MountPath: survivorWALMount, ReadOnly: true})
	}
	v.seedBy(pod, seed, volumes)
}

// fromRunning has the pod fetch what a member of the epoch before has applied. It has no quorum any more, so nothing
// comes after that.
func (v *view) fromRunning(pod *corev1.Pod, member string) {
	args := []string{"--from-member=" + objects.ClientURL(v.Cluster, member)}
	var volumes []corev1.Volume
	var mounts []corev1.VolumeMount
	if secret := objects.OperatorSecret(v.Cluster); secret != "" {
		args = append(args, objects.OperatorFlags()...)
		volumes, mounts = []corev1.Volume{objects.OperatorVolume(secret)}, []corev1.VolumeMount{objects.OperatorMount()}
	}
	seed := v.seedContainer(pod, args)
	seed.VolumeMounts = append(seed.VolumeMounts, mounts...)
	v.seedBy(pod, seed, volumes)
}

func claimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name,
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

// seedContainer fills the data directory of the pod's member.
func (v *view) seedContainer(pod *corev1.Pod, from []string) corev1.Container {
	version := v.versionNow()
	c := corev1.Container{
		Name:            objects.ContainerSeed,
		Image:           v.Settings.Etcd(&v.Cluster.Spec, version),
		ImagePullPolicy: v.Cluster.Spec.Image.PullPolicy,
		Command:         []string{objects.ToolsBinary},
		Args: slices.Concat([]string{"restore", "--data-dir=" + objects.DataDir, "--marker=" + objects.MarkerFile,
			"--name=" + pod.Name, "--peer-url=" + objects.PeerURL(v.Cluster, pod.Name), "--etcd-version=" + version},
			from, v.epoch.beginArgs()),
		Env: append([]corev1.EnvVar{objects.Temporary(stateMount)},
			bootstrapEnv(v.epoch.record.Name)...),
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		}},
		VolumeMounts: []corev1.VolumeMount{objects.ToolsMount(), {Name: volumeData, MountPath: dataMount},
			{Name: volumeState, MountPath: stateMount}},
	}
	if v.hasWAL(pod.Name) {
		c.Args = append(c.Args, "--wal-dir="+WALDir)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumeWAL, MountPath: walMount})
	}
	return c
}

// seedBy puts the container before prepare.
func (v *view) seedBy(pod *corev1.Pod, seed corev1.Container, volumes []corev1.Volume) {
	pod.Spec.Volumes = append(append(pod.Spec.Volumes, objects.ToolsVolume()), volumes...)
	before := pod.Spec.InitContainers[:len(pod.Spec.InitContainers)-1]
	prepare := pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	pod.Spec.InitContainers = append(append([]corev1.Container{}, before...), objects.ToolsContainer(v.Settings.Images),
		seed, prepare)
}

// seeded reports whether the pod's data directory is filled, or was not to be.
func seeded(pod *corev1.Pod) bool {
	s := seedStatus(pod)
	return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

// seedFailure is why the pod's data directory could not be filled at the last try; nil while nothing is known to be
// wrong.
func seedFailure(pod *corev1.Pod) *reports.Restore {
	s := seedStatus(pod)
	if s == nil {
		return nil
	}
	for _, t := range []*corev1.ContainerStateTerminated{s.State.Terminated, s.LastTerminationState.Terminated} {
		if t == nil || t.ExitCode == 0 {
			continue
		}
		report, err := reports.Read[reports.Restore](t.Message)
		if err != nil || report.Error == "" {
			return &reports.Restore{Error: fmt.Sprintf("the container %s ended with code %d: %.300s",
				objects.ContainerSeed, t.ExitCode, cmp.Or(t.Message, t.Reason))}
		}
		return report
	}
	return nil
}

func seedStatus(pod *corev1.Pod) *corev1.ContainerStatus {
	if s := objects.StatusOf(pod, objects.ContainerSeed); s.Name != "" {
		return &s
	}
	return nil
}

// ---- the same data for all

// Initial members that fetch a snapshot of which nobody knows the SHA-256 could get different ones: what is at a URL
// may be overwritten between their fetches. etcd would start on them, raise no alarm, and answer differently by
// member. So the first of them is filled alone, what it has found is written on the record, and the others take
// nothing else. What each was filled with is compared before the epoch begins (S21).

// unknownSum reports whether the epoch begins with a snapshot of which nobody knew the SHA-256 when it was recorded.
func (e *epoch) unknownSum() bool {
	return e != nil && e.source == objects.SourceSnapshot && e.snapshot != nil && e.snapshot.SHA256 == ""
}

// firstSum is the SHA-256 of the database that the first initial member has found; empty for not yet, and where it
// was known before.
func (v *view) firstSum() string {
	if !v.epoch.unknownSum() || v.epoch.sum != "" {
		return v.epoch.sum
	}
	if report := v.seeds()[v.firstToFill()]; report != nil {
		return report.SHA256
	}
	return ""
}

// mayFill reports whether the initial member may fetch its data now.
func (v *view) mayFill(name string) bool {
	return !v.epoch.unknownSum() || v.epoch.sum != "" || v.epoch.hadQuorum() || name == v.firstToFill()
}

// firstToFill is the initial member that is filled before the others: the first that has not lost what it starts on.
func (v *view) firstToFill() string {
	lost := v.lostBeforeStart()
	left := filter(v.epoch.initialNames(), func(name string) bool { return !slices.Contains(lost, name) })
	return append(left, v.epoch.firstInitial())[0]
}

// insistOnSum has a pod take only the database that the record has the SHA-256 of, when it starts. On Memory it is
// made before that is known.
func (v *view) insistOnSum(pod *corev1.Pod, seed *corev1.Container) {
	seed.Env = append(seed.Env, corev1.EnvVar{Name: EnvSHA256, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.annotations['" +
			objects.AnnotationSHA256 + "']"},
	}})
	if v.epoch.sum != "" {
		pod.Annotations[objects.AnnotationSHA256] = v.epoch.sum
	}
}

// insistsOnSum reports whether the pod reads which SHA-256 it must find.
func insistsOnSum(pod *corev1.Pod) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
			return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == EnvSHA256 })
		}
	}
	return false
}

// differing says which of the initial members were filled with other data than the rest, as far as their pods show
// it; empty for none.
func (v *view) differing() string {
	reports := v.seeds()
	first := ""
	for _, name := range v.epoch.initialNames() {
		report := reports[name]
		switch {
		case report == nil:
			continue
		case first == "":
			first = name
		}
		one := reports[first]
		if one.DiffersFrom(report, v.epoch.source == objects.SourceSnapshot) {
			return fmt.Sprintf("%s and %s were filled with different data, and nothing begins with that: %s has %s, "+
				"%s has %s; what is there is kept as it is; %s",
				first, name, first, one.Describe(), name, report.Describe(), v.otherwiseFilled())
		}
		if one.Hash == "" {
			first = name
		}
		if sum := v.epoch.sum; sum != "" && report.SHA256 != "" && report.SHA256 != sum {
			return fmt.Sprintf("%s was filled with other data than the first member had found, and nothing begins "+
				"with that: a database with the SHA-256 %s, not %s; what is there is kept as it is; %s",
				name, report.SHA256, sum, v.otherwiseFilled())
		}
	}
	return ""
}

// withoutSeedReport are the initial members whose pods do not say what they were filled with.
func (v *view) withoutSeedReport() []string {
	reports := v.seeds()
	return filter(v.epoch.initialNames(), func(name string) bool { return reports[name] == nil })
}

// otherwiseFilled is what a person does to have the members of an epoch filled once more.
func (v *view) otherwiseFilled() string {
	answers := v.epoch.answered[v.epoch.restore] == v.epoch.n || v.epoch.after == 0
	switch {
	case v.epoch.restore != "" && answers:
		return "give spec.restore another id to have it made anew"
	case v.epoch.member != "":
		return "delete one of their pods to have all of them made anew"
	case v.epoch.after == 0:
		return "delete the EtcdCluster and create it again to have it made anew"
	}
	return "ask for another way back by the annotation " + objects.AnnotationRecover
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
	r := &resolved{URL: string(s.URL), IdentitySecret: s.IdentitySecret, ServiceAccountName: s.ServiceAccountName}
	if s.Store != nil {
		r.Store = *s.Store
	}
	if s.Name == "" {
		return r, "" // validate has looked at it
	}
	from := v.Related.Snapshots[s.Name]
	switch {
	case from == nil:
		return nil, fmt.Sprintf("EtcdSnapshot %s does not exist in namespace %s", s.Name, v.Cluster.Namespace)
	case !snapshot.Restorable(from):
		return nil, snapshot.Unrestorable(from)
	}
	r.Name, r.ClusterID = s.Name, from.Status.ClusterID
	r.URL, r.SHA256 = from.Status.URI, from.Status.SHA256
	if s.Store == nil {
		r.Store = from.Spec.Store
	}
	r.ServiceAccountName = cmp.Or(r.ServiceAccountName, from.Spec.Job.ServiceAccountName)
	if _, err := stores.ParseArtifactURL(r.URL); err != nil {
		return nil, fmt.Sprintf("status.uri of EtcdSnapshot %s is not one that can be used: %s", s.Name, err)
	}
	if err := stores.Validate("store", &r.Store); err != nil {
		return nil, fmt.Sprintf("EtcdSnapshot %s can't be reached: %s", s.Name, err)
	}
	return r, ""
}
