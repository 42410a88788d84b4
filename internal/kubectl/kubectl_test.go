package kubectl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "Usage:"},
		{"help", 0, "Exit codes: 0 done, 1 trouble"},
		{"version", 0, "kubectl quorate v1.2.3\nQuorate's image ghcr.io/quorate-dev/quorate:v0.1.0, in namespace " +
			"quorate-system\n"},
		{"version --client", 0, "kubectl quorate v1.2.3\n"},
		{"--version", 0, "kubectl quorate v1.2.3\n"},
		{"version orders", exitUsage, `version does not take "orders": the line is kubectl quorate version [--client]`},
		{"bogus", exitUsage, `unknown command "bogus"`},
		{"status a b", exitUsage, `status does not take "b"`},
		{"status --wait", exitUsage, "flag provided but not defined: -wait"},
		{"status -h", 0, "-namespace"},
		{"recover -h", 0, "Example:\n  kubectl quorate recover orders FromSurvivor --dry-run"},
		{"move-leader", exitUsage, "move-leader needs a MEMBER, such as demo-1"},
		{"move-leader a b c", exitUsage, `move-leader does not take "c"`},
		{"check demo", exitUsage, `check does not take "demo"`},
		{"check -o yaml", exitUsage, "invalid value \"yaml\" for flag -o: it must be a format: text or json; `kubectl quorate check -h` lists"},
		{"check -h", 0, "metacontroller-namespace"},
		{"defrag --timeout=soon", exitUsage, "invalid value"},
	} {
		code, out, errs := steady(t).runs(healthy(), strings.Fields(c.args)...)
		assert.Equal(t, c.code, code, c.args)
		assert.Contains(t, out+errs, c.says, c.args)
	}
}

// TestVersionUnknown: the plugin tells its own version in any case, and what keeps it from telling Quorate's.
func TestVersionUnknown(t *testing.T) {
	k := steady(t)
	k.fails = map[string]string{"get deployment quorate": `Error from server (Forbidden): deployments.apps "quorate" is forbidden`}
	code, out, errs := k.runs(healthy(), "version")
	assert.Equal(t, exitTrouble, code)
	assert.Equal(t, "kubectl quorate v1.2.3\n", out)
	assert.Contains(t, errs, "the running version of Quorate can't be read")

	code, out, _ = k.runs(healthy(), "version", "--client")
	assert.Zero(t, code)
	assert.Equal(t, "kubectl quorate v1.2.3\n", out)
}

// TestFlagsAreHandedOn: kubectl's own flags reach every call of kubectl, wherever they stood.
func TestFlagsAreHandedOn(t *testing.T) {
	k := steady(t)
	var handed []string
	p := k.waiting(func() {})
	p.kubectl = func(passed []string) access {
		handed = passed
		return k
	}
	require.Zero(t, p.Run(t.Context(), []string{"status", "--context", "prod", "orders", "-n", "shop",
		"--kubeconfig=/k", "--as-group=a", "--as-group=b"}))
	assert.Equal(t, []string{"--context=prod", "--kubeconfig=/k", "--as-group=a", "--as-group=b"}, handed)
	assert.Equal(t, "get "+clusters+" orders -o json -n shop", k.calls[0])
	assert.Contains(t, k.calls, "get pods -n shop -l etcd.quorate.dev/cluster=orders -o json")
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		what, args string
		edit       func(k *kube)
		code       int
		says       string
	}{
		{"the only one", "status", func(*kube) {}, 0, "orders in namespace shop: 3/3 ready"},
		{"by its name", "status orders", func(*kube) {}, 0, "orders in namespace shop: 3/3 ready"},
		{"none", "status -n empty", func(k *kube) { k.says["get "+clusters] = `{"items":[]}` }, exitTrouble,
			"no EtcdCluster exists in namespace empty; choose another with -n"},
		{"none in kubectl's own namespace", "status", func(k *kube) {
			k.says["get "+clusters], k.says["config view"] = `{"items":[]}`, "mine"
		}, exitTrouble, "no EtcdCluster exists in namespace mine"},
		{"several", "explain -n shop", func(k *kube) {
			k.says["get "+clusters] = `{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`
		}, exitUsage, "there are 2 EtcdClusters in namespace shop: a, b; say which one"},
		{"another", "status nope -n shop", func(k *kube) {
			k.fails["get "+clusters] = `Error from server (NotFound): etcdclusters.etcd.quorate.dev "nope" not found`
		}, exitTrouble, "EtcdCluster nope does not exist in namespace shop"},
		{"no Quorate", "status", func(k *kube) {
			k.fails["get "+clusters] = `error: the server doesn't have a resource type "etcdclusters"`
		}, exitTrouble, "Quorate is not installed in this Kubernetes cluster"},
		{"no Kubernetes", "status", func(k *kube) {
			k.fails["get "+clusters] = `The connection to the server localhost:8080 was refused - connection refused`
		}, exitTrouble, "kubectl config current-context"},
		{"nonsense", "status", func(k *kube) { k.says["get "+clusters] = `<html>` }, exitTrouble,
			"kubectl did not print a list in JSON"},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := steady(t)
			c.edit(k)
			code, out, errs := k.runs(healthy(), strings.Fields(c.args)...)
			assert.Equal(t, c.code, code)
			assert.Contains(t, out+errs, c.says)
		})
	}
}

