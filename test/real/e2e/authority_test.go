//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestCertificatesRenewThemselvesUnderLoad: leaves are renewed without a restart, then the authority is succeeded,
// with a client that writes all the time. At night years are shortened to minutes; by day it begins with what was
// deleted, and goes on in the same way.
func TestCertificatesRenewThemselvesUnderLoad(t *testing.T) {
	beside(t)
	var c *cluster
	ages := ""
	ends := func(secret string) { c.kube("delete", "secret", name+secret) }
	if *nightlyFlag {
		ages, ends = "  tls: {auto: {leafDuration: 3m, caDuration: 15m}}\n", func(string) {}
	}
	c = newCluster(t, three+ages)
	c.converges(3)
	started := c.lives()
	var handshakes atomic.Int64
	config := rereading(c.ns, name+"-client-tls")
	verifies := config.VerifyConnection
	config.VerifyConnection = func(s tls.ConnectionState) error { handshakes.Add(1); return verifies(s) }
	client, err := c.open(config, c.service(), "", "", func(config *clientv3.Config) {
		config.DialKeepAliveTimeout = 20 * time.Second // a member that is short of a core is no reason to leave it
	})
	require.NoError(t, err)
	w := c.writesWith(client, "key")
	before := handshakes.Load()
	server, ca := certificateIn(t, c.secretOf(name+"-server-tls")), certificateIn(t, c.secretOf(name+"-ca"))

	ends("-server-tls")
	eventually(t, "the leaves are renewed, and every member shows the new one", func() string {
		return c.shows(server, func(old, now *x509.Certificate) bool { return !old.Equal(now) })
	})
	assert.Equal(t, started, c.lives(), "no member was restarted for it")
	t.Logf("renewal: longest stall %d ms, %d requests repeated, %d connections made again", w.stalled().Milliseconds(),
		w.retries(), handshakes.Load()-before)

	ends("-ca")
	eventually(t, "a new authority signs what every member shows", func() string {
		return c.shows(server, func(_, now *x509.Certificate) bool { return now.CheckSignatureFrom(ca) != nil })
	})
	c.converges(3)
	if *nightlyFlag { // by day that takes as long as what it has signed may live: months
		eventually(t, "the old authority is no longer trusted anywhere", func() string {
			if bytes.Contains(c.secretOf(name + "-client-tls")["ca.crt"],
				pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Raw})) {
				return "it is in ca.crt"
			}
			return c.notConverged(3)
		})
	}
	w.losesNothing()
	assert.Empty(t, w.refused)
}
