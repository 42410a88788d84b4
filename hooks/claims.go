package hooks

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// initialClaims are the claims of the initial members. None is made when etcd answers: then the cluster runs, and the
// record that we see is an old one.
func initialClaims(v *view, _ *verdict) []*corev1.PersistentVolumeClaim {
	if !v.onClaims() || v.Etcd != nil {
		return v.keptClaims(v.names)
	}
	return v.claims(union(v.names, v.epoch.initialNames()),
		func(name string) bool { return v.epoch.initial[name] != "" })
}

// listedClaims are the claims of the listed members, and those of members that etcd has let go but whose numbers are
// not yet recorded as used (S7, S9), or that are kept in quarantine.
func (v *view) listedClaims(decision *verdict) []*corev1.PersistentVolumeClaim {
	all := v.claims(v.names, func(name string) bool {
		m := v.find(name)
		return v.onClaims() && m != nil && v.mayBeMade(m)
	})
	list := filter(all, func(c *corev1.PersistentVolumeClaim) bool {
		member, _ := memberOfClaim(v.Cluster.Name, c.Name)
		old := v.Children.Claims[c.Name]
		return old == nil || v.find(member) != nil || !v.ordinalReserved(member) || !v.ours(old) || v.claimKept(old)
	})
	v.quarantine(list, decision)
	return list
}

func (v *view) keptClaims(names []string) []*corev1.PersistentVolumeClaim {
	return v.claims(names, func(string) bool { return false })
}

// claims are the observed claims of these members, and new ones where create says so.
func (v *view) claims(names []string, create func(string) bool) []*corev1.PersistentVolumeClaim {
	var list []*corev1.PersistentVolumeClaim
	for _, name := range v.claimNames(names, create) {
		member, _ := memberOfClaim(v.Cluster.Name, name)
		if old := v.Children.Claims[name]; old != nil {
			claim := *old
			claim.Labels = labels(v.Cluster, map[string]string{objects.LabelMember: member})
			claim.Annotations = annotations(v.Cluster, objects.Only(old.Annotations, objects.AnnotationFailedMember,
				objects.AnnotationQuarantined, objects.AnnotationEpoch))
			if quarantined(old) {
				claim.Labels[objects.LabelQuarantined] = "true"
			}
			v.sized(&claim)
			list = append(list, &claim)
		} else if create(member) {
			list = append(list, v.newClaim(name))
		}
	}
	return list
}

func (v *view) newClaim(name string) *corev1.PersistentVolumeClaim {
	member, _ := memberOfClaim(v.Cluster.Name, name)
	size, class, _ := v.claimSpec(name)
	own := map[string]string{}
	if v.epoch != nil && v.epoch.n > 1 {
		own[objects.AnnotationEpoch] = strconv.Itoa(v.epoch.n)
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels:      labels(v.Cluster, map[string]string{objects.LabelMember: member}),
			Annotations: annotations(v.Cluster, own)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: class,
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: size},
			},
		},
	}
}
