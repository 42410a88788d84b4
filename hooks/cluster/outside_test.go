package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/spec"
)

// membersOutside is a cluster whose members have these Services, and have yet to be restarted for them.
func membersOutside(asked v1alpha1.MemberService) observation.Observation {
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
	o.Cluster.Spec.ClientService.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	o.Cluster.Spec.MemberService = &v1alpha1.MemberService{
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
	o := membersOutside(v1alpha1.MemberService{Type: corev1.ServiceTypeLoadBalancer, Domain: "etcd.example.com"})
	v := newView(o)
	assert.Contains(t, v.Leaves[0].Names, "*.etcd.example.com")
	assert.Contains(t, v.Leaves[0].Needs(o.Cluster), "*.etcd.example.com")
	assert.NotContains(t, v.Leaves[1].Names, "*.etcd.example.com", "peers are not reached there")
	pod := children.Pod(v, "demo-1", objects.StartResume, nil)
	assert.Equal(t, "https://demo-1.demo-peers.default.svc:2379,https://demo-1.etcd.example.com:2379", flagOf(pod, "advertise-client-urls"))
	assert.Equal(t, "it should be reached at https://demo-1.etcd.example.com:2379",
		rollout.UpdateOf(v, v.Find("demo-1")).Reason)
	o.Children.Pods["demo-1"].Spec.Containers[0].Command = pod.Spec.Containers[0].Command
	v = newView(o)
	assert.Nil(t, rollout.UpdateOf(v, v.Find("demo-1")))
	assert.Equal(t, []string{"https://demo-0.etcd.example.com:2379", "https://demo-1.etcd.example.com:2379",
		"https://demo-2.etcd.example.com:2379"}, Decide(o).Status.Connection.External)

	o.Cluster.Spec.MemberService = nil
	v = newView(o)
	assert.Equal(t, "it should no longer be reached at https://demo-1.etcd.example.com:2379",
		rollout.UpdateOf(v, v.Find("demo-1")).Reason)
	assert.Len(t, Decide(o).Children.Services, 2)
}

// TestAPortOfNodesIsWaitedFor by pods on Memory alone: any other member can be restarted for it, and must not stay away
// because its Service does.
func TestAPortOfNodesIsWaitedFor(t *testing.T) {
	o := membersOutside(v1alpha1.MemberService{Type: corev1.ServiceTypeNodePort, Domain: "etcd.example.com"})
	v := newView(o)
	assert.False(t, v.MayBeginOnMemory("demo-1"))
	assert.Nil(t, rollout.UpdateOf(v, v.Find("demo-1")), "no member is restarted for half an address")
	assert.NotContains(t, flagOf(children.Pod(v, "demo-1", objects.StartResume, nil), "advertise-client-urls"), "etcd.example.com")
	assert.Empty(t, Decide(o).Status.Connection.External)

	o.Children.Services["demo-1-external"].Spec.Ports[0].NodePort = 31234
	v = newView(o)
	assert.Equal(t, "it should be reached at https://demo-1.etcd.example.com:31234",
		rollout.UpdateOf(v, v.Find("demo-1")).Reason)
	assert.Zero(t, serviceIn(t, Decide(o), "demo-1-external").Spec.Ports[0].NodePort, "Kubernetes keeps its own choice")

	m := inMemory()
	m.Cluster.Spec.MemberService = o.Cluster.Spec.MemberService
	observe(&m, Decide(m))
	addMember(&m, 3, true)
	m.Etcd.Members[3].Name, m.Etcd.Members[3].ClientURLs = "", nil
	delete(m.Children.Pods, "demo-3")
	require.True(t, newView(m).MayBeMade(newView(m).Find("demo-3")))
	without := func() bool {
		for _, pod := range Decide(m).Children.Pods {
			if pod.Name == "demo-3" {
				return false
			}
		}
		return true
	}
	assert.True(t, without())
	m.Children.Services["demo-3-external"] = o.Children.Services["demo-1-external"]
	assert.False(t, without())
}

// TestServicesOfMembersStayWhileEtcdIsSilent: a cloud would give another address to the next one. They go with the list
// that omits their member.
func TestServicesOfMembersStayWhileEtcdIsSilent(t *testing.T) {
	o := membersOutside(v1alpha1.MemberService{Type: corev1.ServiceTypeLoadBalancer, Domain: "etcd.example.com"})
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
	for want, asked := range map[string]v1alpha1.MemberService{
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
		assert.ErrorContains(t, spec.Validate(&o.Cluster.Spec, o.Settings), want)
	}
	o := serveAtAddresses(v1alpha1.HostPath, "abc")
	o.Cluster.Spec.MemberService = &v1alpha1.MemberService{Type: corev1.ServiceTypeNodePort, Domain: domain}
	assert.ErrorContains(t, spec.Validate(&o.Cluster.Spec, o.Settings), "not for members on hostNetwork")
}
