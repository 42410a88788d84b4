package hooks

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/reports"
)

// inEpoch are those children of the answer that are of the view's epoch, or of none.
func (j *judgement) inEpoch(v *view) Desired {
	d := j.d.Children
	first, below := 0, objects.MostMembers
	if v.epoch != nil {
		first = v.epoch.first
	}
	if v.next != nil {
		below = v.next.epoch.first
	}
	for _, cm := range j.begun() { // an epoch that is only now recorded
		below = min(below, objects.ReadMark(cm.Data[objects.EpochKeyFirst]))
	}
	own := func(name string) bool {
		n, numbered := objects.Ordinal(j.o.Cluster.Name, name)
		return !numbered || n >= first && n < below
	}
	d.Pods = filter(d.Pods, func(p *corev1.Pod) bool { return own(p.Name) && !v.isSurveyPod(p.Name) })
	d.Claims = filter(d.Claims, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := memberOfClaim(j.o.Cluster.Name, c.Name)
		return own(member)
	})
	return d
}

// begun are the records of the answer that were not observed so.
func (j *judgement) begun() []*corev1.ConfigMap {
	return filter(j.d.Children.ConfigMaps, func(cm *corev1.ConfigMap) bool {
		old := j.o.Children.ConfigMaps[cm.Name]
		return cm.Data[objects.EpochKeyAfter] != "" && (old == nil || !maps.Equal(old.Data, cm.Data))
	})
}

// succession checks what becomes of epochs, one after the other (S8).
func (j *judgement) succession() {
	for _, cm := range j.begun() {
		j.newEpoch(cm)
	}
	j.former()
	j.seeds(j.v)
	next := j.v.next
	if next == nil {
		j.gates(j.v)
		return
	}
	if _, adds := j.d.Step.(AddLearner); adds {
		j.require(false, "S8", "%s while epoch %d is about to take over", j.d.Step, next.epoch.n)
	}
	j.phases(next)
	j.seeds(next)
	j.gates(next)
	j.gates(j.v)
	j.marks(next)
	if !j.v.cancelled() {
		for name := range next.Children.Claims {
			j.require(j.hasClaim(name), "S8", "the claim %s goes, of an epoch that is to come", name)
		}
	}
	if !j.v.ending() {
		return
	}
	j.require(j.d.Step == nil, "S8", "%s in an epoch that is being stopped", j.d.Step)
	for name := range j.v.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!ours || j.pod(name) == nil, "S8", "the pod %s stays, whose epoch is being stopped", name)
	}
	for name := range j.v.Children.Claims {
		j.require(j.hasClaim(name), "S8", "the claim %s goes, of an epoch that is being stopped", name)
	}
}

// newEpoch: an epoch takes over from the one that runs, and its members have numbers that nobody has had.
func (j *judgement) newEpoch(cm *corev1.ConfigMap) {
	n, _ := objects.Ordinal(j.o.Cluster.Name+"-epoch", cm.Name)
	e := parseEpoch(n, cm)
	j.require(j.v.epoch != nil && e.n > j.v.epoch.n && e.after == j.v.epoch.n, "S8",
		"epoch %d takes over from %d, which does not run", e.n, e.after)
	j.require(!e.began(), "S8", "epoch %d begins at once", e.n)
	j.require(j.o.Children.ConfigMaps[cm.Name] == nil, "S8", "epoch %d takes the record of another one", e.n)
	j.require(len(j.begun()) == 1, "S8", "several epochs are recorded at once")
	j.require(j.v.next == nil || j.v.ending() && e.n > j.v.next.epoch.n && j.records(j.v.next.epoch.record.Name) != nil,
		"S8", "epoch %d is recorded in place of epoch %d", e.n, e.n-1)
	j.remembers(e)
	for name := range e.initial {
		i, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(ours && i >= e.first && i >= j.v.nextOrdinal(), "S9", "%s of epoch %d has a number that was used",
			name, e.n)
	}
	if e.source == objects.SourceSurvivor && e.survivorsOf == j.v.epoch.n || e.restore != j.v.epoch.restore {
		return
	}
	j.require(j.v.Etcd == nil, "S8", "epoch %d is recorded although a quorum answers and nobody has asked", e.n)
	_, asked := j.v.recoverBy()
	j.require(asked || j.v.ending() || !j.v.mayHaveQuorum(), "S14",
		"epoch %d is recorded although %v may have a quorum", e.n, j.v.mayVote())
}

