//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestKamaji: two control planes of Kamaji's live in one EtcdCluster, each below a prefix of its own, with the
// manifests of docs/how-to/control-planes.md. One writes all the time. `make kamaji` installs Kamaji and runs this.
func TestKamaji(t *testing.T) {
	if _, err := kubectl("", "get", "crd", "tenantcontrolplanes.kamaji.clastix.io"); err != nil {
		t.Skip("Kamaji is not in this lab: `make kamaji KAMAJI=` with a checkout of its sources")
	}
	c := newCluster(t, `  version: 3.6.16
  auth: {enabled: true}
`)
	c.converges(3)
	c.offersKamaji()
	cart := c.hostsWithKamaji("cart")
	w := loads(t, cart, creators)
	w.updates()

	c.hostsWithKamaji("shop")
	user := c.kube("get", "tenantcontrolplane", "shop", "-o", "jsonpath={.status.storage.setup.user}")
	root := c.clientAs(name + "-operator-tls")
	_, err := root.UserGet(t.Context(), user)
	require.NoError(t, err, "a tenant has a user of its own")
	c.endsWithKamaji("shop")
	_, err = root.UserGet(t.Context(), user)
	require.ErrorIs(t, err, rpctypes.ErrUserNotFound)

	c.suffers(w.longest)

	before := c.secretOf("cart-datastore-certificate")["server.crt"]
	c.kube("delete", "secret", name+"-ca")
	eventually(t, "the tenant has another certificate", func() string {
		data, err := secretData(c.ns, "cart-datastore-certificate")
		if err != nil {
			return err.Error()
		}
		return while(bytes.Equal(data["server.crt"], before), "it is still the former one")
	})
	begin := time.Now()
	c.kube("rollout", "status", "deployment/cart", "--timeout=10m")
	t.Logf("the tenant's pod has its new certificate after %.0f s", time.Since(begin).Seconds())
	w.longest("the authority was succeeded")
	w.losesNothing()
}

// offersKamaji makes a DataStore of the cluster.
func (c *cluster) offersKamaji() {
	c.t.Helper()
	part := func(secret, key string) string {
		return "{secretReference: {name: " + secret + ", namespace: " + c.ns + ", keyPath: " + key + "}}"
	}
	c.adds(`apiVersion: kamaji.clastix.io/v1alpha1
kind: DataStore
metadata: {name: ` + c.ns + `}
spec:
  driver: etcd
  endpoints: ["` + name + "." + c.ns + `.svc:2379"]
  tlsConfig:
    certificateAuthority:
      certificate: ` + part(name+"-ca", "ca.crt") + `
      privateKey: ` + part(name+"-ca", "tls.key") + `
    clientCertificate:
      certificate: ` + part(name+"-operator-tls", "tls.crt") + `
      privateKey: ` + part(name+"-operator-tls", "tls.key") + `
`)
	c.t.Cleanup(func() { kube(c.t, "delete", "datastore", c.ns, "--timeout=60s") })
}

// hostsWithKamaji starts a tenant's control plane, and makes a namespace there once its administrator may.
func (c *cluster) hostsWithKamaji(tenant string) *apiServer {
	c.t.Helper()
	c.adds(`apiVersion: kamaji.clastix.io/v1alpha1
kind: TenantControlPlane
metadata: {name: ` + tenant + `, namespace: ` + c.ns + `}
spec:
  dataStore: ` + c.ns + `
  controlPlane:
    deployment: {replicas: 1}
    service: {serviceType: ClusterIP}
  kubernetes:
    version: v1.36.0
    kubelet: {cgroupfs: systemd}
  networkProfile: {port: 6443}
  addons: {}
`)
	c.t.Cleanup(func() { c.endsWithKamaji(tenant) })
	var config string
	eventually(c.t, tenant+" is ready", func() string {
		out, err := kubectl("", "-n", c.ns, "get", "tenantcontrolplane", tenant, "-o",
			"jsonpath={.status.kubernetesResources.version.status} {.status.kubeconfig.admin.secretName}")
		if err != nil {
			return err.Error()
		}
		state, secret, _ := strings.Cut(out, " ")
		if state != "Ready" || secret == "" {
			return "it is " + state
		}
		config = secret
		return ""
	})
	server, err := apiOf(c.secretOf(config)["admin.conf"])
	require.NoError(c.t, err)
	server = server.inside(c.t, server.server)
	eventually(c.t, tenant+" has a namespace", func() string { return failure(server.namespace("load")) })
	return server
}

