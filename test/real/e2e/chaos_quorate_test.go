//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/test/real/chaos"
)

// replica is one process of bin/quorate, the binary that the lab's image holds, with every decision checked against
// the rules of safety. It sees the island alone.
type replica struct {
	binary   string
	at       string // its hooks
	pages    string // its metrics and health
	island   *network
	image    string
	schedule *chaos.Schedule
	broken   func(error)

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	tail []string // of its log
}

// hookTimeout is the webhooks' timeout in the test, shorter than in our manifests (10 s) so that more of it happens;
// callTimeout is Quorate's own, below it as documented.
const (
	hookTimeout = 5 * time.Second
	callTimeout = 4 * time.Second
)

func (r *replica) start() error {
	cmd := exec.Command(r.binary, "serve", "--listen="+r.at, "--metrics-listen="+r.pages,
		"--call-timeout="+callTimeout.String(), "--drain-delay=-1s")
	cmd.Env = append(os.Environ(), "QUORATE_VERIFY=1", "QUORATE_IMAGE="+r.image)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the thread lives as long as we do
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := r.island.do(cmd.Start); err != nil {
		return err
	}
	r.cmd, r.done = cmd, make(chan struct{})
	go func() {
		defer close(r.done)
		r.read(stderr)
		_ = cmd.Wait()
	}()
	return nil
}

// read reads the log: an error in it is a bug, and a step is counted with what came of it.
func (r *replica) read(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.mu.Lock()
		if r.tail = append(r.tail, lines.Text()); len(r.tail) > 500 {
			r.tail = r.tail[1:]
		}
		r.mu.Unlock()
		var line struct{ Level, Step, Outcome string }
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "ERROR" ||
			strings.Contains(lines.Text(), "rule of safety") {
			r.broken(fmt.Errorf("quorate's log: %s", lines.Text()))
		}
		if verb, _, _ := strings.Cut(line.Step, " "); verb != "" {
			r.schedule.Count("steps: "+verb, strings.TrimPrefix(line.Outcome, line.Step+": "))
		}
	}
}

// Kill ends the process in an instant and starts another.
func (r *replica) kill() {
	r.mu.Lock()
	cmd, done := r.cmd, r.done
	r.mu.Unlock()
	_ = cmd.Process.Kill()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != cmd {
		return // another goroutine was quicker
	}
	if err := r.start(); err != nil {
		r.broken(err)
	}
}

// stop ends the process for good, as Kubernetes does, and says whether that went well.
func (r *replica) stop(t *testing.T) {
	r.mu.Lock()
	cmd, done := r.cmd, r.done
	r.mu.Unlock()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-done
	if t.Failed() {
		t.Logf("--- the last of %s\n%s", r.at, strings.Join(r.tail, "\n"))
	}
}

// newReplicas starts Quorate some times.
func newReplicas(t *testing.T, n int, island *network, schedule *chaos.Schedule, broken func(error)) []*chaos.Replica {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quorate") // a copy: a build meanwhile does not change it
	content, err := os.ReadFile(*chaosThat)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, content, 0o755))
	image := kube(t, "-n", "quorate-system", "get", "deployment", "quorate", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}")
	client := island.httpClient()
	var all []*chaos.Replica
	for i := range n {
		r := &replica{binary: binary, at: fmt.Sprintf("127.0.0.1:%d", 8081+i),
			pages: fmt.Sprintf("127.0.0.1:%d", 8181+i), island: island, image: image, schedule: schedule,
			broken: broken}
		require.NoError(t, r.start())
		t.Cleanup(func() { r.stop(t) })
		all = append(all, &chaos.Replica{URL: "http://" + r.at, Client: client, Kill: r.kill})
	}
	for _, r := range all {
		eventually(t, r.URL+" listens", func() string {
			_, _, err := page(client, r.URL+"/") // any answer will do
			return failure(err)
		})
	}
	return all
}
