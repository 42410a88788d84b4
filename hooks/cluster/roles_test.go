package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/state"
)

// cameBack is a cluster of three that serves without Quorate, and the pod of demo-1 has come back.
func cameBack(o observation.Observation) observation.Observation {
	o.Etcd, o.Health = nil, map[string]observation.Health{}
	pod := children.Pod(newView(o), "demo-1", objects.StartResume, state.ResumeEnv())
	pod.UID, pod.Status = "uid-new", o.Children.Pods["demo-1"].Status
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	o.Children.Pods["demo-1"] = pod
	return o
}

// mounts adds a claim to those that the pod names.
func mounts(pod *corev1.Pod, claim string) {
	volume := corev1.Volume{Name: claim}
	volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
}

// TestRoleWhileBlind: what stands for the answer that can't be had.
func TestRoleWhileBlind(t *testing.T) {
	record := func(o *observation.Observation) map[string]string {
		return o.Children.ConfigMaps["demo-epoch-1"].Annotations
	}
	for _, c := range []struct {
		name  string
		given func(o *observation.Observation)
		role  string
	}{
		{"it is ready, on its claim", func(*observation.Observation) {}, pods.RoleVoter},
		{"it is not ready", func(o *observation.Observation) {
			o.Children.Pods["demo-1"].Status.Conditions[0].Status = corev1.ConditionFalse
		}, ""},
		{"nothing is known of that", func(o *observation.Observation) {
			o.Children.Pods["demo-1"].Status.Conditions = nil
		}, ""},
		{"on another claim", func(o *observation.Observation) { o.Children.Claims["demo-1"].UID = "another" }, ""},
		{"its claim goes", func(o *observation.Observation) {
			o.Children.Claims["demo-1"].DeletionTimestamp = &o.Cluster.CreationTimestamp
		}, ""},
		{"its claim is gone", func(o *observation.Observation) { delete(o.Children.Claims, "demo-1") }, ""},
		{"filled from a claim that goes with its epoch", func(o *observation.Observation) {
			mounts(o.Children.Pods["demo-1"], "demo-5")
		}, pods.RoleVoter},
		{"with a log that the record does not name", func(o *observation.Observation) {
			mounts(o.Children.Pods["demo-1"], "demo-1-wal")
		}, ""},
		{"the record was deleted", func(o *observation.Observation) {
			record(o)[objects.AnnotationStartsOn] = state.StartsOnNothing
		},
			""},
		{"another etcd has answered there",
			func(o *observation.Observation) { record(o)[objects.AnnotationMismatched] = "demo-0,demo-1" }, ""},
		{"and it was shown to vote", func(o *observation.Observation) {
			record(o)[objects.AnnotationMismatched] = "demo-1"
			o.Children.Pods["demo-1"].Labels[objects.LabelRole] = pods.RoleVoter
		}, pods.RoleFenced},
		{"another cluster answers there",
			func(o *observation.Observation) {
				o.Health["demo-1"] = observation.Health{ClusterID: 0xbad, MemberID: 2}
			}, pods.RoleFenced},
		{"another member answers there", func(o *observation.Observation) {
			o.Health["demo-1"] = observation.Health{Err: "another etcd answers", ClusterID: 0xc1, MemberID: 9}
		}, pods.RoleFenced},
		{"it answers without a quorum",
			func(o *observation.Observation) {
				o.Health["demo-1"] = observation.Health{ClusterID: 0xc1, MemberID: 2}
			}, pods.RoleVoter},
		{"it was a learner, and is ready",
			func(o *observation.Observation) {
				o.Children.Pods["demo-1"].Labels[objects.LabelRole] = pods.RoleLearner
			}, pods.RoleVoter},
		{"it is fenced", func(o *observation.Observation) {
			o.Children.Pods["demo-1"].Labels[objects.LabelRole] = pods.RoleFenced
		},
			pods.RoleFenced},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := cameBack(serve(3))
			c.given(&o)
			d := Decide(o)
			require.NoError(t, verify(o, d))
			assert.Equal(t, c.role, podIn(d, "demo-1").Labels[objects.LabelRole])
			if c.role == pods.RoleVoter {
				return
			}
			podIn(d, "demo-1").Labels[objects.LabelRole] = pods.RoleVoter
			assert.ErrorContains(t, verify(o, d), "S8: clients are led to demo-1", "the oracle sees it")
		})
	}
}

