//go:build e2e

package e2e

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/certtest"
)

// issue signs a certificate as a person does who keeps an authority of his own: tls.crt and tls.key in PEM. With
// names it is for servers too.
func (f forger) issue(commonName string, until time.Time, names ...string) (certificate, private []byte) {
	f.t.Helper()
	template := x509.Certificate{Subject: pkix.Name{CommonName: commonName}, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if from := time.Now().Add(-time.Hour); until.Before(from) {
		template.NotBefore = until.Add(-time.Hour)
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if len(names) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	made := certtest.New(f.t, template, f.Pair)
	return made.PEM(), made.KeyPEM()
}

// bundle is what ca.crt says when these are trusted.
func bundle(trusted ...forger) []byte {
	var text []byte
	for _, f := range trusted {
		text = append(text, f.PEM()...)
	}
	return text
}

// puts a Secret with a certificate there, labelled for the cluster.
func (c *cluster) puts(secret string, certificate, private, trusted []byte) {
	c.t.Helper()
	c.putsFor(name, secret, certificate, private, trusted)
}

// putsFor puts one there for another EtcdCluster of the namespace.
func (c *cluster) putsFor(object, secret string, certificate, private, trusted []byte) {
	c.t.Helper()
	encode := base64.StdEncoding.EncodeToString
	c.adds(fmt.Sprintf(`{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: %s, namespace: %s, labels: {etcd.quorate.dev/cluster: %s}},
  data: {tls.crt: %s, tls.key: %s, ca.crt: %s}}`, secret, c.ns, object, encode(certificate), encode(private), encode(trusted)))
}

// putsThree puts what a cluster of this name shows: of its servers, of its peers, and of Quorate. They trust their own
// authority unless others are told.
func (c *cluster) putsThree(of, prefix string, signer forger, servers, peers []string, trusted ...forger) {
	c.t.Helper()
	if len(trusted) == 0 {
		trusted = []forger{signer}
	}
	tomorrow := time.Now().Add(24 * time.Hour)
	for secret, pair := range map[string][2][]byte{
		"server":   pairOf(signer.issue("", tomorrow, servers...)),
		"peer":     pairOf(signer.issue(of+":peers", tomorrow, peers...)),
		"operator": pairOf(signer.issue("root", tomorrow)),
	} {
		c.putsFor(of, prefix+secret, pair[0], pair[1], bundle(trusted...))
	}
}

func pairOf(a, b []byte) [2][]byte { return [2][]byte{a, b} }

// putsLogin puts root's password there, labelled for the cluster.
func (c *cluster) putsLogin(secret string) {
	c.t.Helper()
	c.kube("create", "secret", "generic", secret, "--from-literal=username=root", "--from-literal=password=secret")
	c.kube("label", "secret", secret, "etcd.quorate.dev/cluster="+name)
}

// names that a server's certificate must be for.
func (c *cluster) names() []string {
	return []string{"*." + name + "-peers." + c.ns + ".svc", name + "." + c.ns + ".svc", "localhost"}
}

// putsAll puts the certificates of members, Quorate and an application there, signed by one authority, trusting these.
func (c *cluster) putsAll(signer forger, trusted ...forger) {
	c.t.Helper()
	c.putsMembers(signer, trusted...)
	c.putsClients(signer, trusted...)
}

func (c *cluster) putsClients(signer forger, trusted ...forger) {
	c.t.Helper()
	tomorrow := time.Now().Add(24 * time.Hour)
	certificate, private := signer.issue("root", tomorrow)
	c.puts("mine-operator", certificate, private, bundle(trusted...))
	certificate, private = signer.issue("client", tomorrow)
	c.puts(name+"-client-tls", certificate, private, bundle(trusted...))
}

func (c *cluster) putsMembers(signer forger, trusted ...forger) {
	c.t.Helper()
	certificate, private := signer.issue("", time.Now().Add(24*time.Hour), c.names()...)
	c.puts("mine-server", certificate, private, bundle(trusted...))
	c.putsPeer(signer, trusted...)
}

func (c *cluster) putsPeer(signer forger, trusted ...forger) {
	c.t.Helper()
	certificate, private := signer.issue(name+":peers", time.Now().Add(24*time.Hour), c.names()[0])
	c.puts("mine-peer", certificate, private, bundle(trusted...))
}

// says waits until the condition Secured is false for this reason and says this. With clusters of the same name in
// other namespaces, as these tests have, Metacontroller may notice a Secret that changed at its next look only, which
// is up to 30 s later.
func (c *cluster) says(reason, words string) {
	c.t.Helper()
	eventually(c.t, words, func() string {
		s := meta.FindStatusCondition(c.object().Status.Conditions, v1beta1.Secured)
		return while(s == nil || s.Reason != reason || !strings.Contains(s.Message, words), fmt.Sprint(s))
	})
}

// TestCertificatesOfOnesOwn: what is wrong with them is said before there is a pod; then they are exchanged, and
// their authority too, in the order that is safe and in one that is not, with a client that writes all the time.
func TestCertificatesOfOnesOwn(t *testing.T) {
	beside(t)
	ours, other := stranger(t, pkix.Name{CommonName: "ours"}), stranger(t, pkix.Name{CommonName: "others"})
	c := newCluster(t, three+"  tls: {mode: Secrets, secrets: {serverSecretRef: {name: mine-server}, peerSecretRef: "+
		"{name: mine-peer}, operatorSecretRef: {name: mine-operator}}}\n")
	tomorrow := time.Now().Add(24 * time.Hour)

	c.says("CertificatesLacking", "Secret mine-server: it does not exist, or does not have the label "+
		"etcd.quorate.dev/cluster: demo")
	certificate, private := ours.issue("", time.Now().Add(-time.Minute), c.names()...)
	c.puts("mine-server", certificate, private, bundle(ours))
	c.putsPeer(ours, ours)
	c.putsClients(ours, ours)
	c.says("CertificatesLacking", "Secret mine-server: tls.crt expired on")
	certificate, _ = ours.issue("", tomorrow, c.names()...)
	c.puts("mine-server", certificate, private, bundle(ours))
	c.says("CertificatesLacking", "Secret mine-server: tls.key does not belong to tls.crt")
	certificate, private = ours.issue("", tomorrow, c.names()...)
	c.puts("mine-server", certificate, private, bundle(other))
	c.says("CertificatesLacking", "Secret mine-server: tls.crt is not signed by an authority in ca.crt")
	certificate, private = ours.issue("", tomorrow, "elsewhere")
	c.puts("mine-server", certificate, private, bundle(ours))
	c.says("CertificatesLacking", "Secret mine-server: tls.crt is not valid for")
	assert.Zero(t, len(c.pods()), "no pod was made for any of these")
	c.putsAll(ours, ours)
	c.converges(3)
	w := c.writes()

	before, started := certificateIn(t, c.secretOf("mine-server")), c.lives()
	c.putsMembers(ours, ours)
	eventually(t, "the replaced certificate is shown", func() string {
		return c.shows(before, func(old, now *x509.Certificate) bool { return !old.Equal(now) })
	})
	assert.Equal(t, started, c.lives(), "no member is restarted for another certificate of the same authority")

	// Too early: members would show what the others do not take.
	c.putsClients(ours, ours, other)
	c.putsMembers(other, ours, other)
	c.says("AuthorityChanged", "the authority that signed tls.crt is not trusted by demo-0")
	require.Equal(t, started, c.lives(), "no member is restarted into silence")
	c.putsMembers(ours, ours, other)
	c.trust(2)
	c.putsAll(other, ours, other)
	eventually(t, "every member shows that of the new authority", func() string {
		return c.shows(before, func(_, now *x509.Certificate) bool { return now.CheckSignatureFrom(other.Certificate) == nil })
	})
	c.putsAll(other, other)
	c.trust(1)
	assert.True(t, meta.IsStatusConditionTrue(c.object().Status.Conditions, v1beta1.Secured))
	w.losesNothing()

	// Without any overlap there is one way: every member at once.
	third := stranger(t, pkix.Name{CommonName: "others"}) // under the former one's name, with another key
	started = c.lives()
	c.putsAll(third, third)
	c.says("AuthorityChanged", "the authority that signed tls.crt is not trusted by demo-0, demo-1, demo-2, which "+
		"started before it")
	assert.Equal(t, started, c.lives())
	c.stops()
	c.edit(`{"replicas":3}`)
	c.converges(3)
	c.remembers()
}

// trust waits until every member trusts so many authorities, and nothing is left to do.
func (c *cluster) trust(authorities int) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("every member trusts %d authorities", authorities), func() string {
		for _, pod := range c.pods() {
			if n := strings.Count(pod.Annotations["etcd.quorate.dev/trusts"], ":"); n != authorities ||
				pod.DeletionTimestamp != nil {
				return fmt.Sprintf("%s trusts %d", pod.Name, n)
			}
		}
		return c.notConverged(3)
	})
}

