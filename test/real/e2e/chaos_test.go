//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/real/chaos"
)

var (
	chaosSeed = flag.Uint64("chaos.seed", 0, "seed of TestChaos; 0 draws one")
	chaosFor  = flag.Duration("chaos.for", 2*time.Minute, "how long TestChaos disturbs, at least")
	chaosThat = flag.String("chaos.quorate", "../../../bin/quorate", "the binary that TestChaos disturbs")
)

// TestChaos lives a cluster's life, again and again, while calls get lost, late, doubled and blind between
// Metacontroller and Quorate and between Quorate and etcd. Quorate is the real binary, two processes of it, with
// every decision checked against the rules of safety. At the end of each life the faults stop, and the cluster must
// be what it would be had there been none.
//
// The seed decides which call meets which fault and what the human does; how calls interleave is up to the machine.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64() % 1_000_000
	}
	t.Logf("seed %d: make chaos FOR=%s SEED=%d", seed, *chaosFor, seed)
	l := newStorm(t, seed)
	t.Cleanup(func() { t.Logf("seed %d\n\n%s", seed, l.schedule.Table()) })
	for deadline, round := time.Now().Add(*chaosFor), 0; time.Now().Before(deadline); round++ {
		l.life(round, deadline)
	}
	require.Positive(t, l.schedule.Counted("calls of etcd, undisturbed"), "Quorate was not called through the proxies")
}

// storm is what stands between Metacontroller, Quorate and etcd.
type storm struct {
	t        *testing.T
	seed     uint64
	schedule *chaos.Schedule
	hooks    *chaos.Hooks
	etcd     *chaos.Etcd
	replicas []*chaos.Replica
	space    atomic.Pointer[string] // the namespace that is disturbed

	mu     sync.Mutex
	broken []error
	peers  map[string]uint64 // member IDs by peer URL

	reference map[string]string // end states without faults, by spec
}

func newStorm(t *testing.T, seed uint64) *storm {
	t.Helper()
	s := &storm{t: t, seed: seed, schedule: &chaos.Schedule{Seed: seed}, peers: map[string]uint64{},
		reference: map[string]string{}}
	s.space.Store(new(""))
	island, err := newIsland(12)
	require.NoError(t, err)

	s.etcd = &chaos.Etcd{Schedule: s.schedule, Dial: lab.dialContext, TLS: certificates, Saw: s.saw}
	members, err := island.listen(":2379")
	require.NoError(t, err)
	server := s.etcd.Server()
	go func() { _ = server.Serve(members) }()
	t.Cleanup(server.Stop)

	s.replicas = newReplicas(t, 2, island, s.schedule, s.breaks)
	s.hooks = &chaos.Hooks{Schedule: s.schedule, Replicas: s.replicas, Broken: s.breaks,
		Disturbs: func(ns string) bool { return ns == *s.space.Load() }}
	l, err := lab.listen(":0")
	require.NoError(t, err)
	front := &http.Server{Handler: s.hooks, ReadHeaderTimeout: time.Minute}
	go func() { _ = front.Serve(l) }()
	t.Cleanup(func() { _ = front.Close() })
	s.between(l.Addr().(*net.TCPAddr).Port)
	return s
}

// between puts the proxy between Metacontroller and Quorate, until the test ends.
func (s *storm) between(port int) {
	s.t.Helper()
	var node corev1.Node
	require.True(s.t, read(s.t, "/api/v1/nodes/node1", &node))
	address := node.Status.Addresses[0].Address
	const controller = "quorate-etcdcluster"
	var original struct {
		Spec struct{ Hooks json.RawMessage }
	}
	require.NoError(s.t, json.Unmarshal([]byte(kube(s.t, "get", "compositecontroller", controller, "-o", "json")),
		&original))
	var hooks []string
	for _, hook := range []string{"sync", "finalize", "customize"} {
		hooks = append(hooks, fmt.Sprintf(`"%s":{"webhook":{"url":"http://%s:%d/%s","timeout":"%s"}}`, hook, address,
			port, hook, hookTimeout))
	}
	patch := func(hooks string) {
		if _, err := kubectl("", "patch", "compositecontroller", controller, "--type=merge", "-p", `{"spec":{"hooks":`+hooks+`}}`); err != nil {
			s.t.Error(err)
		}
	}
	s.t.Cleanup(func() { patch(string(original.Spec.Hooks)) })
	patch("{" + strings.Join(hooks, ",") + "}")
}

