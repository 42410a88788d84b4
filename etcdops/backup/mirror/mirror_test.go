package mirror

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

func TestScope(t *testing.T) {
	for _, wrong := range []Scope{
		{Prefix: "/a/", ToPrefix: "/a/", Exclude: []string{"/b/"}},
		{Prefix: "/a/", ToPrefix: "/a/", Exclude: []string{"/a/"}},
		{Prefix: "/a/", Exclude: []string{"/"}},
		{Prefix: "\xff"}, {ToPrefix: "\xff"},
		{Prefix: Reserved}, {ToPrefix: Reserved + "x/"},
		{Exclude: strings.Split(strings.Repeat("a", MostExcluded+1), "")},
	} {
		assert.Error(t, wrong.Check(), "%+v", wrong)
	}
	all := Scope{}
	require.NoError(t, all.Check())
	assert.Equal(t, []span{{"\x00", Reserved}, {"/quorate.dev/mirror0", noEnd}}, all.toSpans())
	moved := Scope{Prefix: "/a/", ToPrefix: "/quorate.dev/", Exclude: []string{"/a/x", "/a/xy", "/a/b/"}}
	require.NoError(t, moved.Check())
	assert.Equal(t, []span{{"/a/", "/a/b/"}, {"/a/b0", "/a/mirror/"}, {"/a/mirror0", "/a/x"}, {"/a/y", "/a0"}},
		moved.spans())
	assert.Equal(t, []span{{"/quorate.dev/", "/quorate.dev/b/"}, {"/quorate.dev/b0", Reserved},
		{"/quorate.dev/mirror0", "/quorate.dev/x"}, {"/quorate.dev/y", "/quorate.dev0"}}, moved.toSpans())
	assert.True(t, moved.touches(Scope{ToPrefix: "/quorate.dev/c"}))
	assert.False(t, moved.touches(Scope{ToPrefix: "/quorate.dev/b/c/"}), "it is excluded")
	assert.False(t, moved.touches(Scope{ToPrefix: "/a/"}))
	assert.True(t, all.touches(moved))
}

func in(spans []span, key string) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return key >= s.from && (s.end == noEnd || key < s.end) })
}

// Whatever the prefixes are: the spans of both sides have the keys that are mirrored and no others, in one order, and
// none of them is the place of a mirror.
func TestSpans(t *testing.T) {
	letters := []string{"a", "b", "/quorate.dev/", "mirror/"}
	word := func(random *rand.Rand, most int) (word string) {
		for range random.IntN(most + 1) {
			word += letters[random.IntN(len(letters))]
		}
		return word
	}
	random, tried := rand.New(rand.NewPCG(1, 1)), 0
	for range 20_000 {
		s := Scope{Prefix: word(random, 2), ToPrefix: word(random, 2)}
		for range random.IntN(3) {
			s.Exclude = append(s.Exclude, s.Prefix+word(random, 2))
		}
		if s.Check() != nil {
			continue
		}
		tried++
		holes, spans, to := s.holes(), s.spans(), s.toSpans()
		last, lastName := "", ""
		keys := []string{Reserved + "a"}
		for range 10 {
			keys = append(keys, cmp.Or(s.Prefix+word(random, 3), "a"), word(random, 4)+"a")
		}
		slices.Sort(keys)
		for _, key := range keys {
			name, mirrored := s.to(key, holes)
			require.Equal(t, mirrored, in(spans, key), "%+q: %q", s, key)
			if !mirrored {
				continue
			}
			require.True(t, in(to, name), "%+q: %q is %q", s, key, name)
			require.False(t, strings.HasPrefix(name, Reserved), "%+q: %q", s, key)
			require.False(t, strings.HasPrefix(key, Reserved), "%+q: %q", s, key)
			if last != "" {
				require.Equal(t, strings.Compare(last, key), strings.Compare(lastName, name), "%+q", s)
			}
			last, lastName = key, name
		}
		require.False(t, in(to, Reserved+"a"), "%+q", s)
	}
	require.Greater(t, tried, 1000)
}

// memory are keys in memory.
type memory []*mvccpb.KeyValue

func (m *memory) head(context.Context) (*mvccpb.KeyValue, error) {
	if len(*m) == 0 {
		return nil, nil
	}
	return (*m)[0], nil
}

func (m *memory) next() { *m = (*m)[1:] }

func sorted(of map[string]string) *memory {
	var m memory
	for _, key := range slices.Sorted(maps.Keys(of)) {
		m = append(m, &mvccpb.KeyValue{Key: []byte(key), Value: []byte(of[key])})
	}
	return &m
}

func apply(to map[string]string, ops []op) {
	for _, o := range ops {
		if o.deleted {
			delete(to, o.key)
		} else {
			to[o.key] = string(o.value)
		}
	}
}

func TestDiffer(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	some := func() map[string]string {
		m := map[string]string{}
		for range random.IntN(20) {
			m[fmt.Sprint("key-", random.IntN(12))] = fmt.Sprint(random.IntN(2))
		}
		return m
	}
	for range 1000 {
		want, is := some(), some()
		var ops []op
		require.NoError(t, differ(t.Context(), sorted(want), sorted(is), func(o op) error {
			was, there := is[o.key]
			require.False(t, there && !o.deleted && was == string(o.value), "it was so")
			ops = append(ops, o)
			return nil
		}))
		apply(is, ops)
		require.Equal(t, want, is)
	}
}

