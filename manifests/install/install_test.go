package install

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http"
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

// installed are the objects that quorate install prints, by "Kind/name"; Metacontroller's roles in namespaces by "Role/name in namespace".
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
		name := o.Kind + "/" + o.Metadata.Name
		if strings.HasPrefix(name, "Role") && strings.HasPrefix(o.Metadata.Name, "quorate-metacontroller") { // there may be one in each of several namespaces
			name += " in " + o.Metadata.Namespace
		}
		require.NotEqual(t, "/", name)
		require.NotContains(t, objects, name, "twice")
		objects[name] = strings.TrimSpace(document)
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
	require.GreaterOrEqual(t, len(all), 2) // a schedule has no related objects
	return all
}

// controllers are the CompositeControllers, with the folder of their hooks.
var controllers = map[string]string{
	"CompositeController/quorate-etcdcluster":          "/",
	"CompositeController/quorate-etcdsnapshot":         "/snapshots/",
	"CompositeController/quorate-etcdsnapshotschedule": "/schedules/",
}

// TestInstalledPartsFit: a server that reads the Secret answers a Metacontroller of each age, that reads what it can read,
// and nobody else where that is possible.
func TestInstalledPartsFit(t *testing.T) {
	for version, c := range map[string]struct {
		bearer, inURL bool
		warns         string
	}{
		"4.16": {bearer: true}, "v5.0.1": {bearer: true},
		"4.15.2": {warns: "only the NetworkPolicy"}, "2.0": {warns: "only the NetworkPolicy"},
		"1.5.20": {inURL: true, warns: "let nobody read compositecontrollers"},
	} {
		t.Run(version, func(t *testing.T) {
			objects, stderr := installed(t, "--metacontroller", version, "--namespace", "etcd-ops", "--metacontroller-namespace", "mc")
			secret := readSecret(t, objects["Secret/quorate-hooks"])
			token := strings.TrimSpace(string(secret["tokens"]))
			require.Len(t, token, 43, "256 bits")
			require.Contains(t, stderr, "`quorate check --namespace=etcd-ops --metacontroller-namespace=mc` says whether it fits together")
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
				if name != "Secret/quorate-hooks" && name != "Secret/quorate-caller" && (!c.inURL || controllers[name] == "") {
					require.NotContains(t, document, token, name)
				}
				require.NotContains(t, document, "PRIVATE KEY", name)
			}
		})
	}
}

// serveInstalled runs quorate serve with the files of a Secret, and returns the address of its hooks.
func serveInstalled(t *testing.T, secret map[string][]byte, token bool) string {
	t.Helper()
	dir, env := t.TempDir(), map[string]string{"QUORATE_IMAGE": "i"}
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

// TestCertificateOfTheHooks: the authority that Metacontroller trusts vouches for this one host, and its key is nowhere.
func TestCertificateOfTheHooks(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	c, err := newCredentials("quorate.etcd-ops.svc", now)
	require.NoError(t, err)
	require.NoError(t, c.fit("quorate.etcd-ops.svc", now))
	require.NoError(t, c.fit("quorate.etcd-ops.svc", now.AddDate(9, 11, 0)), "nearly ten years")
	require.ErrorContains(t, c.fit("quorate.etcd-ops.svc", now.AddDate(10, 1, 0)), "expired")
	require.ErrorContains(t, c.fit("kubernetes.default.svc", now), "not kubernetes.default.svc")

	block, _ := pem.Decode(c.ca)
	authority, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	require.True(t, authority.PermittedDNSDomainsCritical)
	require.Equal(t, []string{"quorate.etcd-ops.svc"}, authority.PermittedDNSDomains)

	other, err := newCredentials("quorate.etcd-ops.svc", now)
	require.NoError(t, err)
	require.NotEqual(t, c.tokens, other.tokens)
	c.ca = other.ca
	require.ErrorContains(t, c.fit("quorate.etcd-ops.svc", now), "unknown authority")
}

// TestKeep: installed again with the Secret of the first time, everything is as it was; what can't be kept is refused.
func TestKeep(t *testing.T) {
	first, _ := installed(t)
	file := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(file, []byte(first["Secret/quorate-hooks"]), 0o600))
	again, _ := installed(t, "--keep", file)
	require.Equal(t, first, again)
	anew, _ := installed(t)
	require.NotEqual(t, first, anew)

	var out bytes.Buffer
	require.NoError(t, install(t.Context(), []string{"--keep=-"}, strings.NewReader(first["Secret/quorate-hooks"]), &out, io.Discard))
	require.Contains(t, out.String(), first["Secret/quorate-caller"])

	both := strings.Replace(first["Secret/quorate-hooks"], "  tokens: ", "  tokens: b2xkLTAxMjM0NTY3ODlhYmNkZWYK", 1) // another one before it
	require.NoError(t, os.WriteFile(file, []byte(both), 0o600))
	again, _ = installed(t, "--keep", file)
	require.Equal(t, first["Secret/quorate-caller"], again["Secret/quorate-caller"], "the last of two is what the caller sends")
	require.NotEqual(t, first["CompositeController/quorate-etcdcluster"], again["CompositeController/quorate-etcdcluster"])

	for says, c := range map[string]struct{ args, text string }{
		"no such file":       {"--keep=" + file + ".none", ""},
		"holds no Secret":    {"--keep=-", "kind: ConfigMap"},
		"it holds no tokens": {"--keep=-", "kind: Secret"},
		"are no certificate": {"--keep=-", strings.Replace(first["Secret/quorate-hooks"], "tls.key", "tls.kez", 1)},
		"not quorate.b.svc":  {"--keep=- --namespace=b", first["Secret/quorate-hooks"]},
		"must be a version":  {"--metacontroller=new", ""},
		"no other arguments": {"now", ""},
	} {
		err := install(t.Context(), strings.Fields(c.args), strings.NewReader(c.text), io.Discard, io.Discard)
		require.ErrorContains(t, err, says)
	}
}

