//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSmoke proves the lab: that a cluster of it does what the project's own
// tests rely on. It starts the lab if need be, and leaves it running:
//
//	QUORATE_LAB_SMOKE=1 go test -run Smoke -v -count=1 .
//
// With two nodes or more (NODES=3) it also breaks and mends them.
func TestSmoke(t *testing.T) {
	if os.Getenv("QUORATE_LAB_SMOKE") == "" {
		t.Skip("set QUORATE_LAB_SMOKE=1, as root, to try a whole lab")
	}
	s := newSmoke(t)
	t.Run("kinds", s.kinds)
	t.Run("etcd", s.etcd)
	t.Run("eviction", s.eviction)
	t.Run("OOM", s.oom)
	t.Run("metacontroller", s.metacontroller)
	t.Run("expandable", s.expandable)
	t.Run("process on a node", s.processOnNode)
	t.Run("no way out", s.noWayOut)
	t.Run("API server", s.apiServer)
	if s.lab.nodes > 1 {
		t.Run("partition", s.partition)
		t.Run("power", s.power)
	}
	t.Run("volumes", s.volumes)
}

type smoke struct {
	lab       *lab
	namespace string
}

// TestMain lets this binary be what a lab's node begins with, as lab is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "node-init" || os.Args[1] == "forward") {
		main()
		return
	}
	os.Exit(m.Run())
}

func newSmoke(t *testing.T) *smoke {
	l, err := newLab()
	if err != nil {
		t.Fatal(err)
	}
	if err := up(l, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.running(); err != nil {
		t.Fatal(err)
	}
	s := &smoke{l, fmt.Sprintf("smoke-%d", time.Now().Unix()%100000)}
	s.must(t, "", "create", "namespace", s.namespace)
	t.Cleanup(func() { s.try("", "delete", "namespace", s.namespace, "--wait=false") })
	return s
}

// kinds proves that kubectl keeps nothing where another lab would find it.
func (s *smoke) kinds(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	s.must(t, "", "get", "pods")
	if err := s.reaches(s.lab.node(1)); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Fatalf("kubectl left %v at home (%v)", left, err)
	}
}

