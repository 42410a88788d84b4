package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

var (
	now   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	later = now.Add(1000 * time.Hour)
)

type secrets map[string]map[string][]byte

// do carries a recipe out and stores what it makes.
func (s secrets) do(t *testing.T, name string, r decision.Recipe) {
	t.Helper()
	data, err := Make(name, r, s)
	require.NoError(t, err)
	s[name] = data
}

func (s secrets) read(name string) *observation.Secret {
	return Read(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: s[name]})
}

func made(t *testing.T) secrets {
	t.Helper()
	s := secrets{}
	s.do(t, "ca", decision.Authority{CommonName: "one", NotBefore: now, NotAfter: later})
	s.do(t, "leaf", decision.Leaf{Signer: "ca", CommonName: "root", Names: []string{"*.peers", "10.0.0.1"},
		Server: true, Client: true, NotBefore: now, NotAfter: later})
	return s
}

func TestWhatIsMadeReadsAsItWasAskedFor(t *testing.T) {
	s := made(t)
	ca, leaf := s.read("ca"), s.read("leaf")
	assert.Empty(t, ca.Flaw)
	assert.True(t, ca.Certificate.Authority)
	assert.Equal(t, "one", ca.Certificate.CommonName)
	require.Len(t, ca.Trust, 1)
	assert.Equal(t, *ca.Certificate, ca.Trust[0])

	assert.Empty(t, leaf.Flaw)
	c := leaf.Certificate
	assert.Equal(t, []string{"*.peers", "10.0.0.1"}, c.Names)
	assert.Equal(t, "root", c.CommonName)
	assert.True(t, c.Server && c.Client && !c.Authority)
	assert.Equal(t, ca.Certificate.Key, c.Issuer)
	assert.Equal(t, []time.Time{now, later}, []time.Time{c.NotBefore, c.NotAfter})
	assert.Equal(t, ca.Trust, leaf.Trust)
	assert.Equal(t, []string{"ca.crt", "tls.crt", "tls.key"}, leaf.Keys)
}

func TestNothingIsMadeTwiceTheSame(t *testing.T) {
	a, b := made(t), made(t)
	assert.NotEqual(t, a["ca"]["tls.key"], b["ca"]["tls.key"])
	assert.NotEqual(t, a.read("ca").Certificate.Subject, b.read("ca").Certificate.Subject,
		"members name the authorities they trust by the subject")
	a.do(t, "p", decision.Password{Key: "password"})
	b.do(t, "p", decision.Password{Key: "password"})
	assert.NotEqual(t, a["p"], b["p"])
	assert.GreaterOrEqual(t, len(a["p"]["password"]), 43, "256 bits")
}

func TestRotation(t *testing.T) {
	s := made(t)
	old := s.read("ca").Certificate
	s.do(t, "ca", decision.Authority{CommonName: "two", NotBefore: now, NotAfter: later.Add(time.Hour), Previous: true})
	ca := s.read("ca")
	assert.Empty(t, ca.Flaw)
	assert.Equal(t, old.ID, ca.Previous.ID)
	assert.Len(t, ca.Trust, 2)
	s.do(t, "leaf", decision.Bundle{Signer: "ca"})
	leaf := s.read("leaf")
	assert.Equal(t, old.Key, leaf.Certificate.Issuer, "the pair stays")
	assert.Equal(t, ca.Trust, leaf.Trust)

	s.do(t, "leaf", decision.Leaf{Signer: "ca", Previous: true, NotBefore: now, NotAfter: later})
	assert.Equal(t, old.Key, s.read("leaf").Certificate.Issuer, "the previous one can sign still")
	assert.Empty(t, s.read("leaf").Flaw)
	s.do(t, "leaf", decision.Leaf{Signer: "ca", NotBefore: now, NotAfter: later})
	assert.Equal(t, ca.Certificate.Key, s.read("leaf").Certificate.Issuer)

	s.do(t, "ca", decision.Trim{At: later.Add(time.Minute)})
	trimmed := s.read("ca")
	assert.Nil(t, trimmed.Previous)
	require.Len(t, trimmed.Trust, 1)
	assert.Equal(t, ca.Certificate.ID, trimmed.Trust[0].ID)
	assert.NotContains(t, trimmed.Keys, objects.KeyPreviousPrivate)
}

