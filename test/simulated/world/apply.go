package world

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/simulated/metacontroller"
)

// Apply does with the answer what Metacontroller does. A finalized parent loses its finalizer first, and its children
// are then left to the garbage collector.
func (w *World) Apply(c *Call) {
	if c == nil || c.Lost {
		return
	}
	w.seal(c)
	w.apply(c, ungroup(c.Decision.Children, c.secrets))
}

// apply is Apply, of these children.
func (w *World) apply(c *Call, desired map[Key]metav1.Object) {
	if c.Finalized {
		if live := w.Cluster(); live != nil && live.UID == c.parent.UID {
			w.note("finalizer removed")
			w.dropFinalizer(finalizer)
		}
		return
	}
	if c.Finalizing && (!slices.Contains(c.parent.Finalizers, finalizer) ||
		slices.Contains(c.parent.Finalizers, metav1.FinalizerOrphanDependents)) {
		return
	}
	c.crash.Apply(
		func() bool { return w.deleteOmitted(c, desired) },
		func() bool { return w.writeChildren(c, desired) },
		func() {
			if !c.Finalizing || c.lookedAfter {
				w.writeStatus(c)
			}
		})
}

// deleteOmitted deletes the observed children that the answer omits, by UID; false when the crash cut it off.
func (w *World) deleteOmitted(c *Call, desired map[Key]metav1.Object) bool {
	before := w.health()
	omitted := maps.Clone(c.observed)
	maps.DeleteFunc(omitted, func(key Key, o metav1.Object) bool {
		return o.GetDeletionTimestamp() != nil || desired[key] != nil
	})
	whole := c.crash.Delete(inOrder(omitted), func(key Key) {
		w.Oracle.beforeDelete(w, c, key, omitted[key])
		w.written("- %s %s", key, w.remove(key.Kind, key.Name, omitted[key].GetUID()))
	})
	if whole {
		w.Oracle.afterDeletes(w, c, before)
	}
	return whole
}

// writeChildren creates and updates; false when the crash cut it off.
func (w *World) writeChildren(c *Call, desired map[Key]metav1.Object) bool {
	if w.CertManager {
		w.Certificates = c.Decision.Children.Certificates
	}
	before := w.health()
	defer func() { w.Oracle.afterDeletes(w, c, before) }()
	return c.crash.Write(inOrder(desired), func(key Key) bool { return w.writeChild(c, key, desired) })
}

// writeChild creates or updates one; false when there is nothing to write, or it is refused.
func (w *World) writeChild(c *Call, key Key, desired map[Key]metav1.Object) bool {
	old, exists := c.observed[key]
	if w.ServerSideApply {
		w.applyOnServer(c.parent, key, old, desired[key])
		return true
	}
	if !exists {
		err := w.create(key.Kind, created(c.parent, desired[key]))
		if errors.Is(err, errForbidden) {
			w.refused(key, desired)
			return false
		}
		w.written("+ %s %s", key, err)
		return true
	}
	merged, changed := merge(old, desired[key])
	if len(changed) == 0 || old.GetDeletionTimestamp() != nil {
		return false
	}
	if err := w.update(key.Kind, merged); err != nil || !slices.Equal(changed, []string{"seal"}) {
		told := slices.DeleteFunc(changed, func(k string) bool { return k == "seal" && len(changed) > 1 })
		w.written("~ %s %s "+strings.ReplaceAll(strings.Join(told, " "), "%", "%%"), key, err)
	}
	return true
}

// written notes a write; format begins with its sign, the kind and the name.
func (w *World) written(format string, key Key, err error) {
	w.Writes++
	line := fmt.Sprintf(format, key.Kind, key.Name)
	if err != nil {
		line = "! " + line + ": " + err.Error()
	}
	w.note("%s", line)
}

// writeStatus replaces the status of the live parent, if it is the same object.
func (w *World) writeStatus(c *Call) {
	live := w.Cluster()
	status := metacontroller.Observed(c.Decision.Status, c.parent.Generation)
	if live == nil || live.UID != c.parent.UID {
		return
	}
	if w.asksTime(live.Status, status) {
		return
	}
	w.Lacked = c.lacks
	if meta.IsStatusConditionTrue(status.Conditions, v1beta1.Ready) && c.lacks != "" {
		w.violate("Ready", "Ready is True (%s), and %s", c.Decision.Reason.Rule, c.lacks)
	}
	if reflect.DeepEqual(live.Status, status) {
		return
	}
	changes, looks := w.Changes, w.looks(c.parent.Status, live.Status, status)
	w.editCluster(func(e *v1beta1.EtcdCluster) { e.Status = status })
	if w.Writes++; looks {
		w.Changes, w.Writes = changes, w.Writes-1
	}
	w.tellOperations()
}

// asksTime writes a status that only asks for the time, which is no change; false when it says more than that.
func (w *World) asksTime(old, status v1beta1.EtcdClusterStatus) bool {
	asked := old
	asked.Internal.ClockTime = status.Internal.ClockTime
	if !reflect.DeepEqual(asked, status) || reflect.DeepEqual(old, status) {
		return false
	}
	changes := w.Changes
	w.editCluster(func(e *v1beta1.EtcdCluster) { e.Status = status })
	w.Changes = changes
	return true
}

// looks reports whether a status only tells of another look, which is no change. That is written seldom (S16).
func (w *World) looks(shown, old, status v1beta1.EtcdClusterStatus) bool {
	was, is := old.Internal.Watched, status.Internal.Watched
	if was == nil || is == nil || was.LastProbeTime.Equal(&is.LastProbeTime) {
		return false
	}
	status.Internal.Watched = &v1beta1.WatchedStatus{StartTime: is.StartTime, LastProbeTime: was.LastProbeTime}
	if !reflect.DeepEqual(old, status) {
		return false
	}
	if seen := shown.Internal.Watched; seen != nil && is.LastProbeTime.Sub(seen.LastProbeTime.Time) < 2*w.Resync {
		w.violate("S16", "a look is written %s after another", is.LastProbeTime.Sub(seen.LastProbeTime.Time))
	}
	return true
}

// inOrder is as Metacontroller is told of the kinds.
func inOrder(objects map[Key]metav1.Object) []Key {
	return slices.SortedFunc(maps.Keys(objects), func(a, b Key) int {
		if a.Kind != b.Kind {
			return slices.Index(childKinds, a.Kind) - slices.Index(childKinds, b.Kind)
		}
		if len(a.Name) != len(b.Name) {
			return len(a.Name) - len(b.Name)
		}
		return strings.Compare(a.Name, b.Name)
	})
}
