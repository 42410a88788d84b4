package world

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// forge makes of the Secrets that a decision asks for what etcdops/pki makes of them, in facts alone: certificates
// and keys are numbers. What a recipe reads are the Secrets that the call was shown.
func (w *World) forge(desired []*decision.DesiredSecret, observed map[string]*observation.Secret) (
	map[string]*observation.Secret, error) {
	made := map[string]*observation.Secret{}
	for _, d := range desired {
		s, err := w.forged(d.Make, observed[d.Name], observed)
		if err != nil {
			return nil, fmt.Errorf("the Secret %s: %w", d.Name, err)
		}
		s.ObjectMeta, s.Type = d.ObjectMeta, d.Type
		made[d.Name] = s
	}
	return made, nil
}

func (w *World) forged(recipe decision.Recipe, old *observation.Secret,
	observed map[string]*observation.Secret) (*observation.Secret, error) {
	if old == nil {
		old = &observation.Secret{}
	}
	s := *old
	switch r := recipe.(type) {
	case nil:
	case decision.Authority:
		return w.authority(r, old, observed[r.Inherit]), nil
	case decision.Trim:
		s.Trust = slices.DeleteFunc(slices.Clone(old.Trust),
			func(c observation.Certificate) bool { return r.At.After(c.NotAfter) })
		if old.Previous == nil || r.At.After(old.Previous.NotAfter) {
			s.Previous = nil
			s.Keys = slices.DeleteFunc(slices.Clone(old.Keys), func(key string) bool {
				return key == objects.KeyPreviousCertificate || key == objects.KeyPreviousPrivate
			})
		}
	case decision.Leaf:
		return w.leaf(r, observed[r.Signer])
	case decision.Bundle:
		signer := observed[r.Signer]
		if signer == nil {
			return nil, fmt.Errorf("the authority %s was not observed", r.Signer)
		}
		s.Trust = signer.Trust
		s.Flaw = flaw(&s)
	case decision.Adopt:
		s.Trust = slices.DeleteFunc(slices.Clone(old.Trust),
			func(c observation.Certificate) bool { return !slices.Contains(r.Keep, c.ID) })
		if from := observed[r.From]; from != nil {
			s.Trust = append(s.Trust, from.Trust...)
		}
	case decision.Revoked:
		from := observed[r.From]
		if from == nil || from.CRL == nil || from.CRL.Flaw != "" {
			return nil, fmt.Errorf("the list in Secret %s can't be copied", r.From)
		}
		s.Keys = []string{objects.KeyCRL}
		s.CRL = from.CRL
	case decision.TokenKeys:
		s.Keys = []string{objects.KeyTokenPrivate, objects.KeyTokenPublic}
	case decision.StreamKeys:
		s.Keys = []string{objects.KeyStream}
	case decision.Password:
		s.Keys = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(old.Keys), r.Key))))
	default:
		return nil, fmt.Errorf("there is no recipe %T", recipe)
	}
	return &s, nil
}

func (w *World) authority(r decision.Authority, old, inherit *observation.Secret) *observation.Secret {
	key := w.number("key")
	own := observation.Certificate{
		ID: w.numberAuthority(), CommonName: r.CommonName, Subject: "subject of " + key, Key: key, Issuer: key,
		NotBefore: r.NotBefore, NotAfter: r.NotAfter, Authority: true,
	}
	s := &observation.Secret{Keys: []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate},
		Certificate: &own, Trust: []observation.Certificate{own}}
	if r.Previous {
		s.Keys = []string{objects.KeyTrust, objects.KeyPreviousCertificate, objects.KeyPreviousPrivate,
			objects.KeyCertificate, objects.KeyPrivate}
		s.Previous, inherit = old.Certificate, old
	}
	if inherit != nil {
		for _, c := range inherit.Trust {
			if !r.NotBefore.After(c.NotAfter) {
				s.Trust = append(s.Trust, c)
			}
		}
	}
	return s
}

func (w *World) leaf(r decision.Leaf, signer *observation.Secret) (*observation.Secret, error) {
	if signer == nil {
		return nil, fmt.Errorf("the authority %s was not observed", r.Signer)
	}
	by := signer.Certificate
	if r.Previous {
		by = signer.Previous
	}
	if by == nil {
		return nil, fmt.Errorf("the authority in Secret %s can't sign", r.Signer)
	}
	s := &observation.Secret{
		Keys: []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate},
		Certificate: &observation.Certificate{
			ID: w.number("certificate"), CommonName: r.CommonName, Subject: "subject of " + r.CommonName,
			Key: w.number("key"), Issuer: by.Key,
			NotBefore: r.NotBefore, NotAfter: r.NotAfter, Names: r.Names, Server: r.Server, Client: r.Client,
		},
		Trust: signer.Trust,
	}
	s.Serials = []string{s.Certificate.ID}
	s.Flaw = flaw(s)
	return s, nil
}

// numberAuthority is the ID of a new authority, short, because stories tell it.
func (w *World) numberAuthority() string {
	w.Authorities++
	return "A" + strconv.Itoa(w.Authorities)
}

// number is a new one of its kind.
func (w *World) number(kind string) string {
	w.Forged++
	return kind + " " + strconv.Itoa(w.Forged)
}

// flaw is what etcdops/pki finds wrong with a leaf whose key is its own.
func flaw(s *observation.Secret) string {
	if s.Certificate == nil ||
		slices.ContainsFunc(s.Trust, func(c observation.Certificate) bool { return c.Key == s.Certificate.Issuer }) {
		return ""
	}
	return "tls.crt is not signed by an authority in ca.crt"
}
