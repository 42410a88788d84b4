package prepare

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

// TestPrepareIsToldThatTheMemberHasBegun: the node was set up again, so that the data and the marker are gone, and the
// pod is the one that began.
func TestPrepareIsToldThatTheMemberHasBegun(t *testing.T) {
	at := func(begins string) int {
		dir := t.TempDir()
		t.Setenv(volumes.EnvBegins, begins)
		return Run(t.Context(), []string{"--data-dir=" + filepath.Join(dir, "data"),
			"--marker=" + filepath.Join(dir, "started"), "--start=bootstrap"}, io.Discard)
	}
	assert.Equal(t, 0, at("demo-0=https://demo-0"))
	assert.Equal(t, objects.ExitDataLost, at(""))
	assert.Equal(t, objects.ExitDataLost, at(objects.InitialClusterBegun))
}
