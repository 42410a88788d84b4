package stream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// put and deletion are events of a watch.
func put(key string, revision int64) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), Value: []byte("of " + key), CreateRevision: revision,
		ModRevision: revision, Version: 1, Lease: 7}}
}

func deletion(key string, revision int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}}
}

// made is a segment of these revisions, of two events each.
func made(t *testing.T, first, last int64) *Segment {
	t.Helper()
	s := &Segment{Header: Header{Format: format, ClusterID: "c1", First: first, Last: last}}
	for revision := first; revision <= last; revision++ {
		s.records = appendRecord(s.records, put(fmt.Sprint("key-", revision), revision))
		s.records = appendRecord(s.records, deletion(fmt.Sprint("old-", revision), revision))
		s.Events += 2
	}
	s.Times = []Mark{{Revision: last, At: time.Unix(last, 0).UTC()}}
	return s
}

func encoded(t *testing.T, s *Segment) []byte {
	t.Helper()
	whole, err := s.encode(nil)
	require.NoError(t, err)
	return whole
}

// A segment that is read is the one that was written, with the records that etcd would have.
func TestSegment(t *testing.T) {
	was := made(t, 5, 6)
	was.Leases = &Leases{Revision: 6, TTL: map[int64]int64{7: 60}}
	was.Hash = &Hash{Revision: 6, CompactRevision: 1, Hash: "00c0ffee"}
	is, err := decode(encoded(t, was), nil)
	require.NoError(t, err)
	assert.Equal(t, was.Header, is.Header)
	var told []string
	require.NoError(t, is.Each(func(c Change) error {
		kv := &mvccpb.KeyValue{}
		require.NoError(t, proto.Unmarshal(c.Value, kv))
		assert.Equal(t, string(c.Key), string(kv.Key))
		told = append(told, fmt.Sprintf("%d/%d %s %v %d %d", c.Revision, c.Sub, c.Key, c.Deleted, c.Lease,
			kv.ModRevision))
		return nil
	}))
	assert.Equal(t, []string{"5/0 key-5 false 7 5", "5/1 old-5 true 0 0", "6/0 key-6 false 7 6", "6/1 old-6 true 0 0"},
		told)
}

// The sum of a revision is the same whether its events came from a watch or its records from a database.
func TestSums(t *testing.T) {
	var events, records Sum
	require.NoError(t, made(t, 5, 6).Each(func(c Change) error {
		events.Add(c)
		records.AddRecord(c.Revision, c.Deleted, c.Value)
		return nil
	}))
	assert.Equal(t, events.Of(), records.Of())
	var first Sum
	assert.Empty(t, first.Of())
}

// sealed is a segment with another inside, and a right sum.
func sealed(t *testing.T, s *Segment, change func([]byte) []byte) []byte {
	t.Helper()
	whole := encoded(t, s)
	whole = change(whole[:len(whole)-sha256.Size])
	sum := sha256.Sum256(whole)
	return append(whole, sum[:]...)
}

func TestDamagedSegments(t *testing.T) {
	whole := encoded(t, made(t, 5, 9))
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1
		_, err := decode(changed, nil)
		require.Error(t, err, "byte %d of %d", i, len(whole))
		_, err = decode(whole[:i], nil)
		require.Error(t, err, "cut off at %d", i)
	}
	wrong := func(change func(*Segment)) []byte {
		s := made(t, 5, 9)
		change(s)
		return encoded(t, s)
	}
	add := func(s *Segment, e *mvccpb.Event) { s.records = appendRecord(s.records, e) }
	for name, bad := range map[string][]byte{
		"a later format":           wrong(func(s *Segment) { s.Format = 2 }),
		"fewer revisions":          wrong(func(s *Segment) { s.Last = 10 }),
		"more revisions":           wrong(func(s *Segment) { s.Last = 8 }),
		"others":                   wrong(func(s *Segment) { s.First = 4 }),
		"no revisions":             wrong(func(s *Segment) { s.First, s.Last = 9, 5 }),
		"another number of events": wrong(func(s *Segment) { s.Events++ }),
		"a gap":                    wrong(func(s *Segment) { s.Last = 11; add(s, put("x", 11)) }),
		"a step back":              wrong(func(s *Segment) { s.records = appendRecord(s.records, put("x", 5)) }),
		"no key":                   wrong(func(s *Segment) { s.Events++; add(s, put("", 9)) }),
		"no end":                   sealed(t, made(t, 5, 9), func(b []byte) []byte { return b[:len(b)-1] }),
		"no header":                sealed(t, made(t, 5, 9), func(b []byte) []byte { return b[1:] }),
		"more behind its end":      sealed(t, made(t, 5, 9), func(b []byte) []byte { return append(b, 1) }),
	} {
		s, err := decode(bad, nil)
		if err == nil {
			err = s.Each(func(Change) error { return nil })
		}
		assert.Error(t, err, name)
	}
}

