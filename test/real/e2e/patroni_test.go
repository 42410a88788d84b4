//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPatroni: two PostgreSQL servers agree on their primary in an EtcdCluster, as a user who may write below one prefix.
// Patroni speaks JSON over HTTP, so it logs in with a password alone: while auth is on, etcd refuses such requests with a
// certificate that has a name (https://github.com/etcd-io/etcd/blob/v3.6.0/server/embed/serve.go, ServeHTTP).
// The primary stays while etcd loses its leader and a claim, and is upgraded; when the primary is killed, the other
// one follows.
// Debian has what it needs: apt-get install patroni postgresql.
func TestPatroni(t *testing.T) {
	nightly(t)
	if _, err := exec.LookPath("patroni"); err != nil {
		t.Skip("Patroni is not installed: apt-get install patroni postgresql")
	}
	beside(t)
	c := newCluster(t, `  replicas: 3
  version: 3.6.16
  tls: {clientAuth: None}
  auth:
    enabled: true
    roles: [{name: patroni, permissions: [{access: ReadWrite, prefix: /service/}]}]
    users: [{name: patroni, roles: [patroni]}]
`)
	c.converges(3)
	first := c.startsPatroni(0)
	eventually(t, "the first one is the primary", func() string { return first.lacks("/primary") })
	second := c.startsPatroni(1)
	eventually(t, "the second one follows it", func() string { return second.lacks("/replica") })

	c.suffers(func(what string) {
		assert.Empty(t, first.lacks("/primary"), what)
		assert.Empty(t, second.lacks("/replica"), what)
	})

	first.dies()
	took := eventually(t, "the second one is the primary", func() string { return second.lacks("/primary") })
	t.Logf("after %.0f s, with a TTL of 20 s", took.Seconds())
}

// patroni is a process of node 1, with its PostgreSQL.
type patroni struct{ name, api string }

// startsPatroni with what the Secrets say.
func (c *cluster) startsPatroni(n int) *patroni {
	c.t.Helper()
	p := &patroni{fmt.Sprintf("patroni-%d", n), fmt.Sprintf("127.0.0.1:%d", 8008+n)}
	dir, err := os.MkdirTemp("/tmp", p.name+"-")
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binaries, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(c.t, err)
	require.NotEmpty(c.t, binaries, "apt-get install postgresql")
	require.NoError(c.t, os.WriteFile(filepath.Join(dir, "ca.crt"), c.secretOf(name + "-client-tls")["ca.crt"], 0o600))
	config := filepath.Join(dir, "patroni.yaml")
	require.NoError(c.t, os.WriteFile(config, fmt.Appendf(nil, `
scope: demo
name: %[1]s
restapi: {listen: %[2]q, connect_address: %[2]q}
etcd3:
  hosts: ["%[3]s.%[4]s.svc:2379"]
  protocol: https
  use_proxies: true
  cacert: %[5]s/ca.crt
  username: patroni
  password: %[6]s
bootstrap:
  dcs: {ttl: 20, loop_wait: 5, retry_timeout: 5}
  initdb: [{encoding: UTF8}]
postgresql:
  listen: 127.0.0.1:%[7]d
  connect_address: 127.0.0.1:%[7]d
  data_dir: %[5]s/data
  bin_dir: %[8]s
  pgpass: %[5]s/pgpass
  authentication: {superuser: {username: postgres, password: postgres}, replication: {username: copies, password: copies}}
  parameters: {unix_socket_directories: %[5]s}
`, p.name, p.api, name, c.ns, dir, c.secretOf(name + "-user.patroni")["password"], 5440+n, binaries[0]), 0o600))
	out, err := exec.Command("chown", "-R", "postgres", dir).CombinedOutput()
	require.NoError(c.t, err, string(out))
	inLab(c.t, "start", "1", p.name, "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "patroni", config)
	c.t.Cleanup(p.dies)
	return p
}

// lacks says what the REST API answers when it isn't 200: the paths are the roles.
func (p *patroni) lacks(role string) string {
	answer, err := lab.httpClient().Get("http://" + p.api + role)
	if err != nil {
		return err.Error()
	}
	_ = answer.Body.Close()
	return while(answer.StatusCode != http.StatusOK, answer.Status)
}

// dies with its PostgreSQL.
func (p *patroni) dies() {
	_ = exec.Command("../../../bin/lab", "stop", "1", p.name, "KILL").Run()
	_ = exec.Command("pkill", "-KILL", "-f", p.name+"-.*/data").Run()
}
