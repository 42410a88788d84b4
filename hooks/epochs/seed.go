package epochs

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
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
	// defaultDataPath is where the data directory is in a volume of ours.
	defaultDataPath = "data"
	// envEpoch names the record of the epoch: a pod whose epoch is over does not start, because it is gone.
	envEpoch = "EPOCH"
	// EnvSHA256 is the variable with the SHA-256, in hexadecimal, of the database that the member must be filled with;
	// empty while it is not known.
	EnvSHA256 = "SHA256"
	// EnvUntil is the variable with the revision at which the stream of changes ends for the member; empty while it is
	// not known.
	EnvUntil = "UNTIL_REVISION"
)

// Fill lets a pod that begins get its data, if its epoch has any.
func Fill(v *state.View, pod *corev1.Pod) {
	e := v.Epoch
	if !e.Filled() {
		return
	}
	switch e.Source {
	case record.SourceSnapshot:
		if e.Snapshot != nil {
			fromSnapshot(v, pod, e.Snapshot)
		}
	case record.SourceEmpty:
		seedBy(v, pod, seedContainer(v, pod, []string{"--empty"}), nil)
	case record.SourceClaims:
		if e.Claim != nil {
			fromVolume(v, pod, *e.Claim)
		}
	case record.SourceSurvivor:
		if e.Member != "" {
			fromRunning(v, pod, e.Member)
		} else {
			fromVolume(v, pod, survivorVolume(v, e.Survivor))
		}
	}
	pod.Spec.Containers[0].Env = append(state.Environment(v.Cluster),
		state.ResumeEnv()...) // it finds its data, or does not start
}

// Await holds a member back that is made ready before its epoch begins.
func Await(v *state.View, pod *corev1.Pod) {
	if v.Epoch.Began() {
		return
	}
	prepare := PrepareOf(pod)
	prepare.Args = append(prepare.Args, "--await="+gateMount+"/begins")
	prepare.VolumeMounts = append(prepare.VolumeMounts, corev1.VolumeMount{Name: volumeGate, MountPath: gateMount,
		ReadOnly: true})
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		corev1.Volume{Name: volumeGate, VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: "begins",
				FieldRef: objects.AnnotationField(objects.AnnotationBegins)}},
		}}})
}

// OfEpoch has a pod name the record of its epoch: without that the kubelet does not start it.
func OfEpoch(name string) corev1.EnvVar {
	return corev1.EnvVar{Name: envEpoch, ValueFrom: &corev1.EnvVarSource{
		ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name},
			Key: record.KeyToken},
	}}
}

// NamesRecord is the record of the epoch that the pod was made for; empty when it names none.
func NamesRecord(pod *corev1.Pod) string {
	for _, e := range PrepareOf(pod).Env {
		if e.Name == envEpoch && e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return e.ValueFrom.ConfigMapKeyRef.Name
		}
	}
	return ""
}

// Awaits reports whether the pod was made before its epoch began.
func Awaits(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Name == volumeGate {
			return true
		}
	}
	return false
}

// PrepareOf is the pod's init container that prepares the data directory; nil for none.
func PrepareOf(pod *corev1.Pod) *corev1.Container {
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == objects.ContainerPrepare {
			return &pod.Spec.InitContainers[i]
		}
	}
	return &corev1.Container{}
}

func fromSnapshot(v *state.View, pod *corev1.Pod, from *record.Resolved) {
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
	seed := seedContainer(v, pod, args)
	seed.Env = append(seed.Env, access.Env...)
	if from.SHA256 == "" {
		insist(pod, &seed, EnvSHA256, objects.AnnotationSHA256, v.Epoch.Sum)
	}
	if v.Epoch.UnknownEnd() {
		insist(pod, &seed, EnvUntil, objects.AnnotationUntil, revisionText(v.Epoch.Until))
	}
	seed.VolumeMounts = append(seed.VolumeMounts, access.Mounts...)
	pod.Spec.ServiceAccountName = cmp.Or(from.ServiceAccountName, pod.Spec.ServiceAccountName)
	for k, label := range access.Labels {
		pod.Labels[k] = label
	}
	seedBy(v, pod, seed, access.Volumes)
}

// survivorVolume is that of a member of an earlier epoch.
func survivorVolume(v *state.View, member string) record.FormerClaim {
	of := record.FormerClaim{Name: member, Path: defaultDataPath}
	if v.All.Claims[state.WALClaim(member)] != nil {
		of.WAL = state.WALClaim(member)
	}
	return of
}

