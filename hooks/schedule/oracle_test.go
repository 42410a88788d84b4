package schedule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/timetable"
)

// decided decides, checks what is true of every decision, and that nothing of what was given has changed.
func decided(t testing.TB, o Observation) Decision {
	t.Helper()
	before, _ := json.Marshal([]any{o.Schedule, o.Snapshots, o.Pods})
	d := Decide(o)
	if after, _ := json.Marshal([]any{o.Schedule, o.Snapshots, o.Pods}); string(after) != string(before) {
		t.Fatalf("the decision changed what it was given:\n%s\n%s", before, after)
	}
	if wrong := wrongWith(o, d); wrong != "" {
		t.Fatalf("%s\nat %s, rule %s: %s\nchanges: %s", wrong, o.Now.Format(time.RFC3339Nano), d.Reason.Rule,
			d.Reason.Message, changes(o, d))
	}
	return d
}

// wrongWith says which rule of safety a decision about a schedule breaks, in other words than the decision has; empty
// for none.
func wrongWith(o Observation, d Decision) string {
	answered, fresh := map[string]bool{}, 0
	for _, s := range d.Snapshots {
		if answered[s.Name] {
			return s.Name + " is there twice"
		}
		answered[s.Name] = true
		if s.UID != "" && o.Snapshots[s.Name] != s {
			return s.Name + " is not as it was observed"
		}
		if s.UID != "" {
			continue
		}
		fresh++
		run, err := time.Parse("20060102-1504", strings.TrimPrefix(s.Name, o.Schedule.Name+"-"))
		switch {
		case o.Snapshots[s.Name] != nil:
			return s.Name + " is made again"
		case err != nil || run.After(o.Now) || ofTimetable(o, run) && !run.After(o.Schedule.CreationTimestamp.Time) &&
			snapshot.UnlessOf(s) != nil || run.Before(o.Schedule.CreationTimestamp.Truncate(time.Minute)):
			return s.Name + " is not a run of the time between the schedule's creation and now"
		case o.Schedule.Spec.Suspend:
			return s.Name + " is made while the schedule is suspended"
		case !ofTimetable(o, run) && (o.Schedule.Spec.Stream == nil || snapshot.UnlessOf(s) != nil):
			return s.Name + " is no run of the timetable, and no base of a stream"
		}
	}
	if wrong := wrongPods(o, d); wrong != "" {
		return wrong
	}
	if fresh > 1 {
		return "more than one snapshot is made"
	}
	if d.ResyncAfter < 0 || d.ResyncAfter > 0 && d.ResyncAfter < punctual {
		return fmt.Sprintf("asking again after %s is a hot loop", d.ResyncAfter)
	}
	for name, s := range o.Snapshots {
		if why := mustStay(o, s); !answered[name] && why != "" {
			return name + " is let go: " + why
		}
	}
	return ""
}

// ofTimetable reports whether a run is one of the timetable's.
func ofTimetable(o Observation, run time.Time) bool {
	table, err := timetable.Read(o.Schedule.Spec.Schedule, o.Zone)
	return err == nil && table.Next(run.Add(-time.Second)).Equal(run)
}

// wrongPods says what is wrong with the pods of a stream in a decision; empty for nothing.
func wrongPods(o Observation, d Decision) string {
	verified, answered, running := map[string]*v1beta1.EtcdSnapshot{}, map[string]bool{}, 0
	for name, s := range o.Snapshots {
		ofNow := s.Status.Revision > 0 && s.Status.ClusterID == o.Clusters["orders"].Status.ClusterID
		if inStore(s) && !s.Status.VerificationTime.IsZero() && ofNow {
			verified[name] = s
		}
	}
	for _, pod := range o.Pods {
		if pod.DeletionTimestamp == nil {
			running++
		}
	}
	wanted := o.Schedule.Spec.Stream != nil && !o.Schedule.Spec.Suspend
	for _, pod := range d.Pods {
		base := verified[pod.Annotations[objects.AnnotationBase]]
		switch answered[pod.Name] = true; {
		case pod.UID != "" && o.Pods[pod.Name] == pod:
			if !wanted && pod.DeletionTimestamp == nil {
				return pod.Name + " stays without spec.stream"
			}
			continue
		case o.Pods[pod.Name] != nil:
			return pod.Name + " is changed"
		case !wanted:
			return pod.Name + " is made without spec.stream"
		case running > 0:
			return pod.Name + " is made beside another one"
		case base == nil:
			return pod.Name + " has no verified base"
		case !slices.Contains(pod.Spec.Containers[0].Args, fmt.Sprintf("--from-revision=%d", base.Status.Revision)):
			return pod.Name + " does not begin after its base"
		}
		for _, other := range verified {
			if takenFor(other).After(takenFor(base)) {
				return pod.Name + " does not begin after the newest base"
			}
		}
		running++
	}
	return ""
}

// mustStay is why a snapshot can't be let go, whatever the rules of retention say; empty when they decide.
func mustStay(o Observation, s *v1beta1.EtcdSnapshot) string {
	if o.Schedule.Spec.Suspend || o.Zone == nil {
		return "nothing is while it is suspended, or can't be read"
	}
	if s.DeletionTimestamp != nil {
		return "it is being deleted"
	}
	switch s.Status.Phase {
	case v1beta1.SnapshotFailed, v1beta1.SnapshotSkipped:
		return ""
	case v1beta1.SnapshotSucceeded, v1beta1.SnapshotUnverified:
	default:
		return "it is not finished"
	}
	if len(s.Status.UsedBy) > 0 {
		return beingRestored
	}
	newer, newerSucceeded, newerVerified := false, false, false
	for _, other := range o.Snapshots {
		if inStore(other) && cmp.Or(takenFor(other).Compare(takenFor(s)), cmp.Compare(other.Name, s.Name)) > 0 {
			newer = true
			newerSucceeded = newerSucceeded || other.Status.Phase == v1beta1.SnapshotSucceeded
			newerVerified = newerVerified || !other.Status.VerificationTime.IsZero()
		}
	}
	r := &o.Schedule.Spec.Retention
	switch {
	case !newer:
		return "it is the newest"
	case !newerSucceeded && s.Status.Phase == v1beta1.SnapshotSucceeded:
		return "it is the newest that succeeded"
	case !newerVerified && !s.Status.VerificationTime.IsZero():
		return "it is the newest that was verified"
	case r.Last == nil && r.MaxAge == nil && r.Hourly == nil && r.Daily == nil && r.Weekly == nil && r.Monthly == nil &&
		r.Yearly == nil:
		return "there is no rule by which any is"
	}
	return ""
}

const beingRestored = "it is being restored"

// inStore: there is something to restore.
func inStore(s *v1beta1.EtcdSnapshot) bool {
	return s.DeletionTimestamp == nil && (s.Status.Phase == v1beta1.SnapshotSucceeded ||
		s.Status.Phase == v1beta1.SnapshotUnverified)
}

// takenFor is the time in the name, or that of the creation when a clock was ahead.
func takenFor(s *v1beta1.EtcdSnapshot) time.Time {
	run, err := time.Parse("20060102-1504", s.Name[max(0, len(s.Name)-len("20060102-1504")):])
	if err != nil || run.Sub(s.CreationTimestamp.Time) > 5*time.Minute {
		return s.CreationTimestamp.Time
	}
	return run
}
