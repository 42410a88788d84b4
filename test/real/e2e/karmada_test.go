//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKarmada: both of Karmada's API servers, its own and the aggregated one, keep their data in an EtcdCluster, with
// the manifest of docs/how-to/control-planes.md. `make karmada` installs its operator and runs this.
func TestKarmada(t *testing.T) {
	nightly(t)
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
