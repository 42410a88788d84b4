//go:build linux

package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// The forwarder is the one process of a lab outside its nodes: it makes the API
// server of node1 reachable on the host's 127.0.0.1.

func (l *lab) forwarderFile() string { return filepath.Join(l.run, "forwarder.json") }

func (l *lab) hostAddress() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(l.apiPort)) }

// startForwarder listens before it returns, and hands the listener on: a port
// that is taken is noticed here.
func (l *lab) startForwarder() error {
	listener, err := net.Listen("tcp", l.hostAddress())
	if err != nil {
		return fmt.Errorf("%w; another lab may run: choose another QUORATE_LAB_API_PORT (and QUORATE_LAB_NAME and "+
			"QUORATE_LAB_RUN)", err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer socket.Close()
	output, err := os.Create(filepath.Join(l.run, "forwarder.log"))
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command("/proc/self/exe", "forward")
	cmd.Args[0] = l.name // what ps shows
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = "/", output, output, []*os.File{socket}
	// With the caller's choice spelled out, as its folder is not the caller's.
	cmd.Env = append(os.Environ(), "QUORATE_LAB_RUN="+l.run)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("forwarder: %w", err)
	}
	go cmd.Wait()
	return writeProcess(l.forwarderFile(), cmd.Process.Pid)
}

// forward is `lab forward`: it serves the listener it was given.
func forward(l *lab, _ []string) error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return fmt.Errorf("forward is for `lab up` alone: %w", err)
	}
	for {
		from, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer from.Close()
			to, err := l.dialAPI()
			if err != nil {
				log.Print(err)
				return
			}
			defer to.Close()
			join(from, to)
		}()
	}
}

// dialAPI looks up node1 every time: after a poweron it has a new network, and
// holding the old one open would keep it, cable and all, from going away.
func (l *lab) dialAPI() (to net.Conn, err error) {
	pid, err := l.node(1).initPID()
	if err != nil {
		return nil, err
	}
	err = insideNetwork(pid, func() error {
		// An address, not a name: a lookup would use threads of its own.
		to, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: nodeAPIPort})
		return err
	})
	return to, err
}

// join copies both ways, and hands on each end's half close.
func join(a, b net.Conn) {
	done := make(chan struct{})
	pipe := func(to, from net.Conn) {
		io.Copy(to, from)
		to.(*net.TCPConn).CloseWrite()
		done <- struct{}{}
	}
	go pipe(a, b)
	go pipe(b, a)
	<-done
	<-done
}
