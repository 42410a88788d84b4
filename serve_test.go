package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/etcdops/command"
)

// installed are the objects that quorate install prints, by "Kind/name", and what it says besides.
func installed(t *testing.T, args ...string) (objects map[string]string, stderr string) {
	t.Helper()
	var out, errors bytes.Buffer
	require.Zero(t, run(t.Context(), append([]string{"install"}, args...), os.Getenv, &out, &errors), errors.String())
	objects = map[string]string{}
	for document := range strings.SplitSeq(strings.TrimPrefix(out.String(), "---\n"), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		objects[o.Kind+"/"+o.Metadata.Name] = strings.TrimSpace(document)
	}
	return objects, errors.String()
}

func readSecret(t *testing.T, document string) map[string][]byte {
	t.Helper()
	var s corev1.Secret
	require.NoError(t, yaml.UnmarshalStrict([]byte(document), &s))
	return s.Data
}

// webhook is what Metacontroller reads of a CompositeController.
type webhook struct {
	URL           string
	CABundle      struct{ Inline string }
	Authorization struct {
		SecretRef struct{ Name, Namespace, Key string }
	}
}

func webhooks(t *testing.T, document string) map[string]webhook {
	t.Helper()
	var c struct {
		Spec struct {
			Hooks map[string]struct{ Webhook webhook }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(document), &c))
	all := map[string]webhook{}
	for name, hook := range c.Spec.Hooks {
		all[name] = hook.Webhook
	}
	require.Len(t, all, 3)
	return all
}

// controllers are the CompositeControllers, with the folder of their hooks.
var controllers = map[string]string{
	"CompositeController/quorate-etcdcluster":          "/",
	"CompositeController/quorate-etcdsnapshot":         "/snapshots/",
	"CompositeController/quorate-etcdsnapshotschedule": "/schedules/",
	"CompositeController/quorate-etcdoperation":        "/operations/",
	"CompositeController/quorate-etcdmirror":           "/mirrors/",
}

// TestInstalledPartsFit: a server that reads the Secret answers a Metacontroller of each age, that reads what it can
// read, and no other caller where that is possible.
func TestInstalledPartsFit(t *testing.T) {
	for version, c := range map[string]struct {
		bearer, inURL bool
		warns         string
	}{
		"4.16": {bearer: true}, "v5.0.1": {bearer: true},
		"4.15.2": {warns: "only the NetworkPolicy"}, "2.0": {warns: "only the NetworkPolicy"},
		"1.5.20": {inURL: true, warns: "the right to read compositecontrollers"},
	} {
		t.Run(version, func(t *testing.T) {
			objects, stderr := installed(t, "--metacontroller-version", version, "--namespace", "etcd-ops",
				"--metacontroller-namespace", "mc")
			secret := readSecret(t, objects["Secret/quorate-hooks"])
			token := strings.TrimSpace(string(secret["tokens"]))
			require.Len(t, token, 43, "256 bits")
			require.Contains(t, stderr,
				"`quorate check --namespace=etcd-ops --metacontroller-namespace=mc` says whether it fits together")
			if c.warns == "" {
				require.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
			} else {
				require.Contains(t, stderr, c.warns)
				require.Contains(t, stderr, "ConfigMap mc/quorate-hook-ca")
				require.NotContains(t, stderr, token)
			}
			address := serveInstalled(t, secret, c.bearer || c.inURL)
			for controller, folder := range controllers {
				for hook, w := range webhooks(t, objects[controller]) {
					ca := []byte(w.CABundle.Inline)
					if !c.bearer {
						var trusted corev1.ConfigMap
						require.NoError(t, yaml.UnmarshalStrict([]byte(objects["ConfigMap/quorate-hook-ca"]), &trusted))
						require.Equal(t, "mc", trusted.Namespace)
						ca = []byte(trusted.Data["ca.crt"])
					}
					u, err := url.Parse(w.URL)
					require.NoError(t, err)
					require.Equal(t, "quorate.etcd-ops.svc", u.Host)
					require.Equal(t, folder+hook, u.Path)
					header := ""
					if c.bearer {
						ref := w.Authorization.SecretRef
						require.Equal(t, "etcd-ops", ref.Namespace)
						header = "Bearer " + string(readSecret(t, objects["Secret/"+ref.Name])[ref.Key])
					}
					require.Equal(t, 400, ask(t, address, ca, w.URL, header), "known, and the body is empty")
					u.User = nil
					if c.bearer || c.inURL {
						require.Equal(t, 401, ask(t, address, ca, u.String(), ""))
					} else {
						require.NotContains(t, w.URL, "@", "it would be shown in Metacontroller's metrics")
					}
				}
			}
			for name, document := range objects {
				if name != "Secret/quorate-hooks" && name != "Secret/quorate-caller" &&
					(!c.inURL || controllers[name] == "") {
					require.NotContains(t, document, token, name)
				}
				require.NotContains(t, document, "PRIVATE KEY", name)
			}
		})
	}
}

