package server

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/server/metrics"
)

// aScheduleCall is a call at half past three, while the snapshot of three o'clock is being taken, with changes.
func aScheduleCall(t testing.TB, edits ...func(request map[string]any)) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/schedule.json")
	require.NoError(t, err)
	var r map[string]any
	require.NoError(t, json.Unmarshal(raw, &r))
	for _, edit := range edits {
		edit(r)
	}
	raw, err = json.Marshal(r)
	require.NoError(t, err)
	return raw
}

func scheduleServer(clock string) (*Server, *bytes.Buffer) {
	s, log := testServer(Options{Metrics: metrics.New("v1.2.3", "0123abc")})
	now, err := time.Parse(time.RFC3339, clock)
	if err != nil {
		panic(err)
	}
	s.now = func() time.Time { return now }
	return s, log
}

const running = "orders-hourly-20261122-0300"

// done is the snapshot of three o'clock as its own hook leaves it.
func done(r map[string]any) {
	at(r, "children", groupSnapshots, running)["status"] = map[string]any{
		"phase": "Succeeded", "revision": 300, "clusterID": "2c119c3b", "authRevision": 2,
		"startTime":        "2026-11-22T03:00:05Z",
		"verificationTime": "2026-11-22T03:00:30Z",
	}
}

// toldOf are the children of an answer by name.
func toldOf(t *testing.T, body []byte) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, c := range generic(t, body)["children"].([]any) {
		child := c.(map[string]any)
		all[at(child, "metadata")["name"].(string)] = child
	}
	return all
}

func TestScheduleIsAnswered(t *testing.T) {
	s, log := scheduleServer("2026-11-22T03:30:00Z")
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, done))
	require.Equal(t, 200, w.Code, w.Body.String())
	a := generic(t, w.Body.Bytes())
	require.Equal(t, json.Number("1800"), a["resyncAfterSeconds"])
	require.NotContains(t, a, "finalized")
	status := at(a, "status")
	require.Equal(t, "2026-11-22T04:00:00Z", status["nextScheduleTime"])
	require.Equal(t, json.Number("1"), status["kept"])
	told := toldOf(t, w.Body.Bytes())
	require.Len(t, told, 1, "retention.last is 1")
	require.Contains(t, told, running)
	require.Contains(t, log.String(), `"schedule":"shop/orders-hourly"`)
	text := get(s.pages(), "/metrics").Body.String()
	for _, line := range []string{
		`quorate_schedule_verified_timestamp_seconds{cluster="orders",namespace="shop",schedule="orders-hourly"} 1.795316405e+09`,
		`quorate_schedule_success_timestamp_seconds{cluster="orders",namespace="shop",schedule="orders-hourly"} 1.795316405e+09`,
		`quorate_schedule_due_timestamp_seconds{cluster="orders",namespace="shop",schedule="orders-hourly"} 1.7953236e+09`,
		`quorate_schedule_next_timestamp_seconds{cluster="orders",namespace="shop",schedule="orders-hourly"} 1.79532e+09`,
		`quorate_schedule_created_timestamp_seconds{cluster="orders",namespace="shop",schedule="orders-hourly"} 1.795264496e+09`,
		`quorate_decisions_total{rule="ScheduleWaiting"} 1`, "quorate_clusters 0",
	} {
		require.Contains(t, text, line)
	}
}

// A snapshot that is kept is told what it was told when it was made, by the annotation that Metacontroller compares
// with: whatever has become of the template, of the defaults that the API server filled in, and of what others have
// added.
func TestKeptSnapshotsAreToldNothingNew(t *testing.T) {
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	request := aScheduleCall(t, func(r map[string]any) {
		template := at(r, "parent", "spec", "template")
		template["verify"], template["store"] = false, map[string]any{"s3": map[string]any{"bucket": "elsewhere"}}
		delete(at(r, "parent", "spec"), "retention")
	})
	w := post(s.Handler(), "/schedules/sync", request)
	require.Equal(t, 200, w.Code, w.Body.String())
	told := toldOf(t, w.Body.Bytes())
	require.Len(t, told, 3)
	for name, child := range told {
		annotations := at(generic(t, request), "children", groupSnapshots, name, "metadata", "annotations")
		last := generic(t, []byte(annotations[lastApplied].(string)))
		delete(at(last, "metadata", "labels"), "controller-uid") // Metacontroller adds it before it compares
		require.Equal(t, last, child)
	}
}

// What a person changes in a snapshot stays so.
func TestAnEditedSnapshotIsLeftSo(t *testing.T) {
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, func(r map[string]any) {
		at(r, "children", groupSnapshots, running, "spec")["deletionPolicy"] = "Retain"
	}))
	require.Equal(t, "Retain", at(toldOf(t, w.Body.Bytes())[running], "spec")["deletionPolicy"])
}

