//go:build e2e

package install

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// forItsOwn leaves the Kubernetes without a Metacontroller and its kinds, as a new one is. Both are there again after
// the test.
func forItsOwn(t *testing.T) {
	t.Helper()
	if isOld {
		t.Skipf("the lab has Metacontroller %s, which can't be Quorate's own: with QUORATE_METACONTROLLER_VERSION=4.17.2 and "+
			"its image in the lab this runs", metacontroller)
	}
	scale := func(replicas string) {
		kube(t, "-n", "metacontroller", "scale", "statefulset/metacontroller", "--replicas="+replicas)
	}
	t.Cleanup(func() {
		kube(t, "apply", "--server-side", "--force-conflicts", "-f", "../../../manifests/crds/metacontroller.yaml")
		scale("1")
	})
	scale("0")
	becomes(t, "", "-n", "metacontroller", "get", "pods", "-o", "name")
	kube(t, "delete", "crd", "--ignore-not-found", "compositecontrollers.metacontroller.k8s.io",
		"decoratorcontrollers.metacontroller.k8s.io", "controllerrevisions.metacontroller.k8s.io")
}

// serves: etcd takes a write and gives it back.
func serves(t *testing.T, value string) {
	t.Helper()
	kube(t, "exec", "demo-0", "-c", "etcd", "--", "etcdctl", "put", "greeting", value)
	require.Equal(t, value, kube(t, "exec", "demo-0", "-c", "etcd", "--", "etcdctl", "get", "greeting",
		"--print-value-only"))
}

// takenUp: Quorate looks after the cluster, which it grows by two members, and has restarted none.
func takenUp(t *testing.T, members3 string) {
	t.Helper()
	kube(t, "patch", "etcdcluster", "demo", "--type=merge", "-p", `{"spec":{"replicas":5}}`)
	converges(t, "default", "demo", "5/5")
	require.Equal(t, members3, strings.Join(strings.Split(members(t, "default", "demo"), "\n")[:3], "\n"),
		"no member restarted")
}

// TestHelmAlone: a user who has neither Metacontroller nor its kinds installs the chart as the README says, upgrades
// and uninstalls the release, and installs it again. Kinds and clusters stay, etcd serves on, and is taken up again
// without a restart of any member.
func TestHelmAlone(t *testing.T) {
	removesQuorate(t, "etcd-ops")
	forItsOwn(t)
	version := "metacontroller.version=" + metacontroller
	helm(t, "etcd-ops", "install", "quorate", chart, "--create-namespace", "--set", version)
	kube(t, "apply", "-f", "../../../manifests/samples/etcdcluster.yaml")
	converges(t, "default", "demo", "3/3")
	fits(t, "etcd-ops")
	pods, before := members(t, "default", "demo"), credentials(t, "etcd-ops")

	helm(t, "etcd-ops", "upgrade", "quorate", chart, "--set", version+",verify=true")
	require.Equal(t, before, credentials(t, "etcd-ops"))
	require.Equal(t, pods, members(t, "default", "demo"), "no member restarted")
	fits(t, "etcd-ops")
	_, err := command("", "kubectl", "delete", "crd", ourKinds[0])
	require.ErrorContains(t, err, "would delete all its objects, in all namespaces")

	helm(t, "etcd-ops", "uninstall", "quorate")
	becomes(t, "", "-n", "etcd-ops", "get", "pods", "-o", "name")
	kube(t, append([]string{"get", "crd", "compositecontrollers.metacontroller.k8s.io"}, ourKinds...)...)
	require.Equal(t, pods, members(t, "default", "demo"))
	serves(t, "alone")

	helm(t, "etcd-ops", "install", "quorate", chart, "--set", version)
	require.NotEqual(t, before, credentials(t, "etcd-ops"))
	takenUp(t, pods)
	fits(t, "etcd-ops")
	forgets(t, "demo")
	helm(t, "etcd-ops", "uninstall", "quorate")
}

