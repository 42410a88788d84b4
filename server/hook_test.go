package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/server/wire"
)

// TestRefusedRequests: what is refused by its bytes, or somewhere within an object. TestRefusedCalls has the rest.
func TestRefusedRequests(t *testing.T) {
	pod := func(r map[string]any) map[string]any { return at(r, "children", groupPods, "orders-0") }
	cases := []struct {
		name, reason string
		edit         func(r map[string]any)
		raw          string // instead of edit
		code         int
		says         string
	}{
		{name: "empty body", reason: "a proxy ate it", raw: " ", code: 400, says: "the request ends in the middle"},
		{name: "not JSON", reason: "a browser", raw: "hello", code: 400, says: "the request can't be read"},
		{name: "not an object", reason: "not from Metacontroller", raw: "[]", code: 400,
			says: "the request must be an object"},
		{name: "null", reason: "JSON, but nothing", raw: "null", code: 400, says: "the request must be an object"},
		{name: "cut off", reason: "half of the children are not all children", raw: string(steady(t)[:30000]),
			code: 400, says: "ends in the middle"},
		{name: "trailing object", reason: "which of the two counts?", raw: string(steady(t)) + "{}", code: 400,
			says: "followed by something else"},
		{name: "trailing garbage", reason: "not what was sent", raw: string(steady(t)) + "x", code: 400,
			says: "what follows the request"},
		{name: "null parent", reason: "children without a parent", edit: func(r map[string]any) { r["parent"] = nil },
			code: 400, says: "parent.apiVersion must be etcd.quorate.dev/v1beta1"},
		{name: "wrong type in spec", reason: "a CRD of another release",
			edit: func(r map[string]any) { at(r, "parent", "spec")["replicas"] = "three" }, code: 400,
			says: "parent.spec.replicas can't be a string"},
		{name: "quantity that is none", reason: "a CRD without validation",
			edit: func(r map[string]any) { at(r, "parent", "spec", "storage")["size"] = "big" }, code: 400,
			says: "parent.spec.storage.size can't be read: quantities must"},
		{name: "no children", reason: "would read as: there are none",
			edit: func(r map[string]any) { delete(r, "children") }, code: 400, says: `children["Pod.v1"] is missing`},
		{name: "null children", reason: "would read as: there are none",
			edit: func(r map[string]any) { r["children"] = nil }, code: 400, says: "children must be an object"},
		{name: "group is null", reason: "would read as: there are none",
			edit: func(r map[string]any) { at(r, "children")[groupPods] = nil }, code: 400,
			says: `children["Pod.v1"] must be an object`},
		{name: "group is a list", reason: "hook version v2",
			edit: func(r map[string]any) { at(r, "children")[groupPods] = []any{} }, code: 400,
			says: `children["Pod.v1"] must be an object`},
		{name: "group in another version", reason: "its name says that it is another API",
			edit: func(r map[string]any) { at(r, "children")["PodDisruptionBudget.policy/v1beta1"] = map[string]any{} },
			code: 400, says: "does not know"},
		{name: "group with another case", reason: "JSON keys are case-sensitive",
			edit: func(r map[string]any) { at(r, "children")["pod.v1"] = map[string]any{} }, code: 400,
			says: "does not know"},
		{name: "group twice", reason: "which of the two counts?",
			raw: strings.Replace(string(steady(t)), `"children":{`, `"children":{"Pod.v1":{},`, 1), code: 400,
			says: `children["Pod.v1"] is there twice`},
		{name: "parent twice", reason: "which of the two counts?",
			raw: strings.Replace(string(steady(t)), `"children":{`, `"parent":{},"children":{`, 1), code: 400,
			says: "parent is there twice"},
		{name: "spec twice", reason: "which of the two counts?",
			raw:  strings.Replace(string(steady(t)), `},"spec":{"replicas":`, `},"spec":{},"spec":{"replicas":`, 1),
			code: 400, says: `parent.spec is there twice`},
		{name: "field twice in a child", reason: "which of the two counts?",
			raw: strings.Replace(string(steady(t)), `"hostname":"orders-0"`,
				`"hostname":"orders-1","hostname":"orders-0"`, 1),
			code: 400, says: `children["Pod.v1"]["orders-0"].spec.hostname is there twice`},
		{name: "child twice under its key", reason: "one of the two would be lost",
			raw: strings.Replace(string(steady(t)), `"Pod.v1":{`, `"Pod.v1":{"orders-0":null,`, 1), code: 400,
			says: `children["Pod.v1"]["orders-0"]`},
		{name: "not UTF-8", reason: "replaced characters are another name",
			raw:  strings.Replace(string(steady(t)), `"hostname":"orders-0"`, "\"hostname\":\"orders-\xff\"", 1),
			code: 400, says: `children["Pod.v1"]["orders-0"] can't be read: invalid UTF-8`},
		{name: "parent is no object", reason: "no guess is safe",
			edit: func(r map[string]any) { r["parent"] = []any{} }, code: 400, says: "parent can't be an array"},
		{name: "wrong type deep in child", reason: "the sentence says where", edit: func(r map[string]any) {
			at(pod(r), "spec")["containers"].([]any)[0].(map[string]any)["image"] = map[string]any{}
		}, code: 400, says: `children["Pod.v1"]["orders-0"].spec.containers.0.image can't be an object`},
		{name: "null child", reason: "a child that is there is an object",
			edit: func(r map[string]any) { at(r, "children", groupPods)["orders-0"] = nil }, code: 400,
			says: `children["Pod.v1"]["orders-0"].apiVersion must be v1`},
		{name: "child without metadata", reason: "can't be answered",
			edit: func(r map[string]any) { delete(pod(r), "metadata") }, code: 400, says: "metadata.name is missing"},
		{name: "child twice", reason: "one of the two would be lost",
			edit: func(r map[string]any) { at(r, "children", groupPods)["other"] = pod(r) }, code: 400,
			says: "metadata.name is there twice"},
		{name: "wrong type in child", reason: "no guess is safe",
			edit: func(r map[string]any) { at(pod(r), "spec")["containers"] = 7 }, code: 400,
			says: `children["Pod.v1"]["orders-0"].spec.containers can't be a number`},
		{name: "finalizing is no bool", reason: "no guess is safe",
			edit: func(r map[string]any) { r["finalizing"] = "no" }, code: 400, says: "finalizing can't be a string"},
		{name: "too large", reason: "memory is bounded", raw: `{"controller":"` + strings.Repeat("x", 1<<20) + `"}`,
			code: 413, says: "larger than 524288 bytes"},
		{name: "too large after the end", reason: "memory is bounded",
			raw: string(steady(t)) + strings.Repeat(" ", 1<<20), code: 413, says: "larger than 524288 bytes"},
	}
	etcd := &untouched{}
	s, log := testServer(Options{MaxBody: 512 << 10, Etcd: etcd})
	h := s.Handler()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			body := []byte(c.raw)
			if c.edit != nil {
				body = edited(t, c.edit)
			}
			log.Reset()
			w := post(h, "/sync", body)
			require.Equal(t, c.code, w.Code, c.reason)
			require.Contains(t, errorOf(t, w), c.says, c.reason)
			require.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"))
			require.Contains(t, log.String(), `"msg":"refused"`)
			require.Less(t, log.Len(), 1000, "no object in the log")
		})
	}
	require.Zero(t, etcd.observed.Load(), "what can't be understood is not looked into")
}

