package world

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
)

// Lacks says what is missing for the cluster to be what the spec asks for, by what is there and not by what is said
// of it; empty for nothing. It is what a condition Ready is held against.
func (w *World) Lacks(spec *v1beta1.EtcdClusterSpec) string {
	return cmp.Or(w.lacks(spec), w.outdated(spec))
}

// lacks is what is missing whatever the time.
func (w *World) lacks(spec *v1beta1.EtcdClusterSpec) string {
	replicas := 3
	if spec.Replicas != nil {
		replicas = int(*spec.Replicas)
	}
	c := w.Etcd.Clusters[w.Oracle.cluster]
	if replicas == 0 {
		return w.lacksRest(c)
	}
	switch {
	case c.ID == 0:
		return "there is no etcd"
	case !w.quorate(c) || !w.leads(c):
		return "no quorum serves"
	}
	for _, a := range c.Alarms {
		return "there is the alarm " + a.Kind
	}
	own, spares := 0, 0
	for _, m := range c.Members {
		if w.External[nameAt(m)] {
			continue
		}
		if lacks := w.lacksOf(c, m); lacks != "" {
			return nameAt(m) + " " + lacks
		}
		if m.Learner {
			spares++
			continue
		}
		own++
	}
	wanted := int(spec.Spares)
	if len(w.External) > 0 {
		wanted = 0
	}
	if spares != wanted {
		return fmt.Sprintf("there are %d learners instead of %d", spares, wanted)
	}
	if own != replicas {
		return fmt.Sprintf("there are %d voters instead of %d", own, replicas)
	}
	cm, _ := w.Objects[Key{ConfigMapKind, objects.EpochName(w.Cluster().Name, c.Epoch)}].(*corev1.ConfigMap)
	for _, op := range w.Operations(v1beta1.OperationRestore) {
		if op.DeletionTimestamp == nil && recordtest.Says(cm).Restore != string(op.UID) {
			return "it does not have the data of the restore " + op.Name
		}
	}
	return ""
}

// lacksRest: with replicas 0 none of ours runs or is a member.
func (w *World) lacksRest(c Cluster) string {
	if pods := w.Pods(); len(pods) > 0 {
		return pods[0].Name + " is there"
	}
	if len(w.External) == 0 {
		return ""
	}
	for _, m := range c.Members {
		if !w.External[nameAt(m)] {
			return nameAt(m) + " is a member"
		}
	}
	return ""
}

// lacksOf is what a voter of ours lacks. While Metacontroller sees things late, only etcd is looked at.
func (w *World) lacksOf(c Cluster, m observation.Member) string {
	uid, runs := w.running(c.ID, m.ID)
	pod := w.Pod(nameAt(m))
	switch {
	case !runs:
		return "does not run"
	case len(w.Frozen) > 0:
		return ""
	case pod == nil || pod.UID != uid:
		return "has no pod"
	case pod.DeletionTimestamp != nil:
		return "has a pod that is being deleted"
	}
	return ""
}

// outdated is what a change of the spec has not reached yet, which may wait for a maintenance window; empty for
// nothing.
func (w *World) outdated(spec *v1beta1.EtcdClusterSpec) string {
	c := w.Etcd.Clusters[w.Oracle.cluster]
	if spec.Replicas != nil && *spec.Replicas == 0 || len(w.Frozen) > 0 {
		return ""
	}
	for _, m := range c.Members {
		if has := w.outdatedIn(c, m, spec); has != "" && !w.External[nameAt(m)] {
			return nameAt(m) + " " + has
		}
	}
	return ""
}

func (w *World) outdatedIn(c Cluster, m observation.Member, spec *v1beta1.EtcdClusterSpec) string {
	uid, runs := w.running(c.ID, m.ID)
	pod := w.Pod(nameAt(m))
	switch has := w.Procs[uid]; {
	case !runs || pod == nil:
		return ""
	case has.Version != spec.Version:
		return "runs " + has.Version
	case pod.Spec.PriorityClassName != spec.PriorityClassName:
		return "has the priority class " + pod.Spec.PriorityClassName
	}
	for _, claim := range w.Claims() {
		has, asked := claim.Status.Capacity.Storage(), spec.Storage.Size
		grown := spec.Storage.AutoGrow != nil && has.Cmp(asked) > 0
		if claim.Name == pod.Name && spec.Storage.Medium == v1beta1.Persistent && has.Cmp(asked) != 0 && !grown {
			return fmt.Sprintf("has a volume of %s instead of %s", has, asked.String())
		}
		if class := spec.Storage.StorageClassName; claim.Name == pod.Name && class != nil && ClassOf(claim) != *class {
			return "has a volume of the class " + ClassOf(claim)
		}
	}
	return ""
}
