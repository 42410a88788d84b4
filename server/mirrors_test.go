package server

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// aMirrorCall is a call about an EtcdMirror from orders to spare, both of which serve.
func aMirrorCall(t testing.TB, edits ...func(request map[string]any)) []byte {
	t.Helper()
	cluster := func(name string) map[string]any {
		return map[string]any{"apiVersion": "etcd.quorate.dev/v1alpha1", "kind": "EtcdCluster",
			"metadata": map[string]any{"name": name, "namespace": "shop", "uid": "uid-" + name},
			"spec":     map[string]any{"version": "3.6.16"},
			"status": map[string]any{"members": []any{map[string]any{"name": name + "-0", "role": "Voter"}},
				"conditions": []any{map[string]any{"type": "Available", "status": "True", "reason": "Serving", "message": "",
					"lastTransitionTime": "2026-03-01T08:00:00Z"}}}}
	}
	call := map[string]any{
		"parent": map[string]any{"apiVersion": "etcd.quorate.dev/v1alpha1", "kind": "EtcdMirror",
			"metadata": map[string]any{"name": "standby", "namespace": "shop", "uid": "5d3c0a52-0000", "generation": 1,
				"creationTimestamp": "2026-03-01T08:00:00Z"},
			"spec": map[string]any{"clusterRef": map[string]any{"name": "spare"},
				"source": map[string]any{"clusterRef": map[string]any{"name": "orders"}}},
			"status": map[string]any{"observedGeneration": -1}},
		"children": map[string]any{"Pod.v1": map[string]any{}},
		"related": map[string]any{"EtcdCluster.etcd.quorate.dev/v1alpha1": map[string]any{
			"orders": cluster("orders"), "spare": cluster("spare")}},
		"finalizing": false}
	for _, edit := range edits {
		edit(call)
	}
	raw, err := json.Marshal(call)
	require.NoError(t, err)
	return raw
}

// TestAMirrorIsAnswered: the pod is made, kept as it is told, and let go with its mirror.
func TestAMirrorIsAnswered(t *testing.T) {
	const pod, metric = "standby-5d3c0a52-mirror-1",
		`quorate_mirror_mirroring{cluster="spare",mirror="standby",namespace="shop"} `
	s, log := snapshotServer()
	s.options.Verify, s.options.Settings = true, observation.Settings{}
	s.options.Settings.Images.Image = "quorate:v1"
	w := post(s.Handler(), "/mirrors/sync", aMirrorCall(t))
	require.Equal(t, 200, w.Code, w.Body.String())
	made := toldOf(t, w.Body.Bytes())[pod]
	require.NotNil(t, made, w.Body.String())
	assert.Contains(t, get(s.pages(), "/metrics").Body.String(), metric+"0")
	assert.Contains(t, log.String(), `"mirror":"shop/standby"`)

	runs := func(r map[string]any) {
		there := generic(t, raw(t, made))
		at(there, "metadata")["uid"] = "uid-pod"
		at(there, "metadata", "annotations")[lastApplied] = string(raw(t, made))
		there["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
		at(r, "children", "Pod.v1")[pod] = there
	}
	w = post(s.Handler(), "/mirrors/sync", aMirrorCall(t, runs))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, made["spec"], toldOf(t, w.Body.Bytes())[pod]["spec"], "as it was told")
	assert.Equal(t, pod, at(generic(t, w.Body.Bytes()), "status")["pod"])
	text := get(s.pages(), "/metrics").Body.String()
	assert.Contains(t, text, metric+"1")
	assert.Contains(t, text, `quorate_decisions_total{rule="MirrorMirroring"} 1`)

	promoted := func(r map[string]any) {
		at(r, "parent")["status"] = map[string]any{"promotedRevision": 4711, "conditions": []any{map[string]any{
			"type": "Promoted", "status": "True", "reason": "Promoted", "message": "",
			"lastTransitionTime": time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC).Format(time.RFC3339)}}}
	}
	w = post(s.Handler(), "/mirrors/sync", aMirrorCall(t, runs, promoted))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Empty(t, toldOf(t, w.Body.Bytes()))
	assert.NotContains(t, get(s.pages(), "/metrics").Body.String(), metric, "it has ended")

	w = post(s.Handler(), "/mirrors/finalize", aMirrorCall(t, runs, being(true)))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Empty(t, toldOf(t, w.Body.Bytes()))
	assert.Equal(t, true, generic(t, w.Body.Bytes())["finalized"])
	assert.NotContains(t, get(s.pages(), "/metrics").Body.String(), metric)
}

// TestRefusedMirrors: what a call lacks is not taken for absent.
func TestRefusedMirrors(t *testing.T) {
	for says, c := range map[string]struct {
		path string
		edit func(map[string]any)
	}{
		"parent.kind must be EtcdMirror": {"/mirrors/sync",
			func(r map[string]any) { at(r, "parent")["kind"] = "EtcdSnapshot" }},
		"is missing: the CompositeController has no": {"/mirrors/sync",
			func(r map[string]any) { r["children"] = map[string]any{} }},
		"must have the hook customize": {"/mirrors/sync", func(r map[string]any) { r["related"] = map[string]any{} }},
		"finalizing is true":           {"/mirrors/sync", being(true)},
		"finalizing is false":          {"/mirrors/finalize", func(map[string]any) {}},
	} {
		s, _ := snapshotServer()
		w := post(s.Handler(), c.path, aMirrorCall(t, c.edit))
		require.Equal(t, 400, w.Code, w.Body.String())
		require.Contains(t, errorOf(t, w), says)
	}
}

// TestRelatedToAMirror: the clusters that it copies from and to.
func TestRelatedToAMirror(t *testing.T) {
	s, _ := snapshotServer()
	ask := func(edits ...func(map[string]any)) string {
		return post(s.Handler(), "/mirrors/customize", aMirrorCall(t, edits...)).Body.String()
	}
	const rule = `{"relatedResources":[{"apiVersion":"etcd.quorate.dev/v1alpha1","resource":"etcdclusters"`
	assert.JSONEq(t, rule+`}]}`, ask(), "by the name alone")
	s.options.RelatedByUID = true
	assert.JSONEq(t, rule+`,"namespace":"shop","names":["spare","orders"]}]}`, ask())
	assert.JSONEq(t, rule+`,"namespace":"shop","names":["spare"]}]}`, ask(func(r map[string]any) {
		at(r, "parent", "spec")["source"] = map[string]any{"external": map[string]any{"endpoints": []any{"http://a:2379"}}}
	}))
}

// FuzzMirror: whatever JSON the wire takes is decided without a panic, twice alike, and the status that is answered
// comes to rest.
func FuzzMirror(f *testing.F) {
	for way := range byte(24) {
		f.Add(aMirrorCall(f), []byte{way, way / 2, way, 1, 0, way, 2, way, way, 1, 0, 2, way, 0, 0, way + 3})
	}
	f.Fuzz(func(t *testing.T, body, edits []byte) {
		s, _ := snapshotServer()
		s.log = slog.New(slog.DiscardHandler)
		h := s.Handler()
		request := nonsensical(body, edits)
		answered := ask(t, h, "/mirrors/sync", request)
		if answered == nil {
			return
		}
		require.Equal(t, string(answered), string(ask(t, h, "/mirrors/sync", request)), "the same again")
		next := generic(t, request)
		at(next, "parent")["status"] = generic(t, answered)["status"]
		once := ask(t, h, "/mirrors/sync", raw(t, next))
		at(next, "parent")["status"] = generic(t, once)["status"]
		require.Equal(t, string(once), string(ask(t, h, "/mirrors/sync", raw(t, next))), "at rest")
	})
}
