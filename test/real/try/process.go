package main

import (
	"os"
	"os/exec"
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
