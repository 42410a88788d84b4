package server

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecordKeys: a key on a line, read again when the file changes; what can't be used is said in the words of the flag.
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
