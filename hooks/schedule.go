package hooks

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// An EtcdSnapshotSchedule is decided as a cluster is: from what was observed, by rules in order.
//
// Which run was the last is read from the snapshots themselves: a snapshot is named after the time of its run, and the newest one always
// stays. The status is asked as well, for a snapshot that a person has deleted. So a run that was decided twice is made once, and neither
// a lost status nor a list of snapshots that lags makes one that was made before, but under the same name (S14, S15).

// ScheduleObservation is all that a decision about an EtcdSnapshotSchedule may depend on.
type ScheduleObservation struct {
	Schedule *v1alpha1.EtcdSnapshotSchedule
	// Snapshots that it owns, by name.
	Snapshots map[string]*v1alpha1.EtcdSnapshot
	// Zone that spec.timeZone names; nil for a name that no zone has. To look it up is to read files, and not for a decision.
	Zone *time.Location
	Now  time.Time
}

// ScheduleDecision is the answer.
type ScheduleDecision struct {
	// Snapshots are complete: one that was observed and is not among them will be deleted. They are as they were observed; one without UID
	// is new. Sorted by name.
	Snapshots []*v1alpha1.EtcdSnapshot
	// Status replaces the schedule's status whole.
	Status v1alpha1.EtcdSnapshotScheduleStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Due is when a newer snapshot should be there at the latest: the second run after the newest that counts, so that one run may fail.
	// Zero while no snapshots are taken.
	Due time.Time
	// Because is the rule that fired.
	Because Because
}

const (
	// skew is how far clocks may differ: ours, those of other replicas of Quorate, the API server's.
	skew = 5 * time.Minute
	// punctual is the least time until the next look at the clock: who asks again may count it a little faster than we do.
	punctual = 100 * time.Millisecond
	// runFormat is the time of a run in the name of its snapshot, in UTC.
	runFormat = "20060102-1504"
)

// SnapshotName is the name of the snapshot that a schedule takes for the run at a time.
func SnapshotName(schedule string, run time.Time) string {
	return schedule + "-" + run.UTC().Format(runFormat)
}

// ---- rules

// ScheduleRule is one line of the decision about a schedule.
type ScheduleRule struct {
	// Name reaches the log, the condition's reason and the metric.
	Name string
	// Why is the sentence that documents the rule.
	Why string
	// applies returns the message, or nothing when the next rule is to be asked.
	applies func(a *agenda) string
}

const (
	ruleTake       = "Take"
	ruleHeld       = "Suspended"
	ruleUnreadable = "Unreadable"
)

// ScheduleRules are all rules about schedules in order; the first that applies decides.
var ScheduleRules = []ScheduleRule{
	{ruleHeld, "While spec.suspend is true no snapshot is taken and none is let go.", (*agenda).heldBack},
	{ruleUnreadable, "A schedule or a time zone that can't be read changes nothing; the message says what to correct.", (*agenda).unreadable},
	{"Missed", "A run that could not begin within spec.startingDeadline is left out.", (*agenda).missed},
	{"Wait", "With concurrency Forbid a run waits until the snapshot before is finished.", (*agenda).wait},
	{ruleTake, "The run that is due is taken; of several that were missed, the latest alone.", (*agenda).take},
	{"Running", "A snapshot is being taken.", (*agenda).running},
	{"Failing", "The newest run failed, or is stored and could not be verified; the next one is by the schedule.", (*agenda).failing},
	{"Waiting", "Nothing is due.", (*agenda).waiting},
}

// DecideSchedule says which snapshots of a schedule should exist. It is pure, and does not change what it is given.
func DecideSchedule(o ScheduleObservation) ScheduleDecision {
	a := newAgenda(o)
	because := Because{}
	for _, rule := range ScheduleRules {
		if because.Message = rule.applies(a); because.Message != "" {
			because.Rule = rule.Name
			break
		}
	}
	d := ScheduleDecision{Because: because}
	a.decide(&d)
	slices.SortFunc(d.Snapshots, func(x, y *v1alpha1.EtcdSnapshot) int { return cmp.Compare(x.Name, y.Name) })
	d.Status = a.status(&d)
	d.ResyncAfter = a.wake()
	d.Due = a.dueAfter(&d.Status)
	return d
}

