// pause does nothing, well: it holds namespaces open and reaps orphans. It is
// the first process of every pod's sandbox and of every lab node.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for {
		reap()
		if s := <-signals; s != syscall.SIGCHLD {
			return
		}
	}
}

// reap collects every child that has ended: one SIGCHLD may stand for many.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}
