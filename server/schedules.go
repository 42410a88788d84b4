package server

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/schedule"
)

// decodeScheduleCall reads a call about an EtcdSnapshotSchedule.
func decodeScheduleCall(body io.Reader) (o schedule.Observation, finalizing bool, err error) {
	finalizing, err = parts{
		parent: func(in *source) error { return decodeSchedule(in, &o.Schedule) },
		children: map[string]func(*source, string) error{
			groupSnapshots: func(in *source, where string) error {
				return group(in, where, v1alpha1.GroupVersion.String(), v1alpha1.KindSnapshot, &o.Snapshots, func(w *wire[v1alpha1.EtcdSnapshotSpec, v1alpha1.EtcdSnapshotStatus]) *v1alpha1.EtcdSnapshot {
					return &v1alpha1.EtcdSnapshot{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
				})
			},
		},
	}.read(body)
	if err != nil {
		return o, false, err
	}
	return o, finalizing, sameNamespace(groupSnapshots, o.Schedule.Namespace, o.Snapshots)
}

func decodeSchedule(in *source, to **v1alpha1.EtcdSnapshotSchedule) error {
	var w wire[v1alpha1.EtcdSnapshotScheduleSpec, v1alpha1.EtcdSnapshotScheduleStatus]
	if err := value(in, "parent", &w); err != nil {
		return err
	}
	if err := identified("parent", &w.TypeMeta, &w.Metadata.ObjectMeta, v1alpha1.GroupVersion.String(), v1alpha1.KindSchedule); err != nil {
		return err
	}
	if w.Metadata.Namespace == "" {
		return bad("parent.metadata.namespace is missing")
	}
	*to = &v1alpha1.EtcdSnapshotSchedule{TypeMeta: w.TypeMeta, ObjectMeta: w.Metadata.ObjectMeta, Spec: w.Spec, Status: w.Status}
	return nil
}

// zone is the time zone of a name; nil when there is none. The zone of this very process, which Go calls Local, is none: it would be another
// one elsewhere. Main embeds all zones, since the image has no files.
func zone(name string) *time.Location {
	z, err := time.LoadLocation(name)
	if err != nil || z == time.Local {
		return nil
	}
	return z
}

// scheduleHook answers the hooks sync and finalize of an EtcdSnapshotSchedule.
func (s *Server) scheduleHook(c *gin.Context) {
	began := s.now()
	o, finalizing, err := decodeScheduleCall(c.Request.Body)
	if err != nil {
		s.refuse(c, err)
		return
	}
	if err := s.options.Scope.elsewhere(v1alpha1.KindSchedule, &o.Schedule.ObjectMeta); err != nil {
		s.refuse(c, err)
		return
	}
	if finalizing && !s.options.Scope.selects(&o.Schedule.ObjectMeta) {
		s.letScheduleGo(c, o)
		return
	}
	if err := s.options.Scope.check(v1alpha1.KindSchedule, &o.Schedule.ObjectMeta); err != nil {
		s.refuse(c, err)
		return
	}
	deleted := o.Schedule.DeletionTimestamp != nil
	if hook := "/schedules/finalize"; finalizing != deleted || finalizing != (c.FullPath() == hook) {
		s.refuse(c, bad("the hook is %s, finalizing is %t, and the parent is being deleted: %t; only a parent that is being deleted is finalized, by %s", c.FullPath(), finalizing, deleted, hook))
		return
	}
	o.Now, o.Zone = began, zone(o.Schedule.Spec.TimeZone)
	var d schedule.Decision
	var finalized *bool
	if finalizing {
		d.Status, d.Because = o.Schedule.Status, rule.Because{Rule: "Finalize", Message: "the schedule is being deleted"}
		var done bool
		d.Snapshots, done, d.ResyncAfter = schedule.Finalize(o)
		finalized = &done
	} else {
		d = schedule.Decide(o)
	}
	body, err := encodeParts(o.Schedule.Namespace, &d.Status, s.snapshotsTold(o, d, o.Schedule), d.ResyncAfter, finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.metrics.decisions.WithLabelValues("Schedule" + d.Because.Rule).Inc()
	s.metrics.schedules.note(o.Schedule, &d)
	s.logParent("schedule", &o.Schedule.ObjectMeta, d.Because, d.Because.Message == o.Schedule.Status.Message, began)
	if finalized != nil && *finalized {
		s.saidOfOthers.forget(o.Schedule.UID)
		s.metrics.schedules.forget(o.Schedule.UID)
	}
	reply(c, body)
}

// letScheduleGo answers as letGo does. Its snapshots keep the labels that they have: the Quorate that takes over gives them its own.
func (s *Server) letScheduleGo(c *gin.Context, o schedule.Observation) {
	finalized := true
	var d schedule.Decision
	d.Snapshots = slices.SortedFunc(maps.Values(o.Snapshots), func(a, b *v1alpha1.EtcdSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	body, err := encodeParts(o.Schedule.Namespace, &o.Schedule.Status, s.snapshotsTold(o, d, nil), 0, &finalized)
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.saidOfOthers.forget(o.Schedule.UID)
	s.metrics.schedules.forget(o.Schedule.UID)
	reply(c, body)
}

// snapshotsTold are the snapshots of an answer. One that is kept is told what it was told when it was made, with the values that people have
// given to that since: a template that has changed is for new ones alone. The labels that say who looks after them are those of the schedule;
// without one, they stay as they are.
func (s *Server) snapshotsTold(o schedule.Observation, d schedule.Decision, owner *v1alpha1.EtcdSnapshotSchedule) []answerChild {
	var list []answerChild
	for _, snapshot := range d.Snapshots {
		spec := snapshot.Spec.DeepCopy()
		if old := o.Snapshots[snapshot.Name]; kept(snapshot, old) {
			spec = keptSpec(old.GetAnnotations()[lastApplied], spec)
		}
		labelled := &snapshot.ObjectMeta
		if owner != nil {
			labelled = &owner.ObjectMeta
		}
		told := schedule.Told(snapshot)
		down := s.options.Scope.handedDown(labelled)
		maps.Copy(down, told.Labels)
		told.Labels = down
		list = append(list, asking(child(o.Schedule.Namespace, v1alpha1.GroupVersion.String(), v1alpha1.KindSnapshot, told, answerChild{Spec: spec}), o.Snapshots[snapshot.Name]))
	}
	return list
}
