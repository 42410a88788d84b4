//go:build linux

package main

import "path/filepath"

// installCertManager builds cert-manager, if need be, and installs it: an image, CRDs, one Deployment and its
// webhook.
func installCertManager(l *lab, _ []string) error {
	if _, err := l.running(); err != nil {
		return err
	}
	if err := l.build([]string{"cert-manager"}); err != nil {
		return err
	}
	folder := filepath.Join(l.bin, "cert-manager-"+certManagerVersion)
	return l.install(installation{
		what: "cert-manager " + certManagerVersion, namespace: "cert-manager",
		image: labImage{file: "cert-manager-" + certManagerVersion, optional: true, image: image{
			refs:       []string{"localhost/cert-manager:v" + certManagerVersion},
			entrypoint: []string{"/cert-manager"},
			user:       "65532",
			content:    []string{filepath.Join(folder, "cert-manager") + "=/cert-manager", "tmp/"},
		}},
		crds: filepath.Join(folder, "crds.yaml"),
		// It ends where it does not find them.
		kinds: []string{"certificates.cert-manager.io", "certificaterequests.cert-manager.io",
			"issuers.cert-manager.io", "clusterissuers.cert-manager.io"},
		manifest: "cert-manager.yaml", values: map[string]any{},
		waits: [][]string{
			{"rollout", "status", "-n", "cert-manager", "deployment/cert-manager", "--timeout=90s"},
			// Until then the API server trusts no webhook, and refuses every Certificate.
			{"wait", "--for=jsonpath={.webhooks[0].clientConfig.caBundle}", "--timeout=60s",
				"validatingwebhookconfiguration/cert-manager-webhook",
				"mutatingwebhookconfiguration/cert-manager-webhook"},
		},
	})
}
