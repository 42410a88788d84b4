package server

import (
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
)

const running = "orders-hourly-20261122-0300"

// done is the snapshot of three o'clock as its own hook leaves it.
func done(r map[string]any) {
	at(r, "children", groupSnapshots, running)["status"] = map[string]any{
		"phase": "Succeeded", "revision": 300, "clusterID": "2c119c3b", "authRevision": 2,
		"startTime":        "2026-11-22T03:00:05Z",
		"verificationTime": "2026-11-22T03:00:30Z",
	}
}

func TestScheduleIsAnswered(t *testing.T) {
	s, log := serverAt(halfPast)
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
	s, _ := serverAt(halfPast)
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
	s, _ := serverAt(halfPast)
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, func(r map[string]any) {
		at(r, "children", groupSnapshots, running, "spec")["deletionPolicy"] = "Retain"
	}))
	require.Equal(t, "Retain", at(toldOf(t, w.Body.Bytes())[running], "spec")["deletionPolicy"])
}

func TestANewSnapshot(t *testing.T) {
	s, _ := serverAt("2026-11-22T04:00:00Z")
	w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, done))
	require.Equal(t, 200, w.Code, w.Body.String())
	child := toldOf(t, w.Body.Bytes())["orders-hourly-20261122-0400"]
	require.JSONEq(t, `{"apiVersion":"etcd.quorate.dev/v1beta1","kind":"EtcdSnapshot",
		"metadata":{"name":"orders-hourly-20261122-0400","namespace":"shop","labels":{"etcd.quorate.dev/cluster":"orders","etcd.quorate.dev/schedule":"orders-hourly"},
		"annotations":{"etcd.quorate.dev/unless":"revision=300,auth-revision=2,cluster=2c119c3b"}},
		"spec":{"clusterRef":{"name":"orders"},"store":{"s3":{"bucket":"backups","prefix":"orders","credentialsSecretRef":{"name":"keys"}}},"compression":"Zstd","verify":true,"deletionPolicy":"Delete"}}`,
		string(raw(t, child)))
}

