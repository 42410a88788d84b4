//go:build unix

package etcdproc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/test/real/paused"
)

// A Member is one etcd process with a data directory and two ports of its own. It keeps them while it is down.
type Member struct {
	Name      string
	ClientURL string
	PeerURL   string

	t       testing.TB
	version string
	dataDir string
	logFile string
	extra   []string
	ca      *Authority

	process *exec.Cmd
	exited  chan struct{}
}

// Command is etcd of this version, not started yet.
func Command(t testing.TB, version string, args ...string) *exec.Cmd {
	t.Helper()
	program, environment := memberProgram(t, version)
	c := exec.Command(program, args...)
	c.Env = environment
	return c
}

func newMember(t testing.TB, version, dir, name string, ca *Authority, extra []string) *Member {
	t.Helper()
	scheme := "http"
	if ca != nil {
		scheme = "https"
	}
	m := &Member{
		Name:      name,
		ClientURL: fmt.Sprintf("%s://127.0.0.1:%d", scheme, freePort(t)),
		PeerURL:   fmt.Sprintf("http://127.0.0.1:%d", freePort(t)),
		t:         t,
		version:   version,
		dataDir:   filepath.Join(dir, name),
		logFile:   filepath.Join(dir, name+".log"),
		extra:     slices.Concat(ca.flags(), extra),
		ca:        ca,
	}
	t.Cleanup(m.end)
	return m
}

// Endpoint is where the member is asked.
func (m *Member) Endpoint() observation.Endpoint {
	e := observation.Endpoint{Name: m.Name, ClientURL: m.ClientURL, PeerURL: m.PeerURL}
	if m.ca != nil {
		e.ServerName = "127.0.0.1"
	}
	return e
}

// start runs the process. State is etcd's initial-cluster-state; with data in its directory etcd ignores it and the
// initial cluster.
func (m *Member) start(state, token, initialCluster string) {
	m.t.Helper()
	log, err := os.OpenFile(m.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(m.t, err)
	defer func() { _ = log.Close() }()
	m.process = Command(m.t, m.version, append([]string{
		"--name=" + m.Name,
		"--data-dir=" + m.dataDir,
		"--listen-client-urls=" + m.ClientURL,
		"--advertise-client-urls=" + m.ClientURL,
		"--listen-peer-urls=" + m.PeerURL,
		"--initial-advertise-peer-urls=" + m.PeerURL,
		"--initial-cluster=" + initialCluster,
		"--initial-cluster-state=" + state,
		"--initial-cluster-token=" + token,
		"--strict-reconfig-check=true",
		"--unsafe-no-fsync=true",
		"--log-level=warn",
	}, m.extra...)...)
	m.process.Stdout, m.process.Stderr = log, log
	m.process.SysProcAttr = attributes()
	if err := m.process.Start(); err != nil {
		m.t.Fatalf("start of %s: %v", m.Name, err)
	}
	m.exited = make(chan struct{})
	go func(p *exec.Cmd, exited chan struct{}) {
		_ = p.Wait() // the exit code is in p.ProcessState
		close(exited)
	}(m.process, m.exited)
}

// Restart runs the member again on the data that it has.
func (m *Member) Restart() {
	m.t.Helper()
	if m.Running() {
		m.t.Fatalf("%s runs already", m.Name)
	}
	m.start("existing", "ignored", m.Name+"="+m.PeerURL)
}

// RestartAlone runs the member again on the data that it has, as the only member of a new cluster: what a restored
// snapshot is, users and roles among it. It may be told more flags.
func (m *Member) RestartAlone(extra ...string) {
	m.t.Helper()
	kept := m.extra
	m.extra = slices.Concat(kept, []string{"--force-new-cluster=true"}, extra)
	m.Restart()
	m.extra = kept
}

// Become makes the member one of another version from its next start on, with these flags instead of those that it had.
func (m *Member) Become(version string, extra ...string) {
	m.t.Helper()
	m.version, m.extra = version, slices.Concat(m.ca.flags(), extra)
}

// Stop ends the process as the kubelet does, with SIGTERM, and waits.
func (m *Member) Stop() {
	m.t.Helper()
	if m.Running() {
		m.signal(syscall.SIGTERM)
		m.ExitCode(Patience)
	}
}

// Terminate tells the process to end, as the kubelet does, and does not wait for that.
func (m *Member) Terminate() { m.signal(syscall.SIGTERM) }

// Kill ends the process with SIGKILL, as a node does that loses power.
func (m *Member) Kill() {
	if m.Running() {
		m.signal(syscall.SIGKILL)
		<-m.exited
	}
}

// Wipe removes the data of a member that is down.
func (m *Member) Wipe() {
	m.t.Helper()
	if m.Running() {
		m.t.Fatalf("%s still runs", m.Name)
	}
	must(m.t, os.RemoveAll(m.dataDir))
}

// Empty reports whether the data directory holds nothing, or is not there.
func (m *Member) Empty() bool {
	entries, err := os.ReadDir(m.dataDir)
	return len(entries) == 0 && (err == nil || os.IsNotExist(err))
}

// Pause stops the process without ending it, and returns when it has stopped. The kernel still takes connections
// for it, so that to all others it looks like a member behind a network that drops packets.
func (m *Member) Pause() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), Patience)
	defer cancel()
	if err := paused.Process(ctx, m.process.Process.Pid); err != nil {
		m.t.Fatalf("%s: %v", m.Name, err)
	}
}

// Resume lets a paused process go on.
func (m *Member) Resume() { m.signal(syscall.SIGCONT) }

func (m *Member) signal(s syscall.Signal) { _ = m.process.Process.Signal(s) }

// Running reports whether the process has been started and has not ended; a paused one runs.
func (m *Member) Running() bool {
	if m.exited == nil {
		return false
	}
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// ExitCode waits for the process to end by itself and returns its code; -1 for one that a signal ended.
func (m *Member) ExitCode(within time.Duration) int {
	m.t.Helper()
	select {
	case <-m.exited:
		return m.process.ProcessState.ExitCode()
	case <-time.After(within):
		m.t.Fatalf("%s still runs after %s", m.Name, within)
		return 0
	}
}

// DataDir is where the member keeps its data.
func (m *Member) DataDir() string { return m.dataDir }

// Said reports whether the log of the member, of all its processes, holds these words.
func (m *Member) Said(words string) bool {
	m.t.Helper()
	raw, err := os.ReadFile(m.logFile)
	must(m.t, err)
	return strings.Contains(string(raw), words)
}

// end is the member's part of the cleanup: it shows the end of the log of a failed test.
func (m *Member) end() {
	m.Kill()
	if m.t.Failed() {
		m.t.Logf("the end of the log of %s:\n%s", m.Name, m.logTail(20))
	}
}

func (m *Member) logTail(lines int) string {
	raw, err := os.ReadFile(m.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
