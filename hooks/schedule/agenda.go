package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/timetable"
)

// taken is a snapshot of the schedule, as far as it has come.
type taken struct {
	*v1beta1.EtcdSnapshot
	// run is the time that its name says; unknown is true when it says none, and it is not known what it is for.
	run     time.Time
	unknown bool
	// at is when it was taken for: the time of its run. A run that is later than the creation of its snapshot was
	// decided by a clock that was ahead: then it is when the API server created it.
	at time.Time
}

func (s *taken) alive() bool { return s.DeletionTimestamp == nil }

func (s *taken) is(p v1beta1.SnapshotPhase) bool { return s.alive() && s.Status.Phase == p }

func (s *taken) succeeded() bool { return s.is(v1beta1.SnapshotSucceeded) }

func (s *taken) verified() bool { return s.succeeded() && !s.Status.VerificationTime.IsZero() }

func (s *taken) failed() bool { return s.is(v1beta1.SnapshotFailed) }

func (s *taken) skipped() bool { return s.is(v1beta1.SnapshotSkipped) }

// stored: there is something to restore, verified or not.
func (s *taken) stored() bool { return s.succeeded() || s.is(v1beta1.SnapshotUnverified) }

// missed: it did not become what was asked for.
func (s *taken) missed() bool { return s.failed() || s.is(v1beta1.SnapshotUnverified) }

// used: an EtcdCluster restores it, or is about to.
func (s *taken) used() bool { return len(s.Status.UsedBy) > 0 }

// vain: there is nothing stored of it.
func (s *taken) vain() bool { return s.failed() || s.skipped() }

// unfinished snapshots are being taken, or will be.
func (s *taken) unfinished() bool {
	switch s.Status.Phase {
	case "", v1beta1.SnapshotPending, v1beta1.SnapshotRunning:
		return s.alive()
	case v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified, v1beta1.SnapshotSkipped, v1beta1.SnapshotFailed,
		v1beta1.SnapshotDeleting:
	}
	return false
}

// since is from when the data is: everything that was written before is in it.
func (s *taken) since() metav1.Time { return s.BeganAt() }

func (s *taken) reference() *v1beta1.SnapshotReference {
	return &v1beta1.SnapshotReference{Name: s.Name, Time: s.since(), Revision: s.Status.Revision}
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
		if !s.skipped() || s.Spec.SourceName() != of.Spec.SourceName() {
			return false
		}
		return s.at.After(of.at) && was != nil && is != nil && *is == *was
	})
}

// unless is what the cluster was like when the snapshot was taken, or skipped; nil when its status does not tell all of
// it.
func (s *taken) unless() *snapshot.Unless {
	u := &snapshot.Unless{Revision: s.Status.Revision, ClusterID: s.Status.ClusterID,
		AuthRevision: s.Status.AuthRevision}
	if u.Revision == 0 || u.ClusterID == "" || u.AuthRevision == 0 {
		return nil
	}
	return u
}

// agenda is an observation put together.
type agenda struct {
	Observation
	timetable *timetable.Table // nil when it can't be read
	flaw      string           // what is wrong with it
	all       []*taken         // the newest first
	// active are those that are being taken, success the newest that succeeded, verified the newest that was restored
	// on trial, and current the newest run that found success to be so still. nil for none.
	active                     []*taken
	success, verified, current *taken
	base                       *taken      // that the stream begins after; nil for none
	pod                        *corev1.Pod // of the stream, and not being deleted; nil for none
	last                       time.Time   // the last run that was answered with a snapshot
	due                        time.Time   // the run that should be taken; zero for none
	beforeUpgrade              bool        // an upgrade waits for that run
}

func newAgenda(o Observation) *agenda {
	a := &agenda{Observation: o}
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
	if told := o.Schedule.Status.LastScheduleTime.Time; !a.ahead(told) && told.After(a.last) {
		a.last = told
	}
	a.success = newestOf(a.all, (*taken).succeeded)
	a.verified = newestOf(a.all, (*taken).verified)
	if a.success != nil {
		a.current = stillCurrent(a.all, a.success)
	}
	if o.Schedule.Spec.Stream != nil || len(o.Pods) > 0 {
		a.findBase()
	}
	a.read()
	if a.timetable != nil {
		a.due = a.timetable.Latest(slices.MaxFunc([]time.Time{a.last, o.Schedule.CreationTimestamp.Time},
			time.Time.Compare), o.Now)
		a.dueBeforeUpgrade()
	}
	return a
}

