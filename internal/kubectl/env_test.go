package kubectl

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// connected has what an application needs, with the word secret in each key and password.
func (k *kube) connected() {
	within(k.cluster, "status")["connection"] = map[string]any{"endpoints": []any{"https://orders.shop.svc:2379"},
		"clientSecretRef": map[string]any{"name": "orders-client-tls"},
		"caSecretRef":     map[string]any{"name": "orders-client-tls"}}
	const held = `{"data":{"ca.crt":"dHJ1c3Q=","tls.crt":"c2hvd24=","tls.key":"c2VjcmV0","password":"c2VjcmV0"}}`
	for _, name := range []string{"client-tls", "client.agent", "user.shop", "user.root"} {
		k.says["get secret orders-"+name] = held
	}
}

// guarded is shop/orders with TLS, and users if that is asked for.
func guarded(t *testing.T, users bool) *kube {
	k := steady(t)
	k.connected()
	within(k.cluster, "spec")["tls"] = map[string]any{"mode": "Auto"}
	if users {
		within(k.cluster, "spec")["auth"] = map[string]any{"enabled": true, "users": []any{
			map[string]any{"name": "shop"}, map[string]any{"name": "agent", "credential": "Certificate"},
			map[string]any{"name": "report", "passwordSecretRef": map[string]any{"name": "login", "key": "pass"}}}}
	}
	return k
}

// sourced are the variables that a shell has after it has read what was printed.
func sourced(t *testing.T, lines string) map[string]string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "ETCDCTL_KEY=old; export ETCDCTL_KEY\n"+lines+"env").Output()
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); strings.HasPrefix(name, "ETCDCTL_") {
			all[name] = value
		}
	}
	return all
}

// TestEnv: a shell that reads it has what etcdctl needs. What is secret is in files that only this user can read.
func TestEnv(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("TMPDIR", t.TempDir())
	k := guarded(t, false)
	code, out, errs := k.runs(healthy(), "env")
	require.Zero(t, code, errs)
	assert.Contains(t, errs, "keep this running in another terminal: kubectl port-forward -n shop service/orders 2379\n")
	has := sourced(t, out)
	dir := filepath.Dir(has["ETCDCTL_KEY"])
	assert.Equal(t, map[string]string{"ETCDCTL_ENDPOINTS": "https://127.0.0.1:2379", "ETCDCTL_CACERT": dir + "/ca.crt",
		"ETCDCTL_CERT": dir + "/tls.crt", "ETCDCTL_KEY": dir + "/tls.key"}, has)
	assert.Contains(t, errs, "delete "+dir+" when you are done")
	info, err := os.Stat(dir)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	for name, content := range map[string]string{"ca.crt": "trust", "tls.crt": "shown", "tls.key": "secret"} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		text, _ := os.ReadFile(filepath.Join(dir, name))
		assert.Equal(t, content, string(text))
	}

	// Again into the same folder, with a quote in its name: what was renewed takes the place of what was there.
	chosen := filepath.Join(t.TempDir(), "it's here")
	for range 2 {
		code, out, errs = k.runs(healthy(), "env", "--dir", chosen)
		require.Zero(t, code, errs)
		assert.Equal(t, chosen+"/tls.key", sourced(t, out)["ETCDCTL_KEY"])
	}
	entries, _ := os.ReadDir(chosen)
	assert.Len(t, entries, 3)

	within(within(k.cluster, "status"), "connection")["external"] = []any{"https://etcd.example:2379"}
	_, out, errs = k.runs(healthy(), "env")
	assert.Equal(t, "https://etcd.example:2379", sourced(t, out)["ETCDCTL_ENDPOINTS"])
	assert.NotContains(t, errs, "port-forward")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	_, out, _ = k.runs(healthy(), "env")
	assert.Equal(t, "https://orders.shop.svc:2379", sourced(t, out)["ETCDCTL_ENDPOINTS"])

	within(k.cluster, "spec")["tls"] = map[string]any{"mode": "Disabled"}
	delete(within(within(k.cluster, "status"), "connection"), "clientSecretRef")
	_, out, _ = k.runs(healthy(), "env")
	assert.Len(t, sourced(t, out), 1, "plain text, and nothing is left of another cluster")
}

func TestEnvOfAUser(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k := guarded(t, true)
	k.says["get secret login"] = `{"data":{"pass":"c2VjcmV0"}}`
	for user, file := range map[string]string{"shop": "tls.key", "root": "tls.key", "report": "tls.key"} {
		code, out, errs := k.runs(healthy(), "env", "--etcd-user", user)
		require.Zero(t, code, errs)
		has := sourced(t, out)
		assert.Equal(t, user, has["ETCDCTL_USER"])
		assert.Equal(t, "secret", has["ETCDCTL_PASSWORD"])
		assert.Contains(t, has["ETCDCTL_KEY"], file)
		assert.NotContains(t, out+errs, "secret", "no password is printed")
	}
	_, out, errs := k.runs(healthy(), "env", "--etcd-user=agent")
	assert.NotContains(t, sourced(t, out), "ETCDCTL_USER")
	assert.Contains(t, k.calls, "get secret orders-client.agent -n shop -o json")
	assert.NotContains(t, errs, "users and roles are on")
	_, _, errs = k.runs(healthy(), "env")
	assert.Contains(t, errs, "users and roles are on: --etcd-user=NAME")
}

func TestEnvRefuses(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for says, k := range map[string]*kube{
		"spec.auth.users of EtcdCluster shop/orders has no ghost": guarded(t, true),
		"has no spec.auth: leave out --etcd-user":                 guarded(t, false),
		"has not begun": steady(t),
	} {
		code, out, errs := k.runs(healthy(), "env", "--etcd-user=ghost")
		assert.Equal(t, exitTrouble, code)
		assert.Contains(t, errs, says)
		assert.Empty(t, out)
	}
	k := guarded(t, false)
	k.says["get secret orders-client-tls"] = `{"data":{"ca.crt":"dHJ1c3Q=","tls.crt":"c2hvd24="}}`
	_, out, errs := k.runs(healthy(), "env")
	assert.Empty(t, out)
	assert.Contains(t, errs, "the Secret shop/orders-client-tls has no tls.key")
	within(within(k.cluster, "status"), "connection")["caSecretRef"] = map[string]any{}
	_, _, errs = k.runs(healthy(), "env")
	assert.Contains(t, errs, "names no Secret for clients")
	left, _ := os.ReadDir(os.Getenv("TMPDIR"))
	assert.Empty(t, left, "nothing is written before all is known")
}
