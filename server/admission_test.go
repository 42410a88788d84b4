package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/server/wire"
)

// manyKeys is the data of a Secret with so many empty keys, and one with a password.
func manyKeys(n int) json.RawMessage {
	var b bytes.Buffer
	b.WriteString(`{"password":"c2VjcmV0"`)
	for i := range n {
		fmt.Fprintf(&b, `,"k%05d":""`, i)
	}
	b.WriteString("}")
	return b.Bytes()
}

// keysOf is the steady request with so many related Secrets of so many keys, and one of the cluster's own. The first is
// asked for. It is about a cluster of this namespace.
func keysOf(t testing.TB, secrets, keys int, namespace string) []byte {
	data := manyKeys(keys)
	raw := edited(t, func(r map[string]any) {
		secret := func(name string) map[string]any {
			return map[string]any{"apiVersion": "v1", "kind": "Secret",
				"metadata": map[string]any{"name": name, "namespace": "shop", "uid": name,
					"labels": map[string]any{"etcd.quorate.dev/cluster": "orders", "etcd.quorate.dev/external": ""}},
				"data": data}
		}
		related := map[string]any{}
		for i := range secrets {
			name := fmt.Sprintf("secret-%d", i)
			related[name] = secret(name)
		}
		r["related"] = map[string]any{groupSecrets: related}
		at(r, "children", groupSecrets)["orders-client-tls"] = secret("orders-client-tls")
		at(r, "parent", "spec")["auth"] = map[string]any{"rootPasswordSecretRef": map[string]any{"name": "secret-0"}}
	})
	return []byte(strings.ReplaceAll(string(raw), `"shop"`, fmt.Sprintf("%q", namespace)))
}

// TestKeysThatNothingAsksFor: of a Secret with 60,000 keys that is read which a decision can ask for, and little memory
// is taken.
func TestKeysThatNothingAsksFor(t *testing.T) {
	body := keysOf(t, 10, 60_000, "shop")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var made int64
	r, err := wire.ReadCluster(t.Context(),
		wire.Body{Buffer: bytes.NewBuffer(body), Settle: func(n int64) { made = n }})
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "of a call of %d bytes", len(body))
	require.Equal(t, map[string][]byte{"password": []byte("secret")}, r.Secret("secret-0"))
	require.Nil(t, r.Secret("secret-1"))
	require.Equal(t, []string{"password"}, r.Related.Secrets["secret-0"].Keys)
	require.Len(t, r.Related.Secrets, 1, "what nothing names is not read")
	require.Len(t, r.Related.Labelled, 10)
	require.Len(t, r.Secret("orders-client-tls"), 64+1, "what others keep there stays, up to a point")
	require.Less(t, made, int64(1<<20))
}

// TestWhoseCallsAreLarge: 20 calls of 8 MB at once take memory for one, and a small call among them is answered.
func TestWhoseCallsAreLarge(t *testing.T) {
	body := keysOf(t, 10, 60_000, "hostile")
	small := steady(t)
	s, _ := testServer(Options{})
	s.options.CallTimeout = time.Hour
	h := s.Handler()
	require.Equal(t, 200, post(h, "/sync", small).Code)
	runtime.GC()
	var most atomic.Uint64
	ctx, cancel := context.WithCancel(t.Context())
	var watch, calls sync.WaitGroup
	watch.Go(func() {
		var m runtime.MemStats
		for ctx.Err() == nil {
			runtime.GC() // only what is in use counts
			runtime.ReadMemStats(&m)
			most.Store(max(most.Load(), m.HeapAlloc))
			time.Sleep(time.Millisecond)
		}
	})
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	for range 20 {
		calls.Go(func() {
			if post(h, "/sync", body).Code != http.StatusOK {
				t.Error("a large call was refused")
			}
		})
	}
	for range 20 {
		require.Equal(t, 200, post(h, "/sync", small).Code)
	}
	calls.Wait()
	cancel()
	watch.Wait()
	t.Logf("%d MiB beside %d", most.Load()>>20, m.HeapAlloc>>20)
	require.Less(t, most.Load(), m.HeapAlloc+64<<20)
}

// TestValuesThatBecomeTooMuch: a call whose values would take too much memory is refused, by the name of the object,
// before they do.
func TestValuesThatBecomeTooMuch(t *testing.T) {
	s, _ := testServer(Options{})
	h := s.Handler()
	body := edited(t, func(r map[string]any) {
		at(r, "children", groupPolicies)["orders"] = map[string]any{"apiVersion": "networking.k8s.io/v1",
			"kind": "NetworkPolicy", "metadata": map[string]any{"name": "orders", "namespace": "shop", "uid": "u"},
			"spec": map[string]any{"ingress": json.RawMessage("[" + strings.Repeat("{},", 500_000) + "{}]")}}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := post(h, "/sync", body)
	runtime.ReadMemStats(&after)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	require.Contains(t, errorOf(t, w),
		`children["NetworkPolicy.networking.k8s.io/v1"]["orders"] holds more values than a call of`)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// TestNoRoom: a call for which there is no memory in time is answered with 503, by name, and counted.
func TestNoRoom(t *testing.T) {
	s, _ := testServer(Options{CallTimeout: 20 * time.Millisecond})
	h := s.Handler()
	hog, err := s.memory.take(t.Context(), "other", s.memory.size)
	require.NoError(t, err)
	w := post(h, "/sync", steady(t))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.Contains(t, errorOf(t, w), "the call about shop/orders has")
	require.Contains(t, get(s.pages(), "/metrics").Body.String(),
		`quorate_calls_put_off_total{namespace="shop",reason="memory"} 1`)
	hog.end()
	require.Zero(t, s.memory.held)
	s.options.CallTimeout = time.Minute
	require.Equal(t, http.StatusOK, post(h, "/sync", steady(t)).Code)
	require.Zero(t, s.memory.held)
	require.Empty(t, s.memory.tenants)
}

// TestOfAnUnknownLength: a body whose length is not told counts as the largest.
func TestOfAnUnknownLength(t *testing.T) {
	s, _ := testServer(Options{CallTimeout: time.Minute})
	h := s.Handler()
	hog, err := s.large.take(t.Context(), "other", 1)
	require.NoError(t, err)
	done := make(chan int)
	go func() {
		w := newRecorder()
		h.ServeHTTP(w, chunked(steady(t)))
		done <- w.Code
	}()
	select {
	case <-done:
		t.Fatal("it did not wait")
	case <-time.After(50 * time.Millisecond):
	}
	hog.end()
	require.Equal(t, http.StatusOK, <-done)
}
