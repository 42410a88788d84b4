package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

func TestScheduleStatus(t *testing.T) {
	o := everyHour()
	o.Schedule.Spec.Retention.Last = new(int32(2))
	for _, run := range []string{"21 23:00", "22 00:00", "22 01:00"} {
		o.add(run, v1alpha1.SnapshotSucceeded)
	}
	unverified := o.add("22 02:00", v1alpha1.SnapshotSucceeded)
	unverified.Status.VerificationTime, unverified.Status.Revision = metav1.Time{}, 9
	skipped := o.add("22 03:00", v1alpha1.SnapshotSkipped)
	skipped.Status.Revision = 9

	s := decided(t, o).Status
	if s.LastSuccess.Name != unverified.Name || s.LastSuccess.Revision != 9 ||
		!s.LastSuccess.Time.Time.Equal(clock("22 03:00:01")) {
		t.Errorf("the last success is %+v: it was so still when the next run looked", s.LastSuccess)
	}
	if s.LastVerified.Name != "orders-20261122-0100" || !s.LastVerified.Time.Time.Equal(clock("22 01:00:10")) {
		t.Errorf("the last verified is %+v", s.LastVerified)
	}
	if !s.LastScheduleTime.Time.Equal(clock("22 03:00")) || !s.NextScheduleTime.Time.Equal(clock("22 04:00")) ||
		s.Kept != 2 ||
		s.LastFailure != nil || s.Active != nil {
		t.Errorf("%+v", s)
	}
	if c := s.Conditions[0]; c.Type != v1alpha1.Ready || c.Status != metav1.ConditionTrue || c.Reason != "Waiting" ||
		s.ObservedGeneration != 1 {
		t.Errorf("%+v", c)
	}

	o.add("22 02:30", v1alpha1.SnapshotFailed)
	if s := decided(t, o).Status; s.LastFailure != nil {
		t.Errorf("a failure is told that was before a run that found nothing to do: %+v", s.LastFailure)
	}
	delete(o.Snapshots, "orders-20261122-0230")
	for what, edit := range map[string]func(s *v1alpha1.EtcdSnapshot){
		"of another etcd, and of the same revision by " +
			"accident": func(s *v1alpha1.EtcdSnapshot) { s.Status.ClusterID = "another" },
		"of another EtcdCluster": func(s *v1alpha1.EtcdSnapshot) { s.Spec.ClusterRef.Name = "another" },
		"of another revision":    func(s *v1alpha1.EtcdSnapshot) { s.Status.Revision = 8 },
		"with other users":       func(s *v1alpha1.EtcdSnapshot) { s.Status.AuthRevision = 2 },
		"silent about which etcd it looked " +
			"at": func(s *v1alpha1.EtcdSnapshot) { s.Status.ClusterID = "" },
		"from before": func(s *v1alpha1.EtcdSnapshot) { s.Name = "orders-20261122-0130" },
		"not skipped": func(s *v1alpha1.EtcdSnapshot) { s.Status.Phase = v1alpha1.SnapshotFailed },
	} {
		other := skipped.DeepCopy()
		edit(other)
		delete(o.Snapshots, skipped.Name)
		o.Snapshots[other.Name] = other
		if s := decided(t, o).Status; !s.LastSuccess.Time.Time.Equal(clock("22 02:00:10")) {
			t.Errorf("by one that is %s, the last success is %+v", what, s.LastSuccess)
		}
		delete(o.Snapshots, other.Name)
	}

	failed := o.add("22 03:00", v1alpha1.SnapshotFailed)
	failed.Status.Message = "no such bucket"
	d := decided(t, o)
	if d.Status.LastFailure == nil || d.Status.LastFailure.Name != failed.Name ||
		d.Status.LastFailure.Message != "no such bucket" {
		t.Errorf("the last failure is %+v", d.Status.LastFailure)
	}
	if want := "orders-20261122-0300 failed: no such bucket; the newest successful one is orders-20261122-0200"; d.Reason.Message != want {
		t.Errorf("%q", d.Reason.Message)
	}

	o.Now = clock("22 04:00:20")
	o.add("22 04:00", v1alpha1.SnapshotSucceeded)
	if s := decided(t, o).Status; s.LastFailure != nil {
		t.Errorf("a failure before the last success is %+v", s.LastFailure)
	}
	if kept := decided(t, o).Status.Kept; kept != 2 {
		t.Errorf("%d are kept", kept)
	}
	o.Snapshots["orders-20261122-0100"].DeletionTimestamp = &metav1.Time{Time: o.Now}
	o.Snapshots["orders-20261122-0200"].DeletionTimestamp = &metav1.Time{Time: o.Now}
	if s := decided(t, o).Status; s.Kept != 2 {
		t.Errorf("with two that are being deleted %d are kept", s.Kept)
	}
	o.Zone = nil
	if s := decided(t, o).Status.Conditions; s[0].Status != metav1.ConditionFalse || s[0].Reason != "Unreadable" ||
		s[1].Type != v1alpha1.Stalled || s[1].Status != metav1.ConditionTrue {
		t.Errorf("%+v", s)
	}
	o.Zone = time.UTC
	o.Schedule.Spec.Suspend = true
	s = decided(t, o).Status
	if c := s.Conditions[0]; c.Status != metav1.ConditionTrue || c.Reason != "Suspended" ||
		!s.NextScheduleTime.IsZero() {
		t.Errorf("%+v", s)
	}
}

