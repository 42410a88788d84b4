//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

const quorateNamespace = "quorate-system"

// podsOfQuorate are those that run Quorate itself, also the ones that are being stopped.
func podsOfQuorate(t *testing.T) []corev1.Pod {
	t.Helper()
	return slices.DeleteFunc(list[corev1.Pod](t, quorateNamespace, "pods"), func(p corev1.Pod) bool {
		return p.Labels["app.kubernetes.io/name"] != "quorate"
	})
}

// quoratePods are those of them that stay.
func quoratePods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods := slices.DeleteFunc(podsOfQuorate(t), func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	require.NotEmpty(t, pods)
	return pods
}

// TestQuorateHasNoCredentials: nothing in Quorate's running pods speaks for them to the API server, and if it did, it
// could do no more than any user who may log in.
func TestQuorateHasNoCredentials(t *testing.T) {
	beside(t)
	for _, pod := range quoratePods(t) {
		require.NotNil(t, pod.Spec.AutomountServiceAccountToken)
		require.False(t, *pod.Spec.AutomountServiceAccountToken)
		for _, v := range pod.Spec.Volumes {
			require.Nil(t, v.Projected, "%s: volume %s", pod.Name, v.Name)
			require.NotNil(t, v.Secret, "%s: volume %s", pod.Name, v.Name)
			if v.Secret.SecretName == "quorate-traces" { // the authority of a collector, which need not be there
				require.True(t, *v.Secret.Optional)
				require.Equal(t, []corev1.KeyToPath{{Key: "CA", Path: "ca.crt"}}, v.Secret.Items)
				continue
			}
			require.Equal(t, "quorate-hooks", v.Secret.SecretName)
		}
		for _, c := range pod.Spec.Containers {
			for _, m := range c.VolumeMounts {
				require.Contains(t, []string{"/etc/quorate", "/etc/quorate-traces"}, m.MountPath,
					"and nothing at /var/run/secrets")
			}
		}
	}
	for _, namespace := range []string{"default", quorateNamespace, "kube-system"} {
		may := func(account string) string {
			return kube(t, "auth", "can-i", "--list", "-n", namespace, "--as=system:serviceaccount:"+quorateNamespace+
				":"+account)
		}
		require.Equal(t, may("no-such-account"), may("quorate"), "in %s", namespace)
	}
}

// caller is what is needed to call the lab's hooks as Metacontroller does.
type caller struct {
	address string // of the Service
	host    string
	token   string
	client  *http.Client
}

func newCaller(t *testing.T) caller {
	t.Helper()
	service, found := get[corev1.Service](t, quorateNamespace, "svc", "quorate")
	require.True(t, found)
	var secret corev1.Secret
	require.True(t, read(t, "/api/v1/namespaces/"+quorateNamespace+"/secrets/quorate-hooks", &secret))
	tokens := strings.Fields(string(secret.Data["tokens"]))
	c := caller{
		address: objects.HostPort(service.Spec.ClusterIP, int(service.Spec.Ports[0].Port)),
		host:    "quorate." + quorateNamespace + ".svc",
		token:   tokens[len(tokens)-1], client: lab.httpClient(),
	}
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(secret.Data["ca.crt"]))
	c.client.Timeout = patience
	c.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: roots, ServerName: c.host,
		MinVersion: tls.VersionTLS12}
	return c
}

// post calls a hook, and returns the code and text of the answer.
func (c caller) post(t *testing.T, scheme, hook, token string, body []byte) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://"+c.address+"/"+hook,
		bytes.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	code, text, err := said(c.client, request)
	require.NoError(t, err)
	return code, text
}

