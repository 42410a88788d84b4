package children

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
)

// The release before this one had a hash of the spec on pods, in another annotation. It knows no other, and would
// restart every member without it when it takes over again. So pods carry both for the time of one release, and a pod
// that carries that one alone is judged by it.
//
// All of this goes with the next release: this file, FormerTemplate, and what names them.

// AnnotationFormerTemplate is where the release before this one has that hash.
const AnnotationFormerTemplate = objects.Domain + "template"

func formerTemplate(v *state.View) string {
	if v.Former == "" {
		v.Former = FormerTemplate(&v.Cluster.Spec)
	}
	return v.Former
}

// FormerTemplate is that hash.
func FormerTemplate(s *v1alpha1.EtcdClusterSpec) string {
	size := ""
	if s.Storage.Medium == v1alpha1.Memory {
		q := spec.StorageSize(s)
		size = q.String()
	}
	o := spec.OptionsOf(s.Options)
	o.AutoCompaction.Mode = cmp.Or(o.AutoCompaction.Mode, v1alpha1.CompactPeriodic)
	return objects.Fingerprint([]any{
		1, cmp.Or(s.Image.PullPolicy, corev1.PullIfNotPresent), s.Image.PullSecrets, size, s.Resources, s.Affinity,
		s.NodeSelector, s.Tolerations, s.TopologySpreadConstraints, s.PriorityClassName, o,
		cmp.Or(s.TLS.Mode, v1alpha1.TLSAuto), s.TLS.Secrets, cmp.Or(s.TLS.MinVersion, spec.MinTLS), s.TLS.CipherSuites,
		s.Auth != nil && s.Auth.Token == v1alpha1.TokenSimple,
	})
}
