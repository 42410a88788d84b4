package hooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// How one epoch takes over from another: to restore a snapshot in place, to go back to earlier data, or because the
// quorum's data is lost.
//
// The next epoch is recorded first, as the first one is; that decides who its members are, under numbers above all
// that were ever used. From then on it comes in three moves, each of which is written on its record and waits for the
// one before to be observed.
//
//	staging   Its members get their volumes and are filled, beside the epoch that runs; they wait at a gate before their etcd. Whatever is
//	          wrong with the data is found out here, with nothing lost, and the wish can be taken back.
//	stopping  The record of the epoch that runs is deleted, and its members are stopped. Their pods name that record: one that a late view
//	          asks for once more does not start. Its volumes stay as they are, in quarantine: no pod is made on them any more.
//	began     Once no pod of the epoch before is left, it can't acknowledge anything any more, and the gate opens.
//
// That no pod is left must not be believed of a view of pods that lags. So, when the record is seen to be gone, a
// mark is put on the pods of the next epoch's members. Who sees the mark sees all pods as they were when it was
// written, or later, and by then no other pod of the epoch before could start.
//
// An epoch that begins with the volume of a member of the one before can be staged only when that is stopped, so it
// is stopped first.
//
// A wish that is taken back while it is made ready is written on the record, too: a record says either that it is
// cancelled or that the epoch before is being stopped, since each is written at the version that was seen. What was
// made for it goes first, and the record last.
//
// So at no time can two epochs acknowledge writes. What the epoch before leaves are its claims.

// within are the children of one epoch: pods and claims whose members' numbers are its own, and those without a number.
func within(o Observation, e *epoch, below int) Children {
	if e == nil || e.first == 0 && below == objects.MostMembers {
		return o.Children
	}
	own := func(name string) bool {
		n, numbered := objects.Ordinal(o.Cluster.Name, name)
		return !numbered || n >= e.first && n < below
	}
	c := o.Children
	c.Pods, c.Claims = map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolumeClaim{}
	for name, pod := range o.Children.Pods {
		if own(name) {
			c.Pods[name] = pod
		}
	}
	for name, claim := range o.Children.Claims {
		if member, _ := memberOfClaim(o.Cluster.Name, name); own(member) {
			c.Claims[name] = claim
		}
	}
	return c
}

// inEpoch reports whether the member's number is one of the view's epoch.
func (v *view) inEpoch(member string) bool {
	n, numbered := objects.Ordinal(v.Cluster.Name, member)
	return numbered && n < v.below && (v.epoch == nil || n >= v.epoch.first)
}

// ---- the record

// resolved is a snapshot with all that is needed to restore it, as the record keeps it.
type resolved struct {
	// Name of its EtcdSnapshot, and ClusterID of the etcd that it was taken of, in hexadecimal; empty when they are
	// not known.
	Name      string `json:"name,omitempty"`
	ClusterID string `json:"clusterID,omitempty"`
	// URL of the artifact, SHA256 of its database in hexadecimal; empty when that is not known.
	URL    string `json:"url"`
	SHA256 string `json:"sha256,omitempty"`
	// Store says how it is reached.
	Store              v1alpha1.Store `json:"store"`
	IdentitySecret     string         `json:"identitySecret,omitempty"`
	ServiceAccountName string         `json:"serviceAccountName,omitempty"`
}

// words name it for messages.
func (r *resolved) words() string {
	if r.Name != "" {
		return "EtcdSnapshot " + r.Name + " " + stores.Words(r.URL)
	}
	return "the snapshot " + stores.Words(r.URL)
}

func readOrigin(cm *corev1.ConfigMap) origin {
	from := origin{source: cmp.Or(cm.Data[objects.EpochKeySource], objects.SourceEmpty),
		restore: cm.Data[objects.EpochKeyRestore], survivorsOf: objects.ReadMark(cm.Data[objects.EpochKeySurvivorsOf]),
		member: cm.Data[objects.EpochKeyMember]}
	if raw, set := cm.Data[objects.EpochKeyBumpRevision]; set {
		from.bump = new(revisionIn(raw))
	}
	if raw := cm.Data[objects.EpochKeySnapshot]; raw != "" {
		from.snapshot = &resolved{}
		if err := json.Unmarshal([]byte(raw), from.snapshot); err != nil {
			from.snapshot = nil
		}
	}
	return from
}