// TestInstallImage: members' pods run what the server runs.
func TestInstallImage(t *testing.T) {
	objects, _ := installed(t, "--image=example.com/quorate:v9")
	require.Equal(t, 2, strings.Count(objects["Deployment/quorate"], "example.com/quorate:v9"))
	require.NotContains(t, objects["Deployment/quorate"], "ghcr.io")
}

// TestInstallFromAMirror: one flag changes where every image comes from, and those that are named by themselves stay so.
func TestInstallFromAMirror(t *testing.T) {
	for args, want := range map[string][2]string{
		"": {"ghcr.io/quorate-dev/quorate:v0.1.0", "gcr.io/etcd-development/etcd"},
		"--registry=registry.example:5000/mirror":                               {"registry.example:5000/mirror/quorate-dev/quorate:v0.1.0", "registry.example:5000/mirror/etcd-development/etcd"},
		"--registry=registry.example --etcd-repository=example.com/etcd":        {"registry.example/quorate-dev/quorate:v0.1.0", "example.com/etcd"},
		"--registry=registry.example --image=example.com/q@sha256:0123456789ab": {"example.com/q@sha256:0123456789ab", "registry.example/etcd-development/etcd"},
	} {
		objects, _ := installed(t, strings.Fields(args)...)
		var d appsv1.Deployment
		require.NoError(t, yaml.UnmarshalStrict([]byte(objects["Deployment/quorate"]), &d))
		c := d.Spec.Template.Spec.Containers[0]
		env := map[string]string{}
		for _, e := range c.Env {
			env[e.Name] = e.Value
		}
		require.Equal(t, want[0], c.Image, args)
		require.Equal(t, want[0], env["QUORATE_IMAGE"], args)
		require.Equal(t, want[1], env["QUORATE_ETCD_REPOSITORY"], args)
		if strings.HasPrefix(args, "--registry") {
			for name, document := range objects {
				require.NotContains(t, document, "ghcr.io/", name)
				require.NotRegexp(t, `(image|value): gcr\.io/`, document, name)
			}
		}
	}
	for args, says := range map[string]string{
		"--registry=https://registry.example":    "no https://",
		"--registry=registry.example/":           "no slash at its end",
		"--etcd-repository=example.com/etcd:v3":  "takes no tag",
		"--etcd-repository=example.com/e@sha256": "takes no tag",
	} {
		require.ErrorContains(t, install(t.Context(), []string{args}, nil, io.Discard, io.Discard), says)
		require.ErrorContains(t, listImages([]string{args}, io.Discard, io.Discard), says)
	}
	require.NoError(t, (&images{etcd: "registry.example:5000/etcd"}).check(), "a port is no tag")
}

