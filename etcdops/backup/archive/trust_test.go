package archive

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An authority from a file is trusted besides the public ones, wherever no others are named, and no second file is.
func TestTrust(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	ask := func() error {
		client := &http.Client{Transport: &http.Transport{}} // without authorities of its own, as those of the stores' SDKs
		answer, err := client.Get(server.URL)
		if err != nil {
			return err
		}
		return answer.Body.Close()
	}
	require.Error(t, ask())
	assert.True(t, unreachable(ask()), "a stranger counts as not reached")

	dir := t.TempDir()
	file := filepath.Join(dir, "ca.crt")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	assert.ErrorContains(t, trust(file), "no certificate in PEM")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	require.NoError(t, trust(file))
	require.NoError(t, trust(file))
	assert.NoError(t, ask())
	assert.Error(t, trust(""))
}

// The authorities in the binary are those of Mozilla, some of them only for certificates of before a day.
func TestPublic(t *testing.T) {
	assert.False(t, public().Equal(nil))
	assert.Greater(t, len(public().Subjects()), 100) //nolint:staticcheck // it is deprecated for pools of the system, and this is none
}