// understood reads the time of a run from the name of its snapshot.
func (a *agenda) understood(s *v1beta1.EtcdSnapshot) *taken {
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

// dueBeforeUpgrade makes a run due for which an upgrade of the cluster waits: that of the next whole minute, as the one
// before may have been taken already, and skipped.
func (a *agenda) dueBeforeUpgrade() {
	cluster := a.Clusters[a.Schedule.Spec.Template.Spec.ClusterRef.Name]
	if cluster == nil || cluster.Status.SnapshotWanted.IsZero() || a.Schedule.Spec.Template.Spec.External != nil {
		return
	}
	run := cluster.Status.SnapshotWanted.Truncate(time.Minute).Add(time.Minute)
	if run.After(a.last) && !a.ahead(run) {
		a.due = run
		a.beforeUpgrade = true
	}
}

// read sets the timetable, or what is wrong with it.
func (a *agenda) read() {
	spec := &a.Schedule.Spec
	if a.Zone == nil {
		a.flaw = fmt.Sprintf("spec.timeZone: there is no time zone %q", spec.TimeZone)
		return
	}
	table, err := timetable.Read(spec.Schedule, a.Zone)
	switch {
	case err != nil:
		a.flaw = fmt.Sprintf("spec.schedule can't be parsed: %s", err)
	case table.Next(a.Now).IsZero():
		a.flaw = "spec.schedule never happens"
	default:
		a.timetable = table
	}
}

// ahead reports whether a run was decided by a clock that was further ahead of ours than clocks may be. It answers for
// no run of ours: else one wrong clock would stop all snapshots until the time that it had shown.
func (a *agenda) ahead(run time.Time) bool { return run.After(a.Now.Add(skew)) }

// knownStored reports whether the status has seen a snapshot stored that the list shows as unfinished: the list lags
// then.
func (a *agenda) knownStored(name string) bool {
	s := &a.Schedule.Status
	return s.LastSuccess != nil && s.LastSuccess.Name == name || s.LastVerified != nil && s.LastVerified.Name == name
}

// failure is the newest run that failed, or that could not be verified, while none has succeeded since, or found
// nothing to do; nil for none.
func (a *agenda) failure() *taken {
	f := newestOf(a.all, (*taken).missed)
	later := func(than *taken) bool { return than != nil && than.at.After(f.at) }
	if f == nil || later(a.success) || later(a.current) {
		return nil
	}
	return f
}

// dueAfter is the second run after the newest snapshot that counts. Where the template wants snapshots restored on
// trial, only those count.
func (a *agenda) dueAfter(s *v1beta1.EtcdSnapshotScheduleStatus) time.Time {
	if a.timetable == nil || a.Schedule.Spec.Suspend {
		return time.Time{}
	}
	newest := s.LastVerified
	if verify := a.Schedule.Spec.Template.Spec.Verify; verify != nil && !*verify {
		newest = s.LastSuccess
	}
	since := a.Schedule.CreationTimestamp.Time
	if newest != nil {
		since = slices.MaxFunc([]time.Time{since, newest.Time.Time}, time.Time.Compare)
	}
	return a.timetable.Next(a.timetable.Next(since))
}

func (a *agenda) dueName() string { return snapshotName(a.Schedule.Name, a.due) }

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
		if s.Status.Phase == v1beta1.SnapshotPending && s.Status.Message != "" {
			words += " (" + s.Status.Message + ")"
		}
		all = append(all, words)
	}
	slices.Sort(all)
	return ", because this is not finished: " + strings.Join(all, ", ")
}

// wake is how soon to be asked again: when the next run is due. Whatever else matters is a change of a snapshot, and
// the snapshot tells.
func (a *agenda) wake() time.Duration {
	if a.timetable == nil || a.Schedule.Spec.Suspend {
		return 0
	}
	until := a.timetable.Next(a.Now).Sub(a.Now)
	if at := a.baseAt(); at.After(a.Now) {
		until = min(until, at.Sub(a.Now))
	}
	return max(until, punctual)
}
