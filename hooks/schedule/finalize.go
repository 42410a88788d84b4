package schedule

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// shown is how long after its deletion a schedule is asked about snapshots that were made a moment before: caches show
// them by then.
const shown = 5 * time.Second

// Finalize is the answer while a schedule is being deleted: its snapshots stay as they are. With deletionPolicy Delete
// they go with their owner, by Kubernetes' own garbage collection, unless who deleted the schedule asked it to orphan
// them: a hook that deleted them itself could take, on a stale view, what was just orphaned. With Retain they are taken
// from their owner before it goes, as volumes are (see Finalize in package hooks).
func Finalize(o Observation) (remaining []*v1beta1.EtcdSnapshot, finalized bool, resync time.Duration) {
	owned := false
	for _, name := range slices.Sorted(maps.Keys(o.Snapshots)) {
		s := o.Snapshots[name].DeepCopy()
		remaining = append(remaining, s)
		if o.Schedule.Spec.DeletionPolicy == v1beta1.DeletionDelete || s.DeletionTimestamp != nil {
			continue
		}
		owned = true
		if s.Annotations[objects.AnnotationRetained] != "" && s.Annotations[objects.AnnotationLastApplied] != "" {
			s.OwnerReferences = nil
		}
		s.Annotations = objects.With(s.Annotations, objects.AnnotationRetained, o.Schedule.Name)
	}
	if o.Schedule.Spec.DeletionPolicy == v1beta1.DeletionDelete {
		return remaining, true, 0
	}
	if since := o.Now.Sub(o.Schedule.DeletionTimestamp.Time); since < shown && since > -time.Minute {
		return remaining, false, shown - since
	}
	return remaining, !owned, 0
}

// Told is what a snapshot of an answer is told about itself: what it was told when it was made, and on the way of
// [Finalize] what that needs. Everything else belongs to others.
func Told(s *v1beta1.EtcdSnapshot) *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{
		Name: s.Name, Namespace: s.Namespace,
		Labels:      objects.Only(s.Labels, objects.LabelCluster, objects.LabelSchedule),
		Annotations: objects.Only(s.Annotations, objects.AnnotationRetained, objects.AnnotationUnless),
	}
	if m.Annotations[objects.AnnotationRetained] != "" {
		m.OwnerReferences = s.OwnerReferences
	}
	return m
}
