// Package children has the objects of an answer: pods, claims, Services, policies and Secrets as they should look.
package children

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/auth"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/foreign"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// Secrets are the Secrets that should exist. One that is not known to be superfluous stays.
func Secrets(v *state.View) []*decision.DesiredSecret {
	name := objects.RestoreSecret(v.Cluster.Name)
	list := slices.DeleteFunc(secrets(v), func(s *decision.DesiredSecret) bool { return s.Name == name })
	next := v.Next != nil && v.Next.Epoch.OwnKeys(v.Cluster.Name)
	switch old := v.Children.Secrets[name]; {
	case v.Settings.Keyed && (next || v.Epoch.OwnKeys(v.Cluster.Name)):
		list = append(list, certificates.Desired(v, name, corev1.SecretTypeOpaque, decision.StreamKeys{}))
	case old != nil: // pods that run may name it
		list = append(list, state.KeptSecret(v.Cluster, old))
	}
	slices.SortFunc(list, func(a, b *decision.DesiredSecret) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func secrets(v *state.View) []*decision.DesiredSecret {
	if !objects.Encrypted(v.Cluster) {
		return state.KeptSecrets(v.Observation)
	}
	list := append(auth.Generated(v), certificates.TokenKeys(v))
	if objects.TLSMode(v.Cluster) == v1alpha1.TLSAuto {
		list = append(list, certificates.Desired(v, spec.CASecret(v.Cluster.Name), corev1.SecretTypeTLS,
			certificates.Authority(v)))
		for _, l := range v.Leaves {
			if s := certificates.Leaf(v, l); s != nil {
				list = append(list, s)
			}
		}
	}
	if a := v.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose Secrets are wanted is not known
		for name, old := range v.Children.Secrets {
			if !slices.ContainsFunc(list, func(s *decision.DesiredSecret) bool { return s.Name == name }) {
				list = append(list, state.KeptSecret(v.Cluster, old))
			}
		}
	}
	return list
}

// Services are the cluster's two, for clients and headless for its members, and with spec.memberService one for each
// member.
func Services(v *state.View) []*corev1.Service {
	c := v.Cluster
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: objects.Labels(c, nil), Annotations: objects.Annotations(c, nil)}
	}
	client := servicePort("client", objects.ClientPort)
	peer := servicePort("peer", objects.PeerPort)
	if v.HostNetwork() { // whose pods declare no ports
		clientPort, peerPort, _ := objects.Ports(c)
		client.TargetPort, peer.TargetPort = intstr.FromInt(clientPort), intstr.FromInt(peerPort)
	}
	peers := meta(objects.PeerService(c.Name))
	if n := v.NextOrdinal(); n > 0 {
		peers.Annotations[objects.AnnotationNextMember] = strconv.Itoa(n)
	}
	for key, copied := range epochs.Copies(v) {
		peers.Annotations[key] = copied
	}
	if nodes := volumes.NoteNodes(v); nodes != "" {
		peers.Annotations[objects.AnnotationNodes] = nodes
	}
	list := []*corev1.Service{
		clientService(v, client),
		{
			ObjectMeta: peers,
			// Members must find each other before they are ready: a quorum is what makes them ready.
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
				Selector: objects.Selector(c), Ports: []corev1.ServicePort{client, peer},
			},
		},
	}
	for _, name := range v.Outside() {
		list = append(list, memberService(v, name))
	}
	for _, s := range list {
		families(&c.Spec.ClientService, s, v.Children.Services[s.Name])
	}
	return list
}

// clientService leads clients to voters.
func clientService(v *state.View, port corev1.ServicePort) *corev1.Service {
	return exposed(v, objects.ClientService(v.Cluster.Name), &v.Cluster.Spec.ClientService, port, nil,
		pods.ClientSelector(v.Cluster))
}

