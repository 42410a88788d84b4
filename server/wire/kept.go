package wire

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// specTold is the spec that is answered of an object. One that is kept, rather than made new under the same name, is
// told what it was told before.
func specTold(decided, observed metav1.Object) any {
	spec := reflect.ValueOf(decided).Elem().FieldByName("Spec").Addr().Interface()
	if observed == nil || decided.GetUID() == "" || decided.GetUID() != observed.GetUID() {
		return spec
	}
	return keptSpec(observed.GetAnnotations()[lastApplied], spec)
}

// keptSpec is the spec to answer for an object that is kept: the fields of the answer that Metacontroller applied
// last, each with the value that the decision has for it.
//
// The decision carries the observed spec, except for what it changes (images, scheduling gates, the size of a claim).
// Answered whole, it would be written back each time that a default, the node or the volume is filled in. The
// last answer alone would revert what others may rightly change (a resize in place, tolerations added at admission),
// which the API server refuses each time. This way a field that we set and no one changed is equal to the last answer,
// and Metacontroller writes nothing.
//
// Without a readable annotation it is the decision's spec: the observed one, since nothing is changed then (the rule
// ApplyStrategy).
func keptSpec(annotation string, decided any) any {
	var last struct {
		Spec jsontext.Value `json:"spec"`
	}
	if err := json.Unmarshal([]byte(annotation), &last, asObjects); err != nil || len(last.Spec) == 0 {
		return decided
	}
	told := reflect.New(reflect.TypeOf(decided))
	if err := json.Unmarshal(last.Spec, told.Interface(), asObjects); err != nil || told.Elem().IsNil() {
		return decided
	}
	adopt(told.Elem().Elem(), reflect.ValueOf(decided).Elem())
	return told.Elem().Interface()
}

var marshaler = reflect.TypeFor[json.Marshaler]()

// adopt gives every field that is set in to the value that it has in from. What is not set in to stays so.
func adopt(to, from reflect.Value) {
	switch {
	case to.IsZero():
	case from.IsZero():
		to.Set(from)
	case to.Kind() == reflect.Struct && !to.Type().Implements(marshaler):
		for i := range to.NumField() {
			adopt(to.Field(i), from.Field(i))
		}
	case to.Kind() == reflect.Pointer:
		adopt(to.Elem(), from.Elem())
	case to.Kind() == reflect.Map:
		for _, key := range to.MapKeys() {
			to.SetMapIndex(key, from.MapIndex(key)) // deletes it if from has no such key
		}
	case to.Kind() == reflect.Slice:
		adoptList(to, from)
	default:
		to.Set(from)
	}
}

// adoptList does adopt for a list: item by item when items have a key by which Metacontroller merges, else whole.
func adoptList(to, from reflect.Value) {
	key := mergeKey(to.Type().Elem())
	if key >= 0 && inStep(to, from, key) { // as nearly always; the rest of from was added by others
		for i := range to.Len() {
			adopt(to.Index(i), from.Index(i))
		}
		return
	}
	theirs, ok := byKey(from, key)
	if _, unique := byKey(to, key); !ok || !unique {
		to.Set(from)
		return
	}
	items := reflect.MakeSlice(to.Type(), 0, to.Len())
	for i := range to.Len() {
		item := to.Index(i)
		if their, ok := theirs[keyOf(item, key)]; ok {
			adopt(item, their)
			items = reflect.Append(items, item)
		}
	}
	to.Set(items)
}

// mergeKeys remembers, by the type of a list's items, what mergeKey says.
var mergeKeys sync.Map

// mergeKey is the field by which Metacontroller matches the items of a list, in its order of precedence; -1 for none.
func mergeKey(item reflect.Type) int {
	if known, ok := mergeKeys.Load(item); ok {
		key, _ := known.(int)
		return key
	}
	key := -1
	if item.Kind() == reflect.Struct {
		for _, name := range []string{"ContainerPort", "Port", "Name", "UID", "IP"} {
			if f, ok := item.FieldByName(name); ok && len(f.Index) == 1 {
				key = f.Index[0]
				break
			}
		}
	}
	mergeKeys.Store(item, key)
	return key
}

// inStep reports whether the items of to are the first of from, by key.
func inStep(to, from reflect.Value, key int) bool {
	if to.Len() > from.Len() {
		return false
	}
	for i := range to.Len() {
		if !to.Index(i).Field(key).Equal(from.Index(i).Field(key)) {
			return false
		}
	}
	return true
}

func keyOf(item reflect.Value, key int) string { return fmt.Sprint(item.Field(key).Interface()) }

// byKey are the items of a list by their keys; false when they have none or share one.
func byKey(list reflect.Value, key int) (map[string]reflect.Value, bool) {
	if key < 0 {
		return nil, false
	}
	items := make(map[string]reflect.Value, list.Len())
	for i := range list.Len() {
		items[keyOf(list.Index(i), key)] = list.Index(i)
	}
	return items, len(items) == list.Len()
}
