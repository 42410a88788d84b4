package kubectl

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	encoding "encoding/pem"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestKeysOfOthersAreStruckOut: a report is about one cluster, and may have logs of what serves all. It knows the
// Secrets of none of the other tenants, so their keys are told by their form, however they are written: as PEM or
// DER, in base64, in an annotation of an object in a log, wrapped, escaped, or all of that.
func TestKeysOfOthersAreStruckOut(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	ec, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	secret := string(encoding.EncodeToMemory(&encoding.Block{Type: "PRIVATE KEY", Bytes: der}))
	certificate := string(encoding.EncodeToMemory(&encoding.Block{Type: "CERTIFICATE",
		Bytes: []byte(strings.Repeat("anyone may know of this ", 20))}))
	const age = "AGE-SECRET-KEY-1QQPZRY9X8GF2TVDW0S3JN54KHCE6MUA7LQQPZRY9X8GF2TVDW0S3JN"
	b64 := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	wrapped := func(s string, most int) string {
		var lines []string
		for ; len(s) > most; s = s[most:] {
			lines = append(lines, s[:most])
		}
		return strings.Join(append(lines, s), "\n    ")
	}
	quoted := func(v any) string {
		raw, err := json.Marshal(v)
		require.NoError(t, err)
		return string(raw)
	}
	object := map[string]any{"kind": "Secret", "metadata": map[string]any{"name": "bank-ca", "namespace": "bank"},
		"data": map[string]any{"tls.key": b64(secret), "ca.crt": b64(certificate), "pin": b64("0815-pin-of-the-bank")}}
	noted := map[string]any{"kind": "Secret",
		"metadata": map[string]any{"annotations": map[string]any{"metacontroller.k8s.io/last-applied-configuration": quoted(object)}}}

	body := strings.Split(secret, "\n")[1]
	traces := []string{body, body[10:40], b64(secret)[20:60], b64(secret)[120:160],
		base64.StdEncoding.EncodeToString(ec)[10:50], "0815-pin", b64("0815-pin-of-the-bank"), age[20:40],
		b64(age)[10:30]}
	for name, text := range map[string]string{
		"PEM":                               secret,
		"PEM, quoted twice":                 quoted(quoted(secret)),
		"PEM in a URL":                      url.QueryEscape(secret),
		"PEM in a path":                     url.PathEscape(secret),
		"base64":                            "tls.key: " + b64(secret),
		"base64, raw":                       strings.TrimRight(b64(secret), "="),
		"base64 for URLs":                   base64.URLEncoding.EncodeToString([]byte(secret)),
		"base64 behind another byte":        b64("x" + secret),
		"base64 behind two":                 b64("xy" + secret),
		"base64 behind a certificate":       b64(certificate + secret),
		"base64, wrapped":                   "  tls.key: |\n    " + wrapped(b64(secret), 76),
		"base64, wrapped behind a digest":   "sha256 " + strings.Repeat("0a", 32) + "\n" + wrapped(b64(secret), 64),
		"base64 of base64":                  b64(b64(secret)),
		"base64 of an object":               b64(quoted(object)),
		"an object":                         quoted(object),
		"an object in a log":                fmt.Sprintf(`{"level":"info","msg":"Webhook request","body":%s}`, quoted(quoted(object))),
		"an object with its note":           quoted(noted),
		"an object with its note, in a log": fmt.Sprintf(`{"msg":"Creating","child":%s}`, quoted(quoted(noted))),
		"what changes": fmt.Sprintf(`{"msg":"Diff","mergePatch":%s}`,
			quoted(quoted(map[string]any{"data": object["data"]}))),
		"an object as Go prints it": fmt.Sprintf("Creating child=map[data:map[pin:%s tls.key:%s] kind:Secret]",
			b64("0815-pin-of-the-bank"), b64(secret)),
		"strings": quoted(map[string]any{"kind": "Secret",
			"stringData": map[string]any{"pin": "0815-pin-of-the-bank", "tls.key": secret}}),
		"DER":                   base64.StdEncoding.EncodeToString(der),
		"DER of SEC 1":          "key " + base64.StdEncoding.EncodeToString(ec),
		"an identity":           "# created\n" + age,
		"an identity in base64": b64("# created: 2026\n" + age + "\n"),
	} {
		struck := newRedactor(nil).text("before it. " + text + "\n after it")
		for _, trace := range traces {
			assert.NotContains(t, struck, trace, name)
		}
		assert.Contains(t, struck, removed, name)
		assert.True(t, strings.HasPrefix(struck, "before it."), "%s: %s", name, struck)
		if !strings.Contains(name, "wrapped") {
			assert.True(t, strings.HasSuffix(struck, " after it"), "%s: %s", name, struck)
		}
	}

	for _, text := range []string{certificate, b64(certificate), wrapped(b64(certificate), 64),
		strings.Repeat("0a", 32), "gcr.io/etcd-development/etcd@sha256:" + strings.Repeat("9f", 32),
		`{"data":{}}`, "the data: of it", quoted(map[string]any{"metadata": map[string]any{"name": "x"}}),
		b64(strings.Repeat("an ordinary text ", 9))} {
		assert.Equal(t, text, newRedactor(nil).text(text))
	}
}
