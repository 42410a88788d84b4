//go:build linux

// Command tenants measures what one tenant costs all others: `quorate serve` in a control group with the memory limit
// of the Deployment, the calls of a hostile tenant, and meanwhile those of another. It needs root, for the control
// group.
//
//	go run ./test/real/bench/tenants -quorate bin/quorate
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type options struct {
	quorate, limit, goLimit, core string
	during                        time.Duration
	workers                       int
}

func main() {
	var o options
	flag.StringVar(&o.quorate, "quorate", "bin/quorate", "the `binary` to measure")
	flag.StringVar(&o.limit, "limit", "128", "`MiB` of memory of the control group, as the Deployment has it")
	flag.StringVar(&o.goLimit, "memory", "115MiB", "GOMEMLIMIT, as the Deployment sets it")
	flag.StringVar(&o.core, "core", "0", "the `core` that the server has; what calls it has the others")
	flag.DurationVar(&o.during, "for", 20*time.Second, "how long each tenant is hostile")
	flag.IntVar(&o.workers, "workers", 20, "workers of Metacontroller")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

func (o options) run() error {
	raw, err := os.ReadFile("server/testdata/sync.json")
	if err != nil {
		return err
	}
	// No process listens there: members refuse at once, and a call costs what reading and deciding cost.
	raw = bytes.ReplaceAll(raw, []byte(`"10.244.0.`), []byte(`"127.0.0.`))
	var request map[string]any
	if err := json.Unmarshal(raw, &request); err != nil {
		return err
	}
	fmt.Println("| the hostile tenant | its calls answered, by code | Quorate | memory at most, of " + o.limit +
		" MiB | the other tenant's calls, p50, p99, and failed |")
	fmt.Println("| --- | --- | --- | --- | --- |")
	for _, tenant := range tenants(request) {
		if err := o.measure(tenant, mustJSON(request)); err != nil {
			return err
		}
	}
	return nil
}

// A tenant is what one does to all others: the body of its nth call; nil for none.
type tenant struct {
	name string
	body func(n int) []byte
}

func tenants(request map[string]any) []tenant {
	eleven := hostile(request, 11, func(name string) map[string]any { return secret(name, keys(60_000, "")) })
	var twenty [][]byte
	for i := range 20 {
		twenty = append(twenty, hostile(request, 11,
			func(name string) map[string]any { return secret(name, keys(55_000, strconv.Itoa(i))) }))
	}
	rules := hostile(request, 0, nil)
	policy := map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"name": "p", "namespace": "hostile", "uid": "p"},
		"spec":     map[string]any{"ingress": json.RawMessage("[" + strings.Repeat("{},", 2_500_000) + "{}]")},
	}
	var r map[string]any
	_ = json.Unmarshal(rules, &r)
	at(r, "children", "NetworkPolicy.networking.k8s.io/v1")["p"] = policy
	rules = mustJSON(r)
	return []tenant{
		{"none", nil},
		{"eleven Secrets with 60,000 empty keys", func(int) []byte { return eleven }},
		{"such Secrets, other ones with each of 20 calls", func(n int) []byte { return twenty[n%len(twenty)] }},
		{"a NetworkPolicy with 2,500,000 empty rules", func(int) []byte { return rules }},
	}
}

// hostile is the request about a cluster in the namespace hostile, with so many Secrets of others.
func hostile(request map[string]any, n int, made func(name string) map[string]any) []byte {
	var r map[string]any
	_ = json.Unmarshal(bytes.ReplaceAll(mustJSON(request), []byte(`"shop"`), []byte(`"hostile"`)), &r)
	secrets := map[string]any{}
	for i := range n {
		name := fmt.Sprintf("secret-%d", i)
		secrets[name] = made(name)
	}
	r["related"] = map[string]any{"Secret.v1": secrets}
	// One of them is asked for, and so read.
	at(r, "parent", "spec")["auth"] = map[string]any{"rootPasswordSecretRef": map[string]any{"name": "secret-0"}}
	return mustJSON(r)
}

func secret(name string, data json.RawMessage) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"name": name, "namespace": "hostile", "uid": name}, "data": data}
}

