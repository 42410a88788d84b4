package children

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/auth"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// InitialPods are, on Memory, the initial members' pods, held back by a scheduling gate until the record holds their
// UIDs. Until then they have not run, so making one twice does no harm; afterwards none is made again.
func InitialPods(v *state.View, _ *decision.Verdict) []*corev1.Pod {
	list := KeptPods(v, v.Names)
	if !v.Memory() || v.Etcd != nil || epochs.ChangesVersion(v) {
		return list
	}
	for _, name := range v.Epoch.InitialNames() {
		if v.Children.Pods[name] == nil && v.MayBeginOnMemory(name) {
			list = append(list, withGate(bootstrapPod(v, name)))
		}
	}
	return sortPods(list)
}

func bootstrapPod(v *state.View, name string) *corev1.Pod {
	pod := Pod(v, name, objects.StartBootstrap, state.BootstrapEnv(v.Epoch.Record.Name))
	if !auth.Unguarded(v) {
		pod.Labels[objects.LabelRole] = pods.RoleVoter
	}
	pod.Annotations[objects.AnnotationInitialCluster] = objects.FormatPairs(v.Epoch.Initial, "=")
	epochs.Fill(v, pod)
	epochs.Await(v, pod)
	return pod
}

// BlindPods keep or bring back the pod of every claim that we see, and on HostPath of every member that is recorded
// (S11). Whether the member has ever run is not known now, so a new pod insists on finding data, except where the
// record still allows the member to begin.
func BlindPods(v *state.View, verdict *decision.Verdict) []*corev1.Pod {
	roll := verdict.DeletePod
	list := KeptPods(v, wording.Filter(v.Names, func(name string) bool { return name != roll }))
	for _, name := range v.Names {
		switch {
		case !epochs.MayFill(v, name), epochs.ChangesVersion(v):
		case name == roll || v.Memory() || v.Children.Pods[name] != nil || !volumes.StorageUsable(v, name) ||
			v.Fenced(name):
		case !v.Epoch.HadQuorum() && state.MayBegin(v, name) && !volumes.MayNotBegin(v):
			list = append(list, bootstrapPod(v, name))
		case !v.Epoch.Began(): // no member resumes in an epoch that has not begun
		default:
			list = append(list, Pod(v, name, objects.StartResume, state.ResumeEnv()))
		}
	}
	for _, pod := range list {
		lead(v, pod, pods.RoleWhileBlind(v, pod))
	}
	return sortPods(list)
}

// ListedPods are the pods of the listed members, except the one that is being rolled. A pod is made only on what is
// observed as ours.
func ListedPods(v *state.View, verdict *decision.Verdict) []*corev1.Pod {
	var list []*corev1.Pod
	for _, m := range v.Members {
		switch {
		case m.PodName == "" || m.PodName == verdict.DeletePod:
		case m.Pod == nil && v.Fenced(m.PodName) && !m.Learner:
		case m.Pod != nil:
			list = append(list, keptListed(v, m, verdict)...)
		case v.Memory() && v.MayBeMade(m) && v.MayBeginOnMemory(m.PodName):
			list = append(list, withGate(podOf(v, m)))
		case !v.Memory() && volumes.StorageUsable(v, m.PodName) && !v.MayBeMade(m) && !JoinsOnAnotherClaim(v, m):
			list = append(list, podOf(v, m))
		}
	}
	return sortPods(list)
}

// lead gives a pod the role that leads clients to it, or not; none while that would lead the first ones to data that is
// open to all.
func lead(v *state.View, pod *corev1.Pod, role string) {
	if role == "" || role == pods.RoleVoter && pod.Labels[objects.LabelRole] == "" && auth.Unguarded(v) {
		return
	}
	pod.Labels[objects.LabelRole] = role
}

// JoinsOnAnotherClaim reports whether a learner that has not started yet was recorded to start on another claim than
// this one.
func JoinsOnAnotherClaim(v *state.View, m *state.Member) bool {
	return v.OnClaims() && state.StartOf(v, m) == objects.StartJoin && v.ClaimGone(m)
}

func keptListed(v *state.View, m *state.Member, verdict *decision.Verdict) []*corev1.Pod {
	list := KeptPods(v, []string{m.PodName})
	for _, pod := range list {
		if m.Started() {
			noteBegun(pod)
		}
		lead(v, pod, pods.RoleOf(v, m, slices.Contains(verdict.Leaving, m.PodName)))
		if m.PodName == verdict.Withdraw && pod.Annotations[objects.AnnotationWithdrawn] == "" {
			pod.Annotations[objects.AnnotationWithdrawn] = v.Now.UTC().Format(time.RFC3339)
		}
		if m.PodName == verdict.PatchImage {
			exchange(v, pod)
		}
	}
	return list
}

