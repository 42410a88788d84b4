// Package manifests holds the manifests against what an API server would say of them, without one: the same code
// defaults, prunes and validates here, CEL rules and their cost limits included.
package manifests

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"
)

// kind is one kind of a CRD, ready to judge objects.
type kind struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// readCRD fails the test when the API server would refuse the CRD, for a rule that costs too much, say.
func readCRD(t *testing.T, text []byte) *apiextensions.CustomResourceDefinition {
	t.Helper()
	var external apiextensionsv1.CustomResourceDefinition
	must(t, yaml.UnmarshalStrict(text, &external))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&external)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
	external.Status.StoredVersions = []string{external.Spec.Versions[0].Name} // as the API server sets it
	var crd apiextensions.CustomResourceDefinition
	must(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&external,
		&crd, nil))
	for _, err := range crdvalidation.ValidateCustomResourceDefinition(t.Context(), &crd) {
		t.Errorf("CRD %s: %v", crd.Name, err)
	}
	return &crd
}

// newKind makes a judge of the CRD's only version.
func newKind(t *testing.T, crd *apiextensions.CustomResourceDefinition) kind {
	t.Helper()
	props := crd.Spec.Validation // the conversion moves the only version's schema here
	if props == nil {
		props = crd.Spec.Versions[0].Schema
	}
	structural, err := schema.NewStructural(props.OpenAPIV3Schema)
	must(t, err)
	openAPI, _, err := validation.NewSchemaValidator(props.OpenAPIV3Schema)
	must(t, err)
	return kind{structural, openAPI, cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// kindOf is one of our kinds.
func kindOf(t *testing.T, name string) kind {
	t.Helper()
	text := fileOf(t, "../../../manifests/crds/etcd.quorate.dev_"+strings.ToLower(name)+"s.yaml")
	return newKind(t, readCRD(t, text))
}

// must fails the test with an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fileOf reads a file.
func fileOf(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

// unknown fields of the object, which the API server would drop with a warning.
func (k kind) unknown(object map[string]any) []string {
	return pruning.PruneWithOptions(object, k.structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

// admit defaults the object in place and says what is wrong with it; old is nil for a new object. What has not
// changed is not judged again, as by API servers since Kubernetes 1.30.
func (k kind) admit(object, old map[string]any) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(object, k.structural)
	defaulting.Default(object, k.structural)
	var before any // a nil map is not a nil object
	var errs field.ErrorList
	var unchanged []cel.Option
	if old == nil {
		errs = validation.ValidateCustomResource(nil, object, k.schema)
	} else {
		before = old
		beside := common.NewCorrelatedObject(object, old, &model.Structural{Structural: k.structural})
		unchanged = append(unchanged, cel.WithRatcheting(beside))
		errs = validation.ValidateCustomResourceUpdate(nil, object, old, k.schema, validation.WithRatcheting(beside))
	}
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	broken, _ := k.rules.Validate(context.Background(), nil, k.structural, object, before,
		celconfig.RuntimeCELCostBudget, unchanged...)
	return append(errs, broken...)
}

// parse reads one object from YAML, numbers as the API server has them.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return integers(object).(map[string]any)
}

// integers turns whole numbers into int64, as the API server's decoder does.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		if whole := int64(v); float64(whole) == v {
			return whole
		}
	}
	return v
}

// TestQuantitiesAreShort: those of every kind, of types that are not ours among them, and each rule looks before it
// parses one: the API server judges by its rules also what a pattern has refused.
func TestQuantitiesAreShort(t *testing.T) {
	seen := 0
	for _, name := range kinds {
		var crd any
		must(t, yaml.Unmarshal(fileOf(t, "../../../manifests/crds/etcd.quorate.dev_"+strings.ToLower(name)+"s.yaml"), &crd))
		eachObject(crd, func(o map[string]any) {
			pattern, _ := o["pattern"].(string)
			if strings.Contains(pattern, "[numkMGTPE]") {
				seen++
				if o["maxLength"] != 32.0 || !strings.HasSuffix(pattern, `[0-9]{1,2}))?$`) {
					t.Errorf("%s: a quantity of any length: %v", name, o)
				}
			}
			rule, _ := o["rule"].(string)
			if before, _, parses := strings.Cut(rule, "quantity("); parses &&
				!strings.Contains(before, "matches('[eE][-+]?[0-9.]{3}') || ") {
				t.Errorf("%s: it parses without a look: %s", name, rule)
			}
		})
	}
	if seen < 20 {
		t.Errorf("%d quantities", seen)
	}
}

// eachObject calls for each object in what was read from YAML.
func eachObject(v any, do func(map[string]any)) {
	switch v := v.(type) {
	case map[string]any:
		do(v)
		for _, value := range v {
			eachObject(value, do)
		}
	case []any:
		for _, value := range v {
			eachObject(value, do)
		}
	}
}

