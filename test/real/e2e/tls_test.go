//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/certtest"
)

// forger signs certificates that Quorate would not.
type forger struct {
	t *testing.T
	*certtest.Pair
}

// forgerWith has an authority's certificate and key.
func forgerWith(t *testing.T, data map[string][]byte) forger {
	t.Helper()
	pair, err := tls.X509KeyPair(data["tls.crt"], data["tls.key"])
	require.NoError(t, err)
	return forger{t, &certtest.Pair{Certificate: pair.Leaf, Key: pair.PrivateKey.(crypto.Signer)}}
}

// stranger is an authority that no member has heard of.
func stranger(t *testing.T, subject pkix.Name) forger {
	t.Helper()
	return forger{t, certtest.Authority(t, subject)}
}

// client is a certificate for a client of this name, valid until then.
func (f forger) client(commonName string, until time.Time) tls.Certificate {
	f.t.Helper()
	pair, err := tls.X509KeyPair(f.issue(commonName, until))
	require.NoError(f.t, err)
	return pair
}

// knock shakes hands with a port of a member's pod, showing these certificates, and says whether it was let in.
func knock(pod corev1.Pod, port int, show ...tls.Certificate) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := lab.dialContext(ctx, net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	secured := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: show, NextProtos: []string{"h2"},
		MinVersion: tls.VersionTLS12})
	if err := secured.Handshake(); err != nil {
		return err
	}
	// With TLS 1.3 the server's refusal comes after the client's last word: it is in what can be read. A server of
	// HTTP/2 that lets one in says its settings.
	_, err = secured.Read(make([]byte, 1))
	return err
}

// letsIn waits until a member accepts a client with this certificate.
func letsIn(t *testing.T, pod corev1.Pod, show tls.Certificate) {
	t.Helper()
	eventually(t, pod.Name+" lets in who shows the right certificate", func() string {
		err := knock(pod, 2379, show)
		return failure(err)
	})
}

func (c *cluster) letsNoOneElseIn() {
	pod := c.pods()[0]
	ours := forgerWith(c.t, c.secretOf(name+"-ca"))
	tomorrow, yesterday := time.Now().Add(24*time.Hour), time.Now().Add(-time.Hour)

	letsIn(c.t, pod, ours.client("client", tomorrow)) // the way that every client should go
	for why, err := range map[string]error{
		"no certificate": knock(pod, 2379),
		"a certificate of another authority": knock(pod, 2379,
			stranger(c.t, pkix.Name{CommonName: "me"}).client("root", tomorrow)),
		"one of an authority that bears our name": knock(pod, 2379,
			stranger(c.t, ours.Subject).client("root", tomorrow)),
		"a certificate that has expired":               knock(pod, 2379, ours.client("client", yesterday)),
		"the peers' port, no certificate":              knock(pod, 2380),
		"the peers' port, a client's certificate":      knock(pod, 2380, ours.client("client", tomorrow)),
		"the peers' port, root's certificate":          knock(pod, 2380, ours.client("root", tomorrow)),
		"the peers' port, a peer of another cluster's": knock(pod, 2380, ours.client("other:peers", tomorrow)),
		"the peers' port, a peer of another authority's": knock(pod, 2380,
			stranger(c.t, pkix.Name{CommonName: "me"}).client(name+":peers", tomorrow)),
		"the peers' port, a peer whose time is over": knock(pod, 2380, ours.client(name+":peers", yesterday)),
	} {
		assert.Error(c.t, err, why)
		c.t.Logf("%s: %v", why, err)
	}

	plain := c.clientWith(nil, c.service())
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := plain.Get(ctx, "key")
	require.Error(c.t, err, "plain text")
	assert.True(c.t, meta.IsStatusConditionTrue(c.object().Status.Conditions, v1beta1.Secured))
}

// TestPlainTextLearnsTLSUnderLoad: a cluster in plain text, on purpose, is switched to TLS while an application
// writes, which then follows.
func TestPlainTextLearnsTLSUnderLoad(t *testing.T) {
	beside(t)
	c := newCluster(t, three+"  tls: {mode: Disabled}\n")
	c.converges(3)
	secured := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Secured)
	require.NotNil(t, secured)
	assert.Equal(t, "Disabled", secured.Reason)
	ids := c.ids()
	plain := c.writesWith(c.clientWith(nil, c.service()), "plain")

	err := c.edits(`{"tls":{"mode":"Auto"}}`)
	require.Error(t, err, "it would lock the application out")
	assert.Contains(t, err.Error(), "allowPlaintextClients")
	c.edit(`{"tls":{"mode":"Auto","allowPlaintextClients":true}}`)
	eventually(t, "all members speak TLS among themselves", func() string {
		if s := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Secured); s == nil ||
			s.Reason != "PlaintextAllowed" {
			return fmt.Sprintf("%+v", s)
		}
		return c.notConverged(3)
	})
	secure := c.writesWith(c.client(), "secure")
	plain.losesNothing() // the application has followed

	c.edit(`{"tls":{"allowPlaintextClients":false}}`)
	eventually(t, "no member speaks plain text any more", func() string {
		if !meta.IsStatusConditionTrue(c.object().Status.Conditions, v1beta1.Secured) {
			return "not secured"
		}
		return c.notConverged(3)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = c.clientWith(nil, c.service()).Get(ctx, "key")
	require.Error(t, err)
	assert.Equal(t, ids, c.ids(), "the same members as before")
	out := c.asked("demo-0", "member", "list")
	assert.NotContains(t, out, "http:")
	secure.losesNothing()
}

func certificateIn(t *testing.T, data map[string][]byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(data["tls.crt"])
	require.NotNil(t, block)
	certificate, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return certificate
}

// shows says which member does not show a server's certificate yet that is as wanted; empty when all do.
func (c *cluster) shows(old *x509.Certificate, wanted func(old, now *x509.Certificate) bool) string {
	port, _, _ := objects.Ports(c.object())
	pods := c.pods()
	for _, pod := range pods {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		conn, err := lab.dialContext(ctx, net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(port)))
		cancel()
		if err != nil {
			return pod.Name + " can't be reached"
		}
		var shown *x509.Certificate
		_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
		_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
			shown = s.PeerCertificates[0]
			return nil
		}}).Handshake()
		_ = conn.Close()
		if shown == nil || !wanted(old, shown) {
			return pod.Name + " shows another certificate"
		}
	}
	return while(len(pods) != 3, fmt.Sprintf("%d pods", len(pods)))
}