// certificates are what a member shows and what Quorate shows to it, by the member's name:
// demo-0.demo-peers.NAMESPACE.svc.
func certificates(member string) (server, operator chaos.Keys, err error) {
	labels := strings.Split(member, ".")
	if len(labels) != 4 || labels[1] != name+"-peers" {
		return nil, nil, fmt.Errorf("%q is the name of no member", member)
	}
	if server, err = secretData(labels[2], name+"-server-tls"); err != nil {
		return nil, nil, err
	}
	operator, err = secretData(labels[2], name+"-operator-tls")
	return server, operator, err
}

// breaks notes what must never happen. The next look of the human ends the test.
func (s *storm) breaks(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = append(s.broken, err)
}

// intact ends the test when anything has broken.
func (s *storm) intact() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.broken {
		s.t.Error(err)
	}
	if len(s.broken) > 0 {
		s.t.FailNow()
	}
}

// saw judges what goes over the wire to etcd, whatever Quorate thinks of it.
func (s *storm) saw(method string, request, answer []byte) {
	switch method {
	case "Status", "MemberPromote", "MemberRemove", "MoveLeader", "Downgrade":
	case "Alarm":
		var alarm pb.AlarmRequest
		if err := proto.Unmarshal(request, &alarm); err != nil {
			s.breaks(err)
		} else if alarm.Action != pb.AlarmRequest_GET {
			s.breaks(fmt.Errorf("quorate changes an alarm: %s", alarm.Action))
		}
	case "MemberAdd":
		var add pb.MemberAddRequest
		if err := proto.Unmarshal(request, &add); err != nil {
			s.breaks(err)
		} else if !add.IsLearner {
			s.breaks(fmt.Errorf("S4: %s is added as a voter", add.PeerURLs))
		}
	case "MemberList":
		var list pb.MemberListResponse
		if err := proto.Unmarshal(answer, &list); err != nil {
			s.breaks(err)
		}
		s.sawMembers(list.Members)
	default:
		s.breaks(fmt.Errorf("quorate called %s of etcd, which no rule asks for", method))
	}
}

func (s *storm) sawMembers(members []*pb.Member) {
	learners := 0
	for _, m := range members {
		if m.IsLearner {
			learners++
		}
		url := m.PeerURLs[0]
		s.mu.Lock()
		before, seen := s.peers[url]
		s.peers[url] = m.ID
		s.mu.Unlock()
		if seen && before != m.ID {
			s.breaks(fmt.Errorf("S9: the peer URL %s is that of member %x and was that of %x", url, m.ID, before))
		}
	}
	if learners > 1 {
		s.breaks(fmt.Errorf("S3: %d learners", learners))
	}
}

// calm ends the faults and waits for what is under way.
func (s *storm) calm() {
	s.schedule.Stop()
	s.etcd.Wait()
	s.hooks.Wait()
}

// wrongMembers asks each pod whether it serves as a voter, and one of them for etcd's member list. It returns what is
// wrong if the pods should be n voters and no learner should be left; empty when nothing is.
func (s *storm) wrongMembers(pods []corev1.Pod, n int) string {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	var voters []string
	for i, pod := range pods {
		list, err := s.askMember(ctx, &pod, i == 0)
		if err != nil {
			return fmt.Sprintf("%s: %v", pod.Name, err)
		}
		for _, m := range list {
			if m.IsLearner {
				return m.Name + " is a learner"
			}
			voters = append(voters, m.Name)
		}
	}
	return while(len(voters) != n || !sameNames(voters, podNames(pods)),
		fmt.Sprintf("the voters are %s, the pods %s", voters, podNames(pods)))
}

// askMember asks a member whether it serves as a voter, and for the member list if wanted.
func (s *storm) askMember(ctx context.Context, pod *corev1.Pod, list bool) ([]*pb.Member, error) {
	conn, err := grpc.NewClient("passthrough:///"+objects.HostPort(pod.Status.PodIP, objects.ClientPort),
		application(pod.Namespace), grpc.WithContextDialer(lab.dialContext))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	status, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
	switch {
	case err != nil:
		return nil, err
	case status.Leader == 0:
		return nil, errors.New("it knows no leader")
	case status.IsLearner:
		return nil, errors.New("it is a learner")
	case !list:
		return nil, nil
	}
	answer, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{Linearizable: true})
	if err != nil {
		return nil, err
	}
	s.sawMembers(answer.Members)
	return answer.Members, nil
}

