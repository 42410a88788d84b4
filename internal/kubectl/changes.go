package kubectl

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// change is what Metacontroller would do to one object.
type change struct {
	verb   string // make, change or delete
	object string // kind and name
	fields []string
}

// mostFields that are named of one object.
const mostFields = 4

// lines are the cells that tell it: a field a line.
func (c change) lines() [][]string {
	fields := c.fields
	if len(fields) > mostFields {
		fields = append(slices.Clone(fields[:mostFields]), fmt.Sprintf("and %d more", len(fields)-mostFields))
	}
	lines := [][]string{{c.verb, c.object, ""}}
	for i, field := range fields {
		if i == 0 {
			lines[0][2] = field
		} else {
			lines = append(lines, []string{" ", " ", field})
		}
	}
	return lines
}

// lastApplied is the annotation in which Metacontroller notes the answer that it applied last.
const lastApplied = "metacontroller.k8s.io/last-applied-configuration"

// changes are what an answer would change about the children that exist, and how many stay as they are. Fields are
// named, and never what is in them: that may be secret.
func changes(observed map[string]map[string]any, answer []byte, uid string) ([]change, int, error) {
	var a struct{ Children []map[string]any }
	if err := objects.Read(answer, &a); err != nil {
		return nil, 0, fmt.Errorf("the hooks' answer can't be read: %w", err)
	}
	var list []change
	same := 0
	wanted := map[string]bool{}
	for _, want := range a.Children {
		title := titleOf(want)
		wanted[title] = true
		is, exists := observed[title]
		if !exists {
			list = append(list, change{"make", title, nil})
		} else if fields := changed(is, want, uid); len(fields) > 0 && !leaving(is) {
			list = append(list, change{"change", title, fields})
		} else {
			same++
		}
	}
	for _, title := range slices.Sorted(maps.Keys(observed)) {
		switch {
		case wanted[title]:
		case leaving(observed[title]):
			same++
		default:
			list = append(list, change{"delete", title, nil})
		}
	}
	return list, same, nil
}

func titleOf(o map[string]any) string {
	kind, _ := o["kind"].(string)
	name, _ := within(o, "metadata")["name"].(string)
	return kind + " " + name
}

// leaving reports whether an object is being deleted: Metacontroller does not touch it then.
func leaving(o map[string]any) bool { return within(o, "metadata")["deletionTimestamp"] != nil }

func within(o map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		o, _ = o[key].(map[string]any)
	}
	return o
}

// changed are the fields that Metacontroller's three-way merge would write: those that are not as the answer has them,
// and those that it had set before and the answer lacks.
func changed(is, want map[string]any, uid string) []string {
	want = maps.Clone(want)
	want["metadata"] = withLabel(within(want, "metadata"), uid)
	last := map[string]any{}
	if text, ok := within(is, "metadata", "annotations")[lastApplied].(string); ok {
		_ = objects.Read([]byte(text), &last) // what can't be read was not set
	}
	return differing("", is, last, want)
}

// withLabel is metadata with the label that Metacontroller puts on all children.
func withLabel(metadata map[string]any, uid string) map[string]any {
	metadata = maps.Clone(metadata)
	labels := maps.Clone(within(metadata, "labels"))
	if labels == nil {
		labels = map[string]any{}
	}
	labels[controllerUID] = uid
	metadata["labels"] = labels
	return metadata
}

// differing names the fields under a path that would be written.
func differing(path string, is, last, want any) []string {
	switch w := want.(type) {
	case map[string]any:
		i, _ := is.(map[string]any)
		l, _ := last.(map[string]any)
		return differingFields(path, i, l, w)
	case []any:
		i, _ := is.([]any)
		if key := mergeKey(w, i); key != "" {
			l, _ := last.([]any)
			return differingFields(path, byKey(i, key), byKey(l, key), byKey(w, key))
		}
	}
	if reflect.DeepEqual(is, want) || nothing(is) && nothing(want) {
		return nil
	}
	return []string{strings.TrimPrefix(path, ".")}
}

func differingFields(path string, is, last, want map[string]any) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		list = append(list, differing(path+"."+key, is[key], last[key], want[key])...)
	}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if _, stays := want[key]; !stays && !nothing(is[key]) {
			list = append(list, strings.TrimPrefix(path+"."+key, "."))
		}
	}
	return list
}

// nothing reports whether a value says no more than that it is absent.
func nothing(v any) bool {
	switch t := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(t) == 0
	case []any:
		return len(t) == 0
	}
	return false
}

// mergeKey is the field by which Metacontroller matches the items of these lists; empty when it replaces the whole
// list.
func mergeKey(lists ...[]any) string {
	for _, key := range []string{"containerPort", "port", "name", "uid", "ip"} {
		if !slices.ContainsFunc(slices.Concat(lists...), func(item any) bool {
			o, ok := item.(map[string]any)
			return !ok || o[key] == nil
		}) {
			return key
		}
	}
	return ""
}

// byKey are the items of a list by a field.
func byKey(list []any, key string) map[string]any {
	items := make(map[string]any, len(list))
	for _, item := range list {
		if o, ok := item.(map[string]any); ok {
			items[fmt.Sprint(o[key])] = item
		}
	}
	return items
}
