package answer

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// ScrapeLabel marks a Prometheus that is trusted with metrics: its pod, and its namespace, which no tenant can put a
// label on.
const ScrapeLabel = "quorate.dev/scrape"

// Policies say who may open connections to the members, where Kubernetes enforces that: peers among themselves,
// with Quorate where clients need no certificate, Quorate and the clients that the spec selects to the client port,
// scrapers to the metrics port, and Quorate where it looks at disks.
func Policies(f *facts.Facts) []*networkingv1.NetworkPolicy {
	c := f.Cluster
	// No policy holds for pods on the hosts' network.
	if c.Spec.NetworkPolicy.Mode == v1beta1.NetworkPolicyDisabled || f.HostNetwork() {
		return nil
	}
	own := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
	var clients []networkingv1.NetworkPolicyPeer // an empty list allows everyone
	if chosen := c.Spec.NetworkPolicy.Clients; chosen != nil {
		clients = append([]networkingv1.NetworkPolicyPeer{own, quoratePods(f)}, chosen.From...)
	}
	scrapers := &metav1.LabelSelector{MatchLabels: map[string]string{ScrapeLabel: "true"}}
	metrics := []networkingv1.NetworkPolicyPeer{own, {NamespaceSelector: scrapers, PodSelector: scrapers}}
	if chosen := c.Spec.NetworkPolicy.Metrics; chosen != nil {
		metrics = chosen.From
	}
	if f.WatchesDisks() && len(metrics) > 0 {
		metrics = append(slices.Clone(metrics), quoratePods(f))
	}
	peers := []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: objects.Selector(c)}}}
	if objects.NeedsToken(c) { // Quorate asks there whose certificates a member takes that asks clients for none
		peers = append(peers, quoratePods(f))
	}
	if f.BesideExternal() || f.Epoch == nil && defaults.Joins(c) { // where external members are is not known
		peers = nil
	}
	return []*networkingv1.NetworkPolicy{{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: objects.Labels(c, nil), Annotations: objects.Annotations(c,
			nil)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: objects.Selector(c)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{let(objects.PeerPort, peers),
				let(objects.ClientPort, clients), let(objects.MetricsPort, metrics)},
		},
	}}
}

// quoratePods are the pods of Quorate itself.
func quoratePods(f *facts.Facts) networkingv1.NetworkPolicyPeer {
	from := networkingv1.NetworkPolicyPeer{
		NamespaceSelector: &metav1.LabelSelector{},
		PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "quorate"}},
	}
	if f.Settings.Namespace != "" {
		from.NamespaceSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: f.Settings.Namespace}
	}
	return from
}

// let is the rule that these may reach a port.
func let(port int, from []networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicyIngressRule {
	protocol := corev1.ProtocolTCP
	number := intstr.FromInt(port)
	return networkingv1.NetworkPolicyIngressRule{From: from,
		Ports: []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &number}}}
}
