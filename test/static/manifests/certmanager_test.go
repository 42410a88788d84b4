package manifests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// withComponent renders manifests/default with a component, as a user's own kustomization does.
func withComponent(t *testing.T, component string) map[string]map[string]any {
	t.Helper()
	dir := t.TempDir()
	here, err := filepath.Abs(root)
	must(t, err)
	there, err := filepath.Rel(dir, here)
	must(t, err)
	text := fmt.Sprintf("resources: [%s/default]\ncomponents: [%s/%s]\n", there, there, component)
	must(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	must(t, err)
	objects := map[string]map[string]any{}
	for _, r := range built.Resources() {
		o, err := r.Map()
		must(t, err)
		objects[r.GetKind()+"/"+r.GetName()] = o
	}
	return objects
}

// TestCertManager: the component adds one kind and the right to write it, and nothing else; quorate install
// --cert-manager adds the same; and without either, cert-manager is not needed.
func TestCertManager(t *testing.T) {
	base, component, printed := render(t, "default"), withComponent(t, "components/cert-manager"),
		install(t, own, "--cert-manager")
	if got, want := slices.Sorted(maps.Keys(component)), slices.Sorted(maps.Keys(base)); !slices.Equal(got, want) {
		t.Errorf("with the component there are %v, not %v", got, want)
	}
	added := map[string]struct {
		path []string
		item string
	}{
		"CompositeController/quorate-etcdcluster": {[]string{"spec", "childResources"},
			`{apiVersion: cert-manager.io/v1, resource: certificates, updateStrategy: {method: InPlace}}`},
		"ClusterRole/quorate-metacontroller": {[]string{"rules"},
			`{apiGroups: [cert-manager.io], resources: [certificates], verbs: [get, list, watch, create, update, delete]}`},
	}
	for name, text := range base {
		o := parse(t, string(text))
		a, more := added[name]
		if more {
			within := within(o, a.path[:len(a.path)-1]...)
			last := a.path[len(a.path)-1]
			within[last] = append(within[last].([]any), any(parse(t, a.item)))
			if got := list(parse(t, string(printed[name])), a.path); !equality.Semantic.DeepEqual(got,
				list(o, a.path)) {
				t.Errorf("quorate install --cert-manager: %s has %v, not %v", name, got, list(o, a.path))
			}
		} else if strings.Contains(string(text), "cert-manager") &&
			!strings.HasPrefix(name, "CustomResourceDefinition/") &&
			name != "ValidatingAdmissionPolicy/quorate-shared-issuers" {
			t.Errorf("%s speaks of cert-manager without the component", name)
		}
		if !equality.Semantic.DeepEqual(asRead(t, component[name]), o) {
			t.Errorf("%s with the component:\n%v\nnot\n%v", name, component[name], o)
		}
	}
}

// list is the list at a path.
func list(o map[string]any, path []string) []any {
	found, _ := within(o, path[:len(path)-1]...)[path[len(path)-1]].([]any)
	return found
}

// asRead is an object with its numbers as YAML reads them.
func asRead(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(o)
	must(t, err)
	return parse(t, string(text))
}
