package hooks

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// The release before this one had a hash of the spec on pods, in another annotation. It knows no other, and would
// restart every member for want of it when it takes over again. So pods carry both for the time of one release, and a
// pod that carries that one alone is judged by it.
//
// All of this goes with the next release: this file, formerTemplate, and what names them.

const annotationFormerTemplate = objects.Domain + "template"

func (v *view) formerTemplate() string {
	if v.former == "" {
		v.former = formerTemplate(&v.Cluster.Spec)
	}
	return v.former
}

// formerTemplate is that hash.
func formerTemplate(s *v1alpha1.EtcdClusterSpec) string {
	size := ""
	if s.Storage.Medium == v1alpha1.Memory {
		q := storageSize(s)
		size = q.String()
	}
	o := s.Options
	o.HeartbeatInterval, o.ElectionTimeout, o.LogLevel = heartbeatMillis(o), electionMillis(o),
		cmp.Or(o.LogLevel, "info")
	o.AutoCompaction.Mode = cmp.Or(o.AutoCompaction.Mode, v1alpha1.CompactPeriodic)
	return fingerprint([]any{
		1, cmp.Or(s.Image.PullPolicy, corev1.PullIfNotPresent), s.Image.PullSecrets, size, s.Resources, s.Affinity,
		s.NodeSelector,
		s.Tolerations, s.TopologySpreadConstraints, s.PriorityClassName, o,
		cmp.Or(s.TLS.Mode, v1alpha1.TLSAuto), s.TLS.Secrets, cmp.Or(s.TLS.MinVersion, minTLS), s.TLS.CipherSuites,
		s.Auth != nil && s.Auth.Token == v1alpha1.TokenSimple,
	})
}
