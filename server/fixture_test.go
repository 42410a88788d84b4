package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// The groups of objects in calls.
const (
	groupPods         = "Pod.v1"
	groupClaims       = "PersistentVolumeClaim.v1"
	groupConfigMaps   = "ConfigMap.v1"
	groupServices     = "Service.v1"
	groupBudgets      = "PodDisruptionBudget.policy/v1"
	groupSecrets      = "Secret.v1"
	groupPolicies     = "NetworkPolicy.networking.k8s.io/v1"
	groupCertificates = "Certificate.cert-manager.io/v1"
	groupSnapshots    = "EtcdSnapshot.etcd.quorate.dev/v1beta1"
	groupJobs         = "Job.batch/v1"
	groupClusters     = "EtcdCluster.etcd.quorate.dev/v1beta1"
)

const lastApplied = objects.AnnotationLastApplied

// steady is the request for a cluster of three that is as it should be: objects as an API server returns them, with
// defaults, managedFields, status and Metacontroller's annotation.
func steady(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/sync.json")
	require.NoError(t, err)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, raw))
	return compact.Bytes()
}

// edited is the steady request with changes to its generic form.
func edited(t testing.TB, edits ...edit) []byte {
	t.Helper()
	return callOf(t, "sync", edits...)
}

// at walks to an object in generic JSON.
func at(o any, path ...string) map[string]any {
	for _, key := range path {
		o = o.(map[string]any)[key]
	}
	return o.(map[string]any)
}

// healthy is an etcd of three members that serve, on the peer URLs of the steady request.
type healthy struct{}

func (healthy) Observe(context.Context, []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	m := &observation.Membership{ClusterID: 0xcdf818194e3a8c32, Leader: 0x8e9e05c521646940}
	health := map[string]observation.Health{}
	for i, name := range []string{"orders-0", "orders-1", "orders-2"} {
		host := "http://" + name + ".orders-peers.shop.svc"
		id := m.Leader + uint64(i)
		m.Members = append(m.Members, observation.Member{ID: id, Name: name, PeerURLs: []string{host + ":2380"},
			ClientURLs: []string{host + ":2379"}})
		health[name] = observation.Health{
			ClusterID: m.ClusterID, MemberID: id, Leader: m.Leader, Version: "3.6.16",
			RaftTerm: 2, RaftIndex: 1000, DBSize: 26 << 20, DBSizeInUse: 12 << 20,
		}
	}
	return m, health
}

func (healthy) Do(context.Context, decision.Step, *observation.Membership, []observation.Endpoint) error {
	return errors.New("no step is expected")
}

// testServer is a server whose logs go to the returned buffer.
func testServer(o Options) (*Server, *bytes.Buffer) {
	log := &bytes.Buffer{}
	if o.Etcd == nil {
		o.Etcd = healthy{}
	}
	o.Log = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.Settings.Image = "ghcr.io/quorate-dev/quorate:v0.1.0"
	return New(o), log
}

func post(h http.Handler, path string, body []byte) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
	return w
}

// errorOf is the sentence of an error answer.
func errorOf(t testing.TB, w *httptest.ResponseRecorder) string {
	t.Helper()
	var e struct{ Error string }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e), w.Body.String())
	require.NotEmpty(t, e.Error)
	require.False(t, strings.Contains(w.Body.String(), `"children"`) && w.Code == http.StatusOK)
	return e.Error
}
