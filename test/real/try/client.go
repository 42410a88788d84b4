package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate-dev/quorate/etcdops/pki"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// access is how clients outside of this program reach the cluster: over its Service for clients, with the certificate
// that Quorate makes for applications.
type access struct {
	endpoint string
	// dir holds ca.crt, tls.crt and tls.key; empty for a cluster in plain text.
	dir  string
	data map[string][]byte
}

// access to the cluster; an error while there is none.
func (t *try) access() (*access, error) {
	a := &access{}
	var err error
	t.ask(func() {
		c := t.world.Cluster()
		if c == nil {
			err = errors.New("there is no cluster: `apply` makes one")
			return
		}
		if c.Spec.TLS.Mode == v1beta1.TLSDisabled {
			a.endpoint = "http://" + t.net.service.Addr().String()
			return
		}
		a.endpoint, a.dir = "https://"+t.net.service.Addr().String(), filepath.Join(t.dir, "client")
		a.data = maps.Clone(t.vault[c.Name+"-client-tls"])
	})
	if err != nil || a.dir == "" {
		return a, err
	}
	if err := os.MkdirAll(a.dir, 0o700); err != nil {
		return nil, err
	}
	for _, key := range []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate} {
		if len(a.data[key]) == 0 {
			return nil, errors.New("the certificate for clients is not made yet")
		}
		if err := os.WriteFile(filepath.Join(a.dir, key), a.data[key], 0o600); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// flags of etcdctl.
func (a *access) flags() []string {
	flags := []string{"--endpoints=" + a.endpoint}
	if a.dir != "" {
		flags = append(flags, "--cacert="+filepath.Join(a.dir, objects.KeyTrust),
			"--cert="+filepath.Join(a.dir, objects.KeyCertificate), "--key="+filepath.Join(a.dir, objects.KeyPrivate))
	}
	return flags
}

// etcdctl is the program for people: theirs, or this one by that name.
func (t *try) etcdctl() string {
	if path, err := exec.LookPath("etcdctl"); err == nil {
		return filepath.Base(path)
	}
	link := filepath.Join(t.dir, "etcdctl")
	if path, err := os.Executable(); err == nil {
		_ = os.Symlink(path, link)
	}
	return link
}

// line is what people can copy into another terminal.
func (t *try) line() (string, error) {
	a, err := t.access()
	if err != nil {
		return "", err
	}
	return t.etcdctl() + " " + strings.Join(a.flags(), " "), nil
}

// client is etcd's own, as an application has it.
func (t *try) client() (*clientv3.Client, error) {
	a, err := t.access()
	if err != nil {
		return nil, err
	}
	config := clientv3.Config{Endpoints: []string{a.endpoint}, Logger: zap.NewNop(), DialTimeout: 2 * time.Second}
	if a.dir != "" {
		if config.TLS, err = pki.Client(a.data); err != nil {
			return nil, err
		}
	}
	return clientv3.New(config)
}

// writer writes one key after the other, each until it is acknowledged.
type writer struct {
	client *clientv3.Client
	stop   context.CancelFunc
	ended  chan struct{}
	acked  int
	gap    time.Duration
}

const writes = "written/"

func keyOf(n int) string { return fmt.Sprintf("%s%08d", writes, n) }

// startWriter begins to write.
func (t *try) startWriter(ctx context.Context) (*writer, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	w := &writer{client: client, stop: stop, ended: make(chan struct{})}
	go w.run(ctx)
	return w, nil
}

func (w *writer) run(ctx context.Context) {
	defer close(w.ended)
	last := time.Now()
	for every := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			every.Stop()
			return
		case <-every.C:
		}
		limited, cancel := context.WithTimeout(ctx, time.Second)
		_, err := w.client.Put(limited, keyOf(w.acked), fmt.Sprint(w.acked))
		cancel()
		if err != nil {
			continue
		}
		w.acked++
		w.gap, last = max(w.gap, time.Since(last)), time.Now()
	}
}

// end stops writing, and counts how many of the acknowledged writes are there.
func (w *writer) end(ctx context.Context) (there int, err error) {
	w.stop()
	<-w.ended
	defer func() { _ = w.client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	all, err := w.client.Get(ctx, writes, clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	found := map[string]string{}
	for _, kv := range all.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	for n := range w.acked {
		if found[keyOf(n)] == fmt.Sprint(n) {
			there++
		}
	}
	return there, nil
}

// members are the lines of etcd's own member list.
func (t *try) members(ctx context.Context) ([]string, error) {
	client, err := t.client()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, m := range list.Members {
		role := "voter"
		if m.IsLearner {
			role = "learner"
		}
		lines = append(lines, fmt.Sprintf("%-8s %-8s %x  %s", m.Name, role, m.ID, strings.Join(m.PeerURLs, " ")))
	}
	slices.Sort(lines)
	return lines, nil
}
