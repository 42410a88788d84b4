//go:build unix

package conformance

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestDefaultsOfEtcd: who writes one of these into a spec says what etcd does anyway, and no member is restarted for
// it (options and snapshotCount in hooks/children/template.go).
func TestDefaultsOfEtcd(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		out, err := etcdproc.Command(t, version, "--help").CombinedOutput()
		require.NoError(t, err)
		counts := map[bool]string{true: "--snapshot-count '100000'", false: "--snapshot-count '10000'"}
		for _, flag := range []string{counts[version[:4] == "3.5."], "--max-request-bytes '1572864'",
			"--max-txn-ops '128'"} {
			assert.Contains(t, string(out), flag+"\n")
		}
	})
}
