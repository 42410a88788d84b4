package safety

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// inEpoch are those children of the answer that are of the view's epoch, or of none.
func inEpoch(j *judgement, f *facts.Facts) decision.Desired {
	d := j.d.Children
	first := 0
	below := objects.MostMembers
	if f.Epoch != nil {
		first = f.Epoch.First
	}
	if f.Next != nil {
		below = f.Next.Epoch.First
	}
	for _, e := range begun(j) { // an epoch that is only now recorded
		below = min(below, e.First)
	}
	own := func(name string) bool {
		n, numbered := objects.Ordinal(j.o.Cluster.Name, name)
		return !numbered || n >= first && n < below
	}
	d.Pods = objects.Filter(d.Pods, func(p *corev1.Pod) bool { return own(p.Name) && !f.IsInspectPod(p.Name) })
	d.Claims = objects.Filter(d.Claims, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := facts.MemberOfClaim(j.o.Cluster.Name, c.Name)
		return own(member)
	})
	return d
}

// begun are the epochs of the answer that take over from another, and were not observed so.
func begun(j *judgement) []*facts.Epoch {
	var list []*facts.Epoch
	for _, cm := range j.d.Children.ConfigMaps {
		e := answered(j, cm)
		old := j.o.Children.ConfigMaps[cm.Name]
		if e != nil && e.After != 0 && (old == nil || !maps.Equal(old.Data, cm.Data)) {
			list = append(list, e)
		}
	}
	return list
}

// answered is the epoch of a record in the answer; nil for what is none.
func answered(j *judgement, cm *corev1.ConfigMap) *facts.Epoch {
	n, is := record.Is(j.o.Cluster.Name, cm)
	if !is {
		return nil
	}
	e, err := facts.ParseEpoch(n, cm)
	j.require(err == nil, "S8", "the record %s in the answer can't be read", cm.Name)
	return e
}

// switchover checks what becomes of epochs, one after the other (S8).
func switchover(j *judgement) {
	for _, e := range begun(j) {
		newEpoch(j, e)
	}
	former(j)
	seeds(j, j.f)
	members(j, j.f)
	next := j.f.Next
	if next == nil {
		gates(j, j.f)
		return
	}
	if _, adds := j.d.Step.(decision.AddLearner); adds {
		j.require(false, "S8", "%s while epoch %d is about to take over", j.d.Step, next.Epoch.N)
	}
	phases(j, next)
	seeds(j, next)
	members(j, next)
	gates(j, next)
	gates(j, j.f)
	marks(j, next)
	if !j.f.Cancelled() {
		for name := range next.Children.Claims {
			j.require(hasClaim(j, name), "S8", "the claim %s goes, of an epoch that is to come", name)
		}
	}
	if !j.f.Ending() {
		return
	}
	j.require(j.d.Step == nil, "S8", "%s in an epoch that is being stopped", j.d.Step)
	for name := range j.f.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!ours || podIn(j, name) == nil, "S8", "the pod %s stays, whose epoch is being stopped", name)
	}
	for name := range j.f.Children.Claims {
		j.require(hasClaim(j, name), "S8", "the claim %s goes, of an epoch that is being stopped", name)
	}
}

// newEpoch: an epoch takes over from the one that runs, and its members have numbers that no member has had.
func newEpoch(j *judgement, e *facts.Epoch) {
	j.require(j.f.Epoch != nil && e.N > j.f.Epoch.N && e.After == j.f.Epoch.N, "S8",
		"epoch %d takes over from %d, which does not run", e.N, e.After)
	j.require(!e.Began(), "S8", "epoch %d begins at once", e.N)
	j.require(j.o.Children.ConfigMaps[e.Record.Name] == nil, "S8", "epoch %d takes the record of another one", e.N)
	j.require(len(begun(j)) == 1, "S8", "several epochs are recorded at once")
	j.require(j.f.Next == nil || j.f.Ending() && e.N > j.f.Next.Epoch.N &&
		records(j, j.f.Next.Epoch.Record.Name) != nil, "S8", "epoch %d is recorded in place of epoch %d", e.N, e.N-1)
	remembers(j, e)
	newNumbers(j, e)
	asked(j, e)
	plannedVersion(j, e)
	if e.Restore != j.f.Epoch.Restore {
		return
	}
	j.require(j.f.Etcd == nil || j.f.Ending(), "S8",
		"epoch %d is recorded although a quorum answers and no one has asked", e.N)
	_, byOperation := j.f.RecoverBy()
	ran := len(j.f.Unproven()) > 0
	j.require(byOperation || j.f.Ending() || !j.f.MayHaveQuorum() || !ran, "S14",
		"epoch %d is recorded although %v may have a quorum", e.N, j.f.MayVote())
}

