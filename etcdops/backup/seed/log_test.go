package seed

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// entries from first to last, of one term, each with that many bytes.
func entries(term, first, last uint64, size int) []*raftpb.Entry {
	var list []*raftpb.Entry
	for i := first; i <= last; i++ {
		data := make([]byte, size)
		for j := range data {
			data[j] = byte(i)
		}
		list = append(list, &raftpb.Entry{Type: raftpb.EntryNormal.Enum(), Term: new(term), Index: new(i), Data: data})
	}
	return list
}

// newLog writes a log of member 5 in cluster 6 as etcd does.
func newLog(t testing.TB, write func(w *wal.WAL)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "wal")
	whose, err := proto.Marshal(&etcdserverpb.Metadata{NodeID: new(uint64(5)), ClusterID: new(uint64(6))})
	require.NoError(t, err)
	w, err := wal.Create(zap.NewNop(), dir, whose)
	require.NoError(t, err)
	w.SetUnsafeNoFsync()
	write(w)
	require.NoError(t, w.Close())
	return dir
}

func save(t testing.TB, w *wal.WAL, commit uint64, list []*raftpb.Entry) {
	t.Helper()
	require.NoError(t, w.Save(&raftpb.HardState{Term: list[len(list)-1].Term, Vote: new(uint64(5)),
		Commit: new(commit)}, list))
}

// read is what readLog says and passes on, with overridden entries left out as etcd does.
func read(t *testing.T, dir string, after uint64) (*entryLog, []uint64) {
	t.Helper()
	var terms []uint64
	l, err := readLog(dir, after, func(e *raftpb.Entry) error {
		terms = append(terms[:e.GetIndex()-after-1], e.GetTerm())
		return nil
	})
	require.NoError(t, err)
	return l, terms
}

func TestLogIsReadAsEtcdReadsIt(t *testing.T) {
	small := wal.SegmentSizeBytes
	wal.SegmentSizeBytes = 64 << 10 // several files
	defer func() { wal.SegmentSizeBytes = small }()
	dir := newLog(t, func(w *wal.WAL) {
		for i := uint64(1); i <= 300; i += 10 {
			save(t, w, i, entries(1, i, i+9, 1000))
		}
		require.NoError(t, w.SaveSnapshot(&walpb.Snapshot{Index: new(uint64(250)), Term: new(uint64(1)),
			ConfState: &raftpb.ConfState{Voters: []uint64{5}}}))
		save(t, w, 291, entries(3, 295, 296, 10)) // a leader of a later term had other entries
	})
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	require.NoError(t, err)
	require.Greater(t, len(files), 3)
	l, terms := read(t, dir, 0)
	require.Equal(t, &entryLog{clusterID: 6, memberID: 5, lastTerm: 3, lastIndex: 296, commit: 291,
		snapshots: []uint64{0, 250}}, l)
	require.EqualValues(t, 250, l.newestSnapshot())
	require.Len(t, terms, 296)
	require.Equal(t, []uint64{1, 3, 3}, terms[293:])

	w, err := wal.OpenForRead(zap.NewNop(), dir, &walpb.Snapshot{Index: new(uint64(250)), Term: new(uint64(1))})
	require.NoError(t, err)
	_, state, theirs, err := w.ReadAll()
	require.NoError(t, err)
	_, terms = read(t, dir, 250)
	require.Len(t, terms, len(theirs))
	require.Equal(t, state.GetCommit(), l.commit)

	// Files from before the database's last entry are not needed: etcd removes them, and they may be damaged.
	require.NoError(t, os.Remove(files[0]))
	require.NoError(t, os.WriteFile(files[1], []byte("damaged"), 0o600))
	_, terms = read(t, dir, 250)
	require.Len(t, terms, len(theirs))
	require.NoError(t, os.Remove(files[len(files)-2]))
	_, err = readLog(dir, 150, nil)
	require.Equal(t, damaged, archive.ReasonOf(err), "%v", err)
}

// TestLogThatAddsNothing: etcd is needed for entries that change the data, and for no others; a log that does not follow
// on its database is of no use.
func TestLogThatAddsNothing(t *testing.T) {
	t.Parallel()
	entry := func(index uint64, kind raftpb.EntryType, data string) *raftpb.Entry {
		return &raftpb.Entry{Type: kind.Enum(), Term: new(uint64(1)), Index: new(index), Data: []byte(data)}
	}
	const member = "\x08\x07\x12\x03PUT\x1a\x02/0" // by API 2
	none := []*raftpb.Entry{entry(1, raftpb.EntryNormal, "changes what the database has"),
		entry(2, raftpb.EntryNormal, ""), entry(3, raftpb.EntryConfChange, "x"), entry(4, raftpb.EntryNormal, member)}
	for name, c := range map[string]struct {
		more    []*raftpb.Entry
		changes bool
		reason  string
	}{
		"nothing":   {nil, false, ""},
		"a put":     {[]*raftpb.Entry{entry(5, raftpb.EntryNormal, "x")}, true, ""},
		"not known": {[]*raftpb.Entry{entry(5, raftpb.EntryNormal, "\xff")}, true, ""},
		"a gap":     {[]*raftpb.Entry{entry(6, raftpb.EntryNormal, "")}, false, damaged},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newLog(t, func(w *wal.WAL) { save(t, w, 1, append(none[:4:4], c.more...)) })
			_, changes, err := (&survivor{walDir: dir, db: &database{index: 1}}).tail()
			require.Equal(t, c.changes, changes)
			if c.reason != "" {
				require.Equal(t, c.reason, archive.ReasonOf(err), "%v", err)
				return
			}
			require.NoError(t, err)
		})
	}
}

