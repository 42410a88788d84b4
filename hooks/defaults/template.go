package defaults

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// AllowsPlaintext reports whether clients may speak plain text beside TLS.
func AllowsPlaintext(c *v1beta1.EtcdCluster) bool {
	return objects.Encrypted(c) && c.Spec.TLS.AllowPlaintextClients
}

// URLOn is a URL with this IP address, of version 4 or 6.
func URLOn(scheme, ip string, port int) string {
	return scheme + "://" + objects.HostPort(ip, port)
}

// Template is all that a spec decides of a member's pod and that only another pod can change. It is in one form for
// all specs that mean the same: a default that is said is one that is not, no list is empty, and a quantity is
// written in one way. A running pod carries the hash of the template that it was made from, so an edit without an
// effect on pods restarts no member, by construction. Pods are made from a template, and not from a spec;
// TestPodsAreMadeFromTheirTemplate holds the two against each other, field by field.
//
// What a spec does not decide is in podSpec alone, and so a new Quorate does not mean new pods. A release that
// changes a value in here, such as a default, restarts the members that have it, one at a time.
// TestTemplatesOfThisRelease says so beforehand.
//
// Not in here is what comes to running members in another way: the version and the image (ImageDiffers), the quota on
// a volume (QuotaDiffers), how members speak (TLSFlagsDiffer, AllowsAnyPeer), where they are reached from outside
// (OutsideURLDiffers), their volumes (VolumeDiffers), and labels and annotations, which Kubernetes changes in place.
type Template struct {
	PullPolicy  corev1.PullPolicy
	PullSecrets []corev1.LocalObjectReference `json:",omitempty"`
	// Affinity and Spread are nil for what members have by default.
	Affinity      *corev1.Affinity                  `json:",omitempty"`
	Spread        []corev1.TopologySpreadConstraint `json:",omitempty"`
	NodeSelector  map[string]string                 `json:",omitempty"`
	Tolerations   []corev1.Toleration               `json:",omitempty"`
	PriorityClass string                            `json:",omitempty"`
	// Scheduler, Runtime and Security are empty for what members have by default.
	Scheduler string                     `json:",omitempty"`
	Runtime   string                     `json:",omitempty"`
	Security  *corev1.PodSecurityContext `json:",omitempty"`
	// ServiceAccount is empty for the namespace's default.
	ServiceAccount string `json:",omitempty"`
	// Server and Peer are the Secrets with the certificates; empty in plain text.
	Server, Peer string `json:",omitempty"`
	// Ports are those on the hosts' network; nil on the pods'.
	Ports *Ports `json:",omitempty"`
	// Tmpfs is the size of the data volume on Memory; nil on others.
	Tmpfs     *resource.Quantity `json:",omitempty"`
	Resources corev1.ResourceRequirements
	Options   Options
	// MinTLS and CipherSuites are empty in plain text.
	MinTLS       string   `json:",omitempty"`
	CipherSuites []string `json:",omitempty"`
}

// Ports of a member.
type Ports struct{ Client, Peer, Metrics int }

// templateRevision is raised by a change of podSpec that running members should get.
const templateRevision = 1

// Hash is what pods carry in [AnnotationTemplate].
func (t *Template) Hash() string { return objects.Fingerprint([]any{templateRevision, t}) }

var (
	defaultSize = resource.MustParse("2Gi")
)