// newNumbers: the members of an epoch have numbers that no member has had, and none can have been given (S9).
func newNumbers(j *judgement, e *facts.Epoch) {
	least := j.f.NextOrdinal()
	if j.f.Etcd == nil && j.f.Next == nil && j.f.Epoch.HadQuorum() {
		least++ // no quorum tells whether the next number was given to a member, and a call may not have noted it
	}
	for name := range e.Initial {
		i, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(ours && i >= e.First && i >= least, "S9", "%s of epoch %d has a number that was used, or may have been",
			name, e.N)
	}
}

// remembers: the next epoch begins above all revisions (S21), and answers what no one before it has.
func remembers(j *judgement, e *facts.Epoch) {
	j.require(e.Floor >= seenRevision(j), "S21",
		"epoch %d begins above revision %d, and epoch %d has come to %d", e.N, e.Floor, e.After, seenRevision(j))
	j.require(e.Restore == j.f.Epoch.Restore || j.f.Answered()[e.Restore] == 0, "S8",
		"epoch %d answers the restore %q, which was answered before", e.N, e.Restore)
}

// seenRevision is the highest that the epoch that runs, or one before it, is seen or noted to have given out.
func seenRevision(j *judgement) int64 {
	var highest int64
	if old := j.f.Epoch; old != nil && old.Record != nil {
		highest = old.Highest
	}
	if peers := j.o.Children.Services[objects.PeerService(j.o.Cluster.Name)]; peers != nil {
		highest = max(highest, facts.RevisionIn(peers.Annotations[objects.AnnotationHighestRevision]))
	}
	for _, h := range j.o.Health {
		if j.f.Etcd != nil && h.Err == "" && h.ClusterID == j.f.Etcd.ClusterID && j.f.Epoch.ClusterID == h.ClusterID {
			highest = max(highest, h.Revision)
		}
	}
	return highest
}

// filledAlike: the members of an epoch that begins have the same data, above all revisions that were given out, and
// what they were filled with is noted (S21).
func filledAlike(j *judgement, next *facts.Facts, now *facts.Epoch) {
	if !now.Filled() {
		return
	}
	var first *stores.Restore
	for _, name := range now.InitialNames() {
		report := facts.SeedReport(next.Children.Pods[name])
		j.require(report != nil, "S21", "epoch %d begins, and %s does not say what it was filled with", now.N, name)
		if report == nil {
			continue
		}
		if first == nil {
			first = report
		}
		same := *report
		if same.Hash == "" || first.Hash == "" { // in the middle of a compaction
			same.Keys = first.Keys
			same.Hash = first.Hash
		}
		if now.Source != record.SourceSnapshot {
			same.SHA256 = first.SHA256
		}
		same.UntilTime = first.UntilTime
		same.Ended = first.Ended // the others end where the first one did
		j.require(same == *first, "S21", "epoch %d begins with %+v and %+v", now.N, *first, *report)
		j.require(now.Highest > report.Revision, "S21", "epoch %d begins at revision %d, and only %d is noted", now.N,
			report.Revision, now.Highest)
		j.require(report.Revision > now.Floor, "S21", "epoch %d begins at revision %d, not above %d", now.N,
			report.Revision, now.Floor)
	}
}

