package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/internal/ui"
)

// opened is a page that a person opens: all that it shows of the first cluster, as it does in a browser.
func opened(ctx context.Context, _ int, source ui.Source, told func(string)) error {
	told("http://127.0.0.1:4321/")
	clusters, err := source.Clusters(ctx)
	if err != nil {
		return err
	}
	of := clusters[0].Name
	_, failed := source.History(ctx, of)
	_, err = source.Explain(ctx, of, time.Time{})
	failed = errors.Join(failed, err)
	_, err = source.Stored(ctx, of)
	failed = errors.Join(failed, err)
	_, err = source.Contents(ctx, of)
	return errors.Join(failed, err)
}

// page is what the page shows of this Kubernetes.
func (k *kube) page(show func(source ui.Source)) (code int, out, errs string) {
	var stdout, stderr bytes.Buffer
	p := k.waiting(func() {})
	p.Out, p.Err = &stdout, &stderr
	p.serve = func(_ context.Context, _ int, source ui.Source, told func(string)) error {
		told("http://127.0.0.1:4321/")
		show(source)
		return nil
	}
	code = p.Run(k.t.Context(), []string{"ui", "-n", "shop", "--context=it's"})
	return code, stdout.String(), stderr.String()
}

var ofOrders = ui.Name{Namespace: "shop", Name: "orders"}

// TestPage shows members by their status and their pods, of which the newer counts.
func TestPage(t *testing.T) {
	k := steady(t)
	pod := k.child("Pod orders-2")
	within(pod, "metadata")["deletionTimestamp"] = "2026-03-01T11:59:00Z"
	k.says["get pods -l etcd.quorate.dev/cluster -o json -n shop"] = string(listOf(k.ofKind("Pod")...))
	k.says["get pvc -l etcd.quorate.dev/cluster -o json -n shop"] = string(listOf(k.ofKind("PersistentVolumeClaim")...))
	var shown []ui.Cluster
	code, out, errs := k.page(func(source ui.Source) {
		var err error
		shown, err = source.Clusters(t.Context())
		require.NoError(t, err)
	})
	require.Zero(t, code, errs)
	assert.Contains(t, out, "http://127.0.0.1:4321/\nOnly this machine reaches it")
	require.Len(t, shown, 1)
	c := shown[0]
	assert.Equal(t, " -n shop '--context=it'\\''s'", c.Flags)
	assert.Equal(t, ui.Calm, c.Mood)
	assert.Equal(t, 2, c.Ready)
	require.Len(t, c.Members, 3)
	first, last := c.Members[0], c.Members[2]
	assert.True(t, first.Leads)
	assert.Equal(t, "serves", first.State)
	assert.Equal(t, "Bound", first.Volume)
	assert.Positive(t, first.Capacity)
	assert.Positive(t, first.Quota)
	assert.Equal(t, "stopping", last.State)
	assert.False(t, last.Ready)

	k.fails["get "+clusters] = "it is (Forbidden)"
	code, out, errs = k.page(func(ui.Source) { t.Error("there is nothing to show") })
	assert.Equal(t, exitTrouble, code)
	assert.Empty(t, out)
	assert.Contains(t, errs, "ask your Kubernetes administrator for that right")
}