// TestApply: a user who has neither Metacontroller nor its kinds has quorate install --apply do it all, once and
// again: nothing restarts the second time. What it installed is deleted but the kinds; etcd serves on; and the same
// command takes it up again.
func TestApply(t *testing.T) {
	removesQuorate(t, "quorate-system")
	forItsOwn(t)
	args := []string{"install", "--metacontroller-version=" + metacontroller}
	apply := func() string {
		out, err := command("", "../../../bin/quorate", append(args, "--apply")...)
		require.NoError(t, err, out)
		return kube(t, "-n", "quorate-system", "get", "pods", "-o", `jsonpath={range .items[*]}{.metadata.uid}{"\n"}{end}`)
	}
	first := apply()
	before := credentials(t, "quorate-system")
	require.Equal(t, first, apply(), "no pod is another one")
	require.Equal(t, before, credentials(t, "quorate-system"))
	kube(t, "apply", "-f", "../../../manifests/samples/etcdcluster.yaml")
	converges(t, "default", "demo", "3/3")
	fits(t, "quorate-system")
	pods := members(t, "default", "demo")

	_, err := command("", "../../../bin/quorate", "install", existing, "--apply")
	require.ErrorContains(t, err, "leave out "+existing, "it would be cut off from its own")

	// Under server-side apply Metacontroller may change nothing with the rights of the installation. With all rights,
	// it meets Quorate's refusal. Installing again sets it right.
	kube(t, "-n", "quorate-system", "patch", "deployment", "metacontroller", "--type=json", "-p",
		`[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--apply-strategy=server-side-apply"}]`)
	refused := func() string {
		return kube(t, "get", "events", "--field-selector", "reason=SyncError,involvedObject.name=demo", "-o",
			"jsonpath={.items[*].message}")
	}
	require.Eventually(t, func() bool { return strings.Contains(refused(), "cannot patch resource") }, patience,
		time.Second)
	said, err := command("", "../../../bin/quorate", "check")
	require.Error(t, err)
	require.Contains(t, said, "set --apply-strategy=dynamic-apply")
	kube(t, "create", "clusterrolebinding", "all", "--clusterrole=cluster-admin",
		"--serviceaccount=quorate-system:metacontroller")
	t.Cleanup(func() { kube(t, "delete", "clusterrolebinding", "all", "--ignore-not-found") })
	becomes(t, "ApplyStrategy True", "get", "etcdcluster", "demo", "-o",
		`jsonpath={.status.rule} {.status.conditions[?(@.type=="Stalled")].status}`)
	require.Equal(t, pods, members(t, "default", "demo"), "the members run on")
	kube(t, "delete", "clusterrolebinding", "all")
	apply()
	converges(t, "default", "demo", "3/3")

	_, err = command(printed(t, append(args[1:], "--no-kinds")...), "kubectl", "delete", "-f", "-", patient)
	require.NoError(t, err)
	assert.Equal(t, pods, members(t, "default", "demo"), "the members run on")
	serves(t, "alone")

	apply()
	require.NotEqual(t, before, credentials(t, "quorate-system"))
	takenUp(t, pods)
	fits(t, "quorate-system")
	forgets(t, "demo")
}

// TestKustomize: the two commands for kustomize install, upgrade and, without the kinds, uninstall. Kinds and
// clusters stay, and the same commands take them up again.
func TestKustomize(t *testing.T) {
	removesQuorate(t, "quorate-system")
	forItsOwn(t)
	if text, err := os.ReadFile("../../../manifests/metacontroller/kustomization.yaml"); err != nil ||
		!strings.Contains(string(text), "newTag: v"+metacontroller+"\n") {
		t.Skipf("manifests/metacontroller names another Metacontroller than the lab's %s: %v", metacontroller, err)
	}
	apply := func() {
		kube(t, "apply", "--server-side", "--force-conflicts", "-k", "../../../manifests/crds")
		kube(t, "wait", "--for=condition=Established", patient, "-f", "../../../manifests/crds/metacontroller.yaml")
		kube(t, "apply", "--server-side", "--force-conflicts", "-k", "../../../manifests/default")
		for _, name := range []string{"quorate", "metacontroller"} {
			kube(t, "-n", "quorate-system", "rollout", "status", "deployment/"+name, patient)
		}
	}
	apply()
	kube(t, "apply", "-f", "../../../manifests/samples/etcdcluster.yaml")
	converges(t, "default", "demo", "3/3")
	pods := members(t, "default", "demo")
	apply()
	require.Equal(t, pods, members(t, "default", "demo"), "no member restarted")

	kube(t, "delete", "-k", "../../../manifests/default", patient)
	kube(t, append([]string{"get", "crd"}, ourKinds...)...)
	require.Equal(t, pods, members(t, "default", "demo"), "the members run on")
	serves(t, "alone")

	apply()
	takenUp(t, pods)
	forgets(t, "demo")
}
