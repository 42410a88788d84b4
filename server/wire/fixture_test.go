package wire

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// steady is a call about a cluster of three that is as it should be.
func steady(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("../testdata/sync.json")
	require.NoError(t, err)
	var compact bytes.Buffer
	require.NoError(t, json.Compact(&compact, raw))
	return compact.Bytes()
}

// edited is that call with changes to its generic form.
func edited(t testing.TB, edit func(call map[string]any)) []byte {
	t.Helper()
	var r map[string]any
	require.NoError(t, json.Unmarshal(steady(t), &r))
	edit(r)
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return raw
}

// at walks to an object in generic JSON.
func at(o any, path ...string) map[string]any {
	for _, key := range path {
		o = o.(map[string]any)[key]
	}
	return o.(map[string]any)
}

// read reads a call about a cluster.
func read(t testing.TB, body []byte) *ClusterCall {
	t.Helper()
	r, err := ReadCluster(t.Context(), bytes.NewReader(body))
	require.NoError(t, err)
	return r
}
