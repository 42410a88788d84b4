package answer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Generated are the Secrets of the passwords that the spec does not give.
func generated(v *facts.Facts) []*decision.DesiredSecret {
	s := v.Cluster.Spec.Auth
	if s == nil || !objects.Encrypted(v.Cluster) || users.Validate(s) != nil {
		return nil
	}
	var list []*decision.DesiredSecret
	add := func(user string) {
		name := users.PasswordSecret(v.Cluster.Name, user)
		d := secretOf(v, name, corev1.SecretTypeOpaque, nil)
		if old := v.Children.Secrets[name]; old == nil || !old.Has(users.PasswordKey) {
			d.Make = decision.Password{Key: users.PasswordKey}
		}
		list = append(list, d)
	}
	if s.RootPasswordSecretRef == nil {
		add(users.Root)
	}
	for _, u := range s.Users {
		if u.PasswordSecretRef == nil && u.Credential != v1alpha1.CredentialCertificate {
			add(u.Name)
		}
	}
	return list
}

// Desired is the Secret of this name as it should be; what there is of it keeps its metadata.
func secretOf(v *facts.Facts, name string, kind corev1.SecretType, how decision.Recipe) *decision.DesiredSecret {
	s := &decision.DesiredSecret{Type: kind, Make: how}
	if old := v.Children.Secrets[name]; old != nil {
		s.ObjectMeta = old.ObjectMeta
	}
	s.Name, s.Labels, s.Annotations = name, objects.Labels(v.Cluster, nil), objects.Annotations(v.Cluster, nil)
	return s
}

// TokenKeys sign the tokens of etcd's users. They are there from the beginning, because etcd reads them only when it
// starts.
func tokenKeys(v *facts.Facts) *decision.DesiredSecret {
	name := defaults.TokenSecret(v.Cluster.Name)
	if old := v.Children.Secrets[name]; old != nil && old.Has(objects.KeyTokenPrivate, objects.KeyTokenPublic) {
		return secretOf(v, name, corev1.SecretTypeOpaque, nil)
	}
	return secretOf(v, name, corev1.SecretTypeOpaque, decision.TokenKeys{})
}

// Authority says what should be done with the cluster's authority; nil for nothing.
func authority(v *facts.Facts) decision.Recipe {
	old := v.Children.Secrets[defaults.CASecret(v.Cluster.Name)]
	begins, ends := life(v, cmp.Or(v.Cluster.Spec.TLS.Auto.CADuration.Duration, defaults.DefaultCADuration))
	made := decision.Authority{CommonName: fmt.Sprintf("%s/%s %s", v.Cluster.Namespace, v.Cluster.Name,
		v.Now.UTC().Format("20060102T150405Z")), NotBefore: begins, NotAfter: ends}
	switch {
	case !facts.UsableAuthority(old), !old.Certificate.ValidAt(v.Now):
		made.Inherit = inheritance(v)
		return made
	case old.Previous != nil && v.Now.After(old.Previous.NotAfter),
		slices.ContainsFunc(old.Trust,
			func(c observation.Certificate) bool { return v.Now.After(c.NotAfter) && c.ID != old.Certificate.ID }):
		return decision.Trim{At: v.Now}
	case old.Previous == nil && !v.Now.Before(old.Certificate.Due()):
		made.Previous = true
		return made
	}
	return adopt(v, old)
}

// inheritance is a Secret that still tells what the members trust, in case the authority is deleted. While all members
// are stopped no one has to trust the next one beside it: then a person may have deleted what was stolen, and a view
// that still shows one of the other Secrets must not bring it back.
func inheritance(v *facts.Facts) string {
	if v.Replicas == 0 && !v.BesideForeign() && len(v.Children.Pods) == 0 {
		return ""
	}
	for _, l := range v.Leaves {
		if old := v.Children.Secrets[l.Secret]; old != nil && len(old.Trust) > 0 {
			return l.Secret
		}
	}
	return ""
}

// life is from when to when a new certificate is valid. It begins in the past, for clocks that are behind.
func life(v *facts.Facts, duration time.Duration) (begins, ends time.Time) {
	now := v.Now.UTC().Truncate(time.Second)
	return now.Add(-min(time.Hour, duration/20)), now.Add(duration)
}

