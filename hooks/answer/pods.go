package answer

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// InitialPods are, on Memory, the initial members' pods, held back by a scheduling gate until the record holds their
// UIDs. Until then they have not run, so making one twice does no harm; afterwards none is made again.
func initialPods(v *facts.Facts, _ *decision.Plan) []*corev1.Pod {
	list := keptPods(v, v.Names)
	if !v.Memory() || v.Etcd != nil || v.ChangesVersion() {
		return list
	}
	for _, name := range v.Epoch.InitialNames() {
		if v.Children.Pods[name] == nil && v.MayBeginOnMemory(name) {
			list = append(list, withGate(bootstrapPod(v, name)))
		}
	}
	return sortPods(list)
}

func bootstrapPod(v *facts.Facts, name string) *corev1.Pod {
	pod := Pod(v, name, objects.StartBootstrap, BootstrapEnv(v.Epoch.Record.Name))
	if !v.Unguarded() {
		pod.Labels[objects.LabelRole] = facts.RoleVoter
	}
	pod.Annotations[objects.AnnotationInitialCluster] = objects.FormatPairs(v.Epoch.Initial, "=")
	fill(v, pod)
	awaitPredecessor(v, pod)
	return pod
}

// BlindPods keep or bring back the pod of every claim that we see, and on HostPath of every member that is recorded
// (S11). Whether the member has ever run is not known now, so a new pod insists on finding data, except where the
// record still allows the member to begin.
func blindPods(v *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	goes := func(name string) bool { return plan.Pod.Is(decision.Deleted, name) }
	list := keptPods(v, objects.Filter(v.Names, func(name string) bool { return !goes(name) }))
	for _, name := range v.Names {
		switch {
		case !v.MayFill(name), v.ChangesVersion():
		case goes(name) || v.Memory() || v.Children.Pods[name] != nil || !v.StorageUsable(name) ||
			v.Fenced(name):
		case !v.Epoch.HadQuorum() && v.MayBegin(name) && !v.MayNotBegin():
			list = append(list, bootstrapPod(v, name))
		case !v.Epoch.Began(): // no member resumes in an epoch that has not begun
		default:
			list = append(list, Pod(v, name, objects.StartResume, ResumeEnv()))
		}
	}
	for _, pod := range list {
		lead(v, pod, v.RoleWhileBlind(pod))
	}
	return sortPods(list)
}

// ListedPods are the pods of the listed members, except the one that is being rolled. A pod is made only on what is
// observed as ours.
func memberPods(v *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	var list []*corev1.Pod
	for _, m := range v.Members {
		switch {
		case m.PodName == "" || plan.Pod.Is(decision.Deleted, m.PodName):
		case m.Pod == nil && v.Fenced(m.PodName) && !m.Learner:
		case m.Pod != nil:
			list = append(list, keptListed(v, m, plan)...)
		case v.Memory() && v.MayBeMade(m) && v.MayBeginOnMemory(m.PodName):
			list = append(list, withGate(podOf(v, m)))
		case !v.Memory() && v.StorageUsable(m.PodName) && !v.MayBeMade(m) && !v.JoinsOnAnotherClaim(m):
			list = append(list, podOf(v, m))
		}
	}
	return sortPods(list)
}

// lead gives a pod the role that leads clients to it, or not; none while that would lead the first ones to data that is
// open to all.
func lead(v *facts.Facts, pod *corev1.Pod, role string) {
	if role == "" || role == facts.RoleVoter && pod.Labels[objects.LabelRole] == "" && v.Unguarded() {
		return
	}
	pod.Labels[objects.LabelRole] = role
}

func keptListed(v *facts.Facts, m *facts.Member, plan *decision.Plan) []*corev1.Pod {
	list := keptPods(v, []string{m.PodName})
	for _, pod := range list {
		if m.Started() {
			noteBegun(pod)
		}
		lead(v, pod, v.RoleOf(m, slices.Contains(plan.Leaving, m.PodName)))
		if plan.Pod.Is(decision.Unchosen, m.PodName) && pod.Annotations[objects.AnnotationWithdrawn] == "" {
			pod.Annotations[objects.AnnotationWithdrawn] = v.Now.UTC().Format(time.RFC3339)
		}
		if plan.Pod.Is(decision.Reimaged, m.PodName) {
			exchange(v, pod)
		}
	}
	return list
}

// noteBegun takes from a pod what its etcd would join or begin with an empty data directory (S10).
func noteBegun(pod *corev1.Pod) {
	if facts.PodStart(pod) == objects.StartBootstrap {
		pod.Annotations[objects.AnnotationInitialCluster] = objects.InitialClusterBegun
	} else {
		delete(pod.Annotations, objects.AnnotationInitialCluster)
	}
}

// podOf is a new pod for a listed member.
func podOf(v *facts.Facts, m *facts.Member) *corev1.Pod {
	var pod *corev1.Pod
	switch start := v.StartOf(m); start {
	case objects.StartJoin:
		pod = Pod(v, m.PodName, start, joinEnv())
		pod.Annotations[objects.AnnotationInitialCluster] = v.JoinCluster(m)
	case objects.StartBootstrap:
		pod = bootstrapPod(v, m.PodName)
	default:
		pod = Pod(v, m.PodName, objects.StartResume, ResumeEnv())
	}
	if m.Learner {
		pod.Labels[objects.LabelRole] = facts.RoleLearner
	}
	if v.Mismatched(m) {
		pod.Labels[objects.LabelRole] = facts.RoleFenced
	}
	return pod
}

