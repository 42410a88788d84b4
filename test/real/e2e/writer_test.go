//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// writer is an application that writes through the client Service, one key after the other, and remembers what etcd
// acknowledged.
type writer struct {
	t       *testing.T
	client  *clientv3.Client
	word    string // with which its keys begin
	stop    context.CancelFunc
	done    sync.WaitGroup
	acked   []string
	count   atomic.Int64 // of acked
	retried atomic.Int64
	stall   atomic.Int64 // the longest time between two acknowledgements, in nanoseconds
	stallAt atomic.Value // when that ended, and what the attempts said till then
	refused []string     // what etcd said to writes that it did not take
}

func (w *writer) retries() int64 { return w.retried.Load() }

func (w *writer) stalled() time.Duration { return time.Duration(w.stall.Load()) }

// writes starts writing to the cluster.
func (c *cluster) writes() *writer {
	c.t.Helper()
	return c.writesWith(c.client(), c.word())
}

// word is that of a story's keys: on a cluster that stories share, none finds what another has written.
func (c *cluster) word() string { return "key-" + path.Base(c.t.Name()) }

// writesWith starts writing with a client, keys that begin with a word.
func (c *cluster) writesWith(client *clientv3.Client, word string) *writer {
	c.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	w := &writer{t: c.t, client: client, word: word, stop: stop}
	first, end := context.WithTimeout(ctx, patience)
	w.put(first, w.key(1))
	end()
	require.Len(c.t, w.acked, 1, "no write was taken: %q", w.refused)
	w.retried.Store(0) // the nodes may not know the Service yet, and to wait for it is no part of a story
	w.stall.Store(0)
	w.done.Go(func() {
		for n := int64(2); ctx.Err() == nil; n++ {
			w.put(ctx, w.key(n))
			select { // some twenty writes in a second: six of these at a time leave the cores to others
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	c.t.Cleanup(func() { stop(); w.done.Wait() })
	return w
}

// key is the nth that it writes.
func (w *writer) key(n int64) string {
	if n == 1 {
		return w.word + "-first"
	}
	return fmt.Sprintf("%s-%06d", w.word, n-2)
}

// put writes one key until it is acknowledged.
func (w *writer) put(ctx context.Context, key string) {
	begin, said := time.Now(), ""
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := w.client.Put(attempt, key, "value of "+key)
		cancel()
		if err == nil {
			w.acked = append(w.acked, key)
			w.count.Add(1)
			if took := int64(time.Since(begin)); took > w.stall.Load() { // no one else writes it
				w.stall.Store(took)
				w.stallAt.Store(time.Now().UTC().String() + said)
			}
			return
		}
		if refusal(err) {
			w.refused = append(w.refused, err.Error())
		}
		if after := fmt.Sprintf(": %v", err); !strings.HasSuffix(said, after) {
			said += fmt.Sprintf("; %.1f s%s", time.Since(begin).Seconds(), after)
		}
		w.retried.Add(1)
	}
}

// refusal reports whether it was etcd that said no. Whatever else went wrong, as in an election, may go well the next
// time.
func refusal(err error) bool {
	var said rpctypes.EtcdError
	return errors.As(err, &said) && said.Code() != codes.Unavailable && said.Code() != codes.DeadlineExceeded
}

// answered repeats a request, which must do no harm when it is carried out twice, until etcd has taken or refused it:
// the client itself repeats no write whose answer got lost.
func answered[T any](t *testing.T, request func(ctx context.Context) (T, error)) (T, error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		answer, err := request(ctx)
		cancel()
		if err == nil || refusal(err) || time.Now().After(deadline) {
			return answer, err
		}
		t.Logf("no answer: %v", err)
		<-time.After(100 * time.Millisecond)
	}
}

// putting writes a key.
func putting(t *testing.T, client *clientv3.Client, key, value string) error {
	t.Helper()
	_, err := answered(t, func(ctx context.Context) (*clientv3.PutResponse, error) {
		return client.Put(ctx, key, value)
	})
	return err
}

// getting reads a key, or several.
func getting(t *testing.T, client *clientv3.Client, key string, options ...clientv3.OpOption) (*clientv3.GetResponse,
	error) {
	t.Helper()
	return answered(t, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return client.Get(ctx, key, options...)
	})
}

// makes a user or role, or changes one. It may be there already, by a request whose answer got lost.
func makes[T any](t *testing.T, request func(ctx context.Context) (T, error)) {
	t.Helper()
	_, err := answered(t, request)
	if !errors.Is(err, rpctypes.ErrUserAlreadyExist) && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		require.NoError(t, err)
	}
}

// makesUser makes a user of etcd without a password, who may do everything with the keys of a range.
func makesUser(t *testing.T, root *clientv3.Client, user, from, end string) {
	t.Helper()
	makes(t, func(ctx context.Context) (any, error) {
		return root.UserAddWithOptions(ctx, user, "", &clientv3.UserAddOptions{NoPassword: true})
	})
	makes(t, func(ctx context.Context) (any, error) { return root.RoleAdd(ctx, user) })
	makes(t, func(ctx context.Context) (any, error) {
		return root.RoleGrantPermission(ctx, user, from, end, clientv3.PermissionType(clientv3.PermReadWrite))
	})
	makes(t, func(ctx context.Context) (any, error) { return root.UserGrantRole(ctx, user, user) })
}

// counts waits until n more of something are counted.
func counts(t *testing.T, count *atomic.Int64, n int64, what string) {
	t.Helper()
	goal := count.Load() + n
	eventually(t, what, func() string {
		left := goal - count.Load()
		return while(left > 0, fmt.Sprintf("%d are missing", left))
	})
}

// wrote waits until n more writes are acknowledged.
func (w *writer) wrote(n int64) {
	w.t.Helper()
	counts(w.t, &w.count, n, fmt.Sprintf("%d writes", n))
}

// ends stops the writing.
func (w *writer) ends() {
	w.stop()
	w.done.Wait()
}

// losesNothing ends the writing and checks that every acknowledged write can be read.
func (w *writer) losesNothing() {
	w.t.Helper()
	w.ends()
	all, err := getting(w.t, w.client, w.word, clientv3.WithPrefix())
	require.NoError(w.t, err)
	found := map[string]string{}
	for _, kv := range all.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	for _, key := range w.acked {
		require.Equal(w.t, "value of "+key, found[key], "an acknowledged write is lost")
	}
	w.t.Logf("%d writes acknowledged, none lost; %d retried, longest stall %d ms, at %v", len(w.acked), w.retries(),
		w.stalled().Milliseconds(), w.stallAt.Load())
}
