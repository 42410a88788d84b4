//go:build unix

// Package paused stops processes without ending them.
package paused

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Process stops a process. The signal is delivered in its own time: it returns when every thread has
// stopped (on Linux; elsewhere at once), or with an error when the context ends.
func Process(ctx context.Context, pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		runs, err := running(pid)
		if err != nil || runs == "" {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d has not stopped: %s", pid, runs)
		case <-time.After(time.Millisecond):
		}
	}
}

// running is a thread of the process that has not stopped, and its state; empty for none.
func running(pid int) (string, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, stat := range stats {
		raw, err := os.ReadFile(stat)
		if err != nil {
			return "", err
		}
		// The state comes after the command's name in brackets: proc(5).
		if _, state, _ := strings.Cut(string(raw), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Sprintf("%s: %.1s", stat, state), nil
		}
	}
	return "", err
}
