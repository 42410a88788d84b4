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

// initialPods are, on Memory, the initial members' pods, held back by a scheduling gate until the record holds their
// UIDs. Until then they have not run, so making one twice does no harm; afterwards none is made again.
func initialPods(f *facts.Facts, _ *decision.Plan) []*corev1.Pod {
	list := keptPods(f, f.Names)
	if !f.Memory() || f.Etcd != nil || f.ChangesVersion() {
		return list
	}
	for _, name := range f.Epoch.InitialNames() {
		if f.Children.Pods[name] == nil && f.MayBeginOnMemory(name) {
			list = append(list, withGate(bootstrapPod(f, name)))
		}
	}
	return sortPods(list)
}

func bootstrapPod(f *facts.Facts, name string) *corev1.Pod {
	pod := Pod(f, name, objects.StartBootstrap, BootstrapEnv(f.Epoch.Record.Name))
	if !f.Unguarded() {
		pod.Labels[objects.LabelRole] = facts.RoleVoter
	}
	pod.Annotations[objects.AnnotationInitialCluster] = objects.FormatPairs(f.Epoch.Initial, "=")
	fill(f, pod)
	awaitPredecessor(f, pod)
	return pod
}

// blindPods keep or bring back the pod of every claim that we see, and on HostPath of every member that is recorded
// (S11). Whether the member has ever run is not known now, so a new pod insists on finding data, except where the
// record still allows the member to begin.
func blindPods(f *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	goes := func(name string) bool { return plan.Pod.Is(decision.Deleted, name) }
	list := keptPods(f, objects.Filter(f.Names, func(name string) bool { return !goes(name) }))
	for _, name := range f.Names {
		switch {
		case !f.MayFill(name), f.ChangesVersion():
		case goes(name) || f.Children.Pods[name] != nil || f.Fenced(name) || f.ToBeAdded(name):
		case f.Memory() || !f.StorageUsable(name):
		case !f.Epoch.HadQuorum() && f.MayBegin(name) && !f.MayNotBegin():
			list = append(list, bootstrapPod(f, name))
		case !f.Epoch.Began(): // no member resumes in an epoch that has not begun
		default:
			list = append(list, Pod(f, name, objects.StartResume, ResumeEnv()))
		}
	}
	for _, pod := range list {
		lead(f, pod, f.RoleWhileBlind(pod))
	}
	return sortPods(list)
}

// memberPods are the pods of the listed members, except the one that is being rolled. A pod is made only on what is
// observed as ours.
func memberPods(f *facts.Facts, plan *decision.Plan) []*corev1.Pod {
	var list []*corev1.Pod
	for _, m := range f.Members {
		switch {
		case m.PodName == "" || plan.Pod.Is(decision.Deleted, m.PodName):
		case m.Pod == nil && f.Fenced(m.PodName) && !m.Learner:
		case m.Pod != nil:
			list = append(list, keptListed(f, m, plan)...)
		case f.Memory() && f.MayBeMade(m) && f.MayBeginOnMemory(m.PodName):
			list = append(list, withGate(podOf(f, m)))
		case !f.Memory() && f.StorageUsable(m.PodName) && !f.MayBeMade(m) && !f.JoinsOnAnotherClaim(m):
			list = append(list, podOf(f, m))
		}
	}
	return sortPods(list)
}

// lead gives a pod the role that leads clients to it, or not; none while that would lead the first ones to data that is
// open to all.
func lead(f *facts.Facts, pod *corev1.Pod, role string) {
	if role == "" || role == facts.RoleVoter && pod.Labels[objects.LabelRole] == "" && f.Unguarded() {
		return
	}
	pod.Labels[objects.LabelRole] = role
}

