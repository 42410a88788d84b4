package hooks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selectors "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// outside is a cluster at rest with this Service for clients.
func outside(asked v1beta1.ClientService) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.ClientService = asked
	observe(&o, Decide(o))
	return o
}

func serviceIn(t *testing.T, d decision.Decision, name string) *corev1.Service {
	t.Helper()
	for _, s := range d.Children.Services {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no Service", name)
	return nil
}

func TestEveryFieldReachesTheService(t *testing.T) {
	o := serve(3)
	o.Cluster.Spec.AdditionalMetadata.Annotations = map[string]string{"a": "all", "b": "all"}
	o.Cluster.Spec.ClientService = v1beta1.ClientService{
		Type: corev1.ServiceTypeLoadBalancer, Annotations: map[string]string{"b": "own"},
		NodePort: new(int32(30379)), LoadBalancerClass: "example.com/internal",
		LoadBalancerSourceRanges: []string{"10.0.0.0/8"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		AppProtocol: "https", TrafficDistribution: corev1.ServiceTrafficDistributionPreferSameZone,
		InternalTrafficPolicy: corev1.ServiceInternalTrafficPolicyLocal,
	}
	o.Cluster.Spec.IP = v1beta1.IP{Policy: corev1.IPFamilyPolicyPreferDualStack,
		Families: []corev1.IPFamily{corev1.IPv6Protocol}}
	d := Decide(o)
	s, peers := serviceIn(t, d, "demo"), serviceIn(t, d, "demo-peers")
	assert.Equal(t, map[string]string{"a": "all", "b": "own"}, s.Annotations)
	assert.Equal(t, "all", peers.Annotations["b"])
	assert.Equal(t, corev1.ServiceTypeLoadBalancer, s.Spec.Type)
	assert.Equal(t, int32(30379), s.Spec.Ports[0].NodePort)
	assert.Equal(t, "https", *s.Spec.Ports[0].AppProtocol)
	assert.Nil(t, peers.Spec.Ports[0].AppProtocol)
	assert.Equal(t, "example.com/internal", *s.Spec.LoadBalancerClass)
	assert.Equal(t, []string{"10.0.0.0/8"}, s.Spec.LoadBalancerSourceRanges)
	assert.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, s.Spec.ExternalTrafficPolicy)
	assert.Equal(t, "PreferSameZone", *s.Spec.TrafficDistribution)
	assert.Equal(t, corev1.ServiceInternalTrafficPolicyLocal, *s.Spec.InternalTrafficPolicy)
	assert.Nil(t, peers.Spec.TrafficDistribution, "a member is dialled by its own name")
	assert.Nil(t, peers.Spec.InternalTrafficPolicy)
	for _, both := range []*corev1.Service{s, peers} {
		assert.Equal(t, corev1.IPFamilyPolicyPreferDualStack, *both.Spec.IPFamilyPolicy)
		assert.Equal(t, []corev1.IPFamily{corev1.IPv6Protocol}, both.Spec.IPFamilies)
	}
	assert.Equal(t, corev1.ClusterIPNone, peers.Spec.ClusterIP)
}

// TestServicesKeepWhatKubernetesFillsIn: what the spec leaves open is in no answer, so that no one is told to take it
// back.
func TestServicesKeepWhatKubernetesFillsIn(t *testing.T) {
	o := outside(v1beta1.ClientService{Type: corev1.ServiceTypeNodePort})
	seen := o.Children.Services["demo"]
	seen.Spec.ClusterIP, seen.Spec.IPFamilies = "10.96.0.7", []corev1.IPFamily{corev1.IPv4Protocol}
	seen.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyCluster)
	seen.Spec.ExternalTrafficPolicy, seen.Spec.Ports[0].NodePort = corev1.ServiceExternalTrafficPolicyCluster, 31234
	d := Decide(o)
	after := serviceIn(t, d, "demo").Spec
	assert.Empty(t, after.ClusterIP)
	assert.Empty(t, after.IPFamilies)
	assert.Empty(t, after.ExternalTrafficPolicy)
	assert.Nil(t, after.InternalTrafficPolicy)
	assert.Zero(t, after.Ports[0].NodePort)
	assert.Equal(t, int32(31234), d.Status.Connection.NodePort, "people need it")
}