// TestServerSideApplyRefusesTheFieldThatSaysSo: the code by which an API server applies refuses every kind of child
// that carries the field setApplyStrategyToDynamicApply, and names the field
// (docs/decisions/0029-server-side-apply.md). The children are those of a call's fixture.
func TestServerSideApplyRefusesTheFieldThatSaysSo(t *testing.T) {
	types := applyconfigurations.NewTypeConverter(scheme.Scheme)
	raw := fileOf(t, "../../../server/testdata/sync.json")
	var call struct {
		Children map[string]map[string]map[string]any `json:"children"`
	}
	must(t, json.Unmarshal(raw, &call))
	tried := 0
	for group, objects := range call.Children {
		for _, object := range objects {
			metadata := object["metadata"].(map[string]any)
			for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp",
				"generation"} {
				delete(metadata, field) // as Metacontroller does
			}
			delete(object, "status")
			if err := applied(types, object); err != nil {
				t.Errorf("%s, as it is: %v", group, err)
			}
			metadata["setApplyStrategyToDynamicApply"] = true
			if err := applied(types, object); err == nil ||
				!strings.Contains(err.Error(), ".metadata.setApplyStrategyToDynamicApply: field not declared in "+
					"schema") {
				t.Errorf("%s with the field: %v", group, err)
			}
			tried++
			break
		}
	}
	if tried < 5 {
		t.Errorf("%d kinds were tried", tried)
	}
}

func applied(types managedfields.TypeConverter, object map[string]any) error {
	o := &unstructured.Unstructured{Object: object}
	return managedfieldstest.NewTestFieldManager(types, o.GroupVersionKind()).Apply(o.DeepCopy(), "metacontroller",
		true)
}

// TestSamples: the API server takes every sample, keeps every field of it as it was applied, and adds defaults alone:
// else Flux and Argo CD would always see a difference. By kstatus none of them is current before Quorate has looked at
// it.
func TestSamples(t *testing.T) {
	files, err := filepath.Glob("../../../manifests/samples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no samples", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := fileOf(t, file)
			if !strings.HasPrefix(string(text), "# ") {
				t.Error("does not begin with a comment that says what it is for")
			}
			for _, document := range strings.Split(string(text), "\n---\n") {
				object := parse(t, document)
				u := &unstructured.Unstructured{Object: object}
				if u.GroupVersionKind().Group != "etcd.quorate.dev" {
					continue
				}
				k := kindOf(t, u.GetKind())
				applied := runtime.DeepCopyJSON(object)
				if fields := k.unknown(object); len(fields) > 0 {
					t.Errorf("unknown fields: %v", fields)
				}
				if errs := k.admit(object, nil); len(errs) > 0 {
					t.Error(errs.ToAggregate())
				}
				for _, drift := range drifts("", applied, object) {
					t.Errorf("%s %s: %s", u.GetKind(), u.GetName(), drift)
				}
				u.SetGeneration(1)
				if verdict, err := status.Compute(u); err != nil || verdict.Status != status.InProgressStatus {
					t.Errorf("a fresh %s is %+v (%v)", u.GetKind(), verdict, err)
				}
			}
		})
	}
}

// drifts are the fields that are not stored as they were applied. In lists nothing may be added: they are compared as
// wholes.
func drifts(at string, applied, stored any) (all []string) {
	fields, is := applied.(map[string]any)
	if !is {
		if items, is := applied.([]any); is {
			if has, _ := stored.([]any); len(has) == len(items) {
				for i := range items {
					all = append(all, drifts(fmt.Sprintf("%s[%d]", at, i), items[i], has[i])...)
				}
				return all
			}
		}
		if !reflect.DeepEqual(applied, stored) {
			all = append(all, fmt.Sprintf("%s is applied as %v and stored as %v", at, applied, stored))
		}
		return all
	}
	has, is := stored.(map[string]any)
	if !is {
		return []string{fmt.Sprintf("%s is applied and not stored", at)}
	}
	for key, value := range fields {
		all = append(all, drifts(at+"."+key, value, has[key])...)
	}
	return all
}

// TestNames: the names by which kubectl finds our kinds are those of no other operator that we know: etcd (Gardener's
// etcd-druid has a kind Etcd), and etcdclus and ec (earlier operators) are not ours. The category quorate lists all
// of ours.
func TestNames(t *testing.T) {
	for file, short := range map[string]string{"etcdclusters": "qetcd", "etcdsnapshots": "qsnap",
		"etcdsnapshotschedules": "qsched", "etcdoperations": "qop", "etcdmirrors": "qmirror"} {
		text := fileOf(t, "../../../manifests/crds/etcd.quorate.dev_"+file+".yaml")
		names := readCRD(t, text).Spec.Names
		if !reflect.DeepEqual(names.ShortNames, []string{short}) ||
			!reflect.DeepEqual(names.Categories, []string{"all", "quorate"}) {
			t.Errorf("%s: short names %v, categories %v", file, names.ShortNames, names.Categories)
		}
	}
}
