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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
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

// keysOf is the steady request with so many related Secrets of so many keys, and one of the cluster's own. The first is asked for. It is about
// a cluster of this namespace.
func keysOf(t testing.TB, secrets, keys int, namespace string) []byte {
	data := manyKeys(keys)
	raw := edited(t, func(r map[string]any) {
		secret := func(name string) map[string]any {
			return map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": "shop", "uid": name}, "data": data}
		}
		related := map[string]any{}
		for i := range secrets {
			name := fmt.Sprintf("secret-%d", i)
			related[name] = secret(name)
		}
		r["related"] = map[string]any{groupSecrets: related}
		at(r, "children", groupSecrets)["orders-client-tls"] = secret("orders-client-tls")
		at(r, "parent", "spec")["auth"] = map[string]any{"rootPasswordSecret": map[string]any{"name": "secret-0"}}
	})
	return []byte(strings.ReplaceAll(string(raw), `"shop"`, fmt.Sprintf("%q", namespace)))
}

// TestKeysThatNothingAsksFor: of a Secret with 60,000 keys that is read which a decision can ask for, and little memory is taken.
func TestKeysThatNothingAsksFor(t *testing.T) {
	body := keysOf(t, 10, 60_000, "shop")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := decode(t.Context(), bytes.NewBuffer(body))
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "of a call of %d bytes", len(body))
	require.Equal(t, map[string]map[string][]byte{"secret-0": {"password": []byte("secret")}}, r.related)
	require.Equal(t, []string{"password"}, r.Related.Secrets["secret-0"].Keys)
	require.Len(t, r.Related.Secrets, 1, "what nothing names is not read")
	require.Len(t, r.secrets["orders-client-tls"], mostOthers+1, "what others keep there stays, up to a point")
	require.Less(t, r.made, int64(1<<20))
}

// TestWhoseCallsAreLarge: 20 calls of 8 MB at once take memory for one, and a small call among them is answered.
func TestWhoseCallsAreLarge(t *testing.T) {
	body := keysOf(t, 10, 60_000, "hostile")
	small := steady(t)
	s, _ := testServer(Options{})
	s.options.CallTimeout = time.Minute
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
	require.Less(t, most.Load()-m.HeapAlloc, uint64(64<<20))
}

// shapes are JSON that becomes much when it is decoded: what stands between the items is what one of them has, in the shortest way that an API
// server sends it.
func shapes() map[string]struct {
	before, item, after, field string
	into                       func() any
} {
	type shape = struct {
		before, item, after, field string
		into                       func() any
	}
	pod := func() any { return &wire[corev1.PodSpec, corev1.PodStatus]{} }
	return map[string]shape{
		"rules of a policy":   {`{"spec":{"ingress":[`, `{}`, `]}}`, groupPolicies, func() any { return &wire[networkingv1.NetworkPolicySpec, struct{}]{} }},
		"volumes":             {`{"spec":{"volumes":[`, `{"name":"a","emptyDir":{}}`, `]}}`, groupPods, pod},
		"containers":          {`{"spec":{"containers":[`, `{"name":"a","resources":{}}`, `]}}`, groupPods, pod},
		"environment":         {`{"spec":{"containers":[{"env":[`, `{"name":"a"}`, `]}]}}`, groupPods, pod},
		"statuses":            {`{"status":{"containerStatuses":[`, `{"name":"","state":{},"lastState":{},"ready":false,"restartCount":0,"image":"","imageID":""}`, `]}}`, groupPods, pod},
		"tolerations":         {`{"spec":{"tolerations":[`, `{"operator":"Exists"}`, `]}}`, groupPods, pod},
		"lists of strings":    {`{"spec":{"containers":[{"args":[`, `""`, `]}]}}`, groupPods, pod},
		"finalizers":          {`{"metadata":{"finalizers":[`, `"a"`, `]}}`, groupJobs, func() any { return &wire[batchv1.JobSpec, batchv1.JobStatus]{} }},
		"owners":              {`{"metadata":{"ownerReferences":[`, `{"name":"","uid":""}`, `]}}`, groupPods, pod},
		"history of a status": {`{"status":{"history":[`, `{}`, `]}}`, "parent", func() any { return &wire[v1alpha1.EtcdClusterSpec, v1alpha1.EtcdClusterStatus]{} }},
		"members of a status": {`{"status":{"members":[`, `{}`, `]}}`, "parent", func() any { return &wire[v1alpha1.EtcdClusterSpec, v1alpha1.EtcdClusterStatus]{} }},
	}
}

