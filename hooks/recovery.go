package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// When the next epoch begins, and with whose data.

// ---- a new cluster

// beginning is where a new cluster's data comes from, or what that waits for.
func (v *view) beginning() (origin, string) {
	from := origin{source: SourceEmpty}
	var snapshot *v1alpha1.SnapshotSource
	if b := v.Cluster.Spec.Bootstrap; b != nil {
		snapshot = b.Snapshot
	}
	if r := v.Cluster.Spec.Restore; r != nil { // a cluster that is made anew from its manifest begins with what it was last restored to
		from.restore = r.ID
		if r.Snapshot != nil {
			snapshot = r.Snapshot
		}
	}
	if joins(v.Cluster) {
		from.source = SourceExisting
		return from, ""
	}
	if snapshot == nil {
		return from, ""
	}
	resolved, why := v.resolve(snapshot)
	if why != "" {
		return from, why
	}
	from.source, from.snapshot = SourceSnapshot, resolved
	return from, ""
}

// ---- in place

func restore(v *view) *verdict {
	r := v.Cluster.Spec.Restore
	if r == nil || v.heir != nil || v.epoch.restore == r.ID {
		return nil
	}
	from, why := v.wished(r)
	if why != "" || v.growing() && !v.mayStopFirst(r) {
		return nil // the condition Restored says it; the cluster runs on
	}
	return v.succeed(from, fmt.Sprintf("spec.restore.id is %q: recording epoch %d, which begins with %s; epoch %d runs on until that is ready", r.ID, v.epoch.n+1, v.wordsFor(from), v.epoch.n))
}

// wished is what spec.restore asks for, or what stands in its way.
func (v *view) wished(r *v1alpha1.Restore) (origin, string) {
	from := origin{restore: r.ID}
	if v.beside() {
		return from, "nothing is restored beside members that are not ours, which would go on with their data"
	}
	if r.Snapshot != nil {
		resolved, why := v.resolve(r.Snapshot)
		from.source, from.snapshot = SourceSnapshot, resolved
		return from, why
	}
	if r.Epoch == nil {
		return from, "spec.restore names neither a snapshot nor an epoch"
	}
	from.source, from.survivorsOf = SourceSurvivor, int(*r.Epoch)
	switch {
	case from.survivorsOf == v.epoch.n && !v.ending():
		return from, fmt.Sprintf("epoch %d is the one that runs", v.epoch.n)
	case len(v.survivors(from.survivorsOf)) == 0:
		return from, fmt.Sprintf("no volume of epoch %d is left", from.survivorsOf)
	}
	return from, ""
}

func (v *view) wordsFor(from origin) string {
	switch from.source {
	case SourceSnapshot:
		return "the snapshot " + storeWords(from.snapshot.URL)
	case SourceSurvivor:
		if from.member != "" {
			return "what " + from.member + " has"
		}
		return fmt.Sprintf("the data of epoch %d", from.survivorsOf)
	}
	return "no data"
}

// ---- the quorum is lost

func recoverQuorum(v *view) *verdict {
	if v.Etcd != nil || v.heir != nil || !v.epoch.founded() {
		return nil
	}
	policy, asked := v.recoverBy()
	lost := v.quorumIsLost()
	if !asked && (v.beside() || policy == v1alpha1.RecoverManual || len(lost) == 0 || !v.epoch.quorate() || v.mayHaveQuorum()) {
		return nil
	}
	if !asked || len(lost) == 0 {
		if wait := v.lostUntil().Sub(v.Now); wait > 0 {
			return v.mayComeBack(policy, lost, wait)
		}
	}
	from, why := v.wayBack(policy)
	if why != "" {
		return &verdict{message: fmt.Sprintf("the quorum is lost, and %s is not possible: %s; what is left is kept as it is", policy, why), outlook: Waits, resync: patience}
	}
	return v.succeed(from, fmt.Sprintf("the quorum of epoch %d is lost: recording epoch %d, which begins with %s", v.epoch.n, v.epoch.n+1, v.wordsFor(from)))
}

// recoveryDue reports whether a recovery that a person asks for is due: at once when the quorum's data is lost, else after the wait.
func (v *view) recoveryDue() bool { return len(v.quorumIsLost()) > 0 || !v.Now.Before(v.lostUntil()) }