// TestStatusWithoutRights: what can't be read is said, and what the status knows is printed.
func TestStatusWithoutRights(t *testing.T) {
	k := steady(t)
	within(k.cluster, "spec")["tls"] = map[string]any{"mode": "Auto"}
	k.fails["get secret orders-operator-tls"] = `Error from server (Forbidden): secrets "orders-operator-tls" is forbidden`
	code, out, _ := k.runs(healthy(), "status")
	assert.Zero(t, code)
	assert.Contains(t, out, "etcd can't be reached from here")
	assert.Contains(t, out, "orders-0  voter  yes    yes    3h")

	k.fails = map[string]string{}
	k.says["get secret orders-operator-tls"] = `{"data":{"tls.crt":"","tls.key":"","ca.crt":""}}`
	_, out, _ = k.runs(healthy(), "status")
	assert.Contains(t, strings.Join(strings.Fields(out), " "),
		"the Secret shop/orders-operator-tls holds no certificate")
}

// script is a kubectl that is a shell script.
func script(t *testing.T, text string) *executable {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubectl")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700))
	return &executable{name: file, passed: []string{"--context=prod"}, warned: io.Discard}
}

func TestExecutable(t *testing.T) {
	out, err := script(t, `echo "$@"`).run(t.Context(), "get", "pods", "-o", "json")
	require.NoError(t, err)
	assert.Equal(t, "get pods -o json --context=prod\n", string(out))

	_, err = script(t, `echo "Error from server (Forbidden): no" >&2; exit 1`).run(t.Context(), "get", "pods")
	assert.EqualError(t, err, "`kubectl get pods`: Error from server (Forbidden): no; ask your Kubernetes "+
		"administrator for that right ("+v1beta1.Docs+"reference/cli.md lists what each command needs)")
	assert.True(t, refused(err, "Forbidden"))

	var warned bytes.Buffer
	journal := script(t, `echo told; echo "a file is not whole" >&2`)
	journal.warned = &warned
	for _, verb := range []string{"get", "exec", "exec"} {
		out, err = journal.run(t.Context(), verb)
		require.NoError(t, err)
		assert.Equal(t, "told\n", string(out))
		if verb == "get" {
			assert.Empty(t, warned.String(), "kubectl itself may warn of much")
		}
	}
	assert.Equal(t, "a file is not whole\n", warned.String(), "once")

	_, err = (&executable{name: "kubectl-that-is-not-there"}).run(t.Context(), "get", "pods")
	assert.ErrorContains(t, err, "install kubectl and put it on the PATH")
}

// TestForward: the port that kubectl chose is used, and kubectl ends with stop.
func TestForward(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	dir := t.TempDir()
	k := script(t, `echo "$@" > `+dir+`/args; echo $$ > `+dir+`/pid; echo "Forwarding from `+listener.Addr().String()+` -> 2379"; exec sleep 600`)
	address, stop, err := k.forward(t.Context(), "shop", "orders-1", 2379)
	require.NoError(t, err)
	w := &ways{local: map[string]string{"10.0.0.1:2379": address}}
	conn, err := w.dial(t.Context(), "10.0.0.1:2379")
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	_, err = w.dial(t.Context(), "10.0.0.2:2379")
	require.ErrorContains(t, err, "no port forwarding leads to 10.0.0.2:2379")
	stop()
	args, err := os.ReadFile(dir + "/args")
	require.NoError(t, err)
	assert.Equal(t, "port-forward -n shop --address=127.0.0.1 pod/orders-1 :2379 --context=prod\n", string(args))
	pid, err := os.ReadFile(dir + "/pid")
	require.NoError(t, err)
	assert.NoFileExists(t, "/proc/"+strings.TrimSpace(string(pid))+"/cmdline", "kubectl still runs")

	_, _, err = script(t, `echo "error: unable to forward port because pod is not running" >&2; exit 1`).forward(t.Context(), "shop", "orders-1", 2379)
	assert.ErrorContains(t, err, "`kubectl port-forward -n shop --address=127.0.0.1 pod/orders-1 :2379`: error: "+
		"unable to forward port because pod is not running")

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, _, err = script(t, `exec sleep 600`).forward(ctx, "shop", "orders-1", 2379)
	assert.ErrorContains(t, err, "it did not say within 10s where it listens")
}

func TestListening(t *testing.T) {
	assert.Equal(t, "127.0.0.1:41234", listening(strings.NewReader("something\nForwarding from 127.0.0.1:41234 -> "+
		"2379\n")))
	assert.Equal(t, "[::1]:41234", listening(strings.NewReader("Forwarding from [::1]:41234 -> 2379\n")))
	assert.Empty(t, listening(strings.NewReader("Forwarding from nowhere\n")))
	assert.Empty(t, listening(io.LimitReader(nil, 0)))
}

// TestNoEscapeSequenceReachesTheTerminal: whatever a tenant's object holds, it is text when it is shown.
func TestNoEscapeSequenceReachesTheTerminal(t *testing.T) {
	var out, err bytes.Buffer
	p := New("devel", &out, &err)
	page{p.Out}.say("it waits: \x1b]0;pwned\x07\x1b[2J\u009b31m\u202egnp.exe\r\x00 é – 漢\tyes")
	text := "é漢\x1b[2J\xff!"
	for i := range len(text) {
		_, _ = p.Err.Write([]byte(text[i : i+1]))
	}
	require.Equal(t, "  it waits: ?]0;pwned??[2J?31m?gnp.exe ? é – 漢 yes\n", out.String())
	require.Equal(t, "é漢?[2J?!", err.String())
	_, failed := New("devel", broken{}, &err).Out.Write([]byte("x"))
	require.Error(t, failed)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("the reader is gone") }
