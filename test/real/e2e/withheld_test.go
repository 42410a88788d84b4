//go:build e2e

package e2e

import (
	"crypto/x509/pkix"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
)

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
		c.returns(pod.Name)
		eventually(t, "clients are led to "+pod.Name, func() string {
			now, found := get[corev1.Pod](t, c.ns, "pods", pod.Name)
			return while(!found || now.Labels[objects.LabelRole] != "voter",
				"its role is "+now.Labels[objects.LabelRole])
		})
	}

	c.kube("label", "secret", "mine-operator", objects.LabelCluster+"="+name)
	c.converges(3)
	w.losesNothing()
}