// noteBegun takes from a pod what its etcd would join or begin with an empty data directory (S10).
func noteBegun(pod *corev1.Pod) {
	if state.PodStart(pod) == objects.StartBootstrap {
		pod.Annotations[objects.AnnotationInitialCluster] = objects.InitialClusterBegun
	} else {
		delete(pod.Annotations, objects.AnnotationInitialCluster)
	}
}

// podOf is a new pod for a listed member.
func podOf(v *state.View, m *state.Member) *corev1.Pod {
	var pod *corev1.Pod
	switch start := state.StartOf(v, m); start {
	case objects.StartJoin:
		pod = Pod(v, m.PodName, start, joinEnv())
		pod.Annotations[objects.AnnotationInitialCluster] = JoinCluster(v, m)
	case objects.StartBootstrap:
		pod = bootstrapPod(v, m.PodName)
	default:
		pod = Pod(v, m.PodName, objects.StartResume, state.ResumeEnv())
	}
	if m.Learner {
		pod.Labels[objects.LabelRole] = pods.RoleLearner
	}
	if pods.Mismatched(v, m) {
		pod.Labels[objects.LabelRole] = pods.RoleFenced
	}
	return pod
}

// withGate keeps a memory pod from running until the record holds its UID.
func withGate(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: ProvisionGate}}
	return pod
}

// JoinCluster is the membership as a joining member must be told it: all of the list, itself by our name for it.
func JoinCluster(v *state.View, joining *state.Member) string {
	var fields []string
	for _, m := range v.Members {
		name := cmp.Or(m.Name, m.PodName)
		if m.Alias != "" {
			name = "foreign-" + wording.Hex(m.ID) // its own may be that of one of ours
		}
		if m.ID == joining.ID {
			name = joining.PodName
		}
		for _, u := range m.PeerURLs {
			fields = append(fields, name+"="+u)
		}
	}
	return strings.Join(fields, ",")
}

// Pod of the member: the one that runs, brought up to date as far as a running pod can be, or a new one.
func Pod(v *state.View, name, start string, env []corev1.EnvVar) *corev1.Pod {
	pod := NewPod(v.Observation, name, v.Address(name), versions.VersionNow(v), start, volumes.RoomOf(v, name),
		spec.Speech{PeersTLS: state.PeersDial(v, name), Anonymous: state.AsksNone(v)}, env)
	if outside, known := v.OutsideURL(name); known {
		state.Advertise(pod, outside)
	}
	if v.HasWAL(name) {
		volumes.WithWAL(pod)
	}
	if v.HostPath() {
		inDirectory(v, pod)
	}
	if v.OnNamedNodes() {
		pod.Spec.Affinity = Pinned(pod.Spec.Affinity, v.NodeOf(pod.Name))
	}
	prepare := epochs.PrepareOf(pod)
	prepare.Env = append(prepare.Env, epochs.OfEpoch(objects.EpochName(v.Cluster.Name, v.Epoch.N)))
	if v.BesideForeign() {
		foreign.AllowAnyPeer(pod)
	}
	noteTemplate(v, pod, versions.VersionNow(v))
	pod.Annotations[objects.AnnotationImage] = v.Settings.Etcd(&v.Cluster.Spec, versions.VersionNow(v))
	noteServed(v, pod)
	state.NoteRestart(v, pod)
	if certificates.Provided(v.Cluster) && certificates.SeesMounted(v) {
		pod.Annotations[objects.AnnotationTrusts] = objects.FormatPairs(certificates.Trusted(v), ":")
	}
	return pod
}

// noteServed puts on a pod which certificates its member is to show.
func noteServed(v *state.View, pod *corev1.Pod) {
	if v.Serves != "" {
		pod.Annotations[objects.AnnotationServes] = v.Serves
	}
}

// KeptPods are the observed pods of these names, except those that have ended, which are made again (on Memory,
// replaced).
func KeptPods(v *state.View, names []string) []*corev1.Pod {
	var list []*corev1.Pod
	for _, name := range names {
		if pod := v.Children.Pods[name]; pod != nil && !state.Finished(pod) {
			list = append(list, keptPod(v, pod))
		}
	}
	return list
}