func TestANewSnapshot(t *testing.T) {
	s, _ := scheduleServer("2026-11-22T04:00:00Z")
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, done))
	require.Equal(t, 200, w.Code, w.Body.String())
	child := toldOf(t, w.Body.Bytes())["orders-hourly-20261122-0400"]
	require.JSONEq(t, `{"apiVersion":"etcd.quorate.dev/v1alpha1","kind":"EtcdSnapshot",
		"metadata":{"name":"orders-hourly-20261122-0400","namespace":"shop","labels":{"etcd.quorate.dev/cluster":"orders","etcd.quorate.dev/schedule":"orders-hourly"}},
		"spec":{"clusterRef":{"name":"orders"},"store":{"s3":{"bucket":"backups","prefix":"orders","credentialsSecretRef":{"name":"keys"}}},"compression":"Zstd","verify":true,"unless":{"revision":300,"clusterID":"2c119c3b","authRevision":2},"deletionPolicy":"Delete"}}`,
		string(raw(t, child)))
}

func raw(t *testing.T, o any) []byte {
	t.Helper()
	b, err := json.Marshal(o)
	require.NoError(t, err)
	return b
}

func TestZonesOfSchedules(t *testing.T) {
	for name, message := range map[string]string{
		"Europe/Berlin": "being taken", "": "being taken", "UTC": "being taken", "America/New_York": "being taken",
		"Europe/Belin": `no time zone "Europe/Belin"`, "Local": `no time zone "Local"`,
		"../../etc/passwd": "no time zone",
		"/etc/localtime":   "no time zone",
	} {
		s, _ := scheduleServer("2026-11-22T03:30:00Z")
		w := post(s.Handler(), "/schedules/sync", aScheduleCall(t,
			func(r map[string]any) { at(r, "parent", "spec")["timeZone"] = name }))
		require.Equal(t, 200, w.Code, w.Body.String())
		require.Contains(t, at(generic(t, w.Body.Bytes()), "status")["message"], message)
		if !strings.HasPrefix(message, "being") {
			require.Len(t, toldOf(t, w.Body.Bytes()), 3, "nothing changes")
		}
	}
}

// With deletionPolicy Retain snapshots are told their owner once, with a note, then none, and then the schedule goes.
func TestScheduleIsFinalized(t *testing.T) {
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	deleted := func(r map[string]any) {
		r["finalizing"] = true
		at(r, "parent", "metadata")["deletionTimestamp"] = "2026-11-22T03:29:00Z"
	}
	call := func(edits ...func(map[string]any)) (bool, map[string]map[string]any) {
		w := post(s.Handler(), "/schedules/finalize", aScheduleCall(t, append(edits, deleted)...))
		require.Equal(t, 200, w.Code, w.Body.String())
		require.Contains(t, w.Body.String(), `"lastScheduleTime":"2026-11-22T03:00:00Z"`, "the status stays")
		finalized, _ := generic(t, w.Body.Bytes())["finalized"].(bool)
		return finalized, toldOf(t, w.Body.Bytes())
	}
	finalized, told := call()
	require.False(t, finalized)
	require.Len(t, told, 3)
	require.Len(t, at(told[running], "metadata")["ownerReferences"], 1)
	require.Equal(t, map[string]any{"etcd.quorate.dev/retained-of": "orders-hourly"},
		at(told[running], "metadata")["annotations"])

	finalized, told = call(func(r map[string]any) {
		for name := range at(r, "children", groupSnapshots) {
			at(r, "children", groupSnapshots, name, "metadata",
				"annotations")["etcd.quorate.dev/retained-of"] = "orders-hourly"
		}
	})
	require.False(t, finalized)
	require.Len(t, told, 3)
	require.NotContains(t, at(told[running], "metadata"), "ownerReferences")

	finalized, told = call(func(r map[string]any) { at(r, "children")[groupSnapshots] = map[string]any{} })
	require.True(t, finalized)
	require.Empty(t, told)

	finalized, told = call(func(r map[string]any) { at(r, "parent", "spec")["deletionPolicy"] = "Delete" })
	require.True(t, finalized)
	require.Len(t, told, 3, "they go with their owner, by Kubernetes")
	require.NotContains(t, at(told[running], "metadata"), "ownerReferences")
	require.NotContains(t, get(s.pages(), "/metrics").Body.String(), "quorate_schedule_next_timestamp_seconds{")
}

