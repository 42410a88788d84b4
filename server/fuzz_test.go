package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// nonsense is what an edit may put in the place of any value of a request.
var nonsense = []json.RawMessage{
	[]byte(`null`), []byte(`true`), []byte(`""`), []byte(`"x"`), []byte(`"0"`), []byte(`"-1"`),
	[]byte(`"99999999999999999999"`),
	[]byte(`"9223372036854775807"`), []byte(`"orders-3"`), []byte(`"orders-0:x,orders-1:y,,:"`),
	[]byte(`"2026-03-02T09:00:00Z"`),
	[]byte(`-1`), []byte(`1e30`), []byte(`[]`), []byte(`{}`), []byte(`[{}]`),
}

// editSize is how many bytes of the fuzzer's make one edit: the way to a value, and how far to go and what to do there.
const editSize = 8

// nonsensical is a request with edits; what is not a JSON object stays as it is.
func nonsensical(body, edits []byte) []byte {
	var request map[string]any
	in := json.NewDecoder(bytes.NewReader(body))
	in.UseNumber()
	if len(edits) < editSize || in.Decode(&request) != nil {
		return body
	}
	for edit := range slices.Chunk(edits, editSize) {
		if len(edit) == editSize {
			change(request, edit[:editSize-1], edit[editSize-1])
		}
	}
	raw, err := json.Marshal(request)
	if err != nil {
		return body
	}
	return raw
}

// change walks down the way as far as it goes, and puts nonsense there, a copy of the next value, or nothing.
func change(in any, way []byte, what byte) {
	switch node := in.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(node))
		if len(keys) == 0 {
			return
		}
		key := keys[int(way[0])%len(keys)]
		if len(way) > 1 && nested(node[key]) {
			change(node[key], way[1:], what)
			return
		}
		switch n := int(what) % (len(nonsense) + 2); n {
		case len(nonsense):
			delete(node, key)
		case len(nonsense) + 1:
			node[key] = node[keys[(int(way[0])+1)%len(keys)]]
		default:
			node[key] = nonsense[n]
		}
	case []any:
		if i := int(way[0]) % len(node); len(way) > 1 && nested(node[i]) {
			change(node[i], way[1:], what)
		} else {
			node[i] = nonsense[int(what)%len(nonsense)]
		}
	}
}

func nested(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		return len(v) > 0
	case []any:
		return len(v) > 0
	}
	return false
}

// made is an etcd made up from the pods that can be asked. It refuses every step.
type made struct{ mood byte }

func (m made) Observe(_ context.Context, endpoints []observation.Endpoint) (*observation.Membership,
	map[string]observation.Health) {
	list := &observation.Membership{ClusterID: 0xcdf818194e3a8c32, Leader: 1}
	health := map[string]observation.Health{}
	for i, e := range endpoints {
		member := observation.Member{ID: uint64(i + 1), Name: e.Name, PeerURLs: []string{e.PeerURL},
			ClientURLs: []string{e.ClientURL}}
		h := observation.Health{ClusterID: list.ClusterID, MemberID: member.ID, Leader: list.Leader, Version: "3.6.16",
			RaftTerm: 2, RaftIndex: 1000, DBSize: 20480}
		last := i == len(endpoints)-1
		switch {
		case last && m.mood&1 != 0: // a learner that has caught up
			member.Learner, h.Learner = true, true
		case last && m.mood&2 != 0: // one that never answered
			member.Name, member.ClientURLs, h = "", nil, observation.Health{Err: "connection refused"}
		}
		if last && m.mood&4 != 0 {
			continue // a member that was removed
		}
		list.Members = append(list.Members, member)
		health[e.Name] = h
	}
	if m.mood&8 != 0 || len(list.Members) == 0 {
		return nil, health
	}
	return list, health
}

func (made) Do(context.Context, decision.Step, *observation.Membership, []observation.Endpoint) error {
	return errors.New("refused")
}

// FuzzSync goes the whole way from a body to an answer, with the real decisions between. Whatever JSON the wire takes
// is decided without a panic and without breaking a rule of safety, and the answer is JSON that is read again: applied
// and sent back, the answers come to rest. The body is the fuzzer's; edits change values in it and keep it JSON; mood
// is what etcd is like.
func FuzzSync(f *testing.F) {
	f.Add([]byte("{}"), []byte{}, byte(0))
	for mood := range byte(16) {
		f.Add(short(f), []byte{}, mood)
	}
	for way := range byte(14) {
		f.Add(short(f), []byte{way, way, 1, way, 0, way, 0, way, 0, way / 2, way / 3, 2, way, 0, 0, way + 3}, way)
	}
	f.Add(edited(f, func(r map[string]any) { // a record under another name is none
		at(r, "children", groupConfigMaps, "orders-epoch-1", "metadata")["name"] = "orders-epoch"
	}), []byte{}, byte(12))
	f.Fuzz(func(t *testing.T, body, edits []byte, mood byte) {
		s, _ := testServer(Options{MaxBody: 1 << 20, Verify: true, Etcd: made{mood}})
		s.log = slog.New(slog.DiscardHandler)
		s.now = func() time.Time { return time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC) }
		h := s.Handler()
		request := nonsensical(body, edits)
		answered := ask(t, h, "/sync", request)
		if answered == nil {
			return
		}
		require.Equal(t, string(answered), string(ask(t, h, "/sync", request)), "the same again")
		keepsAll(t, h, request)
		for range callsToRest {
			request = applied(t, request, answered)
			next := ask(t, h, "/sync", request)
			require.NotNil(t, next, "an answer that is sent back is refused: %s", answered)
			if bytes.Equal(next, answered) {
				return
			}
			answered = next
		}
		t.Fatalf("never at rest: %s", answered)
	})
}

