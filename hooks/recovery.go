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
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// When the next epoch begins, and with whose data.

// ---- a new cluster

// beginning is where a new cluster's data comes from, or what that waits for.
func (v *view) beginning() (origin, string) {
	from := origin{source: objects.SourceEmpty}
	snapshot := v.beginsWith()
	if r := v.Cluster.Spec.Restore; r != nil {
		from.restore = r.ID
	}
	if joins(v.Cluster) {
		from.source = objects.SourceExisting
		return from, ""
	}
	if snapshot == nil {
		return from, ""
	}
	resolved, why := v.resolve(snapshot)
	if why != "" {
		return from, why
	}
	from.source, from.snapshot, from.bump = objects.SourceSnapshot, resolved, snapshot.BumpRevision
	return from, ""
}

// beginsWith is the snapshot that a new cluster begins with; nil for none. One that is made again from its manifest
// begins with what it was last restored to.
func (v *view) beginsWith() *v1alpha1.SnapshotSource {
	if r := v.Cluster.Spec.Restore; r != nil && r.Snapshot != nil {
		return r.Snapshot
	}
	if b := v.Cluster.Spec.Bootstrap; b != nil {
		return b.Snapshot
	}
	return nil
}

// ---- in place

func restore(v *view) *verdict {
	r := v.Cluster.Spec.Restore
	if r == nil || v.next != nil || v.answered()[r.ID] != 0 {
		return nil
	}
	from, why := v.restoreSource(r)
	if why != "" || v.membersMissing() && !v.mayStopFirst(r) {
		return nil // the condition Restored says it; the cluster runs on
	}
	return v.recordNextEpoch(from, fmt.Sprintf("spec.restore.id is %q: recording epoch %d, which begins with %s; "+
		"epoch %d runs on until that is ready", r.ID, v.nextEpochNumber(), v.wordsFor(from), v.epoch.n))
}

// restoreSource is what spec.restore asks for, or what stands in its way.
func (v *view) restoreSource(r *v1alpha1.Restore) (origin, string) {
	from := origin{restore: r.ID}
	if n := v.answered()[r.ID]; n != 0 {
		return from, fmt.Sprintf("epoch %d has answered that id, and none is answered twice: give spec.restore a new "+
			"id to restore again, or take it out", n)
	}
	if v.besideForeign() {
		return from, "nothing is restored beside members that are not ours, which would go on with their data"
	}
	if r.Snapshot != nil {
		resolved, why := v.resolve(r.Snapshot)
		from.source, from.snapshot, from.bump = objects.SourceSnapshot, resolved, r.Snapshot.BumpRevision
		return from, why
	}
	if r.Epoch == nil {
		return from, "spec.restore names neither a snapshot nor an epoch"
	}
	from.source, from.survivorsOf = objects.SourceSurvivor, int(*r.Epoch)
	switch {
	case from.survivorsOf == v.epoch.n && !v.ending():
		return from, fmt.Sprintf("epoch %d is the one that runs", v.epoch.n)
	case len(v.survivors(from.survivorsOf)) == 0:
		return from, fmt.Sprintf("no volume of epoch %d is left%s", from.survivorsOf,
			v.withoutGivenUp(from.survivorsOf))
	}
	return from, ""
}

func (v *view) wordsFor(from origin) string {
	switch from.source {
	case objects.SourceSnapshot:
		return from.snapshot.words() + v.ofAnotherLife(from.snapshot)
	case objects.SourceSurvivor:
		if from.member != "" {
			return "what " + from.member + " has"
		}
		return fmt.Sprintf("the data of epoch %d", from.survivorsOf)
	}
	return "no data"
}

// ofAnotherLife says that a snapshot was not taken of the epoch that runs; empty when it was, or nobody knows.
func (v *view) ofAnotherLife(s *resolved) string {
	if v.epoch == nil || !v.epoch.hadQuorum() || s.ClusterID == "" || s.ClusterID == hex(v.epoch.clusterID) {
		return ""
	}
	return fmt.Sprintf(" (of another life: of etcd cluster %s, and that of epoch %d is %s)", s.ClusterID, v.epoch.n,
		hex(v.epoch.clusterID))
}

