package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// Kubelets lets the scheduler and every node do what there is to do, pod by pod.
func (w *World) Kubelets() {
	for _, pod := range w.Pods() {
		w.kubelet(pod)
	}
}

// Kubelet lets one member's pod be scheduled, and its node do what there is to do.
func (w *World) Kubelet(name string) {
	if pod := w.Pod(name); pod != nil {
		w.kubelet(pod)
	}
}

func (w *World) kubelet(pod *corev1.Pod) {
	switch {
	case pod.Spec.NodeName != "" && (w.Lost[pod.Name] || w.Lost[pod.Spec.NodeName]):
	case pod.DeletionTimestamp != nil:
		w.drop(Key{PodKind, pod.Name})
	case pod.Status.Phase == corev1.PodFailed, pod.Status.Phase == corev1.PodSucceeded:
	case w.scheduled(pod) && !w.inspection(w.Pod(pod.Name)):
		w.setStatus(pod.Name, w.run(w.Pod(pod.Name)))
	}
}

// scheduled binds the pod to a node, when nothing holds it back: no gate, and a claim that is there to stay. Nodes
// are named after the member that they run, except those that pods name themselves.
func (w *World) scheduled(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" {
		return true
	}
	held := func(claim string) bool { return w.Claim(claim) == nil || w.Claim(claim).DeletionTimestamp != nil }
	if slices.ContainsFunc(claimsOf(pod), held) || len(pod.Spec.SchedulingGates) > 0 || w.Lost[pod.Name] {
		return false
	}
	if why := w.unplaced(pod); why != "" {
		w.editPod(pod.Name, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable, Message: why}}
		})
		return false
	}
	for _, claim := range claimsOf(pod) {
		w.bind(claim)
	}
	ip := w.freeIP()
	w.editPod(pod.Name, func(p *corev1.Pod) {
		p.Spec.NodeName, p.Status.PodIP, p.Status.Conditions = cmp.Or(pinnedTo(pod), "node-of-"+pod.Name), ip, nil
		w.copyZone(p)
	})
	return true
}

// unplaced is why no node takes the pod, in the scheduler's words; empty when one does.
func (w *World) unplaced(pod *corev1.Pod) string {
	const noUse = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
	switch {
	case w.Full[pod.Name], w.Unplaced[pod.Spec.PriorityClassName]:
		return "0/3 nodes are available: 3 Insufficient memory." + noUse
	case w.Lost[pinnedTo(pod)]:
		return "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node " +
			"affinity/selector." + noUse
	case slices.ContainsFunc(claimsOf(pod), func(claim string) bool {
		return w.NoStorage[ClassOf(w.Claim(claim))] && w.Claim(claim).Status.Phase == corev1.ClaimPending
	}):
		return "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims." + noUse
	}
	return ""
}

// freeIP is the lowest address that no pod has: addresses are reused soon.
func (w *World) freeIP() string {
	for n := 1; ; n++ {
		if ip := fmt.Sprintf("10.0.0.%d", n); w.podAt(ip) == "" {
			return ip
		}
	}
}

// standing is how far a pod's containers have come, and why in the words of what is in the way.
type standing struct {
	kubelet.Stage
	why string
}

// run brings the pod's containers as far as they come: its files, prepare, the image, etcd.
func (w *World) run(pod *corev1.Pod) standing {
	place, image := w.placeOf(pod), pod.Spec.Containers[0].Image
	if proc, runs := w.Procs[pod.UID]; runs && proc.Image != image {
		w.stop(pod.UID) // another image: the container is replaced
	} else if runs {
		_ = w.mount(pod) // a running pod waits for nothing
		return standing{Stage: kubelet.Running}
	}
	if lacks := w.mount(pod); lacks != "" {
		return standing{kubelet.Unmounted, "the Secret " + lacks}
	}
	if over := w.overIn(pod); over != "" && !w.Prepared[pod.UID] {
		return standing{kubelet.Unmounted, "the ConfigMap " + over}
	}
	if image := w.unpulledSeed(pod, place); image != "" {
		return standing{kubelet.SeedUnpulled, unresolved(image)}
	}
	if why := w.seed(pod, place); why != "" {
		return standing{kubelet.Unseeded, why}
	}
	if waitsAtGate(pod) {
		return standing{Stage: kubelet.AtGate}
	}
	if !w.prepare(pod, place) {
		return standing{Stage: kubelet.Refused}
	}
	if w.unpulled(image) {
		return standing{kubelet.Unpulled, unresolved(image)}
	}
	if w.diskFull(pod) {
		return standing{kubelet.Crashing, objects.DiskFullWords}
	}
	if w.Crashing[pod.Name] {
		return standing{kubelet.Crashing, "its data can't be read"}
	}
	if complaint := w.startEtcd(pod, place); complaint != "" {
		return standing{kubelet.Crashing, complaint}
	}
	return standing{Stage: kubelet.Running}
}

// unpulled reports whether an image can't be pulled: it, or anything of its repository.
func (w *World) unpulled(image string) bool {
	return w.BadImages[image] || w.BadImages[image[:strings.LastIndex(image, ":")]]
}

func unresolved(image string) string {
	return fmt.Sprintf("failed to resolve image: %s: not found", image)
}

