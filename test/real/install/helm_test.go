//go:build e2e

package install

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const chart = "../../../manifests/chart"

func helm(t *testing.T, namespace string, args ...string) {
	t.Helper()
	_, err := command("", "../../../bin/helm", append(args, "--namespace", namespace, "--wait", patient)...)
	require.NoError(t, err)
}

func credentials(t *testing.T, namespace string) string {
	t.Helper()
	return kube(t, "-n", namespace, "get", "secret", "quorate-hooks", "-o", "jsonpath={.data}")
}

// An older release, as it were: it has no short name for EtcdClusters.
const (
	shortName   = "    shortNames:\n    - qetcd\n"
	noShortName = `[{"op": "remove", "path": "/spec/names/shortNames"}]`
)

func olderChart(t *testing.T) string {
	t.Helper()
	older := t.TempDir()
	require.NoError(t, os.CopyFS(older, os.DirFS(chart)))
	file := older + "/templates/crds.yaml"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), shortName))
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(text), shortName, "", 1)), 0o600))
	return older
}

func shortNames(t *testing.T) string {
	t.Helper()
	return kube(t, "get", "crd", "etcdclusters.etcd.quorate.dev", "-o", "jsonpath={.spec.names.shortNames}")
}

// TestNotBesideAnother: a user whose Kubernetes has a Metacontroller that would call Quorate too is told so by helm and
// by quorate install, before anything is there, and how to use that one.
func TestNotBesideAnother(t *testing.T) {
	_, err := command("", "../../../bin/helm", "install", "quorate", chart, "--namespace=quorate-system",
		"--create-namespace")
	if isOld {
		require.ErrorContains(t, err, "of a version before 4.16")
	} else {
		require.ErrorContains(t, err, "StatefulSet metacontroller/metacontroller is a Metacontroller that would call "+
			"Quorate too: to use it, set metacontroller.enabled to false")
	}
	_, err = command("", "../../../bin/quorate", "install", "--apply")
	require.ErrorContains(t, err, "StatefulSet metacontroller/metacontroller; add "+existing+" to use it")
	becomes(t, "", "get", "namespace", "quorate-system", "--ignore-not-found", "-o", "name")
	becomes(t, "", append([]string{"get", "crd", "--ignore-not-found", "-o", "name"}, ourKinds...)...)
}

// TestHelm: a user installs the chart, makes a cluster, upgrades the release with other values, takes it away and
// installs it again. The kinds are upgraded with it. No member restarts by any of it, the certificate and the token
// stay, and the upgraded Quorate does its work.
func TestHelm(t *testing.T) {
	removesQuorate(t, "etcd-ops")
	helm(t, "etcd-ops", "install", "quorate", olderChart(t), "--create-namespace", "--set", there)
	require.Empty(t, shortNames(t))
	restartMetacontroller(t) // as docs/explanation/security.md says
	kube(t, "apply", "-f", "../../../manifests/samples/etcdcluster.yaml")
	converges(t, "default", "demo", "3/3")
	fits(t, "etcd-ops")
	pods, before := members(t, "default", "demo"), credentials(t, "etcd-ops")

	helm(t, "etcd-ops", "upgrade", "quorate", chart, "--set", there, "--set",
		"verify=true,replicas=1,namespaces={default}")
	require.Equal(t, `["qetcd"]`, shortNames(t), "the kinds are upgraded")
	const server = `jsonpath={.status.updatedReplicas}/{.status.replicas} {range .spec.template.spec.containers[0].env[*]}{.name}={.value},{end}`
	// helm does not wait for those who leave
	kube(t, "-n", "etcd-ops", "rollout", "status", "deployment/quorate", patient)
	now := kube(t, "-n", "etcd-ops", "get", "deployment", "quorate", "-o", server)
	for _, want := range []string{"1/1 ", "QUORATE_VERIFY=true,", "QUORATE_NAMESPACES=default,"} {
		require.Contains(t, now, want)
	}
	require.Equal(t, before, credentials(t, "etcd-ops"))
	require.Equal(t, "no", mayMetacontroller("etcd-ops", "create", "pods"))
	require.Equal(t, pods, members(t, "default", "demo"), "no member restarted")
	// and it comes back: Metacontroller and the new Quorate know each other, and may do what they must
	kube(t, "delete", "pod", "demo-0")
	becomes(t, "true", "get", "pod", "demo-0", "-o", "jsonpath={.status.containerStatuses[0].ready}")
	converges(t, "default", "demo", "3/3")
	after := members(t, "default", "demo")
	require.Equal(t, strings.Split(pods, "\n")[1:], strings.Split(after, "\n")[1:], "the others did not restart")
	require.NotEqual(t, pods, after)

	helm(t, "etcd-ops", "uninstall", "quorate")
	assert.Equal(t, after, members(t, "default", "demo"), "the members run on")
	assert.Equal(t, "3/3", kube(t, "get", "etcdcluster", "demo", "-o", "jsonpath={.status.readyReplicas}/{.spec.replicas}"),
		"and their EtcdCluster is there")
	becomes(t, "", "-n", "etcd-ops", "get", "all,secrets", "-l", "app.kubernetes.io/name=quorate", "-o", "name")

	kube(t, "patch", "crd", "etcdclusters.etcd.quorate.dev", "--type=json", "-p", noShortName)
	helm(t, "etcd-ops", "install", "quorate", chart, "--set", there) // the kinds are still its own
	restartMetacontroller(t)                                         // certificate and token are others
	require.Equal(t, `["qetcd"]`, shortNames(t), "the kinds that stayed are upgraded")
	require.NotEqual(t, before, credentials(t, "etcd-ops"))
	kube(t, "delete", "pod", "demo-0")
	becomes(t, "true", "get", "pod", "demo-0", "-o", "jsonpath={.status.containerStatuses[0].ready}")
	forgets(t, "demo")
	helm(t, "etcd-ops", "uninstall", "quorate")
}

