//go:build e2e

// Package e2e tells the stories of the README on a real Kubernetes: the lab's, with Metacontroller and Quorate installed from
// manifests as a user would. `make e2e` brings all of that up.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// kubectl runs kubectl against the lab and returns what it prints. An error holds what it said.
func kubectl(stdin string, args ...string) (string, error) {
	cmd := exec.Command("kubectl", args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// kube runs kubectl and fails the test when kubectl fails.
func kube(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubectl("", args...)
	require.NoError(t, err)
	return out
}

// get reads an object of the API server into a typed one; false when there is none.
func get[T any](t *testing.T, namespace, resource, name string) (*T, bool) {
	t.Helper()
	out := kube(t, "-n", namespace, "get", resource, name, "-o", "json", "--ignore-not-found")
	if strings.TrimSpace(out) == "" {
		return nil, false
	}
	object := new(T)
	require.NoError(t, json.Unmarshal([]byte(out), object))
	return object, true
}

// list reads all objects of a resource in a namespace.
func list[T any](t *testing.T, namespace, resource string) []T {
	t.Helper()
	var l struct{ Items []T }
	require.NoError(t, json.Unmarshal([]byte(kube(t, "-n", namespace, "get", resource, "-o", "json")), &l))
	return l.Items
}

// eventually waits for a condition, which says what it still waits for; an empty string is success.
func eventually(t *testing.T, within time.Duration, what string, waitsFor func() string) time.Duration {
	t.Helper()
	begin := time.Now()
	var last string
	for {
		last = waitsFor()
		took := time.Since(begin)
		if last == "" {
			t.Logf("%s after %.1f s", what, took.Seconds())
			return took
		}
		if took > within {
			t.Fatalf("%s: not within %s: %s", what, within, last)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// labDialer dials from inside the lab's network, where pod addresses, Services and cluster DNS exist.
type labDialer struct{ dials chan dial }

type dial struct {
	ctx     context.Context
	address string
	answer  chan dialed
}

type dialed struct {
	conn net.Conn
	err  error
}

// newLabDialer starts the one thread that stays in node 1's network namespace; connections made there work anywhere.
func newLabDialer() (*labDialer, error) {
	ns, err := os.Open(os.Getenv("QUORATE_LAB_NETNS"))
	if err != nil {
		return nil, fmt.Errorf("QUORATE_LAB_NETNS: %w; run the stories with `make e2e`", err)
	}
	d := &labDialer{dials: make(chan dial)}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread must not serve anybody else
		ready <- unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		var dialer net.Dialer
		for r := range d.dials {
			conn, err := dialer.DialContext(r.ctx, "tcp4", r.address)
			r.answer <- dialed{conn, err}
		}
	}()
	return d, <-ready
}

// DialContext dials an address with a literal IP.
func (d *labDialer) DialContext(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // one thread dials for all: nobody may hold it for long
	defer cancel()
	r := dial{ctx, address, make(chan dialed, 1)}
	select {
	case d.dials <- r:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answer := <-r.answer
	return answer.conn, answer.err
}

var lab *labDialer

// etcdAt is a client of etcd at an address inside the lab, such as 10.96.3.4:2379.
func etcdAt(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"http://" + address},
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		DialOptions:          []grpc.DialOption{grpc.WithContextDialer(lab.DialContext)},
		Logger:               zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestMain(m *testing.M) {
	var err error
	if lab, err = newLabDialer(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
