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

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// generated are the Secrets of the passwords that the spec does not give.
func generated(f *facts.Facts) []*decision.DesiredSecret {
	s := f.Cluster.Spec.Auth
	if s == nil || !objects.Encrypted(f.Cluster) || users.Validate(s) != nil {
		return nil
	}
	var list []*decision.DesiredSecret
	add := func(user string) {
		name := users.PasswordSecret(f.Cluster.Name, user)
		d := secretOf(f, name, corev1.SecretTypeOpaque, nil)
		if old := f.Children.Secrets[name]; old == nil || !old.Has(users.PasswordKey) {
			d.Make = decision.Password{Key: users.PasswordKey}
		}
		list = append(list, d)
	}
	if s.RootPasswordSecretRef == nil {
		add(users.Root)
	}
	for _, u := range s.Users {
		if u.PasswordSecretRef == nil && u.Credential != v1beta1.CredentialCertificate {
			add(u.Name)
		}
	}
	return list
}

// secretOf is the Secret of this name as it should be; what there is of it keeps its metadata.
func secretOf(f *facts.Facts, name string, kind corev1.SecretType, how decision.Recipe) *decision.DesiredSecret {
	s := &decision.DesiredSecret{Type: kind, Make: how}
	if old := f.Children.Secrets[name]; old != nil {
		s.ObjectMeta = old.ObjectMeta
	}
	s.Name = name
	s.Labels = objects.Labels(f.Cluster, nil)
	s.Annotations = objects.Annotations(f.Cluster, nil)
	return s
}

// tokenKeys sign the tokens of etcd's users. They are there from the beginning, because etcd reads them only when it
// starts.
func tokenKeys(f *facts.Facts) *decision.DesiredSecret {
	name := defaults.TokenSecret(f.Cluster.Name)
	if old := f.Children.Secrets[name]; old != nil && old.Has(objects.KeyTokenPrivate, objects.KeyTokenPublic) {
		return secretOf(f, name, corev1.SecretTypeOpaque, nil)
	}
	return secretOf(f, name, corev1.SecretTypeOpaque, decision.TokenKeys{})
}

// revokedClients is the list that members' pods mount: the last one that could be used; nil for none.
func revokedClients(f *facts.Facts) *decision.DesiredSecret {
	name := defaults.CRLSecret(f.Cluster.Name)
	source := defaults.CRLSource(f.Cluster)
	old := f.Children.Secrets[name]
	list := f.CRL()
	if old == nil && list == nil {
		return nil
	}
	wanted := secretOf(f, name, corev1.SecretTypeOpaque, nil)
	switch {
	case list != nil:
		wanted.Annotations[objects.AnnotationMadeFor] = source
		if now := f.CopiedCRL(); now == nil || now.ID != list.ID {
			wanted.Make = decision.Revoked{From: source}
		}
	case source != "":
		wanted.Annotations[objects.AnnotationMadeFor] = old.Annotations[objects.AnnotationMadeFor]
	}
	return wanted
}

// authority says what should be done with the cluster's authority; nil for nothing.
func authority(f *facts.Facts) decision.Recipe {
	old := f.Children.Secrets[defaults.CASecret(f.Cluster.Name)]
	begins, ends := life(f, cmp.Or(f.Cluster.Spec.TLS.Auto.CADuration.Duration, defaults.DefaultCADuration))
	made := decision.Authority{CommonName: fmt.Sprintf("%s/%s %s", f.Cluster.Namespace, f.Cluster.Name,
		f.Now.UTC().Format("20060102T150405Z")), NotBefore: begins, NotAfter: ends}
	switch {
	case !facts.UsableAuthority(old), !old.Certificate.ValidAt(f.Now):
		made.Inherit = inheritance(f)
		return made
	case old.Previous != nil && f.Now.After(old.Previous.NotAfter),
		slices.ContainsFunc(old.Trust,
			func(c observation.Certificate) bool { return f.Now.After(c.NotAfter) && c.ID != old.Certificate.ID }):
		return decision.Trim{At: f.Now}
	case old.Previous == nil && !f.Now.Before(old.Certificate.Due()):
		made.Previous = true
		return made
	}
	return adopt(f, old)
}