// fromVolume has the pod copy what the volume of a member holds that runs no more.
func fromVolume(v *state.View, pod *corev1.Pod, of record.FormerClaim) {
	data, wal, list, mounts := mountsOf(of)
	args := []string{"--from-data=" + data}
	if wal != "" {
		args = append(args, "--from-wal="+wal)
	}
	seed := seedContainer(v, pod, args)
	seed.VolumeMounts = append(seed.VolumeMounts, mounts...)
	seedBy(v, pod, seed, list)
}

// mountsOf are a container's directories of a volume, for reading alone, and what mounts them: the data directory, and
// that of the log; empty where it is in the data directory.
func mountsOf(of record.FormerClaim) (data, wal string, list []corev1.Volume, mounts []corev1.VolumeMount) {
	list = []corev1.Volume{objects.ClaimVolume(volumeSurvivor, of.Name)}
	mounts = []corev1.VolumeMount{{Name: volumeSurvivor, MountPath: survivorMount, ReadOnly: true}}
	if of.WAL != "" {
		wal = survivorWALMount + "/wal"
		list = append(list, objects.ClaimVolume(volumeSurvivorWAL, of.WAL))
		mounts = append(mounts, corev1.VolumeMount{Name: volumeSurvivorWAL, MountPath: survivorWALMount,
			ReadOnly: true})
	}
	return path.Join(survivorMount, of.Path), wal, list, mounts
}

// fromRunning has the pod fetch what a member of the epoch before has applied. It has no quorum any more, so nothing
// comes after that.
func fromRunning(v *state.View, pod *corev1.Pod, member string) {
	args := []string{"--from-member=" + objects.ClientURL(v.Cluster, member, v.Address(member))}
	var list []corev1.Volume
	var mounts []corev1.VolumeMount
	if secret := objects.OperatorSecret(v.Cluster); secret != "" {
		args = append(args, objects.OperatorFlags()...)
		list, mounts = []corev1.Volume{objects.OperatorVolume(secret)}, []corev1.VolumeMount{objects.OperatorMount()}
	}
	if objects.NeedsToken(v.Cluster) {
		args = append(args, objects.TokenFlags()...)
		list, mounts = append(list, objects.TokenVolume(v.Cluster.Name)), append(mounts, objects.TokenMount())
	}
	seed := seedContainer(v, pod, args)
	seed.VolumeMounts = append(seed.VolumeMounts, mounts...)
	seedBy(v, pod, seed, list)
}

// seedContainer fills the data directory of the pod's member.
func seedContainer(v *state.View, pod *corev1.Pod, from []string) corev1.Container {
	version := versions.VersionNow(v)
	peerURL := v.Epoch.Initial[pod.Name] // etcdutl refuses another one than the list has
	c := corev1.Container{
		Name:            objects.ContainerSeed,
		Image:           v.Settings.Etcd(&v.Cluster.Spec, version),
		ImagePullPolicy: v.Cluster.Spec.Image.PullPolicy,
		Command:         []string{objects.ToolsBinary},
		Args: slices.Concat([]string{"restore", "--data-dir=" + objects.DataDir, "--marker=" + objects.MarkerFile,
			"--name=" + pod.Name, "--peer-url=" + peerURL, "--etcd-version=" + version},
			from, v.Epoch.BeginArgs()),
		Env: append([]corev1.EnvVar{objects.Temporary(state.StateMount)},
			state.RecordEnv(v.Epoch.Record.Name)...),
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources:                objects.Before(pod.Spec.Containers[0].Resources),
		VolumeMounts: []corev1.VolumeMount{objects.ToolsMount(), {Name: state.VolumeData, MountPath: volumes.DataMount},
			{Name: state.VolumeState, MountPath: state.StateMount}},
	}
	if v.HasWAL(pod.Name) {
		c.Args = append(c.Args, "--wal-dir="+volumes.WALDir)
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volumes.VolumeWAL,
			MountPath: volumes.WALMount})
	}
	return c
}

// seedBy puts the container before prepare.
func seedBy(v *state.View, pod *corev1.Pod, seed corev1.Container, mounts []corev1.Volume) {
	pod.Spec.Volumes = append(append(pod.Spec.Volumes, objects.ToolsVolume()), mounts...)
	before := pod.Spec.InitContainers[:len(pod.Spec.InitContainers)-1]
	prepare := pod.Spec.InitContainers[len(pod.Spec.InitContainers)-1]
	pod.Spec.InitContainers = append(append([]corev1.Container{}, before...), objects.ToolsContainer(v.Settings.Images,
		seed.Resources), seed, prepare)
}

// IsFilled reports whether a container of the pod fills its data directory.
func IsFilled(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers,
		func(c corev1.Container) bool { return c.Name == objects.ContainerSeed })
}

// Seeded reports whether the pod's data directory is filled, or was not to be.
func Seeded(pod *corev1.Pod) bool {
	s := seedStatus(pod)
	return s != nil && s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
}

