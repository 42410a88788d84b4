package hooks

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

// on puts the cluster on these nodes.
func on(o *observation.Observation, nodes ...string) {
	o.Cluster.Spec.Storage = v1beta1.StorageSpec{Medium: v1beta1.HostPath,
		HostPath: &v1beta1.HostPathSpec{Path: "/data", Nodes: nodes}}
}

// serveOn is a cluster of three that serves, demo-0 on node a, demo-1 on b and demo-2 on c.
func serveOn(nodes ...string) observation.Observation {
	o := serve(3)
	on(&o, nodes...)
	clear(o.Children.Claims)
	startsOn("a", "b", "c")(&o)
	for name, old := range o.Children.Pods {
		pod := answer.Pod(facts.New(o), name, objects.StartResume, nil)
		pod.UID, pod.Status = old.UID, old.Status
		o.Children.Pods[name] = pod
	}
	observe(&o, Decide(o))
	return o
}

func podIn(d decision.Decision, name string) *corev1.Pod {
	for _, pod := range d.Children.Pods {
		if pod.Name == name {
			return pod
		}
	}
	return nil
}

func TestAPodOnItsNode(t *testing.T) {
	o := serveOn("a", "b", "c")
	zone := corev1.NodeSelectorRequirement{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"x"}}
	o.Cluster.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{zone}},
				{MatchFields: []corev1.NodeSelectorRequirement{zone}}},
		}}}
	before := o.Cluster.Spec.Affinity.DeepCopy()
	delete(o.Children.Pods, "demo-1")
	d := Decide(o)
	pod := podIn(d, "demo-1")
	require.NotNil(t, pod)
	assert.Equal(t, before, o.Cluster.Spec.Affinity, "the spec is left as it is")
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		assert.Contains(t, term.MatchFields, corev1.NodeSelectorRequirement{Key: "metadata.name",
			Operator: corev1.NodeSelectorOpIn, Values: []string{"b"}}, "one term must hold, so each asks for the node")
		assert.Contains(t, append(term.MatchExpressions, term.MatchFields...), zone)
	}
	assert.Equal(t, "/data/"+o.Cluster.Namespace+"-demo-"+string(o.Cluster.UID)+"/demo-1", facts.DirectoryIn(pod))
	own, prepare := pod.Spec.InitContainers[0], pod.Spec.InitContainers[1]
	assert.Equal(t, []string{"chown-data", "--dir=/var/lib/etcd", "--user=10001",
		"--named=" + o.Cluster.Namespace + "-demo-" + string(o.Cluster.UID) + "/demo-1"}, own.Args)
	assert.Equal(t, []corev1.Capability{"CHOWN"}, own.SecurityContext.Capabilities.Add)
	assert.Empty(t, prepare.SecurityContext.Capabilities.Add, "no other container gets more")
	assert.Contains(t, prepare.Env,
		corev1.EnvVar{Name: "BEGINS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: "metadata.annotations['etcd.quorate.dev/initial-cluster']",
		}}}, "prepare reads it by itself: nothing is put into arguments by a kubelet")
	assert.Equal(t, objects.StartResume, facts.PodStart(pod))
	assert.NoError(t, verify(o, d))
}

func TestWhichNodeIsNext(t *testing.T) {
	o := serveOn("a", "b", "c", "d", "e")
	assert.Equal(t, string(o.Cluster.UID)+"/demo-0:a,demo-1:b,demo-2:c",
		o.Children.Services["demo-peers"].Annotations[objects.AnnotationNodes], "the copy of the record")
	f := facts.New(o)
	assert.Equal(t, []string{"d", "e"}, f.FreeNodes(3))
	assert.Equal(t, []string{"e", "d"}, f.FreeNodes(4), "one that came to nothing is followed by one elsewhere")
	assert.Equal(t, map[string]types.UID{"demo-1": "b"}, f.AssignNodes([]string{"demo-1"}), "who has a node keeps it")
	assert.Nil(t, f.AssignNodes([]string{"demo-7", "demo-8", "demo-9"}))

	former := podIn(Decide(o), "demo-2").DeepCopy()
	former.Name, former.Spec.Affinity = "demo-9", answer.Pinned(nil, "d")
	o.Children.Pods["demo-9"] = former
	assert.Equal(t, []string{"e", "d"}, facts.New(o).FreeNodes(3), "where a former member still is, is tried last")
}

