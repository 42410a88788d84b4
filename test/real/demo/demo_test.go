// Package demo has the scripts of `make demo`, `make demo-kind` and `make recording`. There is neither Docker nor
// kind where tests run, so what demo.sh asks of them is tested with programs that only write down their calls.
package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stub writes its name and arguments to the file $CALLS, with the cluster it would talk to. It fails when its
// arguments are $FAILS. kubectl sees a cluster that is complete.
const stub = `#!/bin/sh
echo "${0##*/} $*${KUBECONFIG:+ @${KUBECONFIG##*/}}" >>"$CALLS"
case "$*" in
"$FAILS") exit 1 ;;
*Available*) echo "True 3/3" ;;
*'{.status.leader}'*) echo demo-0 ;;
"get clusters") echo "$CLUSTERS" ;;
esac
`

// play runs `demo.sh kind` in a checkout of nothing but what it reads, with these programs and the machine's common
// ones.
func play(t *testing.T, programs []string, env ...string) (calls []string, output string, err error) {
	t.Helper()
	root, tools := t.TempDir(), t.TempDir()
	for _, file := range []string{"test/real/demo/demo.sh", "manifests/base/deployment.yaml",
		"manifests/samples/etcdcluster.yaml"} {
		content, err := os.ReadFile(filepath.Join("../../..", file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), content, 0o755))
	}
	require.NoError(t, os.Mkdir(filepath.Join(root, "bin"), 0o755))
	for _, program := range append([]string{filepath.Join(root, "bin/quorate")}, programs...) {
		if !filepath.IsAbs(program) {
			program = filepath.Join(tools, program)
		}
		require.NoError(t, os.WriteFile(program, []byte(stub), 0o755))
	}
	for _, program := range []string{"bash", "sh", "cat", "dirname", "grep", "mkdir", "sed", "sleep", "wc"} {
		path, err := exec.LookPath(program)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(tools, program)))
	}
	log := filepath.Join(root, "calls")
	cmd := exec.Command(filepath.Join(tools, "bash"), filepath.Join(root, "test/real/demo/demo.sh"), "kind")
	cmd.Env = append([]string{"PATH=" + tools, "CALLS=" + log}, env...)
	text, err := cmd.CombinedOutput()
	recorded, _ := os.ReadFile(log)
	return strings.Split(strings.TrimSpace(string(recorded)), "\n"), string(text), err
}

var all = []string{"docker", "kind", "kubectl", "make"}

func TestDemoOnKind(t *testing.T) {
	calls, output, err := play(t, all)
	require.NoError(t, err, output)
	deployment, err := os.ReadFile("../../../manifests/base/deployment.yaml")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(deployment), "image: ")
	image, _, _ := strings.Cut(after, "\n")
	assert.Equal(t, []string{
		"docker info",
		"kind get clusters @kind.kubeconfig",
		"kind create cluster --name quorate @kind.kubeconfig",
		"docker build -t " + image + " . @kind.kubeconfig",
		"kind load docker-image " + image + " --name quorate @kind.kubeconfig",
		"make --no-print-directory build @kind.kubeconfig",
		"quorate install --apply @kind.kubeconfig",
		"kubectl apply -f manifests/samples/etcdcluster.yaml @kind.kubeconfig",
	}, calls[:8])
	assert.Contains(t, calls, "kubectl exec demo-0 -c etcd -- etcdctl put greeting hello @kind.kubeconfig")
	assert.Contains(t, output, "kind delete cluster --name quorate")
	assert.Contains(t, output, "bin/kind.kubeconfig\n")
}

func TestDemoOnKindAgain(t *testing.T) {
	calls, output, err := play(t, all, "CLUSTERS=quorate")
	require.NoError(t, err, output)
	assert.Contains(t, calls, "kind export kubeconfig --name quorate @kind.kubeconfig")
	assert.NotContains(t, strings.Join(calls, "\n"), "create cluster")
}

// What is missing is said before anything is made.
func TestDemoOnKindRefuses(t *testing.T) {
	for _, missing := range all[:3] {
		var there []string
		for _, program := range all {
			if program != missing {
				there = append(there, program)
			}
		}
		calls, output, err := play(t, there)
		assert.Error(t, err)
		assert.Contains(t, output, "there is no "+missing+" in the PATH")
		assert.Equal(t, []string{""}, calls)
	}
	calls, output, err := play(t, all, "FAILS=info")
	assert.Error(t, err)
	assert.Contains(t, output, "Docker does not answer")
	assert.Equal(t, []string{"docker info"}, calls)
}
