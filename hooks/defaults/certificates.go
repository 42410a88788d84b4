package defaults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// UserSecret names the Secret with the certificate of a user that has one. No cluster's name has a dot, so that no
// other cluster's Secret has this name.
func UserSecret(cluster, user string) string { return cluster + "-client." + user }

// userLeaves are the certificates of the users that have one.
func userLeaves(c *v1beta1.EtcdCluster) []Leaf {
	var list []Leaf
	if c.Spec.Auth == nil || users.Validate(c.Spec.Auth) != nil {
		return nil
	}
	for _, u := range c.Spec.Auth.Users {
		if u.Credential == v1beta1.CredentialCertificate {
			list = append(list, Leaf{What: "user " + u.Name, Secret: UserSecret(c.Name, u.Name), CommonName: u.Name,
				Client: true})
		}
	}
	return list
}

// Certificates. In the mode Auto the cluster's authority is a Secret, made first; every other certificate is signed
// by an authority that was observed, so that no lagging cache and no repeated answer can leave a mixture.
//
// A running member reads its certificate again at each handshake, but the authorities that it trusts only when it
// starts. So a new authority comes in four moves, each of which waits for the one before to be seen: it is put beside
// the old one in every ca.crt; the members are restarted one at a time, until each has told in a handshake that it
// trusts both; it signs; and when the old one has expired it leaves ca.crt, and the members are restarted once more.

const (
	// DefaultLeafDuration is how long a certificate is valid where the spec says nothing.
	DefaultLeafDuration = 90 * 24 * time.Hour
	// DefaultCADuration is how long an authority is valid where the spec says nothing.
	DefaultCADuration = 10 * 365 * 24 * time.Hour
	// operatorName is the user that Quorate's own certificate names: etcd's root, so that a lost password is never
	// fatal.
	operatorName = "root"
	// clientName is the user that the certificate for applications names.
	clientName = "client"
)

// CASecret names the Secret of the cluster's certificate authority.
func CASecret(cluster string) string { return cluster + "-ca" }

// ClientSecret names the Secret with the certificate for applications.
func ClientSecret(cluster string) string { return cluster + "-client-tls" }

// TokenSecret names the Secret with the keys that sign etcd's tokens.
func TokenSecret(cluster string) string { return objects.TokenSecret(cluster) }

// CRLSecret names the Secret with the list of revoked clients that the members' pods mount.
func CRLSecret(cluster string) string { return cluster + "-client-crl" }

// CRLSource names the Secret that the spec takes that list from; empty for none.
func CRLSource(c *v1beta1.EtcdCluster) string {
	if ref := c.Spec.TLS.ClientCRLSecretRef; ref != nil && objects.Encrypted(c) {
		return ref.Name
	}
	return ""
}

// ServerSecret names the Secret with what the members show to clients, PeerSecret to each other, OperatorSecret
// Quorate to them.
func ServerSecret(c *v1beta1.EtcdCluster) string {
	if s := c.Spec.TLS.Secrets; objects.TLSMode(c) == v1beta1.TLSSecrets && s != nil {
		return s.ServerSecretRef.Name
	}
	return c.Name + "-server-tls"
}

// PeerSecret is the name of the Secret with the certificate that members show each other.
func PeerSecret(c *v1beta1.EtcdCluster) string {
	if s := c.Spec.TLS.Secrets; objects.TLSMode(c) == v1beta1.TLSSecrets && s != nil {
		return s.PeerSecretRef.Name
	}
	return c.Name + "-peer-tls"
}

// peerName is the common name that makes a certificate a peer's. It has a character that no user's name may have, so
// that no client's certificate opens the peers' door.
func peerName(cluster string) string { return cluster + ":peers" }

// Leaf is what a certificate must be like.
type Leaf struct {
	What, Secret, CommonName string
	Names                    []string
	Server, Client           bool
	// Members are the addresses of members among the names, on the hosts' network.
	Members []string
}

// Places are where clients and members reach a cluster, beside the names that every cluster has.
type Places struct {
	// Members are the addresses of members on the hosts' network, Nodes those and all at which members may be.
	Members, Nodes []string
	// External are the addresses of the load balancer.
	External []string
	// Domain is that of the Kubernetes cluster; empty for cluster.local.
	Domain string
}

// Leaves are all the certificates that the cluster needs besides the authority's.
func Leaves(c *v1beta1.EtcdCluster, at Places) []Leaf {
	members := objects.Host(c, "*")
	domain := "." + cmp.Or(at.Domain, "cluster.local")
	service := objects.ClientService(c.Name)
	server := []string{
		members, members + domain, "localhost", "127.0.0.1", "::1",
		service, service + "." + c.Namespace, service + "." + c.Namespace + ".svc",
		service + "." + c.Namespace + ".svc" + domain,
	}
	if outside := outsideNames(c); outside != "" {
		server = append(server, outside)
	}
	peer := []string{members}
	server = append(server, at.Nodes...)
	peer = append(peer, at.Nodes...)
	if External(c) != nil {
		// External members look up the name of the address that a connection comes from: it has the domain of the
		// Kubernetes cluster.
		peer = append(peer, members+domain)
	}
	return append([]Leaf{
		// Without a common name: etcd takes one for a user's, and the pods hold this certificate.
		{What: "server", Secret: ServerSecret(c), Names: Distinct(server, c.Spec.TLS.ExtraSANs, at.External), Server: true,
			Client: true, Members: at.Members},
		{What: "peer", Secret: PeerSecret(c), CommonName: peerName(c.Name), Names: peer, Server: true, Client: true,
			Members: at.Members},
		{What: "operator", Secret: objects.OperatorSecret(c), CommonName: operatorName, Client: true},
		{What: "client", Secret: ClientSecret(c.Name), CommonName: clientName, Client: true},
	}, userLeaves(c)...)
}