func TestSpecsOnNodesThatCantBeRun(t *testing.T) {
	for want, change := range map[string]func(*v1beta1.StorageSpec){
		"needs spec.storage.hostPath":  func(s *v1beta1.StorageSpec) { s.HostPath = nil },
		"is not an absolute path":      func(s *v1beta1.StorageSpec) { s.HostPath.Path = "/data/../etc" },
		"has 2 nodes for 3 members":    func(s *v1beta1.StorageSpec) { s.HostPath.Nodes = s.HostPath.Nodes[:2] },
		"or is listed twice":           func(s *v1beta1.StorageSpec) { s.HostPath.Nodes[1] = "a" },
		"can't be used":                func(s *v1beta1.StorageSpec) { s.WAL = &v1beta1.WALSpec{} },
		"only for the medium HostPath": func(s *v1beta1.StorageSpec) { s.Medium = v1beta1.Persistent },
	} {
		o := serveOn("a", "b", "c")
		assert.NoError(t, defaults.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec.Storage)
		assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), want)
	}
}

func TestVerifyWatchesTheNodes(t *testing.T) {
	for want, spoil := range map[string]func(o *observation.Observation, pod *corev1.Pod){
		"the member's data on": func(_ *observation.Observation, pod *corev1.Pod) {
			pod.Spec.Affinity = answer.Pinned(nil, "c")
		},
		"for node \"\"": func(_ *observation.Observation, pod *corev1.Pod) { pod.Spec.Affinity = nil },
		"a directory of its own": func(_ *observation.Observation, pod *corev1.Pod) {
			for i := range pod.Spec.Volumes {
				if h := pod.Spec.Volumes[i].HostPath; h != nil {
					h.Path = strings.Replace(h.Path, "demo-1", "demo-0", 1)
				}
			}
		},
		"but the member has run": func(_ *observation.Observation, pod *corev1.Pod) {
			pod.Annotations[objects.AnnotationStart] = objects.StartBootstrap
		},
		"no record says where": func(o *observation.Observation, pod *corev1.Pod) {
			startsOn()(o)
			pod.Annotations[objects.AnnotationStart] = objects.StartBootstrap
		},
		"says that it may begin": func(_ *observation.Observation, pod *corev1.Pod) {
			pod.Annotations[objects.AnnotationInitialCluster] = "x"
		},
	} {
		o := serveOn("a", "b", "c")
		delete(o.Children.Pods, "demo-1")
		d := Decide(o)
		require.NoError(t, verify(o, d))
		spoil(&o, podIn(d, "demo-1"))
		assert.ErrorContains(t, verify(o, d), want)
	}
}

// atAddresses puts the cluster on the hosts' network: node a has the address 10.1.0.1, b 10.1.0.2 and so on.
func atAddresses(o *observation.Observation, medium v1beta1.Medium, nodes string) {
	h := &v1beta1.HostNetworkSpec{ClientPort: 4379, PeerPort: 4380, MetricsPort: 4381}
	for _, node := range strings.Split(nodes, "") {
		h.Nodes = append(h.Nodes, v1beta1.NodeAddress{Name: node, Address: "10.1.0." + string(rune(node[0]-'a'+'1'))})
	}
	o.Cluster.Spec.HostNetwork, o.Cluster.Spec.Storage = h, v1beta1.StorageSpec{Medium: medium}
	if medium == v1beta1.HostPath {
		o.Cluster.Spec.Storage.HostPath = &v1beta1.HostPathSpec{Path: "/data"}
	}
	clear(o.Children.Secrets)
	withCertificates(o)
}

// serveAtAddresses is a cluster of three on the hosts' network that serves, demo-0 on node a, demo-1 on b, demo-2 on c.
func serveAtAddresses(medium v1beta1.Medium, nodes string) observation.Observation {
	o := fresh(3)
	atAddresses(&o, medium, nodes)
	observeRecord(&o, 3)
	if medium == v1beta1.Memory {
		startsOn("uid-pod-0", "uid-pod-1", "uid-pod-2")(&o)
	} else {
		startsOn("a", "b", "c")(&o)
	}
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
	atAddresses(&o, v1beta1.HostPath, "abcd")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, map[string]string{"demo-0": "https://demo-0.default@10.1.0.1:4380",
		"demo-1": "https://demo-1.default@10.1.0.2:4380", "demo-2": "https://demo-2.default@10.1.0.3:4380"},
		recordOf(d).Initial)

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	d = Decide(o)
	assert.Equal(t, "CreateVolumes", d.Reason.Rule)
	assert.Equal(t, map[string]types.UID{"demo-0": "a", "demo-1": "b", "demo-2": "c"}, recordOf(d).StartsOn)
	require.NoError(t, verify(o, d))

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	d = Decide(o)
	require.NoError(t, verify(o, d))
	pod := podIn(d, "demo-1")
	require.NotNil(t, pod)
	assert.Equal(t, "b", facts.PinnedTo(pod))
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

