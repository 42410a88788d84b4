package observation

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
)

// Kind is one of the kinds that a cluster's children are of.
type Kind struct {
	APIVersion, Kind string
	// Resource is its name for kubectl and in rights, with its group.
	Resource string
	// Optional: the CompositeController may have no rule for it.
	Optional bool
	// Observed are the observed ones in the order of their names, and Sees whether one of this name is among them.
	Observed func(*Children) iter.Seq[metav1.Object]
	Sees     func(c *Children, name string) bool
	// LookedAt reports whether any could have been observed.
	LookedAt func(*Children) bool
	// Wanted are those of an answer, in its order.
	Wanted func(*decision.Desired) iter.Seq[metav1.Object]
	// New is an empty one. Begin has no one observed yet, and Add puts one there.
	New   func() metav1.Object
	Begin func(*Children)
	Add   func(*Children, metav1.Object)
}

// Group is how Metacontroller's calls name the kind: "Kind.version" or "Kind.group/version".
func (k *Kind) Group() string { return k.Kind + "." + k.APIVersion }

// Kinds are all of them, in the order in which messages name objects.
var Kinds = []Kind{
	kind("v1", "Pod", "pods", func(c *Children) *map[string]*corev1.Pod { return &c.Pods },
		func(d *decision.Desired) []*corev1.Pod { return d.Pods }),
	kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims",
		func(c *Children) *map[string]*corev1.PersistentVolumeClaim { return &c.Claims },
		func(d *decision.Desired) []*corev1.PersistentVolumeClaim { return d.Claims }),
	kind("v1", "ConfigMap", "configmaps", func(c *Children) *map[string]*corev1.ConfigMap { return &c.ConfigMaps },
		func(d *decision.Desired) []*corev1.ConfigMap { return d.ConfigMaps }),
	kind("v1", "Service", "services", func(c *Children) *map[string]*corev1.Service { return &c.Services },
		func(d *decision.Desired) []*corev1.Service { return d.Services }),
	kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets.policy",
		func(c *Children) *map[string]*policyv1.PodDisruptionBudget { return &c.Budgets },
		func(d *decision.Desired) []*policyv1.PodDisruptionBudget { return d.Budgets }),
	kind("v1", "Secret", "secrets", func(c *Children) *map[string]*Secret { return &c.Secrets },
		func(d *decision.Desired) []*decision.DesiredSecret { return d.Secrets }),
	kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies.networking.k8s.io",
		func(c *Children) *map[string]*networkingv1.NetworkPolicy { return &c.Policies },
		func(d *decision.Desired) []*networkingv1.NetworkPolicy { return d.Policies }),
	maybe(kind("cert-manager.io/v1", "Certificate", "certificates.cert-manager.io",
		func(c *Children) *map[string]*decision.CertManagerCertificate { return &c.Certificates },
		func(d *decision.Desired) []*decision.CertManagerCertificate { return d.Certificates })),
}

func maybe(k Kind) Kind {
	k.Optional = true
	return k
}

func kind[T any, O interface {
	*T
	metav1.Object
}, D metav1.Object](apiVersion, name, resource string, observed func(*Children) *map[string]O,
	wanted func(*decision.Desired) []D) Kind {
	return Kind{
		APIVersion: apiVersion, Kind: name, Resource: resource,
		Observed: func(c *Children) iter.Seq[metav1.Object] {
			return func(yield func(metav1.Object) bool) {
				all := *observed(c)
				for _, name := range slices.Sorted(maps.Keys(all)) {
					if !yield(all[name]) {
						return
					}
				}
			}
		},
		Sees: func(c *Children, name string) bool {
			_, seen := (*observed(c))[name]
			return seen
		},
		LookedAt: func(c *Children) bool { return *observed(c) != nil },
		Wanted: func(d *decision.Desired) iter.Seq[metav1.Object] {
			return func(yield func(metav1.Object) bool) {
				for _, o := range wanted(d) {
					if !yield(o) {
						return
					}
				}
			}
		},
		New:   func() metav1.Object { return O(new(T)) },
		Begin: func(c *Children) { *observed(c) = map[string]O{} },
		Add: func(c *Children, o metav1.Object) {
			one, _ := o.(O)
			(*observed(c))[o.GetName()] = one
		},
	}
}
