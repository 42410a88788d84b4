package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// metacontroller is a release of it, with its binary and the file of its CRDs.
type metacontroller struct{ version, binary, crds string }

// chooseMetacontroller says which release the lab runs, in this order:
//
//   - METACONTROLLER names a binary, METACONTROLLER_VERSION its version and
//     METACONTROLLER_CRDS the file of its CRDs;
//   - METACONTROLLER_VERSION alone names a folder bin/metacontroller-<version>
//     that has both files, as metacontroller and crds.yaml;
//   - the newest of such folders;
//   - the release that the lab builds, since the Go module proxy serves none
//     that is newer. It is the only one that need not be there yet.
func (l *lab) chooseMetacontroller() (metacontroller, error) {
	version := strings.TrimPrefix(os.Getenv("METACONTROLLER_VERSION"), "v")
	if binary := os.Getenv("METACONTROLLER"); binary != "" {
		m := metacontroller{version: version, binary: binary, crds: os.Getenv("METACONTROLLER_CRDS")}
		if m.version == "" || m.crds == "" {
			return m, fmt.Errorf("METACONTROLLER=%s needs METACONTROLLER_VERSION, such as 4.17.2, and "+
				"METACONTROLLER_CRDS, a file", binary)
		}
		return m, m.complete()
	}
	if version == "" {
		version = cmp.Or(l.newestMetacontroller(), metacontrollerVersion)
	}
	m := l.metacontrollerIn(version)
	if version == metacontrollerVersion {
		return m, nil // it is built when it is not there
	}
	return m, m.complete()
}

func (l *lab) metacontrollerIn(version string) metacontroller {
	folder := filepath.Join(l.bin, "metacontroller-"+version)
	return metacontroller{version, filepath.Join(folder, "metacontroller"), filepath.Join(folder, "crds.yaml")}
}

// newestMetacontroller is the newest release of which a folder has both files; empty without one.
func (l *lab) newestMetacontroller() string {
	folders, _ := filepath.Glob(filepath.Join(l.bin, "metacontroller-*"))
	var versions []string
	for _, folder := range folders {
		version := strings.TrimPrefix(filepath.Base(folder), "metacontroller-")
		if l.metacontrollerIn(version).complete() == nil {
			versions = append(versions, version)
		}
	}
	if len(versions) == 0 {
		return ""
	}
	return slices.MaxFunc(versions, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
}

// numbers of a version such as 4.17.2; what is no number counts as 0.
func numbers(version string) []int {
	var all []int
	for _, part := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(part)
		all = append(all, n)
	}
	return all
}

// complete says what of a release can't be used, and what to do.
func (m metacontroller) complete() error {
	for _, file := range []string{m.binary, m.crds} {
		if !exists(file) {
			return fmt.Errorf("%s is not there: Metacontroller %s needs its binary and the file of its CRDs", file,
				m.version)
		}
	}
	if !isStatic(m.binary) {
		return fmt.Errorf("%s is no static Linux binary, and its image has no libraries; build it with CGO_ENABLED=0",
			m.binary)
	}
	return nil
}

// builtMetacontroller reports whether the release to run is the one that the lab builds.
func (l *lab) builtMetacontroller() bool {
	m, err := l.chooseMetacontroller()
	return err == nil && m == l.metacontrollerIn(metacontrollerVersion)
}

// args: flags differ from version 2 on.
func (m metacontroller) args() []string {
	args := []string{"--discovery-interval=5s", "--workers=20", "--client-go-qps=100", "--client-go-burst=200"}
	if strings.HasPrefix(m.version, "1.") {
		return append(args, "--debug-addr=:9999")
	}
	return append(args, "--metrics-address=:9999", "--health-probe-bind-address=:8081")
}
