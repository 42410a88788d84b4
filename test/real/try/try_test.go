package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// program is the built one.
var program string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "try-test-")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "try")
	out, err := exec.Command("go", "build", "-tags", "disable_grpc_modules,grpcnotrace,nomsgpack", "-o", program,
		".").CombinedOutput()
	code := 1
	if err != nil {
		fmt.Println(string(out))
	} else {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// within which everything appears, on a busy machine too.
const within = 2 * time.Minute

// command runs the program at the top of the repository, with a folder of its own for what it writes, and without
// other releases of etcd.
func command(t *testing.T, args ...string) (cmd *exec.Cmd, temporary string) {
	t.Helper()
	temporary = t.TempDir()
	cmd = exec.Command(program, args...)
	cmd.Dir = "../../.."
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "QUORATE_LAB="+t.TempDir())
	return cmd, temporary
}

// leavesNothing waits until no file of the program is left, and no process of it.
func leavesNothing(t *testing.T, temporary string) {
	t.Helper()
	require.Eventually(t, func() bool {
		left, err := os.ReadDir(temporary)
		out, _ := exec.Command("ps", "-A", "-o", "args").Output()
		return err == nil && len(left) == 0 && !bytes.Contains(out, []byte(temporary))
	}, within, 50*time.Millisecond, "processes or files are left")
}

// TestTour plays what `make try` plays without a terminal.
func TestTour(t *testing.T) {
	t.Parallel()
	cmd, temporary := command(t)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	said := string(out)
	for _, words := range []string{
		"the first value is read back (greeting: hello)", "[move leader to", "Kill demo-1", "with 5 voters",
		"[add learner demo-5]", "make etcd-binaries",
	} {
		require.Contains(t, said, words)
	}
	lost := regexp.MustCompile(`Lose (demo-\d)'s disk`).FindStringSubmatch(said)
	require.Len(t, lost, 2, said)
	require.Contains(t, said[strings.LastIndex(said, "Lose "):], "[remove "+lost[1]+"]")
	counted := regexp.MustCompile(`(\d+) writes were acknowledged meanwhile, (\d+) of them are there`).FindStringSubmatch(said)
	require.Len(t, counted, 3, said)
	require.Equal(t, counted[1], counted[2])
	require.NotEqual(t, "0", counted[1])
	leavesNothing(t, temporary)
}

// screen is a terminal with the program in it.
type screen struct {
	t    *testing.T
	keys *os.File
	cmd  *exec.Cmd
	lock sync.Mutex
	text bytes.Buffer
	read int
}

func open(t *testing.T, args ...string) (s *screen, temporary string) {
	t.Helper()
	s = &screen{t: t}
	s.cmd, temporary = command(t, args...)
	var err error
	s.keys, err = pty.StartWithSize(s.cmd, &pty.Winsize{Rows: 40, Cols: 400})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.keys.Close(); _ = s.cmd.Process.Kill() })
	go func() { _, _ = io.Copy(s, s.keys) }()
	return s, temporary
}

// Write takes what the program prints.
func (s *screen) Write(p []byte) (int, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.text.Write(p)
}

// until waits for a text that was not waited for before, and returns all up to its end.
func (s *screen) until(pattern string) string {
	s.t.Helper()
	expression, found := regexp.MustCompile(pattern), ""
	require.Eventually(s.t, func() bool {
		s.lock.Lock()
		defer s.lock.Unlock()
		fresh := s.text.Bytes()[s.read:]
		at := expression.FindIndex(fresh)
		if at == nil {
			return false
		}
		found = string(fresh[:at[1]])
		s.read += at[1]
		return true
	}, within, 20*time.Millisecond, "%q did not appear; what did:\n%s", pattern, &s.text)
	return found
}

func (s *screen) types(line string) {
	s.t.Helper()
	_, err := io.WriteString(s.keys, line+"\r")
	require.NoError(s.t, err)
	s.until(regexp.QuoteMeta(line))
}

// ends waits until the program has ended well.
func (s *screen) ends() {
	s.t.Helper()
	require.NoError(s.t, s.cmd.Wait())
}