// mayComeBack waits for a quorum before the next epoch is recorded. While its data is there only a person may ask for that, and maybe did so
// long ago, for another trouble.
func (v *view) mayComeBack(policy v1alpha1.QuorumLoss, lost []string, wait time.Duration) *verdict {
	at := v.lostUntil().UTC().Format("15:04:05 UTC")
	why := fmt.Sprintf("the data of %s is gone, and with it the quorum; by spec.recovery", strings.Join(lost, ", "))
	if len(lost) == 0 {
		why = "no quorum answers, although its data is there; by the annotation " + AnnotationRecover
	}
	return &verdict{message: fmt.Sprintf("%s, %s begins at %s unless a quorum comes back", why, policy, at), resync: min(wait, 10*time.Second)}
}

// recoverBy is the policy for a lost quorum, and whether a person has asked for it now, by the annotation, for this very epoch.
func (v *view) recoverBy() (policy v1alpha1.QuorumLoss, asked bool) {
	by, of, _ := strings.Cut(v.Cluster.Annotations[AnnotationRecover], ":")
	p := v1alpha1.QuorumLoss(by)
	known := slices.Contains([]v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor, v1alpha1.RecoverFromSnapshot, v1alpha1.RecoverRecreate}, p)
	if known && of == fmt.Sprint(v.epoch.n) {
		return p, true
	}
	return or(v.Cluster.Spec.Recovery.QuorumLoss, v1alpha1.RecoverManual), false
}

// byHand is the command that starts the way back.
func (v *view) byHand(policy v1alpha1.QuorumLoss) string {
	return fmt.Sprintf("kubectl annotate --overwrite -n %s etcdcluster/%s %s=%s:%d", v.Cluster.Namespace, v.Cluster.Name, AnnotationRecover, policy, v.epoch.n)
}

// suggested is the policy that loses least; empty when only one is left that loses all.
func (v *view) suggested() v1alpha1.QuorumLoss {
	for _, policy := range []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor, v1alpha1.RecoverFromSnapshot} {
		if _, why := v.wayBack(policy); why == "" {
			return policy
		}
	}
	return ""
}

const defaultRecoverAfter = 5 * time.Minute

func recoverAfter(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if after := s.Recovery.After.Duration; after > 0 {
		return after
	}
	return defaultRecoverAfter
}

// lostUntil is when the quorum has been lost for long enough. Without the time in the status the wait begins anew.
func (v *view) lostUntil() time.Time {
	c := meta.FindStatusCondition(v.Cluster.Status.Conditions, v1alpha1.Available)
	if c == nil || c.Status != metav1.ConditionFalse {
		return v.Now.Add(recoverAfter(&v.Cluster.Spec))
	}
	return c.LastTransitionTime.Add(recoverAfter(&v.Cluster.Spec))
}

// quorumIsLost are the voters whose data is gone, when with it a quorum is; none while one can come back.
func (v *view) quorumIsLost() []string {
	known := v.knownVoters()
	lost := filter(known, func(name string) bool { return !v.hasData(name) })
	if len(known) == 0 || len(known)-len(lost) >= quorum(len(known)) {
		return nil
	}
	return lost
}

// mayHaveQuorum reports whether so many members have data that they could be a quorum. The status, which says who voted last, may be one of
// long ago (S14): nothing is begun by itself, and no member's memory is given up, because voters of then are gone.
func (v *view) mayHaveQuorum() bool {
	data := v.mayVote()
	joining := filter(data, func(name string) bool { return v.toldToJoin(name) && !slices.Contains(v.knownVoters(), name) })
	// Those who are joining vote together with all others or not yet: each that votes makes the quorum larger too.
	voters := len(v.knownVoters())
	return len(data)-len(joining) >= quorum(voters) || len(data) >= quorum(voters+len(joining))
}

// mayVote are the members that have data and may vote. Not those whose etcd has never run in the pod that they have, when that pod is still
// told whom to join, or has found no log (it was made, while no quorum answered, for one that has not run yet).
func (v *view) mayVote() []string {
	return filter(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		empty := pod != nil && neverRan(pod) && (v.toldToJoin(name) || prepareRefused(pod))
		return v.hasData(name) && !empty
	})
}