// seeds checks what initial members are filled with: none of several fetches what could be something else than the
// others have, and all begin at one revision (S21).
func seeds(j *judgement, f *facts.Facts) {
	if f.Epoch == nil || f.Epoch.Record == nil || !f.Epoch.Filled() || f.Epoch.HadQuorum() {
		return
	}
	for _, pod := range j.d.Children.Pods {
		if f.Epoch.Initial[pod.Name] == "" || facts.PodStart(pod) != objects.StartBootstrap {
			continue
		}
		old := f.Children.Pods[pod.Name]
		may := pod.Name == f.FirstToFill() || !f.Epoch.FirstAlone()
		already := old != nil && !facts.Gated(old)
		j.require(may || already || facts.Gated(pod), "S21", "%s is filled before it is known with what", pod.Name)
		args := ""
		for i := range pod.Spec.InitContainers {
			if c := &pod.Spec.InitContainers[i]; c.Name == objects.ContainerSeed {
				args = strings.Join(c.Args, " ")
			}
		}
		j.require(strings.Contains(args, f.Epoch.BeginArg()), "S21",
			"%s is not told at which revision its epoch begins", pod.Name)
	}
}

// records is what the record of this name in the answer says; nil for none.
func records(j *judgement, name string) *facts.Epoch {
	cm := objects.First(j.d.Children.ConfigMaps, func(cm *corev1.ConfigMap) bool { return cm.Name == name })
	if cm == nil {
		return nil
	}
	return answered(j, cm)
}

// phases: an epoch is stopped when the next one is ready, or can't be before; and that begins when nothing is left of
// the one before.
func phases(j *judgement, next *facts.Facts) {
	now := records(j, next.Epoch.Record.Name)
	if now == nil {
		j.require(next.Epoch.Phase == record.PhaseCancelled && next.LeavesNothing(), "S8",
			"the record of epoch %d goes, and there is more of it", next.Epoch.N)
		return
	}
	j.require(now.Version == next.Epoch.Version, "S18", "epoch %d, which has not begun, is to run %s instead of %s", now.N,
		now.Version, next.Epoch.Version)
	switch now.Phase {
	case next.Epoch.Phase:
	case record.PhaseCancelled:
		j.require(next.Epoch.Phase == record.PhasePreparing, "S8", "epoch %d is cancelled in the phase %q", now.N,
			next.Epoch.Phase)
	case record.PhaseStopping:
		j.require(next.Epoch.Phase == record.PhasePreparing, "S8", "epoch %d is stopped for epoch %d in the phase %q",
			j.f.Epoch.N, now.N, next.Epoch.Phase)
		r := j.f.Asked.Restore
		j.require(next.Unprepared() == "" || r != nil && r.StopFirst, "S8",
			"epoch %d is stopped before epoch %d is ready", j.f.Epoch.N, next.Epoch.N)
		j.require(seenRevision(j) <= now.Floor+facts.RevisionGap, "S21",
			"epoch %d is stopped at revision %d, and epoch %d begins at %d", j.f.Epoch.N, seenRevision(j), now.N,
			now.Floor+facts.RevisionGap)
		j.require(j.f.Epoch.Record == nil || records(j, j.f.Epoch.Record.Name) != nil, "S8",
			"the record of epoch %d goes before it is written down that it is stopped", j.f.Epoch.N)
	case record.PhaseBegan:
		j.require(now.Member != "" || seenRevision(j) <= now.Floor+facts.RevisionGap, "S21",
			"epoch %d begins at revision %d, and epoch %d has come to %d", now.N, now.Floor+facts.RevisionGap,
			j.f.Epoch.N,
			seenRevision(j))
		begins(j, next)
		filledAlike(j, next, now)
	default:
		j.require(false, "S8", "epoch %d goes back to the phase %q", now.N, now.Phase)
	}
}

// begins: no pod of the epoch before is left, nor can one start, and the view of pods is no older than that.
func begins(j *judgement, next *facts.Facts) {
	before := j.f.Epoch.N
	j.require(next.Epoch.Phase == record.PhaseStopping, "S8", "epoch %d begins before the one before was stopped",
		next.Epoch.N)
	j.require(j.f.Epoch.Record == nil, "S8", "epoch %d begins while pods of epoch %d may still start", next.Epoch.N,
		before)
	for name, pod := range j.f.Children.Pods {
		_, ours := objects.Ordinal(j.o.Cluster.Name, name)
		j.require(!ours || facts.Finished(pod), "S8", "epoch %d begins while %s is left of epoch %d", next.Epoch.N,
			name,
			before)
	}
	for name, claim := range j.f.Children.Claims {
		j.require(!j.f.Ours(claim) || claim.DeletionTimestamp != nil || facts.Quarantined(claim), "S8",
			"epoch %d begins while a pod may be made on %s", next.Epoch.N, name)
	}
	sees := false
	for _, pod := range next.Children.Pods {
		sees = sees || pod.Annotations[objects.AnnotationPredecessorGone] != ""
	}
	j.require(sees, "S8", "epoch %d begins on a view of pods that may lag", next.Epoch.N)
}