// ---- the quorum is lost

func recoverQuorum(v *view) *verdict {
	if v.next != nil {
		return nil
	}
	policy, asked := v.recoverBy()
	lost := v.quorumIsLost()
	if !asked && (v.besideForeign() || policy == v1alpha1.RecoverManual || len(lost) == 0 || !v.epoch.hadQuorum() ||
		v.mayHaveQuorum()) {
		return nil
	}
	if !asked || len(lost) == 0 {
		if v.Now.Before(v.lostUntil()) {
			return v.mayComeBack(policy, lost)
		}
	}
	from, why := v.wayBack(policy, asked)
	if why != "" {
		return &verdict{message: fmt.Sprintf("the quorum is lost, and %s is not possible: %s; what is left is kept "+
			"as it is", policy, why), outlook: Waits, resync: rule.ResyncLater}
	}
	return v.recordNextEpoch(from, fmt.Sprintf("the quorum of epoch %d is lost: recording epoch %d, which begins "+
		"with %s", v.epoch.n, v.nextEpochNumber(), v.wordsFor(from)))
}

// recoveryDue reports whether a recovery that a person asks for is due: at once when the quorum's data is lost, else
// after the wait.
func (v *view) recoveryDue() bool { return len(v.quorumIsLost()) > 0 || !v.Now.Before(v.lostUntil()) }

// mayComeBack waits for a quorum before the next epoch is recorded. While its data is there only a person may ask for
// that, and maybe did so long ago, for another trouble.
func (v *view) mayComeBack(policy v1alpha1.QuorumLoss, lost []string) *verdict {
	at := v.lostUntil().UTC().Format("15:04:05 UTC")
	why := fmt.Sprintf("the data of %s is gone, and with it the quorum; by spec.recovery", strings.Join(lost, ", "))
	if len(lost) == 0 {
		why = "no quorum answers, although its data is there; by the annotation " + objects.AnnotationRecover
	}
	return &verdict{message: fmt.Sprintf("%s, %s begins at %s unless a quorum comes back", why, policy, at),
		resync: rule.ResyncLater}
}

// recoverBy is the policy for a lost quorum, and whether a person has asked for it now, by the annotation, for this
// very epoch.
func (v *view) recoverBy() (policy v1alpha1.QuorumLoss, asked bool) {
	by, of, _ := strings.Cut(v.Cluster.Annotations[objects.AnnotationRecover], ":")
	p := v1alpha1.QuorumLoss(by)
	known := slices.Contains([]v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor, v1alpha1.RecoverFromSnapshot,
		v1alpha1.RecoverRecreate}, p)
	if known && of == fmt.Sprint(v.epoch.n) {
		return p, true
	}
	return cmp.Or(v.Cluster.Spec.Recovery.QuorumLoss, v1alpha1.RecoverManual), false
}

// recoverCommand is the command that starts the way back.
func (v *view) recoverCommand(policy v1alpha1.QuorumLoss) string {
	return fmt.Sprintf("kubectl annotate --overwrite -n %s etcdcluster/%s %s=%s:%d", v.Cluster.Namespace,
		v.Cluster.Name, objects.AnnotationRecover, policy, v.epoch.n)
}