// TestOneNamespace: a user installs Quorate for one namespace. A cluster elsewhere is refused in words that say
// why; Metacontroller may write there and nowhere else, and that is enough. Later they go on with helm, and no member
// notices.
func TestOneNamespace(t *testing.T) {
	removesQuorate(t, "quorate-system", "shop")
	kube(t, "create", "namespace", "shop")
	apply(t, printed(t, existing, "--metacontroller-version="+metacontroller, "--namespaces=shop",
		"--allowed-image-repositories=gcr.io/etcd-development/"))
	restartMetacontroller(t)
	becomes(t, "2", "-n", "quorate-system", "get", "deployment", "quorate", "-o", "jsonpath={.status.readyReplicas}")
	apply(t, inMemory("shop", "cart"))
	converges(t, "shop", "cart", "1/1")
	_, err := command(inMemory("default", "cart"), "kubectl", "apply", "-f", "-")
	require.ErrorContains(t, err, "Quorate was installed for the namespaces shop alone: it would not look after "+
		"EtcdCluster cart in namespace default")
	for _, resource := range []string{"pods", "persistentvolumeclaims", "secrets", "etcdsnapshots.etcd.quorate.dev"} {
		require.Equal(t, "yes", mayMetacontroller("shop", "create", resource))
		require.Equal(t, "no", mayMetacontroller("default", "create", resource))
	}
	fits(t, "quorate-system")
	pods, before := members(t, "shop", "cart"), credentials(t, "quorate-system")
	from := func(repository string) {
		kube(t, "-n", "shop", "patch", "etcdcluster", "cart", "--type=merge", "-p", `{"spec":{"image":{"repository":`+
			repository+`}}}`)
	}
	stalled := func(field string) []string {
		return []string{"-n", "shop", "get", "etcdcluster", "cart", "-o", `jsonpath={.status.conditions[?(@.type=="Stalled")].` + field + "}"}
	}
	from(`"elsewhere.example/etcd"`)
	becomes(t, "True", stalled("status")...)
	require.Contains(t, kube(t, stalled("message")...), "this installation of Quorate does not allow spec.image.repository")
	from("null")
	becomes(t, "False", stalled("status")...)
	require.Equal(t, pods, members(t, "shop", "cart"), "no pod ran an image from elsewhere")
	kube(t, "patch", "crd", "etcdclusters.etcd.quorate.dev", "--type=json", "-p", noShortName)
	resync := []string{"compositecontroller", "quorate-etcdcluster"}
	kube(t, append([]string{"patch", "--type=merge", "-p", `{"spec":{"resyncPeriodSeconds":300}}`}, resync...)...)

	helm(t, "quorate-system", "install", "quorate", chart, "--take-ownership", "--set", there, "--set",
		"namespaces={shop}")
	require.Equal(t, before, credentials(t, "quorate-system"), "so that Metacontroller needs no restart")
	require.Equal(t, `["qetcd"]`, shortNames(t), "the kinds are upgraded")
	require.Equal(t, "30", kube(t, append([]string{"get", "-o", "jsonpath={.spec.resyncPeriodSeconds}"}, resync...)...))
	require.Equal(t, pods, members(t, "shop", "cart"))
	kube(t, "-n", "shop", "patch", "etcdcluster", "cart", "--type=merge", "-p", `{"spec":{"replicas":3}}`)
	converges(t, "shop", "cart", "3/3")
	require.Equal(t, pods, strings.Split(members(t, "shop", "cart"), "\n")[0])
	kube(t, "-n", "shop", "delete", "etcdcluster", "cart", patient)
	helm(t, "quorate-system", "uninstall", "quorate")
}