// decide says which snapshots stay, and which is new.
func (a *agenda) decide(d *ScheduleDecision) {
	if a.table == nil || a.Schedule.Spec.Suspend {
		for _, s := range a.all {
			d.Snapshots = append(d.Snapshots, s.EtcdSnapshot)
		}
		return
	}
	keep := retained(a.all, a.Schedule.Spec.Retention, a.Zone)
	for _, s := range a.all {
		if a.knownStored(s.Name) { // until the status names another
			keep[s.Name] = true
		}
	}
	if d.Because.Rule == ruleTake {
		if a.Schedule.Spec.Concurrency == v1alpha1.ConcurrencyReplace {
			for _, s := range a.active {
				delete(keep, s.Name)
			}
		}
		d.Snapshots = append(d.Snapshots, a.made())
	}
	for _, s := range a.all {
		if keep[s.Name] {
			d.Snapshots = append(d.Snapshots, s.EtcdSnapshot)
		}
	}
}

func (a *agenda) heldBack() string {
	if !a.Schedule.Spec.Suspend {
		return ""
	}
	return "SUSPENDED: no snapshot is taken and none is let go until spec.suspend is false"
}

func (a *agenda) unreadable() string {
	if a.flaw == "" {
		return ""
	}
	return a.flaw + "; until that is corrected no snapshot is taken and none is let go"
}

func (a *agenda) missed() string {
	if a.due.IsZero() || a.latest().IsZero() || !a.Now.After(a.latest()) {
		return ""
	}
	return fmt.Sprintf("%s was not taken: it could not begin within %s of its time (spec.startingDeadline)%s", a.dueName(), a.Schedule.Spec.StartingDeadline.Duration, a.unfinished())
}

func (a *agenda) wait() string {
	if a.due.IsZero() || len(a.active) == 0 || cmp.Or(a.Schedule.Spec.Concurrency, v1alpha1.ConcurrencyForbid) != v1alpha1.ConcurrencyForbid {
		return ""
	}
	return fmt.Sprintf("%s waits%s", a.dueName(), a.unfinished())
}

func (a *agenda) take() string {
	if a.due.IsZero() {
		return ""
	}
	return "taking " + a.dueName()
}

func (a *agenda) running() string {
	if len(a.active) == 0 {
		return ""
	}
	return "being taken: " + strings.Join(a.activeNames(), ", ")
}

func (a *agenda) failing() string {
	f := a.failure()
	if f == nil {
		return ""
	}
	best := "none has succeeded yet"
	if a.success != nil {
		best = "the newest that succeeded is " + a.success.Name
	}
	became := "failed"
	if f.stored() {
		became = "is Stored"
	}
	return fmt.Sprintf("%s %s%s; %s", f.Name, became, colon(f.Status.Message), best)
}

func (a *agenda) waiting() string {
	switch {
	case a.success == nil:
		return "no snapshot has been taken yet"
	case a.current != nil:
		return fmt.Sprintf("%s is the newest snapshot, and nothing has changed since", a.success.Name)
	}
	return a.success.Name + " is the newest snapshot"
}

// ---- the observation put together

// taken is a snapshot of the schedule, as far as it has come.
type taken struct {
	*v1alpha1.EtcdSnapshot
	// run is the time that its name says; unknown is true when it says none, and nobody knows what it is for.
	run     time.Time
	unknown bool
	// at is when it was taken for: the time of its run. A run that is later than the creation of its snapshot was decided by a clock that
	// was ahead: then it is when the API server created it.
	at time.Time
}

func (s *taken) alive() bool                      { return s.DeletionTimestamp == nil }
func (s *taken) is(p v1alpha1.SnapshotPhase) bool { return s.alive() && s.Status.Phase == p }
func (s *taken) succeeded() bool                  { return s.is(v1alpha1.SnapshotSucceeded) }
func (s *taken) verified() bool                   { return s.succeeded() && !s.Status.VerifiedAt.IsZero() }
func (s *taken) failed() bool                     { return s.is(v1alpha1.SnapshotFailed) }
func (s *taken) skipped() bool                    { return s.is(v1alpha1.SnapshotSkipped) }

// stored: there is something to restore, verified or not.
func (s *taken) stored() bool { return s.succeeded() || s.is(v1alpha1.SnapshotStored) }

// missed: it did not become what was asked for.
func (s *taken) missed() bool { return s.failed() || s.is(v1alpha1.SnapshotStored) }

// used: an EtcdCluster restores it, or is about to.
func (s *taken) used() bool { return len(s.Status.UsedBy) > 0 }

// vain: there is nothing stored of it.
func (s *taken) vain() bool { return s.failed() || s.skipped() }

