package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// newborn is the steady request as it was in the beginning, for a cluster with TLS.
func newborn(t testing.TB) []byte {
	t.Helper()
	return edited(t, func(r map[string]any) {
		delete(at(r, "parent", "spec"), "tls")
		delete(at(r, "parent"), "status")
		delete(at(r, "parent", "metadata"), "managedFields") // of its day: it is new now
		children := at(r, "children")
		for group := range children {
			children[group] = map[string]any{}
		}
	})
}

// silent is an etcd that has not been started yet.
type silent struct{}

func (silent) Observe(context.Context, []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	return nil, nil
}

func (silent) Do(context.Context, decision.Step, *observation.Membership, []observation.Endpoint) error {
	return nil
}

// secretsIn are the Secrets of an answer by name, decoded.
func secretsIn(t testing.TB, answered []byte) map[string]map[string][]byte {
	t.Helper()
	var a struct {
		Children []struct {
			Kind     string
			Metadata struct{ Name string }
			Data     json.RawMessage
			// StringData of one that is made; one that is kept is told without.
			StringData map[string]string
		}
	}
	require.NoError(t, json.Unmarshal(answered, &a))
	all := map[string]map[string][]byte{}
	for _, c := range a.Children {
		if c.Kind == "Secret" {
			data := map[string][]byte{}
			require.Empty(t, c.Data, c.Metadata.Name)
			for key, value := range c.StringData {
				data[key] = []byte(value)
			}
			all[c.Metadata.Name] = data
		}
	}
	return all
}

// observedSecrets are what the Secrets in a request hold.
func observedSecrets(t *testing.T, request []byte) map[string]map[string][]byte {
	t.Helper()
	r, err := wire.ReadCluster(t.Context(), bytes.NewReader(request))
	require.NoError(t, err)
	all := map[string]map[string][]byte{}
	for name := range r.Children.Secrets {
		all[name] = r.Secret(name)
	}
	return all
}

// TestNoKeyStaysInAnAnnotation: what Metacontroller applied last is in an annotation of each Secret, which kubectl
// describe prints. From the second answer on no key and no password is in it, also of Secrets that an earlier Quorate
// has made, and all of them hold what they held.
func TestNoKeyStaysInAnAnnotation(t *testing.T) {
	s, _ := testServer(Options{Etcd: silent{}, Verify: true})
	s.now = time.Now
	h := s.Handler()
	request := newborn(t)
	call := func(times int) {
		for range times {
			w := post(h, "/sync", request)
			require.Equal(t, 200, w.Code, w.Body.String())
			request = applied(t, request, w.Body.Bytes())
		}
	}
	told := func(note string) bool {
		return strings.Contains(note, "PRIVATE KEY") || strings.Contains(note, "LS0tLS1CRUdJTi") ||
			strings.Contains(note, "tls.key")
	}
	notes := func() (all []string) {
		for _, secret := range at(generic(t, request), "children", groupSecrets) {
			all = append(all, at(secret, "metadata", "annotations")[lastApplied].(string))
		}
		return all
	}
	call(4)
	made := observedSecrets(t, request)
	require.Equal(t, []string{"orders-ca", "orders-client-tls", "orders-operator-tls", "orders-peer-tls",
		"orders-server-tls", "orders-token"}, slices.Sorted(maps.Keys(made)))
	require.NotEmpty(t, made["orders-ca"]["tls.key"])
	require.False(t, slices.ContainsFunc(notes(), told))

	r := generic(t, request) // as Quorate answered before
	for _, secret := range at(r, "children", groupSecrets) {
		var note map[string]any
		require.NoError(t, json.Unmarshal([]byte(at(secret, "metadata", "annotations")[lastApplied].(string)), &note))
		note["data"] = at(secret, "data")
		raw, err := json.Marshal(note)
		require.NoError(t, err)
		at(secret, "metadata", "annotations")[lastApplied] = string(raw)
	}
	// Put there by hand.
	at(r, "children", groupSecrets, "orders-client-tls",
		"data")["keystore.p12"] = base64.StdEncoding.EncodeToString([]byte{0xff, 0xfe})
	made["orders-client-tls"]["keystore.p12"] = []byte{0xff, 0xfe}
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	request = raw
	require.True(t, slices.ContainsFunc(notes(), told))
	for range 3 {
		call(1)
		require.Equal(t, made, observedSecrets(t, request))
	}
	var left int
	for _, note := range notes() {
		if told(note) {
			left++
		}
	}
	require.Equal(t, 1, left, "what is no text can be told as data alone")
	before := post(h, "/sync", request).Body.String()
	call(1)
	require.Equal(t, before, post(h, "/sync", request).Body.String(), "at rest nothing is written")
}

