//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var aloneFlag = flag.Bool("alone", false, "tell the stories that exchange the lab's Quorate, and need it for "+
	"themselves")

// alone skips a story that exchanges the Quorate of all others, unless it has the lab for itself.
func alone(t *testing.T) {
	t.Helper()
	if !*aloneFlag {
		t.Skip("it exchanges the Quorate that all other stories use, and has a target of its own in the Makefile")
	}
}

// release of Quorate: what a user who installs it has of it.
type release struct{ name, binary, image string }

// thisRelease is what `make image` has built, and the Makefile has loaded.
func thisRelease(t *testing.T) release {
	t.Helper()
	binary, err := filepath.Abs("../../../bin/quorate")
	require.NoError(t, err)
	manifest, err := os.ReadFile("../../../manifests/base/deployment.yaml")
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(manifest), "image: ")
	image, _, _ := strings.Cut(after, "\n")
	return release{name: "this release", binary: binary, image: image}
}

// previousRelease is built as its own Makefile builds it, from the commit that testdata/previous-release names, and
// loaded.
func previousRelease(t *testing.T) release {
	t.Helper()
	r := release{name: "the previous release", image: "ghcr.io/quorate-dev/quorate:previous"}
	dir := t.TempDir()
	out, err := exec.Command("../../../test/tools/previous.sh", dir).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 3 {
		t.Skip(string(out))
	}
	require.NoError(t, err, string(out))
	begin := time.Now()
	build := exec.Command("make", "-s", "-C", dir, "image", "VERSION=previous", "COMMIT=previous", "IMAGE="+r.image)
	// those of the make that runs this
	build.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") })
	out, err = build.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Logf("%s was built in %.0f s", r.name, time.Since(begin).Seconds())
	out, err = exec.Command("go", "run", "-C", "../lab", ".", "load",
		filepath.Join(dir, "bin/quorate.tar")).CombinedOutput()
	require.NoError(t, err, string(out))
	r.binary = filepath.Join(dir, "bin/quorate")
	return r
}

// install does what docs/how-to/install.md says the first time and docs/how-to/upgrade.md later, and
// waits until no other release answers.
func (r release) install(t *testing.T) {
	t.Helper()
	args := []string{"install", "--metacontroller=" + os.Getenv("QUORATE_METACONTROLLER"), "--image=" + r.image}
	kept := kube(t, "-n", "quorate-system", "get", "secret", "quorate-hooks", "-o", "yaml", "--ignore-not-found")
	if kept != "" {
		args = append(args, "--keep", "-")
	}
	if read(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/certificates.cert-manager.io", &struct{}{}) {
		args = append(args, "--cert-manager")
	}
	prints := exec.Command(r.binary, args...)
	prints.Stdin = strings.NewReader(kept)
	var manifests, errs bytes.Buffer
	prints.Stdout, prints.Stderr = &manifests, &errs
	require.NoError(t, prints.Run(), errs.String())
	r.leavesNoController(t, manifests.String())
	_, err := kubectl(manifests.String(), "apply", "--server-side", "-f", "-")
	require.NoError(t, err)

	// In the lab every decision is checked against the rules of safety. The field is another manager's, so the next
	// release keeps it.
	kube(t, "-n", "quorate-system", "set", "env", "deployment/quorate", "QUORATE_VERIFY=1")
	kube(t, "-n", "quorate-system", "rollout", "status", "deployment/quorate")
	// A pod that is being stopped answers calls too, to the end of its grace.
	eventually(t, "only "+r.name+" answers", func() string {
		for _, pod := range podsOfQuorate(t) {
			if image := pod.Spec.Containers[0].Image; image != r.image {
				return pod.Name + " with " + image + " is there still"
			}
		}
		return ""
	})
	r.tellsItsVersion(t)
	if kept == "" && strings.HasPrefix(os.Getenv("QUORATE_METACONTROLLER"), "1.") { // it reads once what it trusts
		kube(t, "-n", "metacontroller", "rollout", "restart", "statefulset/metacontroller")
		kube(t, "-n", "metacontroller", "rollout", "status", "statefulset/metacontroller")
	}
}

// leavesNoController deletes the CompositeControllers of a newer release that this one does not have: Metacontroller
// would ask for what it has no right to any more.
func (r release) leavesNoController(t *testing.T, manifests string) {
	t.Helper()
	for name := range strings.FieldsSeq(kube(t, "get", "crd", "compositecontrollers.metacontroller.k8s.io",
		"--ignore-not-found", "-o", "name")) {
		require.NotEmpty(t, name)
		for controller := range strings.FieldsSeq(kube(t, "get", "compositecontrollers", "-o",
			"jsonpath={.items[*].metadata.name}")) {
			if !strings.Contains(manifests, "name: "+controller+"\n") {
				kube(t, "delete", "compositecontroller", controller)
			}
		}
	}
}

// tellsItsVersion: what runs in the pods says that it is the binary that made the manifests.
func (r release) tellsItsVersion(t *testing.T) {
	t.Helper()
	out, err := exec.Command(r.binary, "version").Output()
	require.NoError(t, err)
	m := regexp.MustCompile(`^quorate (\S+) \(commit (\S+), go1\.`).FindSubmatch(out)
	require.NotNil(t, m, "%s", out)
	all, err := quorateMetrics()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for pod, metrics := range all {
		require.Contains(t, metrics, fmt.Sprintf("\nquorate_build_info{commit=%q,version=%q} 1\n", m[2], m[1]), pod)
	}
	t.Logf("%s: %s", r.name, out)
}