func keptListed(f *facts.Facts, m *facts.Member, plan *decision.Plan) []*corev1.Pod {
	list := keptPods(f, []string{m.PodName})
	for _, pod := range list {
		if facts.WaitsToJoin(pod) && f.MayJoin(m) && !f.HasOutdatedTemplate(m) {
			pod.Annotations[objects.AnnotationBegins] = "yes"
			pod.Annotations[objects.AnnotationInitialCluster] = f.JoinCluster(m)
		}
		if m.Started() {
			noteBegun(pod)
		}
		if !facts.WaitsToJoin(pod) { // it is written with the word to go on, in one
			lead(f, pod, f.RoleOf(m, slices.Contains(plan.Leaving, m.PodName)))
		}
		if plan.Pod.Is(decision.Unchosen, m.PodName) && pod.Annotations[objects.AnnotationWithdrawn] == "" {
			pod.Annotations[objects.AnnotationWithdrawn] = f.Now.UTC().Format(time.RFC3339)
		}
		if plan.Pod.Is(decision.Reimaged, m.PodName) {
			exchange(f, pod)
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

// aheadPods are the pods of members that are made ready before they are added. They stay until the record says that
// nothing starts there, and one is made once it says on which claims.
func aheadPods(f *facts.Facts) []*corev1.Pod {
	wanted := f.Readied()
	var list []*corev1.Pod
	for _, name := range f.Names {
		switch {
		case !f.ToBeAdded(name) || f.Dropped(name):
		case f.Children.Pods[name] != nil:
			list = append(list, keptPods(f, []string{name})...)
		case slices.Contains(wanted, name) && f.StorageUsable(name) && f.MayBegin(name):
			pod := Pod(f, name, objects.StartJoin, joinEnv())
			awaitWord(pod)
			list = append(list, pod)
		}
	}
	return list
}

// podOf is a new pod for a listed member.
func podOf(f *facts.Facts, m *facts.Member) *corev1.Pod {
	var pod *corev1.Pod
	switch start := f.StartOf(m); start {
	case objects.StartJoin:
		pod = Pod(f, m.PodName, start, joinEnv())
		pod.Annotations[objects.AnnotationInitialCluster] = f.JoinCluster(m)
	case objects.StartBootstrap:
		pod = bootstrapPod(f, m.PodName)
	default:
		pod = Pod(f, m.PodName, objects.StartResume, ResumeEnv())
	}
	if m.Learner {
		pod.Labels[objects.LabelRole] = facts.RoleLearner
	}
	if f.Mismatched(m) {
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
func Pod(f *facts.Facts, name, start string, env []corev1.EnvVar) *corev1.Pod {
	pod := NewPod(f.Observation, name, f.Address(name), f.VersionNow(), start, f.RoomOf(name),
		defaults.Speech{PeersTLS: f.PeersDial(name), Anonymous: f.AsksNone(),
			Revokes: f.Revokes()}, env)
	if outside, known := f.OutsideURL(name); known {
		advertise(pod, outside)
	}
	if f.HasWAL(name) {
		WithWAL(pod)
	}
	if f.HostPath() {
		inDirectory(f, pod)
	}
	if f.OnNamedNodes() {
		pod.Spec.Affinity = Pinned(pod.Spec.Affinity, f.NodeOf(pod.Name))
	}
	prepare := facts.PrepareOf(pod)
	prepare.Env = append(prepare.Env, ofEpoch(objects.EpochName(f.Cluster.Name, f.Epoch.N)))
	if f.BesideExternal() {
		AllowAnyPeer(pod)
	}
	noteTemplate(f, pod, f.VersionNow())
	pod.Annotations[objects.AnnotationImage] = f.Settings.Etcd(&f.Cluster.Spec, f.VersionNow())
	noteServed(f, pod)
	noteRestart(f, pod)
	if facts.Provided(f.Cluster) && f.SeesMounted() {
		pod.Annotations[objects.AnnotationTrusts] = objects.FormatPairs(f.Trusted(), ":")
	}
	return pod
}

// noteServed puts on a pod which certificates its member is to show.
func noteServed(f *facts.Facts, pod *corev1.Pod) {
	if f.Serves != "" {
		pod.Annotations[objects.AnnotationServes] = f.Serves
	}
}

// keptPods are the observed pods of these names, except those that have ended, which are made again (on Memory,
// replaced).
func keptPods(f *facts.Facts, names []string) []*corev1.Pod {
	var list []*corev1.Pod
	for _, name := range names {
		if pod := f.Children.Pods[name]; pod != nil && !facts.Finished(pod) {
			list = append(list, keptPod(f, pod))
		}
	}
	return list
}

// keptPod is an observed pod with its observed spec. Only the labels, the image of an etcd that never ran, and the
// gate of a recorded memory pod may differ.
func keptPod(f *facts.Facts, old *corev1.Pod) *corev1.Pod {
	pod := *old
	own := map[string]string{objects.LabelMember: old.Name}
	if r := old.Labels[objects.LabelRole]; r != "" {
		own[objects.LabelRole] = r
	}
	pod.Labels = objects.Labels(f.Cluster, own)
	pod.Annotations = objects.Annotations(f.Cluster, objects.Only(old.Annotations, objects.AnnotationStart,
		objects.AnnotationTemplate, objects.AnnotationInitialCluster, objects.AnnotationImage, objects.AnnotationServes, objects.AnnotationTrusts,
		objects.AnnotationFlagsFor, objects.AnnotationExchanged, objects.AnnotationBegins,
		objects.AnnotationRestarted, objects.AnnotationDefragmentation, objects.AnnotationSHA256, objects.AnnotationUntil))
	noteServed(f, &pod)
	if !f.TemplateOutdated(old) {
		noteTemplate(f, &pod, facts.MadeForVersion(old))
	}
	if f.Epoch == nil {
		return &pod
	}
	noteSwitchover(f, &pod, old)
	if since := old.Annotations[objects.AnnotationWithdrawn]; since != "" && !f.Epoch.Choice.Removes &&
		f.Epoch.Choice.Name == old.Name {
		pod.Annotations[objects.AnnotationWithdrawn] = since
	}
	if facts.Gated(old) && f.Epoch.MayStartEmpty(old.Name, old.UID) && f.MayFill(old.Name) {
		pod.Spec.SchedulingGates = nil
	}
	if f.TakesImage(old) {
		exchange(f, &pod)
	}
	return &pod
}

// noteSwitchover puts on a pod that was made before its epoch began that the one before is over, and that its member
// may begin; and, on one that must be filled, which database it must find.
func noteSwitchover(f *facts.Facts, pod, old *corev1.Pod) {
	noteFilling(f, pod)
	if facts.Awaits(old) && !facts.MadeAhead(old) && f.Epoch.Began() && facts.NamesRecord(old) == objects.EpochName(f.Cluster.Name,
		f.Epoch.N) {
		pod.Annotations[objects.AnnotationBegins] = "yes"
	}
	if old.Annotations[objects.AnnotationPredecessorGone] != "" {
		pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
	}
}

// strangePods carry our labels but no member's name: not ours to delete.
func strangePods(f *facts.Facts) []*corev1.Pod {
	var list []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(f.Children.Pods)) {
		if _, ours := objects.Ordinal(f.Cluster.Name, name); !ours && !f.IsInspectPod(name) {
			list = append(list, facts.Kept(f.Cluster, f.Children.Pods[name]))
		}
	}
	return list
}

func sortPods(list []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(list, func(a, b *corev1.Pod) int { return objects.ByOrdinal(a.Name, b.Name) })
	return list
}

// noteRestart puts on the pod of a voter, new or with another image, whether that served when it was chosen for it.
func noteRestart(f *facts.Facts, pod *corev1.Pod) {
	recorded := f.Epoch.Choice
	if f.UnderWay() && pod.Annotations[objects.AnnotationExchanged] == "" {
		pod.Annotations[objects.AnnotationDefragmentation] = f.RunBegan()
	}
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
