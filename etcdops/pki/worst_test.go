package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/objects"
)

// signed is a certificate in DER, by a template, for a key and signed by another.
func signed(t testing.TB, template *x509.Certificate, issuer string, public crypto.PublicKey, by crypto.Signer) []byte {
	t.Helper()
	template.SerialNumber, template.NotBefore, template.NotAfter, template.BasicConstraintsValid = serial(), now, later,
		true
	parent := &x509.Certificate{Subject: pkix.Name{CommonName: issuer}, SubjectKeyId: []byte("same")}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by)
	require.NoError(t, err)
	return der
}

// worst are the Secrets of those who want to be read for long, as far as what is read is bounded: by name.
func worst(t testing.TB) map[string]map[string][]byte {
	t.Helper()
	all := map[string]map[string][]byte{}
	add := func(name string, chain, trust [][]byte) {
		all[name] = map[string][]byte{objects.KeyCertificate: bundle(chain), objects.KeyTrust: bundle(trust),
			objects.KeyPrivate: []byte("x")}
		all[name][objects.KeyPreviousCertificate] = all[name][objects.KeyTrust]
	}

	// One name for all authorities, so that each may have signed each, and the slowest curve.
	slow, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	require.NoError(t, err)
	others, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	require.NoError(t, err)
	authority := func() *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, IsCA: true, SubjectKeyId: []byte("same"),
			KeyUsage: x509.KeyUsageCertSign}
	}
	chain, trust := [][]byte{signed(t, &x509.Certificate{}, "x", &slow.PublicKey, slow)}, [][]byte{}
	for len(chain) < mostCertificates {
		a := authority()
		a.DNSNames = []string{fmt.Sprint(len(chain))} // else it is taken for one that is in the chain already
		chain = append(chain, signed(t, a, "x", &slow.PublicKey, slow))
	}
	for len(trust) < mostCertificates {
		trust = append(trust, signed(t, authority(), "x", &others.PublicKey, slow))
	}
	add("one name for all", chain, trust)

	// The longest keys of RSA, with the largest exponent. Whether they are any key's does not matter: each signature
	// is tried.
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	trust = nil
	for len(trust) < mostCertificates {
		n := new(big.Int).SetBytes(random(longestKey / 8))
		n.SetBit(n.SetBit(n, longestKey-1, 1), 0, 1)
		trust = append(trust, signed(t, authority(), "x", &rsa.PublicKey{N: n, E: 1<<31 - 1}, small))
	}
	leaf := resigned(t, signed(t, &x509.Certificate{}, "x", &small.PublicKey, small))
	chain = append([][]byte{leaf}, trust[1:]...)
	add("long keys", chain, trust)

	// As many names, and as many names that they may not have, as one certificate has room for, with one key for all
	// authorities.
	fast, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	var names, barred []string
	for i := range 1400 {
		names, barred = append(names, fmt.Sprintf("%x.aa", i)), append(barred, fmt.Sprintf("%x.b", i))
	}
	trust = nil
	for i := range mostCertificates {
		a := authority()
		a.DNSNames, a.ExcludedDNSDomains = []string{fmt.Sprint(i)}, barred
		trust = append(trust, signed(t, a, "x", &fast.PublicKey, fast))
	}
	leaf = signed(t, &x509.Certificate{DNSNames: append(names, strings.Repeat("y", 60))}, "x", &fast.PublicKey, fast)
	require.Less(t, len(leaf), largestCertificate)
	require.Less(t, len(trust[0]), largestCertificate)
	add("names", append([][]byte{leaf}, trust[1:]...), trust)
	return all
}

// resigned is a certificate with another signature, as long as the longest key's, which is wrong.
func resigned(t testing.TB, der []byte) []byte {
	t.Helper()
	var c struct {
		TBS       asn1.RawValue
		Algorithm asn1.RawValue
		Signature asn1.BitString
	}
	_, err := asn1.Unmarshal(der, &c)
	require.NoError(t, err)
	bits := random(longestKey / 8)
	bits[0] = 0
	c.Signature = asn1.BitString{Bytes: bits, BitLength: longestKey}
	der, err = asn1.Marshal(c)
	require.NoError(t, err)
	return der
}

func bundle(ders [][]byte) []byte {
	var text bytes.Buffer
	for _, der := range ders {
		text.Write(encode("CERTIFICATE", der))
	}
	return text.Bytes()
}

// TestTheWorstIsReadInTime: what costs most of what is read at all takes a fraction of a call's time.
func TestTheWorstIsReadInTime(t *testing.T) {
	for name, data := range worst(t) {
		began := time.Now()
		read := readData(data)
		took := time.Since(began)
		t.Logf("%s: %d KiB of certificates, %s: %s, %d bytes of memory", name,
			(len(data[objects.KeyTrust])+len(data[objects.KeyCertificate]))>>10, took, read.Flaw, sizeOf(read))
		require.Len(t, read.Trust, mostCertificates)
		require.Less(t, took, 4*time.Second, "half of a call's time, on a machine that does ten other things")
		require.Less(t, sizeOf(read), int64(256<<10))
	}
}