// TestTheAddressOfALoadBalancerIsInTheCertificate, and people are told the URL.
func TestTheAddressOfALoadBalancerIsInTheCertificate(t *testing.T) {
	o := outside(v1beta1.ClientService{Type: corev1.ServiceTypeLoadBalancer})
	f := facts.New(o)
	require.NotContains(t, f.Leaves[0].Names, "192.0.2.9")
	o.Children.Services["demo"].Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"},
		{Hostname: "lb.example", IP: "192.0.2.10"}, {IP: "2001:db8::9"}}
	f = facts.New(o)
	assert.Subset(t, f.Leaves[0].Names, []string{"192.0.2.9", "2001:db8::9", "lb.example"})
	assert.NotContains(t, f.Leaves[1].Names, "192.0.2.9", "peers are not reached there")
	d := Decide(o)
	assert.Equal(t, []string{"https://192.0.2.9:2379", "https://[2001:db8::9]:2379", "https://lb.example:2379"},
		d.Status.Connection.External)
	for _, pod := range d.Children.Pods {
		assert.NotEmpty(t, pod.UID, "no member restarts for it")
	}
	assert.Nil(t, d.Step)
	o.Children.Services["demo"].Spec.Type = corev1.ServiceTypeClusterIP // and the status is an old one
	assert.NotContains(t, facts.New(o).Leaves[0].Names, "192.0.2.9")
}

// TestAnotherFirstFamilyIsSaid, and the Service is left with its own: Kubernetes would refuse every change of it.
func TestAnotherFirstFamilyIsSaid(t *testing.T) {
	o := outside(v1beta1.ClientService{})
	o.Cluster.Spec.IP.Families = []corev1.IPFamily{corev1.IPv6Protocol}
	o.Children.Services["demo"].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	d := Decide(o)
	assert.Equal(t, []corev1.IPFamily{corev1.IPv4Protocol}, serviceIn(t, d, "demo").Spec.IPFamilies)
	assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1beta1.Advised).Message, "delete the Service, and Quorate makes it again")
}

// TestASuspendedServiceKeepsItsAnnotations: a cloud would make another load balancer.
func TestASuspendedServiceKeepsItsAnnotations(t *testing.T) {
	o := outside(v1beta1.ClientService{Annotations: map[string]string{"cloud.example/internal": "true"}})
	o.Cluster.Spec.Suspend = true
	o.Children.Services["demo"].Annotations["others.example/note"] = "theirs"
	assert.Equal(t, map[string]string{"cloud.example/internal": "true"}, serviceIn(t, Decide(o), "demo").Annotations)
}

// TestServicesThatKubernetesWouldRefuse are refused, where the CRD's rules don't hold.
func TestServicesThatKubernetesWouldRefuse(t *testing.T) {
	for want, asked := range map[string]v1beta1.ClientService{
		"is not ClusterIP":                                 {Type: corev1.ServiceTypeExternalName},
		"nodePort and externalTraff":                       {NodePort: new(int32(30379))},
		"need the type NodePort":                           {ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal},
		"loadBalancerClass and load":                       {Type: corev1.ServiceTypeNodePort, LoadBalancerClass: "a"},
		"trafficDistribution \"Near\" is not":              {TrafficDistribution: "Near"},
		"internalTrafficPolicy \"local\" is not":           {InternalTrafficPolicy: "local"},
		"clientService.annotations has etcd.quorate.dev/x": {Annotations: map[string]string{"etcd.quorate.dev/x": "y"}},
	} {
		o := fresh(3)
		o.Cluster.Spec.ClientService = asked
		assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), want)
	}
}

// TestOnlyCertificatesHaveTheClusterDomain: no member is reached by a name that has it, so another one restarts none.
func TestOnlyCertificatesHaveTheClusterDomain(t *testing.T) {
	o := serve(3)
	before := Decide(o)
	require.Contains(t, facts.New(o).Leaves[0].Names, "demo.default.svc.cluster.local")
	o.Settings.ClusterDomain = "lab.internal"
	assert.Subset(t, facts.New(o).Leaves[0].Names, []string{"demo.default.svc.lab.internal",
		"*.demo-peers.default.svc.lab.internal"})
	assert.NotContains(t, facts.New(o).Leaves[0].Names, "demo.default.svc.cluster.local")
	assert.Equal(t, before.Children.Pods, Decide(o).Children.Pods)
	assert.Equal(t, before.Status.Connection.Endpoints, Decide(o).Status.Connection.Endpoints)
}

// membersOutside is a cluster whose members have these Services, and have yet to be restarted for them.
func membersOutside(asked v1beta1.MemberService) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.MemberService = &asked
	observe(&o, Decide(o))
	return o
}

func served(d decision.Decision) []string {
	var names []string
	for _, s := range d.Children.Services {
		names = append(names, s.Name)
	}
	return names
}

