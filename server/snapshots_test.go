package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/server/metrics"
)

// aSnapshotCall is the call in which the Job's report is first seen, with changes.
func aSnapshotCall(t testing.TB, edit func(request map[string]any)) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/snapshot.json")
	require.NoError(t, err)
	var r map[string]any
	require.NoError(t, json.Unmarshal(raw, &r))
	if edit != nil {
		edit(r)
	}
	raw, err = json.Marshal(r)
	require.NoError(t, err)
	return raw
}

// snapshotServer is a server on the morning of the fixture.
func snapshotServer() (*Server, *bytes.Buffer) {
	s, log := testServer(Options{Metrics: metrics.New("v1.2.3", "0123abc")})
	s.now = func() time.Time { return time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC) }
	return s, log
}

func being(deleted bool) func(map[string]any) {
	return func(r map[string]any) {
		r["finalizing"] = deleted
		if deleted {
			at(r, "parent", "metadata")["deletionTimestamp"] = "2026-03-01T09:00:00Z"
		}
	}
}

func TestSnapshotIsAnswered(t *testing.T) {
	s, log := snapshotServer()
	w := post(s.Handler(), "/snapshots/sync", aSnapshotCall(t, nil))
	require.Equal(t, 200, w.Code, w.Body.String())
	a := generic(t, w.Body.Bytes())
	status := at(a, "status")
	require.Equal(t, "Succeeded", status["phase"])
	require.Equal(t, "s3://backups/etcd/shop/orders/nightly-5a2f7c1e.db.zst?region=eu-west-1", status["uri"])
	require.Equal(t, "20Mi", status["size"])
	require.Len(t, a["children"], 1, "the Job stays for an hour")
	require.NotContains(t, a, "finalized")
	require.Contains(t, log.String(), `"snapshot":"shop/nightly"`)
	require.NotContains(t, log.String(), `"cluster":"shop/nightly"`)
	text := get(s.pages(), "/metrics").Body.String()
	for _, line := range []string{
		`quorate_snapshots_total{phase="Succeeded"} 1`, `quorate_decisions_total{rule="SnapshotSucceeded"} 1`,
		`quorate_snapshot_stored_timestamp_seconds{cluster="orders",namespace="shop"} 1.772355547e+09`,
		`quorate_snapshot_verified_timestamp_seconds{cluster="orders",namespace="shop"} 1.772355547e+09`,
		`quorate_hook_duration_seconds_count{code="200",hook="snapshots/sync"} 1`, "quorate_clusters 0",
	} {
		require.Contains(t, text, line)
	}
}

// TestStoredSnapshotsCount: what is stored and could not be verified is told as stored, and not as verified.
func TestStoredSnapshotsCount(t *testing.T) {
	s, _ := snapshotServer()
	w := post(s.Handler(), "/snapshots/sync", aSnapshotCall(t, func(r map[string]any) {
		pods := at(r, "related", groupPods)
		for _, pod := range pods {
			status := at(pod.(map[string]any), "status")
			status["phase"] = "Failed"
			terminated := at(status["containerStatuses"].([]any)[0].(map[string]any), "state", "terminated")
			terminated["exitCode"] = 1
			terminated["message"] = `{"uri":"s3://backups/x","storedSize":7,"completed":"2026-03-01T08:59:07Z","error":"it is stored, but not verified (why)"}`
		}
		job := at(r, "children", groupJobs, "nightly-5a2f7c1e-snapshot-1", "status")
		clear(job)
		job["conditions"] = []any{map[string]any{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}}
	}))
	require.Equal(t, 200, w.Code, w.Body.String())
	require.Equal(t, "Stored", at(generic(t, w.Body.Bytes()), "status")["phase"])
	text := get(s.pages(), "/metrics").Body.String()
	require.Contains(t, text, `quorate_snapshots_total{phase="Stored"} 1`)
	require.Contains(t, text,
		`quorate_snapshot_stored_timestamp_seconds{cluster="orders",namespace="shop"} 1.772355547e+09`)
	require.NotContains(t, text, "quorate_snapshot_verified_timestamp_seconds{")
}

func TestSnapshotIsFinalized(t *testing.T) {
	s, _ := snapshotServer()
	w := post(s.Handler(), "/snapshots/finalize", aSnapshotCall(t, being(true)))
	require.Equal(t, 200, w.Code, w.Body.String())
	a := generic(t, w.Body.Bytes())
	require.Equal(t, false, a["finalized"])
	require.Equal(t, "Deleting", at(a, "status")["phase"])
	w = post(s.Handler(), "/snapshots/finalize", aSnapshotCall(t, func(r map[string]any) {
		being(true)(r)
		at(r, "parent", "spec")["deletionPolicy"] = "Retain"
	}))
	require.Equal(t, true, generic(t, w.Body.Bytes())["finalized"])
}

