package server

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// asksCertManager is the request for a new cluster in the mode CertManager.
func asksCertManager(t *testing.T) []byte {
	t.Helper()
	r := generic(t, newborn(t))
	at(r, "parent", "spec")["tls"] = map[string]any{"mode": "CertManager", "certManager": map[string]any{
		"issuerRef": map[string]any{"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"},
		"duration":  "48h"}}
	at(r, "children")[groupCertificates] = map[string]any{}
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return raw
}

// TestCertificatesOnTheWire: Certificates are asked for in cert-manager's words, and answered alike while they are as
// asked for.
func TestCertificatesOnTheWire(t *testing.T) {
	s, _ := testServer(Options{Etcd: silent{}, Verify: true, Settings: observation.Settings{SharedIssuers: true}})
	h, request := s.Handler(), asksCertManager(t)
	var answered []byte
	for range 3 {
		w := post(h, "/sync", request)
		require.Equal(t, 200, w.Code, w.Body.String())
		answered = w.Body.Bytes()
		request = applied(t, request, answered)
	}
	certificates := childrenOf(t, answered, "Certificate")
	require.Len(t, certificates, 4)
	peer, err := json.Marshal(certificates["orders-peer-tls"]["spec"])
	require.NoError(t, err)
	require.JSONEq(t, `{"secretName": "orders-peer-tls", "commonName": "orders:peers", "dnsNames": ["*.orders-peers.shop.svc"],
		"usages": ["digital signature", "server auth", "client auth"], "duration": "48h0m0s",
		"privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
		"issuerRef": {"name": "ours", "kind": "ClusterIssuer", "group": "cert-manager.io"},
		"secretTemplate": {"labels": {"etcd.quorate.dev/cluster": "orders"}}}`, string(peer))
	require.Equal(t, "cert-manager.io/v1", certificates["orders-peer-tls"]["apiVersion"])

	again := post(h, "/sync", request).Body.Bytes()
	require.Equal(t, certificates, childrenOf(t, again, "Certificate"))
	r := generic(t, request)
	at(r, "children", groupCertificates, "orders-peer-tls", "spec")["revisionHistoryLimit"] = 3 // a default
	at(r, "parent", "spec")["suspend"] = true
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	require.Equal(t, certificates, childrenOf(t, post(h, "/sync", raw).Body.Bytes(), "Certificate"),
		"suspended, they stay as they are")
}

// TestNoRuleForCertificates: a CompositeController without the rule gets no Certificate, and the status says what to
// do.
func TestNoRuleForCertificates(t *testing.T) {
	s, _ := testServer(Options{Etcd: silent{}, Verify: true})
	r := generic(t, asksCertManager(t))
	delete(at(r, "children"), groupCertificates)
	request, err := json.Marshal(r)
	require.NoError(t, err)
	request = applied(t, request, post(s.Handler(), "/sync", request).Body.Bytes()) // the record
	answered := post(s.Handler(), "/sync", request).Body.Bytes()
	require.Empty(t, childrenOf(t, answered, "Certificate"))
	require.Empty(t, childrenOf(t, answered, "Pod"))
	require.Contains(t, string(answered), "quorate install --cert-manager")
}

// childrenOf are the children of a kind in an answer, by name.
func childrenOf(t *testing.T, answered []byte, kind string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, c := range generic(t, answered)["children"].([]any) {
		if child := c.(map[string]any); child["kind"] == kind {
			all[at(child, "metadata")["name"].(string)] = child
		}
	}
	return all
}
