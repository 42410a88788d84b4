//go:build e2e

package e2e

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestJoinBitnami: ours take the place of the members that Bitnami's chart makes (docs/how-to/migrate.md). The
// application logs in with a password and no certificate, trusts the old authority, keeps the name of its Service, and
// loses nothing.
func TestJoinBitnami(t *testing.T) {
	beside(t)
	c := inNamespace(t)
	ca := stranger(t, pkix.Name{CommonName: "the shop's authority"})
	c.installsBitnami(ca)
	w := c.writesWith(c.bitnamiClient(ca), "key")
	told := func(when string) {
		t.Logf("%s: longest stall until now %d ms, at %v", when, w.stalled().Milliseconds(), w.stallAt.Load())
	}

	c.putsBitnamis(ca)
	c.apply(three + `  tls:
    mode: Secrets
    clientAuth: None
    secrets: {serverSecretRef: {name: our-server}, peerSecretRef: {name: our-peer}, operatorSecretRef: {name: our-operator}}
  auth: {enabled: true, rootPasswordSecretRef: {name: shop-etcd, key: etcd-root-password}}
  bootstrap:
    external:
      endpoints: ['https://shop-etcd-0.shop-etcd-headless.` + c.ns + `.svc.lab.internal:2379']
      caSecretRef: {name: former}
      userSecretRef: {name: former-root}
`)
	c.stage("ExternalMembers")
	for _, pod := range c.pods() {
		assert.NotContains(t, pod.Spec.Containers[0].Command, "--client-cert-auth=true", "from their first start")
	}
	told("joined")

	c.kube("patch", "service", "shop-etcd", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/selector","value":{"etcd.quorate.dev/cluster":"demo","etcd.quorate.dev/role":"voter"}}]`)
	told("Service handed over")
	left := []string{"demo-0", "demo-1", "demo-2", "shop-etcd-0", "shop-etcd-1", "shop-etcd-2"}
	for n := 2; n > 0; n-- {
		c.kube("scale", "statefulset/shop-etcd", fmt.Sprintf("--replicas=%d", n))
		gone := fmt.Sprintf("shop-etcd-%d", n)
		eventually(t, gone+" is gone", func() string {
			_, there := get[corev1.Pod](t, c.ns, "pods", gone)
			return while(there, "it is there")
		})
		if n == 2 { // no hook has removed it
			c.removes(gone)
		}
		left = left[:len(left)-1]
		hasMembers(t, w.client, left...)
		told(gone + " removed")
	}
	c.edit(`{"removeExternalMembers":true}`)
	c.stage("Retired")
	told("all restarted behind a narrow door")
	c.kube("delete", "statefulset/shop-etcd", "service/shop-etcd-headless")
	c.edit(`{"bootstrap":null}`)
	c.converges(3)
	hasMembers(t, w.client, "demo-0", "demo-1", "demo-2")
	w.losesNothing()
}

// installsBitnami applies what the chart would, and turns auth on as its image does.
func (c *cluster) installsBitnami(ca forger) {
	c.t.Helper()
	until := time.Now().Add(time.Hour)
	of := "." + c.ns + ".svc"
	members := "*.shop-etcd-headless" + of + ".lab.internal"
	cert, key := ca.issue("", until, members, "shop-etcd"+of, "shop-etcd"+of+".lab.internal")
	c.puts("shop-client-certs", cert, key, bundle(ca))
	cert, key = ca.issue("", until, members)
	c.puts("shop-peer-certs", cert, key, bundle(ca))
	manifest, err := os.ReadFile("testdata/bitnami.yaml")
	require.NoError(c.t, err)
	c.adds(string(manifest))
	c.kube("rollout", "status", "statefulset/shop-etcd")
	ctl := func(args ...string) (string, error) { return c.etcdctl("shop-etcd-0", args...) }
	eventually(c.t, "the former etcd serves", func() string {
		_, err := ctl("endpoint", "health", "--cluster")
		return failure(err)
	})
	for _, step := range []string{"user add root:secret", "user grant-role root root", "auth enable"} {
		eventually(c.t, "the former etcd takes: "+step, func() string {
			// it may have been done before its answer was lost
			if _, err := ctl(strings.Fields(step)...); err != nil && !strings.Contains(err.Error(), "already exists") {
				return err.Error()
			}
			return ""
		})
	}
}

// putsBitnamis puts there what the page asks for: certificates for ours by their authority, the server's also for the
// name that applications keep; the authority and root's password for Quorate; and the label on the chart's own Secret.
func (c *cluster) putsBitnamis(ca forger) {
	c.t.Helper()
	names := append(c.names(), "shop-etcd."+c.ns+".svc", "shop-etcd."+c.ns+".svc.lab.internal",
		"127.0.0.1") // the last is for etcdctl in the pods
	peers := c.names()[0]
	c.putsThree(name, "our-", ca, names, []string{peers, peers + ".lab.internal"})
	c.kube("create", "secret", "generic", "former", "--from-literal=ca.crt="+string(bundle(ca)))
	c.putsLogin("former-root")
	c.kube("label", "secret", "former", "shop-etcd", "etcd.quorate.dev/cluster="+name)
}

// bitnamiClient is an application: it has the old authority, root's password and the old Service, and no certificate.
func (c *cluster) bitnamiClient(ca forger) *clientv3.Client {
	c.t.Helper()
	service, found := get[corev1.Service](c.t, c.ns, "svc", "shop-etcd")
	require.True(c.t, found)
	return letIn(c.t, "the application", func() (*clientv3.Client, error) {
		return c.open(&tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12},
			objects.HostPort(service.Spec.ClusterIP, objects.ClientPort), "root", "secret", func(s *clientv3.Config) {
				s.Endpoints = []string{"https://shop-etcd." + c.ns + ".svc:2379"}
			})
	})
}

// removes a member of this name from etcd's list, by etcdctl in a pod of ours.
func (c *cluster) removes(member string) {
	c.t.Helper()
	eventually(c.t, member+" is removed", func() string {
		out, err := c.etcdctl("demo-0", "--user=root:secret", "member", "list")
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(out) {
			if of := strings.Split(line, ", "); len(of) > 2 && of[2] == member {
				_, err = c.etcdctl("demo-0", "--user=root:secret", "member", "remove", of[0])
				return fmt.Sprintf("it is listed: %v", err)
			}
		}
		return ""
	})
}
