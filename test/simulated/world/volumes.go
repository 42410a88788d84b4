package world

import (
	"errors"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Volumes: what the API server lets become of claims, and how volumes grow. Each claim is bound when a node takes the
// first pod that names it, as with volumeBindingMode: WaitForFirstConsumer.

// errNotExpandable is the API server's, for claims whose class forbids it.
var errNotExpandable = errors.New("forbidden: the storageclass that provisions the pvc must support resize")

// bind gives a claim its volume, unless it has one.
func (w *World) bind(claim string) {
	w.editClaim(claim, func(c *corev1.PersistentVolumeClaim) {
		if c.Status.Phase == corev1.ClaimPending {
			c.Status.Phase = corev1.ClaimBound
			c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *c.Spec.Resources.Requests.Storage()}
		}
	})
}

// admitClaim lets a claim grow that is bound, where its class does, and nothing else.
func (w *World) admitClaim(old, now *corev1.PersistentVolumeClaim) error {
	bare := func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec {
		s := c.Spec.DeepCopy()
		s.Resources = corev1.VolumeResourceRequirements{}
		return s
	}
	grown := now.Spec.Resources.Requests.Storage().Cmp(*old.Spec.Resources.Requests.Storage())
	switch {
	case grown < 0 || grown > 0 && old.Status.Phase != corev1.ClaimBound || !reflect.DeepEqual(bare(old), bare(now)):
		return errImmutable
	case grown > 0 && w.FixedClasses[ClassOf(now)]:
		return errNotExpandable
	}
	return nil
}

// ClassOf is the claim's class; default when it names none.
func ClassOf(c *corev1.PersistentVolumeClaim) string {
	if c.Spec.StorageClassName == nil {
		return "default"
	}
	return *c.Spec.StorageClassName
}

// GrowVolumes lets every volume whose claim asks for more come a step further: first the volume, then the file system
// on it, for which the claim must be in use; on an offline one the pod must start after the volume has grown.
func (w *World) GrowVolumes() {
	for _, claim := range w.Claims() {
		has, asks := claim.Status.Capacity.Storage(), claim.Spec.Resources.Requests.Storage()
		if claim.Status.Phase == corev1.ClaimPending || has.Cmp(*asks) >= 0 {
			continue
		}
		w.editClaim(claim.Name, func(c *corev1.PersistentVolumeClaim) {
			grown := slices.ContainsFunc(c.Status.Conditions, func(s corev1.PersistentVolumeClaimCondition) bool {
				return s.Type == corev1.PersistentVolumeClaimFileSystemResizePending
			})
			switch {
			case w.BrokenVolumes[c.Name]:
				w.conditioned(c, corev1.PersistentVolumeClaimControllerResizeError, "the pool is full")
			case !grown:
				w.conditioned(c, corev1.PersistentVolumeClaimFileSystemResizePending, "")
			case w.mountedSince(c):
				c.Status.Capacity, c.Status.Conditions = corev1.ResourceList{corev1.ResourceStorage: asks.DeepCopy()},
					nil
			}
		})
	}
}

// mountedSince reports whether the volume is in use, in a way that lets its file system grow: mounted for a pod,
// whether its etcd runs or ends again and again.
func (w *World) mountedSince(c *corev1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(w.Pods(), func(p *corev1.Pod) bool {
		late := p.CreationTimestamp.After(c.Status.Conditions[0].LastTransitionTime.Time)
		return w.Prepared[p.UID] && slices.Contains(claimsOf(p), c.Name) && (late || !w.OfflineVolumes)
	})
}

func (w *World) conditioned(c *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType,
	message string) {
	if len(c.Status.Conditions) == 1 && c.Status.Conditions[0].Type == kind {
		return
	}
	c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: kind, Status: corev1.ConditionTrue,
		Message: message, LastTransitionTime: metav1.NewTime(w.Now)}}
}

// GrowClaim is a person who makes a claim larger by hand.
func (w *World) GrowClaim(name string, size resource.Quantity) {
	w.editClaim(name, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
	})
}

func (w *World) editClaim(name string, change func(*corev1.PersistentVolumeClaim)) {
	claim := w.Claim(name).DeepCopy()
	change(claim)
	if !reflect.DeepEqual(claim, w.Claim(name)) {
		w.put(ClaimKind, claim)
	}
}

// walSuffix ends the names of the claims for write-ahead logs.
const walSuffix = "-wal"

// walOf is the place of the pod's write-ahead log, where it has one of its own.
func (w *World) walOf(pod *corev1.Pod) (string, bool) {
	for _, name := range claimsOf(pod)[:min(2, len(claimsOf(pod)))] { // the others are those of survivors
		if claim := w.Claim(name); strings.HasSuffix(name, walSuffix) && claim != nil {
			return volumeOf(claim.UID), true
		}
	}
	return "", false
}

// dirOf is the data that the pod's etcd would resume from. Half of it is nothing: etcd begins empty without its log,
// and Quorate lets it start on neither half alone.
func (w *World) dirOf(pod *corev1.Pod, place string) Dir {
	if wal, apart := w.walOf(pod); apart && w.Dirs[wal].Member == 0 || w.Dirs[place].Apart != apart {
		return Dir{}
	}
	return w.Dirs[place]
}

// storeBegun keeps what an etcd begins with, on both of its volumes.
func (w *World) storeBegun(pod *corev1.Pod, place string, d Dir) {
	if wal, apart := w.walOf(pod); apart {
		d.Apart = true
		w.storeDir(wal, d)
	}
	w.storeDir(place, d)
}

// claimsOf are the claims that the pod names.
func claimsOf(pod *corev1.Pod) []string {
	var list []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			list = append(list, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return list
}

// Nodes that pods name themselves, and the directories on them: these outlive pods, claims and EtcdClusters.

// pinnedTo is the node that the pod asks for by name; empty for none.
func pinnedTo(pod *corev1.Pod) string {
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// directoryOf is the place of the pod's data, when that is a directory on its node.
func directoryOf(pod *corev1.Pod) (string, bool) {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil })
	if i < 0 {
		return "", false
	}
	return pinnedTo(pod) + ":" + pod.Spec.Volumes[i].HostPath.Path, true
}

// Reimage sets the node under a pod up again, under its old name: its disk is empty, what prepare kept on it too, and
// the kubelet starts the same pod once more.
func (w *World) Reimage(name string) {
	pod := w.Pod(name)
	w.WipeData(name)
	delete(w.Markers, pod.UID)
}