func readSuccession(cm *corev1.ConfigMap) succession {
	s := succession{after: objects.ReadMark(cm.Data[objects.EpochKeyAfter]),
		phase: cm.Annotations[objects.AnnotationPhase], evidence: cm.Annotations[objects.AnnotationSurvivor]}
	s.survivor, _, _ = strings.Cut(s.evidence, ":")
	return s
}

// originate writes where the data comes from.
func originate(record *corev1.ConfigMap, from origin) {
	record.Data[objects.EpochKeySource] = from.source
	if from.restore != "" {
		record.Data[objects.EpochKeyRestore] = from.restore
	}
	if from.survivorsOf > 0 {
		record.Data[objects.EpochKeySurvivorsOf] = strconv.Itoa(from.survivorsOf)
	}
	if from.member != "" {
		record.Data[objects.EpochKeyMember] = from.member
	}
	if from.bump != nil {
		record.Data[objects.EpochKeyBumpRevision] = strconv.FormatInt(*from.bump, 10)
	}
	if from.snapshot != nil {
		raw, err := json.Marshal(from.snapshot)
		if err == nil { // plain data always encodes
			record.Data[objects.EpochKeySnapshot] = string(raw)
		}
	}
}

// recordNextEpoch asks for the record of the next epoch.
func (v *view) recordNextEpoch(from origin, message string) *verdict {
	size := v.replicas
	if from.source == objects.SourceSurvivor && from.member == "" {
		size = 1 // a volume can be copied by one pod
	}
	first := v.nextOrdinal()
	if v.hostPath() {
		// a call from before may be about to give the next number away, and what is left in a directory stays there
		// (S9)
		first++
	}
	record := newRecord(v.Cluster, v.nextEpochNumber(), first, size)
	originate(record, from)
	record.Data[objects.EpochKeyAfter] = strconv.Itoa(v.epoch.n)
	record.Data[objects.EpochKeyFirst] = strconv.Itoa(first)
	record.Data[objects.EpochKeyFormerFirst] = strconv.Itoa(v.epoch.first)
	v.recordPast(record, from)
	if from.member != "" {
		record.Annotations[objects.AnnotationSurvivor] = v.answering()
	}
	if from.survivorsOf == v.epoch.n && from.member == "" || v.ending() {
		record.Annotations[objects.AnnotationPhase] = phaseStopping // what is to be copied must not change
	}
	return &verdict{message: message, nextRecord: record, resync: rule.ResyncSoon}
}

// recordPast writes on the record of the next epoch what must be known of those before.
func (v *view) recordPast(record *corev1.ConfigMap, from origin) {
	floor, before := v.highestRevision(), v.epoch.past
	if v.next != nil { // which takes this one's place
		floor = max(floor, v.next.epoch.floor)
		before = v.next.epoch.past
	}
	record.Data[objects.EpochKeyRevisionFloor] = strconv.FormatInt(floor, 10)
	highest := max(floor, int64(v.nextEpochNumber()-1)*revisionGap)
	if from.bump == nil {
		highest = noted(floor + revisionGap)
	}
	record.Annotations[objects.AnnotationHighestRevision] = strconv.FormatInt(highest, 10)
	if v.epoch.record != nil {
		before = maps.Clone(before)
		now := past{v.epoch.clusterID, before[v.epoch.n].voters}
		if v.Etcd != nil {
			now = past{v.Etcd.ClusterID, v.numbers(v.voters)}
		}
		before[v.epoch.n] = now
	}
	record.Data[objects.EpochKeyPast] = formatPast(before)
	v.recordAnswers(record, from)
}

// numbers are those of members; empty when one is not ours.
func (v *view) numbers(of []*member) string {
	var all []string
	for _, m := range of {
		n, ours := objects.Ordinal(v.Cluster.Name, m.name)
		if !ours {
			return ""
		}
		all = append(all, strconv.Itoa(n))
	}
	return strings.Join(all, ".")
}

// recordAnswers writes on a record the IDs of spec.restore that are answered when its epoch has begun.
func (v *view) recordAnswers(record *corev1.ConfigMap, from origin) {
	answered := v.answered()
	if n, _ := objects.Ordinal(v.Cluster.Name+"-epoch", record.Name); from.restore != "" &&
		answered[from.restore] == 0 {
		answered[from.restore] = n
	}
	if len(answered) > 0 {
		record.Data[objects.EpochKeyAnswered] = formatAnswered(answered)
	}
}

