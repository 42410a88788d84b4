//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

var (
	tenantsOf     = flag.String("tenants.quorate", "", "the binary to measure; none measures nothing")
	tenantLimit   = flag.Int64("tenants.limit", 128, "MiB of memory of the control group, as the Deployment has it")
	tenantMemory  = flag.String("tenants.memory", "128000000", "GOMEMLIMIT, as the Deployment sets it")
	tenantCore    = flag.String("tenants.core", "0", "the core that the server has; what calls it has the others")
	tenantFor     = flag.Duration("tenants.for", 20*time.Second, "how long each tenant is hostile")
	tenantWorkers = flag.Int("tenants.workers", 20, "workers of Metacontroller")
)

// TestTenants measures what one tenant costs all others: `quorate serve` in a control group with the memory limit of
// the Deployment, the calls of a hostile tenant, and meanwhile those of another. It needs root, for the control group.
//
//	go test ./test/real/bench -run Tenants -v -tenants.quorate $PWD/bin/quorate
func TestTenants(t *testing.T) {
	if *tenantsOf == "" {
		t.Skip("-tenants.quorate says of which binary")
	}
	// No process listens there: members refuse at once, and a call costs what reading and deciding cost.
	var request map[string]any
	require.NoError(t, json.Unmarshal(requestOf(t, "orders", "127.0.0"), &request))
	var quiet [][]byte
	for i := range 50 {
		quiet = append(quiet, requestOf(t, fmt.Sprintf("orders-%02d", i), "127.0.0"))
	}
	fmt.Printf("| the hostile tenant | in namespaces | its calls answered, by code | Quorate | memory at most, of %d MiB "+
		"| calls of 50 others' clusters, p50, p99, and failed |\n| --- | --- | --- | --- | --- | --- |\n", *tenantLimit)
	for _, tenant := range tenants(t, request) {
		for _, namespaces := range []int{1, 12} {
			if tenant.body != nil || namespaces == 1 {
				t.Run(fmt.Sprint(tenant.name, " ", namespaces), func(t *testing.T) { tenant.measure(t, quiet, namespaces) })
			}
		}
	}
}

// A tenant is what one does to all others: the body of its nth call; nil for none.
type tenant struct {
	name string
	body func(n int) []byte
}

func tenants(t *testing.T, request map[string]any) []tenant {
	eleven := hostile(t, request, 11, keys(60_000, ""))
	var twenty [][]byte
	for i := range 20 {
		twenty = append(twenty, hostile(t, request, 11, keys(55_000, strconv.Itoa(i))))
	}
	var r map[string]any
	require.NoError(t, json.Unmarshal(hostile(t, request, 0, nil), &r))
	at(r, "children", "NetworkPolicy.networking.k8s.io/v1")["p"] = map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"name": "p", "namespace": "hostile", "uid": "p"},
		"spec":     map[string]any{"ingress": json.RawMessage("[" + strings.Repeat("{},", 2_500_000) + "{}]")},
	}
	rules := mustJSON(t, r)
	require.NoError(t, json.Unmarshal(hostile(t, request, 0, nil), &r))
	at(r, "parent", "spec")["resources"] = map[string]any{"limits": map[string]any{"cpu": "1e-2000000000"}}
	exponent := mustJSON(t, r)
	listens(t, "127.66.0")
	lists := bytes.ReplaceAll(hostile(t, request, 0, nil), []byte("127.0.0."), []byte("127.66.0."))
	return []tenant{
		{"none", nil},
		{"eleven Secrets with 60,000 empty keys", func(int) []byte { return eleven }},
		{"such Secrets, other ones with each of 20 calls", func(n int) []byte { return twenty[n%len(twenty)] }},
		{"a NetworkPolicy with 2,500,000 empty rules", func(int) []byte { return rules }},
		{"a quantity with an exponent of ten digits", func(int) []byte { return exponent }},
		{"members that list 2,000,000 members", func(int) []byte { return lists }},
	}
}

// listing is a member that answers as a leader, and lists members of two bytes each.
type listing struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedMaintenanceServer
}

func (listing) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1}, Leader: 1, Version: "3.6.16"}, nil
}

func (listing) MemberList(context.Context, *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	all := make([]*pb.Member, 2_000_000)
	for i := range all {
		all[i] = none
	}
	return &pb.MemberListResponse{Header: &pb.ResponseHeader{ClusterId: 1, MemberId: 1}, Members: all}, nil
}

var none = &pb.Member{}

// listens has such members at the addresses of a network.
func listens(t *testing.T, network string) {
	t.Helper()
	for _, last := range []string{".7", ".8", ".9"} {
		at, err := net.Listen("tcp", network+last+":2379")
		require.NoError(t, err)
		server := grpc.NewServer()
		pb.RegisterClusterServer(server, listing{})
		pb.RegisterMaintenanceServer(server, listing{})
		go func() { _ = server.Serve(at) }()
		t.Cleanup(server.Stop)
	}
}

