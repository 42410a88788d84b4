package world

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/simulated/kubelet"
)

// noStatus is what the API server shows for a status that was never written.
var noStatus = v1beta1.EtcdClusterStatus{ObservedGeneration: -1}

// CreateCluster makes the one cluster of this world.
func (w *World) CreateCluster(name string, spec v1beta1.EtcdClusterSpec) {
	_ = w.create(ClusterKind, &v1beta1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec: spec, Status: noStatus})
	w.Oracle.newCluster()
}

// EditSpec is what kubectl edit does.
func (w *World) EditSpec(change func(*v1beta1.EtcdClusterSpec)) {
	w.editCluster(func(c *v1beta1.EtcdCluster) {
		change(&c.Spec)
		c.Generation++
	})
}

// Probe lets every kubelet ask its pod's etcd whether it is ready: one that votes and follows a leader is.
func (w *World) Probe() {
	for _, pod := range w.Pods() {
		d := w.Dirs[w.Procs[pod.UID].Dir]
		c := w.Etcd.Clusters[d.Cluster]
		m, _ := c.member(d.Member)
		_, runs := w.Procs[pod.UID]
		ready := runs && m.ID != 0 && !m.Learner && w.follows(c, m) && !w.late(c).Has(c.number(m.ID))
		w.editPod(pod.Name, func(p *corev1.Pod) {
			p.Status.Conditions = kubelet.Ready(p.Status.Conditions, ready, metav1.Time{})
		})
	}
}

// ProbesFail lets every kubelet say that its pod is not ready, as where a policy keeps it from asking.
func (w *World) ProbesFail() {
	for _, pod := range w.Pods() {
		w.editPod(pod.Name, func(p *corev1.Pod) {
			p.Status.Conditions = kubelet.Ready(p.Status.Conditions, false, metav1.NewTime(w.Now))
		})
	}
}

// LabelSecret puts the label by which Quorate finds a Secret on it, or takes it off.
func (w *World) LabelSecret(name, cluster string) {
	s := *w.Secret(name)
	if s.Labels = map[string]string{objects.LabelCluster: cluster}; cluster == "" {
		s.Labels = nil
	}
	w.put(SecretKind, &s)
}

// DeleteCluster is what kubectl delete does, with --cascade=orphan when asked.
func (w *World) DeleteCluster(orphan bool) {
	if orphan {
		w.Oracle.orphaned = true
		w.editCluster(func(c *v1beta1.EtcdCluster) {
			c.Finalizers = append(c.Finalizers,
				metav1.FinalizerOrphanDependents)
		})
	}
	_ = w.remove(ClusterKind, w.Cluster().Name, "")
}

// WipeStatus loses all of the status.
func (w *World) WipeStatus() {
	w.editCluster(func(c *v1beta1.EtcdCluster) { c.Status = noStatus })
}

// Delete is kubectl delete: a pod stops within its grace period, a claim in use stays until its pod is gone.
func (w *World) Delete(kind Kind, name string) error {
	err := w.remove(kind, name, "")
	if c := w.Cluster(); c != nil && kind == SecretKind {
		ca := defaults.CASecret(c.Name)
		w.Oracle.unrooted = w.Oracle.unrooted || name == ca
		w.Oracle.uprooted = w.Oracle.uprooted || w.Oracle.unrooted &&
			(name != ca || w.Secret(c.Name+"-peer-tls") == nil)
	}
	return err
}

// KillPod takes the pod away at once, as a forced deletion does.
func (w *World) KillPod(name string) {
	if w.Pod(name) != nil {
		w.drop(Key{PodKind, name})
	}
}

// LoseClaim takes a claim away with its data and its pod.
func (w *World) LoseClaim(name string) {
	w.KillPod(strings.TrimSuffix(name, walSuffix))
	if w.Claim(name) != nil {
		w.drop(Key{ClaimKind, name})
	}
}

// WipeData empties a member's volume under the claim that stays, or its directory on its node, as a disk that was
// replaced; its etcd dies of it.
func (w *World) WipeData(claim string) {
	if pod := w.Pod(strings.TrimSuffix(claim, walSuffix)); pod != nil {
		w.stop(pod.UID)
		delete(w.Prepared, pod.UID)
	}
	if c := w.Claim(claim); c != nil {
		delete(w.Dirs, volumeOf(c.UID))
	} else {
		delete(w.Dirs, w.placeOf(w.Pod(claim)))
	}
	w.Changes++
}

// ExchangeVolume puts the volume of another etcd under a claim, with a longer log; the member's pod is killed.
func (w *World) ExchangeVolume(claim string) {
	w.KillPod(strings.TrimSuffix(claim, walSuffix))
	w.storeDir(volumeOf(w.Claim(claim).UID), Dir{Cluster: strangeID, Member: strangeID, Index: 1 << 20})
}

// MarkFailed is a person who puts the annotation on a claim that keeps it from seeding an epoch, or takes it off.
func (w *World) MarkFailed(claim string, put bool) {
	w.editClaim(claim, func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = clone(c.Annotations)
		if delete(c.Annotations, objects.AnnotationFailedMember); put {
			c.Annotations[objects.AnnotationFailedMember] = "true"
		}
	})
}