// answered are the IDs of spec.restore that the epoch that runs, or one before it, has answered, with the number of
// that.
func (v *view) answered() map[string]int {
	all := map[string]int{}
	if peers := v.Children.Services[objects.PeerService(v.Cluster.Name)]; peers != nil {
		all = readAnswered(peers.Annotations[objects.AnnotationAnswered])
	}
	if v.epoch == nil {
		return all
	}
	known := v.epoch.answered
	if v.epoch.record == nil && v.next != nil { // the epoch before has no record any more
		known = maps.Clone(v.next.epoch.answered)
		maps.DeleteFunc(known, func(_ string, n int) bool { return n >= v.next.epoch.n })
	}
	maps.Copy(all, known)
	if id := v.epoch.restore; id != "" && all[id] == 0 {
		all[id] = v.epoch.n
	}
	return all
}

// clusterIDOf is etcd's cluster ID of an epoch; 0 when it is not known.
func (v *view) clusterIDOf(epoch int) uint64 { return v.pastOf(epoch).clusterID }

// pastOf is what is known of an epoch.
func (v *view) pastOf(epoch int) past {
	known := v.epoch.past[epoch]
	if v.next != nil && v.next.epoch.past[epoch] != (past{}) {
		known = v.next.epoch.past[epoch]
	}
	if epoch == v.epoch.n && v.epoch.clusterID != 0 {
		known.clusterID = v.epoch.clusterID
	}
	return known
}

// nextEpochNumber is the number of the next epoch: above that of every epoch whose record is seen, be it a leftover,
// or whose volumes are.
func (v *view) nextEpochNumber() int {
	n := v.epoch.n
	for recorded := range epochRecords(v.Observation) {
		n = max(n, recorded)
	}
	for _, claim := range v.all.Claims {
		n = max(n, objects.ReadMark(claim.Annotations[objects.AnnotationEpoch]))
	}
	return n + 1
}

// nextRecord is the record of the epoch that is to take over, with what has become known. One that is cancelled stays
// until nothing is seen that was made for it.
func (v *view) nextRecord(decision *verdict) *corev1.ConfigMap {
	if v.next == nil || v.cancelled() && v.next.leavesNothing() {
		return nil
	}
	record := v.next.advance(&verdict{})
	if phase := cmp.Or(decision.phase, v.next.epoch.phase); phase != "" {
		record.Annotations[objects.AnnotationPhase] = phase
	}
	if chosen := cmp.Or(decision.survivor, v.next.epoch.evidence); chosen != "" {
		record.Annotations[objects.AnnotationSurvivor] = chosen
	}
	return record
}

// leftover reports whether a ConfigMap is the record of an epoch that is over, or that was to be and is not any more.
func (v *view) leftover(cm *corev1.ConfigMap) bool {
	return v.epoch != nil && slices.Contains(slices.Collect(maps.Values(epochRecords(v.Observation))), cm)
}

// ---- the rule

// ending reports whether the epoch is being stopped, or has been.
func (v *view) ending() bool { return v.next != nil && v.next.epoch.phase == phaseStopping }

// over reports whether the epoch's record is gone, so that no pod of it starts any more.
func (v *view) over() bool { return v.ending() && v.epoch.record == nil }

// cancelled reports whether the next epoch is written down as one that is not to come.
func (v *view) cancelled() bool { return v.next != nil && v.next.epoch.phase == phaseCancelled }

func switchEpoch(v *view) *verdict {
	if v.next == nil {
		return nil
	}
	if decision := v.otherwise(); decision != nil {
		return decision
	}
	if v.ending() {
		if left := v.lingering(); left != "" {
			return &verdict{message: fmt.Sprintf("stopping epoch %d: %s; epoch %d begins when no pod of it is left",
				v.epoch.n, left, v.next.epoch.n), resync: rule.ResyncLater}
		}
	}
	if v.choosing() {
		if decision := v.chooseSurvivor(); v.ending() || decision.survivor != "" {
			return decision
		}
		return nil // the epoch that runs is looked after meanwhile
	}
	if waits := v.next.unstaged(); waits != "" {
		switch {
		case !v.ending() && v.stopsFirst():
			return v.stop("spec.restore.stopFirst is true", fmt.Sprintf(" before epoch %d is made "+
				"ready", v.next.epoch.n))
		case !v.ending():
			return nil // the epoch that runs is looked after meanwhile
		}
		return &verdict{message: fmt.Sprintf("epoch %d is over; epoch %d waits: %s", v.epoch.n, v.next.epoch.n, waits),
			outlook: v.nextComes(), resync: rule.ResyncLater}
	}
	if !v.ending() {
		if late := v.longEnding(); len(late) > 0 {
			return nil // it runs on: once it is stopped it would be waited for
		}
		return v.stop(fmt.Sprintf("epoch %d is ready", v.next.epoch.n), "")
	}
	if !v.next.seesAll() {
		return &verdict{message: fmt.Sprintf("epoch %d is over; making sure that nothing of it is left unseen",
			v.epoch.n), resync: rule.ResyncSoon}
	}
	return &verdict{message: fmt.Sprintf("epoch %d begins: %s", v.next.epoch.n, v.next.epoch.describe()),
		phase: phaseBegan, resync: rule.ResyncSoon}
}