// serveInstalled runs quorate serve with the files of a Secret until the test ends, and returns the address of its
// hooks.
func serveInstalled(t *testing.T, secret map[string][]byte, token bool) string {
	t.Helper()
	dir := t.TempDir()
	env := map[string]string{"QUORATE_IMAGE": "i", "QUORATE_VERIFY": "1", "QUORATE_LOG_LEVEL": "debug"}
	for name, content := range secret {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	env["QUORATE_TLS_CERT"], env["QUORATE_TLS_KEY"] = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if token {
		env["QUORATE_TOKEN_FILE"] = filepath.Join(dir, "tokens")
	}
	hooks, pages := free(t), free(t)
	ctx, terminate := context.WithCancel(context.Background())
	code := make(chan int)
	var log bytes.Buffer
	go func() {
		code <- run(ctx, []string{"serve", "--listen", hooks, "--metrics-listen", pages, "--drain-delay=-1ns"},
			func(k string) string { return env[k] }, io.Discard, &log)
	}()
	t.Cleanup(func() {
		terminate()
		require.Zero(t, <-code)
		require.NotContains(t, log.String(), strings.TrimSpace(string(secret["tokens"])))
	})
	require.Eventually(t, func() bool {
		answer, err := http.Get("http://" + pages + "/readyz")
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
	}, 5*time.Second, 10*time.Millisecond)
	return hooks
}

// TestServeSendsTraces: by OpenTelemetry's variables, until the end.
func TestServeSendsTraces(t *testing.T) {
	got := make(chan string, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			got <- string(body)
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "quorate-of-a-test")
	t.Setenv("QUORATE_IMAGE", "i")
	hooks, pages := free(t), free(t)
	ctx, terminate := context.WithCancel(t.Context())
	code := make(chan int)
	var log bytes.Buffer
	go func() {
		code <- run(ctx, []string{"serve", "--listen", hooks, "--metrics-listen", pages, "--drain-delay=-1ns"}, os.Getenv,
			io.Discard, &log)
	}()
	require.Eventually(t, func() bool {
		answer, err := http.Post("http://"+hooks+"/customize", "application/json", http.NoBody)
		return err == nil && answer.Body.Close() == nil && answer.StatusCode == http.StatusBadRequest
	}, 5*time.Second, 10*time.Millisecond)
	terminate()
	require.Zero(t, <-code)
	require.NotContains(t, log.String(), "traces")
	body := <-got
	require.Contains(t, body, "/customize")
	require.Contains(t, body, "quorate-of-a-test")
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

// ask posts nothing to the URL, at this address whatever its host, and returns the code; a customize hook takes that.
func ask(t *testing.T, address string, ca []byte, url, header string) int {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(ca))
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	require.NoError(t, err)
	if header != "" {
		request.Header.Set("Authorization", header)
	}
	answer, err := client.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	if strings.HasSuffix(url, "/customize") && answer.StatusCode == http.StatusOK {
		return http.StatusBadRequest
	}
	return answer.StatusCode
}

// told is what quorate serve reads in the Deployment that quorate install prints.
func told(t *testing.T, objects map[string]string) serving {
	t.Helper()
	var d appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict([]byte(objects["Deployment/quorate"]), &d))
	env := map[string]string{}
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	var v serving
	require.NoError(t, command.ParseWithEnv(v.flags(), nil, func(name string) string { return env[name] }))
	require.NoError(t, v.check())
	return v
}

// refuse: neither quorate install nor quorate serve takes this flag, and both say the same.
func refuse(t *testing.T, flag, says string) {
	t.Helper()
	for _, args := range [][]string{{"install", flag}, {"serve", "--image=q", flag}} {
		var out bytes.Buffer
		require.Equal(t, command.Failed, run(t.Context(), args, unset, &out, &out))
		require.Contains(t, out.String(), "quorate: "+says, args)
	}
}

func unset(string) string { return "" }

// TestInstallAllowsRepositories: the server is told which repositories EtcdClusters may name, and
// reads what it is told.
func TestInstallAllowsRepositories(t *testing.T) {
	objects, _ := installed(t, "--allowed-image-repositories=r.example/mirror/,example.com:5000/etcd,r.example/mirror/")
	require.Equal(t, []string{"example.com:5000/etcd", "r.example/mirror/"},
		told(t, objects).options.Settings.AllowedRepositories)

	objects, _ = installed(t)
	require.NotContains(t, objects["Deployment/quorate"], "ALLOWED_IMAGE")
	for _, list := range []string{"https://r.example", "r.example/etcd:v3", "a,,b", "/", "r.example//", "$(KEY)",
		"a b"} {
		refuse(t, "--allowed-image-repositories="+list, "--allowed-image-repositories must be")
	}
}