// remembers: the next epoch begins above all revisions (S21), and answers what no one before it has.
func (j *judgement) remembers(e *epoch) {
	j.require(e.bump != nil || e.floor >= j.seenRevision(), "S21",
		"epoch %d begins above revision %d, and epoch %d has come to %d", e.n, e.floor, e.after, j.seenRevision())
	j.require(e.restore == j.v.epoch.restore || j.v.answered()[e.restore] == 0, "S8",
		"epoch %d answers spec.restore %q, which was answered before", e.n, e.restore)
}

// seenRevision is the highest that the epoch that runs, or one before it, is seen or noted to have given out.
func (j *judgement) seenRevision() int64 {
	var highest int64
	if old := j.v.epoch; old != nil && old.record != nil {
		highest = revisionIn(old.record.Annotations[objects.AnnotationHighestRevision])
	}
	if peers := j.o.Children.Services[objects.PeerService(j.o.Cluster.Name)]; peers != nil {
		highest = max(highest, revisionIn(peers.Annotations[objects.AnnotationHighestRevision]))
	}
	for _, h := range j.o.Health {
		if j.v.Etcd != nil && h.Err == "" && h.ClusterID == j.v.Etcd.ClusterID && j.v.epoch.clusterID == h.ClusterID {
			highest = max(highest, h.Revision)
		}
	}
	return highest
}

// filledAlike: the members of an epoch that begins have the same data, above all revisions that were given out, and
// what they were filled with is noted (S21).
func (j *judgement) filledAlike(next *view, now *epoch) {
	if !now.filled() {
		return
	}
	var first *reports.Restore
	for _, name := range now.initialNames() {
		report := seedReport(next.Children.Pods[name])
		j.require(report != nil, "S21", "epoch %d begins, and %s does not say what it was filled with", now.n, name)
		if report == nil {
			continue
		}
		if first == nil {
			first = report
		}
		same := *report
		if same.Hash == "" || first.Hash == "" { // in the middle of a compaction
			same.Keys, same.Hash = first.Keys, first.Hash
		}
		if now.source != objects.SourceSnapshot {
			same.SHA256 = first.SHA256
		}
		j.require(same == *first, "S21", "epoch %d begins with %+v and %+v", now.n, *first, *report)
		j.require(now.highest > report.Revision, "S21", "epoch %d begins at revision %d, and only %d is noted", now.n,
			report.Revision, now.highest)
		j.require(now.bump != nil || report.Revision > now.floor, "S21", "epoch %d begins at revision %d, not above %d",
			now.n, report.Revision, now.floor)
	}
}

// seeds checks what initial members are filled with: none of several fetches what could be something else than the
// others have, and all begin at one revision (S21).
func (j *judgement) seeds(v *view) {
	if v.epoch == nil || v.epoch.record == nil || !v.epoch.filled() || v.epoch.hadQuorum() {
		return
	}
	for _, pod := range j.d.Children.Pods {
		if v.epoch.initial[pod.Name] == "" || podStart(pod) != objects.StartBootstrap {
			continue
		}
		old := v.Children.Pods[pod.Name]
		j.require(pod.Name == v.firstToFill() || !v.epoch.unknownSum() || v.epoch.sum != "" || gated(pod) ||
			old != nil && !gated(old), "S21",
			"%s is filled before it is known with what", pod.Name)
		args := ""
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
				args = strings.Join(c.Args, " ")
			}
		}
		j.require(strings.Contains(args, strings.Join(v.epoch.beginArgs(), " ")), "S21",
			"%s is not told at which revision its epoch begins", pod.Name)
	}
}

// records is the record of this name in the answer; nil for none.
func (j *judgement) records(name string) *corev1.ConfigMap {
	i := slices.IndexFunc(j.d.Children.ConfigMaps, func(cm *corev1.ConfigMap) bool { return cm.Name == name })
	if i < 0 {
		return nil
	}
	return j.d.Children.ConfigMaps[i]
}

