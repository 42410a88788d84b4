package cluster

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// on puts the cluster on these nodes.
func on(o *observation.Observation, nodes ...string) {
	o.Cluster.Spec.Storage = v1alpha1.StorageSpec{Medium: v1alpha1.HostPath,
		HostPath: &v1alpha1.HostPathSpec{Path: "/data", Nodes: nodes}}
}

// serveOn is a cluster of three that serves, demo-0 on node a, demo-1 on b and demo-2 on c.
func serveOn(nodes ...string) observation.Observation {
	o := serve(3)
	on(&o, nodes...)
	clear(o.Children.Claims)
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationStartsOn] = "demo-0:a,demo-1:b,demo-2:c"
	for name, old := range o.Children.Pods {
		pod := children.Pod(newView(o), name, objects.StartResume, nil)
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

func TestNodesAreRecordedBeforeTheirPodsAreMade(t *testing.T) {
	o := fresh(3)
	on(&o, "a", "b", "c", "d")
	o.Children.ConfigMaps["demo-epoch-1"] = state.NewRecord(newView(o), 1, 0, 3)
	d := Decide(o)
	assert.Equal(t, "Provision", d.Reason.Rule)
	assert.Empty(t, d.Children.Pods)
	assert.Empty(t, d.Children.Claims)
	assert.Equal(t, "demo-0:a,demo-1:b,demo-2:c", d.Children.ConfigMaps[0].Annotations[objects.AnnotationStartsOn])
	assert.NoError(t, verify(o, d))

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	o.Cluster.Spec.Storage.HostPath.Nodes = []string{"x", "y", "z"}
	d = Decide(o)
	require.Len(t, d.Children.Pods, 3)
	for name, node := range map[string]string{"demo-0": "a", "demo-1": "b", "demo-2": "c"} {
		assert.Equal(t, node, state.PinnedTo(podIn(d, name)), "what is recorded stays, whatever the spec says later")
	}
	assert.NoError(t, verify(o, d))
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
	assert.Equal(t, "/data/"+o.Cluster.Namespace+"-demo-"+string(o.Cluster.UID)+"/demo-1", state.DirectoryIn(pod))
	own, prepare := pod.Spec.InitContainers[0], pod.Spec.InitContainers[1]
	assert.Equal(t, []string{"own", "--dir=/var/lib/etcd", "--user=10001"}, own.Args)
	assert.Equal(t, []corev1.Capability{"CHOWN"}, own.SecurityContext.Capabilities.Add)
	assert.Empty(t, prepare.SecurityContext.Capabilities.Add, "no other container gets more")
	assert.Contains(t, prepare.Env,
		corev1.EnvVar{Name: "BEGINS", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{
			APIVersion: "v1", FieldPath: "metadata.annotations['etcd.quorate.dev/initial-cluster']",
		}}}, "prepare reads it by itself: nothing is put into arguments by a kubelet")
	assert.Equal(t, objects.StartResume, state.PodStart(pod))
	assert.NoError(t, verify(o, d))
}

func TestWhoMayBeginSaysSoUntilItHasBegun(t *testing.T) {
	o := fresh(3)
	on(&o, "a", "b", "c")
	observeRecord(&o, 3)
	record := o.Children.ConfigMaps["demo-epoch-1"]
	record.Annotations[objects.AnnotationStartsOn] = "demo-0:a,demo-1:b,demo-2:c"
	delete(record.Annotations, objects.AnnotationClusterID)
	pod := podIn(Decide(o), "demo-0")
	require.NotNil(t, pod)
	assert.Equal(t, objects.StartBootstrap, state.PodStart(pod))
	assert.NotEmpty(t, pod.Annotations[objects.AnnotationInitialCluster])

	o.Cluster.Status.ClusterID = "c1"
	pod = podIn(Decide(o), "demo-0")
	assert.Equal(t, objects.StartResume, state.PodStart(pod),
		"an old record lets no member begin when the status knows a "+
			"cluster")
	assert.NoError(t, verify(o, Decide(o)))

	running := serveOn("a", "b", "c")
	running.Children.Pods["demo-0"].Annotations[objects.AnnotationInitialCluster] = "x"
	assert.Empty(t, podIn(Decide(running), "demo-0").Annotations[objects.AnnotationInitialCluster], "it has begun")
}

func TestBlindOnNodesTheRecordBringsPodsBack(t *testing.T) {
	o := serveOn("a", "b", "c")
	o.Etcd = nil
	clear(o.Children.Pods)
	clear(o.Health)
	for _, without := range []string{"nothing", "demo-epoch-1"} {
		if _, there := o.Children.ConfigMaps[without]; there {
			record := epochs.RecreatedRecord(newView(recordless(o)))
			o.Children.ConfigMaps["demo-epoch-1"] = record
		}
		d := Decide(o)
		require.Len(t, d.Children.Pods, 3, "without %s", without)
		for _, p := range d.Children.Pods {
			assert.Equal(t, objects.StartResume, state.PodStart(p))
		}
		assert.Equal(t, "c", state.PinnedTo(podIn(d, "demo-2")))
		assert.NoError(t, verify(o, d))
	}
	assert.Equal(t, "none", o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationStartsOn],
		"the copy on the Service lets no member begin")
}

