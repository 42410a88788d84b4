//go:build e2e

package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestTenantsAskForTooMuch: what reaches beyond a namespace is refused by the API server, by the list that the lab's
// Quorate is installed with.
func TestTenantsAskForTooMuch(t *testing.T) {
	beside(t)
	c := inNamespace(t)
	for spec, words := range map[string]string{
		"bootstrap: {existing: {endpoints: " +
			"['http://127.0.0.1:2379']}}": "lets EtcdClusters join an etcd at 10.1.2.0/24, " +
			"10.244.0.0/16, 172.30.0.0/24 alone",
		"bootstrap: {existing: {endpoints: ['http://169.254.169.254:80']}}":           "alone",
		"bootstrap: {existing: {endpoints: ['http://10.96.0.1:443']}}":                "alone",
		"bootstrap: {existing: {endpoints: ['http://kubernetes.default.svc:443']}}":   "alone",
		"bootstrap: {existing: {endpoints: ['http://quorate:8080']}}":                 "alone",
		"bootstrap: {existing: {endpoints: ['http://former." + c.ns + ".svc:2379']}}": "",
		"bootstrap: {existing: {endpoints: ['http://172.30.0.1:2379']}}":              "",
		"tls: {mode: CertManager, certManager: {issuerRef: {name: x, kind: " +
			"ClusterIssuer}}}": "other namespaces can have certificates of this issuer too",
		"tls: {mode: CertManager, certManager: {issuerRef: {name: x}}}": "",
	} {
		object := "apiVersion: etcd.quorate.dev/v1alpha1\nkind: EtcdCluster\nmetadata: {name: greedy}\nspec:\n  " +
			"version: 3.6.16\n  " + spec + "\n"
		_, err := kubectl(object, "-n", c.ns, "apply", "--dry-run=server", "-f", "-")
		if words == "" {
			require.NoError(t, err, spec)
		} else {
			require.ErrorContains(t, err, words, spec)
		}
	}
}

// TestNoKeyInAnAnnotation: kubectl describe prints annotations of Secrets, and Metacontroller's is one. When a
// cluster has come to rest, and when its certificates have been renewed, none has a key in it, and the Secrets hold
// what they should.
func TestNoKeyInAnAnnotation(t *testing.T) {
	beside(t)
	c := inNamespace(t)
	c.apply("  replicas: 1\n  version: 3.6.16\n  tls: {auto: {leafDuration: 3m}}\n")
	c.converges(1)
	noKeys := func() string {
		for _, s := range list[corev1.Secret](t, c.ns, "secrets") {
			if !strings.HasPrefix(s.Name, name+"-") {
				continue
			}
			note := s.Annotations["metacontroller.k8s.io/last-applied-configuration"]
			if note == "" || strings.Contains(note, "PRIVATE KEY") || strings.Contains(note, "tls.key") {
				return s.Name + " has a key in its annotation, or no annotation"
			}
			if strings.HasSuffix(s.Name, "-tls") && (len(s.Data["tls.key"]) == 0 || len(s.Data["ca.crt"]) == 0) {
				return s.Name + " lacks a key"
			}
		}
		return ""
	}
	eventually(t, "no annotation has a key", noKeys)
	first := string(c.secretOf(name + "-server-tls")["tls.crt"])
	eventually(t, "the certificate is renewed", func() string {
		return while(string(c.secretOf(name + "-server-tls")["tls.crt"]) == first, "not yet")
	})
	eventually(t, "no annotation has a key of the next certificate", noKeys)
	described := c.kube("describe", "secrets")
	assert.NotContains(t, described, "PRIVATE KEY")
	assert.NotContains(t, described, "LS0tLS1CRUdJTi") // base64 of -----BEGIN
}
