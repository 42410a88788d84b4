package hooks

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Certificates that come from others: in the mode CertManager Quorate asks cert-manager for them by Certificates of
// its own, in the mode Secrets somebody puts them there. Quorate reads both as related objects and writes neither.
//
// Whoever renews them does not know what the running members trust, and these learn of another authority only when
// they start. So before anything else it is looked at whether every running member takes what the Secrets hold now
// (untrusted).

// CertManagerCertificate is a Certificate of the group cert-manager.io, as far as Quorate sets and reads it.
type CertManagerCertificate struct {
	metav1.ObjectMeta
	Spec   CertManagerSpec
	Status CertManagerStatus
}

// CertManagerSpec is what a Certificate asks for, in the words of cert-manager.
type CertManagerSpec struct {
	SecretName string `json:"secretName"`
	CommonName string `json:"commonName,omitempty"`
	// DNSNames and IPAddresses are sorted.
	DNSNames    []string         `json:"dnsNames,omitempty"`
	IPAddresses []string         `json:"ipAddresses,omitempty"`
	Usages      []string         `json:"usages,omitempty"`
	Duration    *metav1.Duration `json:"duration,omitempty"`
	PrivateKey  struct {
		Algorithm      string `json:"algorithm,omitempty"`
		Size           int    `json:"size,omitempty"` // bits
		RotationPolicy string `json:"rotationPolicy,omitempty"`
	} `json:"privateKey"`
	IssuerRef      v1alpha1.IssuerRef `json:"issuerRef"`
	SecretTemplate struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"secretTemplate"`
}

// CertManagerStatus is what cert-manager says of a Certificate.
type CertManagerStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// provided reports whether the certificates come from others.
func provided(c *v1alpha1.EtcdCluster) bool {
	return objects.TLSMode(c) == v1alpha1.TLSSecrets || objects.TLSMode(c) == v1alpha1.TLSCertManager
}

// certificates are the Certificates that cert-manager should keep: one for each leaf, under the name of its Secret.
// Where there is no rule for them, none.
func certificates(v *view) []*CertManagerCertificate {
	if v.Children.Certificates == nil || objects.TLSMode(v.Cluster) != v1alpha1.TLSCertManager {
		return keptAll(v.Cluster, v.Children.Certificates)
	}
	var list []*CertManagerCertificate
	for _, l := range v.leaves {
		list = append(list, v.certificate(l))
	}
	if a := v.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose are wanted is not known
		for _, old := range keptAll(v.Cluster, v.Children.Certificates) {
			if !slices.ContainsFunc(list, func(c *CertManagerCertificate) bool { return c.Name == old.Name }) {
				list = append(list, old)
			}
		}
	}
	slices.SortFunc(list, func(a, b *CertManagerCertificate) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// certificate asks cert-manager for a leaf, with a new key at each renewal. The label makes its Secret a related
// object.
func (v *view) certificate(l leaf) *CertManagerCertificate {
	c := &CertManagerCertificate{}
	if old := v.Children.Certificates[l.secret]; old != nil {
		c.ObjectMeta = old.ObjectMeta
	}
	c.Name, c.Labels, c.Annotations = l.secret, labels(v.Cluster, nil), annotations(v.Cluster, nil)
	asked := v.Cluster.Spec.TLS.CertManager
	c.Spec.SecretName, c.Spec.CommonName, c.Spec.Duration = l.secret, l.commonName, asked.Duration
	c.Spec.IssuerRef = wholeIssuer(asked.IssuerRef)
	c.Spec.PrivateKey.Algorithm, c.Spec.PrivateKey.Size, c.Spec.PrivateKey.RotationPolicy = "ECDSA", 256, "Always"
	c.Spec.SecretTemplate.Labels = map[string]string{objects.LabelCluster: v.Cluster.Name}
	for _, name := range l.names {
		if numeric(name) {
			c.Spec.IPAddresses = append(c.Spec.IPAddresses, name)
		} else {
			c.Spec.DNSNames = append(c.Spec.DNSNames, name)
		}
	}
	c.Spec.Usages = []string{"digital signature"}
	if l.server {
		c.Spec.Usages = append(c.Spec.Usages, "server auth")
	}
	if l.client {
		c.Spec.Usages = append(c.Spec.Usages, "client auth")
	}
	return c
}

// numeric reports whether a name is an IP address: a colon is in no host's name, and none ends in a number.
func numeric(name string) bool {
	_, err := strconv.Atoi(name[strings.LastIndex(name, ".")+1:])
	return err == nil || strings.Contains(name, ":")
}

// withoutCertManager says why no Certificate can be asked for; empty when it can.
func (v *view) withoutCertManager() string {
	if objects.TLSMode(v.Cluster) != v1alpha1.TLSCertManager || v.Children.Certificates != nil {
		return ""
	}
	return "spec.tls.mode is CertManager, but this installation of Quorate may not make Certificates: install " +
		"cert-manager, then Quorate again with " +
		"`quorate install --cert-manager` or the kustomize component manifests/components/cert-manager"
}

// unissued is what cert-manager says about a Certificate whose Secret is not there; empty when it has said nothing yet.
func (v *view) unissued(secret string) string {
	if c := v.Children.Certificates[secret]; c != nil {
		for _, condition := range c.Status.Conditions {
			if condition.Type == "Ready" && condition.Status != metav1.ConditionTrue {
				return fmt.Sprintf("; cert-manager says of the Certificate: %s", condition.Message)
			}
		}
	}
	return ""
}

// ---- what running members take

// trusted are the authorities in the Secrets that pods name, each with its key, both by their digests.
func (v *view) trusted() map[string]string {
	all := map[string]string{}
	for _, name := range []string{serverSecret(v.Cluster), peerSecret(v.Cluster)} {
		if s := v.secret(name); s != nil {
			for _, a := range s.Trust {
				all[objects.Digest(a.ID)] = objects.Digest(a.Key)
			}
		}
	}
	return all
}

// begunWith are the authorities that a pod was made with, as in trusted. False when that says nothing about the etcd
// that runs, because it was started again since.
func begunWith(pod *corev1.Pod) (map[string]string, bool) {
	if pod == nil || pod.Annotations[objects.AnnotationTrusts] == "" {
		return nil, false
	}
	return parsePairs(pod.Annotations[objects.AnnotationTrusts], ":"),
		objects.StatusOf(pod, objects.ContainerEtcd).RestartCount == 0
}

// takes reports whether a running member takes what is in this Secret, as far as that is known. What it told in its
// handshake are subjects, and those of the client port; an authority that was made anew under its old subject is told
// by its key.
func (v *view) takes(pod *corev1.Pod, what string, s *Secret) bool {
	begun, known := begunWith(pod)
	inHandshake := what != "peer" || !known && sameTrust(v.secret(serverSecret(v.Cluster)).Trust, s.Trust)
	return slices.ContainsFunc(s.Anchors, func(a Certificate) bool {
		return (!inHandshake || slices.Contains(v.Health[pod.Name].Trusts, a.Subject)) &&
			(!known || slices.Contains(slices.Collect(maps.Values(begun)), objects.Digest(a.Key)))
	})
}

// findUntrusted says which of the Secrets holds a certificate that running members don't take, and what to do; empty
// for none. A member that is restarted then would be heard by nobody, and nobody by it.
func (v *view) findUntrusted() string {
	if !provided(v.Cluster) || len(v.certificateProblems) > 0 {
		return ""
	}
	for _, l := range v.leaves {
		s := v.secret(l.secret)
		if !l.server && l.what != "operator" || s == nil || len(s.Anchors) == 0 {
			continue
		}
		who := filter(v.names, func(name string) bool {
			pod := v.Children.Pods[name]
			return pod != nil && pod.DeletionTimestamp == nil && len(v.Health[name].Trusts) > 0 &&
				!v.takes(pod, l.what, s)
		})
		if len(who) > 0 {
			return fmt.Sprintf("Secret %s: tls.crt is signed by an authority that %s, running since before, does not "+
				"trust; no member is changed or restarted, for the others would not hear it: "+
				"put the former certificate back, with both authorities in ca.crt, or stop all members and start "+
				"them with the new authority (spec.replicas 0, then the number again): see AuthorityChanged in "+
				"docs/security.md",
				l.secret, strings.Join(who, ", "))
		}
	}
	return ""
}

// begunOtherwise reports whether the member runs with other authorities than its Secrets hold now, and may be
// restarted to take these: everybody takes what it will show then, and it what everybody shows.
func (v *view) begunOtherwise(m *member) bool {
	server := v.secret(serverSecret(v.Cluster))
	if v.untrusted != "" || slices.ContainsFunc(v.names, func(name string) bool {
		shown := v.Health[name].Certificate
		return shown != "" && shown != server.Certificate.ID // the kubelet has yet to write the newest one
	}) {
		return false
	}
	begun, known := begunWith(m.pod)
	return !slices.Equal(subjects(server.Trust), m.health.Trusts) || known && !maps.Equal(begun, v.trusted())
}