// toldToJoin reports whether a member's pod is still told whom to join: then it is a learner, or was one until a moment ago. None is promoted
// before that is taken from its pod ([promote]).
func (v *view) toldToJoin(name string) bool {
	pod := v.Children.Pods[name]
	return pod != nil && podStart(pod) == StartJoin && pod.Annotations[AnnotationInitialCluster] != ""
}

// besideOthers is why no epoch takes over from one that has foreign members: nobody stops those.
const besideOthers = "the etcd that the members have joined has members of others, which go on; have them retired first (spec.bootstrap.existing.retireForeign)"

// wayBack is where the next epoch's data comes from by this policy, or why there is none.
func (v *view) wayBack(policy v1alpha1.QuorumLoss) (origin, string) {
	if v.beside() {
		return origin{}, besideOthers
	}
	switch policy {
	case v1alpha1.RecoverFromSurvivor:
		if !v.onClaims() {
			return v.fromMember()
		}
		if len(v.survivors(v.epoch.n)) == 0 {
			return origin{}, "no member's volume has survived; " + string(v1alpha1.RecoverFromSnapshot) + " restores the newest verified snapshot: " + v.byHand(v1alpha1.RecoverFromSnapshot)
		}
		return origin{source: SourceSurvivor, survivorsOf: v.epoch.n, restore: v.epoch.restore}, ""
	case v1alpha1.RecoverFromSnapshot:
		newest := v.newestSnapshot()
		if newest == nil {
			return origin{}, fmt.Sprintf("no verified EtcdSnapshot of it is there (with the label %s=%s)", LabelCluster, v.Cluster.Name)
		}
		resolved, why := v.resolve(&v1alpha1.SnapshotSource{Name: newest.Name, IdentitySecret: v.identity()})
		return origin{source: SourceSnapshot, snapshot: resolved, restore: v.epoch.restore}, why
	case v1alpha1.RecoverRecreate:
		return origin{source: SourceEmpty, restore: v.epoch.restore}, ""
	case v1alpha1.RecoverManual:
	}
	return origin{}, "spec.recovery.quorumLoss is " + string(policy)
}

// fromMember is the way back where no volume can be copied: what a member that still runs has applied, fetched from it.
func (v *view) fromMember() (origin, string) {
	switch {
	case !v.memory():
		return origin{}, fmt.Sprintf("a survivor's data can't be copied on the medium %s; FromSnapshot and Recreate can be done", v.Cluster.Spec.Storage.Medium)
	case v.running() == "":
		return origin{}, "no member that runs answers"
	case v.mayHaveQuorum():
		return origin{}, "so many members run that they may have a quorum, although none answers"
	}
	name, _, _ := strings.Cut(v.running(), ":")
	return origin{source: SourceSurvivor, survivorsOf: v.epoch.n, member: name, restore: v.epoch.restore}, ""
}

// running are the members that answer although there is no quorum, the one that is ahead first, with the evidence; empty for none.
func (v *view) running() string {
	able := filter(v.names, func(name string) bool {
		h, asked := v.Health[name]
		return asked && h.Err == "" && v.hasData(name)
	})
	slices.SortStableFunc(able, func(a, b string) int {
		x, y := v.Health[a], v.Health[b]
		return cmp.Or(cmp.Compare(y.RaftTerm, x.RaftTerm), cmp.Compare(y.RaftIndex, x.RaftIndex))
	})
	var evidence []string
	for _, name := range able {
		evidence = append(evidence, fmt.Sprintf("%s: term %d, index %d", name, v.Health[name].RaftTerm, v.Health[name].RaftIndex))
	}
	return strings.Join(evidence, "; ")
}

// identity is the Secret by which encrypted snapshots of this cluster are read.
func (v *view) identity() string { return v.Cluster.Spec.Recovery.IdentitySecret }

// newestSnapshot is the newest one of this cluster that was restored on trial.
func (v *view) newestSnapshot() *v1alpha1.EtcdSnapshot {
	var newest *v1alpha1.EtcdSnapshot
	for _, name := range slices.Sorted(maps.Keys(v.Related.Snapshots)) {
		s := v.Related.Snapshots[name]
		if s.Spec.Cluster != v.Cluster.Name || s.Status.Phase != v1alpha1.SnapshotSucceeded || s.Status.VerifiedAt.IsZero() || s.DeletionTimestamp != nil {
			continue
		}
		if newest == nil || newest.Status.Completed.Before(&s.Status.Completed) {
			newest = s
		}
	}
	return newest
}

