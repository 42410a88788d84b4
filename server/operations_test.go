package server

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/server/wire"
)

// anOperation is an EtcdOperation as Metacontroller sends it.
func anOperation(namespace, name, of string, edit ...func(map[string]any)) map[string]any {
	op := map[string]any{"apiVersion": "etcd.quorate.dev/v1alpha1", "kind": "EtcdOperation",
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
			r["related"] = map[string]any{"EtcdCluster.etcd.quorate.dev/v1alpha1": map[string]any{}}
		},
			"Pending", "EtcdCluster orders does not exist in namespace shop"},
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
		r["related"] = map[string]any{"EtcdCluster.etcd.quorate.dev/v1alpha1": map[string]any{}}
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
		r["related"] = map[string]any{"EtcdOperation.etcd.quorate.dev/v1alpha1": map[string]any{
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
