package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSteadyStateWritesNothing answers until nothing changes, as Metacontroller applies it, and then once more.
func TestSteadyStateWritesNothing(t *testing.T) {
	s, _ := testServer(Options{})
	h := s.Handler()
	request := settled(t, h)
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	first, second := post(h, "/sync", raw), post(h, "/sync", raw)
	require.Equal(t, first.Body.String(), second.Body.String(), "equal decisions must be equal bytes")
	require.NotContains(t, first.Body.String(), "null")
	require.NotContains(t, first.Body.String(), "managedFields")
	writes, status := round(t, h, request)
	require.Empty(t, writes)
	require.False(t, status)
}

// settled is the steady request after the writes that this version's wording and templates cause, if any.
func settled(t *testing.T, h http.Handler) map[string]any {
	t.Helper()
	var request map[string]any
	require.NoError(t, json.Unmarshal(steady(t), &request))
	for range 3 {
		if writes, status := round(t, h, request); len(writes) == 0 && !status {
			return request
		}
	}
	t.Fatal("it does not settle")
	return nil
}

// round makes one call and applies the answer to the request. It names the children and says whether the status
// changed.
func round(t *testing.T, h http.Handler, request map[string]any) (writes []string, status bool) {
	t.Helper()
	raw, err := json.Marshal(request)
	require.NoError(t, err)
	w := post(h, "/sync", raw)
	require.Equal(t, 200, w.Code, w.Body.String())
	var answer map[string]any
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	after := with(at(answer, "status"), "observedGeneration", at(request, "parent", "metadata")["generation"])
	status = !reflect.DeepEqual(at(request, "parent")["status"], any(after))
	at(request, "parent")["status"] = after
	if status { // the API server notes when
		at(request, "parent", "metadata")["managedFields"].([]any)[1].(map[string]any)["time"] =
			time.Now().UTC().Format(time.RFC3339)
	}
	return apply(t, request, answer), status
}

// TestKeptChildren checks what Metacontroller would write to pods and claims that others have changed, and that it
// writes it once.
func TestKeptChildren(t *testing.T) {
	pod := func(r map[string]any) map[string]any { return at(r, "children", groupPods, "orders-1", "spec") }
	first := func(list any) map[string]any { return list.([]any)[0].(map[string]any) }
	cases := []struct {
		name, reason string
		edit         func(r map[string]any)
		writes       []string
		again        []string
	}{
		{"admission added tolerations to ours", "the API server refuses to take tolerations away, so ours alone " +
			"would always fail", func(r map[string]any) {
			spec := pod(r)
			ours := map[string]any{"key": "dedicated", "operator": "Exists"}
			spec["tolerations"] = append([]any{ours}, spec["tolerations"].([]any)...)
			reapplied(t, r, "orders-1", func(last map[string]any) { last["tolerations"] = []any{ours} })
		}, []string{"Pod orders-1"}, nil},
		{"resized in place", "only the subresource resize may change resources; reverting would always fail",
			func(r map[string]any) {
				at(first(pod(r)["containers"]), "resources", "requests")["memory"] = "512Mi"
			}, []string{"Pod orders-1"}, nil},
		{"a sidecar was injected", "what we do not own is not in the answer", func(r map[string]any) {
			spec := pod(r)
			spec["containers"] = append(spec["containers"].([]any), map[string]any{"name": "mesh", "image": "mesh:1"})
		}, nil, nil},
		{"a registry mirror was put in", "a pod that runs keeps its observed image",
			func(r map[string]any) { first(pod(r)["initContainers"])["image"] = "mirror.example.com/quorate:v0.1.0" },
			[]string{"Pod orders-1"}, nil},
		{"never applied by Metacontroller", "the note is written, with the field that server-side apply refuses, and " +
			"then without", func(r map[string]any) {
			delete(at(r, "children", groupPods, "orders-1", "metadata", "annotations"), lastApplied)
		}, []string{"Pod orders-1"}, []string{"Pod orders-1"}},
		{"annotation damaged", "as if it were not there; Metacontroller itself fails on it, which changes nothing",
			func(r map[string]any) {
				at(r, "children", groupPods, "orders-1", "metadata", "annotations")[lastApplied] = "{"
			}, nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, _ := testServer(Options{})
			h := s.Handler()
			request := settled(t, h)
			c.edit(request)
			for i, want := range [][]string{c.writes, c.again, nil} {
				before := pod(request)
				writes, _ := round(t, h, request)
				require.Equal(t, want, writes, "round %d: %s", i, c.reason)
				require.Equal(t, before, pod(request), "the spec of a pod that is kept must not change: %s", c.reason)
			}
		})
	}
}