func TestRefusedSchedules(t *testing.T) {
	for says, c := range map[string]struct {
		path string
		edit func(map[string]any)
	}{
		"parent is missing": {"", func(r map[string]any) { delete(r, "parent") }},
		"parent.kind must be EtcdSnapshotSchedule": {"",
			func(r map[string]any) { at(r, "parent")["kind"] = "EtcdSnapshot" }},
		"is missing: the CompositeController has no": {"", func(r map[string]any) { r["children"] = map[string]any{} }},
		"is a group that this version does not know": {"",
			func(r map[string]any) { at(r, "children")["Job.batch/v1"] = map[string]any{} }},
		"metadata.namespace is not the parent's": {"",
			func(r map[string]any) { at(r, "children", groupSnapshots, running, "metadata")["namespace"] = "other" }},
		"parent.metadata.namespace is missing": {"",
			func(r map[string]any) { delete(at(r, "parent", "metadata"), "namespace") }},
		"finalizing is true":              {"", func(r map[string]any) { r["finalizing"] = true }},
		"the hook is /schedules/finalize": {"/schedules/finalize", func(map[string]any) {}},
		"parent.spec.retention.last can't be": {"",
			func(r map[string]any) { at(r, "parent", "spec", "retention")["last"] = "two" }},
		"parent.spec.startingDeadlineSeconds can't be": {"",
			func(r map[string]any) { at(r, "parent", "spec")["startingDeadlineSeconds"] = "soon" }},
		"parent.metadata.creationTimestamp can't be": {"",
			func(r map[string]any) { at(r, "parent", "metadata")["creationTimestamp"] = "yesterday" }},
		"status.verificationTime can't be": {"",
			func(r map[string]any) {
				at(r, "children", groupSnapshots, running, "status")["verificationTime"] = "no"
			}},
		`["orders-hourly-20261122-0300"].kind must be`: {"",
			func(r map[string]any) { at(r, "children", groupSnapshots, running)["kind"] = "Pod" }},
		"metadata.uid is missing": {"",
			func(r map[string]any) { delete(at(r, "children", groupSnapshots, running, "metadata"), "uid") }},
		"parent.metadata.uid is missing": {"",
			func(r map[string]any) { delete(at(r, "parent", "metadata"), "uid") }},
		"parent.apiVersion must be etcd.quorate.dev/v1": {"",
			func(r map[string]any) { at(r, "parent")["apiVersion"] = "v1" }},
	} {
		t.Run(says, func(t *testing.T) {
			s, _ := scheduleServer("2026-11-22T03:30:00Z")
			path := c.path
			if path == "" {
				path = "/schedules/sync"
			}
			w := post(s.Handler(), path, aScheduleCall(t, c.edit))
			require.Equal(t, 400, w.Code, w.Body.String())
			require.Contains(t, errorOf(t, w), says)
		})
	}
	s, _ := scheduleServer("2026-11-22T03:30:00Z")
	require.Equal(t, 400, post(s.Handler(), "/schedules/sync", append(aScheduleCall(t), '{')).Code)
	require.Equal(t, 400, post(s.Handler(), "/schedules/sync", aScheduleCall(t)[:2000]).Code)
}

// FuzzSchedule: whatever JSON the wire takes is decided without a panic, twice alike, and the status that is answered
// comes to rest. No deletion comes from the hook finalize.
func FuzzSchedule(f *testing.F) {
	for way := range byte(24) {
		f.Add(aScheduleCall(f), []byte{way, way / 2, way, 1, 0, way, 2, way, way, 1, 0, 2, way, 0, 0, way + 3})
	}
	f.Fuzz(func(t *testing.T, body, edits []byte) {
		s, _ := scheduleServer("2026-11-22T04:00:00Z")
		s.log = slog.New(slog.DiscardHandler)
		h := s.Handler()
		request := nonsensical(body, edits)
		answered := ask(t, h, "/schedules/sync", request)
		if answered == nil {
			return
		}
		require.Equal(t, string(answered), string(ask(t, h, "/schedules/sync", request)), "the same again")
		for range 3 {
			next := generic(t, request)
			at(next, "parent")["status"] = generic(t, answered)["status"]
			again := ask(t, h, "/schedules/sync", raw(t, next))
			require.NotNil(t, again, "an answer that is sent back is refused: %s", answered)
			if bytes.Equal(again, answered) {
				deleted := generic(t, request)
				deleted["finalizing"] = true
				at(deleted, "parent", "metadata")["deletionTimestamp"] = "2026-11-22T03:00:00Z"
				left := ask(t, h, "/schedules/finalize", raw(t, deleted))
				require.NotNil(t, left, "what /schedules/sync takes, /schedules/finalize takes")
				require.Len(t, toldOf(t, left), len(at(deleted, "children", groupSnapshots)))
				return
			}
			answered = again
		}
		t.Fatalf("never at rest: %s", answered)
	})
}