// inheritance is a Secret that still tells what the members trust, in case the authority is deleted. While all members
// are stopped no one has to trust the next one beside it: then a person may have deleted what was stolen, and a view
// that still shows one of the other Secrets must not bring it back.
func inheritance(f *facts.Facts) string {
	if f.Replicas == 0 && !f.BesideExternal() && len(f.Children.Pods) == 0 {
		return ""
	}
	for _, l := range f.Leaves {
		if old := f.Children.Secrets[l.Secret]; old != nil && len(old.Trust) > 0 {
			return l.Secret
		}
	}
	return ""
}

// life is from when to when a new certificate is valid. It begins in the past, for clocks that are behind.
func life(f *facts.Facts, duration time.Duration) (begins, ends time.Time) {
	now := f.Now.UTC().Truncate(time.Second)
	return now.Add(-min(time.Hour, duration/20)), now.Add(duration)
}

// leaf is the Secret of a certificate, with what should be done with it; nil while it can't be made.
func leaf(f *facts.Facts, l defaults.Leaf) *decision.DesiredSecret {
	old := f.Children.Secrets[l.Secret]
	wanted := secretOf(f, l.Secret, corev1.SecretTypeTLS, nil)
	if old != nil {
		wanted.Annotations[objects.AnnotationMadeFor] = old.Annotations[objects.AnnotationMadeFor]
	}
	ca := f.Children.Secrets[defaults.CASecret(f.Cluster.Name)]
	if l.What == "server" && peersLag(f, ca) {
		if old == nil {
			return nil
		}
		return wanted
	}
	if signer, previous := signer(f, ca, old); signer != nil && outlived(f, l, signer) {
		begins, ends := life(f, cmp.Or(f.Cluster.Spec.TLS.Auto.LeafDuration.Duration, defaults.DefaultLeafDuration))
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
func outlived(f *facts.Facts, l defaults.Leaf, signer *observation.Certificate) bool {
	old := f.Children.Secrets[l.Secret]
	if old == nil || old.Certificate == nil || old.Flaw != "" {
		return true
	}
	was := old.Certificate
	begins := f.Now.Before(was.NotBefore)
	ends := !f.Now.Before(was.Due()) && was.NotAfter.Before(signer.NotAfter)
	if facts.Lists(f.ListedCRL(), old) { // no member takes it any more, or would
		return true
	}
	return old.Annotations[objects.AnnotationMadeFor] != l.Fingerprint() || begins || ends || was.Issuer != signer.Key
}

// peersLag reports whether the peers' ca.crt is still to be brought up to the authority's. The servers' waits for
// that: it is the one that members tell us of, so a member that tells that it trusts an authority in clients also
// trusts it in peers.
func peersLag(f *facts.Facts, ca *observation.Secret) bool {
	peer := f.Children.Secrets[defaults.PeerSecret(f.Cluster)]
	return facts.UsableAuthority(ca) && peer != nil && !facts.SameTrust(peer.Trust, ca.Trust)
}

// signer is the authority that signs in a Secret now, and whether that is the previous one; nil when neither may. A
// new authority signs once every member trusts it and clients have had time to hear of it (a twelfth of its life),
// and goes on with what it has signed. Where the one before can't sign any more, it also replaces what no one accepts
// any longer.
func signer(f *facts.Facts, ca, old *observation.Secret) (signer *observation.Certificate, previous bool) {
	if !facts.UsableAuthority(ca) || !ca.Certificate.ValidAt(f.Now) {
		return nil, false
	}
	settled := ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore) / 12)
	switch {
	case !supersedes(f, ca), signedBy(old, ca.Certificate), everyoneTrusts(f, *ca.Certificate) &&
		(ca.Previous == nil || !f.Now.Before(settled)):
		return ca.Certificate, false
	case ca.Previous != nil && ca.Previous.ValidAt(f.Now):
		return ca.Previous, true
	case spent(f, old):
		return ca.Certificate, false
	}
	return nil, false
}