// try runs kubectl in the test's namespace.
func (s *smoke) try(stdin string, args ...string) (string, error) {
	cmd := s.lab.admin(append([]string{"--namespace", s.namespace}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return strings.TrimSpace(string(output)), err
}

func (s *smoke) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	output, err := s.try(stdin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// eventually waits until kubectl prints what is wanted.
func (s *smoke) eventually(t *testing.T, want string, args ...string) {
	t.Helper()
	err := waitFor("kubectl to print "+want, 90*time.Second, func() error {
		got, err := s.try("", args...)
		if err == nil && got != want {
			err = fmt.Errorf("kubectl %s prints %q", strings.Join(args, " "), got)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *smoke) file(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "NAMESPACE", s.namespace)
}

// etcd: three members with volumes, which find each other by DNS.
func (s *smoke) etcd(t *testing.T) {
	began := time.Now()
	s.must(t, s.file(t, "etcd.yaml"), "apply", "-f", "-")
	s.must(t, "", "rollout", "status", "statefulset/etcd", "--timeout=90s")
	t.Logf("three members Ready after %.1f s", time.Since(began).Seconds())
	if got := s.must(t, "", "exec", "etcd-0", "--", "etcdctl", "member", "list"); strings.Count(got, "started") != 3 {
		t.Errorf("members: %s", got)
	}
	s.must(t, "", "exec", "etcd-1", "--", "etcdctl", "--endpoints=http://etcd-client:2379", "put", "hello", "world")
	for i := range 3 {
		endpoint := fmt.Sprintf("--endpoints=http://etcd-%d.etcd.%s.svc.lab.internal:2379", i, s.namespace)
		if got := s.must(t, "", "exec", "etcd-2", "--", "etcdctl", endpoint, "get", "hello"); !strings.Contains(got,
			"world") {
			t.Errorf("etcd-%d has %q", i, got)
		}
	}
	if got := s.must(t, "", "logs", "etcd-0"); !strings.Contains(got, "ready to serve client requests") {
		t.Errorf("the log of etcd-0 lacks its start: %s", got)
	}
	s.must(t, "", "wait", "--for=condition=Complete", "job/snapshot", "--timeout=60s")
}

// eviction: the budget allows one, and refuses the next while the first is away.
func (s *smoke) eviction(t *testing.T) {
	evict := func(pod string) error {
		body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q,"namespace":%q}}`, pod,
			s.namespace)
		_, err := s.try(body, "create", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", s.namespace,
			pod), "-f", "-")
		return err
	}
	before := s.must(t, "", "get", "pod", "etcd-2", "-o", "jsonpath={.metadata.uid}")
	if err := waitFor("the first eviction", 30*time.Second, func() error { return evict("etcd-2") }); err != nil {
		t.Fatal(err)
	}
	if err := evict("etcd-1"); err == nil || !strings.Contains(err.Error(), "disruption budget") {
		t.Errorf("the second eviction was not refused: %v", err)
	}
	s.must(t, "", "rollout", "status", "statefulset/etcd", "--timeout=90s")
	if after := s.must(t, "", "get", "pod", "etcd-2", "-o", "jsonpath={.metadata.uid}"); after == before {
		t.Error("etcd-2 is the same pod as before")
	}
	if got := s.must(t, "", "exec", "etcd-2", "--", "etcdctl", "get", "hello"); !strings.Contains(got, "world") {
		t.Errorf("etcd-2 lost its data: %q", got)
	}
}

func (s *smoke) oom(t *testing.T) {
	s.must(t, s.file(t, "oom.yaml"), "apply", "-f", "-")
	s.eventually(t, "OOMKilled", "get", "pod", "oom", "-o",
		"jsonpath={.status.containerStatuses[0].state.terminated.reason}")
}

// metacontroller: its hook is an image made here.
func (s *smoke) metacontroller(t *testing.T) {
	if err := installMetacontroller(s.lab, nil); err != nil {
		t.Fatal(err)
	}
	hook, tar := filepath.Join(t.TempDir(), "hook"), filepath.Join(t.TempDir(), "hook.tar")
	build := exec.Command("go", "build", "-o", hook, "./testdata/hook")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, output)
	}
	if _, err := (image{refs: []string{"localhost/lab-hook:test"}, entrypoint: []string{"/hook"},
		content: []string{hook + "=/hook"}}).write(tar); err != nil {
		t.Fatal(err)
	}
	if err := s.lab.loadOn(tar); err != nil {
		t.Fatal(err)
	}
	s.must(t, s.file(t, "hook.yaml"), "apply", "-f", "-")
	t.Cleanup(func() {
		s.try("", "delete", "compositecontroller/greeting", "crd/greetings.lab.example", "clusterrole/greeting",
			"clusterrolebinding/greeting", "--wait=false")
	})
	s.must(t, "", "rollout", "status", "deployment/hook", "--timeout=60s")
	s.must(t, "", "wait", "--for=condition=Established", "crd/greetings.lab.example", "--timeout=30s")

	greet := func(text string) {
		t.Helper()
		s.must(t, `{"apiVersion":"lab.example/v1","kind":"Greeting","metadata":{"name":"g"},"spec":{"text":"`+text+
			`"}}`, "apply", "-f", "-")
		s.eventually(t, text, "get", "configmap", "g", "-o", "jsonpath={.data.text}")
	}
	greet("first")
	greet("second")
	s.eventually(t, "1", "get", "greeting", "g", "-o", "jsonpath={.status.children}")
	s.must(t, "", "delete", "configmap", "g")
	s.eventually(t, "second", "get", "configmap", "g", "-o", "jsonpath={.data.text}")
	s.must(t, "", "delete", "greeting", "g")
	s.eventually(t, "", "get", "configmap", "g", "--ignore-not-found", "-o", "name")
}

// processOnNode: a host's process there reaches Services by their names.
func (s *smoke) processOnNode(t *testing.T) {
	n := s.lab.node(s.lab.nodes)
	var output bytes.Buffer
	cmd := n.command([]string{filepath.Join(s.lab.bin, "etcd-"+controlPlaneEtcd, "etcdctl"),
		"--endpoints=http://etcd-client." + s.namespace + ".svc.lab.internal:2379", "get", "hello"})
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := n.run(cmd); err != nil || !strings.Contains(output.String(), "world") {
		t.Errorf("etcdctl on %s: %v: %s", n, err, output.String())
	}
	if err := n.start("sleeper", "sleep", "1000"); err != nil {
		t.Fatal(err)
	}
	if err := n.start("sleeper", "sleep", "1000"); err == nil {
		t.Error("the same name was started twice")
	}
	if err := n.again("sleeper"); err != nil {
		t.Error(err)
	}
	if err := n.stop("sleeper", unix.SIGKILL); err != nil {
		t.Error(err)
	}
}

func (s *smoke) noWayOut(t *testing.T) {
	for _, n := range s.lab.allNodes() {
		if err := n.run(n.command([]string{"ip", "route", "get", "192.0.2.1"})); err == nil {
			t.Errorf("%s has a route out of the lab", n)
		}
	}
}

// apiServer is killed and comes back with all it knew.
func (s *smoke) apiServer(t *testing.T) {
	n := s.lab.node(1)
	if err := n.stop("kube-apiserver", unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.lab.broken(); err == nil {
		t.Error("a lab without an API server does not count as broken")
	}
	began := time.Now()
	if err := n.again("kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	if err := waitFor("the API server", 30*time.Second, s.lab.broken); err != nil {
		t.Fatal(err)
	}
	t.Logf("ready again after %.1f s", time.Since(began).Seconds())
}

// reaches says whether a node can ask the API server, which is on node1.
func (s *smoke) reaches(n node) error {
	cmd := n.command([]string{"kubectl", "get", "--raw", "/readyz", "--request-timeout=2s"})
	if err := n.run(cmd); err != nil {
		return fmt.Errorf("%s does not reach the API server: %w", n, err)
	}
	return nil
}

func (s *smoke) partition(t *testing.T) {
	n := s.lab.node(2)
	if err := s.reaches(n); err != nil {
		t.Fatal(err)
	}
	if err := n.partition(); err != nil {
		t.Fatal(err)
	}
	if s.reaches(n) == nil {
		t.Errorf("%s is cut off and still reaches node1", n)
	}
	if err := n.heal(); err != nil {
		t.Fatal(err)
	}
	if err := waitFor("the network", 20*time.Second, func() error { return s.reaches(n) }); err != nil {
		t.Error(err)
	}
}

// power: every node in turn loses its power, the control plane's too, and etcd
// has its data afterwards.
func (s *smoke) power(t *testing.T) {
	for _, n := range s.lab.allNodes() {
		if err := n.powerOff(); err != nil {
			t.Fatal(err)
		}
		if err := s.lab.broken(); err == nil {
			t.Errorf("a lab without %s does not count as broken", n)
		}
		began := time.Now()
		if err := n.powerOn(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s is on again after %.1f s", n, time.Since(began).Seconds())
	}
	s.eventually(t, "3", "get", "statefulset", "etcd", "-o", "jsonpath={.status.readyReplicas}")
	err := waitFor("etcd to answer", 60*time.Second, func() error {
		_, err := s.try("", "exec", "etcd-0", "--", "etcdctl", "get", "hello")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.must(t, "", "exec", "etcd-0", "--", "etcdctl", "get", "hello"); !strings.Contains(got, "world") {
		t.Errorf("etcd lost its data: %q", got)
	}
	s.grownAndKept(t)
}

// volumes go with their claims, from the disks too.
func (s *smoke) volumes(t *testing.T) {
	// Not with the namespace: its controller looks again after half a grace period.
	s.must(t, "", "delete", "statefulset/etcd", "job/snapshot", "pod/grower", "--cascade=foreground")
	s.must(t, "", "delete", "persistentvolumeclaims", "--all", "--timeout=90s")
	s.eventually(t, "", "get", "persistentvolumes", "-o", "name")
	for _, n := range s.lab.allNodes() {
		left, _ := filepath.Glob(n.disk("/opt/local-path-provisioner") + "/pvc-*")
		left = append(left, s.expandableLeft(n)...)
		if len(left) > 0 {
			t.Errorf("%s still has %s", n, left)
		}
	}
}
