package volumes

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/state"
)

// KeptClaims are the observed claims of these members.
func KeptClaims(v *state.View, names []string) []*corev1.PersistentVolumeClaim {
	return Claims(v, names, func(string) bool { return false })
}

// Claims are the observed claims of these members, and new ones where create says so.
func Claims(v *state.View, names []string, create func(string) bool) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, name := range claimNames(v, names, create) {
		member, _ := state.MemberOfClaim(v.Cluster.Name, name)
		if old := v.Children.Claims[name]; old != nil {
			claim := *old
			claim.Labels = objects.Labels(v.Cluster, map[string]string{objects.LabelMember: member})
			claim.Annotations = objects.Annotations(v.Cluster, objects.Only(old.Annotations,
				objects.AnnotationFailedMember, objects.AnnotationQuarantined, objects.AnnotationEpoch, objects.AnnotationAskedFor))
			if state.Quarantined(old) {
				claim.Labels[objects.LabelQuarantined] = "true"
			}
			sized(v, &claim)
			list = append(list, &claim)
		} else if create(member) {
			list = append(list, NewClaim(v, name))
		}
	}
	return list
}

// NewClaim is a claim of this name, as the spec wants it now.
func NewClaim(v *state.View, name string) *corev1.PersistentVolumeClaim {
	member, _ := state.MemberOfClaim(v.Cluster.Name, name)
	size, class, _ := claimSpec(v, name)
	own := map[string]string{objects.AnnotationAskedFor: askedFor(size, class)}
	if v.Epoch != nil && v.Epoch.N > 1 {
		own[objects.AnnotationEpoch] = strconv.Itoa(v.Epoch.N)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      objects.Labels(v.Cluster, map[string]string{objects.LabelMember: member}),
			Annotations: objects.Annotations(v.Cluster, own)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}
}
