package hooks

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// Decision is the answer to an observation: at most one step, and everything that should exist.
type Decision struct {
	// Step is the one change to etcd to make now; nil most of the time.
	Step Step
	// Children are complete: an observed child that is not among them will be deleted. A child that was observed
	// carries its UID and its observed spec (in which at most the image and the scheduling gates differ); a child
	// without UID is new.
	Children Desired
	// Status replaces the parent's status whole.
	Status v1alpha1.EtcdClusterStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Mode is the name of the mode that the cluster is in: one of Modes.
	Mode string
	// Reason is the rule that fired.
	Reason rule.Reason
}

// Desired are the children that should exist, each kind sorted by name.
type Desired struct {
	Services     []*corev1.Service
	Budgets      []*policyv1.PodDisruptionBudget
	Policies     []*networkingv1.NetworkPolicy
	Secrets      []*DesiredSecret
	Certificates []*CertManagerCertificate
	ConfigMaps   []*corev1.ConfigMap
	Claims       []*corev1.PersistentVolumeClaim
	Pods         []*corev1.Pod
}