// unfinished snapshots are being taken, or are to be.
func (s *taken) unfinished() bool {
	switch s.Status.Phase {
	case "", v1alpha1.SnapshotPending, v1alpha1.SnapshotRunning:
		return s.alive()
	case v1alpha1.SnapshotSucceeded, v1alpha1.SnapshotStored, v1alpha1.SnapshotSkipped, v1alpha1.SnapshotFailed, v1alpha1.SnapshotDeleting:
	}
	return false
}

// since is from when the data is: everything that was written before is in it.
func (s *taken) since() metav1.Time {
	if s.Status.Started.IsZero() {
		return s.CreationTimestamp
	}
	return s.Status.Started
}

func (s *taken) reference() *v1alpha1.SnapshotReference {
	return &v1alpha1.SnapshotReference{Name: s.Name, Time: s.since(), Revision: s.Status.Revision}
}

// newestOf is the newest of a list that has the newest first; nil for none.
func newestOf(list []*taken, is func(*taken) bool) *taken {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// stillCurrent is the newest snapshot that was not taken because nothing has changed since another one; nil for none.
func stillCurrent(all []*taken, of *taken) *taken {
	was := of.unless()
	return newestOf(all, func(s *taken) bool {
		is := s.unless()
		return s.skipped() && s.Spec.Cluster == of.Spec.Cluster && s.at.After(of.at) && was != nil && is != nil && *is == *was
	})
}

// unless is what the cluster was like when the snapshot was taken, or skipped; nil when its status does not tell all of it.
func (s *taken) unless() *v1alpha1.Unless {
	u := &v1alpha1.Unless{Revision: s.Status.Revision, ClusterID: s.Status.ClusterID, AuthRevision: s.Status.AuthRevision}
	if u.Revision == 0 || u.ClusterID == "" || u.AuthRevision == 0 {
		return nil
	}
	return u
}

// agenda is an observation put together.
type agenda struct {
	ScheduleObservation
	table *timetable // nil when it can't be read
	flaw  string     // what is wrong with it
	all   []*taken   // the newest first
	// active are those that are being taken, success the newest that succeeded, verified the newest that was restored on trial, and current
	// the newest run that found success to be so still. nil for none.
	active                     []*taken
	success, verified, current *taken
	last                       time.Time // the last run that was answered with a snapshot
	due                        time.Time // the run that is to be taken; zero for none
}

func newAgenda(o ScheduleObservation) *agenda {
	a := &agenda{ScheduleObservation: o}
	for _, s := range o.Snapshots {
		a.all = append(a.all, a.understood(s))
	}
	slices.SortFunc(a.all, func(x, y *taken) int { return cmp.Or(y.at.Compare(x.at), cmp.Compare(y.Name, x.Name)) })
	for _, s := range a.all {
		if s.unfinished() && !a.knownStored(s.Name) {
			a.active = append(a.active, s)
		}
		if !s.run.IsZero() && !a.ahead(s.run) && s.run.After(a.last) {
			a.last = s.run
		}
	}
	if told := o.Schedule.Status.LastScheduled.Time; !a.ahead(told) && told.After(a.last) {
		a.last = told
	}
	a.success, a.verified = newestOf(a.all, (*taken).succeeded), newestOf(a.all, (*taken).verified)
	if a.success != nil {
		a.current = stillCurrent(a.all, a.success)
	}
	a.read()
	if a.table != nil {
		a.due = a.table.latest(later(a.last, o.Schedule.CreationTimestamp.Time), o.Now)
	}
	return a
}

// understood reads the time of a run from the name of its snapshot.
func (a *agenda) understood(s *v1alpha1.EtcdSnapshot) *taken {
	t := &taken{EtcdSnapshot: s, at: s.CreationTimestamp.Time}
	rest, ours := strings.CutPrefix(s.Name, a.Schedule.Name+"-")
	run, err := time.Parse(runFormat, rest)
	if t.unknown = !ours || err != nil; t.unknown {
		return t
	}
	t.run = run
	if !run.After(t.at.Add(skew)) {
		t.at = run
	}
	return t
}

// read sets the timetable, or what is wrong with it.
func (a *agenda) read() {
	spec := &a.Schedule.Spec
	if a.Zone == nil {
		a.flaw = fmt.Sprintf("spec.timeZone: there is no time zone %q", spec.TimeZone)
		return
	}
	table, err := readTimetable(spec.Schedule, a.Zone)
	switch {
	case err != nil:
		a.flaw = fmt.Sprintf("spec.schedule can't be read: %s", err)
	case table.next(a.Now).IsZero():
		a.flaw = "spec.schedule names a time that never comes"
	default:
		a.table = table
	}
}

// ahead reports whether a run was decided by a clock that was further ahead of ours than clocks may be. It answers for no run of ours: else
// one wrong clock would stop all snapshots until the time that it had shown.
func (a *agenda) ahead(run time.Time) bool { return run.After(a.Now.Add(skew)) }

// knownStored reports whether the status has seen a snapshot stored that the list shows as unfinished: the list lags then.
func (a *agenda) knownStored(name string) bool {
	s := &a.Schedule.Status
	return s.LastSuccess != nil && s.LastSuccess.Name == name || s.LastVerified != nil && s.LastVerified.Name == name
}

// failure is the newest run that failed, or that could not be verified, while none has succeeded since, or found nothing to do; nil for none.
func (a *agenda) failure() *taken {
	f := newestOf(a.all, (*taken).missed)
	if f == nil || a.success != nil && a.success.at.After(f.at) || a.current != nil && a.current.at.After(f.at) {
		return nil
	}
	return f
}

// dueAfter is the second run after the newest snapshot that counts. Where the template wants snapshots restored on trial, only those count.
func (a *agenda) dueAfter(s *v1alpha1.EtcdSnapshotScheduleStatus) time.Time {
	if a.table == nil || a.Schedule.Spec.Suspend {
		return time.Time{}
	}
	newest := s.LastVerified
	if verify := a.Schedule.Spec.Template.Verify; verify != nil && !*verify {
		newest = s.LastSuccess
	}
	since := a.Schedule.CreationTimestamp.Time
	if newest != nil {
		since = later(since, newest.Time.Time)
	}
	return a.table.next(a.table.next(since))
}

// latest is until when the run that is due may begin; zero for always.
func (a *agenda) latest() time.Time {
	if a.due.IsZero() || a.Schedule.Spec.StartingDeadline == nil {
		return time.Time{}
	}
	return a.due.Add(a.Schedule.Spec.StartingDeadline.Duration)
}

func (a *agenda) dueName() string { return SnapshotName(a.Schedule.Name, a.due) }

func (a *agenda) activeNames() []string {
	var all []string
	for _, s := range a.active {
		all = append(all, s.Name)
	}
	slices.Sort(all)
	return all
}

// unfinished is what a run waits for, and what that waits for.
func (a *agenda) unfinished() string {
	if len(a.active) == 0 {
		return ""
	}
	var all []string
	for _, s := range a.active {
		words := s.Name
		if s.Status.Phase == v1alpha1.SnapshotPending && s.Status.Message != "" {
			words += " (" + s.Status.Message + ")"
		}
		all = append(all, words)
	}
	slices.Sort(all)
	return ", for this is not finished: " + strings.Join(all, ", ")
}

func later(x, y time.Time) time.Time {
	if x.After(y) {
		return x
	}
	return y
}

// ---- the answer

// made is the snapshot of the run that is due.
func (a *agenda) made() *v1alpha1.EtcdSnapshot {
	spec := a.Schedule.Spec.Template.DeepCopy()
	if skip := a.Schedule.Spec.SkipUnchanged; skip == nil || *skip {
		spec.Unless = a.unless()
	}
	return &v1alpha1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: a.dueName(), Namespace: a.Schedule.Namespace,
			Labels: map[string]string{LabelCluster: spec.Cluster, LabelSchedule: a.Schedule.Name},
		},
		Spec: *spec,
	}
}

