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