// TestAChildWithoutANoteHoldsEverythingBack: what server-side apply has stripped is answered in a way that only a
// client that merges by itself can apply, and nothing is made, changed or taken away beside it.
func TestAChildWithoutANoteHoldsEverythingBack(t *testing.T) {
	const field = "setApplyStrategyToDynamicApply"
	s, _ := testServer(Options{Verify: true})
	h := s.Handler()
	told := func(change func(r map[string]any)) (fields []string, children int, phase string) {
		request := settled(t, h)
		change(request)
		raw, err := json.Marshal(request)
		require.NoError(t, err)
		w := post(h, "/sync", raw)
		require.Equal(t, 200, w.Code, w.Body.String())
		var answer map[string]any
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
		for _, c := range answer["children"].([]any) {
			child := c.(map[string]any)
			if at(child, "metadata")[field] == true {
				fields = append(fields, child["kind"].(string)+" "+at(child, "metadata")["name"].(string))
			}
		}
		return fields, len(answer["children"].([]any)), at(answer, "status")["rule"].(string)
	}
	_, all, _ := told(func(map[string]any) {})
	for group, kind := range map[string]string{
		groupPods: "Pod", groupClaims: "PersistentVolumeClaim", groupConfigMaps: "ConfigMap", groupServices: "Service",
		groupBudgets: "PodDisruptionBudget",
	} {
		var name string
		strip := func(r map[string]any) {
			name = slices.Sorted(maps.Keys(at(r, "children", group)))[0]
			delete(at(r, "children", group, name, "metadata", "annotations"), lastApplied)
			at(r, "parent", "spec")["replicas"] = 1
		}
		fields, children, phase := told(strip)
		require.Equal(t, []string{kind + " " + name}, fields)
		require.Equal(t, all, children, "nothing is made or deleted: %s", kind)
		require.Equal(t, "ApplyStrategy", phase)
		_, _, phase = told(func(r map[string]any) {
			strip(r)
			at(r, "children", group, name, "metadata")["deletionTimestamp"] = "2026-03-02T09:00:00Z"
		})
		require.NotEqual(t, "ApplyStrategy", phase, "what is being deleted gets no note any more, and waits for none")
	}
}

func with(o map[string]any, key string, v any) map[string]any { o[key] = v; return o }

// reapplied edits the spec in the annotation of a pod.
func reapplied(t testing.TB, request map[string]any, name string, edit func(spec map[string]any)) {
	t.Helper()
	annotations := at(request, "children", groupPods, name, "metadata", "annotations")
	var last map[string]any
	require.NoError(t, json.Unmarshal([]byte(annotations[lastApplied].(string)), &last))
	edit(at(last, "spec"))
	raw, err := json.Marshal(last)
	require.NoError(t, err)
	annotations[lastApplied] = string(raw)
}

