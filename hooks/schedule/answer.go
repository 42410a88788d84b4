package schedule

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
)

// decide says which snapshots stay, and which is new.
func (a *agenda) decide(d *Decision) {
	if a.timetable == nil || a.Schedule.Spec.Suspend {
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
	switch d.Reason.Rule {
	case ruleBase:
		d.Snapshots = append(d.Snapshots, a.made(a.baseAt(), nil))
	case ruleTake:
		d.Snapshots = append(d.Snapshots, a.made(a.due, a.skips()))
	}
	for _, s := range a.all {
		if keep[s.Name] {
			d.Snapshots = append(d.Snapshots, s.EtcdSnapshot)
		}
	}
}

// skips is what the snapshot of the run that is due is skipped for; nil for nothing.
func (a *agenda) skips() *snapshot.Unless {
	if skip := a.Schedule.Spec.SkipUnchanged; a.beforeUpgrade || skip != nil && !*skip {
		return nil
	}
	return a.unless()
}

// made is the snapshot of a run.
func (a *agenda) made(run time.Time, unless *snapshot.Unless) *v1beta1.EtcdSnapshot {
	spec := v1beta1.Copy(&a.Schedule.Spec.Template.Spec)
	var annotations map[string]string
	if unless != nil {
		annotations = map[string]string{objects.AnnotationUnless: unless.String()}
	}
	labels := map[string]string{objects.LabelSchedule: a.Schedule.Name}
	if spec.External == nil {
		labels[objects.LabelCluster] = spec.ClusterRef.Name
	}
	return &v1beta1.EtcdSnapshot{
		ObjectMeta: metav1.ObjectMeta{
			Name: snapshotName(a.Schedule.Name, run), Namespace: a.Schedule.Namespace,
			Labels: labels, Annotations: annotations,
		},
		Spec: *spec,
	}
}

// unless is what need not be stored again: what the cluster was like at the newest snapshot that succeeded, if it is
// what a new one would be; nil for nothing.
func (a *agenda) unless() *snapshot.Unless {
	s := a.success
	want := &a.Schedule.Spec.Template.Spec
	switch {
	case s == nil, s.Spec.SourceName() != want.SourceName(), !reflect.DeepEqual(s.Spec.Store, want.Store),
		!reflect.DeepEqual(s.Spec.Encryption, want.Encryption):
		return nil
	case !s.verified() && (want.Verify == nil || *want.Verify):
		return nil
	}
	return s.unless()
}

func (a *agenda) status(d *Decision) v1beta1.EtcdSnapshotScheduleStatus {
	s := v1beta1.EtcdSnapshotScheduleStatus{
		ObservedGeneration: a.Schedule.Generation, Conditions: a.conditions(d.Reason), Message: d.Reason.Message,
		LastSuccess: a.withCurrent(a.success), LastVerified: a.withCurrent(a.verified), Stream: a.streamStatus(),
	}
	if !a.last.IsZero() {
		s.LastScheduleTime = metav1.NewTime(a.last)
	}
	if a.timetable != nil && !a.Schedule.Spec.Suspend {
		s.NextScheduleTime = metav1.NewTime(a.timetable.Next(a.Now))
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
func (a *agenda) withCurrent(s *taken) *v1beta1.SnapshotReference {
	if s == nil {
		return nil
	}
	r := s.reference()
	if a.current != nil && s == a.success {
		r.Time = a.current.since()
	}
	return r
}

func (a *agenda) conditions(because decision.Reason) []metav1.Condition {
	list := slices.Clone(a.Schedule.Status.Conditions)
	to := decision.Conditions{List: &list, Generation: a.Schedule.Generation, Now: a.Now}
	if c := a.streaming(); c != nil {
		to.Set(v1beta1.Streaming, c.Status == metav1.ConditionTrue, c.Reason, objects.Clipped(c.Message))
	} else {
		meta.RemoveStatusCondition(&list, v1beta1.Streaming)
	}
	if because.Rule == ruleUnreadable {
		to.Set(v1beta1.Ready, false, v1beta1.ReasonInvalid, because.Message)
		to.Set(v1beta1.Stalled, true, v1beta1.ReasonInvalid, because.Message)
		return list
	}
	reason := v1beta1.ReasonServing
	if a.Schedule.Spec.Suspend {
		reason = v1beta1.ReasonSuspended
	}
	to.Set(v1beta1.Ready, true, reason, because.Message)
	to.NotStalled()
	return list
}