func TestALostAuthorityIsStillTrusted(t *testing.T) {
	s := made(t)
	old := s.read("ca").Certificate
	delete(s, "ca")
	s.do(t, "ca", decision.Authority{CommonName: "two", NotBefore: now, NotAfter: later, Inherit: "leaf"})
	ca := s.read("ca")
	require.Len(t, ca.Trust, 2)
	assert.Equal(t, old.ID, ca.Trust[1].ID)
}

// TestAnotherAuthorityIsAdopted: what is trusted beside one's own is what a Secret says that need have nothing but
// ca.crt.
func TestAnotherAuthorityIsAdopted(t *testing.T) {
	s, others := made(t), made(t)
	own := s.read("ca").Certificate.ID
	s["former"] = map[string][]byte{"ca.crt": append(slices.Clone(others["ca"]["ca.crt"]), others["ca"]["ca.crt"]...)}
	require.Len(t, s.read("former").Trust, 2)
	s.do(t, "ca", decision.Adopt{Keep: []string{own}, From: "former"})
	ca := s.read("ca")
	require.Len(t, ca.Trust, 2, "each once")
	assert.Equal(t, own, ca.Trust[0].ID)
	assert.Equal(t, others.read("ca").Certificate.ID, ca.Trust[1].ID)
	assert.Empty(t, ca.Flaw)

	config, err := Visitor(s["former"], nil)
	require.NoError(t, err)
	assert.Empty(t, config.Certificates, "nothing to show")
	_, err = Visitor(map[string][]byte{}, nil)
	require.Error(t, err)

	s.do(t, "ca", decision.Adopt{Keep: []string{own}})
	require.Len(t, s.read("ca").Trust, 1)
	_, err = Make("ca", decision.Adopt{Keep: []string{own}, From: "nowhere"}, s)
	require.ErrorContains(t, err, "Secret nowhere")
}

func TestFlawsAreNamed(t *testing.T) {
	type data = map[string][]byte
	for flaw, spoil := range map[string]func(s secrets, d data){
		"tls.crt: it has no certificate":     func(_ secrets, d data) { d["tls.crt"] = []byte("nothing") },
		"ca.crt: it has no certificate":      func(_ secrets, d data) { delete(d, "ca.crt") },
		"tls.key is missing":                 func(_ secrets, d data) { delete(d, "tls.key") },
		"tls.key does not belong to tls.crt": func(s secrets, d data) { d["tls.key"] = s["ca"]["tls.key"] },
		"tls.crt is not signed by an authority in ca.crt": func(_ secrets, d data) {
			d["ca.crt"] = made(t)["ca"]["tls.crt"]
		},
		"tls.crt: a certificate in it can't be read": func(_ secrets, d data) {
			d["tls.crt"] = encode("CERTIFICATE", []byte("x"))
		},
		"tls.key does not belong to tls.crt, or can't be re": func(_ secrets, d data) { d["tls.key"] = []byte("x") },
	} {
		s := made(t)
		s["leaf"] = maps.Clone(s["leaf"])
		spoil(s, s["leaf"])
		assert.Contains(t, s.read("leaf").Flaw, flaw)
	}
	empty := Read(&corev1.Secret{Data: map[string][]byte{"password": []byte("x"), "none": nil}})
	assert.Equal(t, []string{"password"}, empty.Keys)
	assert.Empty(t, empty.Flaw, "not every Secret is about certificates")
}

func TestRecipesThatCannotBeCarriedOut(t *testing.T) {
	for _, r := range []decision.Recipe{nil, decision.Leaf{Signer: "ca"}} {
		_, err := Make("leaf", r, secrets{})
		assert.Error(t, err)
	}
	s := made(t)
	s["ca"]["tls.key"] = []byte("-----BEGIN EC PRIVATE KEY-----\nc2VjcmV0\n-----END EC PRIVATE KEY-----\n")
	_, err := Make("leaf", decision.Leaf{Signer: "ca"}, s)
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
	assert.Contains(t, err.Error(), "Secret ca")
}