// apply updates the children of a request to those of an answer as Metacontroller 1.5.20 does (ApplyUpdate in
// pkg/controller/common, Merge in pkg/dynamic/apply), and names the ones that it would write. Every child of the
// request must be in the answer.
func apply(t testing.TB, request, answer map[string]any) (writes []string) {
	t.Helper()
	desired := map[string]map[string]any{}
	for _, c := range answer["children"].([]any) {
		o := c.(map[string]any)
		desired[fmt.Sprint(o["kind"], ".", o["apiVersion"], " ", at(o, "metadata")["name"])] = o
	}
	for group, objects := range at(request, "children") {
		for name, o := range objects.(map[string]any) {
			observed, update := o.(map[string]any), desired[group+" "+name]
			require.NotNil(t, update, "%s %s would be deleted", group, name)
			delete(desired, group+" "+name)
			with(labelsOf(update), "controller-uid", at(request, "parent", "metadata")["uid"])

			var last map[string]any
			annotations, _ := at(observed, "metadata")["annotations"].(map[string]any)
			if raw, ok := annotations[lastApplied].(string); ok && json.Unmarshal([]byte(raw), &last) != nil {
				continue // Metacontroller fails here
			}
			updated := merge(clone(t, observed), anyOf(last), clone(t, update)).(map[string]any)
			// as the API server drops what no kind has
			delete(at(updated, "metadata"), "setApplyStrategyToDynamicApply")
			for _, field := range []string{"uid", "resourceVersion", "creationTimestamp"} {
				at(updated, "metadata")[field] = at(observed, "metadata")[field]
			}
			if observed["status"] != nil {
				updated["status"] = observed["status"]
			}
			raw, err := json.Marshal(update)
			require.NoError(t, err)
			if at(updated, "metadata")["annotations"] == nil {
				at(updated, "metadata")["annotations"] = map[string]any{}
			}
			at(updated, "metadata", "annotations")[lastApplied] = string(raw)
			if !reflect.DeepEqual(observed, updated) {
				writes = append(writes, fmt.Sprint(updated["kind"], " ", name))
				objects.(map[string]any)[name] = updated
			}
		}
	}
	require.Empty(t, desired, "children would be created")
	return writes
}

func labelsOf(o map[string]any) map[string]any { return at(o, "metadata", "labels") }

func anyOf(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}

func clone(t testing.TB, o map[string]any) (c map[string]any) {
	t.Helper()
	raw, err := json.Marshal(o)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &c))
	return c
}

// merge is Metacontroller's three-way merge: destination changes by what differs between last and desired.
func merge(destination, last, desired any) any {
	switch d := destination.(type) {
	case map[string]any:
		l, _ := last.(map[string]any)
		w, _ := desired.(map[string]any)
		return mergeObject(d, l, w)
	case []any:
		l, _ := last.([]any)
		w, _ := desired.([]any)
		key := listKey(d, l, w)
		if key == "" {
			return desired
		}
		merged := mergeObject(mapOf(key, d), mapOf(key, l), mapOf(key, w))
		var list []any
		added := map[string]bool{}
		for _, items := range [][]any{d, w} {
			for _, item := range items {
				name := fmt.Sprint(at(item)[key])
				if v, ok := merged[name]; ok && !added[name] {
					list = append(list, v)
					added[name] = true
				}
			}
		}
		return list
	default:
		return desired
	}
}

func mergeObject(destination, last, desired map[string]any) map[string]any {
	for key := range last {
		if _, ok := desired[key]; !ok {
			delete(destination, key)
		}
	}
	for key, v := range desired {
		destination[key] = merge(destination[key], last[key], v)
	}
	return destination
}

func mapOf(key string, list []any) map[string]any {
	m := map[string]any{}
	for _, item := range list {
		m[fmt.Sprint(at(item)[key])] = item
	}
	return m
}

// listKey is the key that all items of all lists have, the first of those that Metacontroller knows.
func listKey(lists ...[]any) string {
	items := 0
	common := map[string]int{}
	for _, list := range lists {
		for _, item := range list {
			o, ok := item.(map[string]any)
			if !ok {
				return ""
			}
			items++
			for key := range o {
				common[key]++
			}
		}
	}
	for _, key := range []string{"containerPort", "port", "name", "uid", "ip"} {
		if items > 0 && common[key] == items {
			return key
		}
	}
	return ""
}