// TestCertificatesFromNothing goes from a new cluster to one whose members could start, applying each answer as
// Metacontroller does.
func TestCertificatesFromNothing(t *testing.T) {
	s, log := testServer(Options{Etcd: silent{}, Verify: true})
	s.now = time.Now
	h := s.Handler()
	request := newborn(t)
	call := func() []byte {
		w := post(h, "/sync", request)
		require.Equal(t, 200, w.Code, w.Body.String())
		answered := w.Body.Bytes()
		request = applied(t, request, answered)
		return answered
	}

	first := secretsIn(t, call())
	require.Contains(t, first, "orders-ca")
	require.NotContains(t, first, "orders-server-tls", "leaves are made only from an observed authority")
	second := secretsIn(t, call())
	require.Empty(t, second["orders-ca"], "what a Secret holds is told once")
	require.Equal(t, first["orders-ca"], observedSecrets(t, request)["orders-ca"])
	call()
	last := call()
	require.Equal(t, secretsIn(t, last), secretsIn(t, call()), "and nothing changes any more")

	metrics := get(s.pages(), "/metrics").Body.String()
	require.Contains(t, metrics,
		`quorate_certificate_expiry_timestamp_seconds{certificate="server",cluster="orders",namespace="shop"} `)

	server, err := pki.Client(second["orders-server-tls"])
	require.NoError(t, err)
	client, err := pki.Client(second["orders-operator-tls"])
	require.NoError(t, err)
	require.NoError(t, handshake(server, client, "orders-7.orders-peers.shop.svc"), "any member, at its own name")
	require.NoError(t, handshake(server, client, "orders.shop.svc"))
	require.Error(t, handshake(server, client, "payments.shop.svc"))

	for name, data := range second {
		for key, value := range data {
			if strings.HasSuffix(key, ".key") {
				secret := base64.StdEncoding.EncodeToString(value)[60:90]
				require.NotContains(t, log.String(), secret, "%s of %s is in the log", key, name)
				require.NotContains(t, string(mustStatus(t, last)), secret, "%s of %s is in the status", key, name)
				require.NotContains(t, get(s.pages(), "/metrics").Body.String(), secret)
			}
		}
	}
}

func mustStatus(t *testing.T, answered []byte) []byte {
	t.Helper()
	raw, err := json.Marshal(generic(t, answered)["status"])
	require.NoError(t, err)
	return raw
}

// handshake lets a client with a certificate meet a server under a name.
func handshake(server, client *tls.Config, name string) error {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	server, client = server.Clone(), client.Clone()
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, server.RootCAs
	client.ServerName = name
	done := make(chan error, 1)
	go func() { done <- tls.Server(a, server).Handshake() }()
	if err := tls.Client(b, client).Handshake(); err != nil {
		return err
	}
	return <-done
}

func TestAKeyThatCannotBeUsedIsNamedAndNotShown(t *testing.T) {
	s, log := testServer(Options{Etcd: silent{}})
	h := s.Handler()
	request := newborn(t)
	for range 2 {
		request = applied(t, request, post(h, "/sync", request).Body.Bytes())
	}
	var r map[string]any
	require.NoError(t, json.Unmarshal(request, &r))
	secret := base64.StdEncoding.EncodeToString([]byte("-----BEGIN EC PRIVATE KEY-----\nthis must not be logged\n"))
	at(r, "children", groupSecrets, "orders-ca", "data")["tls.key"] = secret
	at(r, "children", groupSecrets, "orders-ca", "metadata", "annotations")[lastApplied] = "{}"
	request, err := json.Marshal(r)
	require.NoError(t, err)
	w := post(h, "/sync", request)
	require.Equal(t, http.StatusOK, w.Code)
	require.NotContains(t, log.String(), "must not be logged")
	require.NotContains(t, log.String(), secret)
	require.NotEqual(t, secret, base64.StdEncoding.EncodeToString(secretsIn(t, w.Body.Bytes())["orders-ca"]["tls.key"]),
		"an authority that can't sign is succeeded")
}

func TestTheMembersAreShownTheOperatorsCertificate(t *testing.T) {
	var shown *tls.Config
	s, _ := testServer(Options{Etcd: showing{func(c *tls.Config) { shown = c }}})
	h := s.Handler()
	request := newborn(t)
	for range 3 {
		request = applied(t, request, post(h, "/sync", request).Body.Bytes())
	}
	require.NotNil(t, shown)
	leaf, err := x509.ParseCertificate(shown.Certificates[0].Certificate[0])
	require.NoError(t, err)
	require.Equal(t, "root", leaf.Subject.CommonName)
}

type showing struct{ saw func(*tls.Config) }

func (s showing) With(own etcdops.Own) hooks.Etcd {
	s.saw(own.TLS)
	return silent{}
}

func (showing) Observe(context.Context, []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	return nil, nil
}

func (showing) Do(context.Context, decision.Step, *observation.Membership, []observation.Endpoint) error {
	return nil
}

// TestRecordKeys: a key on a line, read again when the file changes; what can't be used is said in the words of the
// flag.
func TestRecordKeys(t *testing.T) {
	file := filepath.Join(t.TempDir(), "records")
	long := strings.Repeat("k", leastKey)
	for text, says := range map[string]string{"": "it is empty", "\n": "it is empty",
		"short\n": "a key has 32 characters at least"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := NewRecordKeys(file, slog.Default())
		require.ErrorContains(t, err, "--record-keys: ")
		require.ErrorContains(t, err, says)
	}
	_, err := NewRecordKeys(file+".none", slog.Default())
	require.ErrorContains(t, err, "no such file")

	require.NoError(t, os.WriteFile(file, []byte(long+"\n"), 0o600))
	keys, err := NewRecordKeys(file, slog.Default())
	require.NoError(t, err)
	require.Len(t, keys.get(), 1)
	require.NoError(t, os.WriteFile(file, []byte(long+"\nb"+long+"\n"), 0o600))
	require.Len(t, keys.get(), 2)

	none, err := NewRecordKeys("", slog.Default())
	require.NoError(t, err)
	require.Empty(t, none.get())
}