func signedBy(s *observation.Secret, authority *observation.Certificate) bool {
	return s != nil && s.Certificate != nil && s.Certificate.Issuer == authority.Key
}

// spent reports whether no one accepts the certificate any longer.
func spent(f *facts.Facts, s *observation.Secret) bool {
	return s == nil || s.Certificate == nil || s.Flaw != "" || !s.Certificate.ValidAt(f.Now)
}

// supersedes reports whether the authority takes the place of another that certificates in use are signed by.
func supersedes(f *facts.Facts, ca *observation.Secret) bool {
	return slices.ContainsFunc(f.Leaves, func(l defaults.Leaf) bool {
		old := f.Children.Secrets[l.Secret]
		return old != nil && old.Certificate != nil && old.Certificate.Issuer != ca.Certificate.Key
	})
}

// everyoneTrusts reports whether every member and every pod has told, in this very call, that it trusts this
// authority. What is told at an address where another member answers, or one that we do not know, does not count.
func everyoneTrusts(f *facts.Facts, ca observation.Certificate) bool {
	tells := func(h observation.Health) bool { return h.Err == "" && slices.Contains(h.Trusts, ca.Subject) }
	if f.Etcd == nil || slices.ContainsFunc(f.Members,
		func(m *facts.Member) bool { return m.PodName != "" && !tells(m.Health) }) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(f.Children.Pods)) {
		if _, ours := objects.Ordinal(f.Cluster.Name, name); ours && !tells(f.Health[name]) {
			return false
		}
	}
	return true
}

// certificates are the Certificates that cert-manager should keep: one for each leaf, under the name of its Secret.
// Where there is no rule for them, none.
func certificates(f *facts.Facts) []*decision.CertManagerCertificate {
	if f.Children.Certificates == nil || objects.TLSMode(f.Cluster) != v1beta1.TLSCertManager {
		return facts.KeptAll(f.Cluster, f.Children.Certificates)
	}
	var list []*decision.CertManagerCertificate
	for _, l := range f.Leaves {
		list = append(list, certificate(f, l))
	}
	if a := f.Cluster.Spec.Auth; a == nil || users.Validate(a) != nil { // whose are wanted is not known
		for _, old := range facts.KeptAll(f.Cluster, f.Children.Certificates) {
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
func certificate(f *facts.Facts, l defaults.Leaf) *decision.CertManagerCertificate {
	c := &decision.CertManagerCertificate{}
	if old := f.Children.Certificates[l.Secret]; old != nil {
		c.ObjectMeta = old.ObjectMeta
	}
	c.Name = l.Secret
	c.Labels = objects.Labels(f.Cluster, nil)
	c.Annotations = objects.Annotations(f.Cluster, nil)
	asked := f.Cluster.Spec.TLS.CertManager
	c.Spec.SecretName = l.Secret
	c.Spec.CommonName = l.CommonName
	c.Spec.Duration = asked.Duration
	c.Spec.IssuerRef = defaults.WholeIssuer(asked.IssuerRef)
	c.Spec.PrivateKey.Algorithm = "ECDSA"
	c.Spec.PrivateKey.Size = 256
	c.Spec.PrivateKey.RotationPolicy = "Always"
	c.Spec.SecretTemplate.Labels = map[string]string{objects.LabelCluster: f.Cluster.Name}
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

// adopt brings the authorities that are trusted beside the cluster's own up to what the spec names; nil when they are.
func adopt(f *facts.Facts, ca *observation.Secret) decision.Recipe {
	if !f.Epoch.Joined() || !facts.UsableAuthority(ca) {
		return nil
	}
	var also []observation.Certificate
	name := facts.TrustSecret(f.Cluster)
	if name != "" {
		s := f.AnySecret(name)
		if s == nil || len(s.Trust) == 0 {
			return nil // CertificateProblems says it
		}
		also = s.Trust
	}
	own := objects.Filter(ca.Trust, func(c observation.Certificate) bool {
		return c.ID == ca.Certificate.ID || ca.Previous != nil && c.ID == ca.Previous.ID ||
			strings.HasPrefix(c.CommonName, f.Cluster.Namespace+"/"+f.Cluster.Name+" ")
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
