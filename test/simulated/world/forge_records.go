package world

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
)

// What who may write ConfigMaps, and nothing else, does to records.

// ForgeRecord makes the record of an epoch that has taken over from the one that runs, with whatever that has.
func (w *World) ForgeRecord(n int) {
	before := w.record()
	if before == nil {
		return
	}
	forged := copyOf(before).(*corev1.ConfigMap)
	forged.ObjectMeta = metav1.ObjectMeta{Name: objects.EpochName(w.Cluster().Name, n), Labels: before.Labels,
		Annotations: maps.Clone(before.Annotations), OwnerReferences: before.OwnerReferences}
	recordtest.Edit(forged, func(r *record.Record) {
		member := objects.MemberName(w.Cluster().Name, r.NextOrdinal)
		r.ClusterID = 0
		r.First = r.NextOrdinal
		r.NextOrdinal++
		r.Phase = record.PhaseBegan
		r.After = n - 1
		r.Initial = map[string]string{member: objects.PeerURL(w.Cluster(), member, "")}
	})
	_ = w.create(ConfigMapKind, forged)
}

// EditRecord changes what that of the epoch that runs says.
func (w *World) EditRecord(change func(*record.Record)) {
	edited := copyOf(w.record()).(*corev1.ConfigMap)
	recordtest.Edit(edited, change)
	_ = w.update(ConfigMapKind, edited)
}

// KeepRecords takes a copy of all, and RecordsAgain puts that back.
func (w *World) KeepRecords() {
	w.kept = nil
	for _, o := range w.OfKind(ConfigMapKind) {
		w.kept = append(w.kept, copyOf(o).(*corev1.ConfigMap))
	}
}

// RecordsAgain makes those of the copy that are gone, for the cluster that there is now.
func (w *World) RecordsAgain() {
	for _, kept := range w.kept {
		again := copyOf(kept).(*corev1.ConfigMap)
		again.ResourceVersion, again.DeletionTimestamp = "", nil
		again.OwnerReferences[0].UID = w.Cluster().UID
		_ = w.create(ConfigMapKind, again)
	}
}

func (w *World) record() *corev1.ConfigMap {
	n := max(1, int(w.Cluster().Status.Epoch))
	cm, _ := w.Objects[Key{ConfigMapKind, objects.EpochName(w.Cluster().Name, n)}].(*corev1.ConfigMap)
	return cm
}