// short is the steady request with one pod and claim, and without what is read over: what is left is worth an edit.
func short(f *testing.F) []byte {
	return edited(f, func(r map[string]any) {
		delete(r, "controller")
		for name, group := range at(r, "children") {
			for key, o := range group.(map[string]any) {
				delete(at(o, "metadata"), "managedFields")
				if (name == groupPods || name == groupClaims) && key != "orders-0" {
					delete(group.(map[string]any), key)
				}
			}
		}
	})
}

// callsToRest is more than the answers that may follow one another while etcd and time stand still: nine pods
// replaced, each gone in one answer and back in the next, and what comes before.
const callsToRest = 60

// ask is the body of a 200, and nil when the request was refused. Any other end is a finding.
func ask(t *testing.T, h http.Handler, path string, request []byte) []byte {
	t.Helper()
	w := post(h, path, request)
	if w.Code == http.StatusOK {
		return w.Body.Bytes()
	}
	require.Contains(t, []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge}, w.Code, errorOf(t, w))
	return nil
}

// keepsAll: whatever is deleted, the finalize hook has not done it.
func keepsAll(t *testing.T, h http.Handler, request []byte) {
	r := generic(t, request)
	r["finalizing"] = true
	at(r, "parent", "metadata")["deletionTimestamp"] = "2026-03-02T09:00:00Z"
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	answered := ask(t, h, "/finalize", raw)
	require.NotNil(t, answered, "what /sync takes, /finalize takes")
	sent := 0
	for _, group := range at(r, "children") {
		sent += len(group.(map[string]any))
	}
	children, _ := generic(t, answered)["children"].([]any)
	require.Len(t, children, sent)
}

func generic(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	var o map[string]any
	in := json.NewDecoder(bytes.NewReader(raw))
	in.UseNumber()
	require.NoError(t, in.Decode(&o))
	return o
}

// applied is the request that follows when the answer has been applied: what it omits is gone, and everything has a
// UID.
func applied(t testing.TB, request, answered []byte) []byte {
	t.Helper()
	r, a := generic(t, request), generic(t, answered)
	parent := at(r, "parent")
	parent["status"] = a["status"]
	observed := at(r, "children")
	next := map[string]any{groupPods: map[string]any{}, groupClaims: map[string]any{},
		groupConfigMaps: map[string]any{},
		groupServices:   map[string]any{}, groupBudgets: map[string]any{}, groupSecrets: map[string]any{},
		groupPolicies: map[string]any{}}
	if _, rule := observed[groupCertificates]; rule {
		next[groupCertificates] = map[string]any{}
	}
	for _, child := range a["children"].([]any) {
		child := child.(map[string]any)
		group := fmt.Sprintf("%s.%s", child["kind"], child["apiVersion"])
		require.Contains(t, next, group)
		name := at(child, "metadata")["name"].(string)
		at(next, group)[name] = appliedTo(t, named(at(observed, group), name), child, at(parent, "metadata")["uid"])
	}
	r["children"] = next
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	return raw
}

// named is the observed object of this name, or nil. The key may be another.
func named(group map[string]any, name string) map[string]any {
	for _, o := range group {
		if at(o, "metadata")["name"] == name {
			return o.(map[string]any)
		}
	}
	return nil
}

func appliedTo(t testing.TB, old, child map[string]any, owner any) map[string]any {
	t.Helper()
	last, err := json.Marshal(child)
	require.NoError(t, err)
	now := maps.Clone(child)
	meta := map[string]any{"uid": fmt.Sprintf("uid-%s", at(child, "metadata")["name"]),
		"ownerReferences": []any{map[string]any{"uid": owner}}}
	if old != nil {
		meta, now["status"] = maps.Clone(at(old, "metadata")), old["status"]
	}
	for _, key := range []string{"name", "namespace"} {
		meta[key] = at(child, "metadata")[key]
	}
	for _, key := range []string{"labels", "annotations"} {
		all, _ := meta[key].(map[string]any)
		all = maps.Clone(all)
		if all == nil {
			all = map[string]any{}
		}
		ours, _ := at(child, "metadata")[key].(map[string]any)
		maps.Copy(all, ours)
		meta[key] = all
	}
	at(meta, "annotations")[lastApplied] = string(last)
	now["metadata"] = meta
	if child["kind"] == "Secret" {
		now["data"] = holds(t, old, child)
		delete(now, "stringData")
	}
	return now
}

// holds is what a Secret holds when Metacontroller has merged an answer into it, and the API server has put stringData
// into data.
func holds(t testing.TB, old, child map[string]any) map[string]any {
	t.Helper()
	data := map[string]any{}
	if old != nil {
		maps.Copy(data, at(old, "data"))
		var last struct{ Data map[string]any }
		note, _ := at(old, "metadata", "annotations")[lastApplied].(string)
		require.NoError(t, json.Unmarshal([]byte(note), &last))
		maps.DeleteFunc(data, func(key string, _ any) bool { _, noted := last.Data[key]; return noted })
	}
	told, _ := child["data"].(map[string]any)
	maps.Copy(data, told)
	text, _ := child["stringData"].(map[string]any)
	for key, value := range text {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value.(string)))
	}
	return data
}
