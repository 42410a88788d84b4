package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"slices"
	"time"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Make is the data of a Secret of this name, made by the recipe (nil: as observed) out of the observed Secrets. Errors
// name Secrets and keys and hold nothing of what is in them.
func Make(name string, recipe decision.Recipe, observed map[string]map[string][]byte) (map[string][]byte, error) {
	old := observed[name]
	switch r := recipe.(type) {
	case nil:
		if old == nil {
			return nil, fmt.Errorf("the Secret %s must be kept and was not observed", name)
		}
		return old, nil
	case decision.Authority:
		return authority(r, old, observed[r.Inherit])
	case decision.Trim:
		return trim(r, old)
	case decision.Leaf:
		return leaf(r, observed[r.Signer])
	case decision.Bundle:
		return with(old, objects.KeyTrust, observed[r.Signer][objects.KeyTrust]), nil
	case decision.Adopt:
		return adopt(r, old, observed[r.From])
	case decision.Revoked:
		return revoked(r.From, observed[r.From])
	case decision.TokenKeys:
		return tokenKeys()
	case decision.Password:
		return with(old, r.Key, []byte(base64.RawURLEncoding.EncodeToString(random(32)))), nil
	default:
		return nil, fmt.Errorf("the Secret %s: there is no recipe %T", name, recipe)
	}
}

// with is a copy of the data in which one key has another value.
func with(data map[string][]byte, key string, value []byte) map[string][]byte {
	changed := maps.Clone(data)
	if changed == nil {
		changed = map[string][]byte{}
	}
	changed[key] = value
	return changed
}

func authority(r decision.Authority, old, inherit map[string][]byte) (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	number := serial()
	template := &x509.Certificate{
		// No two subjects are equal: members name the authorities they trust by the subject alone.
		SerialNumber: number, Subject: pkix.Name{CommonName: r.CommonName, Organization: []string{"Quorate"},
			SerialNumber: number.Text(16)},
		NotBefore: r.NotBefore, NotAfter: r.NotAfter, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	private, err := privateKey(key)
	if err != nil {
		return nil, err
	}
	own := encode("CERTIFICATE", der)
	data := map[string][]byte{objects.KeyCertificate: own, objects.KeyPrivate: private}
	trusted := inherit[objects.KeyTrust]
	if r.Previous {
		trusted = old[objects.KeyTrust]
		data[objects.KeyPreviousCertificate] = old[objects.KeyCertificate]
		data[objects.KeyPreviousPrivate] = old[objects.KeyPrivate]
	}
	data[objects.KeyTrust] = append(append([]byte{}, own...), unexpired(trusted, r.NotBefore)...)
	return data, nil
}

func trim(r decision.Trim, old map[string][]byte) (map[string][]byte, error) {
	data := with(old, objects.KeyTrust, unexpired(old[objects.KeyTrust], r.At))
	if previous, err := certificates(old[objects.KeyPreviousCertificate]); err != nil ||
		r.At.After(previous[0].NotAfter) {
		delete(data, objects.KeyPreviousCertificate)
		delete(data, objects.KeyPreviousPrivate)
	}
	return data, nil
}

func adopt(r decision.Adopt, old, from map[string][]byte) (map[string][]byte, error) {
	trusted, err := certificates(old[objects.KeyTrust])
	if err != nil {
		return nil, fmt.Errorf("the authority that is to trust others: ca.crt: %w", err)
	}
	var all []byte
	seen := map[string]bool{}
	add := func(c *x509.Certificate) {
		if !seen[Identify(c)] {
			all = append(all, encode("CERTIFICATE", c.Raw)...)
		}
		seen[Identify(c)] = true
	}
	for _, c := range trusted {
		if slices.Contains(r.Keep, Identify(c)) {
			add(c)
		}
	}
	if r.From != "" {
		others, err := certificates(from[objects.KeyTrust])
		if err != nil {
			return nil, fmt.Errorf("the Secret %s: ca.crt: %w", r.From, err)
		}
		for _, c := range others {
			add(c)
		}
	}
	return with(old, objects.KeyTrust, all), nil
}

// unexpired are the certificates of a PEM text that have not expired.
func unexpired(text []byte, at time.Time) []byte {
	all, err := certificates(text)
	if err != nil {
		return nil
	}
	var kept []byte
	for _, c := range all {
		if !at.After(c.NotAfter) {
			kept = append(kept, encode("CERTIFICATE", c.Raw)...)
		}
	}
	return kept
}

func leaf(r decision.Leaf, signer map[string][]byte) (map[string][]byte, error) {
	certificate := signer[objects.KeyCertificate]
	private := signer[objects.KeyPrivate]
	if r.Previous {
		certificate = signer[objects.KeyPreviousCertificate]
		private = signer[objects.KeyPreviousPrivate]
	}
	ca, caKey, err := pair(certificate, private)
	if err != nil {
		return nil, fmt.Errorf("the authority in Secret %s can't sign: %w", r.Signer, err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: r.CommonName}, NotBefore: r.NotBefore,
		NotAfter: r.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
	}
	for _, name := range r.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if r.Server {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if r.Client {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	own, err := privateKey(key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{objects.KeyCertificate: encode("CERTIFICATE", der), objects.KeyPrivate: own,
		objects.KeyTrust: signer[objects.KeyTrust]}, nil
}

func tokenKeys() (map[string][]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := privateKey(key)
	if err != nil {
		return nil, err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{objects.KeyTokenPrivate: private, objects.KeyTokenPublic: encode("PUBLIC KEY", public)},
		nil
}

// pair reads a certificate and its key.
func pair(certificate, private []byte) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	chain, err := certificates(certificate)
	if err != nil {
		return nil, nil, err
	}
	block, _ := pem.Decode(private)
	if block == nil {
		return nil, nil, fmt.Errorf("it has no key")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, fmt.Errorf("its key can't be read")
	}
	return chain[0], key, nil
}

func privateKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: crypto/rand ends the process instead
	return b
}

// serial is a random number of 127 bits, never zero or negative.
func serial() *big.Int {
	b := random(16)
	b[0] = b[0]&0x7f | 0x40
	return new(big.Int).SetBytes(b)
}
