package v1beta1

import corev1 "k8s.io/api/core/v1"

// ClientService is about the Service for clients, by which members can be reached from outside Kubernetes too.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodePort) || (has(self.type) && self.type != 'ClusterIP')",message="clientService.nodePort needs the type NodePort or LoadBalancer; set clientService.type, or remove nodePort"
// +kubebuilder:validation:XValidation:rule="!has(self.externalTrafficPolicy) || (has(self.type) && self.type != 'ClusterIP')",message="clientService.externalTrafficPolicy needs the type NodePort or LoadBalancer; set clientService.type, or remove externalTrafficPolicy"
// +kubebuilder:validation:XValidation:rule="(!has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges)) || (has(self.type) && self.type == 'LoadBalancer')",message="clientService.loadBalancerClass and loadBalancerSourceRanges need the type LoadBalancer; set clientService.type, or remove them"
// +kubebuilder:validation:XValidation:rule="!has(self.type) || self.type != 'LoadBalancer' || !has(oldSelf.type) || oldSelf.type != 'LoadBalancer' || has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass)",message="clientService.loadBalancerClass can't be changed while the type is LoadBalancer: set the type to ClusterIP first"
type ClientService struct {
	// Type is ClusterIP (the default), NodePort or LoadBalancer.
	// +optional
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type,omitempty"`

	// Annotations of this Service alone, for clouds and external-dns. They win over those of additionalMetadata.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('etcd.quorate.dev/'))",message="keys of etcd.quorate.dev/ are reserved for Quorate; remove them"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="use at most 63 letters, digits, '-', '_' and '.' in an annotation's key, with or without a domain name and '/' before them"
	Annotations map[string]string `json:"annotations,omitempty"`

	// NodePort is the port on every node, such as 30379. Unset, Kubernetes chooses one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort *int32 `json:"nodePort,omitempty"`

	// LoadBalancerClass is the implementation of load balancers, such as service.k8s.aws/nlb. Unset, the default of the
	// Kubernetes cluster. It can't be changed while the type is LoadBalancer.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// LoadBalancerSourceRanges are the networks, such as 10.1.0.0/16, that may reach the load balancer, where it
	// supports that. Unset, all may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f.:]+/[0-9]{1,3}$`
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="use a network such as 10.1.0.0/16"
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`

	// ExternalTrafficPolicy is Cluster, the default, or Local: only nodes with a member answer, and the members see the
	// clients' own addresses.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`

	// TrafficDistribution is which members Kubernetes prefers for a client: PreferSameZone or PreferSameNode, which
	// Kubernetes has since 1.34, or PreferClose, the name of PreferSameZone since 1.31. Others serve where there is none
	// so near. Unset, all members share the clients. Kubernetes 1.30 ignores it; 1.31 to 1.33 take PreferClose alone, and
	// refuse the Service with another one.
	// +optional
	// +kubebuilder:validation:Enum=PreferSameZone;PreferSameNode;PreferClose
	TrafficDistribution string `json:"trafficDistribution,omitempty"`

	// InternalTrafficPolicy is Cluster, the default, or Local: clients in Kubernetes reach only a voter on their own
	// node, and none at all from a node without one. Local is for clients that run on the members' nodes alone;
	// PreferSameNode loses no client.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	InternalTrafficPolicy corev1.ServiceInternalTrafficPolicy `json:"internalTrafficPolicy,omitempty"`

	// AppProtocol of the port, a hint for meshes and load balancers. Unset, there is none, and they pass TLS through:
	// etcd speaks gRPC, and JSON over HTTP, in its own TLS.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`
	AppProtocol string `json:"appProtocol,omitempty"`
}

// IP is which IP families the cluster's Services have.
//
// +kubebuilder:validation:XValidation:rule="!has(self.families) || self.families.size() < 2 || (has(self.policy) && self.policy != 'SingleStack')",message="ip.families has two families: set ip.policy to PreferDualStack or RequireDualStack, or name one"
// +kubebuilder:validation:XValidation:rule="(!has(oldSelf.policy) || has(self.policy)) && (!has(oldSelf.families) || has(self.families))",message="ip.policy and ip.families can be changed, and not removed: Kubernetes does not forget them; set SingleStack and one family"
type IP struct {
	// Policy is SingleStack, PreferDualStack or RequireDualStack. Unset, Kubernetes takes SingleStack. Once set, it
	// can't be removed.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	Policy corev1.IPFamilyPolicy `json:"policy,omitempty"`

	// Families are IPv4, IPv6, or both in an order. Kubernetes never changes the first one of a Service that exists:
	// for that delete the one for clients, and Quorate makes it again.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="self.size() < 2 || self[0] != self[1]",message="ip.families names a family twice"
	Families []corev1.IPFamily `json:"families,omitempty"`
}

// MemberService is about the Service of each member. Its URL has a name that is known before the Service has an
// address: the member demo-0 advertises https://demo-0.<domain>:<port> beside its URL within Kubernetes.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.loadBalancerClass) && !has(self.loadBalancerSourceRanges)) || self.type == 'LoadBalancer'",message="memberService.loadBalancerClass and loadBalancerSourceRanges need the type LoadBalancer; set memberService.type, or remove them"
// +kubebuilder:validation:XValidation:rule="self.type != 'LoadBalancer' || oldSelf.type != 'LoadBalancer' || has(self.loadBalancerClass) == has(oldSelf.loadBalancerClass) && (!has(self.loadBalancerClass) || self.loadBalancerClass == oldSelf.loadBalancerClass)",message="memberService.loadBalancerClass can't be changed while the type is LoadBalancer: remove memberService first"
// +kubebuilder:validation:XValidation:rule="!has(self.annotations) || !('external-dns.alpha.kubernetes.io/hostname' in self.annotations)",message="memberService.annotations has external-dns.alpha.kubernetes.io/hostname, which Quorate sets to each member's own name; remove it"
type MemberService struct {
	// Domain of the members' names outside, such as etcd.example: demo-0 is demo-0.<domain>. Each Service has the
	// annotation external-dns.alpha.kubernetes.io/hostname with its name. The servers' certificate is valid for
	// *.<domain>.
	// +required
	// +kubebuilder:validation:MaxLength=180
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.])+[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`
	Domain string `json:"domain"`

	// Type is LoadBalancer, with port 2379, or NodePort, with the port that Kubernetes chooses for the member.
	// +required
	// +kubebuilder:validation:Enum=NodePort;LoadBalancer
	Type corev1.ServiceType `json:"type"`

	// Annotations of these Services, for clouds. They win over those of additionalMetadata.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !key.startsWith('etcd.quorate.dev/'))",message="keys of etcd.quorate.dev/ are reserved for Quorate; remove them"
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.matches('^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$'))",message="use at most 63 letters, digits, '-', '_' and '.' in an annotation's key, with or without a domain name and '/' before them"
	Annotations map[string]string `json:"annotations,omitempty"`

	// LoadBalancerClass is the implementation of load balancers, such as service.k8s.aws/nlb. Unset, the default of the
	// Kubernetes cluster. It can't be changed while the type is LoadBalancer.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?$`
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// LoadBalancerSourceRanges are the networks, such as 10.1.0.0/16, that may reach the load balancers, where they
	// support that. Unset, all may.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:Pattern=`^[0-9a-f.:]+/[0-9]{1,3}$`
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="use a network such as 10.1.0.0/16"
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`

	// ExternalTrafficPolicy is Cluster, the default: every node leads to the member. Or it is Local: only the member's
	// own node does, and the member sees the clients' own addresses.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
}
