package server

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestAMirrorIsAnswered: the pod is made, kept as it is told, and let go with its mirror.
func TestAMirrorIsAnswered(t *testing.T) {
	const pod, metric = "standby-5d3c0a52-mirror-1",
		`quorate_mirror_mirroring{cluster="spare",mirror="standby",namespace="shop"} `
	s, log := serverAt(morning)
	s.options.Verify, s.options.Settings = true, observation.Settings{}
	s.options.Settings.Images.Image = "quorate:v1"
	w := post(s.Handler(), "/mirrors/sync", aMirrorCall(t))
	require.Equal(t, 200, w.Code, w.Body.String())
	made := toldOf(t, w.Body.Bytes())[pod]
	require.NotNil(t, made, w.Body.String())
	assert.Contains(t, get(s.pages(), "/metrics").Body.String(), metric+"0")
	assert.Contains(t, log.String(), `"mirror":"shop/standby"`)

	runs := runningPod(t, made)
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
