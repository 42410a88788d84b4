package wire

import (
	"bytes"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// shapes are JSON that becomes much when it is decoded: what stands between the items is what one of them has, in the
// shortest way that an API server sends it.
func shapes() map[string]struct {
	before, item, after, field string
	into                       func() any
} {
	type shape = struct {
		before, item, after, field string
		into                       func() any
	}
	pod := func() any { return &corev1.Pod{} }
	return map[string]shape{
		"rules of a policy": {`{"spec":{"ingress":[`, `{}`, `]}}`, "NetworkPolicy.networking.k8s.io/v1",
			func() any { return &networkingv1.NetworkPolicy{} }},
		"volumes":     {`{"spec":{"volumes":[`, `{"name":"a","emptyDir":{}}`, `]}}`, "Pod.v1", pod},
		"containers":  {`{"spec":{"containers":[`, `{"name":"a","resources":{}}`, `]}}`, "Pod.v1", pod},
		"environment": {`{"spec":{"containers":[{"env":[`, `{"name":"a"}`, `]}]}}`, "Pod.v1", pod},
		"statuses": {`{"status":{"containerStatuses":[`,
			`{"name":"","state":{},"lastState":{},"ready":false,"restartCount":0,"image":"","imageID":""}`, `]}}`,
			"Pod.v1", pod},
		"tolerations":      {`{"spec":{"tolerations":[`, `{"operator":"Exists"}`, `]}}`, "Pod.v1", pod},
		"lists of strings": {`{"spec":{"containers":[{"args":[`, `""`, `]}]}}`, "Pod.v1", pod},
		"finalizers": {`{"metadata":{"finalizers":[`, `"a"`, `]}}`, "Job.batch/v1",
			func() any { return &batchv1.Job{} }},
		"owners": {`{"metadata":{"ownerReferences":[`, `{"name":"","uid":""}`, `]}}`, "Pod.v1", pod},
		"history of a status": {`{"status":{"history":[`, `{}`, `]}}`, "parent",
			func() any { return &v1beta1.EtcdCluster{} }},
		"members of a status": {`{"status":{"members":[`, `{}`, `]}}`, "parent",
			func() any { return &v1beta1.EtcdCluster{} }},
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
	for text, length := range map[string]int64{`"a\"b" x`: 6, `{"a":"}"}]`: 9, `12,`: 2, `12`: 2, `: [1,[2]],`: 8, ``: 0,
		`"a\`: 3} {
		values := int64(1 + strings.Count(text, "{") + strings.Count(strings.TrimPrefix(text, ":"), "[")*1)
		require.InDelta(t, length+perValue*values, weigh([]byte(text)), 3*perValue, text)
	}
}

// TestWhatIsUsualIsFarBelow: a call about a cluster of three takes a third of the room that it has at most.
func TestWhatIsUsualIsFarBelow(t *testing.T) {
	body := steady(t)
	var made int64
	_, err := ReadCluster(t.Context(), Body{Buffer: bytes.NewBuffer(body), Settle: func(n int64) { made = n }})
	require.NoError(t, err)
	t.Logf("%d bytes, %d made", len(body), made)
	require.Less(t, 3*made, RoomFor(int64(len(body))))
}

// TestWhoIsFound: which parent a call is about, wherever that stands, and in how few bytes.
func TestWhoIsFound(t *testing.T) {
	body := steady(t)
	want := Identity{Namespace: "shop", Name: "orders", UID: "12c500ed-0b78-7910-5fb4-6af0f246be87"}
	require.Equal(t, want, Identify(body))
	require.Equal(t, want, Identify(body[:20_000]), "Metacontroller sends it before the children")
	require.Equal(t, want, Identify(edited(t, func(map[string]any) {})), "behind them")
	for _, nothing := range []string{"", "x", "[]", `{"parent":[]}`, `{"parent":{"metadata":7}}`, `{"children":{`} {
		require.Equal(t, Identity{}, Identify([]byte(nothing)))
	}
}
