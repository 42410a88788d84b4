package defaults

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// What of a spec Kubernetes would refuse in every object that is made of it, or let start and never run. A rule of the
// CRD refuses nearly all of it; this says it of an EtcdCluster that is older than the rule.

func validateMetadata(m *v1beta1.Metadata) error {
	for _, key := range slices.Sorted(maps.Keys(m.Labels)) {
		if err := validateKey("spec.additionalMetadata.labels", key); err != nil {
			return err
		}
		if wrong := validation.IsValidLabelValue(string(m.Labels[key])); len(wrong) > 0 {
			return fmt.Errorf("spec.additionalMetadata.labels has an invalid label value for %s: use at most 63 "+
				"letters, digits, '-', '_' and '.'", key)
		}
	}
	return validateAnnotations("spec.additionalMetadata.annotations", m.Annotations)
}

func validateAnnotations(field string, annotations map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if err := validateKey(field, key); err != nil {
			return err
		}
	}
	return nil
}

func validateKey(field, key string) error {
	switch {
	case strings.HasPrefix(key, objects.Domain):
		return fmt.Errorf("%s has %s: keys of %s are reserved for Quorate; remove it", field, key, objects.Domain)
	case len(validation.IsQualifiedName(key)) > 0 && strings.HasSuffix(field, "labels"),
		len(validation.IsQualifiedName(strings.ToLower(key))) > 0: // as ValidateAnnotations of apimachinery has it
		return fmt.Errorf("%s has the invalid key %.320q: use at most 63 letters, digits, '-', '_' and '.', with or "+
			"without a domain name and '/' before them", field, key)
	}
	return nil
}

// leastMemory is the least that etcd runs with. Measured with 3.6.16, empty, alone and without TLS: within 10 MiB it
// answers nothing, within 16 MiB it reads its own pages again all the time, and from 32 MiB on it works.
var leastMemory = resource.MustParse("32Mi")

func validateMemory(r *corev1.ResourceRequirements) error {
	if limit, limited := r.Limits[corev1.ResourceMemory]; limited && limit.Cmp(leastMemory) < 0 {
		return fmt.Errorf("spec.resources.limits.memory %s is too little for etcd: set %s or more, or remove the "+
			"limit", limit.String(), leastMemory.String())
	}
	return nil
}

// choosesIDs reports whether users and groups of pods are not ours to choose.
func choosesIDs(c *v1beta1.PodSecurity) bool {
	if c == nil {
		return false
	}
	return c.IDPolicy == v1beta1.IDsByPlatform || c.RunAsUser != nil || c.RunAsGroup != nil || c.FSGroup != nil
}

// validatePods says what of a spec would have pods refused, or never start.
func validatePods(s *v1beta1.EtcdClusterSpec) error {
	own := s.SecurityContext
	if s.Storage.Medium == v1beta1.HostPath && choosesIDs(own) {
		return fmt.Errorf("spec.securityContext can't choose users and groups with the medium HostPath: the "+
			"directories on the nodes belong to user %d; remove idPolicy, runAsUser, runAsGroup and fsGroup",
			objects.UserID)
	}
	return objects.ValidatePodSecurity("spec.securityContext", own)
}

// What the Service for clients may prefer, and where from it may be reached.
var (
	distributions = []string{corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferClose}
	internalPolicies = []corev1.ServiceInternalTrafficPolicy{"", corev1.ServiceInternalTrafficPolicyCluster,
		corev1.ServiceInternalTrafficPolicyLocal}
)

// validateClientService says what of it Kubernetes would refuse, and with it every change of the Service.
func validateClientService(s *v1beta1.ClientService) error {
	types := []corev1.ServiceType{"", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer}
	inside := slices.Index(types, s.Type) < 2
	switch {
	case !slices.Contains(types, s.Type):
		return fmt.Errorf("spec.clientService.type %q is not ClusterIP, NodePort or LoadBalancer", s.Type)
	case inside && (s.NodePort != nil || s.ExternalTrafficPolicy != ""):
		return fmt.Errorf("spec.clientService.nodePort and externalTrafficPolicy need the type NodePort or " +
			"LoadBalancer: set spec.clientService.type, or remove them")
	case s.Type != corev1.ServiceTypeLoadBalancer && (s.LoadBalancerClass != "" || len(s.LoadBalancerSourceRanges) > 0):
		return fmt.Errorf("spec.clientService.loadBalancerClass and loadBalancerSourceRanges need the type " +
			"LoadBalancer: set spec.clientService.type, or remove them")
	case s.TrafficDistribution != "" && !slices.Contains(distributions, s.TrafficDistribution):
		return fmt.Errorf("spec.clientService.trafficDistribution %.100q is not PreferSameZone, PreferSameNode or "+
			"PreferClose", s.TrafficDistribution)
	case !slices.Contains(internalPolicies, s.InternalTrafficPolicy):
		return fmt.Errorf("spec.clientService.internalTrafficPolicy %.100q is not Cluster or Local",
			s.InternalTrafficPolicy)
	}
	return validateAnnotations("spec.clientService.annotations", s.Annotations)
}

// validateNetworkPolicy says which network Kubernetes would refuse, and with it every change of the NetworkPolicy. A
// rule of the CRD would cost more than the API server lets it: the text has no limit in Kubernetes' own type.
func validateNetworkPolicy(s *v1beta1.NetworkPolicySpec) error {
	return cmp.Or(validatePeers("clients", s.Clients), validatePeers("metrics", s.Metrics))
}

func validatePeers(field string, peers *v1beta1.Peers) error {
	if peers == nil {
		return nil
	}
	for i, peer := range peers.From {
		if peer.IPBlock == nil {
			continue
		}
		for _, network := range append([]string{peer.IPBlock.CIDR}, peer.IPBlock.Except...) {
			if _, err := netip.ParsePrefix(network); err != nil {
				return fmt.Errorf("spec.networkPolicy.%s.from[%d].ipBlock has %.100q: use a network such as "+
					"10.1.0.0/16", field, i, network)
			}
		}
	}
	return nil
}

// domainForm is that of spec.memberService.domain: two labels at least, of which the last begins with a letter, so that
// a certificate may be valid for *.<domain>.
var domainForm = regexp.MustCompile(
	`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.])+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// validateMemberService says what of it Kubernetes or etcd would refuse.
func validateMemberService(s *v1beta1.EtcdClusterSpec) error {
	m := s.MemberService
	switch {
	case m == nil:
		return nil
	case s.HostNetwork != nil:
		return fmt.Errorf("spec.memberService is not for members on hostNetwork, which have the addresses of their " +
			"nodes; remove it")
	case m.Type != corev1.ServiceTypeNodePort && m.Type != corev1.ServiceTypeLoadBalancer:
		return fmt.Errorf("spec.memberService.type %q is not NodePort or LoadBalancer", m.Type)
	case len(m.Domain) > 180 || !domainForm.MatchString(m.Domain):
		return fmt.Errorf("spec.memberService.domain %.200q is not a domain name such as etcd.example.com", m.Domain)
	case m.Type != corev1.ServiceTypeLoadBalancer && (m.LoadBalancerClass != "" || len(m.LoadBalancerSourceRanges) > 0):
		return fmt.Errorf("spec.memberService.loadBalancerClass and loadBalancerSourceRanges need the type " +
			"LoadBalancer: set spec.memberService.type, or remove them")
	case m.Annotations[objects.AnnotationHostname] != "":
		return fmt.Errorf("spec.memberService.annotations has %s, which Quorate sets to each member's own name; remove it",
			objects.AnnotationHostname)
	}
	return validateAnnotations("spec.memberService.annotations", m.Annotations)
}
