package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func TestScheduleStatus(t *testing.T) {
	o := everyHour()
	o.Schedule.Spec.Retention.Last = new(int32(2))
	for _, run := range []string{"21 23:00", "22 00:00", "22 01:00"} {
		o.add(run, v1beta1.SnapshotSucceeded)
	}
	unverified := o.add("22 02:00", v1beta1.SnapshotSucceeded)
	unverified.Status.VerificationTime, unverified.Status.Revision = metav1.Time{}, 9
	skipped := o.add("22 03:00", v1beta1.SnapshotSkipped)
	skipped.Status.Revision = 9

	s := decided(t, o).Status
	at := func(text string) metav1.Time { return metav1.NewTime(clock(text)) }
	assert.Equal(t, unverified.Name, s.LastSuccess.Name)
	assert.EqualValues(t, 9, s.LastSuccess.Revision)
	assert.Equal(t, at("22 03:00:01"), s.LastSuccess.Time, "it was so still when the next run looked")
	assert.Equal(t, "orders-20261122-0100", s.LastVerified.Name)
	assert.Equal(t, at("22 01:00:10"), s.LastVerified.Time)
	assert.Equal(t, []metav1.Time{at("22 03:00"), at("22 04:00")}, []metav1.Time{s.LastScheduleTime,
		s.NextScheduleTime})
	assert.EqualValues(t, 2, s.Kept)
	assert.Nil(t, s.LastFailure)
	assert.Nil(t, s.Active)
	assert.EqualValues(t, 1, s.ObservedGeneration)
	assert.Equal(t, "Ready True Serving", first(s.Conditions))

	o.add("22 02:30", v1beta1.SnapshotFailed)
	assert.Nil(t, decided(t, o).Status.LastFailure, "it was before a run that found nothing to do")
	delete(o.Snapshots, "orders-20261122-0230")
	for what, edit := range map[string]func(s *v1beta1.EtcdSnapshot){
		"of another etcd, and of the same revision by accident": func(s *v1beta1.EtcdSnapshot) {
			s.Status.ClusterID = "another"
		},
		"of another EtcdCluster":                    func(s *v1beta1.EtcdSnapshot) { s.Spec.ClusterRef.Name = "another" },
		"of another revision":                       func(s *v1beta1.EtcdSnapshot) { s.Status.Revision = 8 },
		"with other users":                          func(s *v1beta1.EtcdSnapshot) { s.Status.AuthRevision = 2 },
		"unreachable about which etcd it looked at": func(s *v1beta1.EtcdSnapshot) { s.Status.ClusterID = "" },
		"from before":                               func(s *v1beta1.EtcdSnapshot) { s.Name = "orders-20261122-0130" },
		"not skipped":                               func(s *v1beta1.EtcdSnapshot) { s.Status.Phase = v1beta1.SnapshotFailed },
	} {
		other := skipped.DeepCopy()
		edit(other)
		delete(o.Snapshots, skipped.Name)
		o.Snapshots[other.Name] = other
		assert.Equal(t, at("22 02:00:10"), decided(t, o).Status.LastSuccess.Time, "by one that is %s", what)
		delete(o.Snapshots, other.Name)
	}

	failed := o.add("22 03:00", v1beta1.SnapshotFailed)
	failed.Status.Message = "no such bucket"
	d := decided(t, o)
	assert.Equal(t, []string{failed.Name, "no such bucket"}, []string{d.Status.LastFailure.Name,
		d.Status.LastFailure.Message})
	assert.Equal(t, "orders-20261122-0300 failed: no such bucket; the newest successful one is orders-20261122-0200",
		d.Reason.Message)

	o.Now = clock("22 04:00:20")
	o.add("22 04:00", v1beta1.SnapshotSucceeded)
	assert.Nil(t, decided(t, o).Status.LastFailure, "it was before the last success")
	assert.EqualValues(t, 2, decided(t, o).Status.Kept)
	o.Snapshots["orders-20261122-0100"].DeletionTimestamp = &metav1.Time{Time: o.Now}
	o.Snapshots["orders-20261122-0200"].DeletionTimestamp = &metav1.Time{Time: o.Now}
	assert.EqualValues(t, 2, decided(t, o).Status.Kept, "two are being deleted")

	o.Zone = nil
	unreadable := decided(t, o).Status.Conditions
	assert.Equal(t, "Ready False Invalid", first(unreadable))
	assert.Equal(t, "Stalled True Invalid", first(unreadable[1:]))
	o.Zone = time.UTC
	o.Schedule.Spec.Suspend = true
	s = decided(t, o).Status
	assert.Equal(t, "Ready True Suspended", first(s.Conditions))
	assert.True(t, s.NextScheduleTime.IsZero())
}

