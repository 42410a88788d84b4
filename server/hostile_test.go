package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/encoding"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// dial connects to the hooks, with TLS that offers these protocols. Reading ends after 10 s at the latest.
func dial(t *testing.T, f files, address string, protocols ...string) (*tls.Conn, error) {
	t.Helper()
	config := f.ca.caller(nil).Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = protocols
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return conn, nil
}

// TestStrangers: who does not know the secret gets an error before its body is read, and etcd is not asked anything.
func TestStrangers(t *testing.T) {
	f := newFiles(t)
	address, pages, etcd, log := secured(t, f.CallerFiles, Options{})
	client := f.ca.caller(nil)
	for name, header := range map[string]string{
		"no token": "", "wrong token": "Bearer " + wrongToken,
		"part of the token":   "Bearer " + rightToken[:len(rightToken)-1],
		"more than the token": "Bearer " + rightToken + "x", "no value": "Bearer", "empty": "Bearer ",
		"another scheme": "Token " + rightToken,
		"no scheme":      rightToken, "wrong password": basic("quorate", wrongToken),
		"token as the user": basic(rightToken, ""),
		"broken Basic":      "Basic %%%", "in capitals": "Bearer " + strings.ToUpper(rightToken),
	} {
		for _, hook := range []string{"/sync", "/finalize", "/customize"} {
			code, text, err := send(t, client, "https://"+address+hook, header, steady(t))
			require.NoError(t, err, name)
			require.Equal(t, 401, code, "%s: %s", name, text)
			require.Contains(t, text, "token", name)
			require.NotContains(t, text, wrongToken)
			require.NotContains(t, text, rightToken)
		}
	}

	for _, both := range [][]string{{"Bearer " + wrongToken, "Bearer " + rightToken},
		{"Bearer " + rightToken, "Bearer " + wrongToken}} {
		twice, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/sync",
			bytes.NewReader(steady(t)))
		require.NoError(t, err)
		twice.Header["Authorization"] = both
		answer, err := client.Do(twice)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, 401, answer.StatusCode, "two headers")
	}

	require.Zero(t, etcd.observed.Load())
	require.Zero(t, etcd.done.Load())
	require.Equal(t, 1, strings.Count(log.String(), `"refused"`), "unauthenticated callers don't fill the log: %s", log)
	answer, err := http.Get(pages + "/metrics")
	require.NoError(t, err)
	defer answer.Body.Close()
	metrics, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(metrics), `quorate_hook_duration_seconds_count{code="401",hook="sync"} 14`)
	for _, token := range []string{rightToken, wrongToken} {
		require.NotContains(t, string(metrics), token)
		require.NotContains(t, log.String(), token)
	}
}

// TestBodyIsNotReadFirst: an unauthenticated caller who announces a body is answered and left before it sends any of
// it.
func TestBodyIsNotReadFirst(t *testing.T) {
	f := newFiles(t)
	address, _, etcd, _ := secured(t, f.CallerFiles, Options{})
	for _, headers := range []string{"Content-Length: 1000", "Content-Length: 1000000", "Content-Length: " +
		"1000\r\nExpect: 100-continue", "Transfer-Encoding: chunked"} {
		conn, err := dial(t, f, address)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(5*time.Second))) // half of what a body may take
		fmt.Fprintf(conn, "POST /sync HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", headers)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, headers)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, 401, answer.StatusCode, headers)
		require.True(t, answer.Close, headers)
	}
	require.Zero(t, etcd.observed.Load())
}

// TestWrongConnections: what is not HTTP/1.1 over TLS by the right rules ends in an error or a closed connection.
func TestWrongConnections(t *testing.T) {
	f := newFiles(t)
	address, _, etcd, _ := secured(t, f.CallerFiles, Options{})

	code, text, err := send(t, http.DefaultClient, "http://"+address+"/sync", "Bearer "+rightToken, steady(t))
	if err == nil { // else the server has closed before it read everything
		require.Equal(t, 400, code, "plain HTTP on the TLS port")
		require.NotContains(t, text, rightToken)
	}

	other := newFiles(t)
	_, _, err = send(t, other.ca.caller(nil), "https://"+address+"/sync", "Bearer "+rightToken, steady(t))
	require.ErrorContains(t, err, "certificate", "a caller that trusts another CA does not send its token")

	_, err = dial(t, f, address, "h2")
	require.ErrorContains(t, err, "no application protocol", "HTTP/2 alone")
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	_, err = tls.Dial("tcp", address, config)
	require.ErrorContains(t, err, "protocol version", "TLS 1.1")

	for name, c := range map[string]struct {
		words string
		code  int
	}{
		"HTTP/2 without asking": {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 404},
		"no HTTP":               {"hello\r\n\r\n", 400},
		"two lengths":           {"POST /sync HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", 400},
		"gzip, then chunks":     {"POST /sync HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{}", 501},
		"a header of 32 KiB":    {"POST /sync HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 32<<10) + "\r\n\r\n", 431},
	} {
		conn, err := dial(t, f, address)
		require.NoError(t, err, name)
		go func() { _, _ = io.WriteString(conn, c.words) }()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err, name)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, c.code, answer.StatusCode, name)
	}
	require.Zero(t, etcd.observed.Load())
	require.Zero(t, etcd.done.Load())
}

