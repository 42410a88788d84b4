//go:build unix

package etcdproc

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports are taken below those that the kernel gives to outgoing connections (32768 and up on Linux), so that no
// connection of another process can sit on one between our look and etcd's start.
const lowestPort, highestPort = 20000, 32000

var (
	portsMutex sync.Mutex
	portsTaken = map[int]bool{}
)

// Port is freePort for other servers than etcd.
func Port(t testing.TB) int { t.Helper(); return freePort(t) }

// freePort is a loopback port that nothing listens on and that this process has not given out before: a member that is
// down keeps its ports.
func freePort(t testing.TB) int {
	t.Helper()
	portsMutex.Lock()
	defer portsMutex.Unlock()
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if portsTaken[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		portsTaken[port] = true
		return port
	}
	t.Fatal("no free port on loopback")
	return 0
}
