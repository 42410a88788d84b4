//go:build unix

package conformance

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestDefaultsOfEtcd: who writes one of these into a spec says what etcd does anyway, and no member is restarted for
// it (options and snapshotCount in hooks/template.go).
func TestDefaultsOfEtcd(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		out, err := exec.Command(etcdproc.Program(t, version, "etcd"), "--help").CombinedOutput()
		require.NoError(t, err)
		counts := map[bool]string{true: "--snapshot-count '100000'", false: "--snapshot-count '10000'"}
		for _, flag := range []string{counts[version[:4] == "3.5."], "--max-request-bytes '1572864'",
			"--max-txn-ops '128'"} {
			assert.Contains(t, string(out), flag+"\n")
		}
	})
}