// Leaf is the Secret of a certificate, with what should be done with it; nil while it can't be made.
func leaf(v *facts.Facts, l defaults.Leaf) *decision.DesiredSecret {
	old := v.Children.Secrets[l.Secret]
	wanted := secretOf(v, l.Secret, corev1.SecretTypeTLS, nil)
	if old != nil {
		wanted.Annotations[objects.AnnotationMadeFor] = old.Annotations[objects.AnnotationMadeFor]
	}
	ca := v.Children.Secrets[defaults.CASecret(v.Cluster.Name)]
	if l.What == "server" && peersLag(v, ca) {
		if old == nil {
			return nil
		}
		return wanted
	}
	if signer, previous := signer(v, ca, old); signer != nil && outlived(v, l, signer) {
		begins, ends := life(v, cmp.Or(v.Cluster.Spec.TLS.Auto.LeafDuration.Duration, defaults.DefaultLeafDuration))
		if ends.After(signer.NotAfter) {
			ends = signer.NotAfter
		}
		wanted.Annotations[objects.AnnotationMadeFor] = l.Fingerprint()
		wanted.Make = decision.Leaf{Signer: ca.Name, Previous: previous, CommonName: l.CommonName, Names: l.Names,
			Server: l.Server, Client: l.Client, NotBefore: begins, NotAfter: ends}
		return wanted
	}
	switch {
	case old == nil:
		return nil
	case facts.UsableAuthority(ca) && !facts.SameTrust(old.Trust, ca.Trust):
		wanted.Make = decision.Bundle{Signer: ca.Name}
	}
	return wanted
}

// outlived reports whether the certificate must be made, for the first time or again.
func outlived(v *facts.Facts, l defaults.Leaf, signer *observation.Certificate) bool {
	old := v.Children.Secrets[l.Secret]
	if old == nil || old.Certificate == nil || old.Flaw != "" {
		return true
	}
	return old.Annotations[objects.AnnotationMadeFor] != l.Fingerprint() || v.Now.Before(old.Certificate.NotBefore) ||
		!v.Now.Before(old.Certificate.Due()) && old.Certificate.NotAfter.Before(signer.NotAfter) ||
		old.Certificate.Issuer != signer.Key
}

// peersLag reports whether the peers' ca.crt is still to be brought up to the authority's. The servers' waits for
// that: it is the one that members tell us of, so a member that tells that it trusts an authority in clients also
// trusts it in peers.
func peersLag(v *facts.Facts, ca *observation.Secret) bool {
	peer := v.Children.Secrets[defaults.PeerSecret(v.Cluster)]
	return facts.UsableAuthority(ca) && peer != nil && !facts.SameTrust(peer.Trust, ca.Trust)
}

// signer is the authority that signs in a Secret now, and whether that is the previous one; nil when neither may. A
// new authority signs once every member trusts it and clients have had time to hear of it (a twelfth of its life),
// and goes on with what it has signed. Where the one before can't sign any more, it also replaces what no one accepts
// any longer.
func signer(v *facts.Facts, ca, old *observation.Secret) (signer *observation.Certificate, previous bool) {
	if !facts.UsableAuthority(ca) || !ca.Certificate.ValidAt(v.Now) {
		return nil, false
	}
	settled := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore) / 12)
	switch {
	case !supersedes(v, ca), signedBy(old, ca.Certificate), everyoneTrusts(v, *ca.Certificate) &&
		(ca.Previous == nil || !v.Now.Before(settled)):
		return ca.Certificate, false
	case ca.Previous != nil && ca.Previous.ValidAt(v.Now):
		return ca.Previous, true
	case spent(v, old):
		return ca.Certificate, false
	}
	return nil, false
}

func signedBy(s *observation.Secret, authority *observation.Certificate) bool {
	return s != nil && s.Certificate != nil && s.Certificate.Issuer == authority.Key
}

// spent reports whether no one accepts the certificate any longer.
func spent(v *facts.Facts, s *observation.Secret) bool {
	return s == nil || s.Certificate == nil || s.Flaw != "" || !s.Certificate.ValidAt(v.Now)
}

// supersedes reports whether the authority takes the place of another that certificates in use are signed by.
func supersedes(v *facts.Facts, ca *observation.Secret) bool {
	return slices.ContainsFunc(v.Leaves, func(l defaults.Leaf) bool {
		old := v.Children.Secrets[l.Secret]
		return old != nil && old.Certificate != nil && old.Certificate.Issuer != ca.Certificate.Key
	})
}