// stop writes down that the epoch that runs is stopped.
func (v *view) stop(why, when string) *verdict {
	message := fmt.Sprintf("%s: stopping epoch %d%s", why, v.epoch.n, when)
	if v.onClaims() {
		message += "; its volumes are kept"
	}
	return &verdict{message: message, phase: phaseStopping, resync: rule.ResyncSoon}
}

// membersMissing reports whether the epoch that runs lacks a member.
func (v *view) membersMissing() bool {
	return v.Etcd != nil && (len(v.replicaVoters()) < v.wanted() || v.learner() != nil)
}

// otherwise is what is said when the next epoch can't be the one that was recorded, or must not.
func (v *view) otherwise() *verdict {
	if v.ending() {
		return v.instead()
	}
	switch lost, why := v.next.lostBeforeStart(), v.needless(); {
	case v.cancelled() || v.restoreWithdrawn():
		return v.cancel("spec.restore asks for something else")
	case why != "":
		return v.cancel(why)
	case len(lost) > 0:
		return v.cancel("what was made for " + strings.Join(lost, ", ") + " is lost; it is made anew")
	}
	return nil
}

// needless is why the next epoch is not to come, or not yet, although nothing is wrong with it; empty for nothing.
func (v *view) needless() string {
	from, asked := v.askedFor()
	switch {
	case v.Etcd == nil && asked && v.recoveryDue() && (v.byRestore() || from.source != v.next.epoch.source):
		return fmt.Sprintf("epoch %d is to be recovered", v.epoch.n)
	case v.collides():
		return fmt.Sprintf("a member has joined epoch %d under one of its names", v.epoch.n)
	case v.Etcd != nil && !v.byRestore():
		return fmt.Sprintf("a quorum of epoch %d answers again", v.epoch.n)
	case v.outgrown():
		return fmt.Sprintf("epoch %d has come near to the revisions that epoch %d was to begin with", v.epoch.n,
			v.next.epoch.n)
	case v.membersMissing() && v.staging() != "" && !v.stopsFirst():
		return fmt.Sprintf("epoch %d needs another member first", v.epoch.n)
	}
	return ""
}

// instead records another epoch in place of one that can't begin, or that nobody wants any more, when the one before
// is stopped already.
func (v *view) instead() *verdict {
	if old := v.next.epoch; v.passed() {
		return v.recordNextEpoch(old.origin, fmt.Sprintf("epoch %d has come near to the revisions that epoch %d was "+
			"to begin with: recording epoch %d, which begins with %s", v.epoch.n, old.n, v.nextEpochNumber(),
			v.wordsFor(old.origin)))
	}
	if v.next.unstaged() == "" {
		return nil // it begins, and whatever else is asked for comes after it
	}
	from, asked := v.askedFor()
	lost, old := v.next.lostBeforeStart(), v.next.epoch
	switch {
	case asked && !v.byRestore() && from.source != old.source:
		return v.recordNextEpoch(from, fmt.Sprintf("epoch %d is to begin otherwise: recording epoch %d, which begins "+
			"with %s", old.n, v.nextEpochNumber(), v.wordsFor(from)))
	case v.restoreWithdrawn():
		from, why := v.restoreInstead()
		if why != "" {
			return nil
		}
		return v.recordNextEpoch(from, fmt.Sprintf("spec.restore asks for something else: recording epoch %d, which "+
			"begins with %s", v.nextEpochNumber(), v.wordsFor(from)))
	case len(lost) > 0:
		return v.recordNextEpoch(old.origin, fmt.Sprintf("what was made for %s is lost: recording epoch %d, which "+
			"begins with %s", strings.Join(lost, ", "), v.nextEpochNumber(), v.wordsFor(old.origin)))
	}
	return nil
}