// TestSlowLoris: who takes its time, before or after it is known, is cut off, and others are served meanwhile.
func TestSlowLoris(t *testing.T) {
	t.Parallel()
	f := newFiles(t)
	// Longer than the good call takes on a busy machine.
	address, _, etcd, _ := secured(t, f.CallerFiles, Options{ReadTimeout: 5 * time.Second})

	silent, err := net.Dial("tcp", address) // no TLS handshake
	require.NoError(t, err)
	defer silent.Close()
	headers, err := dial(t, f, address)
	require.NoError(t, err)
	fmt.Fprint(headers, "POST /sync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+rightToken+"\r\nX-A: 1\r\n")
	body, err := dial(t, f, address)
	require.NoError(t, err)
	fmt.Fprint(body, "POST /sync HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+rightToken+"\r\nContent-Length: "+
		"1000\r\n\r\n{\"parent\":")
	code, text, err := send(t, f.ca.caller(nil), "https://"+address+"/sync", "Bearer "+rightToken, steady(t))
	require.NoError(t, err)
	require.Equal(t, 200, code, text)

	require.NoError(t, silent.SetDeadline(time.Now().Add(time.Minute)))
	for name, conn := range map[string]net.Conn{"silent": silent, "headers": headers, "body": body} {
		said, err := io.ReadAll(conn) // until the server closes
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded, name)
		if name == "body" {
			require.Contains(t, string(said), "HTTP/1.1 408")
			require.Contains(t, string(said), "did not arrive in time")
		}
	}
	require.EqualValues(t, 1, etcd.observed.Load(), "the good call's")
	require.Zero(t, etcd.done.Load())
}

// TestKnownButWrong: the token does not make a bad request good. What else is refused is in TestRefusedRequests.
func TestKnownButWrong(t *testing.T) {
	f := newFiles(t)
	address, _, etcd, _ := secured(t, f.CallerFiles, Options{MaxBody: 1 << 20})
	client := f.ca.caller(nil)
	large := append(bytes.Repeat([]byte(" "), 1<<20), steady(t)...)
	for name, c := range map[string]struct {
		path string
		body []byte
		code int
	}{
		"too large":        {"/sync", large, 413},
		"no JSON":          {"/sync", []byte(`{"parent":`), 400},
		"nothing":          {"/sync", nil, 400},
		"sync to finalize": {"/finalize", steady(t), 400},
		"no such page":     {"/sync/../metrics", steady(t), 404},
		"another's page":   {"/metrics", nil, 404},
		"binary":           {"/sync", []byte("\x00\xff\xfe"), 400},
		"deep":             {"/sync", bytes.Repeat([]byte("["), 100_000), 400},
	} {
		code, text, err := send(t, client, "https://"+address+c.path, "Bearer "+rightToken, c.body)
		require.NoError(t, err, name)
		require.Equal(t, c.code, code, "%s: %s", name, text)
	}
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete, http.MethodPatch,
		http.MethodOptions, "PURGE"} {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+"/sync",
			bytes.NewReader(steady(t)))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+rightToken)
		answer, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, 405, answer.StatusCode, method)
	}
	require.Zero(t, etcd.observed.Load(), "what can't be understood is not looked into")
	require.Zero(t, etcd.done.Load())
}

// growing is an etcd that carries out the addition of learners, and counts every step.
type growing struct {
	healthy
	mu    sync.Mutex
	added []observation.Member
	verbs []string
}

func (g *growing) Observe(ctx context.Context, e []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, health := g.healthy.Observe(ctx, e)
	m.Members = append(m.Members, g.added...)
	return m, health
}

func (g *growing) Do(_ context.Context, step decision.Step, _ *observation.Membership, _ []observation.Endpoint) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.verbs = append(g.verbs, step.Verb())
	if add, ok := step.(decision.AddLearner); ok {
		g.added = append(g.added, observation.Member{ID: uint64(len(g.verbs)), PeerURLs: []string{add.PeerURL},
			Learner: true})
	}
	return nil
}

func (g *growing) steps() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.verbs)
}