// marks: that the record of the epoch before is gone is noted when it is, and not before.
func marks(j *judgement, next *facts.Facts) {
	for _, pod := range j.d.Children.Pods {
		old := j.o.Children.Pods[pod.Name]
		if pod.Annotations[objects.AnnotationPredecessorGone] != "" &&
			(old == nil || old.Annotations[objects.AnnotationPredecessorGone] == "") {
			j.require(next.Epoch.Phase == record.PhaseStopping && j.f.Epoch.Record == nil, "S8",
				"%s says that epoch %d is over, whose record is there", pod.Name, j.f.Epoch.N)
		}
	}
}

// gates: no member of an epoch that has not begun gets to its etcd, and none of another epoch.
func gates(j *judgement, f *facts.Facts) {
	for _, pod := range j.d.Children.Pods {
		if f.Epoch == nil || !f.InEpoch(pod.Name) {
			continue
		}
		opens := pod.Annotations[objects.AnnotationBegins] != ""
		if f.Epoch.Began() {
			j.require(!opens || facts.NamesRecord(pod) == objects.EpochName(j.o.Cluster.Name, f.Epoch.N), "S8",
				"the pod %s may begin, and was not made for epoch %d", pod.Name, f.Epoch.N)
			continue
		}
		j.require(facts.Awaits(pod) && strings.Contains(strings.Join(facts.PrepareOf(pod).Args, " "), "--await=") ||
			facts.Gated(pod), "S8", "the pod %s does not wait for its epoch to begin", pod.Name)
		j.require(!opens, "S8", "the pod %s may begin before its epoch", pod.Name)
	}
}

// former: claims of earlier epochs go when they were kept long enough, and the epoch that runs serves; no pod runs on
// them.
func former(j *judgement) {
	if j.f.Epoch == nil || j.f.Epoch.First == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(j.o.Children.Claims)) {
		claim := j.o.Children.Claims[name]
		member, _ := facts.MemberOfClaim(j.o.Cluster.Name, name)
		n, ours := objects.Ordinal(j.o.Cluster.Name, member)
		if !ours || n >= j.f.Epoch.First || hasClaim(j, name) || claim.DeletionTimestamp != nil {
			continue
		}
		since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
		kept := err == nil && j.o.Now.Sub(since) >= facts.KeepVolumesFor(&j.o.Cluster.Spec)
		j.require(j.f.Etcd != nil && kept && j.f.Ours(claim), "S7", "the claim %s of an earlier epoch goes too early",
			name)
	}
	for _, pod := range j.d.Children.Pods {
		n, ours := objects.Ordinal(j.o.Cluster.Name, pod.Name)
		j.require(!ours || n >= j.f.Epoch.First, "S8", "the pod %s of an earlier epoch is in the answer", pod.Name)
	}
}

// recorded checks the epoch record and what every answer must hold.
func recorded(j *judgement) {
	if old := j.f.Epoch; old != nil && old.Record != nil {
		now := records(j, old.Record.Name)
		j.require(now != nil, "S8", "the epoch record is gone from the answer")
		if now != nil {
			j.require(now.NextOrdinal >= old.NextOrdinal, "S9", "the mark goes back from %d to %d", old.NextOrdinal,
				now.NextOrdinal)
			j.require(!old.HadQuorum() || now.ClusterID == old.ClusterID, "S8", "the recorded cluster ID changes")
			j.require(now.Highest >= old.Highest, "S21", "the highest revision that is noted goes back from %d to %d",
				old.Highest, now.Highest)
			j.require(old.Sum == "" || now.Sum == old.Sum, "S21", "the SHA-256 that the first member has found changes")
			j.require(old.Until == 0 || now.Until == old.Until, "S21", "the revision at which the stream ends changes")
			checkExternal(j, old, now)
			joins(j, old, now)
			mismatched(j, old, now)
			startsOn(j, old, now)
			version(j, old, now)
		}
	} else {
		for _, cm := range j.d.Children.ConfigMaps {
			e := answered(j, cm)
			if e == nil {
				continue
			}
			j.require(e.Provisioned() || e.After != 0 || old == nil && !j.f.RanBefore(), "S8",
				"a second bootstrap: %s", cm.Name)
			beginsWithFound(j, e)
		}
	}
	j.require(services(j) && len(j.d.Children.Budgets) == 1, "S13", "the answer lacks a Service or the budget")
	evictions(j)
}

