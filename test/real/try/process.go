package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is one run of a container.
type process struct {
	cmd   *exec.Cmd
	began time.Time
	ended chan struct{}
}

// start runs a command, whose words go to the end of a file. Poke is called when it has ended.
func start(cmd *exec.Cmd, log string, keeper *keeper, poke func()) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	keeper.tell("+", pid)
	p := &process{cmd: cmd, began: time.Now(), ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // the exit code is in cmd.ProcessState
		keeper.tell("-", pid)
		close(p.ended)
		poke()
	}()
	return p, nil
}

// runs reports whether the process has not ended; a nil one has never begun.
func (p *process) runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) signal(s syscall.Signal) {
	if p.runs() {
		_ = p.cmd.Process.Signal(s)
	}
}

// code that it ended with, as Kubernetes tells it: 128 and the signal for one that was killed.
func (p *process) code() int32 {
	if status, is := p.cmd.ProcessState.Sys().(syscall.WaitStatus); is && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(p.cmd.ProcessState.ExitCode())
}

// keeper is a process that outlives this one by a moment: when this one has ended, however that was, it ends all
// processes that are left and removes the folder. It hears of the end by its standard input.
type keeper struct {
	lock sync.Mutex
	cmd  *exec.Cmd
	told io.WriteCloser
}

func newKeeper(dir string) (*keeper, error) {
	k := &keeper{cmd: self("keep", dir)}
	var err error
	if k.told, err = k.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	return k, k.cmd.Start()
}

// tell says that a process has begun (+) or ended (-).
func (k *keeper) tell(sign string, pid int) {
	k.lock.Lock()
	defer k.lock.Unlock()
	_, _ = fmt.Fprintf(k.told, "%s%d\n", sign, pid)
}

// end lets the keeper do its work, and waits for it.
func (k *keeper) end() {
	_ = k.told.Close()
	_ = k.cmd.Wait()
}

// keep is the keeper's own program.
func keep(dir string) int {
	alive := map[int]bool{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		pid, err := strconv.Atoi(strings.TrimLeft(lines.Text(), "+-"))
		if err != nil {
			continue
		}
		if alive[pid] = true; strings.HasPrefix(lines.Text(), "-") {
			delete(alive, pid)
		}
	}
	for pid := range alive {
		_ = syscall.Kill(-pid, syscall.SIGKILL) // with what it has begun: each leads a group of its own
	}
	// who is ending may still write
	for began := time.Now(); os.RemoveAll(dir) != nil && time.Since(began) < 10*time.Second; {
		time.Sleep(50 * time.Millisecond)
	}
	return 0
}

// self is this program with another command, out of reach of the keys of a terminal.
func self(args ...string) *exec.Cmd {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	cmd := exec.Command(path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}