// A newer snapshot is due two runs after the newest that counts: one run may fail.
func TestWhenANewerSnapshotIsDue(t *testing.T) {
	o := everyHour()
	due := func(want time.Time, why string) {
		t.Helper()
		assert.WithinDuration(t, want, decided(t, o).Due, 0, why)
	}
	due(clock("01 02:00"), "the second run after the schedule was created")
	o.add("22 01:00", v1beta1.SnapshotSucceeded)
	due(clock("22 03:00"), "the second run after the newest")
	o.add("22 02:00", v1beta1.SnapshotSucceeded).Status.VerificationTime = metav1.Time{}
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
	o.add("22 03:00", v1beta1.SnapshotSucceeded)
	asked := func(now time.Time, rule string, want time.Duration) {
		t.Helper()
		o.Now = now
		d := decided(t, o)
		assert.Equal(t, rule, d.Reason.Rule)
		assert.Equal(t, want, d.ResyncAfter)
	}
	asked(clock("22 03:00:20"), "Waiting", 59*time.Minute+40*time.Second)
	asked(clock("22 03:59:59"), "Waiting", time.Second)
	asked(clock("22 04:00:00").Add(-time.Microsecond), "Waiting", punctual) // less may be a hot loop
	asked(clock("22 04:00:00"), ruleTake, time.Hour)

	o.add("22 03:00", v1beta1.SnapshotRunning)
	asked(clock("22 04:00:20"), "Wait", 59*time.Minute+40*time.Second)
	o.Schedule.Spec.Suspend = true
	asked(clock("22 04:01:01"), "Suspended", 0)
}

// first is the first of the conditions, in words.
func first(all []metav1.Condition) string {
	return all[0].Type + " " + string(all[0].Status) + " " + all[0].Reason
}

func TestFinalizeSchedule(t *testing.T) {
	given := func(policy v1beta1.DeletionPolicy) Observation {
		o := everyHour()
		o.Schedule.Spec.DeletionPolicy = policy
		o.Schedule.DeletionTimestamp = &metav1.Time{Time: o.Now.Add(-time.Minute)}
		for _, run := range []string{"22 01:00", "22 02:00"} {
			o.add(run, v1beta1.SnapshotSucceeded).OwnerReferences = []metav1.OwnerReference{{Name: "orders",
				UID: o.Schedule.UID}}
		}
		return o
	}
	left, finalized, _ := Finalize(given(v1beta1.DeletionDelete))
	require.Len(t, left, 2)
	assert.True(t, finalized, "they go with their owner, by Kubernetes")
	assert.Empty(t, left[0].Annotations[objects.AnnotationRetained])
	assert.Empty(t, Told(left[0]).OwnerReferences)

	for _, policy := range []v1beta1.DeletionPolicy{"", v1beta1.DeletionRetain} {
		o := given(policy)
		next := func(most int, owners int, why string) []*v1beta1.EtcdSnapshot {
			t.Helper()
			left, finalized, _ := Finalize(o)
			require.Len(t, left, most, why)
			assert.False(t, finalized, why)
			for _, s := range left {
				assert.Len(t, Told(s).OwnerReferences, owners, why)
				assert.Equal(t, "orders", Told(s).Annotations[objects.AnnotationRetained], why)
			}
			return left
		}
		left := next(2, 1, "the owner must be told first")
		assert.Empty(t, o.Snapshots[left[0].Name].Annotations[objects.AnnotationRetained],
			"what was given is unchanged")
		for _, s := range left {
			o.Snapshots[s.Name] = s
		}
		left = next(2, 1, "without Metacontroller's note of the owner, it is told again")
		for _, s := range left {
			s.Annotations[objects.AnnotationLastApplied] = "{}"
			o.Snapshots[s.Name] = s
		}
		next(2, 0, "then the owner is told no more")

		o.Snapshots["orders-20261122-0100"].DeletionTimestamp = &metav1.Time{Time: o.Now}
		delete(o.Snapshots, "orders-20261122-0200") // it has no owner now
		left, finalized, _ := Finalize(o)
		assert.Len(t, left, 1)
		assert.True(t, finalized)
		for at, want := range map[time.Duration]time.Duration{0: shown, 2 * time.Second: 3 * time.Second,
			-2 * time.Second: 7 * time.Second, shown: 0, -time.Hour: 0} {
			o.Now = o.Schedule.DeletionTimestamp.Add(at)
			_, finalized, again := Finalize(o)
			assert.Equal(t, want == 0, finalized, at)
			assert.Equal(t, want, again, at)
		}
	}
}
