package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// call is one request of Metacontroller to the hook sync, taken apart as far as faults need it. Objects stay as they
// came.
type call struct {
	whole    map[string]json.RawMessage
	parent   object
	children map[string]map[string]object // by kind, such as "Pod.v1", and name
}

// object is a Kubernetes object as JSON.
type object struct {
	raw  json.RawMessage
	meta objectMeta
}

type objectMeta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	DeletionTimestamp *string           `json:"deletionTimestamp"`
	Annotations       map[string]string `json:"annotations"`
}

func (o *object) UnmarshalJSON(raw []byte) error {
	o.raw = slices.Clone(raw)
	head := struct{ Metadata *objectMeta }{&o.meta}
	return json.Unmarshal(raw, &head)
}

func (o object) MarshalJSON() ([]byte, error) { return o.raw, nil }

func readCall(body []byte) (*call, error) {
	c := &call{}
	if err := json.Unmarshal(body, &c.whole); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(c.whole["parent"], &c.parent); err != nil {
		return nil, fmt.Errorf("parent: %w", err)
	}
	if err := json.Unmarshal(c.whole["children"], &c.children); err != nil {
		return nil, fmt.Errorf("children: %w", err)
	}
	return c, nil
}

// body is the request again, with this parent and these children.
func (c *call) body() ([]byte, error) {
	whole := maps.Clone(c.whole)
	var err error
	if whole["parent"], err = json.Marshal(c.parent); err != nil {
		return nil, err
	}
	if whole["children"], err = json.Marshal(c.children); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}

// answer is what a hook answers.
type answer struct {
	Status             json.RawMessage `json:"status"`
	Children           []child         `json:"children"`
	ResyncAfterSeconds float64         `json:"resyncAfterSeconds,omitempty"`
}

// child is one desired object.
type child struct {
	raw  json.RawMessage
	kind string // as in call
	name string
}

func (c *child) UnmarshalJSON(raw []byte) error {
	var head struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	c.raw, c.kind, c.name = slices.Clone(raw), head.Kind+"."+head.APIVersion, head.Metadata.Name
	return nil
}

func (c child) MarshalJSON() ([]byte, error) { return c.raw, nil }

// lastApplied is where Metacontroller notes the answer that it applied last.
const lastApplied = "metacontroller.k8s.io/last-applied-configuration"

// asItIs is the desired object on which Metacontroller does nothing: its own last one.
func (o object) asItIs() (child, error) {
	var c child
	applied := o.meta.Annotations[lastApplied]
	if applied == "" {
		return c, fmt.Errorf("%s was not made by Metacontroller", o.meta.Name)
	}
	return c, json.Unmarshal([]byte(applied), &c)
}

// statusOf is the status that a parent has.
func statusOf(parent object) json.RawMessage {
	var o struct{ Status json.RawMessage }
	if json.Unmarshal(parent.raw, &o) != nil || o.Status == nil {
		return json.RawMessage("{}")
	}
	return o.Status
}

// asked are the desired objects by kind and name.
func (a *answer) asked() map[string]map[string]child {
	all := map[string]map[string]child{}
	for _, c := range a.Children {
		if all[c.kind] == nil {
			all[c.kind] = map[string]child{}
		}
		all[c.kind][c.name] = c
	}
	return all
}

// equal reports whether two desired objects are the same except for the label that Metacontroller adds to each.
func equal(a, b json.RawMessage) bool {
	plain := func(raw json.RawMessage) (o map[string]any) {
		if json.Unmarshal(raw, &o) != nil {
			return nil
		}
		if meta, ok := o["metadata"].(map[string]any); ok {
			if labels, ok := meta["labels"].(map[string]any); ok {
				delete(labels, "controller-uid")
			}
		}
		return o
	}
	return reflect.DeepEqual(plain(a), plain(b))
}
