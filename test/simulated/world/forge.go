package world

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// forge makes of the Secrets that a decision asks for what etcdops/pki makes of them, in facts alone: certificates
// and keys are numbers. What a recipe reads are the Secrets that the call was shown.
func (w *World) forge(desired []*hooks.DesiredSecret, observed map[string]*hooks.Secret) (map[string]*hooks.Secret,
	error) {
	made := map[string]*hooks.Secret{}
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

func (w *World) forged(recipe hooks.Recipe, old *hooks.Secret, observed map[string]*hooks.Secret) (*hooks.Secret,
	error) {
	if old == nil {
		old = &hooks.Secret{}
	}
	s := *old
	switch r := recipe.(type) {
	case nil:
	case hooks.Authority:
		return w.authority(r, old, observed[r.Inherit]), nil
	case hooks.Trim:
		s.Trust = slices.DeleteFunc(slices.Clone(old.Trust),
			func(c hooks.Certificate) bool { return r.At.After(c.NotAfter) })
		if old.Previous == nil || r.At.After(old.Previous.NotAfter) {
			s.Previous = nil
			s.Keys = slices.DeleteFunc(slices.Clone(old.Keys), func(key string) bool {
				return key == objects.KeyPreviousCertificate || key == objects.KeyPreviousPrivate
			})
		}
	case hooks.Leaf:
		return w.leaf(r, observed[r.Signer])
	case hooks.Bundle:
		signer := observed[r.Signer]
		if signer == nil {
			return nil, fmt.Errorf("the authority %s was not observed", r.Signer)
		}
		s.Trust = signer.Trust
		s.Flaw = flaw(&s)
	case hooks.Adopt:
		s.Trust = slices.DeleteFunc(slices.Clone(old.Trust),
			func(c hooks.Certificate) bool { return !slices.Contains(r.Keep, c.ID) })
		if from := observed[r.From]; from != nil {
			s.Trust = append(s.Trust, from.Trust...)
		}
	case hooks.TokenKeys:
		s.Keys = []string{objects.KeyTokenPrivate, objects.KeyTokenPublic}
	case hooks.Password:
		s.Keys = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(old.Keys), r.Key))))
	default:
		return nil, fmt.Errorf("there is no recipe %T", recipe)
	}
	return &s, nil
}

func (w *World) authority(r hooks.Authority, old, inherit *hooks.Secret) *hooks.Secret {
	key := w.number("key")
	own := hooks.Certificate{
		ID: w.numberAuthority(), CommonName: r.CommonName, Subject: "subject of " + key, Key: key, Issuer: key,
		NotBefore: r.NotBefore, NotAfter: r.NotAfter, Authority: true,
	}
	s := &hooks.Secret{Keys: []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate}, Certificate: &own,
		Trust: []hooks.Certificate{own}}
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

func (w *World) leaf(r hooks.Leaf, signer *hooks.Secret) (*hooks.Secret, error) {
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
	s := &hooks.Secret{
		Keys: []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate},
		Certificate: &hooks.Certificate{
			ID: w.number("certificate"), CommonName: r.CommonName, Subject: "subject of " + r.CommonName,
			Key: w.number("key"), Issuer: by.Key,
			NotBefore: r.NotBefore, NotAfter: r.NotAfter, Names: r.Names, Server: r.Server, Client: r.Client,
		},
		Trust: signer.Trust,
	}
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
func flaw(s *hooks.Secret) string {
	if s.Certificate == nil ||
		slices.ContainsFunc(s.Trust, func(c hooks.Certificate) bool { return c.Key == s.Certificate.Issuer }) {
		return ""
	}
	return "tls.crt is not signed by an authority in ca.crt"
}
