//go:build e2e

package e2e

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestKamaji: two control planes of Kamaji's live in one EtcdCluster, each below a prefix of its own, with the
// manifests of docs/how-to/control-planes.md. One writes all the time. `make kamaji` installs Kamaji and runs this.
func TestKamaji(t *testing.T) {
	nightly(t)
	if _, err := kubectl("", "get", "crd", "tenantcontrolplanes.kamaji.clastix.io"); err != nil {
		t.Skip("Kamaji is not in this lab: `make kamaji KAMAJI=` with a checkout of its sources")
	}
	c := newCluster(t, `  version: 3.6.16
  auth: {enabled: true}
  options:
    autoCompaction: {retention: 5m}
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