// TestReplay: a recorded call that comes again. Without the token it is refused. With it, it is a call with an old
// cache: etcd is asked again, and against what etcd says now the old children can't add, promote or remove a member
// (S14, S15). The decisions are the shipped ones, and every rule of safety is checked.
func TestReplay(t *testing.T) {
	f, etcd := newFiles(t), &growing{}
	s, _ := testServer(Options{Verify: true, Etcd: etcd})
	var err error
	s.options.Callers, err = NewCallers(f.CallerFiles, slog.Default())
	require.NoError(t, err)
	address, _, _ := listen(t, s)
	client, url := f.ca.caller(nil), strings.Replace(address, "http:", "https:", 1)+"/sync"
	recorded := edited(t, func(r map[string]any) { at(r, "parent", "spec")["replicas"] = 5 })

	code, text, err := send(t, client, url, "Bearer "+rightToken, recorded)
	require.NoError(t, err)
	require.Equal(t, 200, code, text)
	require.Equal(t, []string{"add-learner"}, etcd.steps(), "when it was true, it added a member")

	for range 5 { // while that member is in etcd, and not among the recorded children
		code, text, err = send(t, client, url, "", recorded)
		require.NoError(t, err)
		require.Equal(t, 401, code, text)
		code, text, err = send(t, client, url, "Bearer "+rightToken, recorded)
		require.NoError(t, err)
		require.Equal(t, 200, code, text)
		for _, member := range []string{"orders-0", "orders-1", "orders-2"} {
			require.Contains(t, text, `"hostname":"`+member+`"`, "a member's pod is not in the answer")
		}
	}
	require.Equal(t, []string{"add-learner"}, etcd.steps(), "nothing was done twice, and only one member joins at a "+
		"time (S3)")
}

// TestNothingIsUnpacked: what the server links can unpack nothing that an etcd sends, so that four megabytes of an
// answer are four on the wire. What sends traces links gzip, and etcdops puts in its place what refuses.
func TestNothingIsUnpacked(t *testing.T) {
	for _, name := range []string{"snappy", "zstd", "deflate"} {
		require.Nil(t, encoding.GetCompressor(name), name)
	}
	gzip := encoding.GetCompressor("gzip")
	var packed bytes.Buffer
	w, err := gzip.Compress(&packed)
	require.NoError(t, err)
	_, err = w.Write([]byte("some text"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	_, err = gzip.Decompress(&packed)
	require.Error(t, err)
}

// TestQuantitiesOfLongExponents: twelve calls that hold one are refused at once, wherever it stands.
func TestQuantitiesOfLongExponents(t *testing.T) {
	t.Parallel()
	const long = "1e-2000000000"
	limits := map[string]any{"limits": map[string]any{"cpu": long}}
	s, _ := testServer(Options{})
	began := time.Now()
	var all sync.WaitGroup
	for field, change := range map[string]edit{
		"parent.spec.resources.limits.cpu": func(r map[string]any) { at(r, "parent", "spec")["resources"] = limits },
		"parent.spec.storage.size": func(r map[string]any) {
			at(r, "parent", "spec")["storage"] = map[string]any{"size": long}
		},
		`children["PersistentVolumeClaim.v1"]["orders-0"].spec.resources.requests.storage`: func(r map[string]any) {
			at(r, "children", groupClaims, "orders-0", "spec")["resources"] =
				map[string]any{"requests": map[string]any{"storage": long}}
		},
		`children["Pod.v1"]["orders-0"].spec.containers.0.resources.limits.cpu`: func(r map[string]any) {
			containers := at(r, "children", groupPods, "orders-0", "spec")["containers"].([]any)
			containers[0].(map[string]any)["resources"] = limits
		},
	} {
		for range 3 {
			body := edited(t, change)
			all.Go(func() {
				w := post(s.Handler(), "/sync", body)
				if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "two digits behind its e") {
					t.Errorf("%s: %d %s", field, w.Code, w.Body)
				}
			})
		}
	}
	all.Wait()
	require.Less(t, time.Since(began), 8*time.Second, "each computed for minutes")
}

// TestObjectsAreReadInOneWay: by objects.Read or with objects.Quantities, which refuse such quantities.
func TestObjectsAreReadInOneWay(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{".", "wire", "kubectl", "kubectl/check"} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for line := range strings.Lines(string(text)) {
				_, call, reads := strings.Cut(line, "json.Unmarshal(")
				if reads && !strings.Contains(call, "asObjects") && !readsOtherwise[file] &&
					!strings.HasSuffix(file, "_test.go") {
					t.Errorf("%s reads in another way: %s", file, line)
				}
			}
		}
	}
}

// readsOtherwise are files that read JSON without a quantity in its type.
var readsOtherwise = map[string]bool{
	"kubectl/redact.go":        true, // any JSON
	"kubectl/check/shipped.go": true, // what is in the binary
}