func TestHostNetworkCertificates(t *testing.T) {
	o := serveAtAddresses(v1beta1.HostPath, "abcd")
	for _, l := range facts.New(o).Leaves[:2] {
		assert.Subset(t, l.Names, []string{"10.1.0.1", "10.1.0.4"}, l.What)
		assert.Contains(t, l.Needs(o.Cluster), "10.1.0.1", l.What)
		assert.NotContains(t, l.Needs(o.Cluster), "10.1.0.4", "%s: no member is there", l.What)
	}
}

// TestHostNetworkWaitsForItsCertificates: a node that is new in the list holds nothing else up.
func TestHostNetworkWaitsForItsCertificates(t *testing.T) {
	o := serveAtAddresses(v1beta1.HostPath, "abc")
	h := o.Cluster.Spec.HostNetwork
	h.Nodes = append(h.Nodes, v1beta1.NodeAddress{Name: "d", Address: "10.1.0.4"})
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
	for _, medium := range []v1beta1.Medium{v1beta1.HostPath, v1beta1.Memory} {
		o := serveAtAddresses(medium, "abcd")
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Equal(t, "Converged", d.Reason.Rule, "%s: %s", medium, d.Reason.Message)
		endpoints := facts.Endpoints(o)
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
	for _, medium := range []v1beta1.Medium{v1beta1.HostPath, v1beta1.Memory} {
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
		if medium == v1beta1.HostPath {
			assert.EqualValues(t, "d", recordOf(d).StartsOn["demo-3"])
		}
		o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
		d = Decide(o)
		require.NoError(t, verify(o, d))
		pod := podIn(d, "demo-3")
		require.NotNil(t, pod, medium)
		assert.Equal(t, "d", facts.PinnedTo(pod))
		assert.Contains(t, pod.Annotations[objects.AnnotationInitialCluster],
			"demo-3=https://demo-3.default@10.1.0.4:4380")

		o.Cluster.Spec.HostNetwork.Nodes = slices.Delete(o.Cluster.Spec.HostNetwork.Nodes, 3, 4)
		if medium == v1beta1.Memory {
			d = Decide(o)
			assert.True(t, podIn(d, "demo-3") == nil, "its node is not named any more")
			require.NoError(t, verify(o, d))
			assert.Contains(t, d.Reason.Message, "its node is no longer in spec.hostNetwork.nodes (address 10.1.0.4)")
		}
	}
}

func TestHostNetworkOfTheNextEpoch(t *testing.T) {
	o := serveAtAddresses(v1beta1.HostPath, "abc")
	assert.Equal(t, map[string]string{"demo-4": "https://demo-4.default@10.1.0.2:4380",
		"demo-5": "https://demo-5.default@10.1.0.3:4380", "demo-6": "https://demo-6.default@10.1.0.1:4380"},
		facts.New(o).NewRecord(4, 3).Initial, "each its own node")
}

func TestHostNetworkSpecsThatCantBeRun(t *testing.T) {
	for want, change := range map[string]func(*v1beta1.EtcdClusterSpec){
		"for the media HostPath and Memory": func(s *v1beta1.EtcdClusterSpec) {
			s.Storage = v1beta1.StorageSpec{Medium: v1beta1.Persistent}
		},
		"spec.hostNetwork.nodes has 2 nodes for 3 members": func(s *v1beta1.EtcdClusterSpec) {
			s.HostNetwork.Nodes = s.HostNetwork.Nodes[:2]
		},
		"both name nodes":      func(s *v1beta1.EtcdClusterSpec) { s.Storage.HostPath.Nodes = []string{"a", "b", "c"} },
		"one port twice":       func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.PeerPort = 4379 },
		"from 1 to 65535":      func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.PeerPort = -1 },
		"is not an IP address": func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Address = "node-b" },
		"form, such as 10.0.0.1": func(s *v1beta1.EtcdClusterSpec) {
			s.HostNetwork.Nodes[1].Address = "::ffff:10.1.0.2"
		},
		"usual form":              func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Address = "fd00::0:1" },
		"is also that of another": func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Address = "10.1.0.1" },
		"or is listed twice":      func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Name = "a" },
		"is not a nod":            func(s *v1beta1.EtcdClusterSpec) { s.HostNetwork.Nodes[1].Name = "a,b" },
	} {
		o := fresh(3)
		atAddresses(&o, v1beta1.HostPath, "abc")
		require.NoError(t, defaults.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec)
		assert.ErrorContains(t, defaults.Validate(&o.Cluster.Spec, o.Settings), want)
	}
	o := fresh(1)
	atAddresses(&o, v1beta1.Memory, "a")
	o.Cluster.Spec.HostNetwork.Nodes[0].Address = "fd00::1"
	require.NoError(t, defaults.Validate(&o.Cluster.Spec, o.Settings))
	assert.Equal(t, "https://demo-0.default@[fd00::1]:4380", objects.PeerURL(o.Cluster, "demo-0", "fd00::1"))
	v6 := answer.NewPod(o, "demo-0", "fd00::1", "3.6.16", objects.StartBootstrap, room("1Gi"), defaults.Speech{PeersTLS: true}, nil)
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
	assert.Nil(t, answer.Policies(facts.New(o)))
}

