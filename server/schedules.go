package server

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/schedule"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/server/wire"
)

// scheduleCall reads a call about an EtcdSnapshotSchedule.
func (s *Server) scheduleCall(_ context.Context, body io.Reader) (*call, error) {
	r, err := wire.ReadSchedule(body)
	if err != nil {
		return nil, err
	}
	return &call{
		kind: v1alpha1.KindSchedule, parent: r.Schedule, finalizing: r.Finalizing,
		untimely: r.Finalizing != (r.Schedule.DeletionTimestamp != nil),
		decide:   func(_ context.Context, began time.Time) (*decided, error) { return s.decideSchedule(r, began) },
		letGo:    func(time.Time) *decided { return s.letScheduleGo(r) },
		forget:   s.forgetSchedule,
	}, nil
}

func (s *Server) decideSchedule(r *wire.ScheduleCall, began time.Time) (*decided, error) {
	o := r.Observation
	o.Now, o.Zone = began, wire.Zone(o.Schedule.Spec.TimeZone)
	o.Images, o.AllowedEndpoints = s.options.Settings.Images, s.options.Settings.AllowedEndpoints
	d, finalized := schedule.Decision{}, (*bool)(nil)
	if r.Finalizing {
		d.Status, d.Reason = o.Schedule.Status, rule.Reason{Rule: "Finalize", Message: "the schedule is being deleted"}
		finalized = new(bool)
		d.Snapshots, *finalized, d.ResyncAfter = schedule.Finalize(o)
	} else {
		d = schedule.Decide(o)
	}
	if s.options.Verify {
		if err := snapshot.VerifyPods(o.Images, o.Pods, d.Pods); err != nil {
			s.metrics.Violated()
			return nil, err
		}
	}
	// The labels that say who looks after its snapshots are the schedule's.
	labels := func(*v1alpha1.EtcdSnapshot) map[string]string { return s.options.Scope.handedDown(r.Schedule) }
	return &decided{
		encode: func() ([]byte, error) { return r.Answer(d, labels, finalized) },
		gone:   finalized != nil && *finalized,
		tell: func() {
			s.metrics.Decided("Schedule" + d.Reason.Rule)
			s.metrics.Schedule(r.Schedule, &d)
			quiet := d.Reason.Message == r.Schedule.Status.Message
			s.logAnswer(&answered{
				hook: "sync", kind: "schedule", parent: r.Schedule, because: d.Reason, quiet: quiet, began: began,
			})
		},
	}, nil
}

// letScheduleGo answers everything as it is. Its snapshots keep the labels that they have: the Quorate that takes over
// gives them its own.
func (s *Server) letScheduleGo(r *wire.ScheduleCall) *decided {
	finalized := true
	labels := func(o *v1alpha1.EtcdSnapshot) map[string]string { return s.options.Scope.handedDown(o) }
	return &decided{gone: true, encode: func() ([]byte, error) {
		return r.Answer(schedule.Decision{Snapshots: byName(r.Snapshots), Pods: byName(r.Pods),
			Status: r.Schedule.Status}, labels, &finalized)
	}}
}

func (s *Server) forgetSchedule(schedule types.UID) {
	s.said.forget(schedule)
	s.metrics.ForgetSchedule(schedule)
}
