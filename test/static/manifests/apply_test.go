package manifests

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

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