// suggested is the way back that loses least, and the command that takes it; empty when only one is left that loses
// all.
func (v *view) suggested() string {
	for _, policy := range []v1alpha1.QuorumLoss{v1alpha1.RecoverFromSurvivor, v1alpha1.RecoverFromSnapshot} {
		if from, why := v.wayBack(policy, true); why == "" {
			return fmt.Sprintf("%s is possible, with %s: %s", policy, v.wordsFor(from), v.recoverCommand(policy))
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

// lostUntil is when the quorum has been seen lost for long enough. Without the time in the status the wait begins
// again.
func (v *view) lostUntil() time.Time {
	c := meta.FindStatusCondition(v.Cluster.Status.Conditions, v1alpha1.Available)
	if c == nil || c.Status != metav1.ConditionFalse {
		return v.Now.Add(recoverAfter(&v.Cluster.Spec))
	}
	return later(c.LastTransitionTime.Time, v.watchedSince()).Add(recoverAfter(&v.Cluster.Spec))
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

// mayHaveQuorum reports whether so many members have data that they could be a quorum. The status, which says who
// voted last, may be one of long ago (S14): nothing is begun by itself, and no member's memory is given up, because
// voters of then are gone.
func (v *view) mayHaveQuorum() bool {
	data := v.mayVote()
	joining := filter(data, func(name string) bool {
		return v.toldToJoin(name) &&
			!slices.Contains(v.knownVoters(), name)
	})
	// Those who are joining vote together with all others or not yet: each that votes makes the quorum larger too.
	voters := len(v.knownVoters())
	return len(data)-len(joining) >= quorum(voters) || len(data) >= quorum(voters+len(joining))
}

// mayVote are the members that have data and may vote. Not those whose etcd has never run in the pod that they have,
// when that pod is still told whom to join, or has found no log (it was made, while no quorum answered, for one that
// has not run yet). Nor those that etcd has let go, whose claims are kept: no pod is ever made on these.
func (v *view) mayVote() []string {
	return filter(v.names, func(name string) bool {
		pod := v.Children.Pods[name]
		empty := pod != nil && neverRan(pod) && (v.toldToJoin(name) || prepareRefused(pod))
		gone := pod == nil && quarantined(v.Children.Claims[name])
		return v.hasData(name) && !empty && !gone
	})
}

// toldToJoin reports whether a member's pod is still told whom to join: then it is a learner, or was one until a
// moment ago. None is promoted before that is taken from its pod ([promote]).
func (v *view) toldToJoin(name string) bool {
	pod := v.Children.Pods[name]
	return pod != nil && podStart(pod) == objects.StartJoin && pod.Annotations[objects.AnnotationInitialCluster] != ""
}

// besideOthers is why no epoch takes over from one that has foreign members: nobody stops those.
const besideOthers = "the etcd that the members have joined has members of others, which go on; have them retired " +
	"first (spec.bootstrap.existing.retireForeign)"

// wayBack is where the next epoch's data comes from by this policy, or why there is none. A person may ask for more
// than is done unasked.
func (v *view) wayBack(policy v1alpha1.QuorumLoss, asked bool) (origin, string) {
	from := origin{restore: v.epoch.restore, bump: v.Cluster.Spec.Recovery.BumpRevision}
	if v.besideForeign() {
		return from, besideOthers
	}
	switch policy {
	case v1alpha1.RecoverFromSurvivor:
		if !v.onClaims() {
			return v.fromMember(from)
		}
		if len(v.survivors(v.epoch.n)) == 0 {
			return from, "no member's volume has survived" + v.withoutGivenUp(v.epoch.n) + "; " +
				string(v1alpha1.RecoverFromSnapshot) + " restores the newest verified snapshot: " +
				v.recoverCommand(v1alpha1.RecoverFromSnapshot)
		}
		from.source, from.survivorsOf = objects.SourceSurvivor, v.epoch.n
		return from, ""
	case v1alpha1.RecoverFromSnapshot:
		return v.fromNewest(from, asked)
	case v1alpha1.RecoverRecreate:
		from.source = objects.SourceEmpty
		return from, ""
	case v1alpha1.RecoverManual:
	}
	return from, "spec.recovery.quorumLoss is " + string(policy)
}

// fromNewest is the way back by the newest snapshot that was restored on trial of the life that is lost, or else what
// that life began with. Another one's data may have been rolled back on purpose, or be that of a cluster of the same
// name which was deleted long ago: it is taken only where there is nothing else, and a person asks.
func (v *view) fromNewest(from origin, asked bool) (origin, string) {
	newest, whosever := v.newestSnapshot(hex(v.epoch.clusterID)), v.newestSnapshot("")
	if asked && newest == nil && v.epoch.snapshot == nil {
		newest = whosever
	}
	from.source = objects.SourceSnapshot
	switch {
	case newest != nil:
		var why string
		from.snapshot, why = v.resolve(&v1alpha1.SnapshotSource{Name: newest.Name, IdentitySecret: v.identity()})
		return from, why
	case v.epoch.snapshot != nil:
		began := *v.epoch.snapshot
		began.SHA256 = cmp.Or(began.SHA256, v.epoch.sum)
		from.snapshot = &began
		return from, ""
	case whosever != nil:
		return from, fmt.Sprintf("no verified EtcdSnapshot was taken of it (etcd cluster %s); the newest one, %s, is "+
			"of another life, of etcd cluster %s: if that is what you want, %s",
			hex(v.epoch.clusterID), whosever.Name, cmp.Or(whosever.Status.ClusterID, "unknown"),
			v.recoverCommand(v1alpha1.RecoverFromSnapshot))
	}
	return from, fmt.Sprintf("no verified EtcdSnapshot of it is there (with the label %s=%s)", objects.LabelCluster,
		v.Cluster.Name)
}

// fromMember is the way back where no volume can be copied: what a member that still runs has applied, fetched from it.
func (v *view) fromMember(from origin) (origin, string) {
	switch {
	case !v.memory():
		return from, fmt.Sprintf("a survivor's data can't be copied on the medium %s; FromSnapshot and Recreate can "+
			"be done", v.Cluster.Spec.Storage.Medium)
	case v.answering() == "":
		return from, "no member that runs answers"
	case v.mayHaveQuorum():
		return from, "so many members run that they may have a quorum, although none answers"
	}
	from.source, from.survivorsOf = objects.SourceSurvivor, v.epoch.n
	from.member, _, _ = strings.Cut(v.answering(), ":")
	return from, ""
}

// answering are the members that answer although there is no quorum, the one that is ahead first, with the evidence;
// empty for none.
func (v *view) answering() string {
	able := filter(v.names, func(name string) bool {
		h, asked := v.Health[name]
		own := v.epoch.clusterID == 0 || h.ClusterID == v.epoch.clusterID
		return asked && h.Err == "" && own && v.hasData(name)
	})
	slices.SortStableFunc(able, func(a, b string) int {
		x, y := v.Health[a], v.Health[b]
		return cmp.Or(cmp.Compare(y.RaftTerm, x.RaftTerm), cmp.Compare(y.RaftIndex, x.RaftIndex))
	})
	var evidence []string
	for _, name := range able {
		evidence = append(evidence, fmt.Sprintf("%s: term %d, index %d", name, v.Health[name].RaftTerm,
			v.Health[name].RaftIndex))
	}
	return strings.Join(evidence, "; ")
}

// identity is the Secret by which encrypted snapshots of this cluster are read.
func (v *view) identity() string { return v.Cluster.Spec.Recovery.IdentitySecret }

// newestSnapshot is the newest one of the EtcdCluster that was restored on trial: of the etcd with this cluster ID,
// or of any if that is empty.
func (v *view) newestSnapshot(clusterID string) *v1alpha1.EtcdSnapshot {
	var newest *v1alpha1.EtcdSnapshot
	for _, name := range slices.Sorted(maps.Keys(v.Related.Snapshots)) {
		s := v.Related.Snapshots[name]
		if s.Spec.Cluster != v.Cluster.Name || s.Status.Phase != v1alpha1.SnapshotSucceeded ||
			s.Status.VerifiedAt.IsZero() || s.DeletionTimestamp != nil {
			continue
		}
		if clusterID != "" && s.Status.ClusterID != clusterID {
			continue
		}
		if newest == nil || newest.Status.Completed.Before(&s.Status.Completed) {
			newest = s
		}
	}
	return newest
}

// ---- whose data

// survivors are the members of an epoch whose volumes are all there. One that was given up does not count: it was
// silent for long, or proven wrong. A person who knows better takes the annotation failed-member off its claim; or
// puts it on one that is not to count.
func (v *view) survivors(epoch int) []string {
	return filter(v.membersWithVolumes(epoch), func(name string) bool { return !v.givenUp(name) })
}

// givenUp reports whether a member was given up, or is proven wrong. One that was about to be removed for its silence
// when the quorum was lost is neither: it may have the most.
func (v *view) givenUp(member string) bool {
	return slices.ContainsFunc([]string{member, WALClaim(member)}, func(name string) bool {
		claim := v.all.Claims[name]
		return ofFailedMember(claim) &&
			(quarantined(claim) || claim.Annotations[objects.AnnotationFailedMember] != objects.FailedSilent)
	})
}

// withoutGivenUp names the members of an epoch whose volumes are there and do not count; empty for none.
func (v *view) withoutGivenUp(epoch int) string {
	if all := filter(v.membersWithVolumes(epoch), v.givenUp); len(all) > 0 {
		return fmt.Sprintf(" (%s was given up before: its volume counts only without the annotation %s)",
			strings.Join(all, ", "), objects.AnnotationFailedMember)
	}
	return ""
}

// membersWithVolumes are the members of an epoch whose volumes are all there. One whose volume was never bound has
// none.
func (v *view) membersWithVolumes(epoch int) []string {
	var list []string
	for _, name := range slices.SortedFunc(maps.Keys(v.all.Claims), byOrdinal) {
		n, member := objects.Ordinal(v.Cluster.Name, name)
		claim, wal := v.all.Claims[name], v.all.Claims[WALClaim(name)]
		going := claim.DeletionTimestamp != nil || wal != nil && wal.DeletionTimestamp != nil
		if !member || !v.ours(claim) || neverBound(claim) || going {
			continue
		}
		of := objects.ReadMark(claim.Annotations[objects.AnnotationEpoch])
		if of == 0 && n >= v.epoch.first && (v.next == nil || n < v.next.epoch.first) {
			of = v.epoch.n
		}
		if of == epoch {
			list = append(list, name)
		}
	}
	return list
}

// neverBound reports whether no pod has ever mounted the claim's volume: it has none, and none is meant for it. What is
// Lost was bound. An old view can't hide that there is one: volumes are looked at when their claims are seen in
// quarantine, which comes after the last pod.
func neverBound(claim *corev1.PersistentVolumeClaim) bool {
	s := &claim.Spec
	return claim.Status.Phase == corev1.ClaimPending && s.VolumeName == "" && s.DataSource == nil &&
		s.DataSourceRef == nil
}

// surveySuffix makes the name of the pod that looks at a member's volumes.
const surveySuffix = "-survey"

// chooseSurvivor has a look at the volumes of all survivors, and takes the one whose log is ahead.
//
// One that can't be reached may be ahead of all others. So it is waited for, longer than Kubernetes takes to detach a
// volume from a dead node; then for a person, unless those that were reached are a majority of the voters: whatever
// was acknowledged is on one of these.
func (v *view) chooseSurvivor() *verdict {
	of := v.survivors(v.next.epoch.survivorsOf)
	if len(of) == 0 {
		return &verdict{message: fmt.Sprintf("no volume of epoch %d is left to seed epoch %d%s",
			v.next.epoch.survivorsOf, v.next.epoch.n, v.withoutGivenUp(v.next.epoch.survivorsOf)), outlook: Waits,
			resync: rule.ResyncLater}
	}
	s := v.survey(of)
	switch evidence := strings.Join(s.evidence, "; "); {
	case len(s.waits) > 0:
		return &verdict{message: fmt.Sprintf("looking at the volumes of %s", strings.Join(s.waits, ", ")),
			resync: rule.ResyncLater}
	case s.best == "":
		return &verdict{message: "no volume can be used: " + evidence, outlook: Waits, resync: rule.ResyncLater}
	case s.mixed:
		return &verdict{message: fmt.Sprintf("the volumes are of different etcd clusters, and which one epoch %d was "+
			"is not recorded: %s; %s", v.next.epoch.survivorsOf, evidence,
			v.discount("those that are not to count", "<name>")), outlook: Waits, resync: rule.ResyncLater}
	case len(s.unreached) > 0 && !v.goesOnWithout(&s):
		return &verdict{message: fmt.Sprintf("%s may have more than the others, and could not be reached within %s: "+
			"bring its node or its volume back; %s; %s",
			strings.Join(s.unreached, ", "), brief(v.surveyFor()), v.discount("it", strings.Join(s.unreached, " pvc/")),
			evidence), outlook: Waits, resync: rule.ResyncLater}
	}
	i := slices.IndexFunc(s.evidence, func(e string) bool { return strings.HasPrefix(e, s.best+":") })
	s.evidence[0], s.evidence[i] = s.evidence[i], s.evidence[0]
	evidence := strings.Join(s.evidence, "; ")
	return &verdict{message: fmt.Sprintf("%s has the most (%s)", s.best, evidence), survivor: evidence,
		resync: rule.ResyncSoon}
}

// survey is what is known of the volumes of survivors.
type survey struct {
	// best has the most of those that can be used, most is what it has; empty for none.
	best string
	most reports.Survey
	// reported have told what they hold, waits may still do so, and unreached were waited for long enough.
	reported, waits, unreached []string
	evidence                   []string
	// mixed: they are of several clusters, and nobody knows which one it was.
	mixed bool
}

func (v *view) survey(of []string) survey {
	var s survey
	known, clusters := v.clusterIDOf(v.next.epoch.survivorsOf), map[string]bool{}
	for _, name := range of {
		report, late := v.surveyed(name)
		switch {
		case report == nil && !late:
			s.waits = append(s.waits, name)
		case report == nil:
			s.unreached = append(s.unreached, name)
			s.evidence = append(s.evidence, fmt.Sprintf("%s: its volume could not be reached within %s%s", name,
				brief(v.surveyFor()), v.whyNotReported(v.all.Pods[name+surveySuffix])))
		case report.Error != "":
			s.evidence = append(s.evidence, fmt.Sprintf("%s: %s", name, report.Error))
		case known != 0 && report.ClusterID != hex(known):
			s.evidence = append(s.evidence, fmt.Sprintf("%s: its volume is that of another etcd cluster, %s instead "+
				"of %s, and does not count", name, report.ClusterID, hex(known)))
		default:
			s.reported = append(s.reported, name)
			clusters[report.ClusterID] = true
			s.evidence = append(s.evidence, fmt.Sprintf("%s: term %d, index %d", name, report.LastTerm,
				report.LastIndex))
			if s.best == "" || ahead(report, &s.most) {
				s.best, s.most = name, *report
			}
		}
	}
	if s.mixed = len(clusters) > 1; s.mixed && len(s.waits) == 0 {
		v.nameClusters(&s, of)
	}
	for _, name := range filter(v.membersWithVolumes(v.next.epoch.survivorsOf), v.givenUp) {
		s.evidence = append(s.evidence, name+": was given up before, and does not count")
	}
	return s
}

// nameClusters has the evidence say of which etcd cluster each volume is. There is one line for each of them.
func (v *view) nameClusters(s *survey, of []string) {
	for i, name := range of {
		if report, _ := v.surveyed(name); report != nil && report.Error == "" {
			s.evidence[i] += ", of etcd cluster " + report.ClusterID
		}
	}
}

// goesOnWithout reports whether the next epoch begins although a volume was not reached: a majority of the voters has
// told what it has. Else a person says so, on the claim: who asked for a survivor did not know yet which one can't be
// reached.
func (v *view) goesOnWithout(s *survey) bool {
	voters := strings.Split(v.pastOf(v.next.epoch.survivorsOf).voters, ".")
	reported := filter(voters,
		func(number string) bool { return slices.Contains(s.reported, v.Cluster.Name+"-"+number) })
	return len(reported) >= quorum(len(voters))
}

// discount is what a person does so that volumes do not count.
func (v *view) discount(which, claims string) string {
	return fmt.Sprintf("to go on without %s, kubectl annotate -n %s pvc/%s %s=true", which, v.Cluster.Namespace, claims,
		objects.AnnotationFailedMember)
}

// ahead compares logs as raft does in elections: whoever is not behind has everything that a quorum has acknowledged,
// if anybody here has.
func ahead(a, b *reports.Survey) bool {
	return a.LastTerm > b.LastTerm || a.LastTerm == b.LastTerm && a.LastIndex > b.LastIndex
}

// surveyAtLeast is how long a volume is waited for that can't be reached: kube-controller-manager detaches it from a
// dead node after 6 minutes (maxWaitForUnmountDuration in its attachdetach controller), and attaching it elsewhere
// takes time, too.
const surveyAtLeast = 10 * time.Minute

// surveyFor is how long a volume is waited for.
func (v *view) surveyFor() time.Duration { return max(surveyAtLeast, recoverAfter(&v.Cluster.Spec)) }

// surveyAgain is how long a pod that has ended without a word of its volume is left before it is made again.
const surveyAgain = 30 * time.Second

// surveyed is what a look at the member's volumes has told; nil for nothing yet, and late when that was waited for
// long enough. Only a volume that was read and has nothing whole tells that it does not count: a pod that was killed,
// or could not read what is there, says nothing of it.
func (v *view) surveyed(name string) (report *reports.Survey, late bool) {
	if report := surveyReport(v.all.Pods[name+surveySuffix]); report != nil {
		return report, false
	}
	return nil, v.observed(v.surveyedSince()) >= v.surveyFor()
}

// surveyReport is what the pod has told of its volume; nil for nothing.
func surveyReport(pod *corev1.Pod) *reports.Survey {
	t := surveyEnd(pod)
	if t == nil {
		return nil
	}
	report, err := reports.Read[reports.Survey](t.Message)
	if err != nil || report.Error == "" && report.ClusterID == "" || report.Error != "" && report.Reason != "Damaged" &&
		report.Reason != "NotFound" {
		return nil
	}
	return report
}

// surveyEnd is how the container of the pod has ended; nil when it has not, or nothing tells.
func surveyEnd(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	return objects.StatusOf(pod, objects.ContainerSurvey).State.Terminated
}

// surveyedSince is since when the volumes could be looked at: since the next epoch was recorded, and the volumes of the
// one before were put in quarantine. A pod that is made again does not begin the wait again.
func (v *view) surveyedSince() time.Time {
	since := v.next.epoch.record.CreationTimestamp.Time
	for name, claim := range v.all.Claims {
		if _, ours := memberOfClaim(v.Cluster.Name, name); !ours || !v.ours(claim) {
			continue
		}
		if at, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined]); err == nil &&
			at.After(since) {
			since = at
		}
	}
	return since
}

// whyNotReported is why a pod has not told anything of its volume, in brackets; empty for nothing known.
func (v *view) whyNotReported(pod *corev1.Pod) string {
	if pod == nil || !finished(pod) {
		return v.whyNotStarted(pod)
	}
	why := pod.Status.Reason
	if t := surveyEnd(pod); t != nil {
		why = cmp.Or(t.Reason, fmt.Sprintf("exit %d", t.ExitCode))
		if report, err := reports.Read[reports.Survey](t.Message); err == nil && report.Error != "" {
			why = report.Error
		}
	}
	return " (its pod has ended: " + cmp.Or(why, "Failed") + ")"
}

// reportedNothing reports whether a pod has ended without a word of its volume, and is to be made again: soon, and
// rarely once all were waited for long enough.
func (v *view) reportedNothing(pod *corev1.Pod) bool {
	if !finished(pod) || surveyReport(pod) != nil {
		return false
	}
	after := surveyAgain
	if v.observed(v.surveyedSince()) >= v.surveyFor() {
		after = v.surveyFor()
	}
	return v.Now.Sub(pod.CreationTimestamp.Time) >= after
}

// surveyPods look at the survivors' volumes, while nobody is chosen.
func (v *view) surveyPods(decision *verdict) []*corev1.Pod {
	if v.next == nil || v.cancelled() || v.next.epoch.source != objects.SourceSurvivor || v.next.epoch.survivor != "" ||
		decision.survivor != "" {
		return nil
	}
	if v.ending() && v.lingering() != "" {
		return nil
	}
	var pods []*corev1.Pod
	for _, name := range v.survivors(v.next.epoch.survivorsOf) {
		switch old := v.all.Pods[name+surveySuffix]; {
		case old == nil:
			pods = append(pods, v.surveyPod(name))
		case !v.reportedNothing(old):
			pods = append(pods, kept(v.Cluster, old))
		}
	}
	return pods
}

func (v *view) surveyPod(name string) *corev1.Pod {
	s := &v.Cluster.Spec
	survey := corev1.Container{
		Name: objects.ContainerSurvey, Image: v.Settings.Image, ImagePullPolicy: v.Settings.ImagePullPolicy,
		Command:                  []string{objects.SnapshotProgram},
		Args:                     []string{"survey", "--data-dir=" + survivorMount + "/data"},
		SecurityContext:          objects.Restricted(),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: volumeSurvivor, MountPath: survivorMount, ReadOnly: true}},
	}
	volumes := []corev1.Volume{claimVolume(volumeSurvivor, name)}
	if v.all.Claims[WALClaim(name)] != nil {
		survey.Args = append(survey.Args, "--wal-dir="+survivorWALMount+"/wal")
		survey.VolumeMounts = append(survey.VolumeMounts,
			corev1.VolumeMount{Name: volumeSurvivorWAL, MountPath: survivorWALMount, ReadOnly: true})
		volumes = append(volumes, claimVolume(volumeSurvivorWAL, WALClaim(name)))
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name + surveySuffix, Labels: surveyLabels(v.Cluster),
			Annotations: annotations(v.Cluster, nil)},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever,
			AutomountServiceAccountToken: new(false),
			EnableServiceLinks:           new(false),
			SecurityContext:              objects.PodSecurity(),
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
	delete(all, objects.LabelCluster)
	return all
}