// withGate keeps a memory pod from running until the record holds its UID.
func withGate(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: ProvisionGate}}
	return pod
}

// Pod of the member: the one that runs, brought up to date as far as a running pod can be, or a new one.
func Pod(v *facts.Facts, name, start string, env []corev1.EnvVar) *corev1.Pod {
	pod := NewPod(v.Observation, name, v.Address(name), v.VersionNow(), start, v.RoomOf(name),
		defaults.Speech{PeersTLS: v.PeersDial(name), Anonymous: v.AsksNone()}, env)
	if outside, known := v.OutsideURL(name); known {
		advertise(pod, outside)
	}
	if v.HasWAL(name) {
		WithWAL(pod)
	}
	if v.HostPath() {
		inDirectory(v, pod)
	}
	if v.OnNamedNodes() {
		pod.Spec.Affinity = Pinned(pod.Spec.Affinity, v.NodeOf(pod.Name))
	}
	prepare := facts.PrepareOf(pod)
	prepare.Env = append(prepare.Env, ofEpoch(objects.EpochName(v.Cluster.Name, v.Epoch.N)))
	if v.BesideForeign() {
		AllowAnyPeer(pod)
	}
	noteTemplate(v, pod, v.VersionNow())
	pod.Annotations[objects.AnnotationImage] = v.Settings.Etcd(&v.Cluster.Spec, v.VersionNow())
	noteServed(v, pod)
	noteRestart(v, pod)
	if facts.Provided(v.Cluster) && v.SeesMounted() {
		pod.Annotations[objects.AnnotationTrusts] = objects.FormatPairs(v.Trusted(), ":")
	}
	return pod
}

// noteServed puts on a pod which certificates its member is to show.
func noteServed(v *facts.Facts, pod *corev1.Pod) {
	if v.Serves != "" {
		pod.Annotations[objects.AnnotationServes] = v.Serves
	}
}

// KeptPods are the observed pods of these names, except those that have ended, which are made again (on Memory,
// replaced).
func keptPods(v *facts.Facts, names []string) []*corev1.Pod {
	var list []*corev1.Pod
	for _, name := range names {
		if pod := v.Children.Pods[name]; pod != nil && !facts.Finished(pod) {
			list = append(list, keptPod(v, pod))
		}
	}
	return list
}

// keptPod is an observed pod with its observed spec. Only the labels, the image of an etcd that never ran, and the
// gate of a recorded memory pod may differ.
func keptPod(v *facts.Facts, old *corev1.Pod) *corev1.Pod {
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
	if !v.TemplateOutdated(old) {
		noteTemplate(v, &pod, facts.MadeForVersion(old))
	}
	if v.Epoch == nil {
		return &pod
	}
	noteSuccession(v, &pod, old)
	if since := old.Annotations[objects.AnnotationWithdrawn]; since != "" && !v.Epoch.Choice.Removes &&
		v.Epoch.Choice.Name == old.Name {
		pod.Annotations[objects.AnnotationWithdrawn] = since
	}
	if facts.Gated(old) && v.Epoch.MayStartEmpty(old.Name, old.UID) && v.MayFill(old.Name) {
		pod.Spec.SchedulingGates = nil
	}
	if v.TakesImage(old) {
		exchange(v, &pod)
	}
	return &pod
}

// noteSuccession puts on a pod that was made before its epoch began that the one before is over, and that its member
// may begin; and, on one that must be filled, which database it must find.
func noteSuccession(v *facts.Facts, pod, old *corev1.Pod) {
	noteFilling(v, pod)
	if facts.Awaits(old) && v.Epoch.Began() && facts.NamesRecord(old) == objects.EpochName(v.Cluster.Name,
		v.Epoch.N) {
		pod.Annotations[objects.AnnotationBegins] = "yes"
	}
	if old.Annotations[objects.AnnotationPredecessorGone] != "" {
		pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
	}
}

// StrangePods carry our labels but no member's name: not ours to delete.
func strangePods(v *facts.Facts) []*corev1.Pod {
	var list []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := objects.Ordinal(v.Cluster.Name, name); !ours && !v.IsSurveyPod(name) {
			list = append(list, facts.Kept(v.Cluster, v.Children.Pods[name]))
		}
	}
	return list
}

func sortPods(list []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(list, func(a, b *corev1.Pod) int { return objects.ByOrdinal(a.Name, b.Name) })
	return list
}

// NoteRestart puts on the pod of a voter, new or with another image, whether that served when it was chosen for it.
func noteRestart(v *facts.Facts, pod *corev1.Pod) {
	recorded := v.Epoch.Choice
	served := recorded.Name == pod.Name && !recorded.Down && !recorded.Removes
	switch exchanged := pod.Annotations[objects.AnnotationExchanged] != ""; {
	case exchanged && !served:
		pod.Annotations[objects.AnnotationRestarted] = facts.WasDown
	case exchanged && pod.Annotations[objects.AnnotationRestarted] == facts.WasDown:
		delete(pod.Annotations, objects.AnnotationRestarted)
	case exchanged: // that it was says it all
	case served:
		pod.Annotations[objects.AnnotationRestarted] = "serving"
	}
}
