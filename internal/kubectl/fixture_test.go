package kubectl

import (
	"bytes"
	"cmp"
	"context"

	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "go test ./internal/kubectl -rewrite, and read every line")
	for line := range strings.Lines(got) {
		assert.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), width, line)
		assert.Equal(t, strings.TrimRight(line, " \n")+"\n", line, "a line ends in spaces")
	}
}

// noon of the day on which everything here happens.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// kube is a Kubernetes cluster with one EtcdCluster, shop/orders, and a kubectl for it.
type kube struct {
	t        *testing.T
	cluster  map[string]any
	children []map[string]any
	related  []map[string]any
	// says is what kubectl answers to a call that begins so, instead of what is here. fails is what it answers with
	// an error.
	says, fails map[string]string
	// closed are pods that can't be forwarded to; served are the addresses at which others are.
	closed  []string
	served  map[string]string
	calls   []string
	applied []string // what kubectl was given to apply
	// forwards are the calls that open ways to pods.
	forwards []string
	open     int
	lock     sync.Mutex
	// out and errs are what waiting prints.
	out, errs bytes.Buffer
}

// callFile has the call that is answered here, wherever a test has gone meanwhile.
var callFile, _ = filepath.Abs("../../server/testdata/sync.json")

// steady is a cluster of three in plain text that is as it should be: the call that the server's tests know, too.
func steady(t *testing.T) *kube {
	t.Helper()
	raw, err := os.ReadFile(callFile)
	require.NoError(t, err)
	var call struct {
		Parent   map[string]any
		Children map[string]map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal(raw, &call))
	k := &kube{t: t, cluster: call.Parent, says: map[string]string{}, fails: map[string]string{}}
	for _, group := range call.Children {
		for _, child := range group {
			k.children = append(k.children, child)
		}
	}
	slices.SortFunc(k.children, func(a, b map[string]any) int { return strings.Compare(titleOf(a), titleOf(b)) })
	k.says["get deployment quorate -n quorate-system"] = `{"spec":{"template":{"spec":{"containers":[{"name":"quorate","image":"ghcr.io/quorate-dev/quorate:v0.1.0",
		"env":[{"name":"QUORATE_IMAGE","value":"ghcr.io/quorate-dev/quorate:v0.1.0"},{"name":"QUORATE_NAMESPACE","valueFrom":{"fieldRef":{"fieldPath":"metadata.namespace"}}}]}]}}}}`
	k.says["get compositecontrollers"] = `{"items":[{"spec":{"parentResource":{"apiVersion":"etcd.quorate.dev/v1beta1","resource":"etcdclusters"},"childResources":[
		{"apiVersion":"v1","resource":"pods"},{"apiVersion":"v1","resource":"persistentvolumeclaims"},{"apiVersion":"v1","resource":"configmaps"},{"apiVersion":"v1","resource":"services"},
		{"apiVersion":"policy/v1","resource":"poddisruptionbudgets"},{"apiVersion":"v1","resource":"secrets"},{"apiVersion":"networking.k8s.io/v1","resource":"networkpolicies"}]}}]}`
	return k
}

// child is one of the children.
func (k *kube) child(title string) map[string]any {
	k.t.Helper()
	i := slices.IndexFunc(k.children, func(o map[string]any) bool { return titleOf(o) == title })
	require.GreaterOrEqual(k.t, i, 0, title)
	return k.children[i]
}

func (k *kube) lose(title string) {
	k.children = slices.DeleteFunc(k.children, func(o map[string]any) bool { return titleOf(o) == title })
}

func (k *kube) run(_ context.Context, args ...string) ([]byte, error) {
	call := strings.Join(args, " ")
	k.lock.Lock()
	k.calls = append(k.calls, call)
	k.lock.Unlock()
	for prefix, said := range k.fails {
		if strings.HasPrefix(call, prefix) {
			return nil, &refusal{args, said, errors.New("exit status 1")}
		}
	}
	for prefix, said := range k.says {
		if strings.HasPrefix(call, prefix) {
			return []byte(said), nil
		}
	}
	switch {
	case strings.HasPrefix(call, "get "+clusters+" -o"):
		return listOf(k.cluster), nil
	case strings.HasPrefix(call, "get "+clusters):
		return json.Marshal(k.cluster)
	case strings.HasPrefix(call, "get pods -n shop"):
		return listOf(k.ofKind("Pod")...), nil
	case strings.HasPrefix(call, "get pods,"):
		return listOf(k.children...), nil
	case strings.HasPrefix(call, "get secrets -n shop -l"):
		return listOf(k.related...), nil
	case strings.HasPrefix(call, "get "), strings.HasPrefix(call, "create "), strings.HasPrefix(call, "logs "),
		strings.HasPrefix(call, "version"), strings.HasPrefix(call, "patch "):
		return listOf(), nil
	}
	return nil, fmt.Errorf("the test does not expect kubectl %s", call)
}

// applied are the objects that kubectl was given, one text for each call.
func (k *kube) apply(ctx context.Context, objects []byte) ([]byte, error) {
	k.lock.Lock()
	k.applied = append(k.applied, string(objects))
	k.lock.Unlock()
	return k.run(ctx, "apply")
}

