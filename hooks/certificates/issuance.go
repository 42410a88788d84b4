package certificates

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Provided reports whether the certificates come from others.
func Provided(c *v1alpha1.EtcdCluster) bool {
	return objects.TLSMode(c) == v1alpha1.TLSSecrets || objects.TLSMode(c) == v1alpha1.TLSCertManager
}

// Certificates are the Certificates that cert-manager should keep: one for each leaf, under the name of its Secret.
// Where there is no rule for them, none.
func Certificates(v *state.View) []*decision.CertManagerCertificate {
	if v.Children.Certificates == nil || objects.TLSMode(v.Cluster) != v1alpha1.TLSCertManager {
		return state.KeptAll(v.Cluster, v.Children.Certificates)
	}
	var list []*decision.CertManagerCertificate
	for _, l := range v.Leaves {
		list = append(list, certificate(v, l))
	}
	if a := v.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose are wanted is not known
		for _, old := range state.KeptAll(v.Cluster, v.Children.Certificates) {
			if !slices.ContainsFunc(list, func(c *decision.CertManagerCertificate) bool { return c.Name == old.Name }) {
				list = append(list, old)
			}
		}
	}
	slices.SortFunc(list, func(a, b *decision.CertManagerCertificate) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// certificate asks cert-manager for a leaf, with a new key at each renewal. The label makes its Secret a related
// object.
func certificate(v *state.View, l spec.Leaf) *decision.CertManagerCertificate {
	c := &decision.CertManagerCertificate{}
	if old := v.Children.Certificates[l.Secret]; old != nil {
		c.ObjectMeta = old.ObjectMeta
	}
	c.Name, c.Labels, c.Annotations = l.Secret, objects.Labels(v.Cluster, nil), objects.Annotations(v.Cluster, nil)
	asked := v.Cluster.Spec.TLS.CertManager
	c.Spec.SecretName, c.Spec.CommonName, c.Spec.Duration = l.Secret, l.CommonName, asked.Duration
	c.Spec.IssuerRef = spec.WholeIssuer(asked.IssuerRef)
	c.Spec.PrivateKey.Algorithm, c.Spec.PrivateKey.Size, c.Spec.PrivateKey.RotationPolicy = "ECDSA", 256, "Always"
	c.Spec.SecretTemplate.Labels = map[string]string{objects.LabelCluster: v.Cluster.Name}
	for _, name := range l.Names {
		if numeric(name) {
			c.Spec.IPAddresses = append(c.Spec.IPAddresses, name)
		} else {
			c.Spec.DNSNames = append(c.Spec.DNSNames, name)
		}
	}
	c.Spec.Usages = []string{"digital signature"}
	if l.Server {
		c.Spec.Usages = append(c.Spec.Usages, "server auth")
	}
	if l.Client {
		c.Spec.Usages = append(c.Spec.Usages, "client auth")
	}
	return c
}

// numeric reports whether a name is an IP address: a colon is in no host's name, and none ends in a number.
func numeric(name string) bool {
	_, err := strconv.Atoi(name[strings.LastIndex(name, ".")+1:])
	return err == nil || strings.Contains(name, ":")
}

// WithoutCertManager says why no Certificate can be asked for; empty when it can.
func WithoutCertManager(v *state.View) string {
	if objects.TLSMode(v.Cluster) != v1alpha1.TLSCertManager || v.Children.Certificates != nil {
		return ""
	}
	return "spec.tls.mode is CertManager, but Quorate was installed without the right to create Certificates: " +
		"install cert-manager, then install Quorate again with `quorate install --cert-manager` or the kustomize " +
		"component manifests/components/cert-manager"
}

// unissued is what cert-manager says about a Certificate whose Secret is not there; empty when it has said nothing yet.
func unissued(v *state.View, secret string) string {
	if c := v.Children.Certificates[secret]; c != nil {
		for _, condition := range c.Status.Conditions {
			if condition.Type == "Ready" && condition.Status != metav1.ConditionTrue {
				return fmt.Sprintf("; cert-manager says of the Certificate: %s", condition.Message)
			}
		}
	}
	return ""
}

// Trusted are the authorities in the Secrets that pods name, each with its key, both by their digests.
func Trusted(v *state.View) map[string]string {
	all := map[string]string{}
	for _, name := range []string{spec.ServerSecret(v.Cluster), spec.PeerSecret(v.Cluster)} {
		if s := Secret(v, name); s != nil {
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
func takes(v *state.View, pod *corev1.Pod, what string, s *observation.Secret) bool {
	begun, known := BegunWith(pod)
	h := v.Health[pod.Name]
	inHandshake := (what == "peer") == h.Anonymous || !known && SameTrust(ToldBy(v, h).Trust, s.Trust)
	return slices.ContainsFunc(s.Anchors, func(a observation.Certificate) bool {
		return (!inHandshake || slices.Contains(h.Trusts, a.Subject)) &&
			(!known || slices.Contains(slices.Collect(maps.Values(begun)), objects.Digest(a.Key)))
	})
}

// findUntrusted says which of the Secrets holds a certificate that running members don't take, and what to do; empty
// for none. A member that is restarted then would hear no other member, and none would hear it.
func findUntrusted(v *state.View) string {
	if !Provided(v.Cluster) || len(v.CertificateProblems) > 0 {
		return ""
	}
	for _, l := range v.Leaves {
		s := Secret(v, l.Secret)
		if !l.Server && l.What != "operator" || s == nil || len(s.Anchors) == 0 {
			continue
		}
		who := wording.Filter(v.Names, func(name string) bool {
			pod := v.Children.Pods[name]
			return pod != nil && pod.DeletionTimestamp == nil && len(v.Health[name].Trusts) > 0 &&
				!takes(v, pod, l.What, s)
		})
		if len(who) > 0 {
			return fmt.Sprintf("Secret %s: the authority that signed tls.crt is not trusted by %s, which started "+
				"before it; Quorate changes and restarts no member, because the others would reject it: put the "+
				"former certificate back, with both authorities in ca.crt, or stop all members and start them with "+
				"the new authority (spec.replicas 0, then the former number): see AuthorityChanged in "+
				"docs/how-to/certificates.md",
				l.Secret, strings.Join(who, ", "))
		}
	}
	return ""
}

// begunOtherwise reports whether the member runs with other authorities than its Secrets hold now, and may be
// restarted to take these: every member takes what it will show then, and it takes what they all show.
func begunOtherwise(v *state.View, m *state.Member) bool {
	server := Secret(v, spec.ServerSecret(v.Cluster))
	if v.Untrusted != "" || slices.ContainsFunc(v.Names, func(name string) bool {
		shown := v.Health[name].Certificate
		return shown != "" && shown != server.Certificate.ID // the kubelet has yet to write the newest one
	}) {
		return false
	}
	begun, known := BegunWith(m.Pod)
	return !slices.Equal(Subjects(ToldBy(v, m.Health).Trust), m.Health.Trusts) ||
		known && !maps.Equal(begun, Trusted(v))
}