// selfHosted is a cluster of three that the API server has its data in.
func selfHosted() observation.Observation {
	o := serveAtAddresses(v1beta1.HostPath, "abcd")
	o.Cluster.Spec.TLS = v1beta1.TLSSpec{Mode: v1beta1.TLSSecrets, Secrets: &v1beta1.SecretsTLS{
		ServerSecretRef:   v1beta1.SecretRef{Name: "demo-server-tls"},
		PeerSecretRef:     v1beta1.SecretRef{Name: "demo-peer-tls"},
		OperatorSecretRef: v1beta1.SecretRef{Name: "demo-operator-tls"}}}
	o.Cluster.Spec.SelfHosted = true
	o.Related.Secrets = o.Children.Secrets
	for range 3 {
		d := Decide(o)
		observe(&o, d)
		o.Cluster.Status = d.Status
	}
	return o
}

func TestSelfHostedRefusesWhatStopsItAsAWhole(t *testing.T) {
	for want, change := range map[string]func(*v1beta1.EtcdClusterSpec){
		"needs spec.replicas of 3":                      func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(0)) },
		"with fewer, the loss or restart of one member": func(s *v1beta1.EtcdClusterSpec) { s.Replicas = new(int32(2)) },
		"quorumLoss Manual": func(s *v1beta1.EtcdClusterSpec) {
			s.Recovery.QuorumLoss = v1beta1.RecoverFromSurvivor
		},
		"tls.mode Secrets": func(s *v1beta1.EtcdClusterSpec) { s.TLS.Mode = v1beta1.TLSAuto },
	} {
		o := selfHosted()
		require.NoError(t, defaults.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec)
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule)
		assert.Contains(t, d.Reason.Message, want)
		require.NoError(t, verify(o, d))
		assert.Len(t, d.Children.Pods, 3)

		d.Children.Pods = d.Children.Pods[:1]
		require.ErrorContains(t, verify(o, d), "1 of 3 members stay, and the API server has its data here")
	}
}

func TestSelfHostedIsNotDeleted(t *testing.T) {
	o := selfHosted()
	assert.True(t, defaults.Protected(o.Cluster), "also without deletionProtection")
}

func TestSelfHostedBeginsNoNextEpoch(t *testing.T) {
	o := selfHosted()
	o.Etcd = nil
	clear(o.Health)
	askRecover(&o, v1beta1.RecoverFromSurvivor, 1)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Len(t, d.Children.ConfigMaps, 1, "no epoch is recorded, also when it is asked for")

	next := facts.New(o).NewRecord(4, 3)
	next.After = 1
	d.Children.ConfigMaps = append(d.Children.ConfigMaps, record.New(o.Cluster, 2, next))
	require.ErrorContains(t, verify(o, d), "takes over from the one that has the API server's data")
}

func TestSelfHostedIsSuspendedBetweenChangesOnly(t *testing.T) {
	o := selfHosted()
	o.Cluster.Spec.Suspend = true
	assert.Equal(t, "Suspended", Decide(o).Reason.Rule, "at rest")

	o.Cluster.Spec.Replicas = new(int32(4))
	o.Cluster.Status = Decide(o).Status
	assert.Equal(t, "Suspended", Decide(o).Reason.Rule, "what is asked for after that waits")

	away := selfHosted()
	delete(away.Children.Pods, "demo-1")
	learner := selfHosted()
	learner.Etcd.Members[2].Learner = true
	for name, o := range map[string]observation.Observation{"a pod is away": away, "a learner is listed": learner,
		"a restart was chosen": with(selfHosted(), chosen(restart(1)))} {
		o.Cluster.Spec.Suspend = true
		d := Decide(o)
		assert.NotEqual(t, "Suspended", d.Reason.Rule, "%s, also where no status says so", name)
		waits := meta.FindStatusCondition(d.Status.Conditions, v1beta1.Suspended)
		assert.Equal(t, "ChangeUnderWay", waits.Reason, name)
		require.NoError(t, verify(o, d))
	}

	o = away
	o.Cluster.Spec.SelfHosted = false
	assert.Equal(t, "Suspended", Decide(o).Reason.Rule, "any other cluster is suspended at once")
}