// askedFor is the way back that a person asks for by the annotation, when it is possible.
func (v *view) askedFor() (origin, bool) {
	policy, asked := v.recoverBy()
	if !asked {
		return origin{}, false
	}
	from, why := v.wayBack(policy, true)
	return from, why == ""
}

// restoreInstead is what is to come in place of a restore that was taken back or changed when the epoch before was
// stopped already: without another wish the data that was there before.
func (v *view) restoreInstead() (origin, string) {
	if r := v.Cluster.Spec.Restore; r != nil && v.answered()[r.ID] == 0 {
		return v.restoreSource(r)
	}
	from, why := v.wayBack(v1alpha1.RecoverFromSurvivor, true)
	from.bump = nil // nothing is lost
	return from, why
}

// stopsFirst reports whether there is no room for two epochs beside each other.
func (v *view) stopsFirst() bool {
	r := v.Cluster.Spec.Restore
	return v.mayStopFirst(r) && r.ID == v.next.epoch.restore
}

// mayStopFirst reports whether the restore may stop the epoch that runs before the next one is ready. On Memory that
// would take its data.
func (v *view) mayStopFirst(r *v1alpha1.Restore) bool { return r != nil && r.StopFirst && !v.memory() }

// collides reports whether a member joined the epoch that runs under a number of the next one, in a call that did not
// see that yet (S9).
func (v *view) collides() bool {
	return slices.ContainsFunc(v.members, func(m *member) bool {
		n, ours := objects.Ordinal(v.Cluster.Name, m.name)
		return ours && n >= v.next.epoch.first
	})
}

// cancel writes down that the next epoch is not to come, and then takes down what was made for it.
func (v *view) cancel(why string) *verdict {
	if v.cancelled() {
		return &verdict{message: fmt.Sprintf("taking down what was made ready for epoch %d, which is not to come",
			v.next.epoch.n), resync: rule.ResyncSoon}
	}
	return &verdict{message: fmt.Sprintf("%s: what was made ready for epoch %d is taken down again", why,
		v.next.epoch.n), phase: phaseCancelled, resync: rule.ResyncSoon}
}

// byRestore reports whether the next epoch is the answer to spec.restore, and not to a lost quorum.
func (v *view) byRestore() bool {
	e := v.next.epoch
	return e.restore != "" && e.restore != v.epoch.restore
}

// leavesNothing reports whether no pod and no claim of the epoch's members is seen.
func (v *view) leavesNothing() bool {
	seen := slices.Concat(slices.Collect(maps.Keys(v.Children.Pods)), slices.Collect(maps.Keys(v.Children.Claims)))
	return !slices.ContainsFunc(seen, func(name string) bool {
		member, ours := memberOfClaim(v.Cluster.Name, name)
		return ours && v.inEpoch(member)
	})
}

// restoreWithdrawn reports whether nobody asks for the next epoch any more.
func (v *view) restoreWithdrawn() bool {
	return v.byRestore() && (v.Cluster.Spec.Restore == nil || v.Cluster.Spec.Restore.ID != v.next.epoch.restore)
}

// lostBeforeStart are the initial members, none of which has begun, that have lost what was recorded for them to
// start on.
func (v *view) lostBeforeStart() []string {
	if !v.epoch.provisioned() || v.hostPath() {
		return nil
	}
	return filter(v.epoch.initialNames(), func(name string) bool {
		if v.memory() {
			pod := v.Children.Pods[name]
			return v.podGone(pod) || v.epoch.recorded(name) != pod.UID
		}
		return !v.storageUsable(name) || !v.mayBegin(name)
	})
}

// lingering is what is left of the epoch that is being stopped: its record, which would let others start, pods of its
// members, and claims that are not in quarantine yet; empty for nothing.
func (v *view) lingering() string {
	var left []string
	if v.epoch.record != nil {
		left = append(left, "the record "+v.epoch.record.Name)
	}
	left = append(left, v.unended()...)
	switch late := v.longEnding(); {
	case len(late) > 0:
		return fmt.Sprintf("waiting for %s; %s", strings.Join(left, ", "), v.wordsForLongEnding(late))
	case len(left) > 0:
		return "waiting for " + strings.Join(left, ", ")
	}
	for _, claim := range v.Children.Claims {
		if _, ours := memberOfClaim(v.Cluster.Name, claim.Name); ours && v.ours(claim) &&
			claim.DeletionTimestamp == nil && !quarantined(claim) {
			return "putting its volumes in quarantine"
		}
	}
	return ""
}

