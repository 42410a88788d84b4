package install

import (
	"bytes"
	"fmt"
	"io/fs"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/manifests"
)

// kustomization is what kustomizations here say, besides patches.
type kustomization struct {
	Resources []string
	Labels    []struct{ Pairs map[string]string }
	Images    []struct{ Name, NewTag string }
}

func readKustomization(folder string) (kustomization, error) {
	var k kustomization
	text, err := fs.ReadFile(manifests.Files, folder+"/kustomization.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &k)
	}
	if err != nil {
		return k, fmt.Errorf("manifests/%s/kustomization.yaml: %w", folder, err)
	}
	return k, nil
}

// manifestObjects are the objects of some folders, with the labels and images that their kustomizations add.
func manifestObjects(folders ...string) ([]object, error) {
	var all []object
	for _, folder := range folders {
		k, err := readKustomization(folder)
		if err != nil {
			return nil, err
		}
		for _, file := range k.Resources {
			objects, err := readObjects(folder + "/" + file)
			if err != nil {
				return nil, fmt.Errorf("manifests/%s/%s: %w", folder, file, err)
			}
			for _, o := range objects {
				for _, l := range k.Labels {
					addLabels(o, l.Pairs)
				}
				for _, image := range k.Images {
					addTag(o, image.Name, image.NewTag)
				}
			}
			all = append(all, objects...)
		}
	}
	return all, nil
}

func addTag(o object, name, tag string) {
	if o["kind"] != "Deployment" {
		return
	}
	for _, c := range at(o, "spec", "template", "spec")["containers"].([]any) {
		if c := c.(object); c["image"] == name {
			c["image"] = name + ":" + tag
		}
	}
}

func readObjects(file string) ([]object, error) {
	text, err := fs.ReadFile(manifests.Files, file)
	if err != nil {
		return nil, err
	}
	var all []object
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var o object
		if err := yaml.UnmarshalStrict(document, &o); err != nil {
			return nil, err
		}
		if o != nil {
			all = append(all, o)
		}
	}
	return all, nil
}

// patch adds values to the ends of lists of one object, as a kustomize component says.
type patch struct {
	Target struct{ Kind, Name string }
	Path   string
}

// addition is a value for the end of the list at a path such as /spec/rules/-.
type addition struct {
	Path  string
	Value any
}

// addComponent carries out the patches of a kustomize component.
func addComponent(objects []object, folder string) error {
	var k struct{ Patches []patch }
	text, err := fs.ReadFile(manifests.Files, folder+"/kustomization.yaml")
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("manifests/%s/kustomization.yaml: %w", folder, err)
	}
	for _, p := range k.Patches {
		var additions []addition
		text, err := fs.ReadFile(manifests.Files, folder+"/"+p.Path)
		if err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, &additions); err != nil {
			return fmt.Errorf("manifests/%s/%s: %w", folder, p.Path, err)
		}
		for _, o := range objects {
			if o["kind"] == p.Target.Kind && at(o, "metadata")["name"] == p.Target.Name {
				add(o, additions)
			}
		}
	}
	return nil
}

// add puts the values at the ends of their lists, which must be there.
func add(o object, additions []addition) {
	for _, a := range additions {
		path := strings.Split(strings.Trim(a.Path, "/-"), "/")
		last := len(path) - 1
		within := at(o, path[:last]...)
		within[path[last]] = append(within[path[last]].([]any), a.Value)
	}
}

func addLabels(o object, pairs map[string]string) {
	meta := at(o, "metadata")
	labels, ok := meta["labels"].(object)
	if !ok {
		labels = object{}
		meta["labels"] = labels
	}
	for key, value := range pairs {
		labels[key] = value
	}
}