// stops all members, and keeps their data.
func (c *cluster) stops() {
	c.t.Helper()
	c.edit(`{"replicas":0}`)
	c.hasPods(0)
}

// remembers what a writer has written.
func (c *cluster) remembers() {
	c.t.Helper()
	require.Len(c.t, c.reads(c.word()+"-first").Kvs, 1)
}

// distrustsEverything: the commands of docs/how-to/certificates.md for when something was stolen.
func (c *cluster) distrustsEverything() {
	c.writes().losesNothing()
	stolen := forgerWith(c.t, c.secretOf(name+"-ca"))
	tomorrow := time.Now().Add(24 * time.Hour)
	letsIn(c.t, c.pods()[0], stolen.client("client", tomorrow))

	c.stops()
	c.edit(`{"suspend":true}`)
	c.meets("etcdcluster/demo", "Suspended")
	c.kube("delete", "secret", "demo-ca", "demo-server-tls", "demo-peer-tls", "demo-operator-tls",
		"demo-client-tls", "demo-token")
	c.edit(`{"suspend":false}`)
	// Of two that are missing, kubectl says at once that they are not found.
	c.kube("wait", "--for=create", "secret/demo-ca", "--timeout=5m")
	c.kube("wait", "--for=create", "secret/demo-server-tls", "--timeout=5m")
	c.edit(`{"replicas":1}`)
	c.converges(1)
	c.remembers()
	pod := c.pods()[0]
	letsIn(c.t, pod, forgerWith(c.t, c.secretOf(name+"-ca")).client("client", tomorrow))
	require.Error(c.t, knock(pod, 2379, stolen.client("root", tomorrow)))
	require.Error(c.t, knock(pod, 2380, stolen.client(name+":peers", tomorrow)))
}

