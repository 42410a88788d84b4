//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// installMetacontroller installs it as users do: an image, CRDs, rights and a
// StatefulSet. It may be repeated, also with another version.
func installMetacontroller(l *lab, _ []string) error {
	if _, err := l.running(); err != nil {
		return err
	}
	say := stopwatch()
	m, err := l.chooseMetacontroller()
	if err != nil {
		return err
	}
	image := l.metacontrollerImage(m.version, m.binary)
	if _, err := l.buildImage(image); err != nil {
		return err
	}
	crds, err := os.ReadFile(m.crds)
	if err != nil {
		return err
	}
	manifest, err := conf("metacontroller.yaml", map[string]any{
		"Image": image.refs[0], "Args": m.args(),
		"Content": digest([]byte(image.inputs())), // so that another binary under the same name is rolled out too
	})
	if err != nil {
		return err
	}
	if err := all(
		func() error { return l.loadOn(l.tarOf(image)) },
		func() error { return l.kubectl(crds, "apply", "--server-side", "--force-conflicts", "-f", "-") },
	); err != nil {
		return err
	}
	say("image loaded, CRDs applied")
	if err := l.kubectl(manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	if err := l.kubectl(nil, "wait", "--for=condition=Established", "--timeout=30s", "crd",
		"compositecontrollers.metacontroller.k8s.io", "decoratorcontrollers.metacontroller.k8s.io"); err != nil {
		return err
	}
	if err := l.kubectl(nil, "rollout", "status", "-n", "metacontroller", "statefulset/metacontroller", "--timeout=90s"); err != nil {
		return err
	}
	say("Metacontroller %s is ready", m.version)
	return nil
}

// metacontroller is a release of it: the one that the build made, or the
// caller's, since the Go module proxy serves none newer than 1.5.20.
type metacontroller struct{ version, binary, crds string }

func (l *lab) chooseMetacontroller() (metacontroller, error) {
	folder := filepath.Join(l.bin, "metacontroller-"+metacontrollerVersion)
	m := metacontroller{metacontrollerVersion, filepath.Join(folder, "metacontroller"), filepath.Join(folder, "crds.yaml")}
	if binary := os.Getenv("METACONTROLLER"); binary != "" {
		m.binary = binary
		m.version = strings.TrimPrefix(envOr("METACONTROLLER_VERSION", "4.0.0-own"), "v")
		m.crds = envOr("METACONTROLLER_CRDS", m.crds)
	}
	for _, file := range []string{m.binary, m.crds} {
		if !exists(file) {
			return m, fmt.Errorf("%s is not there; METACONTROLLER and METACONTROLLER_CRDS name files, or else: lab build metacontroller", file)
		}
	}
	if !isStatic(m.binary) {
		return m, fmt.Errorf("%s is no static Linux binary, and its image has no libraries; build it with CGO_ENABLED=0", m.binary)
	}
	return m, nil
}

// args: flags differ from version 2 on.
func (m metacontroller) args() []string {
	args := []string{"--discovery-interval=5s", "--client-go-qps=100", "--client-go-burst=200"}
	if strings.HasPrefix(m.version, "1.") {
		return append(args, "--debug-addr=:9999")
	}
	return append(args, "--metrics-address=:9999", "--health-probe-bind-address=:8081")
}
