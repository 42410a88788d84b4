package stream

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

func spansOf(borders ...int64) (all []Span) {
	for pair := range slices.Chunk(borders, 2) {
		all = append(all, Span{First: pair[0], Last: pair[1]})
	}
	return all
}

func TestChain(t *testing.T) {
	for name, test := range map[string]struct {
		spans []Span
		from  int64
		reach int64
		links int
	}{
		"nothing":                     {nil, 4, 4, 0},
		"one":                         {spansOf(5, 9), 4, 9, 1},
		"one that begins before":      {spansOf(2, 9), 4, 9, 1},
		"one that ends before":        {spansOf(2, 4), 4, 4, 0},
		"a gap at the beginning":      {spansOf(6, 9), 4, 4, 0},
		"a gap in the middle":         {spansOf(5, 9, 11, 20), 4, 9, 1},
		"behind the gap":              {spansOf(5, 9, 11, 20), 10, 20, 1},
		"two writers":                 {spansOf(5, 9, 7, 12, 10, 14, 13, 20), 4, 20, 3},
		"the longest of several":      {spansOf(5, 9, 5, 7, 6, 8, 8, 9), 4, 9, 1},
		"a small one is no link":      {spansOf(5, 20, 6, 7, 21, 22), 4, 22, 2},
		"two that end alike":          {spansOf(5, 9, 7, 9, 10, 10), 4, 10, 2},
		"from the middle of what was": {spansOf(5, 9, 10, 14), 7, 14, 2},
	} {
		links, reach := chain(test.spans, test.from)
		assert.Equal(t, test.reach, reach, name)
		assert.Len(t, links, test.links, name)
	}
}

// keep puts segments into a store, as files.
func keep(t *testing.T, dir string, segments ...*Segment) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "s", "tail", "c1"), 0o750))
	for _, s := range segments {
		require.NoError(t, os.WriteFile(file(dir, s.First, s.Last), encoded(t, s), 0o600))
	}
}

func file(dir string, first, last int64) string {
	return filepath.Join(dir, "s", "tail", "c1", nameOf(first, last, archive.Form{}))
}

func openTail(t *testing.T, dir string) *Tail {
	t.Helper()
	tail, err := OpenTail(t.Context(), archive.Place{URL: "file:///s/tail/c1", Dir: dir}, Opening{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tail.Close() })
	return tail
}

// read reads a tail as a restore does, and returns the revisions.
func read(tail *Tail, from, until int64) (revisions []int64, err error) {
	for reach := from; reach < until; {
		s, err := tail.Next(context.Background(), reach)
		if err != nil {
			return revisions, err
		}
		if s == nil {
			return revisions, fmt.Errorf("%s", tail.Gap(reach))
		}
		if err := s.Each(func(c Change) error {
			if c.Revision > reach && c.Revision <= until && c.Sub == 0 {
				revisions = append(revisions, c.Revision)
			}
			return nil
		}); err != nil {
			return revisions, err
		}
		reach = s.Last
	}
	return revisions, nil
}

// Whatever two writers have cut, what is damaged, gone or not listed: a restore gets each revision once, in order, or
// an error.
func TestTails(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 3))
		dir := t.TempDir()
		const from, until = 4, 40
		for range 2 {
			for first := int64(from + 1); first <= until; {
				last := min(first+int64(random.IntN(9)), until)
				keep(t, dir, made(t, first, last))
				first = last + 1
			}
		}
		tail := openTail(t, dir)
		listed := slices.Clone(tail.spans)
		random.Shuffle(len(listed), func(i, j int) { listed[i], listed[j] = listed[j], listed[i] })
		for _, s := range listed[:random.IntN(4)] {
			path := file(dir, s.First, s.Last)
			switch random.IntN(4) {
			case 0:
				require.NoError(t, os.Remove(path))
			case 1:
				require.NoError(t, os.Truncate(path, s.Size/2))
			case 2: // it is another one's
				require.NoError(t, os.WriteFile(path, encoded(t, made(t, s.First+1, s.Last+1)), 0o600))
			case 3:
				tail.spans = slices.DeleteFunc(tail.spans, func(other Span) bool { return other == s })
			}
		}
		got, err := read(tail, from, until)
		for i, revision := range got {
			require.EqualValues(t, from+1+i, revision)
		}
		if err == nil {
			require.Len(t, got, until-from)
		}
	}
}

func TestTailOfAnotherCluster(t *testing.T) {
	dir := t.TempDir()
	s := made(t, 5, 9)
	s.ClusterID = "c2"
	keep(t, dir, s)
	_, err := read(openTail(t, dir), 4, 9)
	assert.Equal(t, damaged, archive.ReasonOf(err))
	_, err = OpenTail(t.Context(), archive.Place{URL: "file:///s/tail", Dir: dir}, Opening{})
	assert.ErrorContains(t, err, "must end with a folder and the ID")
	assert.Equal(t, "nothing behind it is stored", openTail(t, dir).Gap(9))
}

