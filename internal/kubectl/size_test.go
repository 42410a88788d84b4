package kubectl

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// sized is the EtcdCluster that a command line prints, and what is said beside it.
func sized(t *testing.T, line string) (c *v1beta1.EtcdCluster, out, errs string) {
	t.Helper()
	code, out, errs := steady(t).runs(healthy(), strings.Fields(line)...)
	require.Zero(t, code, errs)
	c = new(v1beta1.EtcdCluster)
	require.NoError(t, yaml.UnmarshalStrict([]byte(out), c))
	accepted(t, c)
	return c, out, errs
}

// accepted insists that a cluster is valid, and has the memory that its database may take.
func accepted(t *testing.T, c *v1beta1.EtcdCluster) {
	t.Helper()
	require.NoError(t, defaults.Validate(&c.Spec, observation.Settings{}))
	require.NoError(t, defaults.ValidateRoom(&c.Spec))
	if limit, limited := c.Spec.Resources.Limits[corev1.ResourceMemory]; limited {
		assert.Greater(t, limit.Value(), quotaOf(c), "a database at its quota is in memory")
	}
}

func quotaOf(c *v1beta1.EtcdCluster) int64 {
	return defaults.QuotaOn(c.Spec.Options, defaults.RoomFor(&c.Spec))
}

// TestSize: it prints an EtcdCluster that is valid and large enough, says what binds, and warns beyond 8 GiB.
func TestSize(t *testing.T) {
	for _, s := range []struct{ line, size, memory, binds, warns string }{
		{"--keys=100k --writes=200", "2Gi", "1Gi", "the disk", ""},
		{"--keys=1 --writes=1 --value=1", "1Gi", "512Mi", "the disk", ""},
		{"--keys=1M --writes=100 --value=50 --history=1m", "2Gi", "1280Mi", "the memory", ""},
		{"--keys=100k --writes=200 --history=1h", "11Gi", "4864Mi", "the disk", ""},
		{"--keys=1M --writes=2k --history=1h30m", "", "", "the quota", "more than the 8.00 GiB that etcd suggests"},
		{"--keys=1G --writes=100k --value=1571840 --history=168h", "", "", "the quota", "https://etcd.io"},
	} {
		c, out, errs := sized(t, "size "+s.line)
		if s.size != "" {
			assert.Equal(t, s.size, c.Spec.Storage.Size.String(), s.line)
			assert.Equal(t, s.memory, c.Spec.Resources.Limits.Memory().String(), s.line)
		}
		assert.Contains(t, out, "# binds:    "+s.binds, s.line)
		assert.Contains(t, errs, s.warns)
		assert.Equal(t, s.warns != "", errs != "", s.line)
	}
}

func TestSizeRefuses(t *testing.T) {
	for line, says := range map[string]string{
		"":                                     "size needs --keys, how many keys there are, such as --keys=100k",
		"--keys=5":                             "size needs --writes",
		"orders --keys=5 --writes=1":           `size does not take "orders"`,
		"--keys=many":                          "it must be a number such as 200, 100k or 2Mi",
		"--keys=-5":                            "it must be from 1 to 1000000000",
		"--keys=5 --writes=0":                  "it must be from 1 to 100000",
		"--keys=5 --writes=1 --value=2Mi":      "it must be from 1 to 1571840",
		"--keys=5 --writes=1 --history=0s":     "--history must be from 1s to 168h, in whole seconds, not 0s",
		"--keys=5 --writes=1 --history=1500ms": "not 1.5s",
		"--keys=5 --writes=1 --history=fortnight": "invalid value",
	} {
		code, out, errs := steady(t).runs(healthy(), strings.Fields("size "+line)...)
		assert.Equal(t, exitUsage, code, line)
		assert.Empty(t, out)
		assert.Contains(t, errs, says)
	}
}

// TestTheDefaultsAreLargeEnough: what a spec does not say lives for good on 100,000 keys of 1 KiB, written over 200
// times a second.
func TestTheDefaultsAreLargeEnough(t *testing.T) {
	c := &v1beta1.EtcdCluster{Spec: v1beta1.EtcdClusterSpec{Version: "3.6.16"}}
	accepted(t, c)
	assert.True(t, holdsLoad(t, c, defaults.Load{Keys: 100_000, Value: 1 << 10, Writes: 200}))
}

// holdsLoad reports whether the database of a load stays so far below the quota that nothing has to be defragmented.
func holdsLoad(t *testing.T, c *v1beta1.EtcdCluster, l defaults.Load) bool {
	t.Helper()
	options := defaults.OptionsFor(&c.Spec, c.Spec.Version)
	require.Zero(t, options.Revisions)
	history, err := time.ParseDuration(options.Retention)
	require.NoError(t, err)
	l.History = history
	need := l.Need()
	return need.Database() < quotaOf(c)/10*9
}

// TestSamplesAreLargeEnough: a sample is valid; what it says of a load is what the command prints for that; and without
// that it is large enough for the load that the defaults are for, unless its data is in memory.
func TestSamplesAreLargeEnough(t *testing.T) {
	asked := regexp.MustCompile(`(?m)^# .*kubectl quorate (size .*)$`)
	files, err := filepath.Glob("../../manifests/samples/*.yaml")
	require.NoError(t, err)
	clusters, commands := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for part := range strings.SplitSeq(string(text), "\n---\n") {
			c := new(v1beta1.EtcdCluster)
			require.NoError(t, yaml.Unmarshal([]byte(part), c))
			if c.Kind != v1beta1.Kind {
				continue
			}
			clusters++
			accepted(t, c)
			if found := asked.FindStringSubmatch(part); found != nil {
				commands++
				large, _, _ := sized(t, found[1])
				assert.Equal(t, large.Spec.Storage.Size.String(), c.Spec.Storage.Size.String(), file)
				assert.Equal(t, large.Spec.Resources.Limits.Memory(), c.Spec.Resources.Limits.Memory(), file)
				assert.Equal(t, quotaOf(large), quotaOf(c), file)
				assert.Equal(t, defaults.OptionsFor(&large.Spec, "3.6.16"), defaults.OptionsFor(&c.Spec, "3.6.16"), file)
			} else if c.Spec.Storage.Medium != v1beta1.Memory {
				assert.True(t, holdsLoad(t, c, defaults.Load{Keys: 100_000, Value: 1 << 10, Writes: 200}), file)
			}
		}
	}
	assert.Greater(t, clusters, 8)
	assert.Positive(t, commands)
}
