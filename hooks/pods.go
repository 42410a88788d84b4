package hooks

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// ---- before there is a cluster

// initialPods are, on Memory, the initial members' pods, held back by a scheduling gate until the record holds their
// UIDs. Until then they have not run, so making one twice does no harm; afterwards none is made again.
func initialPods(v *view, _ *verdict) []*corev1.Pod {
	pods := v.keptPods(v.names)
	if !v.memory() || v.Etcd != nil {
		return pods
	}
	for _, name := range v.epoch.initialNames() {
		if v.Children.Pods[name] == nil {
			pods = append(pods, withGate(v.bootstrapPod(name)))
		}
	}
	return sortPods(pods)
}

func (v *view) bootstrapPod(name string) *corev1.Pod {
	pod := v.pod(name, objects.StartBootstrap, bootstrapEnv(v.epoch.record.Name))
	pod.Labels[objects.LabelRole] = roleVoter
	if v.hostPath() {
		pod.Annotations[objects.AnnotationInitialCluster] = v.epoch.record.Data[objects.EpochKeyInitialCluster]
	}
	v.fill(pod)
	v.await(pod)
	return pod
}

// ---- blind

// blindPods keep or bring back the pod of every claim that we see, and on HostPath of every member that is recorded
// (S11). Whether the member has ever run is not known now, so a new pod insists on finding data, except where the
// record still allows the member to begin.
func (v *view) blindPods(decision *verdict) []*corev1.Pod {
	roll := decision.deletePod
	pods := v.keptPods(filter(v.names, func(name string) bool { return name != roll }))
	for _, name := range v.names {
		switch {
		case !v.mayFill(name):
		case name == roll || v.memory() || v.Children.Pods[name] != nil || !v.storageUsable(name) || v.fenced(name):
		case !v.epoch.hadQuorum() && v.mayBegin(name) && !v.mayNotBegin():
			pods = append(pods, v.bootstrapPod(name))
		case !v.epoch.began(): // nobody resumes in an epoch that is to come
		default:
			pods = append(pods, v.pod(name, objects.StartResume, resumeEnv()))
		}
	}
	for _, pod := range pods {
		if role := v.roleWhileBlind(pod); role != "" {
			pod.Labels[objects.LabelRole] = role
		}
	}
	return sortPods(pods)
}

// ---- with etcd's list

// listedPods are the pods of the listed members but for the one that is being rolled. A pod is made only on what is
// observed as ours.
func (v *view) listedPods(decision *verdict) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, m := range v.members {
		switch {
		case m.name == "" || m.name == decision.deletePod:
		case m.pod == nil && v.fenced(m.name) && !m.Learner:
		case m.pod != nil:
			pods = append(pods, v.keptListed(m, decision)...)
		case v.memory() && v.mayBeMade(m):
			pods = append(pods, withGate(v.podOf(m)))
		case !v.memory() && v.storageUsable(m.name) && !v.mayBeMade(m) && !v.joinsOnAnotherClaim(m):
			pods = append(pods, v.podOf(m))
		}
	}
	return sortPods(pods)
}

// joinsOnAnotherClaim reports whether a learner that has not started yet was recorded to start on another claim than
// this one.
func (v *view) joinsOnAnotherClaim(m *member) bool {
	return v.onClaims() && v.startOf(m) == objects.StartJoin && v.claimGone(m)
}

func (v *view) keptListed(m *member, decision *verdict) []*corev1.Pod {
	pods := v.keptPods([]string{m.name})
	for _, pod := range pods {
		if m.Started() {
			delete(pod.Annotations, objects.AnnotationInitialCluster)
		}
		if role := v.roleOf(m); role != "" {
			pod.Labels[objects.LabelRole] = role
		}
		if m.name == decision.withdraw && pod.Annotations[objects.AnnotationWithdrawn] == "" {
			pod.Annotations[objects.AnnotationWithdrawn] = v.Now.UTC().Format(time.RFC3339)
		}
		if m.name == decision.patchImage {
			v.exchange(pod)
		}
	}
	return pods
}

// podOf is a new pod for a listed member.
func (v *view) podOf(m *member) *corev1.Pod {
	var pod *corev1.Pod
	switch start := v.startOf(m); start {
	case objects.StartJoin:
		pod = v.pod(m.name, start, joinEnv())
		pod.Annotations[objects.AnnotationInitialCluster] = v.joinCluster(m)
	case objects.StartBootstrap:
		pod = v.bootstrapPod(m.name)
	default:
		pod = v.pod(m.name, objects.StartResume, resumeEnv())
	}
	if m.Learner {
		pod.Labels[objects.LabelRole] = roleLearner
	}
	if v.mismatched(m) {
		pod.Labels[objects.LabelRole] = roleFenced
	}
	return pod
}

// withGate keeps a memory pod from running until the record holds its UID.
func withGate(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: provisionGate}}
	return pod
}

// joinCluster is the membership as a joining member must be told it: all of the list, itself by our name for it.
func (v *view) joinCluster(joining *member) string {
	var fields []string
	for _, m := range v.members {
		name := cmp.Or(m.Name, m.name)
		if m.alias != "" {
			name = "foreign-" + hex(m.ID) // its own may be that of one of ours
		}
		if m.ID == joining.ID {
			name = joining.name
		}
		for _, u := range m.PeerURLs {
			fields = append(fields, name+"="+u)
		}
	}
	return strings.Join(fields, ",")
}