// unless is what need not be stored again: what the cluster was like at the newest snapshot that succeeded, if it is what a new one would be; nil for
// nothing.
func (a *agenda) unless() *v1alpha1.Unless {
	s, want := a.success, &a.Schedule.Spec.Template
	switch {
	case s == nil, s.Spec.Cluster != want.Cluster, !reflect.DeepEqual(s.Spec.Store, want.Store), !reflect.DeepEqual(s.Spec.Encryption, want.Encryption):
		return nil
	case !s.verified() && (want.Verify == nil || *want.Verify):
		return nil
	}
	return s.unless()
}

func (a *agenda) status(d *ScheduleDecision) v1alpha1.EtcdSnapshotScheduleStatus {
	s := v1alpha1.EtcdSnapshotScheduleStatus{
		ObservedGeneration: a.Schedule.Generation, Conditions: a.conditions(d.Because), Message: d.Because.Message,
		LastSuccess: a.withCurrent(a.success), LastVerified: a.withCurrent(a.verified),
	}
	if !a.last.IsZero() {
		s.LastScheduled = metav1.NewTime(a.last)
	}
	if a.table != nil && !a.Schedule.Spec.Suspend {
		s.Next = metav1.NewTime(a.table.next(a.Now))
	}
	s.Active = a.activeNames()
	if f := a.failure(); f != nil {
		s.LastFailure = f.reference()
		s.LastFailure.Message = f.Status.Message
	}
	for _, kept := range d.Snapshots {
		if t := (&taken{EtcdSnapshot: kept}); t.stored() {
			s.Kept++
		}
	}
	return s
}

