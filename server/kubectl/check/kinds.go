package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kind is a CustomResourceDefinition.
type kind struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Versions []struct {
			Name   string `json:"name"`
			Schema struct {
				OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
			} `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
	Status struct {
		Conditions []struct{ Type, Status string } `json:"conditions"`
	} `json:"status"`
}

func (k kind) established() bool {
	return slices.ContainsFunc(k.Status.Conditions, func(c struct {
		Type,
		Status string
	}) bool {
		return c.Type == "Established" && c.Status == "True"
	})
}

// schema is that of a version; nil when there is no such version.
func (k kind) schema(version string) map[string]any {
	for _, v := range k.Spec.Versions {
		if v.Name == version {
			return v.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

func ourKinds(s *Seen) Finding {
	const apply = "apply those of this release: `quorate install --kinds | kubectl apply --server-side " +
		"--force-conflicts -f -`, or all of it: "
	var flaws []Finding
	for _, want := range shippedKinds() {
		is, there := s.kinds[want.Metadata.Name]
		switch {
		case !there:
			flaws = append(flaws, fail("there is no "+want.Metadata.Name, "install Quorate: "+s.install()))
		case !is.established():
			flaws = append(flaws, fail(want.Metadata.Name+" is not established",
				command("kubectl describe crd %s", want.Metadata.Name)+" shows why"))
		default:
			flaws = append(flaws, compared(is, want, apply+s.install()))
		}
	}
	return together(ok("%d, as in this release", len(shippedKinds())), flaws)
}

// compared says how a kind differs from that of this release. A field that the API server does not know is dropped by
// it without a word, from the status too, which Quorate reads again.
func compared(is, want kind, apply string) Finding {
	name, v := want.Metadata.Name, want.Spec.Versions[0].Name
	schema, wanted := is.schema(v), want.schema(v)
	if schema == nil {
		return fail(name+" has no version "+v, apply)
	}
	lacks, more := apart(fields(wanted, ""), fields(schema, "")), apart(fields(schema, ""), fields(wanted, ""))
	switch {
	case len(lacks) > 0 && len(more) > 0:
		return fail(fmt.Sprintf("%s is of another release: it does not have %s, and has %s", name, some(lacks),
			some(more)),
			apply)
	case len(lacks) > 0:
		return fail(fmt.Sprintf("%s is older than this release: it does not have %s", name, some(lacks)), apply)
	case len(more) > 0:
		return warn(fmt.Sprintf("%s is newer than this quorate: it has %s", name, some(more)),
			"use the quorate of the "+
				"release that is installed")
	case !reflect.DeepEqual(bare(schema), bare(wanted)):
		return warn(name+" has the fields of this release and other rules for them", apply)
	}
	return ok("")
}

// fields are the paths of all fields of a schema, such as spec.storage.size.
func fields(schema map[string]any, path string) map[string]bool {
	all := map[string]bool{}
	properties, _ := schema["properties"].(map[string]any)
	for name, of := range properties {
		within := strings.TrimPrefix(path+"."+name, ".")
		all[within] = true
		if inner, is := of.(map[string]any); is {
			maps.Copy(all, fields(inner, within))
		}
	}
	for _, of := range []string{"items", "additionalProperties"} {
		if inner, is := schema[of].(map[string]any); is {
			maps.Copy(all, fields(inner, path+"[]"))
		}
	}
	return all
}

// apart are the fields that one has and another lacks, in order; of those within a field that lacks, the outermost
// alone.
func apart(one, other map[string]bool) []string {
	var all []string
	for _, f := range slices.Sorted(maps.Keys(one)) {
		within := func(outer string) bool { return strings.HasPrefix(f, outer+".") || strings.HasPrefix(f, outer+"[]") }
		if !other[f] && !slices.ContainsFunc(all, within) {
			all = append(all, f)
		}
	}
	return all
}

func some(names []string) string {
	if len(names) > 2 {
		return fmt.Sprintf("%s, %s and %d more", names[0], names[1], len(names)-2)
	}
	return strings.Join(names, " and ")
}

// bare is a schema without its words.
func bare(v any) any {
	switch t := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for key, value := range t {
			if text, is := value.(string); key == "description" && is && text != "" {
				continue
			}
			all[key] = bare(value)
		}
		return all
	case []any:
		all := make([]any, len(t))
		for i := range t {
			all[i] = bare(t[i])
		}
		return all
	}
	return v
}
