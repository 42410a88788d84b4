package world

import (
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the API server refuses to make: by a quota, an admission policy, or because the object names something that is
// not there. Metacontroller tries again at each sync, and tells of it in an event that hooks do not see.

// errForbidden is the API server's for an object that it does not take.
var errForbidden = errors.New("forbidden")

// Refuse has the API server make no objects of this kind any more: all of them, or with a name only that one.
func (w *World) Refuse(kind Kind, name string) { w.Refused[Key{kind, name}] = true }

// Accept takes that back.
func (w *World) Accept(kind Kind, name string) { delete(w.Refused, Key{kind, name}) }

// RefuseClass has the API server make no pods of this priority class, as of one that does not exist.
func (w *World) RefuseClass(name string) { w.NoPriority[name] = true }

// AcceptClass makes the priority class exist.
func (w *World) AcceptClass(name string) { delete(w.NoPriority, name) }

func (w *World) refuses(kind Kind, o metav1.Object) bool {
	pod, is := o.(*corev1.Pod)
	return w.Refused[Key{kind, ""}] || w.Refused[Key{kind, o.GetName()}] ||
		is && w.NoPriority[pod.Spec.PriorityClassName]
}

// refused notes a refusal once, as long as the answers ask for the object: each call tries again.
func (w *World) refused(key Key, desired map[Key]metav1.Object) {
	w.Tried = slices.DeleteFunc(slices.Clone(w.Tried), func(k Key) bool {
		return desired[k] == nil || w.Objects[k] != nil
	})
	if !slices.Contains(w.Tried, key) {
		w.Tried = append(w.Tried, key)
		w.note("! + %s %s: %s", key.Kind, key.Name, errForbidden)
	}
}