// phases: an epoch is stopped when the next one is ready, or can't be before; and that begins when nothing is left of
// the one before.
func (j *judgement) phases(next *view) {
	cm := j.records(next.epoch.record.Name)
	if cm == nil {
		j.require(next.epoch.phase == phaseCancelled && next.leavesNothing(), "S8",
			"the record of epoch %d goes, and there is more of it", next.epoch.n)
		return
	}
	now := parseEpoch(next.epoch.n, cm)
	switch now.phase {
	case next.epoch.phase:
	case phaseCancelled:
		j.require(next.epoch.phase == phaseStaging, "S8", "epoch %d is cancelled in the phase %q", now.n,
			next.epoch.phase)
	case phaseStopping:
		j.require(next.epoch.phase == phaseStaging, "S8", "epoch %d is stopped for epoch %d in the phase %q",
			j.v.epoch.n, now.n, next.epoch.phase)
		r := j.o.Cluster.Spec.Restore
		j.require(next.unstaged() == "" || r != nil && r.StopFirst, "S8",
			"epoch %d is stopped before epoch %d is ready", j.v.epoch.n, next.epoch.n)
		j.require(now.bump != nil || j.seenRevision() <= now.floor+revisionGap, "S21",
			"epoch %d is stopped at revision %d, and epoch %d begins at %d", j.v.epoch.n, j.seenRevision(), now.n,
			now.floor+revisionGap)
		j.require(j.v.epoch.record == nil || j.records(j.v.epoch.record.Name) != nil, "S8",
			"the record of epoch %d goes before it is written down that it is stopped", j.v.epoch.n)
	case phaseBegan:
		j.require(now.bump != nil || now.member != "" || j.seenRevision() <= now.floor+revisionGap, "S21",
			"epoch %d begins at revision %d, and epoch %d has come to %d", now.n, now.floor+revisionGap, j.v.epoch.n,
			j.seenRevision())
		j.begins(next)
		j.filledAlike(next, now)
	default:
		j.require(false, "S8", "epoch %d goes back to the phase %q", now.n, now.phase)
	}
}

// begins: no pod of the epoch before is left, nor can one start, and the view of pods is no older than that.
func (j *judgement) begins(next *view) {
	before := j.v.epoch.n
	j.require(next.epoch.phase == phaseStopping, "S8", "epoch %d begins before the one before was stopped",
		next.epoch.n)
	j.require(j.v.epoch.record == nil, "S8", "epoch %d begins while pods of epoch %d may still start", next.epoch.n,
		before)
	for name, pod := range j.v.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!ours || finished(pod), "S8", "epoch %d begins while %s is left of epoch %d", next.epoch.n, name,
			before)
	}
	for name, claim := range j.v.Children.Claims {
		j.require(!j.v.ours(claim) || claim.DeletionTimestamp != nil || quarantined(claim), "S8",
			"epoch %d begins while a pod may be made on %s", next.epoch.n, name)
	}
	sees := false
	for _, pod := range next.Children.Pods {
		sees = sees || pod.Annotations[objects.AnnotationPredecessorGone] != ""
	}
	j.require(sees, "S8", "epoch %d begins on a view of pods that may lag", next.epoch.n)
}

// marks: that the record of the epoch before is gone is noted when it is, and not before.
func (j *judgement) marks(next *view) {
	for _, pod := range j.d.Children.Pods {
		old := j.o.Children.Pods[pod.Name]
		if pod.Annotations[objects.AnnotationPredecessorGone] != "" &&
			(old == nil || old.Annotations[objects.AnnotationPredecessorGone] == "") {
			j.require(next.epoch.phase == phaseStopping && j.v.epoch.record == nil, "S8",
				"%s says that epoch %d is over, whose record is there", pod.Name, j.v.epoch.n)
		}
	}
}

// gates: no member of an epoch that has not begun gets to its etcd, and none of another epoch.
func (j *judgement) gates(v *view) {
	for _, pod := range j.d.Children.Pods {
		if v.epoch == nil || !v.inEpoch(pod.Name) {
			continue
		}
		opens := pod.Annotations[objects.AnnotationBegins] != ""
		if v.epoch.began() {
			j.require(!opens || namesRecord(pod) == objects.EpochName(j.o.Cluster.Name, v.epoch.n), "S8",
				"the pod %s may begin, and was not made for epoch %d", pod.Name, v.epoch.n)
			continue
		}
		j.require(awaits(pod) && strings.Contains(strings.Join(prepareOf(pod).Args, " "), "--await=") || gated(pod),
			"S8", "the pod %s does not wait for its epoch to begin", pod.Name)
		j.require(!opens, "S8", "the pod %s may begin before its epoch", pod.Name)
	}
}

// former: claims of earlier epochs go when they were kept long enough, and the epoch that runs serves; no pod runs on
// them.
func (j *judgement) former() {
	if j.v.epoch == nil || j.v.epoch.first == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(j.o.Children.Claims)) {
		claim := j.o.Children.Claims[name]
		member, _ := memberOfClaim(j.o.Cluster.Name, name)
		n, ours := objects.Ordinal(j.o.Cluster.Name, member)
		if !ours || n >= j.v.epoch.first || j.hasClaim(name) || claim.DeletionTimestamp != nil {
			continue
		}
		since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
		kept := err == nil && j.o.Now.Sub(since) >= keepVolumesFor(&j.o.Cluster.Spec)
		j.require(j.v.Etcd != nil && kept && j.v.ours(claim), "S7", "the claim %s of an earlier epoch goes too early",
			name)
	}
	for _, pod := range j.d.Children.Pods {
		n, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name)
		j.require(!ours || n >= j.v.epoch.first, "S8", "the pod %s of an earlier epoch is in the answer", pod.Name)
	}
}

