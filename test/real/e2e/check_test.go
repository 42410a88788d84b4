//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/server/kubectl/check"
)

// TestCheck: `kubectl quorate check` finds the lab's installation well, with the rights that docs/reference/check.md lists and
// no others (all of them are to get and to list, so it changes nothing). Where nothing is installed it says what to
// do, and who may read nothing learns which right lacks.
func TestCheck(t *testing.T) {
	quorate := plugin(t)
	findings := func(args ...string) (map[string]check.Finding, int) {
		t.Helper()
		out, errs, code := quorate(append([]string{"check", "-o", "json"}, args...)...)
		var said struct {
			Fine   bool
			Checks []check.Finding
		}
		require.NoError(t, json.Unmarshal([]byte(out), &said), errs)
		assert.Equal(t, said.Fine, code == 0)
		all := map[string]check.Finding{}
		for _, f := range said.Checks {
			all[f.Name] = f
		}
		require.Len(t, all, len(check.Checks))
		return all, code
	}
	allowed(t, "checker")

	// Other stories may have restarted a part of it a moment ago.
	eventually(t, "the installation is found well", func() string {
		all, code := findings("--as=checker")
		if code == 0 {
			// The lab's Metacontroller has its own number of workers, and stories make calls fail on purpose.
			for _, f := range all {
				if f.State != check.OK && !slices.Contains([]string{"MetacontrollerFlags", "Asked"}, f.Name) {
					return f.Name + ": " + f.Found
				}
			}
			return ""
		}
		var bad []string
		for _, f := range all {
			if f.State == check.Fail || f.State == check.Unknown {
				bad = append(bad, f.Name+": "+f.Found)
			}
		}
		return strings.Join(bad, "\n")
	})
	all, _ := findings("--as=checker")
	assert.Contains(t, all["MetacontrollerVersion"].Found, os.Getenv("QUORATE_METACONTROLLER"))
	assert.Contains(t, all["Installed"].Found, "quorate-etcdcluster, quorate-etcdmirror, quorate-etcdoperation, "+
		"quorate-etcdsnapshot, quorate-etcdsnapshotschedule")
	began := time.Now()
	screen, _, code := quorate("check")
	t.Logf("kubectl quorate check, in %.1f s:\n%s", time.Since(began).Seconds(), screen)
	assert.Zero(t, code)
	assert.LessOrEqual(t, strings.Count(screen, "\n"), 45, "one screen")
	var secret corev1.Secret
	require.True(t, read(t, "/api/v1/namespaces/"+quorateNamespace+"/secrets/quorate-hooks", &secret))
	for line := range strings.Lines(string(secret.Data["tokens"])) {
		assert.NotContains(t, screen, strings.TrimSpace(line))
	}

	nowhere, code := findings("--namespace=kube-public", "--metacontroller-namespace=default")
	assert.Equal(t, 1, code)
	assert.Equal(t, check.Fail, nowhere["Metacontroller"].State)
	assert.Contains(t, nowhere["Metacontroller"].Do, "--metacontroller-namespace="+metacontrollerPods(t)[0].Namespace)
	assert.Contains(t, nowhere["Quorate"].Found, "no Deployment of Quorate exists in namespace kube-public")
	assert.Contains(t, nowhere["Installed"].Found, "calls quorate.quorate-system.svc, not quorate.kube-public.svc")
	assert.NotContains(t, nowhere["Installed"].Found, "etcdclusters.etcd.quorate.dev", "the kinds are well")

	powerless, code := findings("--as=powerless")
	assert.Equal(t, 1, code)
	for name, f := range powerless {
		if name != "Kubernetes" {
			assert.Equal(t, check.Unknown, f.State, "%s: %s", name, f.Found)
		}
	}
	assert.Contains(t, powerless["MetacontrollerRights"].Do, "the right to list clusterroles and clusterrolebindings")
}

// allowed lets a user do what docs/reference/check.md lists.
func allowed(t *testing.T, user string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/reference/check.md")
	require.NoError(t, err)
	_, role, found := strings.Cut(string(text), "```yaml\n")
	require.True(t, found)
	role, _, _ = strings.Cut(role, "```")
	_, err = kubectl(role, "apply", "-f", "-")
	require.NoError(t, err)
	kube(t, "delete", "clusterrolebinding", "e2e-check", "--ignore-not-found") // of a run that was cut off
	kube(t, "create", "clusterrolebinding", "e2e-check", "--clusterrole=quorate-check", "--user="+user)
	t.Cleanup(func() { kube(t, "delete", "clusterrole/quorate-check", "clusterrolebinding/e2e-check") })
}