// ---- whose data

// survivors are the members of an epoch whose volumes are all there.
func (v *view) survivors(epoch int) []string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(v.all.Claims), byOrdinal) {
		n, member := ordinal(v.Cluster.Name, name)
		claim, wal := v.all.Claims[name], v.all.Claims[WALClaim(name)]
		if !member || !v.ours(claim) || claim.DeletionTimestamp != nil || wal != nil && wal.DeletionTimestamp != nil {
			continue
		}
		of := markIn(claim.Annotations[AnnotationEpoch])
		if of == 0 && n >= v.epoch.first && (v.heir == nil || n < v.heir.epoch.first) && !quarantined(claim) {
			of = v.epoch.n
		}
		if of == epoch {
			list = append(list, name)
		}
	}
	return list
}

// surveySuffix makes the name of the pod that looks at a member's volumes.
const surveySuffix = "-survey"

// chooseSurvivor has a look at the volumes of all survivors, and takes the one whose log is ahead.
func (v *view) chooseSurvivor() *verdict {
	of := v.survivors(v.heir.epoch.survivorsOf)
	if len(of) == 0 {
		return &verdict{message: fmt.Sprintf("no volume of epoch %d is left to seed epoch %d", v.heir.epoch.survivorsOf, v.heir.epoch.n), outlook: Waits, resync: patience}
	}
	var best string
	var most SurveyReport
	var waits, evidence []string
	for _, name := range of {
		report, why := v.surveyed(name)
		switch {
		case report != nil && report.Error == "":
			evidence = append(evidence, fmt.Sprintf("%s: term %d, index %d", name, report.LastTerm, report.LastIndex))
			if best == "" || ahead(report, &most) {
				best, most = name, *report
			}
		case report != nil:
			evidence = append(evidence, fmt.Sprintf("%s: %s", name, report.Error))
		case why != "":
			evidence = append(evidence, fmt.Sprintf("%s: %s", name, why))
		default:
			waits = append(waits, name)
		}
	}
	switch {
	case len(waits) > 0:
		return &verdict{message: fmt.Sprintf("looking at the volumes of %s", strings.Join(waits, ", ")), resync: patience}
	case best == "":
		return &verdict{message: "no volume can be used: " + strings.Join(evidence, "; "), outlook: Waits, resync: patience}
	}
	i := slices.IndexFunc(evidence, func(e string) bool { return strings.HasPrefix(e, best+":") })
	evidence[0], evidence[i] = evidence[i], evidence[0]
	return &verdict{message: fmt.Sprintf("%s has the most (%s)", best, strings.Join(evidence, "; ")), survivor: strings.Join(evidence, "; "), resync: soon}
}

// ahead compares logs as raft does in elections: whoever is not behind has everything that a quorum has acknowledged, if anybody here has.
func ahead(a, b *SurveyReport) bool {
	return a.LastTerm > b.LastTerm || a.LastTerm == b.LastTerm && a.LastIndex > b.LastIndex
}

// surveyed is what a look at the member's volumes has told; or, when that was waited for long enough, why it tells nothing.
func (v *view) surveyed(name string) (*SurveyReport, string) {
	pod := v.all.Pods[name+surveySuffix]
	if pod == nil {
		return nil, ""
	}
	for _, s := range pod.Status.ContainerStatuses {
		if t := s.State.Terminated; t != nil {
			report, err := readReport[SurveyReport](t.Message)
			if err != nil {
				report = &SurveyReport{Error: err.Error()}
			}
			return report, ""
		}
	}
	if !pod.CreationTimestamp.IsZero() && v.Now.Sub(pod.CreationTimestamp.Time) >= recoverAfter(&v.Cluster.Spec) {
		return nil, "its volume could not be reached within " + brief(recoverAfter(&v.Cluster.Spec))
	}
	return nil, ""
}

// surveyPods look at the survivors' volumes, while nobody is chosen.
func (v *view) surveyPods(said *verdict) []*corev1.Pod {
	if v.heir == nil || v.forsakes() || v.heir.epoch.source != SourceSurvivor || v.heir.epoch.survivor != "" || said.survivor != "" {
		return nil
	}
	if v.ending() && v.lingering() != "" {
		return nil
	}
	var pods []*corev1.Pod
	for _, name := range v.survivors(v.heir.epoch.survivorsOf) {
		if old := v.all.Pods[name+surveySuffix]; old != nil {
			pods = append(pods, kept(v.Cluster, old))
		} else {
			pods = append(pods, v.surveyPod(name))
		}
	}
	return pods
}

