package decision

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Certificates that come from others: in the mode CertManager Quorate asks cert-manager for them by Certificates of
// its own, in the mode Secrets others put them there. Quorate reads both as related objects and writes neither.
//
// Those who renew them do not know what the running members trust, and the members learn of another authority only when
// they start. So before anything else it is looked at whether every running member takes what the Secrets hold now
// (untrusted).

// CertManagerCertificate is a Certificate of the group cert-manager.io, as far as Quorate sets and reads it.
type CertManagerCertificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   CertManagerSpec   `json:"spec"`
	Status CertManagerStatus `json:"status"`
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
	IssuerRef      v1beta1.IssuerRef `json:"issuerRef"`
	SecretTemplate struct {
		Labels map[string]string `json:"labels,omitempty"`
	} `json:"secretTemplate"`
}

// CertManagerStatus is what cert-manager says of a Certificate.
type CertManagerStatus struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
