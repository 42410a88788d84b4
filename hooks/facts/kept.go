package facts

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// HeldBack reports whether every child is to stay as it is.
func (f *Facts) HeldBack() bool {
	return f.Suspended() || len(f.WithoutLastApplied) > 0 || len(f.Refused()) > 0 || f.Unsupported() != nil
}

// Suspended reports whether spec.suspend holds every change back. Where the API server has its data here, what is half
// done comes to its end first: in the middle of it, the next member that is lost could take the quorum along.
func (f *Facts) Suspended() bool {
	c := f.Cluster
	return c.Spec.Suspend && (!c.Spec.SelfHosted || c.Status.Rule == "Suspended" || !f.halfDone())
}

// halfDone reports whether a member is away, or half in. What is seen says so, and not the status: a call that was cut
// off has not written it.
func (f *Facts) halfDone() bool {
	for _, e := range f.Recorded {
		if e.Choice.Name != "" {
			return true
		}
	}
	if f.Etcd == nil {
		return false
	}
	voters := 0
	for _, m := range f.Etcd.Members {
		name, ours := objects.MemberAt(f.Cluster, m.PeerURLs)
		if pod := f.Children.Pods[name]; m.Learner && f.Spares() == 0 || ours && (pod == nil || pod.DeletionTimestamp != nil) {
			return true
		}
		if !m.Learner {
			voters++
		}
	}
	return voters < defaults.FewestSelfHosted
}

// Kept is an observed object as it is, with those of its labels and annotations that are ours.
func Kept[T any, P interface {
	*T
	metav1.Object
}](c *v1beta1.EtcdCluster, old P) P {
	object := *old
	p := P(&object)
	p.SetLabels(objects.OwnKeys(old.GetLabels(), objects.Labels(c, nil)))
	p.SetAnnotations(objects.OwnKeys(old.GetAnnotations(), objects.Annotations(c, nil)))
	return p
}

// KeptSecrets are all observed Secrets, as they are.
func KeptSecrets(o observation.Observation) []*decision.DesiredSecret {
	var list []*decision.DesiredSecret
	for _, name := range slices.Sorted(maps.Keys(o.Children.Secrets)) {
		list = append(list, KeptSecret(o.Cluster, o.Children.Secrets[name]))
	}
	return list
}

// KeptSecret is the observed Secret, as it is: without Make its data is left alone.
func KeptSecret(c *v1beta1.EtcdCluster, old *observation.Secret) *decision.DesiredSecret {
	return &decision.DesiredSecret{ObjectMeta: Kept(c, old).ObjectMeta, Type: old.Type}
}

// KeptAll are all objects as they are, by name: see [Kept].
func KeptAll[T any, P interface {
	*T
	metav1.Object
}](c *v1beta1.EtcdCluster, objects map[string]P) []P {
	var list []P
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		list = append(list, Kept(c, objects[name]))
	}
	return list
}

// KeptServices are the Services as they are, with the annotations that the spec asks for on each.
func KeptServices(o observation.Observation) []*corev1.Service {
	list := KeptAll(o.Cluster, o.Children.Services)
	for _, s := range list {
		old := o.Children.Services[s.Name]
		s.Annotations = objects.OwnKeys(old.Annotations, objects.ServiceAnnotations(o.Cluster, s.Name))
	}
	return list
}

// LoadBalancerAddresses are the addresses of the load balancer that leads to the members, sorted: IP addresses and
// names.
func (f *Facts) LoadBalancerAddresses() []string {
	s := f.Children.Services[objects.ClientService(f.Cluster.Name)]
	if s == nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return nil
	}
	var all []string
	for _, at := range s.Status.LoadBalancer.Ingress {
		if address := cmp.Or(at.Hostname, at.IP); address != "" {
			all = append(all, address)
		}
	}
	return defaults.Distinct(all)
}

// OtherFamily reports whether the first IP family that is asked for is another than that of the Service, which may be
// nil.
func OtherFamily(asked v1beta1.IP, s *corev1.Service) bool {
	return s != nil && len(asked.Families) > 0 && len(s.Spec.IPFamilies) > 0 &&
		asked.Families[0] != s.Spec.IPFamilies[0]
}