// replica is one process of bin/quorate, the binary that the lab's image holds, with every decision checked against
// the rules of safety. It sees the island alone.
type replica struct {
	binary   string
	at       string // its hooks
	pages    string // its metrics and health
	island   *network
	image    string
	schedule *chaos.Schedule
	broken   func(error)

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
	tail []string // of its log
}

// hookTimeout is the webhooks' timeout in the test, shorter than in our manifests (10 s) so that more of it happens;
// callTimeout is Quorate's own, below it as documented.
const (
	hookTimeout = 5 * time.Second
	callTimeout = 4 * time.Second
)

func (r *replica) start() error {
	cmd := exec.Command(r.binary, "serve", "--listen="+r.at, "--metrics-listen="+r.pages,
		"--call-timeout="+callTimeout.String(), "--drain-delay=-1s")
	cmd.Env = append(os.Environ(), "QUORATE_VERIFY=1", "QUORATE_IMAGE="+r.image)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // the thread lives as long as we do
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := r.island.do(cmd.Start); err != nil {
		return err
	}
	r.cmd, r.done = cmd, make(chan struct{})
	go func() {
		defer close(r.done)
		r.read(stderr)
		_ = cmd.Wait()
	}()
	return nil
}

// read reads the log: an error in it is a bug, and a step is counted with what came of it.
func (r *replica) read(log io.Reader) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r.mu.Lock()
		if r.tail = append(r.tail, lines.Text()); len(r.tail) > 500 {
			r.tail = r.tail[1:]
		}
		r.mu.Unlock()
		var line struct{ Level, Step, Outcome string }
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Level == "ERROR" ||
			strings.Contains(lines.Text(), "rule of safety") {
			r.broken(fmt.Errorf("quorate's log: %s", lines.Text()))
		}
		if verb, _, _ := strings.Cut(line.Step, " "); verb != "" {
			r.schedule.Count("steps: "+verb, strings.TrimPrefix(line.Outcome, line.Step+": "))
		}
	}
}

// Kill ends the process in an instant and starts another.
func (r *replica) kill() {
	r.mu.Lock()
	cmd, done := r.cmd, r.done
	r.mu.Unlock()
	_ = cmd.Process.Kill()
	<-done
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd != cmd {
		return // another goroutine was quicker
	}
	if err := r.start(); err != nil {
		r.broken(err)
	}
}

// stop ends the process for good, as Kubernetes does, and says whether that went well.
func (r *replica) stop(t *testing.T) {
	r.mu.Lock()
	cmd, done := r.cmd, r.done
	r.mu.Unlock()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-done
	if t.Failed() {
		t.Logf("--- the last of %s\n%s", r.at, strings.Join(r.tail, "\n"))
	}
}

// newReplicas starts Quorate some times.
func newReplicas(t *testing.T, n int, island *network, schedule *chaos.Schedule, broken func(error)) []*chaos.Replica {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "quorate") // a copy: a build meanwhile does not change it
	content, err := os.ReadFile(*chaosThat)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, content, 0o755))
	image := kube(t, "-n", "quorate-system", "get", "deployment", "quorate", "-o",
		"jsonpath={.spec.template.spec.containers[0].image}")
	client := island.httpClient()
	var all []*chaos.Replica
	for i := range n {
		r := &replica{binary: binary, at: fmt.Sprintf("127.0.0.1:%d", 8081+i),
			pages: fmt.Sprintf("127.0.0.1:%d", 8181+i), island: island, image: image, schedule: schedule,
			broken: broken}
		require.NoError(t, r.start())
		t.Cleanup(func() { r.stop(t) })
		all = append(all, &chaos.Replica{URL: "http://" + r.at, Client: client, Kill: r.kill})
	}
	for _, r := range all {
		eventually(t, r.URL+" listens", func() string {
			_, _, err := page(client, r.URL+"/") // any answer will do
			return failure(err)
		})
	}
	return all
}