func (v *view) surveyPod(name string) *corev1.Pod {
	s := &v.Cluster.Spec
	survey := corev1.Container{
		Name: ContainerSurvey, Image: v.Settings.Image, ImagePullPolicy: v.Settings.ImagePullPolicy,
		Command:                  []string{snapshotProgram},
		Args:                     []string{"survey", "--data-dir=" + survivorMount + "/data"},
		SecurityContext:          restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeSurvivor, MountPath: survivorMount, ReadOnly: true}},
	}
	volumes := []corev1.Volume{claimVolume(volumeSurvivor, name)}
	if v.all.Claims[WALClaim(name)] != nil {
		survey.Args = append(survey.Args, "--wal-dir="+survivorWALMount+"/wal")
		survey.VolumeMounts = append(survey.VolumeMounts, corev1.VolumeMount{Name: volumeSurvivorWAL, MountPath: survivorWALMount, ReadOnly: true})
		volumes = append(volumes, claimVolume(volumeSurvivorWAL, WALClaim(name)))
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + surveySuffix, Labels: surveyLabels(v.Cluster), Annotations: annotations(v.Cluster, nil)},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			SecurityContext:              podSecurity(),
			ImagePullSecrets:             s.Image.PullSecrets,
			NodeSelector:                 s.NodeSelector,
			Tolerations:                  s.Tolerations,
			PriorityClassName:            s.PriorityClassName,
			Containers:                   []corev1.Container{survey},
			Volumes:                      volumes,
		},
	}
}

// surveyLabels are not those of a member: neither Services nor budgets are meant.
func surveyLabels(c *v1alpha1.EtcdCluster) map[string]string {
	all := labels(c, nil)
	delete(all, LabelCluster)
	return all
}

// ---- what people see

// originStatus is where the data comes from; nil for nowhere.
func (e *epoch) originStatus() *v1alpha1.OriginStatus {
	if e.source == SourceEmpty && e.after == 0 {
		return nil
	}
	s := &v1alpha1.OriginStatus{Source: e.source, After: int64(e.after), Restore: e.restore, Survivor: e.survivor, Evidence: e.evidence}
	if e.snapshot != nil {
		s.Snapshot = e.snapshot.URL
	}
	return s
}

// restored is the condition Restored: whether the cluster has the data that spec.restore asks for; false when it asks for none.
func restored(v *view) (reason, message string, is, shown bool) {
	r := v.Cluster.Spec.Restore
	switch {
	case v.heir != nil && v.ending():
		return "Stopping", fmt.Sprintf("epoch %d is being stopped or is over; epoch %d is about to begin", v.epoch.n, v.heir.epoch.n), false, true
	case v.heir != nil:
		if waits := v.staging(); waits != "" {
			beside := ""
			if v.Etcd != nil {
				beside = fmt.Sprintf(", and epoch %d runs on", v.epoch.n)
			}
			return "Staging", fmt.Sprintf("epoch %d is being made ready%s: %s", v.heir.epoch.n, beside, waits), false, true
		}
		return "Staging", fmt.Sprintf("epoch %d is ready", v.heir.epoch.n), false, true
	case r == nil:
		return "", "", false, false
	case v.epoch != nil && v.epoch.restore == r.ID:
		return "Restored", fmt.Sprintf("epoch %d began with what spec.restore %q asks for", v.epoch.n, r.ID), true, true
	}
	if v.epoch == nil {
		_, why := v.beginning()
		return "Waiting", or(why, "the cluster has not begun"), false, true
	}
	_, why := v.wished(r)
	if why == "" && v.growing() && !v.mayStopFirst(r) {
		return "Waiting", fmt.Sprintf("spec.restore %q waits until epoch %d has all its members; with stopFirst it would not", r.ID, v.epoch.n), false, true
	}
	return "Impossible", fmt.Sprintf("spec.restore %q: %s; the data is untouched", r.ID, or(why, "about to begin")), false, true
}
