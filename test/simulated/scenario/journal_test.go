package scenario

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/journal"
	"github.com/quorate-dev/quorate/test/simulated/world"
)

// replaysAlike writes a journal, reads it and decides once more about all of it. The result is what differs.
func replaysAlike(t *testing.T, j *world.Journal) string {
	t.Helper()
	if j == nil {
		return ""
	}
	var file, told strings.Builder
	require.NoError(t, journal.Write(&file, j.Entries, j.Objects))
	size := file.Len()
	entries, objects, err := journal.Read(strings.NewReader(file.String()))
	require.NoError(t, err)
	others, err := journal.Replay(&told, "this release", hooks.Decide, entries, objects)
	require.NoError(t, err)
	t.Logf("%d entries in %d bytes are replayed", len(entries), size)
	if others > 0 {
		return told.String()
	}
	return ""
}
