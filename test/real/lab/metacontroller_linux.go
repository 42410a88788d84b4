package main

import (
	"fmt"
	"os"
	"strings"
)

// installation is something that the lab installs into the cluster: an image, kinds, and a manifest in conf/ that gets
// its values, with the name of the image and a sum of its content, so that another binary under the same name is rolled
// out too. It may be repeated.
type installation struct {
	what, namespace string
	image           labImage
	crds            string // a file
	kinds           []string
	manifest        string
	values          map[string]any
	waits           [][]string // for kubectl
}

func (l *lab) install(i installation) error {
	say := stopwatch()
	if _, err := l.buildImage(i.image); err != nil {
		return err
	}
	crds, err := os.ReadFile(i.crds)
	if err != nil {
		return err
	}
	i.values["Image"], i.values["Content"] = i.image.refs[0], digest([]byte(i.image.inputs()))
	manifest, err := conf(i.manifest, i.values)
	if err != nil {
		return err
	}
	if err := all(
		func() error { return l.loadOn(l.tarOf(i.image)) },
		func() error { return l.kubectl(crds, "apply", "--server-side", "--force-conflicts", "-f", "-") },
	); err != nil {
		return err
	}
	established := append([]string{"wait", "--for=condition=Established", "--timeout=30s", "crd"}, i.kinds...)
	if err := l.kubectl(nil, established...); err != nil {
		return err
	}
	say("image loaded, CRDs applied")
	if err := l.kubectl(manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	for _, wait := range i.waits {
		if err := l.kubectl(nil, wait...); err != nil {
			l.shows("get", "pods", "-n", i.namespace)
			l.shows("logs", "-n", i.namespace, "--selector=app.kubernetes.io/name="+i.namespace, "--all-containers",
				"--prefix", "--tail=50")
			return err
		}
	}
	say("%s is ready", i.what)
	return nil
}

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
	m, err := l.chooseMetacontroller()
	if err != nil {
		return err
	}
	image := l.metacontrollerImage(m)
	if imageAlone {
		if _, err := l.buildImage(image); err != nil {
			return err
		}
		return l.loadOn(l.tarOf(image))
	}
	return l.install(installation{
		what: "Metacontroller " + m.version, namespace: "metacontroller", image: image, crds: m.crds,
		kinds:    []string{"compositecontrollers.metacontroller.k8s.io", "decoratorcontrollers.metacontroller.k8s.io"},
		manifest: "metacontroller.yaml",
		values:   map[string]any{"Args": m.args(), "Old": strings.HasPrefix(m.version, "1.")},
		waits:    [][]string{{"rollout", "status", "-n", "metacontroller", "statefulset/metacontroller", "--timeout=90s"}},
	})
}