// TestInstallAllowsRepositories: the server is told which repositories EtcdClusters may name, and
// reads what it is told.
func TestInstallAllowsRepositories(t *testing.T) {
	objects, _ := installed(t, "--allowed-image-repositories=r.example/mirror/,example.com:5000/etcd,r.example/mirror/")
	var d appsv1.Deployment
	require.NoError(t, yaml.UnmarshalStrict([]byte(objects["Deployment/quorate"]), &d))
	told := ""
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == "QUORATE_ALLOWED_IMAGE_REPOSITORIES" {
			told = e.Value
		}
	}
	require.Equal(t, "example.com:5000/etcd,r.example/mirror/", told)
	var v serving
	getenv := func(name string) string {
		return map[string]string{"QUORATE_ALLOWED_IMAGE_REPOSITORIES": told, "QUORATE_IMAGE": "q"}[name]
	}
	require.NoError(t, command.ParseWithEnv(v.flags(), nil, getenv))
	require.NoError(t, v.check())
	require.Equal(t, []string{"example.com:5000/etcd", "r.example/mirror/"}, v.options.Settings.AllowedRepositories)

	objects, _ = installed(t)
	require.NotContains(t, objects["Deployment/quorate"], "ALLOWED_IMAGE")
	for _, list := range []string{"https://r.example", "r.example/etcd:v3", "a,,b", "/", "r.example//", "$(KEY)", "a b"} {
		require.ErrorContains(t, install(t.Context(), []string{"--allowed-image-repositories=" + list}, nil, io.Discard, io.Discard), "--allowed-image-repositories must be", list)
		refused := serving{allowed: list}
		refused.options.Settings.Image = "q"
		require.ErrorContains(t, refused.check(), "--allowed-image-repositories must be", list)
	}
}

// TestImages: what is printed is what is pulled, and what a mirror must hold for --registry.
func TestImages(t *testing.T) {
	lines := func(args ...string) []string {
		var out bytes.Buffer
		require.Zero(t, run(t.Context(), append([]string{"images"}, args...), os.Getenv, &out, io.Discard))
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	all := lines()
	require.Equal(t, []string{
		"ghcr.io/quorate-dev/quorate:v0.1.0",
		"gcr.io/etcd-development/etcd:v3.5.35", "gcr.io/etcd-development/etcd:v3.6.16", "gcr.io/etcd-development/etcd:v3.7.3",
		"ghcr.io/metacontroller/metacontroller:v4.17.2",
	}, all)
	for n, image := range lines("--registry=registry.example/mirror") {
		_, path, _ := strings.Cut(all[n], "/")
		require.Equal(t, "registry.example/mirror/"+path, image)
	}
	require.Contains(t, lines("--etcd-repository=example.com/etcd"), "example.com/etcd:v3.6.16")
}

// TestTheServerIsToldWhoCalls: what the hook customize may answer depends on Metacontroller's version, and nothing in a call tells that.
func TestTheServerIsToldWhoCalls(t *testing.T) {
	for version, byUID := range map[string]bool{"4.16": true, "4.17.2": true, "v5.0": true, "4.15.1": false, "2.0": false, "1.5.20": false} {
		var out bytes.Buffer
		require.NoError(t, install(t.Context(), []string{"--metacontroller=" + version}, nil, &out, io.Discard))
		require.Equal(t, byUID, strings.Contains(out.String(), "name: QUORATE_METACONTROLLER"), version)
		v := serving{caller: version}
		v.options.Settings.Image = "i"
		v.options.MaxBody, v.options.CallTimeout = 1, 1
		require.NoError(t, v.check())
		require.Equal(t, byUID, v.options.RelatedByUID, version)
	}
	var v serving
	require.NoError(t, command.Parse(v.flags(), []string{"--image=i"}))
	require.NoError(t, v.check())
	require.False(t, v.options.RelatedByUID, "untold, it is the oldest: its answers depend on the name alone")
	v.caller = "newest"
	require.ErrorContains(t, v.check(), "must be a version such as 4.16 or 1.5.20")
}
