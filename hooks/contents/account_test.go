package contents

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

func record(key string, hash uint64, bytes int64) Record {
	return Record{Key: []byte(key), Hash: hash, Bytes: bytes, Value: bytes, Written: true, Lives: 1}
}

// TestBounded: however many prefixes there are, few are held in mind, the heavy ones are found, the totals are right,
// and what was not counted whole says so.
func TestBounded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		a := New()
		a.most = 100
		random := rand.New(rand.NewPCG(seed, 0))
		heavy := int64(0)
		for i := range 20_000 {
			key := fmt.Sprintf("/sessions/%d/%d/x", random.Uint64(), i%3)
			if i > 5000 && i%4 == 0 {
				key = fmt.Sprintf("/late/heavy/%d", i)
				heavy += 100
			}
			a.Add(record(key, uint64(i+1), 100))
			require.LessOrEqual(t, len(a.nodes), a.most+1)
		}
		c := a.Report(10)
		require.EqualValues(t, 20_000, c.Total.Keys)
		require.EqualValues(t, 2_000_000, c.Total.Bytes)
		told := map[string]v1beta1.PrefixContents{}
		for _, p := range c.Prefixes {
			told[p.Prefix] = p
		}
		require.Equal(t, heavy, told["/late/"].Bytes)
		require.GreaterOrEqual(t, told["/late/heavy/"].Bytes, heavy-2*fewOf*100, "it was light at first")
		require.True(t, told["/late/heavy/"].Bytes == heavy || told["/late/heavy/"].Partial)
		require.Equal(t, 2_000_000-heavy, told["/sessions/"].Bytes)
		require.Len(t, told, 3, "a session is rare: it is nothing that is told")
	}
}

// TestMoreKeysThanAreHeld: the number of keys is right, and the bytes of those that live are by the mean.
func TestMoreKeysThanAreHeld(t *testing.T) {
	t.Parallel()
	a := New()
	a.Keep = 50
	for i := range 100 {
		a.Add(record("a/k", uint64(i+1), 100))
	}
	for i := range 100 {
		again := record("a/k", uint64(i+1), 100)
		again.Lives = 0
		a.Add(again)
	}
	c := a.Report(10)
	assert.True(t, c.Estimated)
	assert.EqualValues(t, 100, c.Total.Keys)
	assert.EqualValues(t, 10_000, c.Total.LiveBytes)
	assert.EqualValues(t, 20_000, c.Total.Bytes)
	assert.EqualValues(t, 2, c.Total.MostRevisions)
	a.Midway = true
	assert.Zero(t, a.Report(10).Total.Keys, "in the middle of a compaction that is not known")
}

// TestPrefixes: nothing is told that is a whole key, long, or can't be printed.
func TestPrefixes(t *testing.T) {
	t.Parallel()
	for key, prefix := range map[string]string{
		"secret": "", "/secret": "", "a/secret": "a/", "/a/secret": "/a/", "/a//b": "/a//", "//b": "//",
		"1/2/3/4/5/6/7": "1/2/3/4/5/", "a/\x00/b": "a/", "a/\xff/b": "a/", "": "",
		"a/" + strings.Repeat("x", 65) + "/b": "a/", "/": "", "é/x": "é/",
	} {
		assert.Equal(t, prefix, New().at([]byte(key)).Prefix, "%q", key)
	}
	assert.True(t, word("apiregistration.k8s.io/v1"))
	assert.False(t, word("a b"))
	assert.False(t, word(strings.Repeat("a", 65)))
	assert.False(t, word("é"))
}

// TestAt: the first depth with several prefixes, with the resources of a group in its place.
func TestAt(t *testing.T) {
	t.Parallel()
	var all []v1beta1.PrefixContents
	for _, prefix := range []string{"/registry/", "/registry/pods/", "/registry/pods/a/", "/registry/x.io/",
		"/registry/x.io/things/", "/registry/services/", "/registry/services/specs/", "/registry/y.io/"} {
		all = append(all, v1beta1.PrefixContents{Prefix: prefix})
	}
	names := func(depth int) (list []string) {
		for _, p := range At(all, depth) {
			list = append(list, p.Prefix)
		}
		return list
	}
	assert.Equal(t, []string{"/registry/pods/", "/registry/x.io/things/", "/registry/services/specs/",
		"/registry/y.io/"}, names(0))
	assert.Equal(t, []string{"/registry/"}, names(1))
	assert.Equal(t, []string{"/registry/pods/a/", "/registry/x.io/things/", "/registry/services/specs/"}, names(3))
	assert.Empty(t, names(5))
	assert.Empty(t, At(nil, 0))
}

// BenchmarkAdd is what a record costs: with few prefixes, and with so many that they are forgotten all the time.
func BenchmarkAdd(b *testing.B) {
	for _, namespaces := range []int{50, 1_000_000} {
		b.Run(fmt.Sprint(namespaces), func(b *testing.B) {
			a := New()
			for i := range b.N {
				key := fmt.Appendf(nil, "/registry/kind-%d/namespace-%d/%d", i%97, i%namespaces, i)
				a.Add(Record{Key: key, Hash: uint64(i + 1), Bytes: 1000})
			}
		})
	}
}
