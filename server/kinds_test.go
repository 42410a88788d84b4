package server

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// TestAMirrorIsAnswered: the pod is made, kept as it is told, and let go with its mirror.
func TestAMirrorIsAnswered(t *testing.T) {
	const pod, metric = "standby-5d3c0a52-mirror-1",
		`quorate_mirror_mirroring{cluster="spare",mirror="standby",namespace="shop"} `
	s, log := serverAt(morning)
	s.options.Verify, s.options.Settings = true, observation.Settings{}
	s.options.Settings.Images.Image = "quorate:v1"
	w := post(s.Handler(), "/mirrors/sync", aMirrorCall(t))
	require.Equal(t, 200, w.Code, w.Body.String())
	made := toldOf(t, w.Body.Bytes())[pod]
	require.NotNil(t, made, w.Body.String())
	assert.Contains(t, get(s.pages(), "/metrics").Body.String(), metric+"0")
	assert.Contains(t, log.String(), `"mirror":"shop/standby"`)

	runs := runningPod(t, made)
	w = post(s.Handler(), "/mirrors/sync", aMirrorCall(t, runs))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, made["spec"], toldOf(t, w.Body.Bytes())[pod]["spec"], "as it was told")
	assert.Equal(t, pod, at(generic(t, w.Body.Bytes()), "status")["pod"])
	text := get(s.pages(), "/metrics").Body.String()
	assert.Contains(t, text, metric+"1")
	assert.Contains(t, text, `quorate_decisions_total{rule="MirrorMirroring"} 1`)

	promoted := func(r map[string]any) {
		at(r, "parent")["status"] = map[string]any{"promotedRevision": 4711, "conditions": []any{map[string]any{
			"type": "Promoted", "status": "True", "reason": "Promoted", "message": "",
			"lastTransitionTime": time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC).Format(time.RFC3339)}}}
	}
	w = post(s.Handler(), "/mirrors/sync", aMirrorCall(t, runs, promoted))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Empty(t, toldOf(t, w.Body.Bytes()))
	assert.NotContains(t, get(s.pages(), "/metrics").Body.String(), metric, "it has ended")

	w = post(s.Handler(), "/mirrors/finalize", aMirrorCall(t, runs, being(true)))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Empty(t, toldOf(t, w.Body.Bytes()))
	assert.Equal(t, true, generic(t, w.Body.Bytes())["finalized"])
	assert.NotContains(t, get(s.pages(), "/metrics").Body.String(), metric)
}

// anOperation is an EtcdOperation as Metacontroller sends it.
func anOperation(namespace, name, of string, edit ...func(map[string]any)) map[string]any {
	op := map[string]any{"apiVersion": "etcd.quorate.dev/v1beta1", "kind": "EtcdOperation",
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name, "generation": 1,
			"creationTimestamp": "2026-03-01T08:00:00Z"},
		"spec":   map[string]any{"clusterRef": map[string]any{"name": of}, "type": "Defragment"},
		"status": map[string]any{"observedGeneration": -1}}
	for _, e := range edit {
		e(op)
	}
	return op
}

// anOperationCall is a call about one, whose cluster says so much of it.
func anOperationCall(t *testing.T, progress []any, edits ...edit) []byte {
	t.Helper()
	return callOf(t, "operation",
		append([]edit{set(progress, "operations", "related", groupClusters, "orders", "status")}, edits...)...)
}

func progressed(phase, message string) []any {
	return []any{map[string]any{"name": "defrag", "uid": "uid-defrag", "phase": phase, "message": message}}
}

func TestOperationIsAnswered(t *testing.T) {
	s, log := serverAt(morning)
	for _, c := range []struct {
		progress []any
		edit     func(map[string]any)
		phase    string
		says     string
	}{
		{nil, func(map[string]any) {}, "Pending", "EtcdCluster orders has not been told of it yet"},
		{progressed("Running", "at it"), func(map[string]any) {}, "Running", "at it"},
		{progressed("Succeeded", "done"), func(map[string]any) {}, "Succeeded", "done"},
		{nil, func(r map[string]any) {
			r["related"] = map[string]any{"EtcdCluster.etcd.quorate.dev/v1beta1": map[string]any{}}
		}, "Pending", "EtcdCluster orders does not exist in namespace shop"},
		{progressed("Running", "again"), func(r map[string]any) {
			at(r, "parent")["status"] = map[string]any{"phase": "Failed", "message": "no", "completionTime": "2026-03-01T08:30:00Z",
				"startTime": "2026-03-01T08:29:00Z"}
		}, "Failed", "no"},
	} {
		w := post(s.Handler(), "/operations/sync", anOperationCall(t, c.progress, c.edit))
		require.Equal(t, 200, w.Code, w.Body.String())
		status := at(generic(t, w.Body.Bytes()), "status")
		require.Equal(t, c.phase, status["phase"])
		require.Equal(t, c.says, status["message"])
		require.Equal(t, c.phase == "Pending", status["startTime"] == nil)
		require.Equal(t, c.phase == "Pending" || c.phase == "Running", status["completionTime"] == nil)
	}
	require.Contains(t, log.String(), `"operation":"shop/defrag"`)
}

// TestOperationIsFinalized: one that is deleted goes once its cluster has said that it is withdrawn, or is not there.
func TestOperationIsFinalized(t *testing.T) {
	s, _ := serverAt(morning)
	none := func(r map[string]any) {
		r["related"] = map[string]any{"EtcdCluster.etcd.quorate.dev/v1beta1": map[string]any{}}
	}
	for _, c := range []struct {
		progress []any
		edit     func(map[string]any)
		goes     bool
	}{
		{nil, func(map[string]any) {}, false},
		{progressed("Running", "withdrawing it"), func(map[string]any) {}, false},
		{progressed("Failed", "withdrawn"), func(map[string]any) {}, true},
		{nil, none, true},
	} {
		w := post(s.Handler(), "/operations/finalize", anOperationCall(t, c.progress, being(true), c.edit))
		require.Equal(t, 200, w.Code, w.Body.String())
		require.Equal(t, c.goes, generic(t, w.Body.Bytes())["finalized"])
	}
	require.Equal(t, 400, post(s.Handler(), "/operations/sync", anOperationCall(t, nil, being(true),
		set(false, "finalizing"))).Code, "it waits for no children, so sync is not sent any more")
}

// TestOperationsOfOtherClustersAreNotRelated, nor those that have ended.
func TestOperationsOfOtherClustersAreNotRelated(t *testing.T) {
	r, err := wire.ReadCluster(t.Context(), bytes.NewReader(edited(t, func(r map[string]any) {
		r["related"] = map[string]any{"EtcdOperation.etcd.quorate.dev/v1beta1": map[string]any{
			"a": anOperation("shop", "ours", "orders"), "b": anOperation("shop", "theirs", "carts"),
			"c": anOperation("bank", "far", "orders"),
			"d": anOperation("shop", "ended", "orders", func(op map[string]any) {
				op["status"] = map[string]any{"phase": "Succeeded"}
			})}}
	})))
	require.NoError(t, err)
	require.Len(t, r.Related.Operations, 1)
	require.Contains(t, r.Related.Operations, "ours")
}

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