func TestEveryFieldReachesTheServicesOfMembers(t *testing.T) {
	o := serve(3)
	o.Cluster.Spec.AdditionalMetadata.Annotations = map[string]string{"a": "all", "b": "all"}
	o.Cluster.Spec.IP.Families = []corev1.IPFamily{corev1.IPv6Protocol}
	o.Cluster.Spec.MemberService = &v1beta1.MemberService{
		Domain: "etcd.example.com", Type: corev1.ServiceTypeLoadBalancer, Annotations: map[string]string{"b": "own"},
		LoadBalancerClass: "example.com/internal", LoadBalancerSourceRanges: []string{"10.0.0.0/8"},
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
	}
	d := Decide(o)
	assert.Equal(t, []string{"demo", "demo-peers", "demo-0-external", "demo-1-external", "demo-2-external"}, served(d))
	s := serviceIn(t, d, "demo-1-external")
	assert.Equal(t, map[string]string{"a": "all", "b": "own", objects.AnnotationHostname: "demo-1.etcd.example.com"},
		s.Annotations)
	assert.Equal(t, "demo-1", s.Labels[objects.LabelMember])
	assert.Equal(t, map[string]string{objects.LabelCluster: "demo", objects.LabelMember: "demo-1",
		objects.LabelRole: "voter"}, s.Spec.Selector)
	assert.Equal(t, corev1.ServiceTypeLoadBalancer, s.Spec.Type)
	assert.Equal(t, int32(2379), s.Spec.Ports[0].Port)
	assert.Equal(t, "example.com/internal", *s.Spec.LoadBalancerClass)
	assert.Equal(t, []string{"10.0.0.0/8"}, s.Spec.LoadBalancerSourceRanges)
	assert.Equal(t, corev1.ServiceExternalTrafficPolicyLocal, s.Spec.ExternalTrafficPolicy)
	assert.Equal(t, []corev1.IPFamily{corev1.IPv6Protocol}, s.Spec.IPFamilies)
	assert.False(t, s.Spec.PublishNotReadyAddresses, "a member that is not ready takes no client")
}

// TestALoadBalancersURLIsKnownBeforeItsAddress, and is in etcd's list beside the one within Kubernetes.
func TestALoadBalancersURLIsKnownBeforeItsAddress(t *testing.T) {
	o := membersOutside(v1beta1.MemberService{Type: corev1.ServiceTypeLoadBalancer, Domain: "etcd.example.com"})
	f := facts.New(o)
	assert.Contains(t, f.Leaves[0].Names, "*.etcd.example.com")
	assert.Contains(t, f.Leaves[0].Needs(o.Cluster), "*.etcd.example.com")
	assert.NotContains(t, f.Leaves[1].Names, "*.etcd.example.com", "peers are not reached there")
	pod := answer.Pod(f, "demo-1", objects.StartResume, nil)
	assert.Equal(t, "https://demo-1.demo-peers.default.svc:2379,https://demo-1.etcd.example.com:2379", flagOf(pod, "advertise-client-urls"))
	assert.Equal(t, "it should be reached at https://demo-1.etcd.example.com:2379", f.UpdateOf(f.Find("demo-1")).Reason)
	o.Children.Pods["demo-1"].Spec.Containers[0].Command = pod.Spec.Containers[0].Command
	f = facts.New(o)
	assert.Nil(t, f.UpdateOf(f.Find("demo-1")))
	assert.Equal(t, []string{"https://demo-0.etcd.example.com:2379", "https://demo-1.etcd.example.com:2379",
		"https://demo-2.etcd.example.com:2379"}, Decide(o).Status.Connection.External)

	o.Cluster.Spec.MemberService = nil
	f = facts.New(o)
	assert.Equal(t, "it should no longer be reached at https://demo-1.etcd.example.com:2379",
		f.UpdateOf(f.Find("demo-1")).Reason)
	assert.Len(t, Decide(o).Children.Services, 2)
}

// TestServicesOfMembersStayWhileEtcdIsSilent: a cloud would give another address to the next one. They go with the list
// that omits their member.
func TestServicesOfMembersStayWhileEtcdIsSilent(t *testing.T) {
	o := membersOutside(v1beta1.MemberService{Type: corev1.ServiceTypeLoadBalancer, Domain: "etcd.example.com"})
	left := o.Children.Services["demo-2-external"].DeepCopy()
	left.Name = "demo-7-external"
	o.Children.Services["demo-7-external"] = left
	assert.NotContains(t, served(Decide(o)), "demo-7-external")
	membership := o.Etcd
	o.Etcd = nil
	assert.Subset(t, served(Decide(o)), []string{"demo-0-external", "demo-2-external", "demo-7-external"})
	o.Etcd = membership
	o.Cluster.Spec.Suspend = true
	o.Children.Services["demo-0-external"].Annotations["others.example/note"] = "theirs"
	s := serviceIn(t, Decide(o), "demo-0-external")
	assert.Equal(t, map[string]string{objects.AnnotationHostname: "demo-0.etcd.example.com"}, s.Annotations)
}

