package world

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// RestoreNamespace deletes the namespace, whose volumes are retained, and makes it again from a backup: with other
// UIDs, without status, and with the owners of before, which are stripped from claims or not. Claims come back on their
// volumes, or are left out. The EtcdClusters and their operations come last.
func (w *World) RestoreNamespace(labels map[string]string, stripped, claims bool) {
	volumes, backup := map[string]Dir{}, map[Key]metav1.Object{}
	for _, key := range w.keys() {
		o := w.Objects[key]
		if key.Kind == ClaimKind {
			volumes[key.Name] = w.Dirs[volumeOf(o.GetUID())]
		}
		if key.Kind != snapshotKind {
			backup[key] = copyOf(o)
			w.drop(key)
		}
	}
	for _, kind := range []Kind{ClaimKind, SecretKind, ConfigMapKind, ClusterKind, OperationKind} {
		for key, o := range backup {
			if key.Kind == kind && (kind != ClaimKind || claims) {
				w.restored(kind, o, labels, stripped && kind == ClaimKind)
			}
		}
	}
	for name, d := range volumes {
		if claim := w.Claim(name); claim != nil {
			w.storeDir(volumeOf(claim.UID), d)
		}
	}
	w.Oracle.newCluster()
}

func (w *World) restored(kind Kind, o metav1.Object, with map[string]string, stripped bool) {
	o.SetResourceVersion("")
	o.SetFinalizers(nil)
	o.SetDeletionTimestamp(nil)
	if stripped {
		o.SetOwnerReferences(nil)
	}
	labels := clone(o.GetLabels())
	maps.Copy(labels, with)
	if len(with) == 0 {
		annotations := clone(o.GetAnnotations())
		annotations[objects.AnnotationByKubectl] = "{}"
		o.SetAnnotations(annotations)
	}
	o.SetLabels(labels)
	switch o := o.(type) {
	case *v1beta1.EtcdCluster:
		o.Status = noStatus
	case *v1beta1.EtcdOperation:
		o.Status = v1beta1.EtcdOperationStatus{}
	}
	_ = w.create(kind, o)
	if claim, is := o.(*corev1.PersistentVolumeClaim); is {
		claim.Status.Phase = corev1.ClaimBound
	}
}