// TestAnchors: what a certificate leads to, over an intermediate too, and not by its name alone.
func TestAnchors(t *testing.T) {
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		return k
	}
	sign := func(name string, authority bool, from time.Time, public *ecdsa.PrivateKey, by *x509.Certificate,
		with *ecdsa.PrivateKey) *x509.Certificate {
		template := &x509.Certificate{
			SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, NotBefore: from,
			NotAfter: later.Add(time.Hour), IsCA: authority, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}
		if by == nil {
			by = template
		}
		der, err := x509.CreateCertificate(rand.Reader, template, by, &public.PublicKey, with)
		require.NoError(t, err)
		c, err := x509.ParseCertificate(der)
		require.NoError(t, err)
		return c
	}
	rootKey, betweenKey, leafKey, otherKey := key(), key(), key(), key()
	root := sign("root", true, now, rootKey, nil, rootKey)
	renewed := sign("root", true, later, rootKey, nil, rootKey) // its time begins when the leaf's ends
	namesake := sign("root", true, now, otherKey, nil, otherKey)
	between := sign("between", true, now, betweenKey, root, rootKey)
	leaf := sign("leaf", false, now, leafKey, between, betweenKey)
	private, err := privateKey(leafKey)
	require.NoError(t, err)
	pem := func(all ...*x509.Certificate) (text []byte) {
		for _, c := range all {
			text = append(text, encode("CERTIFICATE", c.Raw)...)
		}
		return text
	}
	read := func(chain, trust []byte) *observation.Secret {
		return Read(&corev1.Secret{Data: map[string][]byte{"tls.crt": chain, "tls.key": private, "ca.crt": trust}})
	}

	s := read(pem(leaf, between), pem(namesake, root, renewed))
	assert.Empty(t, s.Flaw)
	require.Len(t, s.Anchors, 2)
	assert.Equal(t, Identify(root), s.Anchors[0].ID)
	assert.Equal(t, Identify(renewed), s.Anchors[1].ID)
	assert.Equal(t, s.Anchors[0].Subject, s.Trust[0].Subject, "a namesake tells itself by its key alone")
	assert.NotEqual(t, s.Anchors[0].Key, s.Trust[0].Key)
	for _, wrong := range []*observation.Secret{read(pem(leaf), pem(root)), read(pem(leaf, between), pem(namesake))} {
		assert.Empty(t, wrong.Anchors)
		assert.Equal(t, "tls.crt is not signed by an authority in ca.crt", wrong.Flaw)
	}
}

// BenchmarkRead reads what a cluster of the mode Auto has: an authority and four leaves.
func BenchmarkRead(b *testing.B) {
	s := secrets{}
	for name, r := range map[string]decision.Recipe{"ca": decision.Authority{CommonName: "one", NotBefore: now,
		NotAfter: later}} {
		data, err := Make(name, r, s)
		require.NoError(b, err)
		s[name] = data
	}
	data, err := Make("leaf", decision.Leaf{Signer: "ca", CommonName: "root", Server: true, Client: true,
		NotBefore: now, NotAfter: later}, s)
	require.NoError(b, err)
	for _, name := range []string{"server", "peer", "operator", "client"} {
		s[name] = data
	}
	for b.Loop() {
		for name := range s {
			s.read(name)
		}
	}
}

// TestWhatIsReadIsBounded: a tenant's Secret costs all others, so one that no etcd needs is refused before it is read.
func TestWhatIsReadIsBounded(t *testing.T) {
	s := made(t)
	fits := s["leaf"]
	repeated := func(n int) []byte { return bytes.Repeat(fits[objects.KeyTrust], n) }
	for words, change := range map[string]func(data map[string][]byte){
		"": func(data map[string][]byte) { data[objects.KeyTrust] = repeated(32) },
		"ca.crt: it has more than 32 certificates: leave those out that this etcd does not " +
			"need": func(data map[string][]byte) { data[objects.KeyTrust] = repeated(33) },
		"tls.crt: it has more than 32 certificates: leave those out that this etcd does not " +
			"need": func(data map[string][]byte) { data[objects.KeyCertificate] = repeated(33) },
		"ca.crt: it has 1100000 bytes, and 1048576 are the " +
			"most": func(data map[string][]byte) { data[objects.KeyTrust] = bytes.Repeat([]byte("x"), 1_100_000) },
		"ca.crt: a certificate in it has 20000 bytes, and 16384 are the most": func(data map[string][]byte) {
			data[objects.KeyTrust] = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: make([]byte, 20_000)})
		},
		"tls.key has 16385 bytes, and 16384 are the " +
			"most": func(data map[string][]byte) { data[objects.KeyPrivate] = make([]byte, 16385) },
	} {
		data := maps.Clone(fits)
		change(data)
		read := Read(&corev1.Secret{Data: data})
		assert.Equal(t, words, read.Flaw)
		_, err := Client(data)
		assert.Equal(t, words != "", err != nil, "what is not read is not shown or searched either: %s", words)
	}
}
