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

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Apply does with the answer what Metacontroller does: deletions, then creations and updates going on past errors,
// then the status. A finalized parent loses its finalizer first, and its children are then left to the garbage
// collector.
func (w *World) Apply(c *Call) {
	if c == nil || c.Lost {
		return
	}
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
	if !w.deleteOmitted(c, desired) || c.crash.At == AfterDeletes {
		return
	}
	if w.CertManager {
		w.Certificates = c.Decision.Children.Certificates
	}
	if !w.writeChildren(c, desired) || c.crash.At == BeforeStatus || c.Finalizing && !c.lookedAfter {
		return
	}
	w.writeStatus(c)
}

// deleteOmitted deletes the observed children that the answer omits, by UID; false when the crash cut it off.
func (w *World) deleteOmitted(c *Call, desired map[Key]metav1.Object) bool {
	before := w.health()
	for _, key := range c.crash.order(c.observed) {
		o := c.observed[key]
		if o.GetDeletionTimestamp() != nil || desired[key] != nil {
			continue
		}
		if c.crash.before(key) {
			return false
		}
		w.Oracle.beforeDelete(w, c, key, o)
		w.written("- %s %s", key, w.remove(key.Kind, key.Name, o.GetUID()))
	}
	w.Oracle.afterDeletes(w, c, before)
	return true
}

func (c Crash) before(key Key) bool { return c.At == BeforeObject && c.Object == key }

// writeChildren creates and updates; false when the crash cut it off.
func (w *World) writeChildren(c *Call, desired map[Key]metav1.Object) bool {
	writes, before := 0, w.health()
	defer func() { w.Oracle.afterDeletes(w, c, before) }()
	for _, key := range c.crash.order(desired) {
		if c.crash.At == AfterWrites && writes >= c.crash.Writes || c.crash.before(key) {
			return false
		}
		old, exists := c.observed[key]
		if w.ServerSideApply {
			w.applyOnServer(c.parent, key, old, desired[key])
			writes++
			continue
		}
		if !exists {
			err := w.create(key.Kind, created(c.parent, desired[key]))
			if errors.Is(err, errForbidden) {
				w.refused(key, desired)
				continue
			}
			w.written("+ %s %s", key, err)
			writes++
			continue
		}
		merged, changed := merge(old, desired[key])
		if len(changed) == 0 || old.GetDeletionTimestamp() != nil {
			continue
		}
		w.written("~ %s %s "+strings.ReplaceAll(strings.Join(changed, " "), "%", "%%"), key, w.update(key.Kind, merged))
		writes++
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
	status := c.Decision.Status
	status.ObservedGeneration = c.parent.Generation
	if live == nil || live.UID != c.parent.UID {
		return
	}
	w.Lacked = c.lacks
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.Ready) && c.lacks != "" {
		w.violate("Ready", "Ready is True (%s), and %s", c.Decision.Reason.Rule, c.lacks)
	}
	if reflect.DeepEqual(live.Status, status) {
		return
	}
	changes, looks := w.Changes, w.looks(c.parent.Status, live.Status, status)
	w.editCluster(func(e *v1alpha1.EtcdCluster) { e.Status = status })
	if w.Writes++; looks {
		w.Changes, w.Writes = changes, w.Writes-1
	}
	w.tellOperations()
}

// looks reports whether a status only tells of another look, which is no change. That is written seldom (S16).
func (w *World) looks(shown, old, status v1alpha1.EtcdClusterStatus) bool {
	was, is := old.Internal.Watched, status.Internal.Watched
	if was == nil || is == nil || was.LastProbeTime.Equal(&is.LastProbeTime) {
		return false
	}
	status.Internal.Watched = &v1alpha1.WatchedStatus{StartTime: is.StartTime, LastProbeTime: was.LastProbeTime}
	if !reflect.DeepEqual(old, status) {
		return false
	}
	if seen := shown.Internal.Watched; seen != nil && is.LastProbeTime.Sub(seen.LastProbeTime.Time) < 2*w.Resync {
		w.violate("S16", "a look is written %s after another", is.LastProbeTime.Sub(seen.LastProbeTime.Time))
	}
	return true
}

// order is that in which the children are deleted or written.
func (c Crash) order(objects map[Key]metav1.Object) []Key {
	keys := inOrder(objects)
	if c.Backwards {
		slices.Reverse(keys)
	}
	return keys
}

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
