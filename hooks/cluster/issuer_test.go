package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
)

// TestAnIssuerThatIsSharedIsRefused: who has a certificate of it in the name of root is root in the cluster's etcd,
// so nothing is asked of it unless the installation allows it. A cluster that has its certificates of it already is
// looked after as before, and advised; another one is not begun with.
func TestAnIssuerThatIsSharedIsRefused(t *testing.T) {
	for _, c := range []struct {
		ref              v1alpha1.IssuerRef
		allowed, refused bool
	}{
		{v1alpha1.IssuerRef{Name: "ours"}, false, false},
		{v1alpha1.IssuerRef{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}, false, false},
		{v1alpha1.IssuerRef{Name: "ours", Kind: "ClusterIssuer"}, false, true},
		{v1alpha1.IssuerRef{Name: "ours", Kind: "ClusterIssuer"}, true, false},
		{v1alpha1.IssuerRef{Name: "ours", Kind: "Issuer", Group: "awspca.cert-manager.io"}, false, true},
		{v1alpha1.IssuerRef{Name: "ours", Kind: "VaultIssuer", Group: "example.com"}, true, false},
	} {
		o := fresh(3)
		o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSCertManager,
			CertManager: &v1alpha1.CertManagerTLS{IssuerRef: c.ref}}
		o.Children.ConfigMaps, o.Children.Certificates = nil, map[string]*decision.CertManagerCertificate{}
		o.Settings.SharedIssuers = c.allowed
		d := Decide(o)
		assert.Equal(t, c.refused, d.Reason.Rule == "Unsupported", "%+v: %s", c, d.Reason)
		if c.refused {
			assert.Empty(t, d.Children.Certificates)
			assert.Contains(t, d.Reason.Message, "spec.tls.certManager.issuerRef names "+c.ref.Kind+
				" ours, which also issues for other namespaces")
			assert.Contains(t, d.Reason.Message, "quorate install --shared-issuers")
		}
	}

	o := serve(3)
	provide(&o, v1alpha1.TLSCertManager)
	o.Cluster.Spec.TLS.CertManager.IssuerRef.Kind = "ClusterIssuer"
	o.Settings.SharedIssuers = true
	d := Decide(o)
	require.NotEmpty(t, d.Children.Certificates)
	o.Children.Certificates = map[string]*decision.CertManagerCertificate{}
	for _, c := range d.Children.Certificates {
		o.Children.Certificates[c.Name] = c
	}
	o.Settings.SharedIssuers = false
	d = Decide(o)
	assert.NotEqual(t, "Unsupported", d.Reason.Rule)
	assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Advised).Message, "ClusterIssuer ours")
	o.Cluster.Spec.TLS.CertManager.IssuerRef.Name = "another"
	assert.Equal(t, "Unsupported", Decide(o).Reason.Rule)
}
