package server

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
)

// streams has the schedule of a call store what changes, in a cluster that serves.
func streams(r map[string]any) {
	done(r)
	at(r, "parent", "spec")["stream"] = map[string]any{}
	at(r, "children")["Pod.v1"] = map[string]any{}
	r["related"] = map[string]any{"EtcdCluster.etcd.quorate.dev/v1alpha1": map[string]any{"orders": map[string]any{
		"apiVersion": "etcd.quorate.dev/v1alpha1", "kind": "EtcdCluster",
		"metadata": map[string]any{"name": "orders", "namespace": "shop", "uid": "uid-orders"},
		"spec":     map[string]any{"version": "3.6.16"},
		"status": map[string]any{"clusterID": "2c119c3b", "members": []any{map[string]any{"name": "orders-0",
			"role": "Voter"}}, "conditions": []any{map[string]any{"type": "Available", "status": "True",
			"reason": "Serving", "message": "", "lastTransitionTime": "2026-11-22T03:00:00Z"}}},
	}}}
}

// TestAStreamIsAnswered: the pod is made, kept as it is told, and let go with its schedule.
func TestAStreamIsAnswered(t *testing.T) {
	const pod = "orders-hourly-5d3c0a52-stream-1"
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	s.options.Verify, s.options.Settings = true, observation.Settings{}
	s.options.Settings.Images.Image = "quorate:v1"
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, streams))
	require.Equal(t, 200, w.Code, w.Body.String())
	made := toldOf(t, w.Body.Bytes())[pod]
	require.NotNil(t, made, w.Body.String())
	assert.Equal(t, "Pod", made["kind"])
	assert.Equal(t, map[string]any{"pod": nil}, map[string]any{"pod": at(generic(t, w.Body.Bytes()), "status")["stream"]},
		"it is not there yet")
	assert.Contains(t, get(s.pages(), "/metrics").Body.String(),
		`quorate_schedule_streaming{cluster="orders",namespace="shop",schedule="orders-hourly"} 0`)

	runs := func(r map[string]any) {
		streams(r)
		there := generic(t, raw(t, made))
		at(there, "metadata")["uid"] = "uid-pod"
		at(there, "metadata", "annotations")[lastApplied] = string(raw(t, made))
		there["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
		at(r, "children", "Pod.v1")[pod] = there
	}
	w = post(s.Handler(), "/schedules/sync", aScheduleCall(t, runs))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, made["spec"], toldOf(t, w.Body.Bytes())[pod]["spec"], "as it was told")
	assert.Equal(t, pod, at(generic(t, w.Body.Bytes()), "status", "stream")["pod"])

	w = post(s.Handler(), "/schedules/finalize", aScheduleCall(t, runs, func(r map[string]any) {
		r["finalizing"] = true
		at(r, "parent", "metadata")["deletionTimestamp"] = "2026-11-22T03:29:00Z"
	}))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.NotContains(t, toldOf(t, w.Body.Bytes()), pod)
}

// TestAStreamNeedsItsController: an answer without pods would make one after the other.
func TestAStreamNeedsItsController(t *testing.T) {
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, streams, func(r map[string]any) {
		delete(at(r, "children"), "Pod.v1")
	}))
	require.Equal(t, 400, w.Code, w.Body.String())
	assert.Contains(t, w.Body.String(), "spec.stream needs the CompositeController of this version")
}

// TestRelatedToASchedule: its cluster, and only for a stream.
func TestRelatedToASchedule(t *testing.T) {
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	ask := func(edits ...func(map[string]any)) string {
		return post(s.Handler(), "/schedules/customize", aScheduleCall(t, edits...)).Body.String()
	}
	assert.JSONEq(t, `{"relatedResources":[{"apiVersion":"etcd.quorate.dev/v1alpha1","resource":"etcdclusters"}]}`, ask(),
		"by the name alone")
	s.options.RelatedByUID = true
	assert.NotContains(t, ask(), "etcdclusters")
	assert.JSONEq(t, `{"relatedResources":[{"apiVersion":"etcd.quorate.dev/v1alpha1","resource":"etcdclusters",`+
		`"namespace":"shop","names":["orders"]}]}`, ask(streams))
}
