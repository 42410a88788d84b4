//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
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
			runtime.LockOSThread() // never unlocked: the thread must not serve anything else
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

// newIsland makes a network namespace in which every address is local: a connection to 10.244.1.7:2379 in there
// reaches what listens on port 2379, and tells it the address that was meant. It goes with the process.
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
func (n *network) dialContext(ctx context.Context, address string) (conn net.Conn, err error) {
	err = n.do(func() error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second) // a thread is not held for long
		defer cancel()
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// ofFamily chooses the address of the version that is the lab's first.
func ofFamily(four, six string) string {
	if os.Getenv("QUORATE_LAB_IP") == "v6" {
		return six
	}
	return four
}

// addressOf a node of the lab.
func addressOf(node int) string {
	return ofFamily(fmt.Sprintf("172.30.0.%d", node), fmt.Sprintf("fd00:172:30::%d", node))
}

func (n *network) httpClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn,
			error) {
			return n.dialContext(ctx, address)
		},
	}}
}
