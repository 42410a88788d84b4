//go:build e2e

// Package install installs, upgrades and uninstalls Quorate in a lab of its own, in ways that the stories of
// test/real/e2e do not: those share one Quorate that looks after everything. `make part PART=install` brings the lab
// up.
package install

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// How long a wait may last before it counts as one without end: how fast the machine is must not decide.
const (
	patience = 15 * time.Minute
	patient  = "--timeout=15m"
)

// metacontroller is the version that the lab has, as its make target says: it runs in a namespace of its own, and the
// image of 4.x is loaded.
var metacontroller = cmp.Or(os.Getenv("QUORATE_METACONTROLLER_VERSION"), "1.5.20")

// isOld: it reads what it trusts once, has no selector for parents, and can't be Quorate's own.
var isOld = strings.HasPrefix(metacontroller, "1.")

// existing is what quorate install is told of the Metacontroller that is there, and there are the chart's values for it.
const existing = "--metacontroller-namespace=metacontroller"

var there = "metacontroller.enabled=false,metacontroller.version=" + metacontroller

// command runs a program with something to read, and returns what it prints. An error holds what it said.
func command(stdin, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err,
			strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}

func kube(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command("", "kubectl", args...)
	require.NoError(t, err)
	return out
}

func apply(t *testing.T, objects string) {
	t.Helper()
	_, err := command(objects, "kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-")
	require.NoError(t, err)
}

// becomes waits until kubectl prints this.
func becomes(t *testing.T, want string, args ...string) {
	t.Helper()
	var got string
	assert.Eventually(t, func() bool {
		out, err := command("", "kubectl", args...)
		if got = out; err != nil {
			got = err.Error()
		}
		return got == want
	}, patience, 300*time.Millisecond)
	require.Equal(t, want, got, "kubectl %s", strings.Join(args, " "))
}

// inMemory is an EtcdCluster of one member that needs no claim.
func inMemory(namespace, name string, labels ...string) string {
	return fmt.Sprintf("apiVersion: etcd.quorate.dev/v1beta1\nkind: EtcdCluster\nmetadata: {name: %s, namespace: "+
		"%s, labels: {%s}}\n"+
		"spec: {replicas: 1, version: 3.6.16, storage: {medium: Memory, size: 512Mi}}\n", name, namespace,
		strings.Join(labels, ", "))
}

// forgets deletes a cluster, and then the claims that it leaves.
func forgets(t *testing.T, name string) {
	t.Helper()
	kube(t, "delete", "etcdcluster", name, patient)
	kube(t, "delete", "pvc", "-l", "etcd.quorate.dev/cluster="+name, patient)
}

func converges(t *testing.T, namespace, name, ready string) {
	t.Helper()
	becomes(t, ready+" Converged", "-n", namespace, "get", "etcdcluster", name, "-o",
		"jsonpath={.status.readyReplicas}/{.spec.replicas} {.status.rule}")
}

// members are the pods of a cluster, which are others after each restart: name, UID and how often etcd was started
// again.
func members(t *testing.T, namespace, cluster string) string {
	t.Helper()
	return kube(t, "-n", namespace, "get", "pods", "-l", "etcd.quorate.dev/cluster="+cluster,
		"--sort-by=.metadata.name",
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}`)
}

var ourKinds = []string{"etcdclusters.etcd.quorate.dev", "etcdsnapshots.etcd.quorate.dev",
	"etcdsnapshotschedules.etcd.quorate.dev", "etcdoperations.etcd.quorate.dev", "etcdmirrors.etcd.quorate.dev"}

// removesQuorate takes away, when the test is over, what it has installed in namespaces of its own: the next one
// finds nothing of Quorate's.
func removesQuorate(t *testing.T, namespaces ...string) {
	for _, namespace := range namespaces { // of the test before, whose objects would go with it
		becomes(t, "", "get", "namespace", namespace, "--ignore-not-found", "-o", "name")
	}
	t.Cleanup(func() {
		const kinds = "compositecontrollers,clusterrolebindings,clusterroles,validatingadmissionpolicybindings,validatingadmissionpolicies"
		for _, args := range [][]string{
			{"etcdclusters", "--all", "--all-namespaces"}, // of a test that failed
			{kinds, "-l", "app.kubernetes.io/part-of=quorate"},
			append([]string{"namespace", "--ignore-not-found", "--wait=false"}, namespaces...),
			append([]string{"crd", "--ignore-not-found"}, ourKinds...),
		} {
			var err error
			assert.Eventually(t, func() bool { // the API server forgets a policy against it a moment later
				_, err = command("", "kubectl", append([]string{"delete", "--timeout=30s"}, args...)...)
				return err == nil || !strings.Contains(err.Error(), "quorate-kind-protection")
			}, patience, time.Second)
			assert.NoError(t, err)
		}
	})
}

// restartMetacontroller makes an old one read what it trusts, which it does when it starts. Others need no restart.
func restartMetacontroller(t *testing.T) {
	t.Helper()
	if !isOld {
		return
	}
	kube(t, "-n", "metacontroller", "rollout", "restart", "statefulset/metacontroller")
	kube(t, "-n", "metacontroller", "rollout", "status", "statefulset/metacontroller", patient)
}

// mayMetacontroller is what kubectl auth can-i answers.
func mayMetacontroller(namespace, verb, resource string) string {
	// no is an error
	out, _ := command("", "kubectl", "-n", namespace, "auth", "can-i", verb, resource,
		"--as=system:serviceaccount:metacontroller:metacontroller")
	return strings.TrimSpace(out)
}

// fits asks quorate check.
func fits(t *testing.T, namespace string) {
	t.Helper()
	out, err := command("", "../../../bin/quorate", "check", "--namespace="+namespace)
	require.NoError(t, err, out)
}

// printed is what quorate install prints.
func printed(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command("", "../../../bin/quorate", append([]string{"install"}, args...)...)
	require.NoError(t, err)
	return out
}