// history are random revisions from 5 on, and what the keys are at each.
func history(random *rand.Rand, n int) (changes []change, states map[int64]map[string]string) {
	states, now := map[int64]map[string]string{4: {}}, map[string]string{}
	for revision := int64(5); revision < int64(5+n); revision++ {
		c := change{revision: revision}
		for range []int{0, 1, 1, 2, 9}[random.IntN(5)] {
			o := op{key: fmt.Sprint("key-", random.IntN(12)), deleted: random.IntN(3) == 0}
			if !o.deleted {
				o.value = []byte(strings.Repeat("v", random.IntN(3)*partSize/8))
			}
			c.ops, c.size = append(c.ops, o), c.size+o.size()
		}
		apply(now, c.ops)
		changes, states[revision] = append(changes, c), maps.Clone(now)
	}
	return changes, states
}

// However revisions are put together: what a transaction leaves is what the source had at the last of them.
func TestQueue(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 3))
		changes, states := history(random, 40)
		q, is, most, last := &queue{}, map[string]string{}, 1+random.IntN(8), int64(4)
		for len(changes) > 0 || len(q.changes) > 0 {
			arrived := min(1+random.IntN(10), len(changes))
			for _, c := range changes[:arrived] {
				q.changes, q.size = append(q.changes, c), q.size+c.size
			}
			changes = changes[arrived:]
			ops, n := q.next(most)
			require.Positive(t, n)
			size := 0
			for _, o := range ops {
				size += o.size()
			}
			require.True(t, n == 1 || len(ops) <= most && size <= partSize)
			require.Equal(t, last+int64(n), q.changes[n-1].revision)
			for rest := ops; len(rest) > 0; { // as parts of one that is too large
				part := fit(rest, most)
				require.Positive(t, part)
				require.LessOrEqual(t, part, most)
				once := map[string]bool{}
				for _, o := range rest[:part] {
					require.False(t, once[o.key], "etcd refuses it")
					once[o.key] = true
				}
				apply(is, rest[:part])
				rest = rest[part:]
			}
			last += int64(n)
			require.Equal(t, states[last], is)
			q.done(n)
		}
		require.Zero(t, q.size)
		require.EqualValues(t, 44, last)
	}
}

// A destination that has a part of a revision is whole once more when it has all of that, and never before.
func TestQueueJoins(t *testing.T) {
	changes, states := history(rand.New(rand.NewPCG(4, 4)), 6)
	q := &queue{changes: changes[:3:3]}
	assert.False(t, q.join(8), "8 has not arrived")
	q.changes = append(q.changes, changes[3:]...)
	require.True(t, q.join(8))
	ops, n := q.next(1000)
	assert.Equal(t, int64(8), q.changes[0].revision)
	is := map[string]string{}
	apply(is, ops)
	assert.Equal(t, states[q.changes[n-1].revision], is)
	assert.False(t, (&queue{}).join(8))
	assert.True(t, (&queue{changes: changes[4:]}).join(8), "it was copied")
}

func TestMonitor(t *testing.T) {
	m := NewMonitor()
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	healthy := func() bool { code, _ := ask("/health"); return code == http.StatusOK }
	assert.False(t, healthy(), "it has not begun")
	m.does(copying, "c1", 0)
	m.saw(9, time.Now(), true)
	_, said := ask("/metrics")
	assert.Contains(t, said, "\nquorate_mirror_whole 0\n")
	m.does("", "c1", 8)
	assert.False(t, healthy(), "9 is missing")
	m.wrote(9, 3, true)
	assert.True(t, healthy())
	m.does(applying, "c1", 9)
	assert.False(t, healthy())
	m.wrote(10, 500, true)
	assert.True(t, healthy())
	m.saw(11, time.Now().Add(-time.Minute), true)
	m.wrote(11, 0, false)
	code, said := ask("/health")
	assert.Equal(t, 503, code, "nothing was heard for a minute")
	assert.Contains(t, said, "in the last 1m0s is not at the destination; revision 11 is")
	_, said = ask("/metrics")
	assert.Contains(t, said, "# TYPE quorate_mirror_operations_total counter\nquorate_mirror_operations_total 503\n")
	assert.Contains(t, said, "\nquorate_mirror_transactions_total 2\n")
}

// FuzzPlace: whatever a destination has under the key of a mirror, it is a place or an error, and takes no more memory
// than a multiple of what it is. A place can be written, and is the same then.
func FuzzPlace(f *testing.F) {
	for _, is := range []place{{Format: format, ClusterID: "c1", Revision: 7}, {Format: 2},
		{Format: format, Scope: Scope{Prefix: "/a/", Exclude: []string{"/a/x"}}, Doing: applying, Towards: 9, WholeAt: 3}} {
		text, err := json.Marshal(is)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Add([]byte(`{"format": 1, "exclude": ["", "", ""], "revision": -1}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		is, err := placeOf(text)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20+64*len(text)))
		if err != nil {
			require.NotEmpty(t, archive.Words(err))
			return
		}
		again, err := json.Marshal(is)
		require.NoError(t, err)
		same, err := placeOf(again)
		require.NoError(t, err)
		require.True(t, is.same(same.Scope), "%q", text)
		require.Equal(t, is.Doing, same.Doing)
		_ = is.touches(Scope{Prefix: "/a/", ToPrefix: "/a/"})
	})
}