func (c *cluster) endsWithKamaji(tenant string) {
	c.kube("delete", "tenantcontrolplane", tenant, "--ignore-not-found", "--timeout=120s")
}

// TestKarmada: both of Karmada's API servers, its own and the aggregated one, keep their data in an EtcdCluster, with
// the manifest of docs/how-to/control-planes.md. `make karmada` installs its operator and runs this.
func TestKarmada(t *testing.T) {
	if _, err := kubectl("", "get", "crd", "karmadas.operator.karmada.io"); err != nil {
		t.Skip("Karmada is not in this lab: `make karmada KARMADA=` with a checkout of its sources")
	}
	c := newCluster(t, three+"  tls: {mode: CertManager, certManager: {issuerRef: {name: etcd}}}\n")
	c.adds(issuers)
	c.converges(3)
	server := c.offersKarmada()
	w := loads(t, server, creators)
	w.updates()
	joined := map[string]bool{}
	joins := func(after string) { // by the aggregated API server
		t.Helper()
		w.longest(after)
		member := fmt.Sprintf("member-%d", len(joined))
		require.NoError(t, server.send(http.MethodPatch, karmadaClusters+"/"+member+"?fieldManager=load", applied,
			"{apiVersion: cluster.karmada.io/v1alpha1, kind: Cluster, metadata: {name: "+member+"}, "+
				"spec: {syncMode: Pull}}"))
		joined[member] = true
		var all struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		_, err := server.read(karmadaClusters, &all)
		require.NoError(t, err)
		found := map[string]bool{}
		for _, one := range all.Items {
			found[one.Metadata.Name] = true
		}
		assert.Equal(t, joined, found)
		assert.Len(t, c.present("/registry/cluster.karmada.io/clusters/"), len(joined), "they are in this etcd")
	}
	joins("it began")
	c.suffers(joins)
	w.losesNothing()
}

const karmadaClusters = "/apis/cluster.karmada.io/v1alpha1/clusters"

// offersKarmada has Karmada's operator make a control plane, and makes a namespace there.
func (c *cluster) offersKarmada() *apiServer {
	c.t.Helper()
	c.adds(`apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: karmada-etcd-cert, namespace: ` + c.ns + `}
spec:
  secretName: karmada-etcd-cert
  commonName: karmada
  usages: [client auth]
  issuerRef: {name: etcd}
---
apiVersion: operator.karmada.io/v1alpha1
kind: Karmada
metadata: {name: karmada, namespace: ` + c.ns + `}
spec:
  crdTarball: {httpSource: {url: "http://crds.internal"}}
  components:
    etcd:
      external:
        endpoints: ["https://` + name + "." + c.ns + `.svc:2379"]
        secretRef: {name: karmada-etcd-cert, namespace: ` + c.ns + `}
    karmadaAPIServer: {serviceType: NodePort}
    karmadaMetricsAdapter: {replicas: 1}
`)
	c.t.Cleanup(func() { c.kube("delete", "karmada", "karmada", "--timeout="+patience.String()) })
	c.meets("karmada/karmada", "Ready")
	server, err := apiOf(c.secretOf("karmada-admin-config")["karmada.config"])
	require.NoError(c.t, err)
	server = server.inside(c.t, server.server)
	require.NoError(c.t, server.namespace("load"))
	return server
}

