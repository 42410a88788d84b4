// Package manifests holds the manifests against what an API server would say of them, without one: the same code
// defaults, prunes and validates here, CEL rules and their cost limits included.
package manifests

import (
	"context"
	"os"
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
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
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