// hostile is the request about a cluster in the namespace hostile, with so many Secrets of others that hold this.
func hostile(t *testing.T, request map[string]any, n int, data json.RawMessage) []byte {
	var r map[string]any
	raw := bytes.ReplaceAll(mustJSON(t, request), []byte(`"shop"`), []byte(`"hostile"`))
	require.NoError(t, json.Unmarshal(raw, &r))
	secrets := map[string]any{}
	for i := range n {
		name := fmt.Sprintf("secret-%d", i)
		secrets[name] = map[string]any{"apiVersion": "v1", "kind": "Secret", "data": data,
			"metadata": map[string]any{"name": name, "namespace": "hostile", "uid": name}}
	}
	r["related"] = map[string]any{"Secret.v1": secrets}
	// One of them is asked for, and so read.
	at(r, "parent", "spec")["auth"] = map[string]any{"rootPasswordSecretRef": map[string]any{"name": "secret-0"}}
	return mustJSON(t, r)
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
		o = o.(map[string]any)[key]
	}
	return o.(map[string]any)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// measure is one server from its start to its end.
func (one tenant) measure(t *testing.T, quiet [][]byte, namespaces int) {
	g := newGroup(t)
	s := startsServer(t, g)
	ctx, cancel := context.WithTimeout(t.Context(), *tenantFor)
	defer cancel()
	told := one.harasses(ctx, s, namespaces)
	var took []time.Duration
	failed := 0
	for ctx.Err() == nil {
		began := time.Now()
		if s.call(quiet[len(took)%len(quiet)]) != http.StatusOK {
			failed++
		}
		took = append(took, time.Since(began))
		time.Sleep(20 * time.Millisecond)
	}
	codes, state := told(), "runs"
	select {
	case <-s.exited:
		state = "**killed**"
	default:
	}
	slices.Sort(took)
	fmt.Printf("| %s | %d | %s | %s | %d MiB | %.1f ms, %.0f ms, %d of %d |\n", one.name, namespaces, codes, state,
		g.most()>>20, took[(len(took)-1)/2].Seconds()*1000, took[(len(took)-1)*99/100].Seconds()*1000, failed, len(took))
	assert.Equal(t, "runs", state)
	assert.Zero(t, failed, "calls of others")
}

// harasses makes the hostile tenant's calls until ctx ends, with all workers but one. What it returns says then how
// they were answered.
func (one tenant) harasses(ctx context.Context, s *tenantServer, namespaces int) (told func() string) {
	if one.body == nil {
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
	for range *tenantWorkers - 1 {
		calls.Go(func() {
			for i := next(-1); ctx.Err() == nil; {
				uid := fmt.Appendf(nil, "%08x-", i%100)
				body := bytes.Replace(one.body(i), []byte(`12c500ed-`), uid, 1)
				in := fmt.Appendf(nil, `"hostile-%d"`, i%namespaces)
				code := s.call(bytes.ReplaceAll(body, []byte(`"hostile"`), in))
				if i = next(code); code != http.StatusOK {
					time.Sleep(time.Second) // Retry-After
				}
			}
		})
	}
	time.Sleep(*tenantFor / 10)
	return func() string {
		calls.Wait()
		var by []string
		for _, code := range slices.Sorted(maps.Keys(codes)) {
			by = append(by, fmt.Sprintf("%d: %d", code, codes[code]))
		}
		return strings.Join(by, ", ")
	}
}

// tenantServer is the binary that is measured.
type tenantServer struct {
	exited chan struct{}
	hooks  string
}

func startsServer(t *testing.T, g group) *tenantServer {
	t.Helper()
	s := &tenantServer{exited: make(chan struct{}), hooks: freeAddress(t)}
	pages := freeAddress(t)
	// The shell enters the group and becomes the server.
	cmd := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && exec taskset -c "$1" "$2" serve --listen "$3" `+
		`--metrics-listen "$4" --image x/y:v1 --drain-delay -1ns`, g.dir, *tenantCore, *tenantsOf, s.hooks, pages)
	cmd.Env = append(os.Environ(), "GOMEMLIMIT="+*tenantMemory)
	require.NoError(t, cmd.Start())
	go func() { _ = cmd.Wait(); close(s.exited) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-s.exited })
	answers(t, pages)
	return s
}

var tenantClient = &http.Client{Timeout: 10 * time.Second} // the webhook's timeout

// call is the code of the answer; 0 for none.
func (s *tenantServer) call(body []byte) int {
	resp, err := tenantClient.Post("http://"+s.hooks+"/sync", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	_, _ = new(bytes.Buffer).ReadFrom(resp.Body)
	return resp.StatusCode
}

// A group is a control group with a limit of memory, of either version.
type group struct{ dir, peak string }

func newGroup(t *testing.T) group {
	t.Helper()
	name := fmt.Sprintf("quorate-tenants-%d-%d", os.Getpid(), time.Now().UnixNano())
	g, file := group{filepath.Join("/sys/fs/cgroup/memory", name), "memory.max_usage_in_bytes"}, "memory.limit_in_bytes"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err != nil {
		g, file = group{filepath.Join("/sys/fs/cgroup", name), "memory.peak"}, "memory.max"
	}
	require.NoError(t, os.Mkdir(g.dir, 0o755))
	t.Cleanup(func() { _ = os.Remove(g.dir) })
	require.NoError(t, os.WriteFile(filepath.Join(g.dir, file), fmt.Append(nil, *tenantLimit<<20), 0o600))
	return g
}

func (g group) most() int64 {
	raw, _ := os.ReadFile(filepath.Join(g.dir, g.peak))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 64)
	return n
}
