// Chart makes the templates of the Helm chart from what quorate install prints and the manifests for monitoring, so
// that they can't drift: it takes the objects and puts template expressions in the places that values decide. A place
// that is not there is an error. Our kinds are templates and not in crds/, which helm never upgrades.
//
//	chart QUORATE MONITORING FOLDER CLUSTER
//
// QUORATE is the binary, MONITORING has the files of manifests/monitoring, FOLDER is the chart: templates gets
// quorate.yaml, crds.yaml and monitoring.yaml, crds gets metacontroller.yaml, and README.md its table of values.
// CLUSTER is the chart of one cluster, which gets values.schema.json.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is a Kubernetes object as its YAML has it.
type object = map[string]any

// existing is for a Metacontroller that is there.
const existing = "--metacontroller-namespace=metacontroller"

// installed are the objects of one kind of installation, in its order.
type installed []object

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: chart QUORATE MONITORING FOLDER CLUSTER")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

func run(quorate, monitoring, folder, cluster string) (err error) {
	defer func() { // what is looked up in the objects must be there
		p := recover()
		if m, is := p.(missing); is {
			err = m
		} else if p != nil {
			panic(p)
		}
	}()
	t := &templates{}
	for into, flags := range map[*installed]string{
		&t.plain:       "",
		&t.external:    existing,
		&t.certManager: existing + " --cert-manager",
		&t.only:        existing + " --cert-manager --namespaces=only-this",
		&t.old:         existing + " --metacontroller-version=1.5.20",
	} {
		if *into, err = install(quorate, strings.Fields(flags)); err != nil {
			return err
		}
	}
	const made = "Made by `make generate` from what quorate install prints and manifests/monitoring. Change those, or test/tools/chart."
	files := map[string]string{"crds/metacontroller.yaml": "# " + made + "\n" + t.shared()}
	files["templates/crds.yaml"], files["templates/quorate.yaml"] = t.write()
	if files["templates/monitoring.yaml"], err = t.monitoring(monitoring); err != nil {
		return err
	}
	if files["README.md"], err = readme(folder); err != nil {
		return err
	}
	for name, text := range files {
		if strings.HasPrefix(name, "templates/") {
			text = "{{- /* " + made + " */ -}}\n" + text
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	schema, err := t.plain.clusterSchema() // last, for it takes the kinds apart
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(cluster, "values.schema.json"), []byte(schema), 0o644)
}

// install are the objects that quorate install prints for Metacontroller 4.16, unless the flags say another
// version.
func install(quorate string, flags []string) (installed, error) {
	out, err := exec.Command(quorate, append([]string{"install"}, flags...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("quorate install %s: %w", strings.Join(flags, " "), err)
	}
	var all installed
	for _, document := range bytes.Split(bytes.TrimPrefix(out, []byte("---\n")), []byte("\n---\n")) {
		if bytes.Contains(document, []byte("{{")) {
			return nil, fmt.Errorf("an object has {{ in it, which would be taken for a template: %.200s", document)
		}
		var o object
		if err := yaml.Unmarshal(document, &o); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// missing is what an object was expected to have.
type missing string

func (m missing) Error() string {
	return string(m) + " is not there: adapt test/tools/chart to what quorate install prints"
}

// has reports whether an object of this kind and name is there.
func (all installed) has(o object) bool {
	return slices.ContainsFunc(all, func(other object) bool {
		return other["kind"] == o["kind"] && at(other, "metadata")["name"] == at(o, "metadata")["name"]
	})
}

func (all installed) get(kind, name string) object {
	for _, o := range all {
		if o["kind"] == kind && at(o, "metadata")["name"] == name {
			return o
		}
	}
	panic(missing(kind + " " + name))
}

// at walks to an object within an object. Numbers are places in lists.
func at(o any, path ...any) object {
	for n, step := range path {
		switch step := step.(type) {
		case string:
			o = o.(object)[step]
		case int:
			list, _ := o.([]any)
			if step >= len(list) {
				panic(missing(fmt.Sprint(path[:n+1]...)))
			}
			o = list[step]
		}
		if o == nil {
			panic(missing(fmt.Sprint(path[:n+1]...)))
		}
	}
	within, is := o.(object)
	if !is {
		panic(missing(fmt.Sprint(path...) + " as an object"))
	}
	return within
}