// outsideNames are the names of all members outside Kubernetes, as a certificate has them; empty without
// spec.memberService. No certificate names one member, so that a new one needs none.
func outsideNames(c *v1beta1.EtcdCluster) string {
	if c.Spec.MemberService == nil {
		return ""
	}
	return objects.ExternalHost(c, "*")
}

// Distinct are the strings of all lists, each once, sorted.
func Distinct(lists ...[]string) []string {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Fingerprint changes with what the certificate is for.
func (l Leaf) Fingerprint() string {
	return objects.Digest(l.CommonName, strings.Join(l.Names, " "), strconv.FormatBool(l.Server),
		strconv.FormatBool(l.Client))
}

// Usages of the certificate, in words.
func (l Leaf) Usages() string {
	if l.Server {
		return "servers and clients"
	}
	return "clients"
}

// Needs are the names without which members can't be reached.
func (l Leaf) Needs(c *v1beta1.EtcdCluster) []string {
	needed := append([]string{objects.Host(c, "*")}, l.Members...)
	if l.What == "server" {
		needed = append(needed, objects.ClientService(c.Name)+"."+c.Namespace+".svc")
		if outside := outsideNames(c); outside != "" {
			needed = append(needed, outside)
		}
	}
	return needed
}

// etcd knows a client by the common name of its certificate, and takes that from every authority that it trusts
// (authenticated by certificate, in etcd's server/auth/store.go: AuthInfoFromTLS). So who has a certificate of the
// authority of a cluster with the common name root is root there. Of an Issuer can ask who may make Certificates in
// its namespace, and they may read the Secrets of the cluster as well. Of a ClusterIssuer everyone can.

// WholeIssuer is the issuer with what goes without saying.
func WholeIssuer(ref v1beta1.IssuerRef) v1beta1.IssuerRef {
	return v1beta1.IssuerRef{Name: ref.Name, Kind: cmp.Or(ref.Kind, "Issuer"),
		Group: cmp.Or(ref.Group, "cert-manager.io")}
}

// shared reports whether other namespaces than that of the cluster can have certificates of an issuer: of any but an
// Issuer of cert-manager's.
func shared(ref v1beta1.IssuerRef) bool {
	whole := WholeIssuer(ref)
	return whole.Kind != "Issuer" || whole.Group != "cert-manager.io"
}

// SharesIssuer says what is wrong with an issuer that is shared where the installation does not allow that; empty for
// nothing.
func SharesIssuer(o observation.Observation) string {
	asked := o.Cluster.Spec.TLS.CertManager
	if objects.TLSMode(o.Cluster) != v1beta1.TLSCertManager || asked == nil || o.Settings.SharedIssuers ||
		!shared(asked.IssuerRef) {
		return ""
	}
	return fmt.Sprintf("spec.tls.certManager.issuerRef names %s %s, which also issues for other namespaces, and a "+
		"certificate with the common name root has every right in this etcd: use an Issuer of this namespace with "+
		"its own authority, or have the installation allow it (quorate install --shared-issuers)",
		WholeIssuer(asked.IssuerRef).Kind, asked.IssuerRef.Name)
}

// RefuseIssuer refuses such an issuer. A cluster that has its certificates of it already is looked after as before,
// and advised: nothing that is held back from it would change who has a certificate.
func RefuseIssuer(o observation.Observation) error {
	why := SharesIssuer(o)
	if why == "" || o.Children.Certificates == nil || hasCertificatesOf(o, o.Cluster.Spec.TLS.CertManager.IssuerRef) {
		return nil
	}
	return errors.New(why)
}

// hasCertificatesOf reports whether the cluster has asked this issuer for a certificate.
func hasCertificatesOf(o observation.Observation, ref v1beta1.IssuerRef) bool {
	return slices.ContainsFunc(Leaves(o.Cluster, Places{}), func(l Leaf) bool {
		c := o.Children.Certificates[l.Secret]
		return c != nil && c.Spec.IssuerRef == WholeIssuer(ref)
	})
}

// AskedKeys are those of this cluster.
func AskedKeys(c *v1beta1.EtcdCluster) observation.SecretKeys {
	pair := []string{objects.KeyCertificate, objects.KeyPrivate, objects.KeyTrust, objects.KeyPreviousCertificate,
		objects.KeyPreviousPrivate}
	k := observation.SecretKeys{Own: map[string]bool{objects.KeyTokenPrivate: true, objects.KeyTokenPublic: true,
		users.PasswordKey: true, objects.KeyStream: true, objects.KeyCRL: true}, Named: map[string]map[string]bool{}}
	for _, key := range pair {
		k.Own[key] = true
	}
	k.Name(CASecret(c.Name), pair...)
	k.Name(TokenSecret(c.Name), objects.KeyTokenPrivate, objects.KeyTokenPublic)
	for _, l := range Leaves(c, Places{}) {
		k.Name(l.Secret, pair...)
	}
	if source := CRLSource(c); source != "" {
		k.Name(source, objects.KeyCRL)
	}
	if e := External(c); e != nil {
		for _, name := range []string{e.CASecretRef.Name, e.ClientSecretRef.Name, e.PeerCASecretRef.Name} {
			k.Name(name, pair...)
		}
		k.Name(e.UserSecretRef.Name, KeyUsername, KeyPassword)
	}
	if a := c.Spec.Auth; a != nil {
		k.Password(users.RootPasswordSource(c.Name, a))
		for _, u := range a.Users {
			k.Password(users.PasswordIn("", u.PasswordSecretRef, users.PasswordSecret(c.Name, u.Name)))
		}
	}
	return k
}