// unended are the pods of members that have not ended, longEnding those that were to end long ago, and whose nodes do
// not say that they have.
func (v *view) unended() []string {
	return filter(slices.SortedFunc(maps.Keys(v.Children.Pods), byOrdinal), func(name string) bool {
		_, ours := objects.Ordinal(v.Cluster.Name, name)
		return ours && !finished(v.Children.Pods[name])
	})
}

func (v *view) longEnding() []string {
	return filter(v.unended(), func(name string) bool { return graceOver(v.Children.Pods[name], v.Now) })
}

func (v *view) wordsForLongEnding(late []string) string {
	return fmt.Sprintf("the node of %s does not say that it has ended: when that node is off for good, kubectl "+
		"delete pod -n %s --force --grace-period=0 %s",
		strings.Join(late, ", "), v.Cluster.Namespace, strings.Join(late, " "))
}

// choosing reports whether the next epoch begins with the volume of a member, and nobody knows yet of which.
func (v *view) choosing() bool {
	return v.next.epoch.source == objects.SourceSurvivor && v.next.epoch.survivor == ""
}

// staging is what the next epoch waits for before this one is stopped; empty for nothing.
func (v *view) staging() string {
	if v.choosing() {
		return v.chooseSurvivor().message
	}
	if waits := v.next.unstaged(); waits != "" {
		return waits
	}
	if late := v.longEnding(); len(late) > 0 {
		return v.wordsForLongEnding(late)
	}
	return ""
}

// seesAll reports whether the pods that are shown are as they were when the record of the epoch before was gone, or
// later.
func (v *view) seesAll() bool {
	return slices.ContainsFunc(v.epoch.initialNames(), func(name string) bool {
		pod := v.Children.Pods[name]
		return pod != nil && pod.Annotations[objects.AnnotationPredecessorGone] != ""
	})
}

// unstaged is what an epoch that is to take over waits for; empty when its members could begin.
func (v *view) unstaged() string {
	if !v.epoch.provisioned() {
		return "making what its members need: " + strings.Join(v.epoch.initialNames(), ", ")
	}
	if !v.epoch.filled() {
		return ""
	}
	if why := cmp.Or(v.unfilled(), v.differing()); why != "" {
		return why
	}
	if first := v.firstToFill(); v.epoch.unknownSum() && v.epoch.sum == "" {
		return fmt.Sprintf("filling the volume of %s%s before the others, which must get the same: nobody knows the "+
			"SHA-256 of the snapshot", first, v.whyNotStarted(v.Children.Pods[first]))
	}
	var waits []string
	for _, name := range v.epoch.initialNames() {
		if pod := v.Children.Pods[name]; !seeded(pod) {
			waits = append(waits, name+v.whyNotStarted(pod))
		}
	}
	if len(waits) > 0 {
		return "filling the volumes of " + strings.Join(waits, ", ")
	}
	if mute := v.withoutSeedReport(); len(mute) > 0 {
		return "waiting to hear what was filled into the volumes of " + strings.Join(mute, ", ")
	}
	return ""
}

// unfilled is which of the initial members could not be filled at its last try, and why; empty for none.
func (v *view) unfilled() string {
	for _, name := range v.epoch.initialNames() {
		if report := seedFailure(v.Children.Pods[name]); report != nil && !seeded(v.Children.Pods[name]) {
			why := fmt.Sprintf("%s could not be filled (%s): %s", name, cmp.Or(report.Reason, "Failed"), report.Error)
			if report.Reason == "Damaged" && v.epoch.sum != "" {
				why += fmt.Sprintf("; %s has found a database with the SHA-256 %s, and what is there may have been "+
					"overwritten since: then %s", v.epoch.firstInitial(), v.epoch.sum, v.otherwiseFilled())
			}
			return why
		}
	}
	return ""
}

// whyNotStarted is why a pod does not begin, in brackets; empty for nothing known.
func (v *view) whyNotStarted(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	if why := cmp.Or(v.unscheduled(&member{pod: pod}), unpulled(&member{pod: pod})); why != "" {
		return " (" + why + ")"
	}
	return ""
}