// issuers are an authority that stays, and one that it signs, which issues.
const issuers = `
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: itself}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: root}
spec: {isCA: true, commonName: root, secretName: root, privateKey: {algorithm: ECDSA, rotationPolicy: Never}, issuerRef: {name: itself}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: root}
spec: {ca: {secretName: root}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: intermediate}
spec: {isCA: true, commonName: intermediate, secretName: intermediate, privateKey: {algorithm: ECDSA, rotationPolicy: Always}, issuerRef: {name: root}}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: etcd}
spec: {ca: {secretName: intermediate}}
`

// renews makes cert-manager issue a Certificate again, as cmctl renew does, and waits until its Secret is another.
func (c *cluster) renews(certificates ...string) {
	c.t.Helper()
	for _, certificate := range certificates {
		before := string(c.secretOf(certificate)["tls.crt"])
		patch := fmt.Sprintf(`[{"op":"add","path":"/status/conditions/-","value":{"type":"Issuing","status":"True","reason":"ManuallyTriggered","message":"by the test","lastTransitionTime":%q}}]`,
			time.Now().UTC().Format(time.RFC3339))
		c.kube("patch", "certificate", certificate, "--subresource=status", "--type=json", "-p", patch)
		eventually(c.t, certificate+" is issued again", func() string {
			return while(string(c.secretOf(certificate)["tls.crt"]) == before, "it is the same")
		})
	}
}

func TestCertManager(t *testing.T) {
	beside(t)
	out, err := kubectl("", "get", "compositecontroller", "quorate-etcdcluster", "-o",
		"jsonpath={.spec.childResources[*].resource}")
	require.NoError(t, err)
	require.Contains(t, out, "certificates", "cert-manager is not there: `make install CERT_MANAGER=1`")
	c := newCluster(t, three+"  tls: {mode: CertManager, extraSANs: [etcd.example.com], certManager: {issuerRef: "+
		"{name: etcd}, duration: 1h}}\n")
	c.says("CertificatesLacking", "cert-manager says of the Certificate: ")
	assert.Zero(t, len(c.pods()))
	c.adds(issuers)
	c.converges(3)
	w := c.writes()
	server := certificateIn(t, c.secretOf(name+"-server-tls"))
	assert.Contains(t, server.DNSNames, "etcd.example.com")
	assert.InDelta(t, time.Hour, server.NotAfter.Sub(server.NotBefore), float64(time.Minute))
	operator := certificateIn(t, c.secretOf(name+"-operator-tls"))
	assert.Equal(t, "root", operator.Subject.CommonName)
	started := c.lives()

	// Another authority signs everything, which members take at once: they trust the root.
	intermediate := certificateIn(t, c.secretOf("intermediate"))
	c.renews("intermediate")
	c.renews(name+"-server-tls", name+"-peer-tls", name+"-operator-tls", name+"-client-tls")
	require.Error(t, certificateIn(t, c.secretOf(name+"-server-tls")).CheckSignatureFrom(intermediate))
	eventually(t, "every member shows the renewed certificate", func() string {
		return c.shows(certificateIn(t, c.secretOf(name+"-server-tls")),
			func(newest, now *x509.Certificate) bool { return newest.Equal(now) })
	})
	c.converges(3)
	assert.Equal(t, started, c.lives(), "no member was restarted for it")
	w.losesNothing()

	// What is deleted is issued again; what is edited goes back.
	c.kube("delete", "certificate", name+"-peer-tls")
	c.kube("patch", "certificate", name+"-server-tls", "--type=merge", "-p",
		`{"spec":{"secretTemplate":{"labels":{"etcd.quorate.dev/cluster":"other"}}}}`)
	eventually(t, "both Certificates are as they should be", func() string {
		if _, err := kubectl("", "-n", c.ns, "get", "certificate", name+"-peer-tls"); err != nil {
			return err.Error()
		}
		out, err := kubectl("", "-n", c.ns, "get", "certificate", name+"-server-tls", "-o",
			"jsonpath={.spec.secretTemplate.labels}")
		if err != nil || !strings.Contains(out, `"demo"`) {
			return out
		}
		return c.notConverged(3)
	})
	assert.Equal(t, started, c.lives())
}
