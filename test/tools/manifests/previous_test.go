package manifests

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// TestKindsOfThePreviousRelease: whatever was written for the previous release can be written for this one, and
// nothing that it has stored is dropped. Rules in CEL are not compared: the stories of an upgrade would find one that
// has become stricter.
func TestKindsOfThePreviousRelease(t *testing.T) {
	dir := t.TempDir()
	out, err := exec.Command("../../tools/previous.sh", dir, "manifests/crds").CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip(string(out))
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "manifests/crds/etcd.quorate.dev_*.yaml"))
	if len(files) == 0 {
		t.Fatal("the previous release has no CRDs")
	}
	for _, file := range files {
		before := readSpec(t, file)
		now := readSpec(t, filepath.Join("../../../manifests/crds", filepath.Base(file)))
		if before.Names.Kind != now.Names.Kind || before.Names.Plural != now.Names.Plural || before.Scope != now.Scope {
			t.Errorf("%s: the kind has another name or scope", filepath.Base(file))
		}
		for _, version := range before.Versions {
			i := slices.IndexFunc(now.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return v.Name == version.Name && v.Served
			})
			if i < 0 {
				t.Errorf("%s: %s is not served any more", filepath.Base(file), version.Name)
				continue
			}
			for _, lost := range incompatible(before.Names.Kind, version.Schema.OpenAPIV3Schema,
				now.Versions[i].Schema.OpenAPIV3Schema) {
				t.Error(lost)
			}
		}
	}
}

func readSpec(t *testing.T, file string) apiextensionsv1.CustomResourceDefinitionSpec {
	t.Helper()
	text := fileOf(t, file)
	var crd apiextensionsv1.CustomResourceDefinition
	must(t, yaml.UnmarshalStrict(text, &crd))
	return crd.Spec
}

// incompatible says what an object may have by one schema and not by the next, at this path.
func incompatible(path string, before, now *apiextensionsv1.JSONSchemaProps) []string {
	var lost []string
	say := func(format string, args ...any) { lost = append(lost, path+": "+fmt.Sprintf(format, args...)) }
	if before.Type != now.Type {
		say("it is of type %q and was %q", now.Type, before.Type)
	}
	for _, value := range before.Enum {
		if len(now.Enum) > 0 && !slices.ContainsFunc(now.Enum,
			func(v apiextensionsv1.JSON) bool { return string(v.Raw) == string(value.Raw) }) {
			say("it can't be %s any more", value.Raw)
		}
	}
	if len(before.Enum) == 0 && len(now.Enum) > 0 {
		say("it is one of a few values, and could be any")
	}
	for _, field := range now.Required {
		if !slices.Contains(before.Required, field) && now.Properties[field].Default == nil &&
			before.Properties != nil {
			say("%s is required, and was not", field)
		}
	}
	for _, field := range slices.Sorted(maps.Keys(before.Properties)) {
		was := before.Properties[field]
		is, there := now.Properties[field]
		if !there {
			say("there is no field %s any more", field)
			continue
		}
		lost = append(lost, incompatible(path+"."+field, &was, &is)...)
	}
	if before.Items != nil && now.Items != nil {
		lost = append(lost, incompatible(path+"[]", before.Items.Schema, now.Items.Schema)...)
	}
	if b, n := before.AdditionalProperties, now.AdditionalProperties; b != nil && n != nil && b.Schema != nil &&
		n.Schema != nil {
		lost = append(lost, incompatible(path+".*", b.Schema, n.Schema)...)
	}
	return lost
}

// TestIncompatible: a change that would break existing objects is found, and an addition alone is not.
func TestIncompatible(t *testing.T) {
	const before = `{type: object, required: [a], properties: {a: {type: string}, b: {type: string, enum: [v, w]}, c: {type: array, items: {type: object, properties: {d: {type: integer}}}}}}`
	for now, want := range map[string]string{
		before: "",
		`{type: object, required: [a, e], properties: {a: {type: string}, b: {type: string, enum: [v, w, z]}, c: {type: array, items: {type: object, properties: {d: {type: integer}}}}, e: {type: string, default: f}}}`: "",
		`{type: object, required: [a, b], properties: {a: {type: string}, b: {type: string, enum: [v, w]}, c: {type: array, items: {type: object, properties: {d: {type: integer}}}}}}`:                                   "K: b is required, and was not",
		`{type: object, required: [a], properties: {a: {type: integer}, b: {type: string, enum: [v]}, c: {type: array, items: {type: object, properties: {}}}}}`:                                                          `K.a: it is of type "integer" and was "string"; K.b: it can't be "w" any more; K.c[]: there is no field d any more`,
		`{type: object, required: [a], properties: {a: {type: string, enum: [g]}, b: {type: string, enum: [v, w]}, c: {type: array, items: {type: object, properties: {d: {type: integer}}}}}}`:                           "K.a: it is one of a few values, and could be any",
	} {
		var b, n apiextensionsv1.JSONSchemaProps
		must(t, errors.Join(yaml.UnmarshalStrict([]byte(before), &b), yaml.UnmarshalStrict([]byte(now), &n)))
		if got := strings.Join(incompatible("K", &b, &n), "; "); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", now, got, want)
		}
	}
}
