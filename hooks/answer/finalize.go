package answer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Finalize is the answer while the cluster is being deleted: everything is left as it is, and nothing stands in the
// way. The children go with their owner, by Kubernetes' own garbage collection, in the way that was asked for
// (background, foreground or orphan). Nothing is asked of etcd and no member is waited for (S17). A hook that deleted
// children itself could take, on a stale view, the volumes that a user has just orphaned.
//
// With deletionPolicy Retain the claims are taken from their owner before it goes. Metacontroller removes from an
// object what it has applied and is no longer told: so the owner is told once, with a note that it was, and then no
// more (dynamic/apply in Metacontroller). Where that note got lost, the owner is told once more. By server-side apply
// Metacontroller never gives up an owner: the claims stay owned, and the cluster stays, until it applies as before.
func Finalize(o observation.Observation) (remaining decision.Desired, finalized bool) {
	remaining = AsObserved(o)
	if o.Cluster.Spec.DeletionPolicy == v1beta1.DeletionDelete {
		return remaining, true
	}
	owned := false
	for _, claim := range remaining.Claims {
		old := o.Children.Claims[claim.Name]
		if old.DeletionTimestamp != nil {
			continue
		}
		owned = true
		claim.OwnerReferences = old.OwnerReferences
		if old.Annotations[objects.AnnotationRetained] != "" && !slices.Contains(o.WithoutLastApplied,
			observation.ChildName("PersistentVolumeClaim", old)) {
			claim.OwnerReferences = nil
		}
		claim.Annotations[objects.AnnotationRetained] = o.Cluster.Name
	}
	return remaining, !owned
}

// ToldOwners are the owners that a claim of an answer is told: none, but on the way of [Finalize].
func ToldOwners(claim *corev1.PersistentVolumeClaim) []metav1.OwnerReference {
	if claim.Annotations[objects.AnnotationRetained] == "" {
		return nil
	}
	return claim.OwnerReferences
}
