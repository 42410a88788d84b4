// Package pki reads Secrets for the decisions and makes what these ask for. It is where keys and passwords are; package hooks
// sees none of them. It decides nothing.
package pki

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks"
)

// Read is what decisions may know of a Secret.
func Read(s *corev1.Secret) *hooks.Secret {
	read := *known.of(s.Data)
	read.ObjectMeta, read.Type = s.ObjectMeta, s.Type
	return &read
}

// known remembers what was read of the data that came lately: to verify a signature takes longer than all the rest of a decision.
// It is a pure function's; nothing depends on what is in it.
var known memory

type memory struct {
	mu   sync.Mutex
	read map[[sha256.Size]byte]*hooks.Secret
}

// mostKnown is how much is remembered of what was read: a quarter of the memory that the process may use, at some 2 KiB each. A cluster has six
// Secrets, so that GOMEMLIMIT=115MiB is enough for 2,400 clusters; from then on the time of a call grows.
func mostKnown() int {
	const each, least, most = 2 << 10, 2048, 1 << 18
	return int(min(max(debug.SetMemoryLimit(-1)/4/each, least), most)) // a negative limit only asks
}

// of is what the data says, without metadata. Nobody may change it.
func (m *memory) of(data map[string][]byte) *hooks.Secret {
	key := sum(data)
	m.mu.Lock()
	read := m.read[key]
	m.mu.Unlock()
	if read != nil {
		return read
	}
	read = readData(data)
	m.note(key, read, mostKnown())
	return read
}

// note remembers what was read, in the place of something else, whatever that is, when there are so many already. All clusters are asked about in
// turn: were the oldest forgotten, or everything, then with a few clusters too many nothing would ever be known when it is asked for again.
func (m *memory) note(key [sha256.Size]byte, read *hooks.Secret, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.read == nil {
		m.read = map[[sha256.Size]byte]*hooks.Secret{}
	}
	for other := range m.read { // in an order that is another one each time
		if len(m.read) < most {
			break
		}
		delete(m.read, other)
	}
	m.read[key] = read
}

// sum tells data apart.
func sum(data map[string][]byte) [sha256.Size]byte {
	h := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		_, _ = fmt.Fprintf(h, "%d %s %d ", len(key), key, len(data[key]))
		_, _ = h.Write(data[key])
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func readData(data map[string][]byte) *hooks.Secret {
	read := &hooks.Secret{Unfit: map[string]string{}}
	if len(data) > mostKeys {
		read.Flaw = fmt.Sprintf("it has %d keys, and %d are the most", len(data), mostKeys)
		return read
	}
	for key, value := range data {
		if len(value) > 0 {
			read.Keys = append(read.Keys, key)
		}
		if flaw := hooks.PasswordFlaw(string(value)); flaw != "" {
			read.Unfit[key] = flaw
		}
	}
	slices.Sort(read.Keys)
	if slices.Contains(read.Keys, hooks.KeyCertificate) || slices.Contains(read.Keys, hooks.KeyTrust) {
		readPair(read, data)
	}
	return read
}

// readPair reads tls.crt, tls.key and ca.crt, and says what is wrong with them.
func readPair(read *hooks.Secret, data map[string][]byte) {
	trust, untrusted := certificates(data[hooks.KeyTrust])
	for _, c := range trust {
		read.Trust = append(read.Trust, *describe(c))
	}
	chain, err := certificates(data[hooks.KeyCertificate])
	if err != nil {
		read.Flaw = "tls.crt: " + err.Error()
		return
	}
	read.Certificate = describe(chain[0])
	if untrusted != nil {
		read.Flaw = "ca.crt: " + untrusted.Error()
		return
	}
	if previous, err := certificates(data[hooks.KeyPreviousCertificate]); err == nil {
		read.Previous = describe(previous[0])
	}
	for i, c := range trust {
		if leads(chain, c) {
			read.Anchors = append(read.Anchors, read.Trust[i])
		}
	}
	read.Flaw = flaw(read.Anchors, data)
}

// flaw says why a certificate, its key and the authorities behind it can't be used together. Whether it has expired is for
// whoever knows the time.
func flaw(anchors []hooks.Certificate, data map[string][]byte) string {
	if len(data[hooks.KeyPrivate]) == 0 {
		return "tls.key is missing"
	}
	if _, err := tls.X509KeyPair(data[hooks.KeyCertificate], data[hooks.KeyPrivate]); err != nil {
		return "tls.key does not belong to tls.crt, or can't be read"
	}
	if len(anchors) == 0 {
		return "tls.crt is not signed by an authority in ca.crt"
	}
	return ""
}

// leads reports whether the first certificate of a chain leads to this authority, at the first moment at which all of them are valid.
func leads(chain []*x509.Certificate, authority *x509.Certificate) bool {
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(authority)
	at := authority.NotBefore
	for i, c := range chain {
		if i > 0 {
			between.AddCert(c)
		}
		if c.NotBefore.After(at) {
			at = c.NotBefore
		}
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// What is read of a Secret is bounded. One process reads those of all tenants, and to verify signatures has no end that a call could wait
// for: for each authority crypto/x509 tries up to 100 of them, and one by a key of RSA costs by its length.
const (
	// mostKeys is how many keys a Secret may have.
	mostKeys = 1024
	// mostCertificates are in one PEM text. Each authority of a bundle is asked whether it signed.
	mostCertificates = 32
	// largestCertificate is in bytes of DER, longestKey in bits of an RSA key.
	largestCertificate, longestKey = 16 << 10, 8192
)

var errNone = errors.New("there is no certificate in it")

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
			return nil, fmt.Errorf("it has more than %d certificates: leave those out that this etcd does not need", mostCertificates)
		}
		if len(block.Bytes) > largestCertificate {
			return nil, fmt.Errorf("a certificate in it has %d bytes, and %d are the most", len(block.Bytes), largestCertificate)
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
func describe(c *x509.Certificate) *hooks.Certificate {
	d := &hooks.Certificate{
		ID: Identify(c), CommonName: c.Subject.CommonName, Subject: Subject(c.RawSubject),
		Key: hex.EncodeToString(c.SubjectKeyId), Issuer: hex.EncodeToString(c.AuthorityKeyId),
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, Authority: c.IsCA,
		Server: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny),
		Client: slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth) || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny),
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
