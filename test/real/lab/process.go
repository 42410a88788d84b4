//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is what is remembered of a process that was started.
type process struct {
	PID   int      `json:"pid"`
	Began string   `json:"began"`          // tells it from a later process of the same number
	Args  []string `json:"args,omitempty"` // for `lab again`
}

func readProcess(file string) process {
	var p process
	if text, err := os.ReadFile(file); err == nil {
		json.Unmarshal(text, &p) // an unreadable one counts as dead
	}
	return p
}

func writeProcess(file string, pid int, args ...string) error {
	began, _ := processState(pid)
	text, err := json.Marshal(process{pid, began, args})
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func (p process) alive() bool {
	if p.PID == 0 {
		return false
	}
	began, lives := processState(p.PID)
	return lives && began == p.Began
}

// processState reads when a process began, in ticks since the machine did, and
// whether it lives. A process that is killed may look like a zombie while
// threads of it still end: its ports are taken until the last of them has.
func processState(pid int) (began string, lives bool) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", false
	}
	// The second field is the program's name, in brackets, and may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return "", false
	}
	state, threads, began := fields[0], fields[17], fields[19]
	ended := (state == "Z" || state == "X") && (threads == "0" || threads == "1")
	return began, !ended
}

func (n node) processFile(name string) string { return n.path("processes", name+".json") }
func (n node) logFile(name string) string     { return n.path("logs", name+".log") }
func (n node) process(name string) process    { return readProcess(n.processFile(name)) }

// processNames are all that were ever started on the node and not stopped.
func (n node) processNames() []string {
	files, _ := filepath.Glob(n.processFile("*"))
	var names []string
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".json"))
	}
	return names
}

// command prepares a process of the node. It finds the API server by itself:
// the address in the caller's KUBECONFIG is none of the node's.
func (n node) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+n.lab.pki("admin.kubeconfig"), "KUBECACHEDIR="+n.lab.kinds())
	return cmd
}

// start starts a process in the background under a name.
func (n node) start(name string, args ...string) error {
	if name == "" || strings.ContainsAny(name, "/ ") || len(args) == 0 {
		return fmt.Errorf("a process needs a plain name and a command, not %q %q", name, args)
	}
	if n.process(name).alive() {
		return fmt.Errorf("%s runs on %s already; stop it first: lab stop %d %s", name, n, n.id, name)
	}
	log, err := os.OpenFile(n.logFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%s on %s: %w", name, n, err)
	}
	defer log.Close()
	cmd := n.command(args)
	cmd.Env = append(cmd.Env, "GOGC=400") // memory is less scarce than CPU time
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // not to end with the caller's terminal
	if err := n.launch(cmd); err != nil {
		return fmt.Errorf("%s on %s: %w", name, n, err)
	}
	if err := writeProcess(n.processFile(name), cmd.Process.Pid, args...); err != nil {
		return err
	}
	go cmd.Wait()
	return nil
}

// run runs a command in the foreground with what it is given for input and output.
func (n node) run(cmd *exec.Cmd) error {
	if err := n.launch(cmd); err != nil {
		return err
	}
	return cmd.Wait()
}

func (n node) launch(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	pid, err := n.initPID()
	if err != nil {
		return err
	}
	groups, err := readCgroups()
	if err != nil {
		return err
	}
	return groups.startInside(pid, n.group(), cmd)
}

// stop sends a signal and, unless the signal leaves a process alive by its
// nature, waits until the process has ended.
func (n node) stop(name string, signal syscall.Signal) error {
	p := n.process(name)
	if p.PID == 0 {
		return fmt.Errorf("nothing called %s was started on %s; see lab ps", name, n)
	}
	if p.alive() {
		if err := unix.Kill(p.PID, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("%s on %s: %w", name, n, err)
		}
	}
	switch signal {
	case unix.SIGTERM, unix.SIGKILL, unix.SIGINT, unix.SIGQUIT:
	default:
		return nil
	}
	return waitFor(fmt.Sprintf("%s on %s to end after %s", name, n, unix.SignalName(signal)), stopTime, func() error {
		if p.alive() {
			return fmt.Errorf("process %d still runs; lab stop %d %s KILL", p.PID, n.id, name)
		}
		return nil
	})
}

// again starts a process with the command it had before.
func (n node) again(name string) error {
	p := n.process(name)
	if len(p.Args) == 0 {
		return fmt.Errorf("nothing called %s was started on %s; see lab ps", name, n)
	}
	if p.alive() {
		if err := n.stop(name, unix.SIGTERM); err != nil {
			return err
		}
	}
	return n.start(name, p.Args...)
}

const (
	stopTime     = 15 * time.Second
	powerOffTime = 15 * time.Second
)

// waitFor tries until it succeeds. The error says what was awaited and why the
// last try failed.
func waitFor(what string, timeout time.Duration, try func() error) error {
	deadline := time.Now().Add(timeout)
	for {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s: %w", timeout, what, err)
		}
		time.Sleep(25 * time.Millisecond)
	}
}
