package chaos

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// thing is a pod at the API server; its spec as Metacontroller applied it last is v1.
func thing(name, uid, version string) string {
	applied, _ := json.Marshal(desired(name, "v1"))
	return fmt.Sprintf(`{"metadata":{"name":%q,"uid":%q,"resourceVersion":%q,"annotations":{%q:%q}}}`, name, uid,
		version, lastApplied, applied)
}

func desired(name, spec string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q},"spec":%q}`, name, spec))
}

// request has these pods, and a parent of this generation with a status that names it.
func request(t *testing.T, generation int, pods ...string) *call {
	t.Helper()
	var named []string
	for _, pod := range pods {
		var o object
		require.NoError(t, json.Unmarshal([]byte(pod), &o))
		named = append(named, fmt.Sprintf("%q:%s", o.meta.Name, pod))
	}
	c, err := readCall(fmt.Appendf(nil,
		`{"controller":{},"finalizing":false,"parent":{"metadata":{"uid":"p","resourceVersion":"%d","generation":%d},"status":{"of":%d}},"children":{"Pod.v1":{%s}}}`,
		generation, generation, generation, strings.Join(named, ",")))
	require.NoError(t, err)
	return c
}

func answered(t *testing.T, children ...json.RawMessage) *answer {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"status": map[string]any{"new": true}, "children": children})
	require.NoError(t, err)
	var a answer
	require.NoError(t, json.Unmarshal(raw, &a))
	return &a
}

// specs are the specs of the answer by name.
func (a *answer) specs() map[string]string {
	all := map[string]string{}
	for _, c := range a.Children {
		var o struct{ Spec string }
		_ = json.Unmarshal(c.raw, &o)
		all[c.name] = o.Spec
	}
	return all
}

// TestAsIfStale: what the API server would refuse has no effect. Spec v1 is what Metacontroller applied last, so that
// answering it does nothing; v2 is a change.
func TestAsIfStale(t *testing.T) {
	for name, story := range map[string]struct {
		shown, real []string
		asked       []json.RawMessage
		want        map[string]string
	}{
		"an object that is as it was is updated": {[]string{thing("a", "1", "1")},
			[]string{thing("a", "1", "1")}, []json.RawMessage{desired("a", "v2")}, map[string]string{"a": "v2"}},
		"an update of one that has changed is a conflict": {[]string{thing("a", "1", "1")},
			[]string{thing("a", "1", "2")}, []json.RawMessage{desired("a", "v2")}, map[string]string{"a": "v1"}},
		"an update of another one is a conflict": {[]string{thing("a", "1", "1")},
			[]string{thing("a", "2", "2")}, []json.RawMessage{desired("a", "v2")}, map[string]string{"a": "v1"}},
		"an update of one that is gone fails": {[]string{thing("a", "1", "1")}, nil,
			[]json.RawMessage{desired("a", "v2")}, map[string]string{}},
		"a creation": {nil, nil, []json.RawMessage{desired("a", "v2")}, map[string]string{"a": "v2"}},
		"a creation of one that exists is refused": {nil, []string{thing("a", "1", "1")},
			[]json.RawMessage{desired("a", "v2")}, map[string]string{"a": "v1"}},
		"a deletion":                     {[]string{thing("a", "1", "1")}, []string{thing("a", "1", "2")}, nil, map[string]string{}},
		"a deletion of one that is gone": {[]string{thing("a", "1", "1")}, nil, nil, map[string]string{}},
		"a deletion does not reach another of the name": {[]string{thing("a", "1", "1")},
			[]string{thing("a", "2", "2")}, nil, map[string]string{"a": "v1"}},
		"one that was not seen is not deleted": {nil, []string{thing("a", "1", "1")}, nil,
			map[string]string{"a": "v1"}},
		"one that was not seen stays beside one that was": {[]string{thing("a", "1", "1")},
			[]string{thing("a", "1", "1"), thing("b", "2", "2")}, []json.RawMessage{desired("a", "v2")},
			map[string]string{"a": "v2", "b": "v1"}},
		"a creation beside a deletion that comes too late": {[]string{thing("a", "1", "1")}, nil,
			[]json.RawMessage{desired("b", "v2")}, map[string]string{"b": "v2"}},
		"several: each on its own, in any order, only once": {[]string{thing("a", "1", "1"), thing("b", "2", "2")},
			[]string{thing("b", "2", "3"), thing("c", "3", "4")},
			[]json.RawMessage{desired("a", "v2"), desired("b", "v2"), desired("c", "v2")},
			map[string]string{"b": "v1", "c": "v1"}},
	} {
		t.Run(name, func(t *testing.T) {
			a := answered(t, story.asked...)
			require.NoError(t, a.asIfStale(request(t, 1, story.shown...), request(t, 1, story.real...)))
			assert.Equal(t, story.want, a.specs())
			assert.Len(t, a.Children, len(story.want))
			assert.JSONEq(t, `{"new":true}`, string(a.Status))
		})
	}
}

// TestStatusOfAnOlderSpec: a status that was made for an older spec would say so itself, if Metacontroller's cache
// were stale.
func TestStatusOfAnOlderSpec(t *testing.T) {
	a := answered(t, desired("a", "v2"))
	require.NoError(t, a.asIfStale(request(t, 1), request(t, 2)))
	assert.JSONEq(t, `{"of":2}`, string(a.Status))
}

// TestCut: of n changes some first ones happen, deletions before all others, and the status is not written.
func TestCut(t *testing.T) {
	actual := request(t, 7, thing("gone", "1", "1"), thing("updated", "2", "2"), thing("same", "3", "3"))
	seen := map[int]bool{}
	for seed := range uint64(40) {
		a := answered(t, desired("updated", "v2"), desired("same", "v1"), desired("created", "v2"))
		done, of, err := a.cut(actual, Dice(seed, "cut", 1))
		require.NoError(t, err)
		require.Equal(t, 3, of)
		assert.JSONEq(t, `{"of":7}`, string(a.Status))
		specs := a.specs()
		assert.Equal(t, "v1", specs["same"])
		_, gone := specs["gone"]
		made := 0
		for _, is := range []bool{specs["created"] == "v2", specs["updated"] == "v2"} {
			if is {
				made++
			}
		}
		assert.Equal(t, done == 0, gone, "deletions come first")
		assert.Equal(t, max(0, done-1), made)
		seen[done] = true
	}
	assert.Len(t, seen, 3, "0, 1 and 2 changes")

	a := answered(t, desired("same", "v1"))
	_, of, err := a.cut(request(t, 1, thing("same", "3", "3")), Dice(1, "cut", 1))
	require.NoError(t, err)
	assert.Zero(t, of, "nothing changes, so nothing can be cut")
	assert.JSONEq(t, `{"new":true}`, string(a.Status))
}

// TestViewNeverGoesBack: each kind lags on its own, stands still for a while, skips states, catches up.
func TestViewNeverGoesBack(t *testing.T) {
	v := view[int]{same: func(a, b int) bool { return a == b }}
	now, last, stale, missed, skipped := time.Now(), 0, 0, 0, 0
	for n := 2; n <= 10000; n++ {
		state := n / 2 // each is sent twice
		now = now.Add(100 * time.Millisecond)
		g := v.show(state, Dice(1, "view", uint64(n)), now)
		require.GreaterOrEqual(t, g.shown, last, "the view went back")
		require.Equal(t, g.shown != state, g.stale)
		require.LessOrEqual(t, g.rest, longestFreeze)
		if g.stale {
			stale++
			require.Positive(t, g.rest, "a stale view that nothing refreshes")
		}
		skipped += max(0, g.shown-last-1)
		missed += g.missed
		last = g.shown
	}
	assert.Greater(t, stale, 500)
	assert.Greater(t, missed, 50)
	assert.Equal(t, skipped, missed)
	g := v.show(5001, nil, now)
	assert.Equal(t, 5001, g.shown, "without faults it shows the newest")
	assert.False(t, g.stale)
}