// evictions: Kubernetes evicts no member that is not ready while no quorum is (S1).
func evictions(j *judgement) {
	for _, b := range j.d.Children.Budgets {
		policy := b.Spec.UnhealthyPodEvictionPolicy
		j.require(policy != nil && *policy == policyv1.IfHealthyBudget, "S1",
			"members that are not ready may be evicted while no quorum is ready")
	}
}

// beginsWithFound: what a new cluster looks for, it begins with.
func beginsWithFound(j *judgement, e *facts.Epoch) {
	if e.Source == record.SourceClaims {
		beginsWithClaims(j, e)
	}
	b := j.o.Cluster.Spec.Bootstrap
	if b != nil && b.LatestSnapshot != nil && e.After == 0 && !e.Recreated {
		beginsWithLatest(j, e, b.LatestSnapshot)
	}
}

// beginsWithLatest: a cluster that looks into a store begins with what a pod has told of that, and without data only
// when the store has answered that it has none, and the spec says so (S8, S21).
func beginsWithLatest(j *judgement, e *facts.Epoch, l *v1beta1.LatestSnapshot) {
	var told *stores.Latest
	for _, pod := range j.o.Children.Pods {
		if report := stores.Last[stores.Latest](pod, objects.ContainerInspect); report != nil {
			told = report
		}
	}
	j.require(told != nil && told.Error == "", "S21", "the cluster begins, and nothing has told what the store has")
	if told == nil {
		return
	}
	if e.Snapshot == nil {
		j.require(told.None && l.IfNone == v1beta1.BeginEmpty, "S21", "the cluster begins without data beside a store")
		return
	}
	j.require(told.Artifact != "" && e.Snapshot.URL == stores.URLOf(&l.Store).Join(told.Artifact).String() &&
		e.Snapshot.SHA256 == told.SHA256, "S21", "the cluster begins with another snapshot than the newest one")
}

// beginsWithClaims: of the claims that a cluster begins with all are of one etcd cluster, none is ahead of the one that
// is copied, and they are of a majority of all whose votes may count, unless the spec says that it need not be (S21).
func beginsWithClaims(j *judgement, e *facts.Epoch) {
	c := j.o.Cluster.Spec.Bootstrap.Claims
	told := map[string]*stores.Inspection{}
	for _, pod := range j.o.Children.Pods {
		if !j.f.IsInspectPod(pod.Name) || facts.InspectEnd(pod) == nil {
			continue
		}
		report, err := stores.Read[stores.Inspection](facts.InspectEnd(pod).Message)
		if err == nil {
			told[facts.ClaimsIn(pod)[0]] = report
		}
	}
	most := told[e.Claim.Name]
	j.require(most != nil && most.Error == "", "S21", "the claim %s is copied, and can't be read", e.Claim.Name)
	if most == nil {
		return
	}
	var members []string
	for _, claim := range c.Names {
		r := told[claim]
		j.require(r != nil, "S21", "the claim %s has told nothing", claim)
		if r == nil || r.Error != "" {
			continue
		}
		members = append(members, r.MemberID)
		j.require(r.ClusterID == most.ClusterID, "S21", "the claim %s is of another etcd cluster", claim)
		j.require(r.LastTerm < most.LastTerm || r.LastTerm == most.LastTerm && r.LastIndex <= most.LastIndex, "S21",
			"the claim %s is ahead of %s", claim, e.Claim.Name)
	}
	for _, electorate := range most.Electorates {
		there := objects.Filter(electorate, func(id string) bool { return slices.Contains(members, id) })
		j.require(c.WithoutQuorum || 2*len(there) > len(electorate), "S21", "the claims are of %d of %d members",
			len(there), len(electorate))
	}
	j.require(c.WithoutQuorum || len(most.Electorates) > 0, "S21", "the members are not known")
}
