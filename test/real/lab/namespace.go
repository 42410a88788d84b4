//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const allNamespaces = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID |
	unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP

func init() {
	// Keep the main goroutine on the main thread, so that no other goroutine
	// is: spoilThread spoils the one it runs on, and a process whose main
	// thread is in other namespaces looks to everyone as if all of it were.
	runtime.LockOSThread()
}

// spoilThread runs f on a thread of its own, which f may move into other
// namespaces and groups: it is used for nothing else and ends with f, as the
// goroutine ends without unlocking it.
//
// This is done here and not by `ip netns exec`, which mounts a new /sys over
// the control groups, nor by `nsenter`, which stays as a second process.
func spoilThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// insideNetwork runs f in the network namespace of a process, and otherwise here.
func insideNetwork(pid int, f func() error) error {
	return spoilThread(func() error {
		if err := enter(pid, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

func enter(pid, namespaces int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if namespaces&unix.CLONE_NEWNS != 0 {
		// Threads share their root and working folder, and the kernel refuses
		// to move those to another mount namespace while they are shared.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("unsharing the working folder: %w", err)
		}
	}
	if err := unix.Setns(fd, namespaces); err != nil {
		return fmt.Errorf("joining the namespaces of process %d: %w", pid, err)
	}
	return nil
}

// startInside starts a command in a group and in all namespaces of a node. The
// child's pid is this machine's, not the node's.
func (c cgroups) startInside(pid int, group string, cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.Dir = "/" // a folder of this mount namespace would be none of the node's
	if c.v2 {
		dir, err := os.Open(filepath.Join(c.hierarchies[0].root, group, initGroup))
		if err != nil {
			return err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	return spoilThread(func() error {
		if !c.v2 {
			if err := c.addThread(group); err != nil {
				return err
			}
		}
		if err := enter(pid, allNamespaces); err != nil {
			return err
		}
		return cmd.Start()
	})
}