// TestNoChildrenIsAnObservation: empty groups are the first call for a new cluster.
func TestNoChildrenIsAnObservation(t *testing.T) {
	s, _ := testServer(Options{})
	w := post(s.Handler(), "/sync", edited(t, func(r map[string]any) {
		for group := range at(r, "children") {
			at(r, "children")[group] = map[string]any{}
		}
	}))
	require.Equal(t, 200, w.Code, w.Body.String())
	require.NotContains(t, w.Body.String(), "null")
	require.NotContains(t, w.Body.String(), "creationTimestamp")
}

// TestWhoReadsACallAnswersAsTheHook: a program that reads a call and decides gets the bytes that the server
// answers with.
func TestWhoReadsACallAnswersAsTheHook(t *testing.T) {
	asked, err := wire.ReadCluster(t.Context(), bytes.NewReader(steady(t)))
	require.NoError(t, err)
	require.False(t, asked.Finalizing)

	s, _ := testServer(Options{})
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	o := asked.Observation(now, observation.Settings{Images: objects.Images{
		Image: "ghcr.io/quorate-dev/quorate:v0.1.0"}})
	o.Etcd, o.Health = healthy{}.Observe(context.Background(), nil)
	answer, err := asked.Answer(hooks.Decide(o), nil)
	require.NoError(t, err)
	require.JSONEq(t, post(s.Handler(), "/sync", steady(t)).Body.String(), string(answer))
}

func TestFinalize(t *testing.T) {
	s, _ := testServer(Options{})
	s.finalizeFn = func(o observation.Observation) (decision.Desired, bool) {
		return decision.Desired{}, len(o.Children.Pods) == 0
	}
	h := s.Handler()
	deleting := func(children bool) []byte {
		return edited(t, func(r map[string]any) {
			r["finalizing"] = true
			at(r, "parent", "metadata")["deletionTimestamp"] = "2026-03-02T09:00:00Z"
			for group := range at(r, "children") {
				if !children {
					at(r, "children")[group] = map[string]any{}
				}
			}
		})
	}
	var answer struct {
		Status    json.RawMessage
		Children  []any
		Finalized bool
	}
	w := post(h, "/finalize", deleting(true))
	require.Equal(t, http.StatusOK, w.Code, w.Body.String())
	require.Contains(t, w.Body.String(), `"children":[],`)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	require.False(t, answer.Finalized)
	require.Contains(t, string(answer.Status), `"rule"`, "the status stays")

	w = post(h, "/finalize", deleting(false))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	require.True(t, answer.Finalized)
}

// FuzzDecode: nothing makes the edge panic, and nothing gets a 200 that leaves out a child which the request had. The
// decision under it keeps every child that it sees.
func FuzzDecode(f *testing.F) {
	s, _ := testServer(Options{MaxBody: 1 << 20})
	s.log = slog.New(slog.DiscardHandler)
	s.syncFn = keepAll
	h := s.Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		w := post(h, "/sync", body)
		if w.Code != http.StatusOK {
			errorOf(t, w)
			return
		}
		var sent struct {
			Children map[string]map[string]any `json:"children"`
		}
		var got struct{ Children []json.RawMessage }
		require.NoError(t, json.Unmarshal(body, &sent), "a 200 for what is no JSON")
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
		n := 0
		for _, group := range []string{groupPods, groupClaims, groupConfigMaps, groupServices, groupBudgets,
			groupSecrets, groupPolicies} {
			require.NotNil(t, sent.Children[group])
			n += len(sent.Children[group])
		}
		require.GreaterOrEqual(t, len(got.Children), n, "children would be deleted")
	})
}
