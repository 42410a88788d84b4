package hooks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// etcd knows a client by the common name of its certificate, and takes that from every authority that it trusts
// (authenticated by certificate, in etcd's server/auth/store.go: AuthInfoFromTLS). So who has a certificate of the
// authority of a cluster with the common name root is root there. Of an Issuer can ask who may make Certificates in
// its namespace, and they may read the Secrets of the cluster as well. Of a ClusterIssuer everybody can.

// wholeIssuer is the issuer with what goes without saying.
func wholeIssuer(ref v1alpha1.IssuerRef) v1alpha1.IssuerRef {
	return v1alpha1.IssuerRef{Name: ref.Name, Kind: cmp.Or(ref.Kind, "Issuer"),
		Group: cmp.Or(ref.Group, "cert-manager.io")}
}

// shared reports whether other namespaces than that of the cluster can have certificates of an issuer: of any but an
// Issuer of cert-manager's.
func shared(ref v1alpha1.IssuerRef) bool {
	whole := wholeIssuer(ref)
	return whole.Kind != "Issuer" || whole.Group != "cert-manager.io"
}

// sharesIssuer says what is wrong with an issuer that is shared where the installation does not allow that; empty for
// nothing.
func (o Observation) sharesIssuer() string {
	asked := o.Cluster.Spec.TLS.CertManager
	if objects.TLSMode(o.Cluster) != v1alpha1.TLSCertManager || asked == nil || o.Settings.SharedIssuers ||
		!shared(asked.IssuerRef) {
		return ""
	}
	return fmt.Sprintf("spec.tls.certManager.issuerRef names %s %s, of which other namespaces can have certificates "+
		"too, and who has one with the common name root "+
		"may do everything in this etcd: name an Issuer of this namespace, with an authority of its own, or have it "+
		"allowed (quorate install --shared-issuers)",
		wholeIssuer(asked.IssuerRef).Kind, asked.IssuerRef.Name)
}

// refuseIssuer refuses such an issuer. A cluster that has its certificates of it already is looked after as before,
// and advised: nothing that is held back from it would change who has a certificate.
func (o Observation) refuseIssuer() error {
	why := o.sharesIssuer()
	if why == "" || o.Children.Certificates == nil || o.hasCertificatesOf(o.Cluster.Spec.TLS.CertManager.IssuerRef) {
		return nil
	}
	return errors.New(why)
}

// hasCertificatesOf reports whether the cluster has asked this issuer for a certificate.
func (o Observation) hasCertificatesOf(ref v1alpha1.IssuerRef) bool {
	return slices.ContainsFunc(leaves(o.Cluster), func(l leaf) bool {
		c := o.Children.Certificates[l.secret]
		return c != nil && c.Spec.IssuerRef == wholeIssuer(ref)
	})
}
