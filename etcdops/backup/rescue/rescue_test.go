package rescue

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/seed"
)

func TestAddressesOf(t *testing.T) {
	at, err := addressesOf([]string{"https://demo-3.etcd@10.0.0.4:4380"}, []string{"https://10.0.0.4:4379"})
	require.NoError(t, err)
	assert.Equal(t, place{address: "10.0.0.4", peerURL: "https://demo-3.etcd@10.0.0.4:4380", peerPort: "4380",
		clientURL: "https://10.0.0.4:4379", clientPort: "4379", tls: true}, at)
	for _, urls := range [][2][]string{
		{{"https://demo-3.demo-peers.etcd.svc:2380"}, {"https://demo-3.demo-peers.etcd.svc:2379"}},
		{{"https://demo-3.etcd@10.0.0.4:4380"}, {"http://10.0.0.4:4379"}},
		{{"https://demo-3.etcd@10.0.0.4:4380"}, {"https://10.0.0.5:4379"}},
		{{"https://demo-3.etcd@10.0.0.4:4380"}, nil},
		{nil, nil},
	} {
		_, err := addressesOf(urls[0], urls[1])
		assert.ErrorContains(t, err, "it is not on the hosts' network")
	}
}

func TestPodIsTheMembers(t *testing.T) {
	at, err := addressesOf([]string{"https://demo-3.etcd@10.0.0.4:4380"}, []string{"https://10.0.0.4:4379"})
	require.NoError(t, err)
	p := pod(member{dir: "/data/etcd-demo-u/demo-3", name: "demo-3"}, at, "etcd:v3.6.16")
	flags := p.Spec.Containers[0].Command
	for _, want := range []string{"--name=demo-3", "--data-dir=/var/lib/etcd/data", "--initial-cluster-state=existing",
		"--listen-peer-urls=https://0.0.0.0:4380", "--initial-advertise-peer-urls=https://demo-3.etcd@10.0.0.4:4380",
		"--advertise-client-urls=https://10.0.0.4:4379", "--client-cert-auth=true", "--peer-client-cert-auth=true"} {
		assert.Contains(t, flags, want)
	}
	assert.True(t, p.Spec.HostNetwork)
	assert.Equal(t, "/data/etcd-demo-u/demo-3", p.Spec.Volumes[0].HostPath.Path)
	assert.Equal(t, "demo", cluster("demo-3"))
	assert.Equal(t, "demo-2", cluster("demo-2-13"))

	at.tls = false
	assert.NotContains(t, pod(member{name: "demo-3"}, at, "").Spec.Containers[0].Command, "--client-cert-auth=true")
}

func TestWhoIsListed(t *testing.T) {
	m := member{id: "ff", all: []seed.Listed{{ID: 1, Name: "a"}, {ID: 255, Name: "b"}, {ID: 3, Name: "c",
		Learner: true}}}
	own, listed := m.own()
	assert.True(t, listed)
	assert.Equal(t, "b", own.Name)
	assert.Equal(t, 2, voters(m.all))
	assert.Equal(t, []string{"a", "b", "c (learner)"}, names(m.all))

	var out bytes.Buffer
	gone := member{name: "demo-1", id: "77", all: m.all, dir: "/x/demo-1"}
	require.NoError(t, show([]member{m, gone, {name: "demo-2", dir: "/x/demo-2", err: assert.AnError}}, &out))
	assert.Contains(t, out.String(), "lists a, b, c (learner); 2 of them are a quorum")
	assert.Contains(t, out.String(), "demo-1 is no longer a member: it was removed. Do not start it.")
	assert.Contains(t, out.String(), "demo-2: "+assert.AnError.Error())
}