func TestSnapshotCustomizeDependsOnTheNameAlone(t *testing.T) {
	s, _ := snapshotServer()
	ask := func(edit func(map[string]any)) string {
		w := post(s.Handler(), "/snapshots/customize", aSnapshotCall(t, edit))
		require.Equal(t, 200, w.Code, w.Body.String())
		return w.Body.String()
	}
	first := ask(nil)
	require.JSONEq(t, `{"relatedResources":[
		{"apiVersion":"v1","resource":"pods","labelSelector":{"matchLabels":{"etcd.quorate.dev/snapshot":"nightly"}}},
		{"apiVersion":"etcd.quorate.dev/v1alpha1","resource":"etcdclusters"}]}`, first)
	require.Equal(t, first, ask(func(r map[string]any) {
		at(r, "parent", "metadata")["namespace"] = "other"
		at(r, "parent", "spec")["cluster"] = "another"
	}))
}

// TestRefusedSnapshots: what can't be whole is refused, since Metacontroller deletes what an answer omits (S13).
func TestRefusedSnapshots(t *testing.T) {
	for says, c := range map[string]struct {
		path string
		edit func(map[string]any)
	}{
		"parent is missing": {"", func(r map[string]any) { delete(r, "parent") }},
		"parent.kind must be EtcdSnapshot": {"",
			func(r map[string]any) { at(r, "parent")["kind"] = "EtcdCluster" }},
		`children["Job.batch/v1"] is missing`: {"", func(r map[string]any) { r["children"] = map[string]any{} }},
		"is a group that this version does not know": {"",
			func(r map[string]any) { at(r, "children")["CronJob.batch/v1"] = map[string]any{} }},
		`related["Pod.v1"] is missing`: {"",
			func(r map[string]any) { delete(at(r, "related"), groupPods) }},
		`related["EtcdCluster.etcd.quorate.dev/v1alpha1"]`: {"",
			func(r map[string]any) { r["related"] = map[string]any{} }},
		"namespace is not the parent's": {"", func(r map[string]any) {
			at(r, "children", groupJobs, "nightly-5a2f7c1e-snapshot-1", "metadata")["namespace"] = "other"
		}},
		"finalizing is true":              {"", being(true)},
		"the hook is /snapshots/finalize": {"/snapshots/finalize", nil},
		"parent.metadata.namespace is missing": {"", func(r map[string]any) {
			delete(at(r, "parent", "metadata"),
				"namespace")
		}},
		"parent.metadata.uid is missing": {"/snapshots/customize",
			func(r map[string]any) { delete(at(r, "parent", "metadata"), "uid") }},
		"parent is missing ": {"/snapshots/customize", func(r map[string]any) { delete(r, "parent") }},
	} {
		t.Run(says, func(t *testing.T) {
			s, _ := snapshotServer()
			path := c.path
			if path == "" {
				path = "/snapshots/sync"
			}
			w := post(s.Handler(), path, aSnapshotCall(t, c.edit))
			require.Equal(t, 400, w.Code, w.Body.String())
			require.Contains(t, errorOf(t, w)+" ", says)
		})
	}
	s, _ := snapshotServer()
	require.Equal(t, 400, post(s.Handler(), "/snapshots/sync", append(aSnapshotCall(t, nil), '{')).Code)
	require.Equal(t, 400, post(s.Handler(), "/snapshots/sync", aSnapshotCall(t, nil)[:500]).Code)
}

// FuzzSnapshot: whatever JSON the wire takes is decided without a panic, twice alike, and what is answered comes to
// rest.
func FuzzSnapshot(f *testing.F) {
	for _, deleted := range []bool{false, true} {
		f.Add(aSnapshotCall(f, being(deleted)), []byte{}, deleted)
		for way := range byte(20) {
			f.Add(aSnapshotCall(f, being(deleted)), []byte{way, way / 2, way, 1, 0, way, 2, way, way, 1, 0, 2, way, 0,
				0,
				way + 3}, deleted)
		}
	}
	f.Fuzz(func(t *testing.T, body, edits []byte, deleted bool) {
		s, _ := snapshotServer()
		s.log = slog.New(slog.DiscardHandler)
		h, path := s.Handler(), "/snapshots/sync"
		if deleted {
			path = "/snapshots/finalize"
		}
		request := nonsensical(body, edits)
		answered := ask(t, h, path, request)
		if answered == nil {
			return
		}
		require.Equal(t, string(answered), string(ask(t, h, path, request)), "the same again")
		for range 10 {
			next := generic(t, request)
			at(next, "parent")["status"] = generic(t, answered)["status"]
			raw, err := json.Marshal(next)
			require.NoError(t, err)
			again := ask(t, h, path, raw)
			require.NotNil(t, again, "an answer that is sent back is refused: %s", answered)
			if bytes.Equal(again, answered) {
				return
			}
			answered = again
		}
		t.Fatalf("never at rest: %s", answered)
	})
}

// BenchmarkSnapshot is one call about a snapshot that is finished, as each status write of a cluster in its namespace
// causes.
func BenchmarkSnapshot(b *testing.B) {
	s, _ := snapshotServer()
	s.log = slog.New(slog.DiscardHandler)
	h, request := s.Handler(), aSnapshotCall(b, nil)
	for b.Loop() {
		if w := post(h, "/snapshots/sync", request); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}
