//go:build linux

package main

import (
	"os"
	"path/filepath"
)

// installCertManager builds cert-manager, if need be, and installs it: an image, CRDs, one Deployment and its
// webhook. It may be repeated.
func installCertManager(l *lab, _ []string) error {
	if _, err := l.running(); err != nil {
		return err
	}
	say := stopwatch()
	if err := l.build([]string{"cert-manager"}); err != nil {
		return err
	}
	folder := filepath.Join(l.bin, "cert-manager-"+certManagerVersion)
	image := labImage{file: "cert-manager-" + certManagerVersion, optional: true, image: image{
		refs:       []string{"localhost/cert-manager:v" + certManagerVersion},
		entrypoint: []string{"/cert-manager"},
		user:       "65532",
		content:    []string{filepath.Join(folder, "cert-manager") + "=/cert-manager", "tmp/"},
	}}
	if _, err := l.buildImage(image); err != nil {
		return err
	}
	crds, err := os.ReadFile(filepath.Join(folder, "crds.yaml"))
	if err != nil {
		return err
	}
	manifest, err := conf("cert-manager.yaml",
		map[string]any{"Image": image.refs[0], "Content": digest([]byte(image.inputs()))})
	if err != nil {
		return err
	}
	if err := all(
		func() error { return l.loadOn(l.tarOf(image)) },
		func() error { return l.kubectl(crds, "apply", "--server-side", "--force-conflicts", "-f", "-") },
	); err != nil {
		return err
	}
	if err := l.kubectl(nil, "wait", "--for=condition=Established", "--timeout=30s", "crd",
		"certificates.cert-manager.io", "certificaterequests.cert-manager.io", "issuers.cert-manager.io",
		"clusterissuers.cert-manager.io"); err != nil {
		return err // cert-manager ends where it does not find them
	}
	say("image loaded, CRDs applied")
	if err := l.kubectl(manifest, "apply", "-f", "-"); err != nil {
		return err
	}
	for _, wait := range [][]string{
		{"rollout", "status", "-n", "cert-manager", "deployment/cert-manager", "--timeout=90s"},
		// Until then the API server trusts no webhook, and refuses every Certificate.
		{"wait", "--for=jsonpath={.webhooks[0].clientConfig.caBundle}", "--timeout=60s",
			"validatingwebhookconfiguration/cert-manager-webhook", "mutatingwebhookconfiguration/cert-manager-webhook"},
	} {
		if err := l.kubectl(nil, wait...); err != nil {
			l.shows("get", "pods", "-n", "cert-manager")
			l.shows("logs", "-n", "cert-manager", "deployment/cert-manager", "--all-containers", "--prefix",
				"--tail=50")
			return err
		}
	}
	say("cert-manager %s is ready", certManagerVersion)
	return nil
}