func TestCommandsSayWhatIsWrong(t *testing.T) {
	empty, other := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(other, "etcd-demo-u", "demo-0", "data", "member", "wal"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(other, "etcd-demo-u", "demo-0", "data", "member", "wal", "a.wal"),
		[]byte("x"), 0o600))
	for want, args := range map[string][]string{
		"Usage:": {}, "no member of an EtcdCluster has its directory in": {"list", "--path=" + empty},
		"can't be read: no such file":    {"list", "--path=" + empty + "/none"},
		"--dir and --image are required": {"start"},
		"holds no write-ahead log":       {"start", "--dir=" + other + "/etcd-demo-u/demo-0", "--image=x"},
	} {
		var out, errs bytes.Buffer
		assert.NotZero(t, Run(t.Context(), args, &out, &errs))
		assert.Contains(t, errs.String(), want)
	}
	var out, errs bytes.Buffer
	assert.Zero(t, Run(t.Context(), []string{"list", "--path=" + other}, &out, &errs), errs.String())
	assert.Contains(t, out.String(), "demo-0", "what can't be read is listed, and why")
}

// TestAuthoritiesOfOthers: the key of the members' authority is in any of the forms that people have.
func TestAuthoritiesOfOthers(t *testing.T) {
	small, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	large, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	sec1, err := x509.MarshalECPrivateKey(small)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(large)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	self := func(key crypto.Signer) []byte {
		template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "etcd-ca"},
			NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		require.NoError(t, err)
		return der
	}
	for _, c := range []struct {
		key  crypto.Signer
		kind string
		der  []byte
	}{
		{small, "EC PRIVATE KEY", sec1},
		{large, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(large)},
		{large, "PRIVATE KEY", pkcs8},
	} {
		certificate, private := write("ca.crt", "CERTIFICATE", self(c.key)), write("ca.key", c.kind, c.der)
		ca, key, _, err := authority(certificate, private)
		require.NoError(t, err, c.kind)
		issued, _, err := issue(ca, key, "demo:peers", "10.0.0.4")
		require.NoError(t, err)
		block, _ := pem.Decode(issued)
		leaf, err := x509.ParseCertificate(block.Bytes)
		require.NoError(t, err)
		pool := x509.NewCertPool()
		pool.AddCert(ca)
		_, err = leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "10.0.0.4",
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		require.NoError(t, err)
		assert.Equal(t, "demo:peers", leaf.Subject.CommonName)
	}
	certificate := write("ca.crt", "CERTIFICATE", self(small))
	_, _, _, err = authority(certificate, write("ca.key", "PRIVATE KEY", pkcs8))
	assert.ErrorContains(t, err, "is not that of the authority")
	_, _, _, err = authority(certificate, write("ca.key", "PRIVATE KEY", []byte("secret words")))
	require.ErrorContains(t, err, "holds no key that can be read")
	assert.NotContains(t, err.Error(), "secret words")
	_, _, _, err = authority(dir+"/none", dir+"/none")
	assert.ErrorContains(t, err, "--ca-cert")
	_, _, _, err = authority(certificate, dir+"/none")
	assert.ErrorContains(t, err, "--ca-key")
}

// TestNoLinkLeadsOut: root writes into a directory that etcd's user may write to.
func TestNoLinkLeadsOut(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(elsewhere, filepath.Join(dir, certificates)))
	if err := deposit(dir, map[string][]byte{"ca.crt": []byte("x")}); err != nil {
		require.ErrorIs(t, err, os.ErrPermission, "only root may give files away")
	}
	left, err := os.ReadDir(elsewhere)
	require.NoError(t, err)
	assert.Empty(t, left)
	content, err := os.ReadFile(filepath.Join(dir, certificates, "ca.crt"))
	require.NoError(t, err)
	assert.Equal(t, "x", string(content))
}

// TestDirectoriesOfTwoClusters: which is ahead can't be said between them.
func TestDirectoriesOfTwoClusters(t *testing.T) {
	of := func(name, id string, index uint64) member {
		return member{name: name, clusterID: id, id: "1", index: index, all: []seed.Listed{{ID: 1, Name: name}}}
	}
	var out bytes.Buffer
	require.NoError(t, show([]member{of("demo-0", "a", 900), of("demo-3", "b", 7)}, &out))
	assert.Contains(t, out.String(), "They are of 2 etcd clusters (a, b).")
	out.Reset()
	require.NoError(t, show([]member{of("demo-0", "a", 900), of("demo-1", "a", 7)}, &out))
	assert.NotContains(t, out.String(), "They are of")
}