// withCurrent names a snapshot, with the time until which it is known to have everything; nil for none.
func (a *agenda) withCurrent(s *taken) *v1alpha1.SnapshotReference {
	if s == nil {
		return nil
	}
	r := s.reference()
	if a.current != nil && s == a.success {
		r.Time = a.current.since()
	}
	return r
}

func (a *agenda) conditions(because Because) []metav1.Condition {
	list := slices.Clone(a.Schedule.Status.Conditions)
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&list, metav1.Condition{
			Type: kind, Status: status, Reason: reason, Message: message,
			ObservedGeneration: a.Schedule.Generation, LastTransitionTime: metav1.NewTime(a.Now.Truncate(time.Second)),
		})
	}
	if because.Rule == ruleUnreadable {
		set(v1alpha1.Ready, metav1.ConditionFalse, because.Rule, because.Message)
		set(v1alpha1.Stalled, metav1.ConditionTrue, because.Rule, because.Message)
		return list
	}
	set(v1alpha1.Ready, metav1.ConditionTrue, because.Rule, because.Message)
	set(v1alpha1.Stalled, metav1.ConditionFalse, notStalled, nothingWaits)
	return list
}

// wake is how soon to be asked again: when the next run is due, and when the one that waits has waited for too long. Whatever else matters
// is a change of a snapshot, and the snapshot tells.
func (a *agenda) wake() time.Duration {
	if a.table == nil || a.Schedule.Spec.Suspend {
		return 0
	}
	until := a.table.next(a.Now).Sub(a.Now)
	if latest := a.latest(); !latest.IsZero() && !a.Now.After(latest) {
		until = min(until, latest.Sub(a.Now)+time.Second)
	}
	return max(until, punctual)
}

// ---- deletion

// shown is how long after its deletion a schedule is asked about snapshots that were made a moment before: caches show them by then.
const shown = 5 * time.Second

// FinalizeSchedule is the answer while a schedule is being deleted: its snapshots stay as they are. With deletionPolicy Delete they go with
// their owner, by Kubernetes' own garbage collection, unless who deleted the schedule asked it to orphan them: a hook that deleted them
// itself could take, on a stale view, what somebody has just orphaned. With Retain they are taken from their owner before it goes, as
// volumes are (see Finalize).
func FinalizeSchedule(o ScheduleObservation) (remaining []*v1alpha1.EtcdSnapshot, finalized bool, resync time.Duration) {
	owned := false
	for _, name := range slices.Sorted(maps.Keys(o.Snapshots)) {
		s := o.Snapshots[name].DeepCopy()
		remaining = append(remaining, s)
		if o.Schedule.Spec.DeletionPolicy == v1alpha1.DeletionDelete || s.DeletionTimestamp != nil {
			continue
		}
		owned = true
		if s.Annotations[AnnotationRetained] != "" && s.Annotations[AnnotationLastApplied] != "" {
			s.OwnerReferences = nil
		}
		s.Annotations = with(s.Annotations, AnnotationRetained, o.Schedule.Name)
	}
	if o.Schedule.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
		return remaining, true, 0
	}
	if since := o.Now.Sub(o.Schedule.DeletionTimestamp.Time); since < shown && since > -time.Minute {
		return remaining, false, shown - since
	}
	return remaining, !owned, 0
}

// ToldSnapshot is what a snapshot of an answer is told about itself: what it was told when it was made, and on the way of
// [FinalizeSchedule] what that needs. Everything else is somebody else's.
func ToldSnapshot(s *v1alpha1.EtcdSnapshot) *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{
		Name: s.Name, Namespace: s.Namespace,
		Labels: keep(s.Labels, LabelCluster, LabelSchedule), Annotations: keep(s.Annotations, AnnotationRetained),
	}
	if len(m.Annotations) > 0 {
		m.OwnerReferences = s.OwnerReferences
	}
	return m
}

// with is a copy of labels or annotations with one more.
func with(all map[string]string, key, value string) map[string]string {
	all = maps.Clone(all)
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	return all
}
