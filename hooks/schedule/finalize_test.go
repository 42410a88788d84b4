package schedule

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func TestFinalizeSchedule(t *testing.T) {
	given := func(policy v1alpha1.DeletionPolicy) Observation {
		o := everyHour()
		o.Schedule.Spec.DeletionPolicy = policy
		o.Schedule.DeletionTimestamp = &metav1.Time{Time: o.Now.Add(-time.Minute)}
		for _, run := range []string{"22 01:00", "22 02:00"} {
			o.add(run, v1alpha1.SnapshotSucceeded).OwnerReferences = []metav1.OwnerReference{{Name: "orders",
				UID: o.Schedule.UID}}
		}
		return o
	}
	o := given(v1alpha1.DeletionDelete)
	if left, finalized, _ := Finalize(o); len(left) != 2 || !finalized ||
		left[0].Annotations[objects.AnnotationRetained] != "" || len(Told(left[0]).OwnerReferences) > 0 {
		t.Errorf("Delete: they go with their owner, by Kubernetes: %v, %t", left, finalized)
	}
	for _, policy := range []v1alpha1.DeletionPolicy{"", v1alpha1.DeletionRetain} {
		o := given(policy)
		left, finalized, _ := Finalize(o)
		if len(left) != 2 || finalized || len(Told(left[0]).OwnerReferences) != 1 ||
			Told(left[1]).Annotations[objects.AnnotationRetained] != "orders" {
			t.Fatalf("Retain: the owner must be told first: %v, %t", left, finalized)
		}
		if o.Snapshots[left[0].Name].Annotations[objects.AnnotationRetained] != "" {
			t.Error("what was given is changed")
		}
		for _, s := range left {
			o.Snapshots[s.Name] = s
		}
		if left, finalized, _ = Finalize(o); finalized || len(Told(left[0]).OwnerReferences) != 1 {
			t.Fatalf("Retain: without Metacontroller's note of the owner, it is told again: %v, %t", left, finalized)
		}
		for _, s := range left {
			s.Annotations[objects.AnnotationLastApplied] = "{}"
			o.Snapshots[s.Name] = s
		}
		if left, finalized, _ = Finalize(o); finalized || len(Told(left[0]).OwnerReferences) != 0 ||
			len(Told(left[1]).OwnerReferences) != 0 {
			t.Fatalf("Retain: then the owner is told no more: %v, %t", left, finalized)
		}
		o.Snapshots["orders-20261122-0100"].DeletionTimestamp = &metav1.Time{Time: o.Now}
		delete(o.Snapshots, "orders-20261122-0200") // it has no owner now
		if left, finalized, _ = Finalize(o); !finalized || len(left) != 1 {
			t.Errorf("Retain: %v, %t", left, finalized)
		}
		for at, want := range map[time.Duration]time.Duration{0: shown, 2 * time.Second: 3 * time.Second,
			-2 * time.Second: 7 * time.Second, shown: 0, -time.Hour: 0} {
			o.Now = o.Schedule.DeletionTimestamp.Add(at)
			if _, finalized, again := Finalize(o); finalized != (want == 0) || again != want {
				t.Errorf("%s after the deletion: finalized %t, asked again after %s", at, finalized, again)
			}
		}
	}
}