// TestWeigh: what is made of JSON takes less memory than weigh says, also for the worst of shapes.
func TestWeigh(t *testing.T) {
	for name, shape := range shapes() {
		t.Run(name, func(t *testing.T) {
			text := []byte(shape.before + strings.Repeat(shape.item+",", 20_000) + shape.item + shape.after)
			in, err := newSource(bytes.NewBuffer(text))
			require.NoError(t, err)
			in.room, in.ample, in.made = 1<<40, false, 0
			into := shape.into()
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			require.NoError(t, value(in, "x", into))
			runtime.GC()
			runtime.ReadMemStats(&after)
			took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d bytes of JSON take %d, and weigh %d", len(text), took, in.made)
			require.Less(t, took, in.made)
			runtime.KeepAlive(into)
		})
	}
	for text, length := range map[string]int64{`"a\"b" x`: 6, `{"a":"}"}]`: 9, `12,`: 2, `12`: 2, `: [1,[2]],`: 8, ``: 0, `"a\`: 3} {
		values := int64(1 + strings.Count(text, "{") + strings.Count(strings.TrimPrefix(text, ":"), "[")*1)
		require.InDelta(t, length+perValue*values, weigh([]byte(text)), 3*perValue, text)
	}
}

// TestValuesThatBecomeTooMuch: a call whose values would take too much memory is refused, by the name of the object, before they do.
func TestValuesThatBecomeTooMuch(t *testing.T) {
	s, _ := testServer(Options{})
	h := s.Handler()
	body := edited(t, func(r map[string]any) {
		at(r, "children", groupPolicies)["orders"] = map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
			"metadata": map[string]any{"name": "orders", "namespace": "shop", "uid": "u"},
			"spec":     map[string]any{"ingress": json.RawMessage("[" + strings.Repeat("{},", 500_000) + "{}]")}}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := post(h, "/sync", body)
	runtime.ReadMemStats(&after)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	require.Contains(t, errorOf(t, w), `children["NetworkPolicy.networking.k8s.io/v1"]["orders"] holds more values than a call of`)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20))
}

// TestWhatIsUsualIsFarBelow: a call about a cluster of three takes a third of the room that it has at most.
func TestWhatIsUsualIsFarBelow(t *testing.T) {
	body := steady(t)
	r, err := decode(t.Context(), bytes.NewBuffer(body))
	require.NoError(t, err)
	t.Logf("%d bytes, %d made", len(body), r.made)
	require.Less(t, 3*r.made, roomFor(int64(len(body))))
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
	require.Contains(t, get(s.Pages(), "/metrics").Body.String(), `quorate_calls_put_off_total{namespace="shop",reason="memory"} 1`)
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

// TestWhoIsFound: whom a call is about, wherever that stands, and in how few bytes.
func TestWhoIsFound(t *testing.T) {
	body := steady(t)
	want := whose{Namespace: "shop", Name: "orders", UID: "12c500ed-0b78-7910-5fb4-6af0f246be87"}
	require.Equal(t, want, identify(body))
	require.Equal(t, want, identify(body[:20_000]), "Metacontroller sends it before the children")
	require.Equal(t, want, identify(edited(t, func(map[string]any) {})), "behind them")
	for _, nothing := range []string{"", "x", "[]", `{"parent":[]}`, `{"parent":{"metadata":7}}`, `{"children":{`} {
		require.Equal(t, whose{}, identify([]byte(nothing)))
	}
}
