package hooks

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// TestWhatTheAPIServerTakesCanBeRun: the checks in Go say some of the CRD's rules again. They refuse no spec that the
// API server takes: it would be stored, and its cluster stand still. The cases, and what the API server says to them,
// are those of test/tools/manifests, and every two of them in one spec of which the rules speak of no common field.
func TestWhatTheAPIServerTakesCanBeRun(t *testing.T) {
	taken := admitted(t)
	require.Greater(t, len(taken), 40)
	for i, one := range taken {
		refusedByNone(t, one)
		for _, other := range taken[i+1:] {
			if both := apart(one, other); both != nil {
				refusedByNone(t, both)
			}
		}
	}
}

func refusedByNone(t *testing.T, spec map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(spec)
	require.NoError(t, err)
	var s v1beta1.EtcdClusterSpec
	require.NoError(t, yaml.UnmarshalStrict(text, &s), string(text))
	assert.NoError(t, defaults.Validate(&s, observation.Settings{}), string(text))
	assert.NoError(t, defaults.ValidateRoom(&s), string(text))
}

// apart is a spec with the fields of both; nil where they have one in common besides the version, or where a rule
// joins fields of theirs: those of storage, pods, users and the host's network.
func apart(one, other map[string]any) map[string]any {
	joined := []string{"storage", "options", "securityContext", "hostNetwork", "selfHosted", "tls", "auth", "replicas",
		"memberService", "recovery", "bootstrap"}
	both := map[string]any{}
	joins := 0
	for _, spec := range []map[string]any{one, other} {
		for _, field := range joined {
			if spec[field] != nil {
				joins++
				break
			}
		}
		for field, value := range spec {
			if both[field] != nil && (field != "version" || both[field] != value) {
				return nil
			}
			both[field] = value
		}
	}
	if joins > 1 {
		return nil
	}
	return both
}

// admitted are the specs of new EtcdClusters that the API server takes.
func admitted(t *testing.T) (all []map[string]any) {
	t.Helper()
	text, err := os.ReadFile("../test/tools/manifests/testdata/admission.txt")
	require.NoError(t, err)
	kind := ""
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\n  ", " ")) {
		line = strings.TrimSpace(line)
		if rest, is := strings.CutPrefix(line, "kind "); is {
			kind, _, _ = strings.Cut(rest, " ")
			continue
		}
		changed := strings.Contains(line, " => ") || strings.Contains(line, " ~> ") || strings.Contains(line, " !! ")
		if kind != "EtcdCluster" || line == "" || changed || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "(") {
			continue
		}
		line, _, _ = strings.Cut(line, " == ")
		spec := map[string]any{"version": "3.6.16"}
		require.NoError(t, yaml.Unmarshal([]byte("{"+strings.TrimPrefix(line, "{}")+"}"), &spec), line)
		all = append(all, spec)
	}
	return all
}
