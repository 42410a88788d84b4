package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// krewFile is the manifest of the plugin for krew's index, where it is called quorate.yaml.
const krewFile = "kubectl-quorate.krew.yaml"

const (
	repository = "https://github.com/quorate-dev/quorate"
	archiveOf  = "kubectl-quorate-"
)

// krew is the manifest for these archives, by their names.
func krew(version string, archives []archive) ([]byte, error) {
	var platforms []any
	for _, a := range archives {
		os, arch, found := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(a.name, archiveOf), ".tar.gz"), "-")
		if !found {
			return nil, fmt.Errorf("%s does not name a system and a processor", a.name)
		}
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"os": os, "arch": arch}},
			"uri":      repository + "/releases/download/" + version + "/" + a.name,
			"sha256":   fmt.Sprintf("%x", sha256.Sum256(a.content)),
			"bin":      a.plugin,
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]any{"name": "quorate"},
		"spec": map[string]any{
			"version": version, "homepage": repository, "platforms": platforms,
			"shortDescription": "Install Quorate, and look at its etcd clusters",
			"description": "What an etcd cluster that Quorate runs is doing, and why: status, explain, and a report " +
				"without secrets.\n" +
				"It takes snapshots, and restores to any moment. It also installs Quorate, and checks whether all of it\n" +
				"fits together.\n",
		},
	})
}

// archive is the plugin for one system.
type archive struct {
	name, plugin string
	content      []byte
}