// ---- what people see

// originStatus is where the data comes from; nil for nowhere.
func (e *epoch) originStatus() *v1alpha1.OriginStatus {
	if e.source == objects.SourceEmpty && e.after == 0 {
		return nil
	}
	s := &v1alpha1.OriginStatus{Source: e.source, After: int64(e.after), Restore: e.restore, Survivor: e.survivor,
		Evidence: e.evidence}
	if e.snapshot != nil {
		s.Snapshot = e.snapshot.URL
	}
	return s
}

// restored is the condition Restored: whether the cluster has the data that spec.restore asks for; false when it asks
// for none.
func restored(v *view) (reason, message string, is, shown bool) {
	r := v.Cluster.Spec.Restore
	switch {
	case v.next != nil:
		reason, message = v.staged()
		return reason, message, false, true
	case r == nil:
		return "", "", false, false
	case v.epoch == nil:
		_, why := v.beginning()
		return "Waiting", cmp.Or(why, "the cluster has not begun"), false, true
	case v.epoch.restore == r.ID:
		reason, message, is = v.answers()
		return reason, message, is, true
	}
	_, why := v.restoreSource(r)
	switch {
	case v.answered()[r.ID] != 0:
		return v1alpha1.AnsweredBefore, fmt.Sprintf("spec.restore %q: %s", r.ID, why), false, true
	case why == "" && v.membersMissing() && !v.mayStopFirst(r):
		return "Waiting", fmt.Sprintf("spec.restore %q waits until epoch %d has all its members; with stopFirst it "+
			"would not", r.ID, v.epoch.n), false, true
	}
	return "Impossible", fmt.Sprintf("spec.restore %q: %s; the data is untouched", r.ID, cmp.Or(why, "about to begin")),
		false, true
}

