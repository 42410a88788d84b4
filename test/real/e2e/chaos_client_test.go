//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/test/real/chaos"
)

// clients read and write a few keys of a cluster through any of its members, with no retries, and keep the history of
// it.
type clients struct {
	t       *testing.T
	ns      string
	history chaos.History
	began   time.Time
	broken  func(error)
	stop    context.CancelFunc
	done    sync.WaitGroup
	where   atomic.Pointer[[]string] // addresses of the running members

	mu      sync.Mutex
	id      uint64                      // the cluster's, from the first answer
	conns   map[string]*grpc.ClientConn // by address
	last    time.Duration               // when the last operation was acknowledged
	stall   time.Duration               // the longest time between two of those
	acked   int
	unknown int
}

const (
	manyClients = 4
	// A key is used for a short time, so that its history is judged in milliseconds.
	generation = 15 * time.Second
	keysAtOnce = 3
	opTimeout  = 1500 * time.Millisecond
)

// newClients starts clients of the cluster; each waits for members to be there.
func newClients(c *cluster, seed uint64, broken func(error)) *clients {
	ctx, stop := context.WithCancel(context.Background())
	cs := &clients{t: c.t, ns: c.ns, began: time.Now(), broken: broken, stop: stop,
		conns: map[string]*grpc.ClientConn{}}
	c.t.Cleanup(cs.end)
	cs.where.Store(&[]string{})
	cs.done.Go(func() { cs.follow(ctx) })
	for i := range manyClients {
		dice := chaos.Dice(seed, "client "+c.ns, uint64(i))
		cs.done.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				cs.one(ctx, i, n, dice)
				select {
				case <-time.After(time.Duration(30+dice.IntN(20)) * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	return cs
}

// end ends the clients.
func (cs *clients) end() {
	cs.stop()
	cs.done.Wait()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, conn := range cs.conns {
		_ = conn.Close()
	}
	cs.conns = map[string]*grpc.ClientConn{}
}

// follow keeps the addresses of the members.
func (cs *clients) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if addresses, err := running(cs.ns); err == nil {
			cs.where.Store(&addresses)
			cs.forget(addresses)
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// running are the client addresses of the running pods of a namespace.
func running(ns string) ([]string, error) {
	var pods corev1.PodList
	if _, err := api.read(fmt.Sprintf(paths["pods"], ns), &pods); err != nil {
		return nil, err
	}
	var addresses []string
	for _, pod := range pods.Items {
		if pod.Status.PodIP != "" && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			addresses = append(addresses, objects.HostPort(pod.Status.PodIP, objects.ClientPort))
		}
	}
	return addresses, nil
}

// forget closes connections to who is no longer there: its address may soon be another's.
func (cs *clients) forget(but []string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for address, conn := range cs.conns {
		if !slices.Contains(but, address) {
			_ = conn.Close()
			delete(cs.conns, address)
		}
	}
}

// application is TLS as the applications of the cluster in a namespace have it.
func application(ns string) grpc.DialOption {
	config := rereading(ns, name+"-client-tls")
	config.ServerName = fmt.Sprintf("%s.%s.svc", name, ns)
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

// kv is a client of a member that repeats nothing.
func (cs *clients) kv(address string) (clientv3.KV, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if conn := cs.conns[address]; conn != nil {
		return clientv3.NewKVFromKVClient(pb.NewKVClient(conn), nil), nil
	}
	conn, err := grpc.NewClient("passthrough:///"+address, application(cs.ns),
		grpc.WithContextDialer(lab.dialContext), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 200 * time.Millisecond,
			Multiplier: 1.5, MaxDelay: time.Second}, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, err
	}
	cs.conns[address] = conn
	return clientv3.NewKVFromKVClient(pb.NewKVClient(conn), nil), nil
}

// one makes one operation.
func (cs *clients) one(ctx context.Context, client, n int, dice *rand.Rand) {
	key := fmt.Sprintf("chaos-%04d-%d", time.Since(cs.began)/generation, dice.IntN(keysAtOnce))
	kind, place := dice.IntN(10), dice.Uint64()
	addresses := *cs.where.Load()
	if len(addresses) == 0 {
		return
	}
	kv, err := cs.kv(addresses[place%uint64(len(addresses))])
	if err != nil {
		cs.broken(err)
		return
	}
	op := chaos.Op{Client: client, Key: key, Verb: chaos.Get, Value: fmt.Sprintf("%d.%d", client, n)}
	switch {
	case kind < 4:
		op.Verb = chaos.Put
	case kind < 6:
		op.Verb = chaos.Swap
		before := cs.run(ctx, kv, chaos.Op{Key: key})
		if !before.Known {
			return
		}
		op.Expected = before.Read
	}
	cs.add(cs.run(ctx, kv, op))
}

// run carries one operation out and fills in what came of it.
func (cs *clients) run(ctx context.Context, kv clientv3.KV, op chaos.Op) chaos.Op {
	ctx, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	op, header := op.Do(ctx, kv, cs.began)
	if op.Known {
		cs.belongs(header)
	}
	return op
}

// belongs checks that it is the same cluster that answers, always (S8).
func (cs *clients) belongs(header *pb.ResponseHeader) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.id == 0 {
		cs.id = header.GetClusterId()
	}
	if cs.id != header.GetClusterId() {
		cs.broken(fmt.Errorf("S8: cluster %x answers clients where cluster %x did", header.GetClusterId(), cs.id))
	}
}

func (cs *clients) add(op chaos.Op) {
	cs.history.Add(op)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if !op.Known {
		cs.unknown++
		return
	}
	if cs.last > 0 {
		cs.stall = max(cs.stall, op.Return-cs.last)
	}
	cs.acked++
	cs.last = max(cs.last, op.Return)
}

// judge ends the clients, reads every key that they ever used a last time through a quorum, and judges the history.
func (cs *clients) judge() {
	cs.t.Helper()
	cs.stop()
	cs.done.Wait()
	keys := map[string]bool{}
	for _, op := range cs.history.Ops() {
		keys[op.Key] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		eventually(cs.t, "the last read of "+key, func() string {
			addresses, err := running(cs.ns)
			if err != nil || len(addresses) == 0 {
				return fmt.Sprint("no member runs: ", err)
			}
			kv, err := cs.kv(addresses[0])
			require.NoError(cs.t, err)
			op := cs.run(context.Background(), kv, chaos.Op{Client: manyClients, Key: key})
			if !op.Known {
				return "no answer"
			}
			cs.add(op)
			return ""
		})
	}
	began := time.Now()
	require.NoError(cs.t, cs.history.Check(patience), "a write was lost, or a read was wrong")
	cs.t.Logf("%d operations on %d keys are linearizable, judged in %.1f s; %d outcomes unknown; longest stall %.1f s",
		cs.acked+cs.unknown, len(keys), time.Since(began).Seconds(), cs.unknown, cs.stall.Seconds())
	cs.end()
}