// TestMembersOutsideThatCanNotBe are refused, where the CRD's rules don't hold.
func TestMembersOutsideThatCanNotBe(t *testing.T) {
	const domain = "etcd.example.com"
	for want, asked := range map[string]v1beta1.MemberService{
		`type "ClusterIP" is not`:    {Domain: domain, Type: corev1.ServiceTypeClusterIP},
		`type "" is not`:             {Domain: domain},
		`domain "" is not`:           {Type: corev1.ServiceTypeNodePort},
		`domain "example" is not`:    {Type: corev1.ServiceTypeNodePort, Domain: "example"},
		`domain "10.0.0.1" is not`:   {Type: corev1.ServiceTypeNodePort, Domain: "10.0.0.1"},
		`domain "a.b,http`:           {Type: corev1.ServiceTypeNodePort, Domain: "a.b,http://c.d"},
		"loadBalancerClass and load": {Domain: domain, Type: corev1.ServiceTypeNodePort, LoadBalancerClass: "a"},
		"which Quorate sets": {Domain: domain, Type: corev1.ServiceTypeNodePort,
			Annotations: map[string]string{objects.AnnotationHostname: "x"}},
		"has etcd.quorate.dev/x": {Domain: domain, Type: corev1.ServiceTypeNodePort,
			Annotations: map[string]string{"etcd.quorate.dev/x": "y"}},
	} {
		o := fresh(3)
		o.Cluster.Spec.MemberService = &asked
		assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), want)
	}
	o := serveAtAddresses(v1beta1.HostPath, "abc")
	o.Cluster.Spec.MemberService = &v1beta1.MemberService{Type: corev1.ServiceTypeNodePort, Domain: domain}
	assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), "not for members on hostNetwork")
}

// lets reports whether the policy of a cluster lets a pod with these labels, in a namespace with these, reach a port
// of its members.
func lets(t *testing.T, o observation.Observation, port int32, namespace string, namespaceLabels,
	podLabels map[string]string) bool {
	t.Helper()
	d := Decide(o).Children.Policies
	require.Len(t, d, 1)
	matches := func(s *metav1.LabelSelector, of map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(selectors.Set(of))
	}
	require.True(t, matches(&d[0].Spec.PodSelector, map[string]string{objects.LabelCluster: "demo"}))
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, d[0].Spec.PolicyTypes)
	all := map[string]string{corev1.LabelMetadataName: namespace}
	for k, v := range namespaceLabels {
		all[k] = v
	}
	for _, rule := range d[0].Spec.Ingress {
		if rule.Ports[0].Port.IntVal != port {
			continue
		}
		if len(rule.From) == 0 {
			return true
		}
		for _, from := range rule.From {
			near := from.NamespaceSelector == nil && namespace == "default" || from.NamespaceSelector != nil &&
				matches(from.NamespaceSelector, all)
			if near && (from.PodSelector == nil || matches(from.PodSelector, podLabels)) {
				return true
			}
		}
	}
	return false
}

