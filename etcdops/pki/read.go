// Package pki reads Secrets for the decisions and makes what these ask for. It is where keys and passwords are; package
// hooks sees none of them. It decides nothing.
package pki

import (
	"bytes"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/etcdops/token"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Read is what decisions may know of a Secret.
func Read(s *corev1.Secret) *observation.Secret {
	read, _ := ReadFor(context.Background(), s.Namespace, nil, s) // it fails with its context alone
	return read
}

// ReadFor is Read on behalf of a tenant, within the time of a call, and in its turn (nil: at once) when it was not read
// lately. The error is ctx's, when that has ended before the Secret was read; to read one takes less than a
// millisecond, and some tenths of a second at most.
func ReadFor(ctx context.Context, tenant string, turn Turn, s *corev1.Secret) (*observation.Secret, error) {
	if turn == nil {
		turn = atOnce
	}
	same, err := known.of(ctx, tenant, turn, s.Data)
	if err != nil {
		return nil, err
	}
	read := *same
	read.ObjectMeta = s.ObjectMeta
	read.Type = s.Type
	return &read, nil
}

func readData(data map[string][]byte) *observation.Secret {
	read := &observation.Secret{Unfit: map[string]string{}}
	for key, value := range data {
		if len(value) > 0 {
			read.Keys = append(read.Keys, key)
		}
		if flaw := users.PasswordFlaw(string(value)); flaw != "" {
			read.Unfit[key] = flaw
		}
	}
	slices.Sort(read.Keys)
	if private := data[objects.KeyTokenPrivate]; len(private) > 0 {
		if _, err := token.Read(private, data[objects.KeyTokenPublic]); err != nil {
			read.Flaw = err.Error()
		}
	}
	if slices.Contains(read.Keys, objects.KeyCRL) {
		read.CRL = readCRL(data[objects.KeyCRL])
	}
	if slices.Contains(read.Keys, objects.KeyCertificate) || slices.Contains(read.Keys, objects.KeyTrust) {
		readPair(read, data)
	}
	return read
}

// readPair reads tls.crt, tls.key and ca.crt, and says what is wrong with them.
func readPair(read *observation.Secret, data map[string][]byte) {
	trust, untrusted := certificates(data[objects.KeyTrust])
	for _, c := range trust {
		authority := *describe(c)
		authority.Names = nil // those of authorities are asked for nowhere, and may be many
		read.Trust = append(read.Trust, authority)
	}
	chain, err := certificates(data[objects.KeyCertificate])
	if err != nil {
		read.Flaw = "tls.crt: " + err.Error()
		return
	}
	read.Certificate = describe(chain[0])
	for _, c := range chain {
		read.Serials = append(read.Serials, serialOf(c.SerialNumber))
	}
	if untrusted != nil {
		read.Flaw = "ca.crt: " + untrusted.Error()
		return
	}
	if previous, err := certificates(data[objects.KeyPreviousCertificate]); err == nil {
		read.Previous = describe(previous[0])
	}
	led := anchors(chain, trust)
	for _, c := range read.Trust {
		if led[c.ID] {
			read.Anchors = append(read.Anchors, c)
		}
	}
	read.Flaw = flaw(read.Anchors, data)
}

// flaw says why a certificate, its key and the authorities behind it can't be used together. Whether it has expired is
// checked elsewhere, where the time is known.
func flaw(anchors []observation.Certificate, data map[string][]byte) string {
	switch n := len(data[objects.KeyPrivate]); {
	case n == 0:
		return "tls.key is missing"
	case n > longestPrivate:
		return fmt.Sprintf("tls.key has %d bytes, and %d are the most", n, longestPrivate)
	}
	if _, err := tls.X509KeyPair(data[objects.KeyCertificate], data[objects.KeyPrivate]); err != nil {
		return "tls.key does not belong to tls.crt, or can't be read"
	}
	if len(anchors) == 0 {
		return "tls.crt is not signed by an authority in ca.crt"
	}
	return ""
}

// anchors are the IDs of those of these authorities that the first certificate of a chain leads to, each at a moment at
// which all on the way are valid. Whether that moment is now is for the caller, who knows the time.
//
// All are searched for at once, for the work of that is bounded: crypto/x509 tries 100 signatures at most in one
// search. It would search for what is valid at one moment, and authorities that follow one another need not be at any:
// so it is shown certificates without an end.
func anchors(chain, trust []*x509.Certificate) map[string]bool {
	roots := x509.NewCertPool()
	between := x509.NewCertPool()
	found := map[string]bool{}
	for _, c := range trust {
		if bytes.Equal(c.Raw, chain[0].Raw) {
			found[Identify(c)] = true
			continue // else it would be found alone
		}
		roots.AddCert(endless(c))
	}
	for _, c := range chain[1:] {
		between.AddCert(endless(c))
	}
	ways, err := endless(chain[0]).Verify(x509.VerifyOptions{Roots: roots, Intermediates: between,
		CurrentTime: someTime,
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return found
	}
	ends := map[string][2]time.Time{}
	for _, c := range slices.Concat(chain, trust) {
		ends[string(c.Raw)] = [2]time.Time{c.NotBefore, c.NotAfter}
	}
	for _, way := range ways {
		from := ends[string(way[0].Raw)][0]
		to := ends[string(way[0].Raw)][1]
		for _, c := range way {
			if valid := ends[string(c.Raw)]; valid[0].After(from) {
				from = valid[0]
			}
			if valid := ends[string(c.Raw)]; valid[1].Before(to) {
				to = valid[1]
			}
		}
		if !from.After(to) {
			found[Identify(way[len(way)-1])] = true
		}
	}
	return found
}

var someTime = time.Unix(0, 0)

// endless is a certificate that is valid at some time.
func endless(c *x509.Certificate) *x509.Certificate {
	always := *c
	always.NotBefore = someTime
	always.NotAfter = someTime
	return &always
}

// What is read of a Secret is bounded. One process reads those of all tenants, and a search for authorities has no end
// that a call could wait for.
const (
	// mostCertificates are in one PEM text.
	mostCertificates = 32
	// largestCertificate is in bytes of DER, longestKey in bits of an RSA key: a signature costs by its length.
	largestCertificate, longestKey = 16 << 10, 8192
	// longestPrivate is in bytes of PEM. One of RSA with 8192 bits takes 6.5 KiB.
	longestPrivate = 16 << 10
)

var errNone = errors.New("it has no certificate")

// certificates are all in a PEM text, at least one.
func certificates(text []byte) ([]*x509.Certificate, error) {
	if len(text) > 2*mostCertificates*largestCertificate { // in base64, and with words between
		return nil, fmt.Errorf("it has %d bytes, and %d are the most", len(text), 2*mostCertificates*largestCertificate)
	}
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		if len(all) == mostCertificates {
			return nil, fmt.Errorf("it has more than %d certificates: leave those out that this etcd does not need",
				mostCertificates)
		}
		if len(block.Bytes) > largestCertificate {
			return nil, fmt.Errorf("a certificate in it has %d bytes, and %d are the most", len(block.Bytes),
				largestCertificate)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("a certificate in it can't be read")
		}
		if key, is := c.PublicKey.(*rsa.PublicKey); is && key.N.BitLen() > longestKey {
			return nil, fmt.Errorf("an RSA key in it has %d bits, and %d are the most", key.N.BitLen(), longestKey)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errNone
	}
	return all, nil
}

// describe is what a certificate says, in the words of hooks.
func describe(c *x509.Certificate) *observation.Certificate {
	d := &observation.Certificate{
		ID: Identify(c), CommonName: c.Subject.CommonName, Subject: Subject(c.RawSubject),
		Key: hex.EncodeToString(c.SubjectKeyId), Issuer: hex.EncodeToString(c.AuthorityKeyId),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, Authority: c.IsCA,
		Server: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) ||
			slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny),
		Client: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) ||
			slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny),
	}
	d.Names = slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		d.Names = append(d.Names, ip.String())
	}
	slices.Sort(d.Names)
	if c.IsCA && bytes.Equal(c.RawIssuer, c.RawSubject) && d.Issuer == "" {
		d.Issuer = d.Key // a root need not say so
	}
	return d
}

// Identify is a certificate's ID.
func Identify(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Subject is how hooks names a subject in DER.
func Subject(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}