// heedsNoStranger: who reaches the hooks and does not know the token gets 401 and changes nothing in etcd, whatever it
// asks for; Metacontroller, whose calls the next story needs, goes on.
func (c *cluster) heedsNoStranger() {
	hooks := newCaller(c.t)
	before, ids := c.object(), c.ids()

	// A body that Metacontroller could have sent: this cluster, with one member to want and nothing there.
	parent := map[string]any{}
	require.True(c.t, read(c.t, fmt.Sprintf(paths["etcdcluster"], c.ns)+"/"+name, &parent))
	parent["spec"].(map[string]any)["replicas"] = 1
	body, err := json.Marshal(map[string]any{"parent": parent, "finalizing": false, "children": map[string]any{
		"Pod.v1": map[string]any{}, "PersistentVolumeClaim.v1": map[string]any{}, "ConfigMap.v1": map[string]any{},
		"Service.v1": map[string]any{}, "PodDisruptionBudget.policy/v1": map[string]any{},
	}})
	require.NoError(c.t, err)
	for _, token := range []string{"", "wrong-0123456789abcdef", hooks.token + "x"} {
		for _, hook := range []string{"sync", "finalize", "customize"} {
			code, text := hooks.post(c.t, "https", hook, token, body)
			require.Equal(c.t, 401, code, text)
			require.NotContains(c.t, text, hooks.token)
		}
	}
	code, text := hooks.post(c.t, "http", "sync", "", nil)
	require.Equal(c.t, 400, code, "plain HTTP: %s", text)
	code, text = hooks.post(c.t, "https", "customize", hooks.token, body)
	require.Equal(c.t, 200, code, "the same with the token: %s", text)
	code, _ = hooks.post(c.t, "https", "metrics", hooks.token, nil)
	require.Equal(c.t, 404, code, "metrics have a port of their own")

	require.Equal(c.t, ids, c.ids())
	require.Equal(c.t, before.Status.ClusterID, c.object().Status.ClusterID)
}

// TestTokenIsNowhere: the token is in its Secret, and in the URLs of the CompositeController where this
// Metacontroller can't read it from a Secret; not in a log, a metric, an event or a status.
func TestTokenIsNowhere(t *testing.T) {
	beside(t)
	hooks := newCaller(t)
	hidden := func(where, text string) {
		t.Helper()
		require.NotEmpty(t, text, where)
		for _, form := range []string{hooks.token, url.QueryEscape(hooks.token)} {
			require.NotContains(t, text, form, where)
		}
	}
	for _, pod := range quoratePods(t) {
		hidden("Quorate's log", kube(t, "-n", quorateNamespace, "logs", pod.Name))
		hidden("Quorate's metrics", kube(t, "get", "--raw", "/api/v1/namespaces/"+quorateNamespace+"/pods/"+pod.Name+
			":8081/proxy/metrics"))
	}
	for _, pod := range metacontrollerPods(t) {
		hidden("Metacontroller's log", kube(t, "-n", pod.Namespace, "logs", pod.Name))
		hidden("Metacontroller's metrics",
			kube(t, "get", "--raw", "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+":9999/proxy/metrics"))
	}
	hidden("events", kube(t, "get", "events", "-A", "-o", "yaml"))
	hidden("EtcdClusters", kube(t, "get", "etcdclusters", "-A", "-o", "yaml"))
	hidden("pods", kube(t, "get", "pods", "-A", "-o", "yaml"))
	hidden("ConfigMaps", kube(t, "get", "configmaps", "-A", "-o", "yaml"))
}

// TestTenantsAskForTooMuch: what reaches beyond a namespace is refused by the API server, by the list that the lab's
// Quorate is installed with.
func TestTenantsAskForTooMuch(t *testing.T) {
	beside(t)
	c := inNamespace(t)
	for spec, words := range map[string]string{
		"bootstrap: {external: {endpoints: " +
			"['http://127.0.0.1:2379']}}": "lets EtcdClusters join an etcd at 10.1.2.0/24, " +
			"10.244.0.0/16, 172.30.0.0/24 alone",
		"bootstrap: {external: {endpoints: ['http://169.254.169.254:80']}}":           "alone",
		"bootstrap: {external: {endpoints: ['http://10.96.0.1:443']}}":                "alone",
		"bootstrap: {external: {endpoints: ['http://kubernetes.default.svc:443']}}":   "alone",
		"bootstrap: {external: {endpoints: ['http://quorate:8080']}}":                 "alone",
		"bootstrap: {external: {endpoints: ['http://former." + c.ns + ".svc:2379']}}": "",
		"bootstrap: {external: {endpoints: ['http://172.30.0.1:2379']}}":              "",
		"tls: {mode: CertManager, certManager: {issuerRef: {name: x, kind: " +
			"ClusterIssuer}}}": "other namespaces can have certificates of this issuer too",
		"tls: {mode: CertManager, certManager: {issuerRef: {name: x}}}": "",
	} {
		object := "apiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdCluster\nmetadata: {name: greedy}\nspec:\n  " +
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
