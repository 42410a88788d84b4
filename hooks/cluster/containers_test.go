package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/epochs"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/safety"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
)

var (
	meshRuns = corev1.ContainerState{Running: &corev1.ContainerStateRunning{
		StartedAt: metav1.NewTime(now.Add(-time.Hour))}}
	meshCrashed = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
		FinishedAt: metav1.NewTime(now)}}
	meshLoops = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
)

// meshed puts what a mesh does into a pod, and what the kubelet tells of that, before all that is ours: a
// container that runs on before prepare, and one beside etcd that has crashed.
func meshed(pod *corev1.Pod) {
	spec, status := &pod.Spec, &pod.Status
	proxy := corev1.Container{Name: "mesh-proxy", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}
	spec.InitContainers = append([]corev1.Container{proxy}, spec.InitContainers...)
	spec.Containers = append([]corev1.Container{{Name: "mesh-sidecar"}}, spec.Containers...)
	status.InitContainerStatuses = append([]corev1.ContainerStatus{
		{Name: "mesh-proxy", State: meshRuns, LastTerminationState: meshCrashed, RestartCount: 1},
	}, status.InitContainerStatuses...)
	status.ContainerStatuses = append([]corev1.ContainerStatus{
		{Name: "mesh-sidecar", State: meshRuns, LastTerminationState: meshCrashed, RestartCount: 3,
			ContainerID: "mesh"},
	}, status.ContainerStatuses...)
}

// TestContainersOfAMesh: what runs beside etcd and before it is not taken for it.
func TestContainersOfAMesh(t *testing.T) {
	etcd := func(s corev1.ContainerStatus) *corev1.Pod {
		s.Name = objects.ContainerEtcd
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{s}}}
	}
	pulls := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	for name, pod := range map[string]*corev1.Pod{
		"nothing is told": {},
		"it waits": etcd(corev1.ContainerStatus{State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}),
		"it can't pull": etcd(corev1.ContainerStatus{State: pulls}),
		"it runs":       etcd(corev1.ContainerStatus{State: meshRuns, ContainerID: "etcd"}),
		"it runs again": etcd(corev1.ContainerStatus{State: meshRuns, LastTerminationState: meshCrashed,
			RestartCount: 1}),
		"it crashes": etcd(corev1.ContainerStatus{State: meshLoops, LastTerminationState: meshCrashed,
			RestartCount: 4}),
		"it has ended": etcd(corev1.ContainerStatus{State: meshCrashed}),
		"prepare refuses": {Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: objects.ContainerPrepare, State: meshLoops,
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					ExitCode: objects.ExitDataLost}}}}}},
		"prepare is at work": {Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{
			{Name: objects.ContainerPrepare, State: meshRuns}}}},
	} {
		t.Run(name, func(t *testing.T) {
			tells := func(pod *corev1.Pod) []any {
				return []any{
					state.Running(pod), state.NeverRan(pod), state.Crashing(pod), state.HasStarted(pod),
					state.Prepares(pod), state.PrepareRefused(pod),
					state.ContainerOf(pod), versions.RunningSince(pod), state.Failures(pod),
					state.Unpulled(&state.Member{Pod: pod}),
				}
			}
			alone := tells(pod)
			mesh := pod.DeepCopy()
			meshed(mesh)
			assert.Equal(t, alone, tells(mesh))
		})
	}
	assert.False(t, state.Running(nil))
}

// TestDecisionsInAMesh: a cluster whose pods all have containers of others is decided about as one without.
func TestDecisionsInAMesh(t *testing.T) {
	for name, given := range map[string]func(o *observation.Observation){
		"it serves":       func(*observation.Observation) {},
		"one is silent":   func(o *observation.Observation) { silence(o, "demo-1") },
		"blind":           func(o *observation.Observation) { o.Etcd, o.Health = nil, nil },
		"a change":        func(o *observation.Observation) { o.Cluster.Spec.PriorityClassName = "high" },
		"another release": func(o *observation.Observation) { o.Cluster.Spec.Version = "3.6.17" },
		"a claim is gone": func(o *observation.Observation) {
			silence(o, "demo-1")
			delete(o.Children.Claims, "demo-1")
			o.Children.Pods["demo-1"].Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
				State: meshLoops}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, mesh := serve(3), serve(3)
			given(&o)
			given(&mesh)
			for _, pod := range mesh.Children.Pods {
				meshed(pod)
			}
			want, got := Decide(o), Decide(mesh)
			require.NoError(t, verify(mesh, got))
			assert.Equal(t, want.Reason, got.Reason)
			assert.Equal(t, want.Step, got.Step)
			assert.Equal(t, want.Status.Conditions, got.Status.Conditions)
			for _, pod := range got.Children.Pods {
				if old := mesh.Children.Pods[pod.Name]; old != nil {
					assert.Len(t, pod.Spec.Containers, len(old.Spec.Containers), "what others have put there stays")
					assert.Equal(t, safety.EtcdImage(podIn(want, pod.Name)), safety.EtcdImage(pod))
				}
			}
		})
	}
}

// TestWhatHoldsEtcdUp: a container of others that keeps etcd from starting is said, by its name.
func TestWhatHoldsEtcdUp(t *testing.T) {
	waiting := func(why string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: why}}
	}
	v, waits := newView(serve(3)), corev1.ContainerStatus{Name: objects.ContainerEtcd,
		State: waiting("PodInitializing")}
	for says, before := range map[string]corev1.ContainerStatus{
		"the injected container mesh-init, which comes before etcd, crashes: exit 137": {
			Name: "mesh-init", State: meshLoops, LastTerminationState: meshCrashed,
		},
		"the injected container mesh-init's image can't be pulled": {Name: "mesh-init", State: waiting("ErrImagePull")},
		"": {Name: "mesh-proxy", State: meshRuns, LastTerminationState: meshCrashed},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{before},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "mesh-sidecar", State: meshRuns}, waits},
		}}
		assert.Equal(t, says, pods.WhyNotServing(v, &state.Member{Pod: pod}))
	}
}

// TestSurveysInAMesh: what a survey's container has told is found beside a container of others.
func TestSurveysInAMesh(t *testing.T) {
	survey := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{
		{Name: objects.ContainerSurvey, State: meshCrashed}}}}
	meshed(survey)
	assert.Equal(t, meshCrashed.Terminated, epochs.SurveyEnd(survey))
	assert.Empty(t, objects.Purpose(&corev1.PodSpec{Containers: []corev1.Container{{Name: "mesh-sidecar"}}}))
}
