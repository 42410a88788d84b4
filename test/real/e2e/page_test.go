//go:build e2e

package e2e

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPage: the page of `kubectl quorate ui` shows in a Chromium how a member is lost and another takes its place, what
// fills the cluster by a verified snapshot, and who writes as the pod of its stream tells.
func TestPage(t *testing.T) {
	beside(t)
	bucket := store(t)
	c := newCluster(t, three+"  storage: {size: 1Gi}\n")
	bucket.credentials(c)
	c.converges(3)
	c.schedules("yearly", yearly, "store: "+bucket.yaml(c.ns))
	c.streams("yearly", "")
	for _, key := range []string{"a", "b", "c"} {
		require.NoError(t, putting(t, c.client(), "/registry/pods/"+key, "value"))
	}
	does := c.doing()
	assert.Contains(t, does("snapshot", "--wait"), "Succeeded: ")
	eventually(t, "the stream tells who writes", func() string {
		screen := does("top")
		_, streamed, told := strings.Cut(screen, "as the stream of yearly saw it")
		return while(!told || !strings.Contains(streamed, "/registry/pods/"), screen)
	})

	url := c.opensPage()
	browser := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-run", "^TestLab$", "-v", "./browser")
	browser.Dir = "../../tools"
	browser.Env = append(os.Environ(), "QUORATE_PAGE="+url,
		"QUORATE_LOSES=kubectl delete pvc/demo-1 pod/demo-1 --wait=false -n "+c.ns)
	out, err := browser.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(string(out))
	c.converges(3)
}

// opensPage begins `kubectl quorate ui`, which ends with the test, and is the address of its page.
func (c *cluster) opensPage() string {
	c.t.Helper()
	binary, err := filepath.Abs("../../../bin/quorate")
	require.NoError(c.t, err)
	plugin := filepath.Join(c.t.TempDir(), "kubectl-quorate")
	require.NoError(c.t, os.Symlink(binary, plugin))
	cmd := exec.CommandContext(c.t.Context(), plugin, "ui", "-n", c.ns)
	out, err := cmd.StdoutPipe()
	require.NoError(c.t, err)
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended it
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(c.t, err)
	assert.Contains(c.t, line, "token=")
	return strings.TrimSpace(line)
}