// TestTheServerIsToldWhoCalls: what the hook customize may answer depends on Metacontroller's version, and nothing in a
// call tells that.
func TestTheServerIsToldWhoCalls(t *testing.T) {
	for version, byUID := range map[string]bool{
		"4.16": true, "4.17.2": true, "v5.0": true, "4.15.1": false, "2.0": false, "1.5.20": false,
	} {
		objects, _ := installed(t, "--metacontroller-namespace=mc", "--metacontroller-version="+version)
		require.Equal(t, byUID, strings.Contains(objects["Deployment/quorate"], "name: QUORATE_METACONTROLLER_VERSION"),
			version)
		require.Equal(t, byUID, told(t, objects).options.RelatedByUID, version)
		var v serving
		require.NoError(t, command.Parse(v.flags(), []string{"--image=i", "--metacontroller-version=" + version}))
		require.NoError(t, v.check())
		require.Equal(t, byUID, v.options.RelatedByUID, version)
	}
	var v serving
	require.NoError(t, command.Parse(v.flags(), []string{"--image=i"}))
	require.NoError(t, v.check())
	require.False(t, v.options.RelatedByUID, "untold, it is the oldest: its answers depend on the name alone")
	refuse(t, "--metacontroller-version=newest", "--metacontroller-version must be a version such as 4.16 or 1.5.20")
}

// TestTheServerIsToldItsScope: namespaces and selector are those of the installation.
func TestTheServerIsToldItsScope(t *testing.T) {
	objects, _ := installed(t, "--namespaces=shop,billing,shop", "--selector=a in (b,c)")
	scope := told(t, objects).options.Scope
	require.Equal(t, []string{"billing", "shop"}, scope.Namespaces)
	require.Equal(t, "a in (b,c)", scope.Selector.String())
	refuse(t, "--namespaces=a,,b", "--namespaces must be names of namespaces")
}

// TestWhatTenantsMayAskFor: nothing beyond their namespace by default; what is allowed, policy and server are told
// alike.
func TestWhatTenantsMayAskFor(t *testing.T) {
	const policy = "ValidatingAdmissionPolicy/quorate-allowed-etcd-endpoints"
	objects, _ := installed(t)
	settings := told(t, objects).options.Settings
	require.Nil(t, settings.AllowedEndpoints)
	require.False(t, settings.SharedIssuers)
	require.Contains(t, objects[policy], "|| false)")
	require.Contains(t, objects[policy], "join an etcd nowhere")
	require.Contains(t, objects, "ValidatingAdmissionPolicy/quorate-shared-issuers")

	objects, _ = installed(t, "--allowed-etcd-endpoints=.example.com,10.1.0.0/16", "--shared-issuers", "--selector=a=b")
	settings = told(t, objects).options.Settings
	require.Equal(t, ".example.com,10.1.0.0/16", settings.AllowedEndpoints.String())
	require.True(t, settings.SharedIssuers)
	require.NotContains(t, objects[policy], "|| false)")
	require.Contains(t, objects[policy], "join an etcd at .example.com, 10.1.0.0/16 alone (")
	require.Contains(t, objects[policy], "objectSelector:\n      matchLabels:\n        a: b\n")
	require.NotContains(t, objects, "ValidatingAdmissionPolicy/quorate-shared-issuers")
	require.NotContains(t, objects, "ValidatingAdmissionPolicyBinding/quorate-shared-issuers")

	for _, bad := range []string{"*", "10.1.2.3", "former.shop.svc", "127.0.0.0/8", "https://a"} {
		refuse(t, "--allowed-etcd-endpoints="+bad, "--allowed-etcd-endpoints: \""+bad+"\"")
	}
}

// TestDomainIn: a pod's resolv.conf tells the domain of the Kubernetes cluster, and that of a host none.
func TestDomainIn(t *testing.T) {
	for resolv, want := range map[string]string{
		"nameserver 10.96.0.10\nsearch quorate-system.svc.lab.internal svc.lab.internal lab.internal\noptions ndots:5\n": "lab.internal",
		"search a.svc.cluster.local. svc.cluster.local. cluster.local.":                                                  "cluster.local",
		"search example.com\n": "",
		"# search svc.x":       "",
		"":                     "",
	} {
		if is := domainIn(resolv); is != want {
			t.Errorf("%q: %q instead of %q", resolv, is, want)
		}
	}
}
