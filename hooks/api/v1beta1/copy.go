package v1beta1

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// Copy is a copy that shares nothing with what it is of; nil of nil. It works for every type of this package: types of
// others copy themselves, and ours have no unexported fields. One function says what controller-gen would write out for
// each type.
func Copy[T any](of *T) *T {
	if of == nil {
		return nil
	}
	to := new(T)
	copyInto(reflect.ValueOf(to).Elem(), reflect.ValueOf(of).Elem())
	return to
}

func copyInto(to, from reflect.Value) {
	if copiesItself(to, from) {
		return
	}
	switch from.Kind() {
	case reflect.Struct:
		for i := range from.NumField() {
			copyInto(to.Field(i), from.Field(i))
		}
	case reflect.Pointer:
		if !from.IsNil() {
			to.Set(reflect.New(from.Type().Elem()))
			copyInto(to.Elem(), from.Elem())
		}
	case reflect.Slice:
		if !from.IsNil() {
			to.Set(reflect.MakeSlice(from.Type(), from.Len(), from.Len()))
			for i := range from.Len() {
				copyInto(to.Index(i), from.Index(i))
			}
		}
	case reflect.Map:
		copyMap(to, from)
	default:
		to.Set(from)
	}
}

func copyMap(to, from reflect.Value) {
	if from.IsNil() {
		return
	}
	to.Set(reflect.MakeMapWithSize(from.Type(), from.Len()))
	for _, key := range from.MapKeys() {
		kept := reflect.New(from.Type().Elem()).Elem()
		value := reflect.New(from.Type().Elem()).Elem()
		kept.Set(from.MapIndex(key)) // what is in a map has no address
		copyInto(value, kept)
		to.SetMapIndex(key, value)
	}
}

// copiesItself copies a value of a type that says itself how.
func copiesItself(to, from reflect.Value) bool {
	if from.Kind() != reflect.Struct {
		return false
	}
	if quantity, is := from.Addr().Interface().(*resource.Quantity); is {
		to.Set(reflect.ValueOf(quantity.DeepCopy()))
		return true
	}
	own := from.Addr().MethodByName("DeepCopyInto")
	if !own.IsValid() || own.Type().In(0) != to.Addr().Type() { // that of an embedded type copies only that
		return false
	}
	own.Call([]reflect.Value{to.Addr()})
	return true
}

// DeepCopy is a copy that shares nothing.
func (c *EtcdCluster) DeepCopy() *EtcdCluster { return Copy(c) }

// DeepCopy is a copy that shares nothing.
func (s *EtcdSnapshot) DeepCopy() *EtcdSnapshot { return Copy(s) }

// DeepCopy is a copy that shares nothing.
func (s *EtcdSnapshotSchedule) DeepCopy() *EtcdSnapshotSchedule { return Copy(s) }

// DeepCopy is a copy that shares nothing.
func (o *EtcdOperation) DeepCopy() *EtcdOperation { return Copy(o) }

// DeepCopy is a copy that shares nothing.
func (m *EtcdMirror) DeepCopy() *EtcdMirror { return Copy(m) }

// DeepCopyObject implements runtime.Object.
func (c *EtcdCluster) DeepCopyObject() runtime.Object { return Copy(c) }

// DeepCopyObject implements runtime.Object.
func (l *EtcdClusterList) DeepCopyObject() runtime.Object { return Copy(l) }

// DeepCopyObject implements runtime.Object.
func (s *EtcdSnapshot) DeepCopyObject() runtime.Object { return Copy(s) }

// DeepCopyObject implements runtime.Object.
func (l *EtcdSnapshotList) DeepCopyObject() runtime.Object { return Copy(l) }

// DeepCopyObject implements runtime.Object.
func (s *EtcdSnapshotSchedule) DeepCopyObject() runtime.Object { return Copy(s) }

// DeepCopyObject implements runtime.Object.
func (l *EtcdSnapshotScheduleList) DeepCopyObject() runtime.Object { return Copy(l) }

// DeepCopyObject implements runtime.Object.
func (o *EtcdOperation) DeepCopyObject() runtime.Object { return Copy(o) }

// DeepCopyObject implements runtime.Object.
func (l *EtcdOperationList) DeepCopyObject() runtime.Object { return Copy(l) }

// DeepCopyObject implements runtime.Object.
func (m *EtcdMirror) DeepCopyObject() runtime.Object { return Copy(m) }

// DeepCopyObject implements runtime.Object.
func (l *EtcdMirrorList) DeepCopyObject() runtime.Object { return Copy(l) }