// TestPrompt plays a story by hand, and what is outside of the program meanwhile.
func TestPrompt(t *testing.T) {
	t.Parallel()
	s, temporary := open(t, "--no-tour", "--ui")
	seesPage(t, regexp.MustCompile(`http://127\S+`).FindString(s.until(`\?token=\w{26}`)))
	s.until("try> ")
	s.types("apply")
	s.until(`Start +starting demo-0, demo-1, demo-2`)
	s.until(`Converged +serving as the spec says, with 3 voters`)
	s.types("etcdctl put greeting hello")
	s.until("OK")
	s.types("etcdctl")
	line := s.until(`get greeting`)
	require.Equal(t, "hello", getBy(t, line), "by the line that is printed for another terminal")

	s.types("kill demo-1")
	s.until(`Converged`)
	s.types("scale 5")
	s.until(`Converged +serving as the spec says, with 5 voters`)
	s.types("status")
	s.until(`5/5 ready`)
	s.until(`Converged: serving as the spec says, with 5 voters`)
	s.types("kubectl scale etcdcluster demo --replicas=3")
	s.until(`Shrink`)
	s.types("explain")
	require.Regexp(t, `The decision breaks none of the rules of safety`, s.until(`none of the rules of safety`))
	s.types("history")
	s.until(`etcd: add learner demo-3`)
	s.types("fly")
	s.until("there is no command")
	s.types("delete demo-0")
	s.until(`Converged +serving as the spec says, with 3 voters`)
	s.types("get")
	s.until(`CLAIM +STATUS`)
	s.types("quit")
	s.ends()
	leavesNothing(t, temporary)
}

// seesPage opens the page that shows this Kubernetes.
func seesPage(t *testing.T, url string) {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	answer, err := (&http.Client{Jar: jar, Timeout: within}).Get(url)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// getBy is the value of greeting, as a client gets it that is told no more than this line.
func getBy(t *testing.T, line string) string {
	t.Helper()
	flag := func(name string) string {
		found := regexp.MustCompile(`--` + name + `=(\S+)`).FindStringSubmatch(line)
		require.Len(t, found, 2, line)
		return found[1]
	}
	pair, err := tls.LoadX509KeyPair(flag("cert"), flag("key"))
	require.NoError(t, err)
	authority, err := os.ReadFile(flag("cacert"))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(authority))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{flag("endpoints")}, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool, MinVersion: tls.VersionTLS12}})
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	got, err := client.Get(ctx, "greeting")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	return string(got.Kvs[0].Value)
}

// TestFresh: what is decided twice in one second is told twice. A member that is killed can serve again that soon.
func TestFresh(t *testing.T) {
	t.Parallel()
	entry := func(second int64, rule string) v1beta1.HistoryEntry {
		return v1beta1.HistoryEntry{Time: metav1.Unix(second, 0), Rule: rule}
	}
	start, converged, heal := entry(1, "Start"), entry(1, "Converged"), entry(1, "WaitForMembers")
	history := []v1beta1.HistoryEntry{start, converged}
	require.Equal(t, history, fresh(nil, history))
	require.Empty(t, fresh(history, history))
	twice := []v1beta1.HistoryEntry{start, converged, heal, converged}
	require.Equal(t, []v1beta1.HistoryEntry{heal, converged}, fresh(history, twice))
	require.Equal(t, []v1beta1.HistoryEntry{entry(2, "Converged")},
		fresh(twice, append(twice[2:], entry(2, "Converged"))), "the oldest are forgotten")
}

// TestPlainText: etcds that speak no TLS find each other too, and data may be in memory. The program is killed then,
// and leaves nothing.
func TestPlainText(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "plain.yaml")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(`apiVersion: etcd.quorate.dev/v1beta1
kind: EtcdCluster
metadata:
  name: plain
spec:
  version: 3.7.3
  tls: {mode: Disabled}
  storage: {medium: Memory, size: 512Mi}
`, "\t", "")), 0o600))
	s, temporary := open(t, "--no-tour")
	s.until("try> ")
	s.types("apply -f " + file)
	s.until(`Converged +serving as the spec says, with 3 voters`)
	s.types("lose plain-1")
	s.until(`add learner plain-3`)
	s.until(`Converged +serving as the spec says, with 3 voters`)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGKILL))
	_ = s.cmd.Wait() // it was killed
	leavesNothing(t, temporary)
}

// TestInterrupted: Ctrl-C in the middle of the tour ends all of it.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s, temporary := open(t)
	s.until("Start +starting")
	_, err := s.keys.Write([]byte{3})
	require.NoError(t, err)
	require.Error(t, s.cmd.Wait())
	require.Equal(t, 130, s.cmd.ProcessState.ExitCode())
	leavesNothing(t, temporary)
}
