package main

import (
	"encoding/json"
	"strings"
)

// clusterSchema is what values of the chart of one cluster may be: the specs as the kinds have them, so that helm
// refuses what the API server would, except for rules over several fields, and also a field that there is none of.
func (all installed) clusterSchema() (string, error) {
	spec := func(kind string) object {
		crd := all.get("CustomResourceDefinition", kind+".etcd.quorate.dev")
		return strict(at(crd, "spec", "versions", 0, "schema", "openAPIV3Schema", "properties", "spec")).(object)
	}
	schedule := spec("etcdsnapshotschedules")
	within := at(schedule, "properties", "template", "properties", "spec")
	within["required"] = without(within["required"].([]any), "clusterRef") // the chart fills it in
	texts := object{"type": "object", "additionalProperties": object{"type": "string"}}
	out, err := json.MarshalIndent(object{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
		"properties": object{
			"fullnameOverride": object{"type": "string"},
			"labels":           texts,
			"annotations":      texts,
			"spec":             spec("etcdclusters"),
			"schedules":        object{"type": "object", "additionalProperties": schedule},
			"global":           object{"type": "object"}, // of the chart above this one
		},
	}, "", " ")
	return string(out) + "\n", err
}

func without(list []any, word string) (rest []any) {
	for _, s := range list {
		if s != word {
			rest = append(rest, s)
		}
	}
	return rest
}

// strict is a schema without what JSON Schema does not have, in which an object has no other fields than those named.
func strict(schema any) any {
	switch s := schema.(type) {
	case []any:
		for i := range s {
			s[i] = strict(s[i])
		}
	case object:
		fields, named := s["properties"].(object)
		for key, value := range s {
			switch {
			case strings.HasPrefix(key, "x-kubernetes-"), key == "description", key == "format", key == "default":
				delete(s, key)
			case key != "properties":
				s[key] = strict(value)
			}
		}
		for name, field := range fields {
			fields[name] = strict(field)
		}
		if named && s["additionalProperties"] == nil {
			s["additionalProperties"] = false
		}
	}
	return schema
}