func TestTornLog(t *testing.T) {
	dir := newLog(t, func(w *wal.WAL) { save(t, w, 5, entries(1, 1, 10, 3000)) })
	file := filepath.Join(dir, "0000000000000000-0000000000000000.wal")
	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	ends := len(whole)
	for whole[ends-1] == 0 {
		ends--
	}
	cases := []struct {
		name   string
		change func(raw []byte) []byte
		last   uint64
		reason string
	}{
		{"whole", func(raw []byte) []byte { return raw }, 10, ""},
		{"cut off, within the last but one", func(raw []byte) []byte { return raw[:ends-3500] }, 8, ""},
		{"its last sectors were never written", func(raw []byte) []byte { clear(raw[ends-2500:]); return raw }, 9, ""},
		{"cut off within a length", func(raw []byte) []byte { return raw[:ends-ends%8-3048+4] }, 9, ""},
		{"damaged in the middle", func(raw []byte) []byte { raw[9000] ^= 1; return raw }, 0, damaged},
		{"nothing but zeros", func(raw []byte) []byte { clear(raw); return raw }, 0, damaged},
		{"empty", func([]byte) []byte { return nil }, 0, damaged},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			torn := t.TempDir()
			raw := c.change(append([]byte{}, whole...))
			require.NoError(t, os.WriteFile(filepath.Join(torn, filepath.Base(file)), raw, 0o600))
			l, err := readLog(torn, 0, nil)
			if c.reason != "" {
				require.Equal(t, c.reason, archive.ReasonOf(err), "%v", err)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.last, l.lastIndex)
			}
			after, err := os.ReadFile(filepath.Join(torn, filepath.Base(file)))
			require.NoError(t, err)
			require.Equal(t, len(raw), len(after), "nothing is repaired")
		})
	}
}

func TestNothingToInspection(t *testing.T) {
	dir := t.TempDir()
	_, err := Inspection(dir, "")
	require.Equal(t, notFound, archive.ReasonOf(err))
	require.ErrorContains(t, err, "no etcd has run there")

	snap := filepath.Join(dir, "member", "snap")
	require.NoError(t, os.MkdirAll(snap, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(snap, "db"), make([]byte, 8192), 0o600))
	_, err = Inspection(dir, "")
	require.Equal(t, damaged, archive.ReasonOf(err), "%v", err)

	// A database that ends before its pages do: reading it would be a fault.
	require.NoError(t, os.Remove(filepath.Join(snap, "db")))
	db, err := bolt.Open(filepath.Join(snap, "db"), 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		for _, name := range []string{"meta", "key"} {
			if _, err := tx.CreateBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket([]byte("key")).Put([]byte("k"), make([]byte, 1<<20))
	}))
	require.NoError(t, db.Close())
	_, err = Inspection(dir, "")
	require.Equal(t, notFound, archive.ReasonOf(err), "no log: %v", err)
	require.NoError(t, os.Truncate(filepath.Join(snap, "db"), 3*4096))
	_, err = Inspection(dir, "")
	require.Equal(t, damaged, archive.ReasonOf(err), "%v", err)
}

func TestWhatIsAboutMembers(t *testing.T) {
	request := func(r *etcdserverpb.InternalRaftRequest) []byte {
		r.Header = &etcdserverpb.RequestHeader{ID: 7}
		raw, err := proto.Marshal(r)
		require.NoError(t, err)
		return raw
	}
	require.False(t, aboutMembers(request(&etcdserverpb.InternalRaftRequest{Put: &etcdserverpb.PutRequest{Key: []byte("PUT"), Value: make([]byte, 1000)}})))
	require.False(t, aboutMembers(request(&etcdserverpb.InternalRaftRequest{AuthEnable: &etcdserverpb.AuthEnableRequest{}})))
	require.False(t, aboutMembers(request(&etcdserverpb.InternalRaftRequest{Alarm: &etcdserverpb.AlarmRequest{}})))
	require.False(t, aboutMembers(nil))
	require.False(t, aboutMembers([]byte{0xff}))
	// Field 1301, and field 2 of the messages of API 2.
	require.True(t, aboutMembers([]byte{0xaa, 0x51, 0x00}))
	require.True(t, aboutMembers([]byte("\x08\x07\x12\x03PUT\x1a\x02/0")))
}
