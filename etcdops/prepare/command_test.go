package prepare

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// TestPrepareIsToldThatTheMemberHasBegun: the node was set up again, so that the data and the marker are gone, and the
// pod is the one that began.
func TestPrepareIsToldThatTheMemberHasBegun(t *testing.T) {
	at := func(begins string) int {
		dir := t.TempDir()
		t.Setenv(facts.EnvBegins, begins)
		return Run(t.Context(), []string{"--data-dir=" + filepath.Join(dir, "data"),
			"--marker=" + filepath.Join(dir, "started"), "--start=bootstrap"}, io.Discard)
	}
	assert.Equal(t, 0, at("demo-0=https://demo-0"))
	assert.Equal(t, objects.ExitDataLost, at(""))
	assert.Equal(t, objects.ExitDataLost, at(objects.InitialClusterBegun))
}

// TestPrepareSaysThatNothingHasRun: before a cluster's first quorum nothing else proves it.
func TestPrepareSaysThatNothingHasRun(t *testing.T) {
	dir := t.TempDir()
	c := Command{dataDir: filepath.Join(dir, "data"), start: objects.StartBootstrap, marker: filepath.Join(dir, "started")}
	require.NoError(t, c.Run(t.Context()))
	assert.Equal(t, objects.NothingFound, c.found())
	log := filepath.Join(dir, "data", "member", "wal")
	require.NoError(t, os.MkdirAll(log, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(log, "0.wal"), nil, 0o600))
	assert.Empty(t, c.found())
}
