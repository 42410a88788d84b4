package cluster

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
)

// atAddresses puts the cluster on the hosts' network: node a has the address 10.1.0.1, b 10.1.0.2 and so on.
func atAddresses(o *observation.Observation, medium v1alpha1.Medium, nodes string) {
	h := &v1alpha1.HostNetworkSpec{ClientPort: 4379, PeerPort: 4380, MetricsPort: 4381}
	for _, node := range strings.Split(nodes, "") {
		h.Nodes = append(h.Nodes, v1alpha1.NodeAddress{Name: node, Address: "10.1.0." + string(rune(node[0]-'a'+'1'))})
	}
	o.Cluster.Spec.HostNetwork, o.Cluster.Spec.Storage = h, v1alpha1.StorageSpec{Medium: medium}
	if medium == v1alpha1.HostPath {
		o.Cluster.Spec.Storage.HostPath = &v1alpha1.HostPathSpec{Path: "/data"}
	}
	clear(o.Children.Secrets)
	withCertificates(o)
}

// serveAtAddresses is a cluster of three on the hosts' network that serves, demo-0 on node a, demo-1 on b, demo-2 on c.
func serveAtAddresses(medium v1alpha1.Medium, nodes string) observation.Observation {
	o := fresh(3)
	atAddresses(&o, medium, nodes)
	observeRecord(&o, 3)
	record := o.Children.ConfigMaps["demo-epoch-1"]
	record.Annotations[objects.AnnotationStartsOn] = map[v1alpha1.Medium]string{
		v1alpha1.HostPath: "demo-0:a,demo-1:b,demo-2:c",
		v1alpha1.Memory:   "demo-0:uid-pod-0,demo-1:uid-pod-1,demo-2:uid-pod-2",
	}[medium]
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: 1}
	for i := range 3 {
		addMember(&o, i, false)
	}
	clear(o.Children.Claims)
	observe(&o, Decide(o))
	return o
}

