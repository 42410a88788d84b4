//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// host is the name that the certificate of `quorate install` is for.
const host = "quorate.quorate-system.svc"

// quorate is the server under test, in a process of its own.
type quorate struct {
	cmd          *exec.Cmd
	dir          string
	hooks, pages string
	token        string
	trust        *tls.Config
}

// startQuorate starts `quorate serve` on its core, with what `quorate install` makes for Metacontroller 1.5, and
// waits until it is ready.
func startQuorate(ctx context.Context, o options, f *fleet) (*quorate, error) {
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return nil, err
	}
	q := &quorate{dir: dir}
	if err := q.credentials(ctx, o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if q.hooks, err = freeAddress(); err != nil {
		return nil, err
	}
	if q.pages, err = freeAddress(); err != nil {
		return nil, err
	}
	q.cmd = exec.CommandContext(ctx, "taskset", "-c", o.core, o.quorate, "serve", "--listen", q.hooks,
		"--metrics-listen", q.pages, "--image", f.image, "--namespace", "quorate-system", "--drain-delay", "-1ns",
		"--tls-cert", filepath.Join(dir, "tls.crt"), "--tls-key", filepath.Join(dir, "tls.key"), "--token-file",
		filepath.Join(dir, "tokens"), "--cluster-domain", "lab.internal") // where the call was recorded
	q.cmd.Env = append(os.Environ(), "GOMEMLIMIT="+o.memory)
	q.cmd.Cancel = func() error { return q.cmd.Process.Signal(syscall.SIGTERM) }
	q.cmd.WaitDelay = 10 * time.Second
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	q.cmd.Stdout, q.cmd.Stderr = log, log
	if err := q.cmd.Start(); err != nil {
		return nil, err
	}
	for range 500 {
		if _, err := q.metric(ctx, "go_goroutines"); err == nil {
			return q, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	said, _ := os.ReadFile(filepath.Join(dir, "log"))
	q.stop()
	return nil, fmt.Errorf("the server does not answer after 10 s: %s", said)
}

// credentials are those that the installation has: the Secret that the server mounts, as files.
func (q *quorate) credentials(ctx context.Context, o options) error {
	program := o.quorate
	if filepath.Base(program) != "quorate" {
		program = "bin/quorate" // another server under test has no such command
	}
	out, err := exec.CommandContext(ctx, program, "install", "--metacontroller-namespace=mc",
		"--metacontroller-version=1.5").Output()
	if err != nil {
		return fmt.Errorf("quorate install: %w", err)
	}
	for _, text := range bytes.Split(out, []byte("\n---\n")) {
		var s corev1.Secret
		if err := yaml.Unmarshal(text, &s); err != nil || s.Kind != "Secret" || s.Name != "quorate-hooks" {
			continue
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(s.Data["ca.crt"])
		q.trust = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
		q.token = strings.TrimSpace(string(s.Data["tokens"]))
		for name, content := range s.Data {
			if err := os.WriteFile(filepath.Join(q.dir, name), content, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	return errors.New("quorate install prints no Secret quorate-hooks")
}

// url of a hook, with the token as Metacontroller 1.5 sends it.
func (q *quorate) url(path string) string {
	return (&url.URL{Scheme: "https", Host: host, Path: path, User: url.UserPassword("quorate", q.token)}).String()
}

func (q *quorate) stop() {
	if q.cmd.Process != nil {
		_ = q.cmd.Process.Signal(syscall.SIGTERM)
		_ = q.cmd.Wait()
	}
	_ = os.RemoveAll(q.dir)
}

// metric reads one without labels.
func (q *quorate) metric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+q.pages+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}

// usage is what a process has taken so far.
type usage struct {
	cpu             time.Duration
	anonymous, peak float64 // MiB: memory of its own now, and the most with mapped files
	files           int
	goroutines      float64
}

// usage of the server. Under taskset, the process is the server itself: taskset only execs.
func (q *quorate) usage(ctx context.Context, scrape bool) (usage, error) {
	proc := fmt.Sprintf("/proc/%d/", q.cmd.Process.Pid)
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		return usage{}, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third on: proc(5)
	ticks := 0
	for _, field := range fields[11:13] { // utime and stime
		n, err := strconv.Atoi(field)
		if err != nil {
			return usage{}, err
		}
		ticks += n
	}
	files, err := os.ReadDir(proc + "fd")
	if err != nil {
		return usage{}, err
	}
	u := usage{cpu: time.Duration(ticks) * 10 * time.Millisecond, files: len(files)} // 100 ticks in a second
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return usage{}, err
	}
	for line := range strings.Lines(string(status)) {
		for field, into := range map[string]*float64{"RssAnon:": &u.anonymous, "VmHWM:": &u.peak} {
			if rest, ok := strings.CutPrefix(line, field); ok {
				kib, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
				if err != nil {
					return usage{}, err
				}
				*into = kib / 1024
			}
		}
	}
	if scrape {
		u.goroutines, err = q.metric(ctx, "go_goroutines")
	}
	return u, err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
