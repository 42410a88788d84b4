package world

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Artifact is a snapshot in a store.
type Artifact struct {
	// Index is how many entries it holds.
	Index uint64
	// Flaw is why it can't be restored, as `quorate-snapshot restore` reports it: "Damaged: the hash differs"; empty when it can.
	Flaw string
}

// TakeSnapshot stores what clients have written so far, as an artifact with this URL, and an EtcdSnapshot that tells of it. flaw is why it can't
// be restored; empty when it can.
func (w *World) TakeSnapshot(name, url, flaw string) {
	index := uint64(0)
	for _, c := range w.Etcd.Clusters {
		if w.leads(c) {
			index = c.Commit
		}
	}
	w.Artifacts = maps.Clone(w.Artifacts)
	if w.Artifacts == nil {
		w.Artifacts = map[string]Artifact{}
	}
	w.Artifacts[url] = Artifact{index, flaw}
	cluster := w.Cluster().Name
	s := &v1alpha1.EtcdSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{hooks.LabelCluster: cluster}}}
	s.Spec = v1alpha1.EtcdSnapshotSpec{Cluster: cluster, Store: v1alpha1.Store{URL: "s3://bucket"}}
	s.Status = v1alpha1.EtcdSnapshotStatus{Phase: v1alpha1.SnapshotSucceeded, URI: url, Completed: metav1.NewTime(w.Now), VerifiedAt: metav1.NewTime(w.Now)}
	_ = w.create(SnapshotKind, s)
}

// epochOf is the number of the epoch in a cluster's token.
func epochOf(token string) int {
	n, err := strconv.Atoi(token[strings.LastIndex(token, "-")+1:])
	if err != nil {
		return 0
	}
	return n
}

func initOf(pod *corev1.Pod, name string) *corev1.Container {
	i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &pod.Spec.InitContainers[i]
}

// flag is the value of an argument of the container; empty without it.
func flag(c *corev1.Container, name string) string {
	for _, arg := range c.Args {
		if value, is := strings.CutPrefix(arg, "--"+name+"="); is {
			return value
		}
	}
	return ""
}

// overIn reports whether the pod names the record of an epoch that is not there: the kubelet does not start its containers.
func (w *World) overIn(pod *corev1.Pod) string {
	for _, c := range pod.Spec.InitContainers {
		for _, e := range c.Env {
			if e.ValueFrom == nil || e.ValueFrom.ConfigMapKeyRef == nil {
				continue
			}
			if name := e.ValueFrom.ConfigMapKeyRef.Name; w.Objects[Key{ConfigMapKind, name}] == nil {
				return name
			}
		}
	}
	return ""
}

// seed is the init container that fills a data directory: it reports why it could not; empty for success.
func (w *World) seed(pod *corev1.Pod, place string) string {
	seed := initOf(pod, hooks.ContainerSeed)
	if seed == nil || w.Markers[pod.UID] || w.dirOf(pod, place).Member != 0 {
		return ""
	}
	var index uint64
	if url := flag(seed, "url"); url != "" {
		artifact, there := w.Artifacts[url]
		switch {
		case !there:
			return report("NotFound", "there is no artifact "+url)
		case artifact.Flaw != "":
			reason, words, _ := strings.Cut(artifact.Flaw, ": ")
			return report(reason, cmp.Or(words, "it can't be restored"))
		}
		index = artifact.Index
	} else if from := flag(seed, "from-member"); from != "" {
		d := w.runningAt(from)
		if d.Member == 0 {
			return report("Unreachable", "nobody answers at "+from)
		}
		index = d.Index
	} else {
		d := w.survivor(pod)
		if d.Member == 0 {
			return report("Damaged", "the survivor's directory holds no data")
		}
		index = d.Index
	}
	env, err := w.envOf(seed.Env, pod)
	if err != nil {
		return report("Failed", err.Error())
	}
	initial, token := pairs(env["ETCD_INITIAL_CLUSTER"]), env["ETCD_INITIAL_CLUSTER_TOKEN"]
	c, self := w.formed(initial, initial[pod.Name], token)
	c.Commit = index
	if _, exists := w.Etcd.Clusters[c.ID]; !exists {
		w.store(c)
	}
	d := Dir{Cluster: c.ID, Member: self, Index: index}
	if _, ran := w.Oracle.identities[self]; ran { // who has not may be filled again
		if err := w.Oracle.takeIdentity(w, d, place); err != nil {
			return report("Failed", err.Error())
		}
	}
	w.storeBegun(pod, place, d)
	return ""
}