func flagOf(pod *corev1.Pod, name string) string {
	for _, flag := range pod.Spec.Containers[0].Command {
		if value, is := strings.CutPrefix(flag, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

func TestHostNetworkBegins(t *testing.T) {
	o := fresh(3)
	atAddresses(&o, v1alpha1.HostPath, "abcd")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	record := d.Children.ConfigMaps[0]
	assert.Equal(t, "demo-0=https://demo-0.default@10.1.0.1:4380,demo-1=https://demo-1.default@10.1.0.2:4380,"+
		"demo-2=https://demo-2.default@10.1.0.3:4380", record.Data[objects.EpochKeyInitialCluster])

	o.Children.ConfigMaps["demo-epoch-1"] = record
	d = Decide(o)
	assert.Equal(t, "Provision", d.Reason.Rule)
	record = d.Children.ConfigMaps[0]
	assert.Equal(t, "demo-0:a,demo-1:b,demo-2:c", record.Annotations[objects.AnnotationStartsOn])
	require.NoError(t, verify(o, d))

	o.Children.ConfigMaps["demo-epoch-1"] = record
	d = Decide(o)
	require.NoError(t, verify(o, d))
	pod := podIn(d, "demo-1")
	require.NotNil(t, pod)
	assert.Equal(t, "b", state.PinnedTo(pod))
	assert.True(t, pod.Spec.HostNetwork)
	assert.Equal(t, corev1.DNSClusterFirstWithHostNet, pod.Spec.DNSPolicy)
	assert.Empty(t, pod.Spec.Containers[0].Ports, "else Kubernetes lets no pod of the next epoch wait beside it")
	assert.Equal(t, intstr.FromInt(4381), pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Port)
	for flag, want := range map[string]string{
		"listen-client-urls":          "https://0.0.0.0:4379",
		"advertise-client-urls":       "https://10.1.0.2:4379",
		"listen-peer-urls":            "https://0.0.0.0:4380",
		"initial-advertise-peer-urls": "https://demo-1.default@10.1.0.2:4380",
		"listen-metrics-urls":         "http://0.0.0.0:4381",
	} {
		assert.Equal(t, want, flagOf(pod, flag), flag)
	}
	for _, service := range d.Children.Services {
		assert.Equal(t, intstr.FromInt(4379), service.Spec.Ports[0].TargetPort, service.Name)
	}
	assert.Empty(t, d.Children.Policies)
}

func TestHostNetworkOnMemoryBegins(t *testing.T) {
	o := fresh(3)
	atAddresses(&o, v1alpha1.Memory, "abcd")
	o.Children.ConfigMaps["demo-epoch-1"] = Decide(o).Children.ConfigMaps[0]
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, 3)
	assert.Equal(t, "c", state.PinnedTo(podIn(d, "demo-2")), "by the address that the record begins with")
	assert.Equal(t, "https://demo-2.default@10.1.0.3:4380", flagOf(podIn(d, "demo-2"), "initial-advertise-peer-urls"))
}

func TestHostNetworkCertificates(t *testing.T) {
	o := serveAtAddresses(v1alpha1.HostPath, "abcd")
	for _, l := range certificates.Examine(newView(o)).Leaves[:2] {
		assert.Subset(t, l.Names, []string{"10.1.0.1", "10.1.0.4"}, l.What)
		assert.Contains(t, l.Needs(o.Cluster), "10.1.0.1", l.What)
		assert.NotContains(t, l.Needs(o.Cluster), "10.1.0.4", "%s: no member is there", l.What)
	}
}

// TestHostNetworkWaitsForItsCertificates: a node that is new in the list holds nothing else up.
func TestHostNetworkWaitsForItsCertificates(t *testing.T) {
	o := serveAtAddresses(v1alpha1.HostPath, "abc")
	h := o.Cluster.Spec.HostNetwork
	h.Nodes = append(h.Nodes, v1alpha1.NodeAddress{Name: "d", Address: "10.1.0.4"})
	o.Cluster.Spec.Replicas = new(int32(4))
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Nil(t, d.Step)
	assert.Contains(t, d.Reason.Message, "the certificates in the Secrets demo-server-tls and demo-peer-tls are not valid for")
	forge(&o, d.Children.Secrets)
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.default@10.1.0.4:4380"}, d.Step)
}

func TestHostNetworkAtRest(t *testing.T) {
	for _, medium := range []v1alpha1.Medium{v1alpha1.HostPath, v1alpha1.Memory} {
		o := serveAtAddresses(medium, "abcd")
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Equal(t, "Converged", d.Reason.Rule, "%s: %s", medium, d.Reason.Message)
		endpoints := state.Endpoints(o)
		require.Len(t, endpoints, 3)
		assert.Equal(t, "https://demo-1.default@10.1.0.2:4380", endpoints[1].PeerURL)
		assert.Equal(t, "https://10.0.0.2:4379", endpoints[1].ClientURL, "where its pod is, at the port of the spec")
		assert.Equal(t, []string{"https://demo.default.svc:2379", "https://10.1.0.1:4379", "https://10.1.0.2:4379",
			"https://10.1.0.3:4379"}, d.Status.Connection.Endpoints)

		o.Cluster.Status = d.Status
		o.Etcd = nil
		clear(o.Health)
		d = Decide(o)
		require.NoError(t, verify(o, d))
		assert.Len(t, d.Status.Connection.Endpoints, 4, "%s: blind, they are as they were", medium)
	}
}

func TestHostNetworkGrowsOntoAFreeNode(t *testing.T) {
	for _, medium := range []v1alpha1.Medium{v1alpha1.HostPath, v1alpha1.Memory} {
		o := serveAtAddresses(medium, "abcdef")
		o.Cluster.Spec.Replicas = new(int32(5))
		d := Decide(o)
		require.NoError(t, verify(o, d))
		require.Equal(t, decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.default@10.1.0.4:4380"}, d.Step)

		taken := d
		taken.Step = decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.default@10.1.0.2:4380"}
		require.ErrorContains(t, verify(o, taken), "on the node of another member")
		taken.Step = decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.default@10.9.9.9:4380"}
		require.ErrorContains(t, verify(o, taken), "which the spec does not name")
		taken.Step = decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-4.default@10.1.0.4:4380"}
		require.ErrorContains(t, verify(o, taken), "that is not ours")

		o.Etcd.Members = append(o.Etcd.Members, observation.Member{ID: 4, Learner: true,
			PeerURLs: []string{"https://demo-3.default@10.1.0.4:4380"}})
		d = Decide(o)
		require.NoError(t, verify(o, d))
		if medium == v1alpha1.HostPath {
			assert.Contains(t, d.Children.ConfigMaps[0].Annotations[objects.AnnotationStartsOn], "demo-3:d")
		}
		o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
		d = Decide(o)
		require.NoError(t, verify(o, d))
		pod := podIn(d, "demo-3")
		require.NotNil(t, pod, medium)
		assert.Equal(t, "d", state.PinnedTo(pod))
		assert.Contains(t, pod.Annotations[objects.AnnotationInitialCluster],
			"demo-3=https://demo-3.default@10.1.0.4:4380")

		o.Cluster.Spec.HostNetwork.Nodes = slices.Delete(o.Cluster.Spec.HostNetwork.Nodes, 3, 4)
		if medium == v1alpha1.Memory {
			d = Decide(o)
			assert.True(t, podIn(d, "demo-3") == nil, "its node is not named any more")
			require.NoError(t, verify(o, d))
			assert.Contains(t, d.Reason.Message, "its node is no longer in spec.hostNetwork.nodes (address 10.1.0.4)")
		}
	}
}

func TestHostNetworkWithoutAFreeNode(t *testing.T) {
	o := serveAtAddresses(v1alpha1.Memory, "abc")
	o.Etcd.Members = o.Etcd.Members[:2]
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.NotEqual(t, "Grow", d.Reason.Rule, "the pod of the removed member goes first")
	delete(o.Children.Pods, "demo-2")
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.default@10.1.0.3:4380"}, d.Step,
		"the node of who is gone is free, and the URL another one")

	o.Cluster.Spec.HostNetwork.Nodes = o.Cluster.Spec.HostNetwork.Nodes[:2]
	o.Cluster.Spec.Replicas = new(int32(2))
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Nil(t, d.Step)
}

// What a node's address says of a member stays true when the spec forgets the node.
func TestHostNetworkForgetsANode(t *testing.T) {
	o := serveAtAddresses(v1alpha1.HostPath, "abcd")
	o.Cluster.Spec.HostNetwork.Nodes = append(o.Cluster.Spec.HostNetwork.Nodes[:1:1],
		o.Cluster.Spec.HostNetwork.Nodes[2:]...)
	assert.Contains(t, status.Advice(newView(o)), "demo-1 stays on node b, which spec.hostNetwork.nodes no longer lists")
	assert.Equal(t, "https://demo-1.default@10.1.0.2:4380", state.Endpoints(o)[1].PeerURL)
	for _, l := range certificates.Examine(newView(o)).Leaves[:2] {
		assert.Contains(t, l.Names, "10.1.0.2", "%s: it is a member, and dialled there", l.What)
	}
	delete(o.Children.Pods, "demo-1")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	pod := podIn(d, "demo-1")
	require.NotNil(t, pod, "etcd's list has its address")
	assert.Equal(t, "https://demo-1.default@10.1.0.2:4380", flagOf(pod, "initial-advertise-peer-urls"))
}

func TestHostNetworkOfTheNextEpoch(t *testing.T) {
	o := serveAtAddresses(v1alpha1.HostPath, "abc")
	record := state.NewRecord(newView(o), 2, 4, 3)
	assert.Equal(t, "demo-4=https://demo-4.default@10.1.0.2:4380,demo-5=https://demo-5.default@10.1.0.3:4380,"+
		"demo-6=https://demo-6.default@10.1.0.1:4380", record.Data[objects.EpochKeyInitialCluster], "each its own node")
}

func TestHostNetworkSpecsThatCantBeRun(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.EtcdClusterSpec){
		"for the media HostPath and Memory": func(s *v1alpha1.EtcdClusterSpec) {
			s.Storage = v1alpha1.StorageSpec{Medium: v1alpha1.Persistent}
		},
		"spec.hostNetwork.nodes has 2 nodes for 3 members": func(s *v1alpha1.EtcdClusterSpec) {
			s.HostNetwork.Nodes = s.HostNetwork.Nodes[:2]
		},
		"both name nodes":      func(s *v1alpha1.EtcdClusterSpec) { s.Storage.HostPath.Nodes = []string{"a", "b", "c"} },
		"one port twice":       func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.PeerPort = 4379 },
		"from 1 to 65535":      func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.PeerPort = -1 },
		"is not an IP address": func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Address = "node-b" },
		"form, such as 10.0.0.1": func(s *v1alpha1.EtcdClusterSpec) {
			s.HostNetwork.Nodes[1].Address = "::ffff:10.1.0.2"
		},
		"usual form":              func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Address = "fd00::0:1" },
		"is also that of another": func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Address = "10.1.0.1" },
		"or is listed twice":      func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Name = "a" },
		"is not a nod":            func(s *v1alpha1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Name = "a,b" },
	} {
		o := fresh(3)
		atAddresses(&o, v1alpha1.HostPath, "abc")
		require.NoError(t, spec.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec)
		assert.ErrorContains(t, spec.Validate(&o.Cluster.Spec, o.Settings), want)
	}
	o := fresh(1)
	atAddresses(&o, v1alpha1.Memory, "a")
	o.Cluster.Spec.HostNetwork.Nodes[0].Address = "fd00::1"
	require.NoError(t, spec.Validate(&o.Cluster.Spec, o.Settings))
	assert.Equal(t, "https://demo-0.default@[fd00::1]:4380", objects.PeerURL(o.Cluster, "demo-0", "fd00::1"))
	v6 := children.NewPod(o, "demo-0", "fd00::1", "3.6.16", objects.StartBootstrap, *quantity("1Gi"), spec.Speech{PeersTLS: true}, nil)
	assert.Equal(t, "https://[::]:4380", flagOf(v6, "listen-peer-urls"))
	assert.Equal(t, "https://[fd00::1]:4379", flagOf(v6, "advertise-client-urls"))
	name, ours := objects.MemberAt(o.Cluster, []string{"https://demo-0.default@[fd00::1]:4380"})
	assert.True(t, ours)
	assert.Equal(t, "demo-0", name)
	for _, stranger := range []string{"https://demo-0.other@[fd00::1]:4380", "https://[fd00::1]:4380",
		"https://demo-0.demo-peers.default.svc:2380", "https://demo-00.default@[fd00::1]:4380"} {
		_, ours = objects.MemberAt(o.Cluster, []string{stranger})
		assert.False(t, ours, stranger)
	}
	assert.Nil(t, children.Policies(newView(o)))
}