// SeedFailure is why the pod's data directory could not be filled at the last try; nil while nothing is known to be
// wrong.
func SeedFailure(pod *corev1.Pod) *reports.Restore {
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

// firstSum is the SHA-256 of the database that the first initial member has found; empty for not yet, and where it
// was known before.
func firstSum(v *state.View) string {
	if !v.Epoch.UnknownSum() || v.Epoch.Sum != "" {
		return v.Epoch.Sum
	}
	if report := seeds(v)[FirstToFill(v)]; report != nil {
		return report.SHA256
	}
	return ""
}

// firstEnd is the revision at which the first initial member has found the stream to end, and what it says of that;
// 0 for not yet, and where it was known before.
func firstEnd(v *state.View) (revision int64, words string) {
	if !v.Epoch.UnknownEnd() || v.Epoch.Until != 0 {
		return v.Epoch.Until, v.Epoch.StreamEnd
	}
	if report := seeds(v)[FirstToFill(v)]; report != nil && report.UntilRevision != 0 {
		return report.UntilRevision, report.Stream()
	}
	return 0, ""
}

// revisionText is a revision; empty for 0.
func revisionText(revision int64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatInt(revision, 10)
}

// MayFill reports whether the initial member may fetch its data now.
func MayFill(v *state.View, name string) bool {
	return !v.Epoch.FirstAlone() || v.Epoch.HadQuorum() || name == FirstToFill(v)
}

// FirstToFill is the initial member that is filled before the others: the first that has not lost what it starts on.
func FirstToFill(v *state.View) string {
	lost := LostBeforeStart(v)
	left := wording.Filter(v.Epoch.InitialNames(), func(name string) bool { return !slices.Contains(lost, name) })
	return append(left, v.Epoch.FirstInitial())[0]
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

// NoteFilling puts on a pod what it must be filled with, once that is known, where it reads that.
func NoteFilling(v *state.View, pod *corev1.Pod) {
	for _, of := range [][3]string{{EnvSHA256, objects.AnnotationSHA256, v.Epoch.Sum},
		{EnvUntil, objects.AnnotationUntil, revisionText(v.Epoch.Until)}} {
		if of[2] != "" && Insists(pod, of[0]) {
			pod.Annotations[of[1]] = of[2]
		}
	}
}

// Insists reports whether the pod reads what it must be filled with from this variable.
func Insists(pod *corev1.Pod, variable string) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
			return slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable })
		}
	}
	return false
}

// Differing says which of the initial members were filled with other data than the rest, as far as their pods show
// it; empty for none.
func Differing(v *state.View) string {
	told := seeds(v)
	first := ""
	for _, name := range v.Epoch.InitialNames() {
		report := told[name]
		switch {
		case report == nil:
			continue
		case first == "":
			first = name
		}
		one := told[first]
		if one.DiffersFrom(report, v.Epoch.Source == record.SourceSnapshot) {
			return fmt.Sprintf("%s and %s were filled with different data, so the epoch does not begin: %s has %s, "+
				"%s has %s; Quorate keeps them; %s",
				first, name, first, one.Describe(), name, report.Describe(), OtherwiseFilled(v))
		}
		if one.Hash == "" {
			first = name
		}
		if sum := v.Epoch.Sum; sum != "" && report.SHA256 != "" && report.SHA256 != sum {
			return fmt.Sprintf("%s was filled with different data from the first member's, so the epoch does not "+
				"begin: a database with the SHA-256 %s, not %s; Quorate keeps it; %s",
				name, report.SHA256, sum, OtherwiseFilled(v))
		}
		if end := v.Epoch.Until; end != 0 && report.UntilRevision != end {
			return fmt.Sprintf("%s was filled until revision %d and not until %d, where the first member's data ends, so "+
				"the epoch does not begin; Quorate keeps it; %s", name, report.UntilRevision, end, OtherwiseFilled(v))
		}
	}
	return ""
}

// withoutSeedReport are the initial members whose pods do not say what they were filled with.
func withoutSeedReport(v *state.View) []string {
	told := seeds(v)
	return wording.Filter(v.Epoch.InitialNames(), func(name string) bool { return told[name] == nil })
}

// OtherwiseFilled is what a person does to have the members of an epoch filled once more.
func OtherwiseFilled(v *state.View) string {
	answers := v.Epoch.Answered[v.Epoch.Restore] == v.Epoch.N || v.Epoch.After == 0
	switch {
	case v.Epoch.Restore != "" && answers:
		return "create another EtcdOperation to restore again"
	case v.Epoch.Member != "":
		return "delete one of their pods to fill all of them again"
	case v.Epoch.After == 0:
		return "delete the EtcdCluster and create it again"
	}
	return "choose another way by an EtcdOperation of type Recover"
}