func report(reason, words string) string {
	raw, err := json.Marshal(hooks.RestoreReport{Reason: reason, Error: words})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// survivor is the directory on the volume that a pod copies from.
func (w *World) survivor(pod *corev1.Pod) Dir {
	for _, v := range pod.Spec.Volumes {
		if v.Name == "survivor" && v.PersistentVolumeClaim != nil {
			if claim := w.Claim(v.PersistentVolumeClaim.ClaimName); claim != nil {
				return w.Dirs[volumeOf(claim.UID)]
			}
		}
	}
	return Dir{}
}

// runningAt is the directory of the member that runs behind this client URL.
func (w *World) runningAt(url string) Dir {
	name, _, _ := strings.Cut(strings.SplitN(url, "//", 2)[1], ".")
	for _, p := range w.Procs {
		if p.Pod == name {
			return w.Dirs[p.Dir]
		}
	}
	return Dir{}
}

// survey runs a pod that looks at a member's volume; false for another pod.
func (w *World) survey(pod *corev1.Pod) bool {
	if pod.Spec.Containers[0].Name != hooks.ContainerSurvey {
		return false
	}
	if c := pod.Spec.Containers[0]; !slices.Equal(c.Command, []string{"/quorate-snapshot"}) || c.Args[0] != "survey" {
		panic(fmt.Sprintf("pod %s runs %q %q, which no program of the image understands", pod.Name, c.Command, c.Args))
	}
	d := w.survivor(pod)
	told := hooks.SurveyReport{LastTerm: 1, LastIndex: d.Index}
	if d.Member == 0 {
		told = hooks.SurveyReport{Error: "there is no write-ahead log"}
	}
	raw, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	w.editPod(pod.Name, func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: hooks.ContainerSurvey,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(raw)}}}}
	})
	return true
}

// waitsAtGate reports whether the pod's member is made ready before its epoch begins.
func waitsAtGate(pod *corev1.Pod) bool {
	prepare := initOf(pod, hooks.ContainerPrepare)
	return prepare != nil && flag(prepare, "await") != "" && pod.Annotations[hooks.AnnotationBegins] == ""
}

// seedStatus is what the kubelet tells of the container that fills the data directory; nil for a pod without.
func seedStatus(pod *corev1.Pod, s state) *corev1.ContainerStatus {
	if initOf(pod, hooks.ContainerSeed) == nil || s.lacks != "" {
		return nil
	}
	c := corev1.ContainerStatus{Name: hooks.ContainerSeed}
	if s.unseeded != "" {
		c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: s.unseeded}
	} else {
		c.State.Terminated = &corev1.ContainerStateTerminated{}
	}
	return &c
}

// onlyOneServes finds two epochs that could both acknowledge writes (S8).
func (w *World) onlyOneServes() {
	serve := 0
	for _, c := range w.Etcd.Clusters {
		if w.quorate(c) {
			serve++
		}
	}
	if serve > 1 {
		w.violate("S8", "%d etcd clusters can acknowledge writes at once", serve)
	}
}

// stops reports whether the epoch that runs is being stopped for the next one.
func (w *World) stops() bool {
	for _, o := range w.Objects {
		if record, is := o.(*corev1.ConfigMap); is && record.Annotations[hooks.AnnotationPhase] == "stopping" {
			return true
		}
	}
	return false
}
