package server

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestAskedAnswersAsTheHook: whoever reads a call and decides gets the bytes that the server answers with.
func TestAskedAnswersAsTheHook(t *testing.T) {
	asked, err := Read(bytes.NewReader(steady(t)))
	require.NoError(t, err)
	assert.False(t, asked.Finalizing())

	s, _ := testServer(Options{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	o := asked.Observation(now, hooks.Settings{Images: objects.Images{Image: "ghcr.io/quorate-dev/quorate:v0.1.0"}})
	o.Etcd, o.Health = healthy{}.Observe(context.Background(), nil)
	answer, err := asked.Answer(hooks.Decide(o))
	require.NoError(t, err)
	assert.JSONEq(t, post(s.Handler(), "/sync", steady(t)).Body.String(), string(answer))
}

// TestGroupsAreWhatACallNeeds: with all of them a call is complete, without any one it is refused.
func TestGroupsAreWhatACallNeeds(t *testing.T) {
	for _, without := range append([]string{""}, Groups()...) {
		var call map[string]any
		require.NoError(t, json.Unmarshal(steady(t), &call))
		children := map[string]any{}
		for _, group := range Groups() {
			if group != without {
				children[group] = map[string]any{}
			}
		}
		call["children"] = children
		body, err := json.Marshal(call)
		require.NoError(t, err)
		_, err = Read(bytes.NewReader(body))
		if without == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, without)
		}
	}
}