// ---- the record

// record checks the epoch record and what every answer must hold.
func (j *judgement) record() {
	if old := j.v.epoch; old != nil && old.record != nil {
		i := slices.IndexFunc(j.d.Children.ConfigMaps,
			func(c *corev1.ConfigMap) bool { return c.Name == old.record.Name })
		j.require(i >= 0, "S8", "the epoch record is gone from the answer")
		if i >= 0 {
			now := parseEpoch(old.n, j.d.Children.ConfigMaps[i])
			j.require(now.nextOrdinal >= old.nextOrdinal, "S9", "the mark goes back from %d to %d", old.nextOrdinal,
				now.nextOrdinal)
			j.require(!old.hadQuorum() || now.clusterID == old.clusterID, "S8", "the recorded cluster ID changes")
			j.require(now.highest >= old.highest, "S21", "the highest revision that is noted goes back from %d to %d",
				old.highest, now.highest)
			j.require(old.sum == "" || now.sum == old.sum, "S21", "the SHA-256 that the first member has found changes")
			j.foreign(old, now)
			j.joins(old, now)
			j.mismatched(old, now)
			j.startsOn(old, now)
			j.version(old, now)
		}
	} else {
		for _, cm := range j.d.Children.ConfigMaps {
			_, read := objects.Ordinal(j.o.Cluster.Name+"-epoch", cm.Name) // another name is nobody's record
			bootstraps := read && cm.Annotations[objects.AnnotationStartsOn] == "" &&
				cm.Data[objects.EpochKeyToken] != ""
			takesOver := cm.Data[objects.EpochKeyAfter] != ""
			j.require(!bootstraps || takesOver || old == nil && !j.v.ranBefore(), "S8", "a second bootstrap: %s",
				cm.Name)
		}
	}
	j.require(len(j.d.Children.Services) == 2 && len(j.d.Children.Budgets) == 1, "S13",
		"the answer lacks a Service or the budget")
}

// version checks that the members go to another version in steps that etcd can take, up or down (S18).
func (j *judgement) version(old, now *epoch) {
	from, err := parseRelease(old.version)
	to, err2 := parseRelease(now.version)
	if old.version == now.version || j.besideForeign() &&
		!slices.ContainsFunc(j.v.members, func(m *member) bool { return m.name != "" }) || !old.hadQuorum() &&
		j.v.Etcd == nil || err != nil {
		return
	}
	j.require(err2 == nil && j.v.Etcd != nil, "S18", "the version goes from %s to %s without a quorum's answer",
		old.version, now.version)
	if from.minor == to.minor || j.stillRuns(to) { // a patch release, or taken back on the way
		return
	}
	all := func(is func(*member) bool) bool { return len(filter(j.v.members, is)) == len(j.v.members) }
	switch to.minor {
	case from.minor + 1:
		arrived := func(m *member) bool { return m.serving() && m.health.Version == old.version }
		j.require(all(arrived), "S18", "on to %s before all members have arrived at %s", to, from)
		j.require(supported(from) && !from.less(versionGates[from.minor-newest[0].minor].below), "S18",
			"from %s to %s over a release that is not safe", from, to)
	case from.minor - 1:
		lowered := func(m *member) bool { return m.serving() && m.health.StorageVersion == to.base() }
		j.require(all(lowered), "S18", "down to %s before etcd has lowered the format of everybody's data", to)
	default:
		j.require(false, "S18", "from %s to %s in one step", from, to)
	}
}

// stillRuns reports whether a voter that serves runs this minor version, and no downgrade is under way.
func (j *judgement) stillRuns(r release) bool {
	return slices.ContainsFunc(j.v.voters, func(m *member) bool {
		has, err := parseRelease(m.health.Version)
		return m.serving() && err == nil && has.minor == r.minor && m.health.Downgrade == ""
	})
}

// startsOn checks that what a member may start on is never exchanged, and forgotten only with the member.
func (j *judgement) startsOn(old, now *epoch) {
	for name, uid := range old.startsOn {
		member, _ := memberOfClaim(j.o.Cluster.Name, name)
		gone := j.v.Etcd != nil && j.v.find(member) == nil
		j.require(now.startsOn[name] == uid || gone, "S10", "what %s may start on changes", name)
	}
	for name := range now.startsOn {
		member, _ := memberOfClaim(j.o.Cluster.Name, name)
		m := j.v.find(member)
		j.require(old.startsOn[name] != "" || !old.provisioned() || m != nil && m.Learner && !m.Started() &&
			old.startsOn[member] == "", "S10", "%s may start empty, but is no new learner", name)
	}
}