// FuzzDecode: whatever is in a store, reading it ends with an error or with revisions in a row.
func FuzzDecode(f *testing.F) {
	t := &testing.T{}
	for last := range int64(4) {
		whole := encoded(t, made(t, 1, last+1))
		f.Add(whole[:len(whole)-sha256.Size])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		sum := sha256.Sum256(content)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := decode(append(bytes.Clone(content), sum[:]...), nil)
		if err == nil {
			_ = s.Each(func(Change) error { return nil })
		}
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20+64*len(content)))
		if err != nil {
			return
		}
		next := s.First
		err = s.Each(func(c Change) error {
			assert.True(t, c.Revision == next || c.Revision == next-1 && c.Sub > 0)
			assert.NotEmpty(t, c.Key)
			next = c.Revision + 1
			return nil
		})
		if err == nil {
			assert.Equal(t, s.Last+1, next)
		}
	})
}

// Restores look for the revision of a time: all up to it had been written by then.
func TestTimes(t *testing.T) {
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	h := Header{First: 5, Last: 9, Times: []Mark{{5, at(10)}, {7, at(20)}, {9, at(30)}}}
	for second, want := range map[int64]int64{9: 0, 10: 5, 19: 5, 20: 7, 30: 9, 99: 9} {
		assert.Equal(t, want, h.Until(at(second)), second)
	}
	assert.Equal(t, at(30), h.Arrived())
	assert.True(t, (&Header{}).Arrived().IsZero())
}

func TestNames(t *testing.T) {
	assert.Equal(t, "5-9.seg", nameOf(5, 9, archive.Form{}))
	for _, name := range []string{"5-9.seg", "5-5.seg.zst", "5-9.seg.zst.age", "1-9223372036854775807.seg.age"} {
		_, ok := spanOf(name)
		assert.True(t, ok, name)
	}
	for _, name := range []string{"", "9-5.seg", "0-5.seg", "05-9.seg", "5-9.seg.tmp", "5-9.seg.123.tmp", "5-9.db",
		"x/5-9.seg", "5-9223372036854775808.seg", "5-9.seg.age.zst", "-5-9.seg"} {
		_, ok := spanOf(name)
		assert.False(t, ok, name)
	}
	assert.Equal(t, hex.EncodeToString(sha256.New().Sum(nil)), sumOf(nil))
}

// TestASegmentThatGrows: a few KB say that they are much more. They take little memory before they are refused, be it
// that they are large or that little becomes much of their first line.
func TestASegmentThatGrows(t *testing.T) {
	line := func(text string, times int) []byte {
		whole := []byte(`{"format":1,"clusterID":"c1","first":1,"last":1,"times":[` + strings.Repeat(text+",", times) + text + "]}\n\x00")
		sum := sha256.Sum256(whole)
		return append(whole, sum[:]...)
	}
	encoder, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	for name, content := range map[string][]byte{
		"large":           make([]byte, 300<<20),
		"many marks":      line("{}", 30<<20),
		"a few too many":  line("{}", mostObjects+1),
		"a long line":     line(`{"at":"`+strings.Repeat(" ", longestLine)+`"}`, 1),
		"of many numbers": line("1", 30<<20),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			keep(t, dir)
			stored := encoder.EncodeAll(content, nil)
			require.NoError(t, os.WriteFile(file(dir, 1, 1)+".zst", stored, 0o600))
			tail, err := OpenTail(t.Context(), archive.Place{URL: "file:///s/tail/c1", Dir: dir}, Opening{})
			require.NoError(t, err)
			defer tail.Close()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = tail.Next(t.Context(), 0)
			runtime.ReadMemStats(&after)
			require.Equal(t, archive.Damaged, archive.ReasonOf(err), "%v", err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5*largest), "of %d bytes", len(stored))
		})
	}
}
