//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/quorate-dev/quorate/test/chaos"
)

// network is a network namespace with threads in it. What they open there (sockets, processes) works and stays in it.
type network struct{ work chan func() }

// newNetwork starts threads in the network namespace of this file; they live as long as the process.
func newNetwork(file string, threads int) (*network, error) {
	ns, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	n := &network{work: make(chan func())}
	ready := make(chan error)
	for range threads {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread must not serve anybody else
			ready <- unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			for f := range n.work {
				f()
			}
		}()
	}
	for range threads {
		err = errors.Join(err, <-ready)
	}
	return n, errors.Join(err, ns.Close())
}

// newIsland makes a network namespace in which every address is local: whoever connects to 10.244.1.7:2379 in there reaches the
// one who listens on port 2379, who learns the address that was meant. It goes with the process.
func newIsland(threads int) (*network, error) {
	file := make(chan string)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- fmt.Errorf("a network namespace: %w", err)
			return
		}
		file <- fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		select {} // the namespace lives as long as this thread
	}()
	var n *network
	select {
	case f := <-file:
		var err error
		if n, err = newNetwork(f, threads); err != nil {
			return nil, err
		}
	case err := <-failed:
		return nil, err
	}
	return n, n.do(func() error {
		for _, args := range []string{"link set lo up", "route add local default dev lo"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", args, err, out)
			}
		}
		return nil
	})
}

// do runs f on a thread in there.
func (n *network) do(f func() error) error {
	done := make(chan error, 1)
	n.work <- func() { done <- f() }
	return <-done
}

func (n *network) listen(address string) (l net.Listener, err error) {
	err = n.do(func() error {
		l, err = net.Listen("tcp4", address)
		return err
	})
	return l, err
}

// DialContext dials an address with a literal IP.
func (n *network) DialContext(ctx context.Context, address string) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // nobody may hold a thread for long
	defer cancel()
	err = n.do(func() error {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "tcp4", address)
		return err
	})
	return conn, err
}

func (n *network) httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) { return n.DialContext(ctx, address) },
	}}
}

// replica is one process of bin/quorate, the binary that the lab's image holds, with every decision checked against the rules of
// safety. It sees the island alone.
type replica struct {
	binary   string
	at       string
	island   *network
	image    string
	schedule *chaos.Schedule
	broken   func(error)

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	tail []string // of its log
}

// hookTimeout is the webhooks' timeout in the test, shorter than in our manifests (10 s) so that more of it happens; callTimeout
// is Quorate's own, below it as documented.
const (
	hookTimeout = 5 * time.Second
	callTimeout = 4 * time.Second
)

func (r *replica) start() error {
	cmd := exec.Command(r.binary, "serve", "--listen="+r.at, "--call-timeout="+callTimeout.String(), "--drain-delay=-1s")
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
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "ERROR" || strings.Contains(lines.Text(), "rule of safety") {
			r.broken(fmt.Errorf("quorate's log: %s", lines.Text()))
		}
		if verb, _, _ := strings.Cut(line.Step, " "); verb != "" {
			r.schedule.Count("steps: "+verb, line.Outcome)
		}
	}
}

// Kill ends the process in an instant and starts another.
func (r *replica) Kill() {
	r.mu.Lock()
	cmd, done := r.cmd, r.done
	r.mu.Unlock()
	_ = cmd.Process.Kill()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != cmd {
		return // somebody else was quicker
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
	binary := filepath.Join(t.TempDir(), "quorate") // a copy: whoever builds meanwhile does not change it
	content, err := os.ReadFile(*chaosThat)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, content, 0o755))
	image := kube(t, "-n", "quorate-system", "get", "deployment", "quorate", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	client := island.httpClient()
	var all []*chaos.Replica
	for i := range n {
		r := &replica{binary: binary, at: fmt.Sprintf("127.0.0.1:%d", 8081+i), island: island, image: image, schedule: schedule, broken: broken}
		require.NoError(t, r.start())
		t.Cleanup(func() { r.stop(t) })
		all = append(all, &chaos.Replica{URL: "http://" + r.at, Client: client, Kill: r.Kill})
	}
	for _, r := range all {
		eventually(t, 10*time.Second, r.URL+" listens", func() string {
			answer, err := client.Get(r.URL + "/healthz")
			if err != nil {
				return err.Error()
			}
			_ = answer.Body.Close()
			return ""
		})
	}
	return all
}