func TestZonesOfSchedules(t *testing.T) {
	for name, message := range map[string]string{
		"Europe/Berlin": "being taken", "": "being taken", "UTC": "being taken", "America/New_York": "being taken",
		"Europe/Belin": `no time zone "Europe/Belin"`, "Local": `no time zone "Local"`,
		"../../etc/passwd": "no time zone",
		"/etc/localtime":   "no time zone",
	} {
		s, _ := serverAt(halfPast)
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
	s, _ := serverAt(halfPast)
	call := func(edits ...edit) (bool, map[string]map[string]any) {
		w := post(s.Handler(), "/schedules/finalize", aScheduleCall(t, append(edits, being(true))...))
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

// streams has the schedule of a call store what changes, in a cluster that serves.
func streams(r map[string]any) {
	done(r)
	at(r, "parent", "spec")["stream"] = map[string]any{}
	at(r, "children")["Pod.v1"], at(r, "children")["Secret.v1"] = map[string]any{}, map[string]any{}
	var mirror map[string]any
	text, err := os.ReadFile("testdata/mirror.json")
	if err == nil {
		err = json.Unmarshal(text, &mirror)
	}
	if err != nil {
		panic(err)
	}
	r["related"] = mirror["related"]
	at(r, "related")[groupSecrets] = map[string]any{"keys": map[string]any{"metadata": map[string]any{"name": "keys",
		"namespace": "shop", "labels": map[string]any{"etcd.quorate.dev/external": ""}}}}
}

// TestAStreamIsAnswered: the pod is made, kept as it is told, and let go with its schedule.
func TestAStreamIsAnswered(t *testing.T) {
	const pod = "orders-hourly-5d3c0a52-stream-1"
	s, _ := serverAt(halfPast)
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

	w = post(s.Handler(), "/schedules/sync", aScheduleCall(t, streams, runningPod(t, made)))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, made["spec"], toldOf(t, w.Body.Bytes())[pod]["spec"], "as it was told")
	assert.Equal(t, pod, at(generic(t, w.Body.Bytes()), "status", "stream")["pod"])

	w = post(s.Handler(), "/schedules/finalize", aScheduleCall(t, streams, runningPod(t, made), being(true)))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.NotContains(t, toldOf(t, w.Body.Bytes()), pod)
}

// TestTheKeysOfAStream: an installation with keys tells the Secret of a stream those of its namespace, once, and again
// when its own have changed.
func TestTheKeysOfAStream(t *testing.T) {
	const name = "orders-hourly-stream-key"
	old, next := strings.Repeat("o", 40), strings.Repeat("n", 40)
	s, log := serverAt(halfPast)
	told := func(lines string, edits ...edit) map[string]any {
		s.options.RecordKeys, s.options.Settings.Keyed = nil, lines != ""
		if lines != "" {
			file := filepath.Join(t.TempDir(), "records")
			require.NoError(t, os.WriteFile(file, []byte(lines), 0o600))
			keys, err := NewRecordKeys(file, slog.Default())
			require.NoError(t, err)
			s.options.RecordKeys = keys
		}
		w := post(s.Handler(), "/schedules/sync", aScheduleCall(t, append([]edit{streams}, edits...)...))
		require.Equal(t, 200, w.Code, w.Body.String())
		pod, _ := json.Marshal(toldOf(t, w.Body.Bytes())["orders-hourly-5d3c0a52-stream-1"])
		assert.Equal(t, lines != "", strings.Contains(string(pod), `"secretName":"`+name+`"`))
		assert.Equal(t, lines != "", strings.Contains(string(pod), "--stream-keys=/etc/quorate-store/stream/stream.key"))
		return toldOf(t, w.Body.Bytes())[name]
	}
	observed := func(content string) edit {
		return func(r map[string]any) {
			at(r, "children", "Secret.v1")[name] = map[string]any{"apiVersion": "v1", "kind": "Secret",
				"metadata": map[string]any{"name": name, "namespace": "shop", "uid": "u"},
				"data":     map[string]any{"stream.key": base64.StdEncoding.EncodeToString([]byte(content))}}
		}
	}
	assert.Nil(t, told(""))
	made := told(old)
	require.Equal(t, "Secret", made["kind"])
	assert.Nil(t, made["data"], "Metacontroller would note it for good")
	first, _ := at(made, "stringData")["stream.key"].(string)
	assert.Len(t, first, 65, "a key on a line")
	assert.NotContains(t, first, old)
	assert.Nil(t, told(old, observed(first))["stringData"], "nothing is written at rest")
	assert.Equal(t, first, at(told(old, observed("by others")), "stringData")["stream.key"])
	both, _ := at(told(next+"\n"+old, observed(first)), "stringData")["stream.key"].(string)
	assert.True(t, len(both) == 130 && strings.HasSuffix(both, first), "the next one signs, and both are believed")
	assert.NotContains(t, log.String(), first[:64])
	assert.Equal(t, record.StreamKeys([][]byte{[]byte(old)}, "shop"), first)
	assert.NotEqual(t, record.StreamKeys([][]byte{[]byte(old)}, "other"), first)

	w := post(s.Handler(), "/schedules/finalize", aScheduleCall(t, streams, observed(first), being(true)))
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.NotContains(t, toldOf(t, w.Body.Bytes()), name)
}

// TestSnapshotsOfASchedule have its label, or the Quorate that looks after the schedule would not look after them.
func TestSnapshotsOfASchedule(t *testing.T) {
	body := aScheduleCall(t, labelled("blue"))
	for name, told := range toldOf(t, post(scoped(t, nil, "by in (blue, azure)"), "/schedules/sync", body).Body.Bytes()) {
		require.Equal(t, "blue", at(told, "metadata", "labels")["by"], name)
	}
	for name, told := range toldOf(t, post(scoped(t, nil, ""), "/schedules/sync", body).Body.Bytes()) {
		require.NotContains(t, at(told, "metadata", "labels"), "by", name)
	}
	let := aScheduleCall(t, labelled("green"), set(true, "finalizing"),
		set("blue", "by", "children", groupSnapshots, running, "metadata", "labels"))
	told := toldOf(t, post(scoped(t, nil, "by=blue"), "/schedules/finalize", let).Body.Bytes())
	require.Equal(t, "blue", at(told[running], "metadata", "labels")["by"], "until the next Quorate gives it its own")
}