func TestLook(t *testing.T) {
	dir := t.TempDir()
	place := archive.Place{URL: "file:///s", Dir: dir}
	report, err := Look(t.Context(), Asked{Place: place, Prefix: "tail"})
	require.NoError(t, err)
	assert.Equal(t, stores.Tail{}, report, "no folder")
	keep(t, dir, made(t, 5, 9), made(t, 10, 14), made(t, 15, 15), made(t, 20, 22))
	for _, test := range []struct {
		from, until, first, last, revision int64
	}{
		{0, 0, 5, 15, 0}, {7, 0, 8, 15, 0}, {3, 0, 0, 0, 0}, {15, 0, 0, 0, 0}, {19, 99, 20, 22, 22},
		{4, 8, 5, 15, 0}, {4, 9, 5, 15, 9}, {4, 13, 5, 15, 9}, {4, 14, 5, 15, 14}, {4, 99, 5, 15, 15},
	} {
		asked := Asked{Place: place, Prefix: "tail", FromRevision: test.from}
		if test.until > 0 {
			asked.UntilTime = time.Unix(test.until, 0)
		}
		report, err := Look(t.Context(), asked)
		require.NoError(t, err)
		assert.Equal(t, "c1", report.ClusterID)
		assert.Equal(t, []int64{test.first, test.last, test.revision},
			[]int64{report.FirstRevision, report.StoredRevision, report.UntilRevision}, "%+v", test)
	}
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "s", "tail", "c2"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s", "tail", "c2", "1-2.seg"), nil, 0o600))
	_, err = Look(t.Context(), Asked{Place: place, Prefix: "tail"})
	assert.ErrorContains(t, err, "c1, c2")
}

// TestUncovered: a stream that begins tells when no snapshot of its cluster has the users of now and is followed
// without a gap.
func TestUncovered(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		folder, err := archive.OpenFolder(t.Context(), archive.Place{URL: "file:///s", Dir: dir}, "", true)
		require.NoError(t, err)
		defer folder.Close()
		s := session{Options: Options{Tail: "tail"}, folder: folder, prefix: "tail/c1/", clusterID: "c1"}
		reason := func(users, from int64) string {
			ctx, stop := context.WithTimeout(t.Context(), 3*patience)
			defer stop()
			if err := s.uncovered(ctx, archive.Standing{AuthRevision: users}, from); err != nil {
				return archive.ReasonOf(err)
			}
			return ""
		}
		snapshot := func(name, cluster string, revision, users int) {
			record := fmt.Sprintf(`{"sha256":"x","clusterID":%q,"revision":%d,"authRevision":%d}`, cluster, revision,
				users)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "s", name+".db.json"), []byte(record), 0o600))
		}
		keep(t, dir, made(t, 5, 9), made(t, 15, 20))
		assert.Empty(t, reason(2, 9), "no snapshot")
		snapshot("other", "c2", 20, 2)
		snapshot("a", "c1", 4, 1)
		assert.Empty(t, reason(1, 9))
		assert.Equal(t, stores.StreamUsersChanged, reason(2, 9))
		assert.Equal(t, stores.StreamCompacted, reason(1, 20))
		snapshot("b", "c1", 14, 2)
		assert.Empty(t, reason(2, 20))
	})
}

// TestPrune: a segment goes when the oldest snapshot of its cluster is behind it, and stays when that can't be told.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	snapshot := func(name, text string) {
		path := filepath.Join(dir, "s", name+".db.json")
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	of := func(cluster string, revision int) string {
		return fmt.Sprintf(`{"sha256":"x","clusterID":%q,"revision":%d}`, cluster, revision)
	}
	folder, err := archive.OpenFolder(t.Context(), archive.Place{URL: "file:///s", Dir: dir}, "", true)
	require.NoError(t, err)
	t.Cleanup(func() { _ = folder.Close() })
	s := session{Options: Options{Tail: "tail"}, folder: folder, prefix: "tail/c1/", clusterID: "c1"}
	pruned := func(want ...int64) {
		t.Helper()
		oldest, err := s.oldestBase(t.Context())
		if err == nil {
			require.NoError(t, s.removeUpTo(t.Context(), oldest))
		}
		left, err := spans(t.Context(), folder, s.prefix)
		require.NoError(t, err)
		firsts := []int64{}
		for _, span := range left {
			firsts = append(firsts, span.First)
		}
		assert.Equal(t, want, firsts)
	}
	keep(t, dir, made(t, 5, 9), made(t, 10, 14), made(t, 15, 20))
	pruned(5, 10, 15) // no snapshot
	snapshot("other", of("c2", 100))
	pruned(5, 10, 15)
	snapshot("a", of("c1", 8))
	snapshot("b", of("c1", 100))
	pruned(5, 10, 15) // the first ends behind it
	require.NoError(t, os.Remove(filepath.Join(dir, "s", "a.db.json")))
	snapshot("a", of("c1", 14))
	snapshot("c", "not JSON")
	pruned(5, 10, 15)
	require.NoError(t, os.Remove(filepath.Join(dir, "s", "c.db.json")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "s", "notes.json"), []byte("of another program"), 0o600))
	pruned(15)
}

// FuzzHead: whatever stands in the place of a stream's sign of life, it is one of that cluster or none, and takes no
// memory to speak of.
func FuzzHead(f *testing.F) {
	f.Add([]byte(`{"clusterID": "c1", "revision": 7, "at": "2026-03-01T09:00:00Z", "authRevision": 3}`))
	f.Add([]byte(`{"clusterID": "c1", "revision": -7, "at": "9999-12-31T23:59:59.999999999Z"}`))
	f.Add([]byte(`[[[[`))
	f.Add(bytes.Repeat([]byte{'{'}, headSize+1))
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "tail", "c1"), 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tail", "c1", headName), text, 0o600))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tail, err := OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir}, Opening{})
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		defer tail.Close()
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20+64*min(len(text), headSize)))
		require.Contains(t, []string{"", "c1"}, tail.Head.ClusterID)
		if tail.Missing(5) == "" {
			require.LessOrEqual(t, tail.Head.Revision, int64(5))
		}
		whole, err := tail.Whole(t.Context(), 5)
		require.NoError(t, err)
		require.True(t, whole.IsZero() || whole.Equal(tail.Head.At))
	})
}