// prepare is Quorate's init container: it lets no etcd start on an empty directory that must hold data (rule S10).
// One that holds its own mark still is of a member that never began.
func (w *World) prepare(pod *corev1.Pod, place string) bool {
	if w.Prepared[pod.UID] {
		return true
	}
	empty, log := w.dirOf(pod, place).Member == 0, place
	if wal, apart := w.walOf(pod); apart {
		log = wal
	}
	container := initOf(pod, objects.ContainerPrepare)
	told := slices.ContainsFunc(container.Env, func(e corev1.EnvVar) bool { return e.Name == facts.EnvBegins })
	begun := told && !objects.MayBegin(pod)
	resumes := begun || flag(container, "start") == objects.StartResume
	unbegun := w.Dirs[log].Member == 0 && w.Dirs[log].Unbegun == pod.UID
	if empty && (resumes || w.Markers[pod.UID] && !unbegun) {
		return false
	}
	if w.Dirs[log].Member == 0 {
		w.storeDir(log, Dir{Unbegun: pod.UID})
	}
	w.Markers[pod.UID], w.Prepared[pod.UID] = true, true
	return true
}

func (w *World) placeOf(pod *corev1.Pod) string {
	if claims := claimsOf(pod); len(claims) > 0 {
		return volumeOf(w.Claim(claims[0]).UID)
	}
	if dir, on := directoryOf(pod); on {
		return dir
	}
	return memoryOf(pod.UID)
}

// setStatus reports the state of the pod's containers.
func (w *World) setStatus(name string, s standing) {
	w.editPod(name, func(p *corev1.Pod) {
		was := kubelet.Container(p.Status.ContainerStatuses, objects.ContainerEtcd)
		was.ContainerID = w.container(p, s.Stage, was)
		prepare, etcd := s.Report(s.why, was)
		if t := etcd.LastTerminationState.Terminated; t != nil && s.Stage == kubelet.Crashing && tellsLog(p) {
			t.Message = s.why
		}
		if s.Stage == kubelet.Running {
			etcd.State.Running.StartedAt = metav1.NewTime(w.Procs[p.UID].Since)
		}
		if ended := prepare.State.Terminated; ended != nil && w.dirOf(p, w.placeOf(p)).Member == 0 {
			ended.Message = objects.NothingFound
		}
		p.Status.Phase = kubelet.Phase(etcd)
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{prepare}
		if seed := w.seedStatus(p, s); seed != nil {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, *seed)
		}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{etcd}
		w.meshTells(p)
	})
}

// tellsLog reports whether the end of etcd's log is told when it ends with an error.
func tellsLog(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == objects.ContainerEtcd &&
			c.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError
	})
}

// container is the ID of the container of etcd that runs in the pod, or ran last: another one for each start. One that
// ends at once is told of when that begins.
func (w *World) container(p *corev1.Pod, stage kubelet.Stage, was corev1.ContainerStatus) string {
	crashed := was.State.Waiting != nil && was.State.Waiting.Reason == kubelet.BacksOff
	switch {
	case stage == kubelet.Running:
		return w.Procs[p.UID].container()
	case stage == kubelet.Crashing && (!crashed || was.ContainerID == p.Annotations[objects.AnnotationExchanged]):
		w.Starts++
		return fmt.Sprintf("containerd://crashed-%d", w.Starts)
	}
	return was.ContainerID
}

// What a mesh puts into a pod when it is made: a container that runs once and one that runs as long as the pod
// does, both before Quorate's own; and one beside etcd, which has ended with an error before. None of them has
// anything to do with the member.
const (
	meshInit    = "mesh-init"
	meshProxy   = "mesh-proxy"
	meshSidecar = "mesh-sidecar"
)

func (w *World) inject(pod *corev1.Pod) {
	if !w.Mesh {
		return
	}
	before := []corev1.Container{
		{Name: meshInit, Image: "mesh"},
		{Name: meshProxy, Image: "mesh", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
	}
	pod.Spec.InitContainers = append(before, pod.Spec.InitContainers...)
	pod.Spec.Containers = slices.Concat(pod.Spec.Containers, []corev1.Container{{Name: meshSidecar, Image: "mesh"}})
}

// meshTells puts what the kubelet tells of those containers before what it tells of Quorate's.
func (w *World) meshTells(pod *corev1.Pod) {
	last := pod.Spec.Containers[len(pod.Spec.Containers)-1]
	if last.Name != meshSidecar {
		return
	}
	init := slices.DeleteFunc(pod.Status.InitContainerStatuses, func(s corev1.ContainerStatus) bool {
		return s.Name == meshInit || s.Name == meshProxy
	})
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: pod.CreationTimestamp}}
	ended := &corev1.ContainerStateTerminated{ExitCode: 137, FinishedAt: pod.CreationTimestamp}
	pod.Status.InitContainerStatuses = append([]corev1.ContainerStatus{
		{Name: meshInit, State: kubelet.Ended(0, "")},
		{Name: meshProxy, State: runs, Started: new(true)},
	}, init...)
	beside := corev1.ContainerStatus{Name: meshSidecar, State: runs, RestartCount: 2, ContainerID: "containerd://mesh"}
	beside.LastTerminationState.Terminated = ended
	etcd := kubelet.Container(pod.Status.ContainerStatuses, objects.ContainerEtcd)
	if waits := etcd.State.Waiting; waits != nil && waits.Reason == kubelet.Initializing {
		beside = corev1.ContainerStatus{Name: meshSidecar, State: etcd.State}
	}
	pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{beside}, pod.Status.ContainerStatuses...)
}