// staged is how far the next epoch has come.
func (v *view) staged() (reason, message string) {
	if v.ending() {
		return "Stopping", fmt.Sprintf("epoch %d is being stopped or is over; epoch %d is about to begin", v.epoch.n,
			v.next.epoch.n)
	}
	waits := v.staging()
	if waits == "" {
		return "Staging", fmt.Sprintf("epoch %d is ready", v.next.epoch.n)
	}
	beside := ""
	if v.Etcd != nil {
		beside = fmt.Sprintf(", and epoch %d runs on", v.epoch.n)
	}
	return "Staging", fmt.Sprintf("epoch %d is being made ready%s: %s", v.next.epoch.n, beside, waits)
}

// answers is whether the epoch that runs has what spec.restore asks for, as its record says.
func (v *view) answers() (reason, message string, is bool) {
	id := v.epoch.restore
	if why := v.differing(); why != "" {
		return "Differing", why, false
	}
	if v.epoch.filled() && !v.epoch.hadQuorum() && v.Etcd == nil {
		return "Starting", fmt.Sprintf("epoch %d has begun with what spec.restore %q asks for, and has not come to "+
			"its first quorum yet", v.epoch.n, id), false
	}
	return "Restored", fmt.Sprintf("epoch %d began with what spec.restore %q asks for", v.epoch.n, id), true
}