// everyoneTrusts reports whether every member and every pod has told, in this very call, that it trusts this
// authority. What is told at an address where another member answers, or one that we do not know, does not count.
func everyoneTrusts(v *facts.Facts, ca observation.Certificate) bool {
	tells := func(h observation.Health) bool { return h.Err == "" && slices.Contains(h.Trusts, ca.Subject) }
	if v.Etcd == nil || slices.ContainsFunc(v.Members,
		func(m *facts.Member) bool { return m.PodName != "" && !tells(m.Health) }) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(v.Children.Pods)) {
		if _, ours := objects.Ordinal(v.Cluster.Name, name); ours && !tells(v.Health[name]) {
			return false
		}
	}
	return true
}

// Certificates are the Certificates that cert-manager should keep: one for each leaf, under the name of its Secret.
// Where there is no rule for them, none.
func certificates(v *facts.Facts) []*decision.CertManagerCertificate {
	if v.Children.Certificates == nil || objects.TLSMode(v.Cluster) != v1alpha1.TLSCertManager {
		return facts.KeptAll(v.Cluster, v.Children.Certificates)
	}
	var list []*decision.CertManagerCertificate
	for _, l := range v.Leaves {
		list = append(list, certificate(v, l))
	}
	if a := v.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose are wanted is not known
		for _, old := range facts.KeptAll(v.Cluster, v.Children.Certificates) {
			if !slices.ContainsFunc(list, func(c *decision.CertManagerCertificate) bool { return c.Name == old.Name }) {
				list = append(list, old)
			}
		}
	}
	slices.SortFunc(list, func(a, b *decision.CertManagerCertificate) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// certificate asks cert-manager for a leaf, with a new key at each renewal. The label makes its Secret a related
// object.
func certificate(v *facts.Facts, l defaults.Leaf) *decision.CertManagerCertificate {
	c := &decision.CertManagerCertificate{}
	if old := v.Children.Certificates[l.Secret]; old != nil {
		c.ObjectMeta = old.ObjectMeta
	}
	c.Name, c.Labels, c.Annotations = l.Secret, objects.Labels(v.Cluster, nil), objects.Annotations(v.Cluster, nil)
	asked := v.Cluster.Spec.TLS.CertManager
	c.Spec.SecretName, c.Spec.CommonName, c.Spec.Duration = l.Secret, l.CommonName, asked.Duration
	c.Spec.IssuerRef = defaults.WholeIssuer(asked.IssuerRef)
	c.Spec.PrivateKey.Algorithm, c.Spec.PrivateKey.Size, c.Spec.PrivateKey.RotationPolicy = "ECDSA", 256, "Always"
	c.Spec.SecretTemplate.Labels = map[string]string{objects.LabelCluster: v.Cluster.Name}
	for _, name := range l.Names {
		if numeric(name) {
			c.Spec.IPAddresses = append(c.Spec.IPAddresses, name)
		} else {
			c.Spec.DNSNames = append(c.Spec.DNSNames, name)
		}
	}
	c.Spec.Usages = []string{"digital signature"}
	if l.Server {
		c.Spec.Usages = append(c.Spec.Usages, "server auth")
	}
	if l.Client {
		c.Spec.Usages = append(c.Spec.Usages, "client auth")
	}
	return c
}

// numeric reports whether a name is an IP address: a colon is in no host's name, and none ends in a number.
func numeric(name string) bool {
	_, err := strconv.Atoi(name[strings.LastIndex(name, ".")+1:])
	return err == nil || strings.Contains(name, ":")
}

// Adopt brings the authorities that are trusted beside the cluster's own up to what the spec names; nil when they are.
func adopt(v *facts.Facts, ca *observation.Secret) decision.Recipe {
	if !v.Epoch.Existing() || !facts.UsableAuthority(ca) {
		return nil
	}
	var also []observation.Certificate
	name := facts.TrustSecret(v.Cluster)
	if name != "" {
		s := v.AnySecret(name)
		if s == nil || len(s.Trust) == 0 {
			return nil // CertificateProblems says it
		}
		also = s.Trust
	}
	own := objects.Filter(ca.Trust, func(c observation.Certificate) bool {
		return c.ID == ca.Certificate.ID || ca.Previous != nil && c.ID == ca.Previous.ID ||
			strings.HasPrefix(c.CommonName, v.Cluster.Namespace+"/"+v.Cluster.Name+" ")
	})
	others := objects.Filter(ca.Trust, func(c observation.Certificate) bool {
		return !slices.ContainsFunc(own, func(o observation.Certificate) bool { return o.ID == c.ID })
	})
	if facts.SameIDs(others, also) {
		return nil
	}
	recipe := decision.Adopt{From: name}
	for _, c := range own {
		recipe.Keep = append(recipe.Keep, c.ID)
	}
	return recipe
}
