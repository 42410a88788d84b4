//go:build unix

package conformance

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
	"github.com/quorate-dev/quorate/test/static/docs"
)

// mounted is where the documents have the Secret of a client.
const mounted = "/etc/etcd-tls"

// TestApplicationsConnectAsTheDocumentSays: the Go program of docs/how-to/connect.md is built and run against an etcd
// that asks for certificates. What Secrets hold is what the page says of them.
func TestApplicationsConnectAsTheDocumentSays(t *testing.T) {
	pages, err := docs.ReadPages("../../..")
	require.NoError(t, err)
	at := slices.IndexFunc(pages, func(p docs.Page) bool { return p.Path == "docs/how-to/connect.md" })
	require.GreaterOrEqual(t, at, 0)
	program := block(t, pages[at], "go")

	chapter(t, "the Secret has the files that the page reads, and they fit the members'", func(t *testing.T) {
		_, secrets := podOf(t, etcdproc.Versions[0], v1beta1.EtcdClusterSpec{})
		client, server := secrets["demo-client-tls"], secrets["demo-server-tls"]
		assert.ElementsMatch(t, []string{"ca.crt", "tls.crt", "tls.key"}, slices.Collect(maps.Keys(client)))
		for name := range client {
			assert.Contains(t, program, `"`+name+`"`)
		}
		pod := block(t, pages[at], "yaml")
		assert.Contains(t, pod, "secretName: demo-client-tls")
		assert.Contains(t, pod, "mountPath: "+mounted)
		assert.Contains(t, program, `"`+mounted+`"`)
		trusts(t, client["ca.crt"], server["tls.crt"], "demo.default.svc", x509.ExtKeyUsageServerAuth)
		trusts(t, client["ca.crt"], server["tls.crt"], "127.0.0.1", x509.ExtKeyUsageServerAuth)
		trusts(t, server["ca.crt"], client["tls.crt"], "", x509.ExtKeyUsageClientAuth)
	})

	chapter(t, "the program writes and reads", func(t *testing.T) {
		ca, dir := etcdproc.NewAuthority(t), t.TempDir()
		c := etcdproc.StartTLS(t, etcdproc.Versions[0], "demo", 1, ca)
		write := func(name string, data []byte) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
		}
		pair := ca.Client("client").Certificates[0]
		key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
		require.NoError(t, err)
		write("ca.crt", ca.PEM())
		write("tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}))
		write("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
		write("main.go", []byte(strings.ReplaceAll(program, mounted, dir)))

		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "shop"), filepath.Join(dir, "main.go"))
		said, err := build.CombinedOutput()
		require.NoError(t, err, "%s", said)
		run := exec.CommandContext(t.Context(), filepath.Join(dir, "shop"))
		run.Env = append(os.Environ(), "ETCD_ENDPOINT="+c.Members[0].ClientURL)
		said, err = run.CombinedOutput()
		require.NoError(t, err, "%s", said)
		assert.Equal(t, "hello\n", string(said))
	})
}

// block is the first one of a page in this language.
func block(t *testing.T, page docs.Page, language string) string {
	t.Helper()
	at := slices.IndexFunc(page.Parts, func(p docs.Part) bool { return p.Language == language })
	require.GreaterOrEqual(t, at, 0, "%s shows no %s", page.Path, language)
	return page.Parts[at].Text
}

// trusts fails unless a certificate is good for a name and a use under this authority.
func trusts(t *testing.T, authority, certificate []byte, name string, use x509.ExtKeyUsage) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	first, _ := pem.Decode(bytes.TrimSpace(certificate))
	require.NotNil(t, first)
	leaf, err := x509.ParseCertificate(first.Bytes)
	require.NoError(t, err)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, KeyUsages: []x509.ExtKeyUsage{use}})
	assert.NoError(t, err)
}