// ---- one pod

func (v *view) pod(name, start string, env []corev1.EnvVar) *corev1.Pod {
	volume := storageSize(&v.Cluster.Spec)
	if claim := v.Children.Claims[name]; claim != nil {
		if size := volumeSize(claim); !size.IsZero() {
			volume = size
		}
	}
	pod := newPod(v.Observation, name, v.versionNow(), start, volume, v.peersDial(name), env)
	if v.hasWAL(name) {
		withWAL(pod)
	}
	if v.hostPath() {
		v.onNode(pod)
	}
	prepare := prepareOf(pod)
	prepare.Env = append(prepare.Env, ofEpoch(objects.EpochName(v.Cluster.Name, v.epoch.n)))
	if v.besideForeign() {
		allowAnyPeer(pod)
	}
	v.noteTemplate(pod, v.versionNow())
	pod.Annotations[objects.AnnotationImage] = v.Settings.Etcd(&v.Cluster.Spec, v.versionNow())
	v.noteServed(pod)
	v.noteRestart(pod)
	if provided(v.Cluster) && v.seesMounted() {
		pod.Annotations[objects.AnnotationTrusts] = formatPairs(v.trusted(), ":")
	}
	return pod
}

// noteServed puts on a pod which certificates its member is to show.
func (v *view) noteServed(pod *corev1.Pod) {
	if v.serves != "" {
		pod.Annotations[objects.AnnotationServes] = v.serves
	}
}

// keptPods are the observed pods of these names but for those that have ended, which are made anew (on Memory,
// replaced).
func (v *view) keptPods(names []string) []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range names {
		if pod := v.Children.Pods[name]; pod != nil && !finished(pod) {
			pods = append(pods, v.keptPod(pod))
		}
	}
	return pods
}

// keptPod is an observed pod with its observed spec. Only the labels, the image of an etcd that never ran, and the
// gate of a recorded memory pod may differ.
func (v *view) keptPod(old *corev1.Pod) *corev1.Pod {
	pod := *old
	own := map[string]string{objects.LabelMember: old.Name}
	if r := old.Labels[objects.LabelRole]; r != "" {
		own[objects.LabelRole] = r
	}
	pod.Labels = labels(v.Cluster, own)
	pod.Annotations = annotations(v.Cluster, objects.Only(old.Annotations, objects.AnnotationStart,
		objects.AnnotationTemplate, annotationFormerTemplate,
		objects.AnnotationInitialCluster, objects.AnnotationImage, objects.AnnotationServes, objects.AnnotationTrusts,
		objects.AnnotationFlagsFor, objects.AnnotationExchanged,
		objects.AnnotationRestarted, objects.AnnotationSHA256))
	v.noteServed(&pod)
	if !v.templateOutdated(old) {
		v.noteTemplate(&pod, madeForVersion(old))
	}
	if v.epoch == nil {
		return &pod
	}
	v.noteSuccession(&pod, old)
	if since := old.Annotations[objects.AnnotationWithdrawn]; since != "" && !v.epoch.choice.removes &&
		v.epoch.choice.name == old.Name {
		pod.Annotations[objects.AnnotationWithdrawn] = since
	}
	if gated(old) && v.epoch.mayStartEmpty(old.Name, old.UID) && v.mayFill(old.Name) {
		pod.Spec.SchedulingGates = nil
	}
	if v.takesImage(old) {
		v.exchange(&pod)
	}
	return &pod
}

// takesImage reports whether another image is put into a pod in which no etcd runs, as one that can't be pulled.
func (v *view) takesImage(pod *corev1.Pod) bool {
	wanted, idle := v.versionNow(), neverRan(pod) || v.Etcd == nil && v.epoch.hadQuorum() && !running(pod)
	return idle && pod.Annotations[objects.AnnotationImage] != v.Settings.Etcd(&v.Cluster.Spec, wanted) &&
		(!v.epoch.hadQuorum() || sameFlags(madeForVersion(pod), wanted))
}

// noteSuccession puts on a pod that was made before its epoch began that the one before is over, and that its member
// may begin; and on one that is to be filled which database it must find.
func (v *view) noteSuccession(pod, old *corev1.Pod) {
	if v.epoch.sum != "" && insistsOnSum(old) {
		pod.Annotations[objects.AnnotationSHA256] = v.epoch.sum
	}
	if awaits(old) && v.epoch.began() && namesRecord(old) == objects.EpochName(v.Cluster.Name, v.epoch.n) {
		pod.Annotations[objects.AnnotationBegins] = "yes"
	}
	if old.Annotations[objects.AnnotationPredecessorGone] != "" {
		pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
	}
}

// strangePods carry our labels but no member's name: not ours to delete.
func (v *view) strangePods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := objects.Ordinal(v.Cluster.Name, name); !ours && !v.isSurveyPod(name) {
			pods = append(pods, kept(v.Cluster, v.Children.Pods[name]))
		}
	}
	return pods
}

// isSurveyPod reports whether the pod of this name looks at a member's volumes.
func (v *view) isSurveyPod(name string) bool {
	of, is := strings.CutSuffix(name, surveySuffix)
	_, ours := objects.Ordinal(v.Cluster.Name, of)
	return is && ours
}

func sortPods(pods []*corev1.Pod) []*corev1.Pod {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return byOrdinal(a.Name, b.Name) })
	return pods
}