// TestPageOfThePast is drawn by the journal; without one it has the words of the status.
func TestPageOfThePast(t *testing.T) {
	k := steady(t)
	k.says["get pods -n quorate-system"] = string(listOf(k.child("Pod orders-0")))
	k.says[execJournal] = journalOf(t, noon.Add(-2*time.Hour), noon.Add(-time.Hour))
	code, _, errs := k.page(func(source ui.Source) {
		h, err := source.History(t.Context(), ofOrders)
		require.NoError(t, err)
		assert.Empty(t, h.Note)
		require.Len(t, h.Moments, 2)
		assert.Equal(t, noon.Add(-2*time.Hour), h.Moments[0].Time.UTC())
		assert.Equal(t, "Suspended", h.Moments[1].Cluster.Status)
		assert.NotNil(t, h.Moments[1].Cluster.Members)
		text, err := source.Explain(t.Context(), ofOrders, h.Moments[0].Time)
		require.NoError(t, err)
		assert.Contains(t, text, "STATUS")
		text, err = source.Explain(t.Context(), ofOrders, time.Time{})
		require.NoError(t, err)
		assert.Contains(t, text, "The decision breaks none of the rules of safety")

		k.fails[execJournal] = "it is (Forbidden)"
		within(k.cluster, "status")["history"] = []any{map[string]any{"time": "2026-03-01T11:00:00Z", "rule": "Promote",
			"step": "promote orders-2", "message": "promoting orders-2"}}
		h, err = source.History(t.Context(), ofOrders)
		require.NoError(t, err)
		assert.Contains(t, h.Note, "(Forbidden)")
		require.Len(t, h.Moments, 1)
		assert.Equal(t, []string{"etcd: promote orders-2"}, h.Moments[0].Changes)
		assert.Nil(t, h.Moments[0].Cluster.Members)
	})
	require.Zero(t, code, errs)
}

// TestPageOfBackups: which snapshots can be restored, and how far a stream goes that has stopped.
func TestPageOfBackups(t *testing.T) {
	k := steady(t)
	k.streamed()
	k.says["get "+schedules] = strings.Replace(k.says["get "+schedules], `{"metadata":{"name":"nightly"},`,
		`{"metadata":{"name":"nightly"},"status":{"stream":{"base":"nightly-1"},"conditions":[{"type":"Streaming",
		"status":"False","lastTransitionTime":"2026-03-01T11:50:00Z","message":"no room"}]},`, 1)
	code, _, errs := k.page(func(source ui.Source) {
		s, err := source.Stored(t.Context(), ofOrders)
		require.NoError(t, err)
		text, err := json.MarshalIndent(s, "", "  ")
		require.NoError(t, err)
		golden(t, "ui-stored", strings.TrimSpace(string(text))+"\n")
	})
	require.Zero(t, code, errs)
}

// TestPageOfContents: what fills a cluster by its newest account, beside who writes by the first stream that tells it.
func TestPageOfContents(t *testing.T) {
	k := steady(t)
	contents := func() *ui.Contents {
		var shown *ui.Contents
		code, _, errs := k.page(func(source ui.Source) {
			var err error
			shown, err = source.Contents(t.Context(), ofOrders)
			require.NoError(t, err)
		})
		require.Zero(t, code, errs)
		return shown
	}
	assert.Equal(t, &ui.Contents{Notes: []string{}, Prefixes: []ui.Prefix{}}, contents())
	k.filled()
	k.streaming(fmt.Sprintf(writesTold, `,"prefixes":[{"prefix":"/registry/","keys":12,"writes":40},
		{"prefix":"/registry/pods/","keys":9,"writes":10},{"prefix":"/elsewhere/","keys":3,"writes":30}]`))
	shown := contents()
	assert.Equal(t, []string{"pod nightly-stream-1, the stream of nightly, does not tell who writes: this version can't " +
		"pod/nightly-stream-1"}, shown.Notes)
	assert.Equal(t, "10:20:30 11:00:00 11:00:00", shown.From.Format(time.TimeOnly)+" "+shown.To.Format(time.TimeOnly)+
		" "+shown.Time.Format(time.TimeOnly))
	assert.Equal(t, []ui.Prefix{
		{Prefix: "/registry/leases/", Keys: 50, Bytes: 1_600_000},
		{Prefix: "/registry/pods/shop/", Keys: 600, Bytes: 9_000_000},
		{Prefix: "/registry/pods/", Writes: 10},
		{Prefix: "/elsewhere/", Writes: 30},
	}, shown.Prefixes)
}