// TestPatroni: two PostgreSQL servers agree on their primary in an EtcdCluster, as a user who may write below one
// prefix. Patroni speaks JSON over HTTP, so it logs in with a password alone: while auth is on, etcd refuses such
// requests with a certificate that has a name (https://github.com/etcd-io/etcd/blob/v3.6.0/server/embed/serve.go,
// ServeHTTP). The primary stays while etcd loses its leader and a claim, and is upgraded; when the primary is killed,
// the other one follows. Debian has what it needs: apt-get install patroni postgresql.
func TestPatroni(t *testing.T) {
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

// TestCoreDNS: a CoreDNS answers with what its user of etcd may read below one prefix. Questions come all the time,
// while etcd loses its leader and a claim, and is upgraded. What is written in between is answered next, and no name
// that is there is denied.
func TestCoreDNS(t *testing.T) {
	beside(t)
	c := newCluster(t, `  replicas: 3
  version: 3.6.16
  auth:
    enabled: true
    roles: [{name: dns, permissions: [{access: Read, prefix: /skydns/}]}]
    users: [{name: dns, roles: [dns], credential: Certificate}]
`)
	c.converges(3)
	dns := c.startsCoreDNS()
	dns.learns("first")
	ends, hosts := dns.asked("first"), 0
	c.suffers(func(what string) {
		ends(what)
		hosts++
		host := fmt.Sprintf("host-%d", hosts)
		dns.learns(host)
		ends = dns.asked(host)
	})
}

// nameServer is a CoreDNS on node 1 that has no cache.
type nameServer struct {
	t       *testing.T
	records *clientv3.Client
	net.Resolver
}

// startsCoreDNS with the Secret of its user.
func (c *cluster) startsCoreDNS() *nameServer {
	c.t.Helper()
	const address, process = "127.0.0.1:1053", "coredns-etcd"
	dir := c.t.TempDir()
	for key, content := range c.secretOf(name + "-client.dns") {
		require.NoError(c.t, os.WriteFile(filepath.Join(dir, key), content, 0o600))
	}
	config := filepath.Join(dir, "Corefile")
	require.NoError(c.t, os.WriteFile(config, fmt.Appendf(nil, `demo.test:1053 {
  bind 127.0.0.1
  errors
  etcd {
    endpoint https://%[1]s.%[2]s.svc:2379
    tls %[3]s/tls.crt %[3]s/tls.key %[3]s/ca.crt
  }
}
`, name, c.ns, dir), 0o600))
	inLab(c.t, "start", "1", process, "coredns", "-conf", config)
	c.t.Cleanup(func() { inLab(c.t, "stop", "1", process, "KILL") })
	return &nameServer{c.t, c.clientAs(name + "-operator-tls"), net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return lab.dialContext(ctx, address)
		},
	}}
}

const recorded = "192.0.2.7"

// learns a name, in the form of SkyDNS, and is asked until it knows it.
func (s *nameServer) learns(host string) {
	s.t.Helper()
	require.NoError(s.t, putting(s.t, s.records, "/skydns/test/demo/"+host, `{"host":"`+recorded+`"}`))
	eventually(s.t, host+" is answered", func() string {
		_, err := s.asks(host)
		return failure(err)
	})
}

// asks once, for IPv4 alone: of two answers Go's resolver tells the last, and a failure of the first with an IPv6
// answer that has no address would be a denial. It reports whether the name is said not to be there.
func (s *nameServer) asks(host string) (denied bool, err error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	addresses, err := s.LookupIP(ctx, "ip4", host+".demo.test.")
	if said := new(net.DNSError); errors.As(err, &said) && said.IsNotFound {
		return true, err
	}
	if err == nil && (len(addresses) != 1 || addresses[0].String() != recorded) {
		err = fmt.Errorf("%s has the addresses %v", host, addresses)
	}
	return false, err
}

// asked for a name all the time, until what it returns is called, which tells of the longest time without an answer.
func (s *nameServer) asked(host string) (ends func(what string)) {
	ctx, stop := context.WithCancel(s.t.Context())
	var asking sync.WaitGroup
	var answers int
	var longest time.Duration
	var denial error
	asking.Go(func() {
		for last := time.Now(); ctx.Err() == nil; time.Sleep(50 * time.Millisecond) {
			denied, err := s.asks(host)
			if denied {
				denial = err
			}
			longest = max(longest, time.Since(last))
			if err == nil {
				last = time.Now()
				answers++
			}
		}
	})
	s.t.Cleanup(asking.Wait)
	return func(what string) {
		s.t.Helper()
		stop()
		asking.Wait()
		require.NoError(s.t, denial, "a name that is there was denied")
		require.Positive(s.t, answers)
		s.t.Logf("%s: %d answers, the longest time without one was %.1f s", what, answers, longest.Seconds())
	}
}
