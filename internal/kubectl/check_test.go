package kubectl

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/internal/kubectl/check"
)

// recorded is a kubectl that answers as the lab's did (internal/kubectl/check/testdata), where Secrets may not be read.
func recorded(t *testing.T) *kube {
	t.Helper()
	k := steady(t)
	clear(k.says)
	o := check.Options{Namespace: "quorate-system", Metacontroller: "metacontroller"}
	for _, r := range append(o.Readings(), o.First()) {
		raw, err := os.ReadFile("check/testdata/" + r.Name + ".json")
		if err == nil {
			k.says[strings.Join(r.Args, " ")] = string(raw)
		}
	}
	k.fails["get secrets"] = `Error from server (Forbidden): secrets "quorate-hooks" is forbidden: User "jo" cannot get resource "secrets"`
	return k
}

// TestCheckScreen: one line for each that is well, and for what is not, what to do. What needs a right that lacks is
// unknown, and not fine.
func TestCheckScreen(t *testing.T) {
	code, out, errs := recorded(t).runs(healthy(), "check")
	assert.Equal(t, exitTrouble, code)
	assert.Empty(t, errs)
	golden(t, "check", withoutAdvice(out))
	assert.Contains(t, out, "=> ask your Kubernetes administrator for the right to get the Secrets quorate-hooks "+
		"and quorate-caller in namespace quorate-system\n")
	assert.Contains(t, out, "quorate install --metacontroller-namespace=metacontroller "+
		"--metacontroller-version=1.5 --apply`\n", "a command is not broken into lines")
}

// withoutAdvice leaves out the lines that are as long as a command is.
func withoutAdvice(screen string) string {
	var kept strings.Builder
	for line := range strings.Lines(screen) {
		if !strings.Contains(line, " => ") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func TestCheckAsJSON(t *testing.T) {
	code, out, _ := recorded(t).runs(healthy(), "check", "-o", "json", "-n", "quorate-system")
	assert.Equal(t, exitTrouble, code)
	var said struct {
		Version string
		Fine    bool
		Checks  []check.Finding
	}
	require.NoError(t, json.Unmarshal([]byte(out), &said))
	assert.Equal(t, "v1.2.3", said.Version)
	assert.False(t, said.Fine)
	require.Len(t, said.Checks, len(check.Checks))
	for i, c := range check.Checks {
		assert.Equal(t, c.Name, said.Checks[i].Name)
	}
}

// TestCheckOnlyReads: every call of kubectl is one that changes nothing, and there are no more than the documents say.
func TestCheckOnlyReads(t *testing.T) {
	k := recorded(t)
	k.runs(healthy(), "check")
	assert.Len(t, k.calls, 16)
	for _, call := range k.calls {
		assert.Regexp(t, `^(get|version|logs) `, call)
	}
}

// TestCheckShowsNoToken: neither that of a URL in the log, nor that of a CompositeController.
func TestCheckShowsNoToken(t *testing.T) {
	k := recorded(t)
	k.says["logs "] = `E1122 1 controller.go:270] failed to sync EtcdCluster "shop/orders": http error: Post "https://quorate:hunter22@quorate.quorate-system.svc/sync": EOF`
	_, out, _ := k.runs(healthy(), "check")
	assert.Contains(t, strings.Join(strings.Fields(out), " "), `https://[removed]@quorate.quorate-system.svc/sync": EOF`)
	assert.NotContains(t, out, "hunter22")
	assert.NotContains(t, out, "TOKEN")
}

// TestCheckUnreachable: without an API server there is one finding, with kubectl's words.
func TestCheckUnreachable(t *testing.T) {
	k := steady(t)
	k.fails["version"] = "The connection to the server localhost:8080 was refused - connection refused"
	code, out, _ := k.runs(healthy(), "check")
	assert.Equal(t, exitTrouble, code)
	assert.Contains(t, strings.Join(strings.Fields(out), " "), "FAIL Kubernetes `kubectl version -o json`: The connection to the server localhost:8080 was refused - connection refused; see `kubectl config current-context`")
	assert.Contains(t, out, "0 ok, 0 warnings, 1 failed, 0 unknown; nothing was changed")
	assert.Len(t, k.calls, 1)
}

// TestCheckOfNothing: where neither is installed, kinds that the API server does not know are no riddle.
func TestCheckOfNothing(t *testing.T) {
	k := steady(t)
	clear(k.says)
	k.says["version"] = `{"serverVersion":{"gitVersion":"v1.36.3"}}`
	k.fails["get compositecontrollers"] = `error: the server doesn't have a resource type "compositecontrollers"`
	k.fails["get etcdclusters"] = `error: the server doesn't have a resource type "etcdclusters"`
	code, out, _ := k.runs(healthy(), "check")
	assert.Equal(t, exitTrouble, code)
	for _, words := range []string{
		"FAIL     Installed ", "FAIL     Metacontroller ", "FAIL     Quorate ", "etcdclusters.etcd.quorate.dev",
		"unknown  OneQuorate             not checked: the kind does not exist",
	} {
		assert.Contains(t, out, words)
	}
}