// keptPod is an observed pod with its observed spec. Only the labels, the image of an etcd that never ran, and the
// gate of a recorded memory pod may differ.
func keptPod(v *state.View, old *corev1.Pod) *corev1.Pod {
	pod := *old
	own := map[string]string{objects.LabelMember: old.Name}
	if r := old.Labels[objects.LabelRole]; r != "" {
		own[objects.LabelRole] = r
	}
	pod.Labels = objects.Labels(v.Cluster, own)
	pod.Annotations = objects.Annotations(v.Cluster, objects.Only(old.Annotations, objects.AnnotationStart,
		objects.AnnotationTemplate, objects.AnnotationInitialCluster, objects.AnnotationImage, objects.AnnotationServes, objects.AnnotationTrusts,
		objects.AnnotationFlagsFor, objects.AnnotationExchanged,
		objects.AnnotationRestarted, objects.AnnotationSHA256, objects.AnnotationUntil))
	noteServed(v, &pod)
	if !TemplateOutdated(v, old) {
		noteTemplate(v, &pod, versions.MadeForVersion(old))
	}
	if v.Epoch == nil {
		return &pod
	}
	noteSuccession(v, &pod, old)
	if since := old.Annotations[objects.AnnotationWithdrawn]; since != "" && !v.Epoch.Choice.Removes &&
		v.Epoch.Choice.Name == old.Name {
		pod.Annotations[objects.AnnotationWithdrawn] = since
	}
	if state.Gated(old) && v.Epoch.MayStartEmpty(old.Name, old.UID) && epochs.MayFill(v, old.Name) {
		pod.Spec.SchedulingGates = nil
	}
	if takesImage(v, old) {
		exchange(v, &pod)
	}
	return &pod
}

// takesImage reports whether another image is put into a pod in which no etcd runs, as one that can't be pulled.
func takesImage(v *state.View, pod *corev1.Pod) bool {
	idle := state.NeverRan(pod) || v.Etcd == nil && !state.Running(pod)
	return idle && v.Epoch.Began() && otherImage(v, pod) && fitsFlags(v, pod)
}

func otherImage(v *state.View, pod *corev1.Pod) bool {
	return pod.Annotations[objects.AnnotationImage] != v.Settings.Etcd(&v.Cluster.Spec, versions.VersionNow(v))
}

// fitsFlags reports whether the image that the pod should have knows all else that the pod was made with: its flags,
// and what fills its data directory, which runs in etcd's image too.
func fitsFlags(v *state.View, pod *corev1.Pod) bool {
	return spec.SameFlags(versions.MadeForVersion(pod), versions.VersionNow(v)) &&
		(!epochs.IsFilled(pod) || epochs.Seeded(pod))
}

// Waits reports whether the pod can't go on as it is.
func Waits(pod *corev1.Pod) bool {
	return state.Stuck(pod) || epochs.SeedFailure(pod) != nil && !epochs.Seeded(pod)
}

// Superseded reports whether a pod whose etcd has never run can't go on, and would be made otherwise now, in a way that
// it can't be given: by its template, its flags, or the image that fills its data directory.
func Superseded(v *state.View, pod *corev1.Pod) bool {
	takes := v.Epoch.Began() && fitsFlags(v, pod)
	return Waits(pod) && (TemplateOutdated(v, pod) || otherImage(v, pod) && !takes)
}

// noteSuccession puts on a pod that was made before its epoch began that the one before is over, and that its member
// may begin; and, on one that must be filled, which database it must find.
func noteSuccession(v *state.View, pod, old *corev1.Pod) {
	epochs.NoteFilling(v, pod)
	if epochs.Awaits(old) && v.Epoch.Began() && epochs.NamesRecord(old) == objects.EpochName(v.Cluster.Name,
		v.Epoch.N) {
		pod.Annotations[objects.AnnotationBegins] = "yes"
	}
	if old.Annotations[objects.AnnotationPredecessorGone] != "" {
		pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
	}
}

// StrangePods carry our labels but no member's name: not ours to delete.
func StrangePods(v *state.View) []*corev1.Pod {
	var list []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := objects.Ordinal(v.Cluster.Name, name); !ours && !IsSurveyPod(v, name) {
			list = append(list, state.Kept(v.Cluster, v.Children.Pods[name]))
		}
	}
	return list
}

// IsSurveyPod reports whether the pod of this name looks at a member's volumes.
func IsSurveyPod(v *state.View, name string) bool {
	of, is := strings.CutSuffix(name, epochs.SurveySuffix)
	_, ours := objects.Ordinal(v.Cluster.Name, of)
	return is && ours
}

func sortPods(list []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(list, func(a, b *corev1.Pod) int { return wording.ByOrdinal(a.Name, b.Name) })
	return list
}