// memberService leads clients from outside Kubernetes to one member, while it is a voter.
func memberService(v *state.View, member string) *corev1.Service {
	asked, of := v.Cluster.Spec.MemberService, map[string]string{objects.LabelMember: member}
	selector := pods.ClientSelector(v.Cluster)
	selector[objects.LabelMember] = member
	return exposed(v, objects.MemberService(member), &v1alpha1.ClientService{Type: asked.Type,
		LoadBalancerClass: asked.LoadBalancerClass, LoadBalancerSourceRanges: asked.LoadBalancerSourceRanges,
		ExternalTrafficPolicy: asked.ExternalTrafficPolicy}, servicePort("client", objects.ClientPort), of, selector)
}

// exposed is a Service that can be reached from outside Kubernetes. What the spec leaves open, Kubernetes fills in: it
// is in no answer, and so stays as it is (TestServicesKeepWhatKubernetesFillsIn).
func exposed(v *state.View, name string, asked *v1alpha1.ClientService, port corev1.ServicePort,
	labels, selector map[string]string) *corev1.Service {
	port.AppProtocol = unlessZero(asked.AppProtocol)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: objects.Labels(v.Cluster, labels),
			Annotations: objects.ServiceAnnotations(v.Cluster, name)},
		Spec: corev1.ServiceSpec{Type: cmp.Or(asked.Type, corev1.ServiceTypeClusterIP), Selector: selector},
	}
	if s.Spec.Type != corev1.ServiceTypeClusterIP {
		s.Spec.ExternalTrafficPolicy = asked.ExternalTrafficPolicy
		if asked.NodePort != nil {
			port.NodePort = *asked.NodePort
		}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerClass = unlessZero(asked.LoadBalancerClass)
		s.Spec.LoadBalancerSourceRanges = unlessEmpty(asked.LoadBalancerSourceRanges)
	}
	s.Spec.Ports = []corev1.ServicePort{port}
	return s
}

// families are those of the spec. Kubernetes refuses another first one for a Service that exists, and with it every
// change of that Service: its own stay then.
func families(asked *v1alpha1.ClientService, s, old *corev1.Service) {
	s.Spec.IPFamilyPolicy = unlessZero(asked.IPFamilyPolicy)
	s.Spec.IPFamilies = unlessEmpty(asked.IPFamilies)
	if state.OtherFamily(asked, old) {
		s.Spec.IPFamilies = old.Spec.IPFamilies[:min(len(asked.IPFamilies), len(old.Spec.IPFamilies))]
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

// Budget lets Kubernetes evict as many members as quorum can spare. One that is not ready goes only while a quorum is:
// when the leader goes, the others may be not ready for some seconds, and in memory whatever is evicted then is lost.
func Budget(v *state.View) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: v.Cluster.Name, Labels: objects.Labels(v.Cluster, nil),
			Annotations: objects.Annotations(v.Cluster, nil)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:                   &metav1.LabelSelector{MatchLabels: objects.Selector(v.Cluster)},
			MinAvailable:               new(intstr.FromInt(minAvailable(v))),
			UnhealthyPodEvictionPolicy: new(policyv1.IfHealthyBudget),
		},
	}
	if old := v.Children.Budgets[v.Cluster.Name]; v.Etcd == nil && old != nil && old.Spec.MinAvailable != nil {
		b.Spec.MinAvailable = old.Spec.MinAvailable // blind, the number of voters is not known
	}
	return b
}

func minAvailable(v *state.View) int { return foreign.MinAvailable(v) + pods.MismatchedPods(v) }

// BudgetLags says that the observed budget protects fewer pods than it must once the learner votes; empty when it does
// not. Without a budget nothing is protected, and one more voter makes that no worse.
func BudgetLags(v *state.View) string {
	old, least := v.Children.Budgets[v.Cluster.Name], minAvailable(v)
	if old == nil || old.Spec.MinAvailable == nil || old.Spec.MinAvailable.IntValue() >= least {
		return ""
	}
	return fmt.Sprintf("waiting until the PodDisruptionBudget %s protects %d pods", old.Name, least)
}
