package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// provenanceFile says of all other files how they came about: a statement of in-toto with the predicate of SLSA.
const provenanceFile = "quorate.intoto.json"

// What is said of a build is true on every machine that makes these bytes: no time, and no place. Who made them is
// for signatures to say.
const (
	statementType = "https://in-toto.io/Statement/v1"
	predicateType = "https://slsa.dev/provenance/v1"
	buildType     = repository + "/blob/main/docs/reference/releases.md#verify-a-release"
	builder       = repository + "/blob/main/test/tools/release.sh"
)

// build is what a release is made of, and by which words.
type build struct{ version, revision, command string }

type object = map[string]any

// resource is a thing with its digests, as in-toto writes it.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

// provenance is the statement of what is in a folder, whose programs are the binaries.
func provenance(folder string, b build, binaries []string) ([]byte, error) {
	subjects, err := subjectsIn(folder)
	if err != nil {
		return nil, err
	}
	source := resource{URI: "git+" + repository + "@" + b.version, Digest: map[string]string{"gitCommit": b.revision}}
	modules, err := modulesOf(binaries)
	if err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(object{
		"_type": statementType, "subject": subjects, "predicateType": predicateType,
		"predicate": object{
			"buildDefinition": object{
				"buildType":            buildType,
				"externalParameters":   object{"repository": repository, "version": b.version, "command": b.command},
				"resolvedDependencies": append([]resource{source}, modules...),
			},
			"runDetails": object{"builder": object{"id": builder}},
		},
	}, "", "  ")
	return append(text, '\n'), err
}

func subjectsIn(folder string) (all []resource, err error) {
	entries, err := os.ReadDir(folder) // by name
	for _, entry := range entries {
		if entry.Name() == provenanceFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, resource{Name: entry.Name(), Digest: map[string]string{
			"sha256": fmt.Sprintf("%x", sha256.Sum256(content))}})
	}
	return all, err
}

// modulesOf are Go and the modules that are linked into programs, as these say it.
func modulesOf(binaries []string) ([]resource, error) {
	found := map[string]resource{}
	for _, file := range binaries {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("what %s is made of: %w", file, err)
		}
		std := "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")
		found[std] = resource{URI: std}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
			if err != nil || len(sum) != sha256.Size {
				return nil, fmt.Errorf("%s: %s %s has no sum of its files: %q", file, m.Path, m.Version, m.Sum)
			}
			uri := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
			found[uri] = resource{URI: uri, Digest: map[string]string{"dirHash": fmt.Sprintf("%x", sum)}}
		}
	}
	var all []resource
	for _, uri := range slices.Sorted(maps.Keys(found)) {
		all = append(all, found[uri])
	}
	return all, nil
}