func keys(n int, mark string) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"password":"c2VjcmV0"`)
	for i := range n {
		fmt.Fprintf(&b, `,"%s%05d":""`, mark, i)
	}
	b.WriteString("}")
	return b.Bytes()
}

func at(o any, path ...string) map[string]any {
	for _, key := range path {
		o = o.(map[string]any)[key] //nolint:forcetypeassert // of a request that we have made
	}
	return o.(map[string]any) //nolint:forcetypeassert // the same
}

func mustJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was read from JSON
	}
	return raw
}

// measure is one server from its start to its end.
func (o options) measure(t tenant, quiet []byte) error {
	g, err := newGroup(o.limit)
	if err != nil {
		return err
	}
	defer g.remove()
	s, err := o.start(g)
	if err != nil {
		return err
	}
	defer s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), o.during)
	defer cancel()
	told := o.harass(ctx, t, s)
	var took []time.Duration
	failed := 0
	for ctx.Err() == nil {
		began := time.Now()
		if s.call(quiet) != http.StatusOK {
			failed++
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	codes := told()
	slices.Sort(took)
	state := "runs"
	if s.ended() {
		state = "**killed**"
	}
	fmt.Printf("| %s | %s | %s | %d MiB | %.1f ms, %.0f ms, %d of %d |\n", t.name, codes, state, g.most()>>20,
		ms(took, 0.5), ms(took, 0.99), failed, len(took))
	return nil
}

// harass makes the hostile tenant's calls until ctx ends, with all workers but one. What it returns says then how
// they were answered.
func (o options) harass(ctx context.Context, t tenant, s *server) (told func() string) {
	if t.body == nil {
		return func() string { return "" }
	}
	var mu sync.Mutex
	codes, n := map[int]int{}, 0
	next := func(code int) int {
		mu.Lock()
		defer mu.Unlock()
		if n++; code >= 0 {
			codes[code]++
		}
		return n
	}
	var calls sync.WaitGroup
	for range o.workers - 1 {
		calls.Go(func() {
			for i := next(-1); ctx.Err() == nil; {
				code := s.call(bytes.Replace(t.body(i), []byte(`12c500ed-`), fmt.Appendf(nil, "%08x-", i%100), 1))
				if i = next(code); code != http.StatusOK {
					time.Sleep(time.Second) // Retry-After
				}
			}
		})
	}
	time.Sleep(o.during / 10)
	return func() string {
		calls.Wait()
		var by []string
		for _, code := range slices.Sorted(maps.Keys(codes)) {
			by = append(by, fmt.Sprintf("%d: %d", code, codes[code]))
		}
		return strings.Join(by, ", ")
	}
}

func ms(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Seconds() * 1000
}

type server struct {
	cmd          *exec.Cmd
	exited       chan struct{}
	hooks, pages string
}

func (o options) start(g group) (*server, error) {
	s := &server{exited: make(chan struct{})}
	var err error
	if s.hooks, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.pages, err = freeAddress(); err != nil {
		return nil, err
	}
	// The shell enters the group and becomes the server.
	s.cmd = exec.Command("sh", "-c",
		`echo $$ > "$0/cgroup.procs" && exec taskset -c "$1" "$2" serve --listen "$3" --metrics-listen "$4" --image x/y:v1 --drain-delay -1ns`,
		g.dir, o.core, o.quorate, s.hooks, s.pages)
	s.cmd.Env = append(os.Environ(), "GOMEMLIMIT="+o.goLimit)
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = s.cmd.Wait(); close(s.exited) }()
	for range 500 {
		if resp, err := http.Get("http://" + s.pages + "/readyz"); err == nil {
			return s, resp.Body.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	s.stop()
	return nil, errors.New("the server does not answer after 10 s")
}

func (s *server) ended() bool {
	select {
	case <-s.exited:
		return true
	default:
		return false
	}
}

func (s *server) stop() {
	if !s.ended() {
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

var client = &http.Client{Timeout: 10 * time.Second} // the webhook's timeout

// call is the code of the answer; 0 for none.
func (s *server) call(body []byte) int {
	resp, err := client.Post("http://"+s.hooks+"/sync", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// A group is a control group with a limit of memory, of either version.
type group struct{ dir, peak string }

func newGroup(mib string) (group, error) {
	n, err := strconv.ParseInt(mib, 10, 64)
	if err != nil {
		return group{}, err
	}
	name := fmt.Sprintf("quorate-tenants-%d-%d", os.Getpid(), time.Now().UnixNano())
	limit := strconv.FormatInt(n<<20, 10)
	g := group{filepath.Join("/sys/fs/cgroup/memory", name), "memory.max_usage_in_bytes"}
	file := "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		g, file = group{filepath.Join("/sys/fs/cgroup", name), "memory.peak"}, "memory.max"
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return g, err
	}
	return g, os.WriteFile(filepath.Join(g.dir, file), []byte(limit), 0o600)
}

func (g group) most() int64 {
	raw, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n
}

func (g group) remove() { _ = os.Remove(g.dir) }