// A newer snapshot is due two runs after the newest that counts: one run may fail.
func TestWhenANewerSnapshotIsDue(t *testing.T) {
	o := everyHour()
	due := func(want time.Time, why string) {
		t.Helper()
		if d := decided(t, o); !d.Due.Equal(want) {
			t.Errorf("due at %s, not %s: %s", d.Due, want, why)
		}
	}
	due(clock("01 02:00"), "the second run after the schedule was created")
	o.add("22 01:00", v1alpha1.SnapshotSucceeded)
	due(clock("22 03:00"), "the second run after the newest")
	o.add("22 02:00", v1alpha1.SnapshotSucceeded).Status.VerificationTime = metav1.Time{}
	due(clock("22 03:00"), "what was not restored on trial does not count")
	o.Schedule.Spec.Template.Spec.Verify = new(false)
	due(clock("22 04:00"), "except for a schedule that does without")
	o.Schedule.Spec.Suspend = true
	due(time.Time{}, "nothing is due while no snapshots are taken")
	o.Schedule.Spec.Suspend, o.Schedule.Spec.Schedule = false, "no cron"
	due(time.Time{}, "nor when it is not known when")
}

// A schedule is asked again when the next run is due, and not before.
func TestWhenAScheduleIsAskedAgain(t *testing.T) {
	o := everyHour()
	o.add("22 03:00", v1alpha1.SnapshotSucceeded)
	for at, want := range map[string]time.Duration{
		"22 03:00:20": 59*time.Minute + 40*time.Second,
		"22 03:59:59": time.Second,
	} {
		o.Now = clock(at)
		if d := decided(t, o); d.ResyncAfter != want {
			t.Errorf("at %s it would be asked after %s", at, d.ResyncAfter)
		}
	}
	o.Now = clock("22 04:00:00").Add(-time.Microsecond)
	if d := decided(t, o); d.ResyncAfter != punctual {
		t.Errorf("a little before, it is asked after %s: that may be a hot loop", d.ResyncAfter)
	}
	o.Now = clock("22 04:00:00")
	if d := decided(t, o); d.Reason.Rule != ruleTake || d.ResyncAfter != time.Hour {
		t.Errorf("%s, asked after %s", d.Reason.Rule, d.ResyncAfter)
	}

	o.add("22 03:00", v1alpha1.SnapshotRunning)
	o.Now = clock("22 04:00:20")
	o.Schedule.Spec.StartingDeadlineSeconds = new(int64(60))
	d := decided(t, o)
	if d.Reason.Rule != "Wait" || d.ResyncAfter != 41*time.Second {
		t.Errorf("%s, asked after %s, not when the deadline is over", d.Reason.Rule, d.ResyncAfter)
	}
	o.Now = o.Now.Add(d.ResyncAfter)
	if d := decided(t, o); d.Reason.Rule != "Missed" || d.ResyncAfter != 58*time.Minute+59*time.Second {
		t.Errorf("%s, asked after %s", d.Reason.Rule, d.ResyncAfter)
	}
	o.Schedule.Spec.Suspend = true
	if d := decided(t, o); d.ResyncAfter != 0 {
		t.Errorf("suspended, it is asked after %s", d.ResyncAfter)
	}
}