func TestRoleWhileBlindOnANode(t *testing.T) {
	o := cameBack(serveOn("a", "b", "c"))
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, pods.RoleVoter, podIn(d, "demo-1").Labels[objects.LabelRole])

	o.Children.Pods["demo-1"].Spec.Affinity = children.Pinned(nil, "c")
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Empty(t, podIn(d, "demo-1").Labels[objects.LabelRole])
}

// TestWhoIsRecordedAsMismatched: a member that answered as another stays on the record until it answers as itself.
func TestWhoIsRecordedAsMismatched(t *testing.T) {
	recorded := func(d decision.Decision) string {
		return d.Children.ConfigMaps[0].Annotations[objects.AnnotationMismatched]
	}
	o := serve(3)
	o.Health["demo-1"] = observation.Health{Err: "another etcd answers", ClusterID: 0xbad, MemberID: 2}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "demo-1", recorded(d))

	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationMismatched] = "demo-1"
	o.Health["demo-1"] = observation.Health{Err: "no answer"}
	o.Children.Pods["demo-1"].UID = types.UID("another pod, without the label")
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "demo-1", recorded(d))
	delete(d.Children.ConfigMaps[0].Annotations, objects.AnnotationMismatched)
	assert.ErrorContains(t, verify(o, d), "the record forgets")

	blind := o
	blind.Etcd, blind.Health = nil, map[string]observation.Health{"demo-2": {ClusterID: 0xbad, MemberID: 9}}
	d = Decide(blind)
	require.NoError(t, verify(blind, d))
	assert.Equal(t, "demo-1,demo-2", recorded(d))

	o.Health["demo-1"] = serve(3).Health["demo-1"]
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Empty(t, recorded(d))
}

// TestClientsAreLedAwayFirst: a voter that is chosen to be restarted or removed gets no new clients, as long as another
// one has them, and gets them back when the choice is withdrawn.
func TestClientsAreLedAwayFirst(t *testing.T) {
	rolling := func() observation.Observation {
		o := serve(3)
		for _, pod := range o.Children.Pods {
			pod.Labels[objects.LabelRole] = pods.RoleVoter
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		o.Cluster.Spec.PriorityClassName = "high"
		return o
	}
	role := func(o observation.Observation, pod string) string {
		d := Decide(o)
		require.NoError(t, verify(o, d))
		if podIn(d, pod) == nil {
			return "restarted"
		}
		return podIn(d, pod).Labels[objects.LabelRole]
	}
	chosen := func(o observation.Observation) map[string]string {
		return o.Children.ConfigMaps["demo-epoch-1"].Annotations
	}

	o := rolling()
	assert.Equal(t, pods.RoleLeaving, role(o, "demo-1"), "in the answer that chooses it")
	assert.Equal(t, pods.RoleVoter, role(o, "demo-2"))

	chosen(o)[objects.AnnotationChosen] = "demo-1 uid-pod-1"
	o.Children.Pods["demo-1"].Labels[objects.LabelRole] = pods.RoleLeaving
	assert.Equal(t, "restarted", role(o, "demo-1"))

	o.Cluster.Spec.PriorityClassName = ""
	assert.Equal(t, pods.RoleVoter, role(o, "demo-1"), "withdrawn")

	o = rolling()
	for _, other := range []string{"demo-0", "demo-2"} {
		delete(o.Children.Pods[other].Labels, objects.LabelRole)
		o.Children.Pods[other].Status.Conditions = nil
	}
	d := Decide(o)
	assert.Equal(t, pods.RoleVoter, podIn(d, "demo-1").Labels[objects.LabelRole], "no one else has clients")
	podIn(d, "demo-1").Labels[objects.LabelRole] = pods.RoleLeaving
	assert.ErrorContains(t, verify(o, d), "S2: clients are led away from demo-1", "the oracle sees it")

	o = rolling()
	o.Cluster.Spec.PriorityClassName, o.Cluster.Spec.Replicas = "", new(int32(2))
	assert.Equal(t, pods.RoleLeaving, role(o, "demo-2"), "one that is removed")
	exchanged := rolling()
	exchanged.Children.Pods["demo-1"].Annotations[objects.AnnotationExchanged] = "containerd://7"
	exchanged.Children.Pods["demo-1"].Status.ContainerStatuses[0].ContainerID = "containerd://7"
	assert.Equal(t, pods.RoleLeaving, role(exchanged, "demo-1"), "its old container runs still")
}
