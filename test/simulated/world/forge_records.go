package world

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
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
	first := before.Annotations[objects.AnnotationNextMember]
	number, _ := strconv.Atoi(first)
	member := w.Cluster().Name + "-" + first
	delete(forged.Annotations, objects.AnnotationClusterID)
	forged.Annotations[objects.AnnotationNextMember] = strconv.Itoa(number + 1)
	forged.Annotations[objects.AnnotationPhase] = "began"
	forged.Data = maps.Clone(before.Data)
	forged.Data[objects.EpochKeyAfter], forged.Data[objects.EpochKeyFirst] = strconv.Itoa(n-1), first
	forged.Data[objects.EpochKeyInitialCluster] = member + "=" + objects.PeerURL(w.Cluster(), member, "")
	_ = w.create(ConfigMapKind, forged)
}

// EditRecord sets an annotation on that of the epoch that runs; empty takes it away.
func (w *World) EditRecord(key, value string) {
	record := copyOf(w.record()).(*corev1.ConfigMap)
	record.Annotations = maps.Clone(record.Annotations)
	record.Annotations[objects.Domain+key] = value
	_ = w.update(ConfigMapKind, record)
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
	for _, record := range w.kept {
		again := copyOf(record).(*corev1.ConfigMap)
		again.ResourceVersion, again.DeletionTimestamp = "", nil
		again.OwnerReferences[0].UID = w.Cluster().UID
		_ = w.create(ConfigMapKind, again)
	}
}

func (w *World) record() *corev1.ConfigMap {
	n := max(1, int(w.Cluster().Status.Epoch))
	record, _ := w.Objects[Key{ConfigMapKind, objects.EpochName(w.Cluster().Name, n)}].(*corev1.ConfigMap)
	return record
}
