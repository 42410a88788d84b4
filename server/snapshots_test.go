package server

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSnapshotIsAnswered(t *testing.T) {
	s, log := serverAt(morning)
	w := post(s.Handler(), "/snapshots/sync", aSnapshotCall(t))
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
	s, _ := serverAt(morning)
	w := post(s.Handler(), "/snapshots/sync", aSnapshotCall(t, func(r map[string]any) {
		pods := at(r, "related", groupPods)
		for _, pod := range pods {
			status := at(pod.(map[string]any), "status")
			status["phase"] = "Failed"
			terminated := at(status["containerStatuses"].([]any)[0].(map[string]any), "state", "terminated")
			terminated["exitCode"] = 1
			terminated["message"] = `{"uri":"s3://backups/x","storedSize":7,"completed":"2026-03-01T08:59:07Z","error":"why"}`
		}
		job := at(r, "children", groupJobs, "nightly-5a2f7c1e-snapshot-1", "status")
		clear(job)
		job["conditions"] = []any{map[string]any{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}}
	}))
	require.Equal(t, 200, w.Code, w.Body.String())
	require.Equal(t, "Unverified", at(generic(t, w.Body.Bytes()), "status")["phase"])
	text := get(s.pages(), "/metrics").Body.String()
	require.Contains(t, text, `quorate_snapshots_total{phase="Unverified"} 1`)
	require.Contains(t, text,
		`quorate_snapshot_stored_timestamp_seconds{cluster="orders",namespace="shop"} 1.772355547e+09`)
	require.NotContains(t, text, "quorate_snapshot_verified_timestamp_seconds{")
}

func TestSnapshotIsFinalized(t *testing.T) {
	s, _ := serverAt(morning)
	w := post(s.Handler(), "/snapshots/finalize", aSnapshotCall(t, being(true)))
	require.Equal(t, 200, w.Code, w.Body.String())
	a := generic(t, w.Body.Bytes())
	require.Equal(t, false, a["finalized"])
	require.Equal(t, "Deleting", at(a, "status")["phase"])
	w = post(s.Handler(), "/snapshots/finalize", aSnapshotCall(t, being(true),
		set("Retain", "deletionPolicy", "parent", "spec")))
	require.Equal(t, true, generic(t, w.Body.Bytes())["finalized"])
}

// BenchmarkSnapshot is one call about a snapshot that is finished, as each status write of a cluster in its namespace
// causes.
func BenchmarkSnapshot(b *testing.B) {
	s, _ := serverAt(morning)
	s.log = slog.New(slog.DiscardHandler)
	h, request := s.Handler(), aSnapshotCall(b)
	for b.Loop() {
		if w := post(h, "/snapshots/sync", request); w.Code != 200 {
			b.Fatal(w.Body)
		}
	}
}
