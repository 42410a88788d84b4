package server

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/server/wire"
)

// TestAskedAnswersAsTheHook: whoever reads a call and decides gets the bytes that the server answers with.
func TestAskedAnswersAsTheHook(t *testing.T) {
	asked, err := wire.ReadCluster(t.Context(), bytes.NewReader(steady(t)))
	require.NoError(t, err)
	assert.False(t, asked.Finalizing)

	s, _ := testServer(Options{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	o := asked.Observation(now, hooks.Settings{Image: "ghcr.io/quorate-dev/quorate:v0.1.0"})
	o.Etcd, o.Health = healthy{}.Observe(context.Background(), nil)
	answer, err := asked.Answer(hooks.Decide(o), nil)
	require.NoError(t, err)
	assert.JSONEq(t, post(s.Handler(), "/sync", steady(t)).Body.String(), string(answer))
}