// SnapshotsNamed are the EtcdSnapshots that the spec names.
func SnapshotsNamed(c *v1alpha1.EtcdCluster) []string {
	var names []string
	if b := c.Spec.Bootstrap; b != nil && b.Snapshot != nil && b.Snapshot.SnapshotRef.Name != "" {
		names = append(names, b.Snapshot.SnapshotRef.Name)
	}
	return names
}

// URLOfRestore is that of the artifact that a restore asks for and no epoch has begun with; empty for none.
func URLOfRestore(v *state.View) string {
	r := v.Asked.Restore
	if r == nil || r.Snapshot == nil || Answered(v)[r.ID] != 0 {
		return ""
	}
	resolved, why := resolve(v, r.Snapshot)
	if why != "" {
		return ""
	}
	return resolved.URL
}

// resolve is the snapshot that the source names, or what stands in its way.
func resolve(v *state.View, s *v1alpha1.SnapshotSource) (*record.Resolved, string) {
	r, why := find(v, s)
	if why == "" {
		why = objects.Unagreed(v.Related.Labelled, v.Cluster.Namespace, "the snapshot's source",
			append(stores.Secrets(&r.Store), r.Identity.Name)...)
	}
	return r, why
}

func find(v *state.View, s *v1alpha1.SnapshotSource) (*record.Resolved, string) {
	r := &record.Resolved{Identity: s.IdentitySecretRef, ServiceAccountName: s.ServiceAccountName}
	if s.Store != nil {
		r.Store, r.URL = *s.Store, stores.URLOf(s.Store).Join(s.Artifact).String()
	}
	if s.SnapshotRef.Name == "" { // validate has looked at it
		return follow(v, r, s.Until, path.Join(path.Dir(s.Artifact), snapshot.TailFolder))
	}
	from := v.Related.Snapshots[s.SnapshotRef.Name]
	switch {
	case from == nil:
		return nil, fmt.Sprintf("EtcdSnapshot %s does not exist in namespace %s, or has not the label %s: %s",
			s.SnapshotRef.Name, v.Cluster.Namespace, objects.LabelCluster, v.Cluster.Name)
	case !snapshot.Restorable(from):
		return nil, snapshot.Unrestorable(from)
	}
	r.Name, r.ClusterID = s.SnapshotRef.Name, from.Status.ClusterID
	r.SHA256 = from.Status.SHA256
	if s.Store == nil {
		r.Store, r.URL = from.Spec.Store, from.Status.URI
	} else { // a copy, such as in another region
		r.URL = stores.URLOf(s.Store).Join(from.Status.Artifact).String()
	}
	r.ServiceAccountName = cmp.Or(r.ServiceAccountName, from.Spec.Job.ServiceAccountName)
	if _, err := stores.ParseArtifactURL(r.URL); err != nil {
		return nil, fmt.Sprintf("the status of EtcdSnapshot %s can't be used: %s", s.SnapshotRef.Name,
			err)
	}
	if err := stores.Validate("store", &r.Store); err != nil {
		return nil, fmt.Sprintf("EtcdSnapshot %s can't be reached: %s", s.SnapshotRef.Name, err)
	}
	return follow(v, r, s.Until, snapshot.Tail(from))
}

// follow has a restore go on with the changes after the snapshot, which are in a folder of the store.
func follow(v *state.View, r *record.Resolved, until *v1alpha1.Until, tail string) (*record.Resolved, string) {
	if until == nil {
		return r, ""
	}
	id := cmp.Or(until.ClusterID, r.ClusterID)
	if id == "" {
		return nil, "until needs clusterID: it is not known of which etcd the changes are"
	}
	followed(v, r, until, tail, id)
	if until.Latest {
		return r, ""
	}
	r.Until = until.Revision
	if until.Time != "" {
		at, err := time.Parse(time.RFC3339, until.Time)
		if err != nil {
			return nil, "until.time is no time: name one such as 2026-11-22T13:59:00Z"
		}
		r.UntilTime = at
	}
	return r, ""
}

// followed has a restore find the changes of an etcd, in a folder of the snapshot's store. What was streamed in this
// namespace its own keys have signed, and an EtcdSnapshot was taken here.
func followed(v *state.View, r *record.Resolved, until *v1alpha1.Until, tail, clusterID string) {
	r.Tail = stores.URLOf(&r.Store).Join(path.Join(tail, clusterID)).String()
	r.Keys = until.KeysSecretRef
	if r.Keys.Name == "" && r.Name != "" && v.Settings.Keyed {
		r.Keys.Name = objects.RestoreSecret(v.Cluster.Name)
	}
}