// recordless is the observation without its record.
func recordless(o observation.Observation) observation.Observation {
	o.Children.ConfigMaps = map[string]*corev1.ConfigMap{}
	return o
}

func TestWhichNodeIsNext(t *testing.T) {
	o := serveOn("a", "b", "c", "d", "e")
	v := newView(o)
	assert.Equal(t, []string{"d", "e"}, volumes.FreeNodes(v, 3))
	assert.Equal(t, []string{"e", "d"}, volumes.FreeNodes(v, 4),
		"one that came to nothing is followed by one elsewhere")
	assert.Equal(t, map[string]types.UID{"demo-1": "b"}, volumes.AssignNodes(v, []string{"demo-1"}),
		"who has a node keeps it")
	assert.Nil(t, volumes.AssignNodes(v, []string{"demo-7", "demo-8", "demo-9"}))

	former := podIn(Decide(o), "demo-2").DeepCopy()
	former.Name, former.Spec.Affinity = "demo-9", children.Pinned(nil, "d")
	o.Children.Pods["demo-9"] = former
	assert.Equal(t, []string{"e", "d"}, volumes.FreeNodes(newView(o), 3),
		"where a former member still is, is tried last")
}

func TestGrowthWaitsForANode(t *testing.T) {
	o := serveOn("a", "b", "c")
	o.Cluster.Spec.Replicas = new(int32(4))
	assert.ErrorContains(t, spec.Validate(&o.Cluster.Spec, o.Settings), "3 nodes for 4 members")
	o.Cluster.Spec.Storage.HostPath.Nodes = []string{"a", "c", "d", "e"}
	assert.Contains(t, status.Advice(newView(o)), "demo-1 stays on node b, which")
	assert.Equal(t, "Grow", Decide(o).Reason.Rule)
	assert.NotNil(t, Decide(o).Step)
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationStartsOn] = "demo-0:a,demo-1:d,demo-2:c"
	o.Cluster.Spec.Storage.HostPath.Nodes = []string{"a", "c", "d"}
	o.Cluster.Spec.Replicas = new(int32(3))
	o.Etcd.Members = o.Etcd.Members[:2]
	delete(o.Children.Pods, "demo-2")
	d := Decide(o)
	assert.NotNil(t, d.Step, "the node of who is gone is free")
	assert.NoError(t, verify(o, d))
}

func TestSpecsOnNodesThatCantBeRun(t *testing.T) {
	for want, change := range map[string]func(*v1alpha1.StorageSpec){
		"needs spec.storage.hostPath":  func(s *v1alpha1.StorageSpec) { s.HostPath = nil },
		"is not an absolute path":      func(s *v1alpha1.StorageSpec) { s.HostPath.Path = "/data/../etc" },
		"has 2 nodes for 3 members":    func(s *v1alpha1.StorageSpec) { s.HostPath.Nodes = s.HostPath.Nodes[:2] },
		"or is listed twice":           func(s *v1alpha1.StorageSpec) { s.HostPath.Nodes[1] = "a" },
		"can't be used":                func(s *v1alpha1.StorageSpec) { s.WAL = &v1alpha1.WALSpec{} },
		"only for the medium HostPath": func(s *v1alpha1.StorageSpec) { s.Medium = v1alpha1.Persistent },
	} {
		o := serveOn("a", "b", "c")
		assert.NoError(t, spec.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec.Storage)
		assert.ErrorContains(t, spec.Validate(&o.Cluster.Spec, o.Settings), want)
	}
}

func TestVerifyWatchesTheNodes(t *testing.T) {
	for want, spoil := range map[string]func(o *observation.Observation, pod *corev1.Pod){
		"the member's data on": func(_ *observation.Observation,
			pod *corev1.Pod) {
			pod.Spec.Affinity = children.Pinned(nil, "c")
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
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationStartsOn] = "none"
			pod.Annotations[objects.AnnotationStart] = objects.StartBootstrap
		},
		"says that it may begin": func(_ *observation.Observation,
			pod *corev1.Pod) {
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

func TestOtherMediaKnowNothingOfNodes(t *testing.T) {
	o := serve(3)
	o.Children.Services["demo-peers"].Annotations[objects.AnnotationNodes] = string(o.Cluster.UID) + "/demo-7:a"
	v := newView(o)
	assert.NotContains(t, v.Names, "demo-7")
	assert.False(t, volumes.Crowded(v))
	assert.Empty(t, volumes.NoteNodes(v))
}
