package objects

import (
	"cmp"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Restricted is what a container may do: nothing that it needs root for.
func Restricted() *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false),
		ReadOnlyRootFilesystem:   new(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
}

// UserID is the user that the programs in pods run as.
const UserID = 10001

// PodSecurity lets a pod read and write the members' volumes, without being root: as Quorate's own user where the spec,
// which may be nil, says nothing else.
func PodSecurity(s *v1beta1.PodSecurity) *corev1.PodSecurityContext {
	if s == nil {
		s = &v1beta1.PodSecurity{}
	}
	c := &corev1.PodSecurityContext{
		RunAsNonRoot: new(true),
		RunAsUser:    s.RunAsUser, RunAsGroup: s.RunAsGroup, FSGroup: s.FSGroup,
		FSGroupChangePolicy: new(cmp.Or(s.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch)),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if s.IDPolicy != v1beta1.IDsByPlatform {
		own := new(int64(UserID))
		c.RunAsUser = cmp.Or(c.RunAsUser, own)
		c.RunAsGroup = cmp.Or(c.RunAsGroup, own)
		c.FSGroup = cmp.Or(c.FSGroup, own)
	}
	return c
}

// ValidatePodSecurity says what in this field has no pod start, or is forbidden by the Pod Security Standard
// restricted, where the CRD did not refuse it.
func ValidatePodSecurity(field string, s *v1beta1.PodSecurity) error {
	if s == nil {
		return nil
	}
	for _, id := range []*int64{s.RunAsUser, s.RunAsGroup, s.FSGroup} {
		if id != nil && (*id < 1 || *id > math.MaxInt32) {
			return fmt.Errorf("%s has the user or group %d: use one from 1 to %d", field, *id, math.MaxInt32)
		}
	}
	return nil
}