func (k *kube) create(ctx context.Context, resource, namespace string, object []byte) error {
	k.lock.Lock()
	k.applied = append(k.applied, string(object))
	k.lock.Unlock()
	_, err := k.run(ctx, "create", resource, "-n", namespace)
	return err
}

func (k *kube) ofKind(kind string) (list []map[string]any) {
	for _, o := range k.children {
		if o["kind"] == kind {
			list = append(list, o)
		}
	}
	return list
}

func listOf(all ...map[string]any) []byte {
	raw, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List",
		"items": append([]map[string]any{}, all...)})
	if err != nil {
		panic(err)
	}
	return raw
}

func (k *kube) forward(_ context.Context, namespace, pod string, _ int) (string, func(), error) {
	k.lock.Lock()
	k.forwards = append(k.forwards, "port-forward "+pod+" -n "+namespace)
	k.lock.Unlock()
	if slices.Contains(k.closed, pod) {
		return "", nil, errors.New("this version can't pod/" + pod)
	}
	k.count(1)
	return cmp.Or(k.served[pod], "127.0.0.1:1"), func() { k.count(-1) }, nil
}

func (k *kube) count(n int) {
	k.lock.Lock()
	defer k.lock.Unlock()
	k.open += n
}

// waiting is the plugin for a command that waits: meanwhile happens each time.
func (k *kube) waiting(meanwhile func()) *Program {
	k.out.Reset()
	k.errs.Reset()
	p := Explaining(New("v1.2.3", &k.out, &k.errs), wire.ReadCluster)
	p.kubectl = func([]string) access { return k }
	p.etcd = func(etcdops.Own, dialer) hooks.Etcd { return healthy() }
	p.now = func() time.Time { return noon }
	p.pause = func(context.Context, time.Duration) { meanwhile() }
	return p
}

// etcd of three members, of which orders-0 leads, until something else is said.
type etcd struct {
	members []observation.Member
	health  map[string]observation.Health
	leader  uint64
	blind   bool
	did     []decision.Step
	refuses error
}

const first uint64 = 0x8e9e05c521646940

func healthy() *etcd {
	e := &etcd{leader: first, health: map[string]observation.Health{}}
	for i := range 3 {
		name := fmt.Sprintf("orders-%d", i)
		host, id := "http://"+name+".orders-peers.shop.svc", first+uint64(i)
		e.members = append(e.members, observation.Member{ID: id, Name: name, PeerURLs: []string{host + ":2380"},
			ClientURLs: []string{host + ":2379"}})
		e.health[name] = observation.Health{ClusterID: 0xcdf818194e3a8c32, MemberID: id, Leader: first,
			Version:  "3.6.16",
			RaftTerm: 2, RaftIndex: 1000 - 7*uint64(i), DBSize: 26 << 20, DBSizeInUse: 12<<20 + 300<<10}
	}
	return e
}

func (e *etcd) Observe(_ context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	health := map[string]observation.Health{}
	for _, endpoint := range endpoints {
		health[endpoint.Name] = e.health[endpoint.Name]
	}
	if e.blind {
		return nil, health
	}
	return &observation.Membership{ClusterID: 0xcdf818194e3a8c32, Leader: e.leader, Members: e.members}, health
}

func (e *etcd) Do(_ context.Context, step decision.Step, _ *observation.Membership, _ []observation.Endpoint) error {
	e.did = append(e.did, step)
	if move, ok := step.(decision.MoveLeader); ok && e.refuses == nil {
		e.leader = move.To
	}
	return e.refuses
}

// Keys and Writes are of one key each.
func (e *etcd) Keys(_ context.Context, _ observation.Endpoint, each func(key []byte, leased bool)) error {
	each([]byte("/registry/pods/shop/one"), true)
	return e.refuses
}

func (e *etcd) Writes(_ context.Context, of observation.Endpoint, each func(key []byte, bytes int)) error {
	each([]byte("/registry/leases/"+of.Name+"/one"), 300)
	return e.refuses
}

// runs the plugin on this Kubernetes and this etcd.
func (k *kube) runs(e *etcd, args ...string) (code int, out, errs string) {
	k.t.Helper()
	var stdout, stderr bytes.Buffer
	p := Explaining(New("v1.2.3", &stdout, &stderr), wire.ReadCluster)
	p.kubectl = func([]string) access { return k }
	p.etcd = func(etcdops.Own, dialer) hooks.Etcd { return e }
	p.now = func() time.Time { return noon }
	p.pause = func(context.Context, time.Duration) {}
	p.serve = opened
	code = p.Run(k.t.Context(), args)
	assert.Zero(k.t, k.open, "a way to a pod was left open")
	if code == exitUsage {
		assert.Empty(k.t, slices.DeleteFunc(slices.Clone(k.calls), func(call string) bool {
			return strings.HasPrefix(call, "get "+clusters) || strings.HasPrefix(call, "get "+schedules) ||
				strings.HasPrefix(call, "config view")
		}), "a line that is wrong asks nothing of Kubernetes, but what there is to choose from")
	}
	return code, stdout.String(), stderr.String()
}