// describe says where the epoch's data comes from.
func (e *epoch) describe() string {
	switch e.source {
	case objects.SourceSnapshot:
		if e.snapshot != nil {
			return "its data is " + e.snapshot.words()
		}
	case objects.SourceSurvivor:
		return fmt.Sprintf("its data is that of %s, of epoch %d (%s)", e.survivor, e.survivorsOf, e.evidence)
	}
	return "without data"
}

// prepareRestore says that the cluster does not have yet what spec.restore asks for, when there is nothing else to say.
func prepareRestore(v *view) *verdict {
	reason, message, is, shown := restored(v)
	if !shown || is {
		return nil
	}
	outlook := Works
	switch {
	case v.next != nil:
		outlook = v.nextComes()
	case reason == v1alpha1.AnsweredBefore, reason == "Differing":
		outlook = Waits
	case reason == "Impossible":
		if outlook = Waits; !v.besideForeign() && v.Cluster.Spec.Restore.Snapshot != nil {
			outlook = v.arrives(v.Cluster.Spec.Restore.Snapshot)
		}
	}
	return &verdict{message: message, outlook: outlook, resync: rule.ResyncLater}
}

// ---- what an epoch leaves behind

// formerClaims are those of earlier epochs: kept in quarantine, as long as the spec says and until the epoch that
// runs serves.
func (v *view) formerClaims() []*corev1.PersistentVolumeClaim {
	if v.epoch == nil || v.epoch.first == 0 {
		return nil
	}
	var list []*corev1.PersistentVolumeClaim
	for _, name := range slices.SortedFunc(maps.Keys(v.all.Claims), byOrdinal) {
		member, ours := memberOfClaim(v.Cluster.Name, name)
		if n, _ := objects.Ordinal(v.Cluster.Name, member); !ours || n >= v.epoch.first ||
			v.expired(v.all.Claims[name]) {
			continue
		}
		claim := *v.all.Claims[name]
		v.leaveBehind(&claim, v.epoch.after)
		list = append(list, &claim)
	}
	return list
}

// leaveBehind puts a claim in quarantine, of which an epoch has no more need, and says of which epoch it is: also on
// that of a member which was given up before.
func (v *view) leaveBehind(claim *corev1.PersistentVolumeClaim, epoch int) {
	member, _ := memberOfClaim(v.Cluster.Name, claim.Name)
	own := objects.Only(claim.Annotations, objects.AnnotationQuarantined, objects.AnnotationEpoch,
		objects.AnnotationFailedMember)
	own[objects.AnnotationEpoch] = cmp.Or(own[objects.AnnotationEpoch], strconv.Itoa(epoch))
	if own[objects.AnnotationQuarantined] == "" {
		own[objects.AnnotationQuarantined] = v.Now.UTC().Format(time.RFC3339)
		if own[objects.AnnotationFailedMember] == objects.FailedSilent {
			delete(own, objects.AnnotationFailedMember) // it was not removed
		}
	}
	claim.Labels = labels(v.Cluster, map[string]string{objects.LabelMember: member, objects.LabelQuarantined: "true"})
	claim.Annotations = annotations(v.Cluster, own)
}

// endedClaims are those of an epoch that is being stopped: in quarantine when no pod of it can start any more, and
// none is left. Should somebody delete the records then, the claims tell that this epoch is over.
func endedClaims(v *view, _ *verdict) []*corev1.PersistentVolumeClaim {
	list := v.keptClaims(v.names)
	for _, claim := range list {
		if v.over() && len(v.unended()) == 0 && (v.choosing() || v.next.seesAll()) {
			v.leaveBehind(claim, v.epoch.n)
		}
	}
	return list
}

// ofAllEpochs is the observation with the pods and claims of every epoch.
func (v *view) ofAllEpochs() Observation {
	o := v.Observation
	o.Children.Pods, o.Children.Claims = v.all.Pods, v.all.Claims
	return o
}

// expired reports whether a claim of an earlier epoch has been kept long enough.
func (v *view) expired(claim *corev1.PersistentVolumeClaim) bool {
	if v.Etcd == nil || v.next != nil || !v.ours(claim) || !quarantined(claim) {
		return false
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
	return err == nil && !v.Now.Before(since.Add(keepVolumesFor(&v.Cluster.Spec)))
}

const defaultKeepVolumes = 7 * 24 * time.Hour

func keepVolumesFor(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if keep := s.Recovery.KeepVolumesFor; keep != nil {
		return keep.Duration
	}
	return defaultKeepVolumes
}
