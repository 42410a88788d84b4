package facts

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// Provided reports whether the certificates come from others.
func Provided(c *v1beta1.EtcdCluster) bool {
	return objects.TLSMode(c) == v1beta1.TLSSecrets || objects.TLSMode(c) == v1beta1.TLSCertManager
}

// WithoutCertManager says why no Certificate can be asked for; empty when it can.
func (f *Facts) WithoutCertManager() string {
	if objects.TLSMode(f.Cluster) != v1beta1.TLSCertManager || f.Children.Certificates != nil {
		return ""
	}
	return "spec.tls.mode is CertManager, but Quorate was installed without the right to create Certificates: " +
		"install cert-manager, then install Quorate again with `quorate install --cert-manager` or the kustomize " +
		"component manifests/components/cert-manager"
}

// unissued is what cert-manager says about a Certificate whose Secret is not there; empty when it has said nothing yet.
func (f *Facts) unissued(secret string) string {
	if c := f.Children.Certificates[secret]; c != nil {
		for _, condition := range c.Status.Conditions {
			if condition.Type == "Ready" && condition.Status != metav1.ConditionTrue {
				return fmt.Sprintf("; cert-manager says of the Certificate: %s", condition.Message)
			}
		}
	}
	return ""
}

// Trusted are the authorities in the Secrets that pods name, each with its key, both by their digests.
func (f *Facts) Trusted() map[string]string {
	all := map[string]string{}
	for _, name := range []string{defaults.ServerSecret(f.Cluster), defaults.PeerSecret(f.Cluster)} {
		if s := f.Secret(name); s != nil {
			for _, a := range s.Trust {
				all[objects.Digest(a.ID)] = objects.Digest(a.Key)
			}
		}
	}
	return all
}

// BegunWith are the authorities that a pod was made with, as in trusted. False when that says nothing about the etcd
// that runs, because it was started again since.
func BegunWith(pod *corev1.Pod) (map[string]string, bool) {
	if pod == nil || pod.Annotations[objects.AnnotationTrusts] == "" {
		return nil, false
	}
	return objects.ParsePairs(pod.Annotations[objects.AnnotationTrusts], ":"),
		objects.StatusOf(pod, objects.ContainerEtcd).RestartCount == 0
}

// takes reports whether a running member takes what is in this Secret, as far as that is known. What it told in its
// handshake are subjects, and those of one port; an authority that was replaced under its old subject is told by
// its key.
func (f *Facts) takes(pod *corev1.Pod, what string, s *observation.Secret) bool {
	begun, known := BegunWith(pod)
	h := f.Health[pod.Name]
	inHandshake := (what == "peer") == h.Anonymous || !known && SameTrust(f.ToldBy(h).Trust, s.Trust)
	return slices.ContainsFunc(s.Anchors, func(a observation.Certificate) bool {
		return (!inHandshake || slices.Contains(h.Trusts, a.Subject)) &&
			(!known || slices.Contains(slices.Collect(maps.Values(begun)), objects.Digest(a.Key)))
	})
}

// findUntrusted says which of the Secrets holds a certificate that running members don't take, and what to do; empty
// for none. A member that is restarted then would hear no other member, and none would hear it.
func (f *Facts) findUntrusted() string {
	if !Provided(f.Cluster) || len(f.CertificateProblems) > 0 {
		return ""
	}
	for _, l := range f.Leaves {
		s := f.Secret(l.Secret)
		if !l.Server && l.What != "operator" || s == nil || len(s.Anchors) == 0 {
			continue
		}
		who := objects.Filter(f.Names, func(name string) bool {
			pod := f.Children.Pods[name]
			return pod != nil && pod.DeletionTimestamp == nil && len(f.Health[name].Trusts) > 0 &&
				!f.takes(pod, l.What, s)
		})
		if len(who) > 0 {
			return fmt.Sprintf("Secret %s: the authority that signed tls.crt is not trusted by %s, which started "+
				"before it; Quorate changes and restarts no member, because the others would reject it: put the "+
				"former certificate back, with both authorities in ca.crt, or stop all members and start them with "+
				"the new authority (spec.replicas 0, then the former number): see "+
				v1beta1.Docs+"how-to/certificates.md#authoritychanged",
				l.Secret, strings.Join(who, ", "))
		}
	}
	return ""
}

// begunOtherwise reports whether the member runs with other authorities than its Secrets hold now, and may be
// restarted to take these: every member takes what it will show then, and it takes what they all show.
func (f *Facts) begunOtherwise(m *Member) bool {
	server := f.Secret(defaults.ServerSecret(f.Cluster))
	if f.Untrusted != "" || slices.ContainsFunc(f.Names, func(name string) bool {
		shown := f.Health[name].Certificate
		return shown != "" && shown != server.Certificate.ID // the kubelet has yet to write the newest one
	}) {
		return false
	}
	begun, known := BegunWith(m.Pod)
	return !slices.Equal(Subjects(f.ToldBy(m.Health).Trust), m.Health.Trusts) ||
		known && !maps.Equal(begun, f.Trusted())
}