// TestCertificatesRenewThemselvesUnderLoad: leaves are renewed without a restart, then the authority is succeeded,
// with a client that writes all the time. At night years are shortened to minutes; by day it begins with what was
// deleted, and goes on in the same way.
func TestCertificatesRenewThemselvesUnderLoad(t *testing.T) {
	beside(t)
	var c *cluster
	ages := ""
	ends := func(secret string) { c.kube("delete", "secret", name+secret) }
	if *longFlag {
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
	if *longFlag { // by day that takes as long as what it has signed may live: months
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

// TestComesBackWithoutTheOperatorsCertificate: Quorate can't reach the members any more, and then each of them is
// restarted, as by an upgrade of the nodes: all come back, and clients are led to all of them, with one that
// writes through the Service all the time.
func TestComesBackWithoutTheOperatorsCertificate(t *testing.T) {
	beside(t)
	ours := stranger(t, pkix.Name{CommonName: "ours"})
	const secrets = "{serverSecretRef: {name: mine-server}, peerSecretRef: {name: mine-peer}, " +
		"operatorSecretRef: {name: mine-operator}}"
	c := newCluster(t, three+"  tls: {mode: Secrets, secrets: "+secrets+"}\n")
	c.putsAll(ours, ours)
	c.converges(3)
	w := c.writes()

	c.kube("label", "secret", "mine-operator", objects.LabelCluster+"-")
	c.says("CertificatesLacking",
		"Secret mine-operator: it does not exist, or does not have the label "+objects.LabelCluster)
	for _, pod := range c.pods() {
		c.deletes("pods", pod.Name)
		c.another(pod)
		eventually(t, "clients are led to "+pod.Name, func() string {
			now, found := get[corev1.Pod](t, c.ns, "pods", pod.Name)
			return while(!found || !ready(now) || now.Labels[objects.LabelRole] != "voter",
				"its role is "+now.Labels[objects.LabelRole])
		})
	}

	c.kube("label", "secret", "mine-operator", objects.LabelCluster+"="+name)
	c.converges(3)
	w.losesNothing()
}

// TestRevokedClients: a certificate that a list names is let in no more, a new list reaches the members without a
// restart, and one that can't be used changes nothing for the writer that goes on through all of it.
func TestRevokedClients(t *testing.T) {
	beside(t)
	c := newCluster(t, three)
	c.converges(3)
	ours := forgerWith(t, c.secretOf(name+"-ca"))
	tomorrow := time.Now().Add(24 * time.Hour)
	stolen, another := ours.client("client", tomorrow), ours.client("client", tomorrow)
	w := c.writes()
	for _, pod := range c.pods() {
		letsIn(t, pod, stolen)
	}
	lists := func(list []byte) {
		c.adds(fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: revoked, labels: {%s: %s}}\ndata: {ca.crl: %s}\n",
			objects.LabelCluster, name, base64.StdEncoding.EncodeToString(list)))
	}
	asPEM := func(of tls.Certificate) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: ours.CRL(t, of.Leaf)})
	}
	lists(asPEM(stolen))
	c.edit(`{"tls":{"clientCRLSecretRef":{"name":"revoked"}}}`)
	knows := func(out, in tls.Certificate) {
		t.Helper()
		eventually(t, "every member knows the list", func() string {
			for _, pod := range c.pods() {
				if knock(pod, 2379, out) == nil {
					return pod.Name + " lets in who is revoked"
				}
				if err := knock(pod, 2379, in); err != nil {
					return fmt.Sprintf("%s: %v", pod.Name, err)
				}
			}
			return c.notConverged(3)
		})
	}
	knows(stolen, another)
	started := c.lives()

	lists(asPEM(another))
	began := time.Now()
	knows(another, stolen)
	t.Logf("another list: %.1f s", time.Since(began).Seconds())
	lists([]byte("no list"))
	eventually(t, "it is said", func() string {
		words := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Advised).Message
		return while(!strings.Contains(words, "the list before it stays in effect"), words)
	})
	require.Error(t, knock(c.pods()[0], 2379, another))
	assert.Equal(t, started, c.lives(), "no member was restarted for it")

	c.edit(`{"tls":{"clientCRLSecretRef":null}}`)
	knows(tls.Certificate{}, another)
	w.losesNothing()
}