// EmptyData empties a member's data directory under it, on a volume or in memory; its etcd dies of it, and the
// kubelet starts it again in the same pod, without preparing that again.
func (w *World) EmptyData(name string) {
	pod := w.Pod(name)
	w.stop(pod.UID)
	delete(w.Dirs, w.placeOf(pod))
	w.Changes++
}

// Stillbirth ends a member's etcd for the first time before its first entries are in its log.
func (w *World) Stillbirth(name string) {
	place := w.placeOf(w.Pod(name))
	d := w.Dirs[place]
	d.Blank = true
	w.storeDir(place, d)
	w.Restart(name)
}

// Restart kills the member's etcd; the kubelet starts it again in the same pod.
func (w *World) Restart(name string) { w.stop(w.Pod(name).UID) }

// Crash makes the member's etcd end, and end again whenever it is started, as one does that can't read its data. Mend
// takes that back.
func (w *World) Crash(name string) {
	w.Crashing[name] = true
	w.Changes++
	if pod := w.Pod(name); pod != nil {
		w.stop(pod.UID)
	}
}

// FillDisk fills the volume of a member beside its database. Its etcd dies of that, and again whenever it is started,
// until the volume is larger, or another one. Mend makes room in another way.
func (w *World) FillDisk(name string) {
	if w.NoRoom == nil {
		w.NoRoom = map[string]int64{}
	}
	w.NoRoom[name] = w.diskOf(w.Pod(name))
	w.Changes++
	w.stop(w.Pod(name).UID)
}

// diskFull reports whether there is no room on the pod's volume.
func (w *World) diskFull(pod *corev1.Pod) bool {
	was, full := w.NoRoom[pod.Name]
	return full && w.diskOf(pod) <= was
}

// diskOf is how large the pod's volume is: of a claim what it has grown to.
func (w *World) diskOf(pod *corev1.Pod) int64 {
	if claims := claimsOf(pod); len(claims) > 0 {
		return w.Claim(claims[0]).Status.Capacity.Storage().Value()
	}
	for _, v := range pod.Spec.Volumes {
		if v.Name == facts.VolumeData && v.EmptyDir != nil {
			return v.EmptyDir.SizeLimit.Value()
		}
	}
	return 0
}

// Mend lets a member's etcd start again.
func (w *World) Mend(name string) {
	delete(w.Crashing, name)
	delete(w.NoRoom, name)
	w.Changes++
}

// AddByHand is what etcdctl member add does, for a voter or a learner at the peer URL of this name, which may be a
// member's of the cluster or another etcd's.
func (w *World) AddByHand(peerURL string, learner bool) {
	for _, c := range w.clusters() {
		c, err := w.add(c, peerURL)
		if err != nil {
			continue
		}
		added := &c.Members[len(c.Members)-1]
		added.Learner = learner
		w.Oracle.learned[added.ID] = true
		w.store(c)
	}
}

// RemoveByHand is what etcdctl member remove does for the member of this name. It says why etcd refuses that.
func (w *World) RemoveByHand(name string) error { return w.byHand(name, (*World).removeMember) }

// PromoteByHand is what etcdctl member promote does for it.
func (w *World) PromoteByHand(name string) error { return w.byHand(name, (*World).promote) }

func (w *World) byHand(name string, change func(*World, Cluster, uint64) (Cluster, error)) error {
	for _, c := range w.clusters() {
		i := slices.IndexFunc(c.Members, func(m observation.Member) bool { return nameAt(m) == name })
		if i < 0 || !w.commits(c) {
			continue
		}
		changed, err := change(w, c, c.Members[i].ID)
		if err != nil {
			return err
		}
		w.agreeOn(changed)
		return nil
	}
	return etcdops.ErrMemberGone
}

// Reboot restarts the node under a pod: what was in memory is gone, the pod object stays.
func (w *World) Reboot(name string) {
	uid := w.Pod(name).UID
	w.stop(uid)
	delete(w.Dirs, memoryOf(uid))
	delete(w.Prepared, uid)
	delete(w.Files, uid)
	w.Changes++
}

// Evict ends the pod for good, as a node under pressure does.
func (w *World) Evict(name string) {
	uid := w.Pod(name).UID
	w.stop(uid)
	delete(w.Dirs, memoryOf(uid))
	w.editPod(name, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.Reason, p.Status.ContainerStatuses = corev1.PodFailed, "Evicted", nil
	})
}

// LoseNode stops the node under a pod; the API server hears no more of it.
func (w *World) LoseNode(name string) {
	pod := w.Pod(name)
	w.Lost[cmp.Or(pinnedTo(pod), name)] = true
	w.stop(pod.UID)
}

// HealNode brings the node back, after a reboot; it is named after the member on it, or has a name of its own.
func (w *World) HealNode(name string) {
	delete(w.Lost, name)
	for _, pod := range w.Pods() {
		if pod.Name == name || pod.Spec.NodeName == name {
			w.Reboot(pod.Name)
		}
	}
	w.Changes++
}

// Freeze stops the caches of a kind at what they show now; frozen again, they catch up to now.
func (w *World) Freeze(kind Kind) { w.Frozen[kind] = w.current(kind) }

// Thaw lets the caches of a kind catch up.
func (w *World) Thaw(kind Kind) { delete(w.Frozen, kind) }

// stop ends a running etcd, if it runs.
func (w *World) stop(pod types.UID) {
	if _, runs := w.Procs[pod]; runs {
		delete(w.Procs, pod)
		w.Changes++
	}
}
