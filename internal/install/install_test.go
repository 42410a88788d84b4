package install

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/internal/kubectl"
)

// run is quorate install with these arguments: what it prints, and what it says besides.
func run(t *testing.T, stdin string, args ...string) (out, said string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	err = Run(t.Context(), kubectl.New("devel", &stdout, &stderr), args, strings.NewReader(stdin))
	return stdout.String(), stderr.String(), err
}

// existing names a Metacontroller that is there.
const existing = "--metacontroller-namespace=metacontroller"

// refuses: quorate install says this of these arguments.
func refuses(t *testing.T, says string, args ...string) {
	t.Helper()
	_, _, err := run(t, "", args...)
	require.ErrorContains(t, err, says, args)
}

// installed are the objects that quorate install prints, by "Kind/name"; Metacontroller's roles in namespaces by
// "Role/name in namespace".
func installed(t *testing.T, args ...string) map[string]string {
	t.Helper()
	out, _, err := run(t, "", args...)
	require.NoError(t, err)
	objects := map[string]string{}
	for document := range strings.SplitSeq(strings.TrimPrefix(out, "---\n"), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name, Namespace string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &o))
		name := o.Kind + "/" + o.Metadata.Name
		// There may be one in each of several namespaces.
		if strings.HasPrefix(name, "Role") && strings.HasPrefix(o.Metadata.Name, "quorate-metacontroller") {
			name += " in " + o.Metadata.Namespace
		}
		require.NotEqual(t, "/", name)
		require.NotContains(t, objects, name, "twice")
		objects[name] = strings.TrimSpace(document)
	}
	return objects
}

// TestCertificateOfTheHooks: the authority that Metacontroller trusts vouches for this one host, and its key is
// nowhere.
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
	first := installed(t)
	file := filepath.Join(t.TempDir(), "secret.yaml")
	require.NoError(t, os.WriteFile(file, []byte(first["Secret/quorate-hooks"]), 0o600))
	again := installed(t, "--keep", file)
	require.Equal(t, first, again)
	other := installed(t)
	require.NotEqual(t, first, other)

	out, _, err := run(t, first["Secret/quorate-hooks"], "--keep=-")
	require.NoError(t, err)
	require.Contains(t, out, first["Secret/quorate-caller"])

	// Another one before it.
	both := strings.Replace(first["Secret/quorate-hooks"], "  tokens: ", "  tokens: b2xkLTAxMjM0NTY3ODlhYmNkZWYK", 1)
	require.NoError(t, os.WriteFile(file, []byte(both), 0o600))
	again = installed(t, "--keep", file)
	require.Equal(t, first["Secret/quorate-caller"], again["Secret/quorate-caller"],
		"the last of two is what the caller sends")
	require.NotEqual(t, first["CompositeController/quorate-etcdcluster"],
		again["CompositeController/quorate-etcdcluster"])

	// One of before there were keys for records gets one.
	without := regexp.MustCompile(`(?m)^  records: .*\n`).ReplaceAllString(first["Secret/quorate-hooks"], "")
	require.NoError(t, os.WriteFile(file, []byte(without), 0o600))
	require.Contains(t, installed(t, "--keep", file)["Secret/quorate-hooks"], "\n  records: ")

	for says, c := range map[string]struct{ args, text string }{
		"no such file":       {"--keep=" + file + ".none", ""},
		"holds no Secret":    {"--keep=-", "kind: ConfigMap"},
		"it holds no tokens": {"--keep=-", "kind: Secret"},
		"are no certificate": {"--keep=-", strings.Replace(first["Secret/quorate-hooks"], "tls.key", "tls.kez", 1)},
		"not quorate.b.svc":  {"--keep=- --namespace=b", first["Secret/quorate-hooks"]},
		"must be a version":  {"--metacontroller-version=new", ""},
		"no other arguments": {"now", ""},
	} {
		_, _, err := run(t, c.text, strings.Fields(c.args)...)
		require.ErrorContains(t, err, says)
	}
}

// TestInstallImage: members' pods run what the server runs.
func TestInstallImage(t *testing.T) {
	objects := installed(t, "--image=example.com/quorate:v9")
	require.Equal(t, 2, strings.Count(objects["Deployment/quorate"], "example.com/quorate:v9"))
	require.NotContains(t, objects["Deployment/quorate"], "ghcr.io")
}

// TestInstallFromAMirror: one flag changes where every image comes from, and those that are named by themselves stay
// so.
func TestInstallFromAMirror(t *testing.T) {
	for args, want := range map[string][2]string{
		"": {"ghcr.io/quorate-dev/quorate:v0.1.0", "gcr.io/etcd-development/etcd"},
		"--registry=r.example:5000/mirror": {
			"r.example:5000/mirror/quorate-dev/quorate:v0.1.0", "r.example:5000/mirror/etcd-development/etcd",
		},
		"--registry=r.example --etcd-repository=example.com/etcd": {
			"r.example/quorate-dev/quorate:v0.1.0", "example.com/etcd",
		},
		"--registry=r.example --image=example.com/q@sha256:0123456789ab": {
			"example.com/q@sha256:0123456789ab", "r.example/etcd-development/etcd",
		},
	} {
		objects := installed(t, strings.Fields(args)...)
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
		refuses(t, says, args)
		require.ErrorContains(t, ListImages([]string{args}, io.Discard, io.Discard), says)
	}
	require.NoError(t, CheckImages("", "registry.example:5000/etcd"), "a port is no tag")
}

// TestImages: what is printed is what is pulled, and what a mirror must hold for --registry.
func TestImages(t *testing.T) {
	lines := func(args ...string) []string {
		var out bytes.Buffer
		require.NoError(t, ListImages(args, &out, io.Discard))
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	all := lines()
	require.Equal(t, []string{
		"ghcr.io/quorate-dev/quorate:v0.1.0",
		"gcr.io/etcd-development/etcd:v3.5.35",
		"gcr.io/etcd-development/etcd:v3.6.16",
		"gcr.io/etcd-development/etcd:v3.7.3",
		"ghcr.io/metacontroller/metacontroller:v4.17.2",
	}, all)
	for n, image := range lines("--registry=registry.example/mirror") {
		_, path, _ := strings.Cut(all[n], "/")
		require.Equal(t, "registry.example/mirror/"+path, image)
	}
	require.Contains(t, lines("--etcd-repository=example.com/etcd"), "example.com/etcd:v3.6.16")
}
