package main

import (
	"fmt"
	"os"
	"strings"
)

// installMetacontroller gives the cluster a Metacontroller of its own: an image,
// CRDs, rights and a StatefulSet in the namespace metacontroller. It may be
// repeated, also with another version. With the argument "image" it only loads
// the image, for an installation of Quorate that brings its own Metacontroller.
func installMetacontroller(l *lab, args []string) error {
	imageAlone := len(args) == 1 && args[0] == "image"
	if len(args) > 0 && !imageAlone {
		return fmt.Errorf("usage: lab metacontroller [image]")
	}
	if _, err := l.running(); err != nil {
		return err
	}
	say := stopwatch()
	m, err := l.chooseMetacontroller()
	if err != nil {
		return err
	}
	image := l.metacontrollerImage(m)
	if _, err := l.buildImage(image); err != nil {
		return err
	}
	if imageAlone {
		return l.loadOn(l.tarOf(image))
	}
	crds, err := os.ReadFile(m.crds)
	if err != nil {
		return err
	}
	manifest, err := conf("metacontroller.yaml", map[string]any{
		"Image": image.refs[0], "Args": m.args(), "Old": strings.HasPrefix(m.version, "1."),
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
	if err := l.kubectl(nil, "rollout", "status", "-n", "metacontroller", "statefulset/metacontroller",
		"--timeout=90s"); err != nil {
		return err
	}
	say("Metacontroller %s is ready", m.version)
	return nil
}
