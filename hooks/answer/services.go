package answer

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Secrets are the Secrets that should exist. One that is not known to be superfluous stays.
func Secrets(f *facts.Facts) []*decision.DesiredSecret {
	name := objects.RestoreSecret(f.Cluster.Name)
	list := slices.DeleteFunc(secrets(f), func(s *decision.DesiredSecret) bool { return s.Name == name })
	next := f.Next != nil && f.Next.Epoch.OwnKeys(f.Cluster.Name)
	switch old := f.Children.Secrets[name]; {
	case f.Settings.Keyed && (next || f.Epoch.OwnKeys(f.Cluster.Name)):
		list = append(list, secretOf(f, name, corev1.SecretTypeOpaque, decision.StreamKeys{}))
	case old != nil: // pods that run may name it
		list = append(list, facts.KeptSecret(f.Cluster, old))
	}
	slices.SortFunc(list, func(a, b *decision.DesiredSecret) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func secrets(f *facts.Facts) []*decision.DesiredSecret {
	if !objects.Encrypted(f.Cluster) {
		return facts.KeptSecrets(f.Observation)
	}
	list := append(generated(f), tokenKeys(f))
	if s := revokedClients(f); s != nil {
		list = append(list, s)
	}
	if objects.TLSMode(f.Cluster) == v1beta1.TLSAuto {
		list = append(list, secretOf(f, defaults.CASecret(f.Cluster.Name), corev1.SecretTypeTLS,
			authority(f)))
		for _, l := range f.Leaves {
			if s := leaf(f, l); s != nil {
				list = append(list, s)
			}
		}
	}
	if a := f.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose Secrets are wanted is not known
		for name, old := range f.Children.Secrets {
			if !slices.ContainsFunc(list, func(s *decision.DesiredSecret) bool { return s.Name == name }) {
				list = append(list, facts.KeptSecret(f.Cluster, old))
			}
		}
	}
	return list
}

// services are the cluster's two, for clients and headless for its members, and with spec.memberService one for each
// member.
func services(f *facts.Facts) []*corev1.Service {
	c := f.Cluster
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: objects.Labels(c, nil), Annotations: objects.Annotations(c, nil)}
	}
	client := servicePort("client", objects.ClientPort)
	peer := servicePort("peer", objects.PeerPort)
	if f.HostNetwork() { // whose pods declare no ports
		clientPort, peerPort, _ := objects.Ports(c)
		client.TargetPort = intstr.FromInt(clientPort)
		peer.TargetPort = intstr.FromInt(peerPort)
	}
	peers := meta(objects.PeerService(c.Name))
	if n := f.Mark(); n > 0 {
		peers.Annotations[objects.AnnotationNextMember] = strconv.Itoa(n)
	}
	for key, copied := range copies(f) {
		peers.Annotations[key] = copied
	}
	if nodes := f.NoteNodes(); nodes != "" {
		peers.Annotations[objects.AnnotationNodes] = nodes
	}
	list := []*corev1.Service{
		clientService(f, client),
		{
			ObjectMeta: peers,
			// Members must find each other before they are ready: a quorum is what makes them ready.
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
				Selector: objects.Selector(c), Ports: []corev1.ServicePort{client, peer},
			},
		},
	}
	for _, name := range f.Outside() {
		list = append(list, memberService(f, name))
	}
	for _, s := range list {
		families(c.Spec.IP, s, f.Children.Services[s.Name])
	}
	return list
}

// clientService leads clients to voters.
func clientService(f *facts.Facts, port corev1.ServicePort) *corev1.Service {
	return exposed(f, objects.ClientService(f.Cluster.Name), &f.Cluster.Spec.ClientService, port, nil,
		facts.ClientSelector(f.Cluster))
}

// memberService leads clients from outside Kubernetes to one member, while it is a voter.
func memberService(f *facts.Facts, member string) *corev1.Service {
	asked := f.Cluster.Spec.MemberService
	of := map[string]string{objects.LabelMember: member}
	selector := facts.ClientSelector(f.Cluster)
	selector[objects.LabelMember] = member
	return exposed(f, objects.MemberService(member), &v1beta1.ClientService{Type: asked.Type,
		LoadBalancerClass: asked.LoadBalancerClass, LoadBalancerSourceRanges: asked.LoadBalancerSourceRanges,
		ExternalTrafficPolicy: asked.ExternalTrafficPolicy}, servicePort("client", objects.ClientPort), of, selector)
}

// exposed is a Service that can be reached from outside Kubernetes. What the spec leaves open, Kubernetes fills in: it
// is in no answer, and so stays as it is (TestServicesKeepWhatKubernetesFillsIn).
func exposed(f *facts.Facts, name string, asked *v1beta1.ClientService, port corev1.ServicePort,
	labels, selector map[string]string) *corev1.Service {
	port.AppProtocol = unlessZero(asked.AppProtocol)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: objects.Labels(f.Cluster, labels),
			Annotations: objects.ServiceAnnotations(f.Cluster, name)},
		Spec: corev1.ServiceSpec{Type: cmp.Or(asked.Type, corev1.ServiceTypeClusterIP), Selector: selector},
	}
	s.Spec.TrafficDistribution = unlessZero(asked.TrafficDistribution)
	s.Spec.InternalTrafficPolicy = unlessZero(asked.InternalTrafficPolicy)
	if s.Spec.Type != corev1.ServiceTypeClusterIP {
		s.Spec.ExternalTrafficPolicy = asked.ExternalTrafficPolicy
		if asked.NodePort != nil {
			port.NodePort = *asked.NodePort
		}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerClass = unlessZero(asked.LoadBalancerClass)
		s.Spec.LoadBalancerSourceRanges = facts.UnlessEmpty(asked.LoadBalancerSourceRanges)
	}
	s.Spec.Ports = []corev1.ServicePort{port}
	return s
}

// families are those of the spec. Kubernetes refuses another first one for a Service that exists, and with it every
// change of that Service: its own stay then.
func families(asked v1beta1.IP, s, old *corev1.Service) {
	s.Spec.IPFamilyPolicy = unlessZero(asked.Policy)
	s.Spec.IPFamilies = facts.UnlessEmpty(asked.Families)
	if facts.OtherFamily(asked, old) {
		s.Spec.IPFamilies = old.Spec.IPFamilies[:min(len(asked.Families), len(old.Spec.IPFamilies))]
	}
}

func unlessZero[T comparable](value T) *T {
	var zero T
	if value == zero {
		return nil
	}
	return &value
}

func servicePort(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(name)}
}

// budget lets Kubernetes evict as many members as quorum can spare. One that is not ready goes only while a quorum is:
// when the leader goes, the others may be not ready for some seconds, and in memory whatever is evicted then is lost.
func budget(f *facts.Facts) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: f.Cluster.Name, Labels: objects.Labels(f.Cluster, nil),
			Annotations: objects.Annotations(f.Cluster, nil)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:                   &metav1.LabelSelector{MatchLabels: objects.Selector(f.Cluster)},
			MinAvailable:               new(intstr.FromInt(f.MinAvailable())),
			UnhealthyPodEvictionPolicy: new(policyv1.IfHealthyBudget),
		},
	}
	if old := f.Children.Budgets[f.Cluster.Name]; f.Etcd == nil && old != nil && old.Spec.MinAvailable != nil {
		b.Spec.MinAvailable = old.Spec.MinAvailable // blind, the number of voters is not known
	}
	return b
}