func TestWhoMayReachAMember(t *testing.T) {
	member, quorate := map[string]string{objects.LabelCluster: "demo"},
		map[string]string{"app.kubernetes.io/name": "quorate"}
	o := serve(3)
	assert.True(t, lets(t, o, objects.PeerPort, "default", nil, member))
	assert.False(t, lets(t, o, objects.PeerPort, "default", nil, map[string]string{objects.LabelCluster: "other"}),
		"peers among themselves only")
	assert.False(t, lets(t, o, objects.PeerPort, "elsewhere", nil, member))
	assert.False(t, lets(t, o, objects.PeerPort, "quorate-system", nil, quorate))
	assert.True(t, lets(t, o, objects.ClientPort, "elsewhere", nil, nil),
		"what a client may do is up to its certificate")
	assert.True(t, lets(t, o, objects.MetricsPort, "default", nil, nil))
	assert.False(t, lets(t, o, objects.MetricsPort, "elsewhere", nil, nil))
	scrapes := map[string]string{answer.ScrapeLabel: "true"}
	assert.True(t, lets(t, o, objects.MetricsPort, "monitoring", scrapes, scrapes))
	assert.False(t, lets(t, o, objects.MetricsPort, "elsewhere", nil, scrapes),
		"every tenant can put a label on its pods")
	assert.False(t, lets(t, o, objects.MetricsPort, "monitoring", scrapes, nil))

	o.Cluster.Spec.NetworkPolicy = v1beta1.NetworkPolicySpec{
		Clients: namespacesOf("shop"), Metrics: namespacesOf("watch"),
	}
	shop, watch := map[string]string{"team": "shop"}, map[string]string{"team": "watch"}
	assert.True(t, lets(t, o, objects.ClientPort, "elsewhere", shop, nil))
	assert.False(t, lets(t, o, objects.ClientPort, "elsewhere", nil, nil))
	assert.True(t, lets(t, o, objects.ClientPort, "default", nil, nil), "the cluster's own namespace")
	assert.True(t, lets(t, o, objects.ClientPort, "quorate-system", nil, quorate), "Quorate itself")
	assert.False(t, lets(t, o, objects.ClientPort, "elsewhere", nil, quorate), "and no pod elsewhere with its label")
	assert.True(t, lets(t, o, objects.MetricsPort, "elsewhere", watch, nil))
	assert.False(t, lets(t, o, objects.MetricsPort, "elsewhere", shop, nil))

	o.Settings.Namespace = ""
	assert.True(t, lets(t, o, objects.ClientPort, "anywhere", nil, quorate), "where Quorate runs is not known")

	o.Cluster.Spec.NetworkPolicy = v1beta1.NetworkPolicySpec{Mode: v1beta1.NetworkPolicyDisabled}
	assert.Empty(t, Decide(o).Children.Policies)
}

// TestANetworkThatIsNone is refused: Kubernetes would refuse the NetworkPolicy, and with it all that comes after.
func TestANetworkThatIsNone(t *testing.T) {
	for network, fine := range map[string]bool{"10.0.0.0/8": true, "2001:db8::/32": true, "10.0.0.0/33": false, "": false} {
		for _, block := range []networkingv1.IPBlock{{CIDR: network}, {CIDR: "10.0.0.0/8", Except: []string{network}}} {
			o := fresh(3)
			o.Cluster.Spec.NetworkPolicy.Metrics = &v1beta1.Peers{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &block}}}
			assert.Equal(t, fine, defaults.Validate(&o.Cluster.Spec, o.Settings) == nil, block)
		}
	}
}

func namespacesOf(team string) *v1beta1.Peers {
	labels := &metav1.LabelSelector{MatchLabels: map[string]string{"team": team}}
	return &v1beta1.Peers{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: labels}}}
}

func TestMembersThatAreNotReadyAreEvictedOnlyWhileAQuorumIsReady(t *testing.T) {
	o := serve(3)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	policy := d.Children.Budgets[0].Spec.UnhealthyPodEvictionPolicy
	require.NotNil(t, policy)
	assert.Equal(t, policyv1.IfHealthyBudget, *policy)
	*policy = policyv1.AlwaysAllow
	assert.ErrorContains(t, verify(o, d), "S1: members that are not ready may be evicted")
}

func TestALearnerVotesOnceTheBudgetProtectsAQuorumWithIt(t *testing.T) {
	for _, replicas := range []int32{3, 5} { // a successor, and a cluster that grows
		o := learnerAt(990)
		o.Cluster.Spec.Replicas = new(replicas)
		if replicas == 3 {
			o.Children.Claims["demo-0"].DeletionTimestamp = &metav1.Time{Time: now}
		}
		promotes := Decide(o)
		require.IsType(t, decision.Promote{}, promotes.Step)

		o.Children.Budgets["demo"].Spec.MinAvailable = new(intstr.FromInt(2))
		d := Decide(o)
		assert.Nil(t, d.Step)
		assert.Contains(t, d.Reason.Message, "waiting until the PodDisruptionBudget demo protects 3 pods")
		assert.Equal(t, 3, d.Children.Budgets[0].Spec.MinAvailable.IntValue())
		assert.NoError(t, verify(o, d))
		assert.ErrorContains(t, verify(o, promotes), "S1: promote demo-3")
	}
}

func TestWhereTheClientServiceLeads(t *testing.T) {
	for _, o := range []observation.Observation{fresh(3), serve(3)} {
		assert.Equal(t, facts.RoleVoter, Decide(o).Children.Services[0].Spec.Selector[objects.LabelRole])
	}
}
