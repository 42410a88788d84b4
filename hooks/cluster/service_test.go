package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
)

// outside is a cluster at rest with this Service for clients.
func outside(asked v1alpha1.ClientService) observation.Observation {
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
	o.Cluster.Spec.ClientService = v1alpha1.ClientService{
		Type: corev1.ServiceTypeLoadBalancer, Annotations: map[string]string{"b": "own"},
		NodePort: new(int32(30379)), LoadBalancerClass: "example.com/internal",
		LoadBalancerSourceRanges: []string{"10.0.0.0/8"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		IPFamilyPolicy: corev1.IPFamilyPolicyPreferDualStack, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol},
		AppProtocol: "https",
	}
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
	for _, both := range []*corev1.Service{s, peers} {
		assert.Equal(t, corev1.IPFamilyPolicyPreferDualStack, *both.Spec.IPFamilyPolicy)
		assert.Equal(t, []corev1.IPFamily{corev1.IPv6Protocol}, both.Spec.IPFamilies)
	}
	assert.Equal(t, corev1.ClusterIPNone, peers.Spec.ClusterIP)
}

// TestServicesKeepWhatKubernetesFillsIn: what the spec leaves open is in no answer, so that no one is told to take it
// back.
func TestServicesKeepWhatKubernetesFillsIn(t *testing.T) {
	o := outside(v1alpha1.ClientService{Type: corev1.ServiceTypeNodePort})
	seen := o.Children.Services["demo"]
	seen.Spec.ClusterIP, seen.Spec.IPFamilies = "10.96.0.7", []corev1.IPFamily{corev1.IPv4Protocol}
	seen.Spec.ExternalTrafficPolicy, seen.Spec.Ports[0].NodePort = corev1.ServiceExternalTrafficPolicyCluster, 31234
	d := Decide(o)
	after := serviceIn(t, d, "demo").Spec
	assert.Empty(t, after.ClusterIP)
	assert.Empty(t, after.IPFamilies)
	assert.Empty(t, after.ExternalTrafficPolicy)
	assert.Zero(t, after.Ports[0].NodePort)
	assert.Equal(t, int32(31234), d.Status.Connection.NodePort, "people need it")
}

// TestTheAddressOfALoadBalancerIsInTheCertificate, and people are told the URL.
func TestTheAddressOfALoadBalancerIsInTheCertificate(t *testing.T) {
	o := outside(v1alpha1.ClientService{Type: corev1.ServiceTypeLoadBalancer})
	v := newView(o)
	require.NotContains(t, v.Leaves[0].Names, "192.0.2.9")
	o.Children.Services["demo"].Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.9"},
		{Hostname: "lb.example", IP: "192.0.2.10"}, {IP: "2001:db8::9"}}
	v = newView(o)
	assert.Subset(t, v.Leaves[0].Names, []string{"192.0.2.9", "2001:db8::9", "lb.example"})
	assert.NotContains(t, v.Leaves[1].Names, "192.0.2.9", "peers are not reached there")
	d := Decide(o)
	assert.Equal(t, []string{"https://192.0.2.9:2379", "https://[2001:db8::9]:2379", "https://lb.example:2379"},
		d.Status.Connection.External)
	for _, pod := range d.Children.Pods {
		assert.NotEmpty(t, pod.UID, "no member restarts for it")
	}
	assert.Nil(t, d.Step)
	o.Children.Services["demo"].Spec.Type = corev1.ServiceTypeClusterIP // and the status is an old one
	assert.NotContains(t, newView(o).Leaves[0].Names, "192.0.2.9")
}

// TestAnotherFirstFamilyIsSaid, and the Service is left with its own: Kubernetes would refuse every change of it.
func TestAnotherFirstFamilyIsSaid(t *testing.T) {
	o := outside(v1alpha1.ClientService{IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol}})
	o.Children.Services["demo"].Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	d := Decide(o)
	assert.Equal(t, []corev1.IPFamily{corev1.IPv4Protocol}, serviceIn(t, d, "demo").Spec.IPFamilies)
	assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Advised).Message, "delete the Service, and Quorate makes it again")
}

// TestASuspendedServiceKeepsItsAnnotations: a cloud would make another load balancer.
func TestASuspendedServiceKeepsItsAnnotations(t *testing.T) {
	o := outside(v1alpha1.ClientService{Annotations: map[string]string{"cloud.example/internal": "true"}})
	o.Cluster.Spec.Suspend = true
	o.Children.Services["demo"].Annotations["others.example/note"] = "theirs"
	assert.Equal(t, map[string]string{"cloud.example/internal": "true"}, serviceIn(t, Decide(o), "demo").Annotations)
}

// TestServicesThatKubernetesWouldRefuse are refused, where the CRD's rules don't hold.
func TestServicesThatKubernetesWouldRefuse(t *testing.T) {
	for want, asked := range map[string]v1alpha1.ClientService{
		"is not ClusterIP":                                 {Type: corev1.ServiceTypeExternalName},
		"nodePort and externalTraff":                       {NodePort: new(int32(30379))},
		"need the type NodePort":                           {ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal},
		"loadBalancerClass and load":                       {Type: corev1.ServiceTypeNodePort, LoadBalancerClass: "a"},
		"has two families":                                 {IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}},
		"clientService.annotations has etcd.quorate.dev/x": {Annotations: map[string]string{"etcd.quorate.dev/x": "y"}},
	} {
		o := fresh(3)
		o.Cluster.Spec.ClientService = asked
		assert.ErrorContains(t, spec.Validate(&o.Cluster.Spec, o.Settings), want)
	}
}

// TestOnlyCertificatesHaveTheClusterDomain: no member is reached by a name that has it, so another one restarts none.
func TestOnlyCertificatesHaveTheClusterDomain(t *testing.T) {
	o := serve(3)
	before := Decide(o)
	require.Contains(t, newView(o).Leaves[0].Names, "demo.default.svc.cluster.local")
	o.Settings.ClusterDomain = "lab.internal"
	assert.Subset(t, newView(o).Leaves[0].Names, []string{"demo.default.svc.lab.internal",
		"*.demo-peers.default.svc.lab.internal"})
	assert.NotContains(t, newView(o).Leaves[0].Names, "demo.default.svc.cluster.local")
	assert.Equal(t, before.Children.Pods, Decide(o).Children.Pods)
	assert.Equal(t, before.Status.Connection.Endpoints, Decide(o).Status.Connection.Endpoints)
}
