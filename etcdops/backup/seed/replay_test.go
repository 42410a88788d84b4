package seed

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/lease/leasepb"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

func putting(revision, lease int64) *mvccpb.Event {
	return &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("a"), Value: []byte("v"), CreateRevision: 2,
		ModRevision: revision, Version: revision - 1, Lease: lease}}
}

func deleting(key string, revision int64) *mvccpb.Event {
	return &mvccpb.Event{Type: mvccpb.Event_DELETE, Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: revision}}
}

// segment is written as docs/decisions/0042-stream.md says, and not by the package that reads it.
func segment(t *testing.T, dir string, h stream.Header, events ...*mvccpb.Event) {
	t.Helper()
	h.Format, h.Events = 1, int64(len(events))
	if h.ClusterID == "" {
		h.ClusterID = "c1"
	}
	var whole bytes.Buffer
	line, err := json.Marshal(h)
	require.NoError(t, err)
	whole.Write(append(line, '\n'))
	for _, e := range events {
		_, err := protodelim.MarshalTo(&whole, e)
		require.NoError(t, err)
	}
	whole.WriteByte(0)
	sum := sha256.Sum256(whole.Bytes())
	whole.Write(sum[:])
	folder := filepath.Join(dir, "tail", "c1")
	require.NoError(t, os.MkdirAll(folder, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d-%d.seg", h.First, h.Last)), whole.Bytes(),
		0o600))
}

// signed puts behind a segment the MAC of its SHA-256 by a key.
func signed(t *testing.T, dir, key string, first, last int64) {
	t.Helper()
	name := filepath.Join(dir, "tail", "c1", fmt.Sprintf("%d-%d.seg", first, last))
	whole, err := os.ReadFile(name)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("segment\n"))
	mac.Write(whole[len(whole)-sha256.Size:])
	require.NoError(t, os.WriteFile(name, mac.Sum(whole), 0o600))
}

// leaveHead leaves that of a stream, signed by a key.
func leaveHead(t *testing.T, dir, key string, head stream.Head) {
	t.Helper()
	text, err := json.Marshal(head)
	require.NoError(t, err)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("head\n"))
	mac.Write(text)
	head.MAC = hex.EncodeToString(mac.Sum(nil))
	text, err = json.Marshal(head)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tail", "c1", "head.json"), text, 0o600))
}

// TestForged: who can write to the store and has no key of the stream changes nothing that is restored: an error names
// what was forged, or a recovery ends before it and says so.
func TestForged(t *testing.T) {
	now, next := strings.Repeat("now-", 10), strings.Repeat("next", 10)
	keys := filepath.Join(t.TempDir(), "stream.key")
	require.NoError(t, os.WriteFile(keys, []byte(next+"\n"+now+"\n"), 0o600)) // the next one signs, and both are believed
	before := func(revision int64) string {
		var whole bytes.Buffer
		_, _ = protodelim.MarshalTo(&whole, putting(revision, 0))
		return fmt.Sprintf("%x", sha256.Sum256(whole.Bytes()))
	}
	made := func(t *testing.T, h stream.Header, key string) string {
		dir := t.TempDir()
		var events []*mvccpb.Event
		for revision := h.First; revision <= h.Last; revision++ {
			events = append(events, putting(revision, 0))
		}
		segment(t, dir, h, events...)
		if key != "" {
			signed(t, dir, key, h.First, h.Last)
		}
		return filepath.Join(dir, "tail", "c1", fmt.Sprintf("%d-%d.seg", h.First, h.Last))
	}
	put := func(t *testing.T, from, folder, name string) {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	const unsigned = "no key of the stream has signed it"
	for name, test := range map[string]struct {
		forge func(t *testing.T, folder string)
		good  int64 // the last revision that is restored
		words []string
	}{
		"nothing": {func(*testing.T, string) {}, 8, nil},
		"a plain segment with a right checksum": {func(t *testing.T, folder string) {
			put(t, made(t, stream.Header{First: 6, Last: 6}, ""), folder, "6-6.seg")
		}, 5, []string{"tail/c1/6-6.seg", unsigned}},
		"one by another key": {func(t *testing.T, folder string) {
			put(t, made(t, stream.Header{First: 6, Last: 6}, strings.Repeat("else", 10)), folder, "6-6.seg")
		}, 5, []string{"tail/c1/6-6.seg", unsigned}},
		"one behind the end": {func(t *testing.T, folder string) {
			put(t, made(t, stream.Header{First: 9, Last: 9}, ""), folder, "9-9.seg")
		}, 8, []string{"tail/c1/9-9.seg", unsigned}},
		"one that goes further than all": {func(t *testing.T, folder string) {
			put(t, made(t, stream.Header{First: 5, Last: 9}, ""), folder, "5-9.seg")
		}, 8, []string{"tail/c1/5-9.seg", unsigned}},
		"a changed byte": {func(t *testing.T, folder string) {
			name := filepath.Join(folder, "6-6.seg")
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			content[len(content)-2*sha256.Size-2] ^= 1
			require.NoError(t, os.WriteFile(name, content, 0o600))
		}, 5, []string{"tail/c1/6-6.seg", "SHA-256"}},
		"one that was cut off": {func(t *testing.T, folder string) {
			require.NoError(t, os.Truncate(filepath.Join(folder, "8-8.seg"), 100))
		}, 7, []string{"tail/c1/8-8.seg", "SHA-256"}},
		"the MAC was cut off": {func(t *testing.T, folder string) {
			name := filepath.Join(folder, "8-8.seg")
			content, err := os.ReadFile(name)
			require.NoError(t, err)
			require.NoError(t, os.Truncate(name, int64(len(content)-sha256.Size)))
		}, 7, []string{"tail/c1/8-8.seg", unsigned}},
		"one is gone from the middle": {func(t *testing.T, folder string) {
			require.NoError(t, os.Remove(filepath.Join(folder, "6-6.seg")))
		}, 5, []string{"6 to 6 are missing"}},
		"the last is gone": {func(t *testing.T, folder string) {
			require.NoError(t, os.Remove(filepath.Join(folder, "8-8.seg")))
		}, 7, []string{"8 to 8 are missing"}},
		"one under the name of another": {func(t *testing.T, folder string) {
			put(t, filepath.Join(folder, "6-6.seg"), folder, "7-7.seg")
		}, 6, []string{"tail/c1/7-7.seg", "its revisions are not those of its name"}},
		"two have changed places": {func(t *testing.T, folder string) {
			six, seven := filepath.Join(folder, "6-6.seg"), filepath.Join(folder, "7-7.seg")
			require.NoError(t, os.Rename(six, six+".was"))
			require.NoError(t, os.Rename(seven, six))
			require.NoError(t, os.Rename(six+".was", seven))
		}, 5, []string{"tail/c1/6-6.seg", "its revisions are not those of its name"}},
		"one of the stream of another etcd": {func(t *testing.T, folder string) {
			put(t, made(t, stream.Header{ClusterID: "c2", First: 6, Last: 6}, now), folder, "6-6.seg")
		}, 5, []string{"tail/c1/6-6.seg", "it is of another cluster"}},
		"one of another life of the etcd": {func(t *testing.T, folder string) {
			put(t, made(t, stream.Header{First: 6, Last: 6, Before: before(4)}, now), folder, "6-6.seg")
		}, 5, []string{"tail/c1/6-6.seg", "another history"}},
	} {
		dir := t.TempDir()
		folder := filepath.Join(dir, "tail", "c1")
		for revision := int64(5); revision <= 8; revision++ {
			h := stream.Header{First: revision, Last: revision, Before: before(revision - 1)}
			if revision == 5 {
				h.Before = ""
			}
			segment(t, dir, h, putting(revision, 0))
			signed(t, dir, []string{now, next}[revision%2], revision, revision)
		}
		leaveHead(t, dir, now, stream.Head{ClusterID: "c1", Revision: 8, At: time.Now().UTC()})
		test.forge(t, folder)
		to, r, err := filledBy(t, dir, keys, Options{AsFarAsPossible: true, Fetch: fetching(t, new(int))})
		require.NoError(t, err, name)
		assert.Equal(t, test.good, r.until, name)
		records, _ := contents(t, to.staged().database())
		assert.Len(t, records, int(test.good-4), name)
		assert.NotContains(t, r.doubt(), "others", name)
		_, _, err = filledBy(t, dir, keys, Options{UntilRevision: 9, Fetch: fetching(t, new(int))})
		require.Error(t, err, name)
		if test.words == nil {
			assert.Empty(t, r.ended, name)
		}
		for _, words := range test.words {
			assert.Contains(t, r.ended, words, name)
			assert.ErrorContains(t, err, words, name)
		}
	}
}

// TestForgedHeads: a stream with keys tells where it has ended, and others can't.
func TestForgedHeads(t *testing.T) {
	key := strings.Repeat("k", 40)
	keys := filepath.Join(t.TempDir(), "stream.key")
	require.NoError(t, os.WriteFile(keys, []byte(key), 0o600))
	ended := func(dir string) string {
		_, r, err := filledBy(t, dir, keys, Options{AsFarAsPossible: true, Fetch: fetching(t, new(int))})
		require.NoError(t, err)
		return r.ended
	}
	dir := t.TempDir()
	assert.Equal(t, "no stream has stored anything in tail/c1/", ended(dir))
	segment(t, dir, stream.Header{First: 5, Last: 5}, putting(5, 0))
	signed(t, dir, key, 5, 5)
	const headless = "tail/c1/head.json, which says how much is stored, is missing or no key of the stream has signed it"
	assert.Equal(t, headless, ended(dir))
	leaveHead(t, dir, key, stream.Head{ClusterID: "c1", Revision: 5})
	assert.Empty(t, ended(dir))
	leaveHead(t, dir, key, stream.Head{ClusterID: "c1", Revision: 7})
	assert.Equal(t, "6 to 7 are missing", ended(dir))
	leaveHead(t, dir, strings.Repeat("o", 40), stream.Head{ClusterID: "c1", Revision: 5})
	assert.Equal(t, headless, ended(dir))
	leaveHead(t, dir, key, stream.Head{ClusterID: "c2", Revision: 5})
	assert.Equal(t, headless, ended(dir))

	o := Options{AsFarAsPossible: true, Fetch: fetching(t, new(int))}
	_, r, err := filled(t, dir, o)
	require.NoError(t, err)
	assert.Contains(t, r.doubt(), "whether others have written to the stream is not known")
}

// snapshotAt4 is a database with the revisions 2 to 4 of a key, and leases 1 and 2.
func snapshotAt4(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	require.NoError(t, makeEmpty(path))
	db, err := bolt.Open(path, 0o600, nil)
	require.NoError(t, err)
	require.NoError(t, db.Update(func(tx *bolt.Tx) error {
		for revision := int64(2); revision <= 4; revision++ {
			value, err := proto.Marshal(putting(revision, 1).Kv)
			require.NoError(t, err)
			require.NoError(t, tx.Bucket(keyOf).Put(raised(revision), value))
		}
		for id := int64(1); id <= 2; id++ {
			value, err := proto.Marshal(&leasepb.Lease{ID: id, TTL: 100})
			require.NoError(t, err)
			require.NoError(t, tx.Bucket([]byte(leasesBucket)).Put(leaseName(id), value))
		}
		return tx.Bucket([]byte("auth")).Put([]byte("authRevision"), binary.BigEndian.AppendUint64(nil, 3))
	}))
	require.NoError(t, db.Close())
	return path
}

var keyOf = []byte(keysBucket)

func replayed(t *testing.T, dir, path string, until int64) (*replay, error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tail", "c1"), 0o750))
	tail, err := stream.OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir}, stream.Opening{})
	require.NoError(t, err)
	defer tail.Close()
	return Options{Tail: tail, UntilRevision: until}.replay(t.Context(), path, &stores.Artifact{ClusterID: "c1"})
}

// contents are the names of records behind revision 4, and the leases with their time.
func contents(t *testing.T, path string) (records []string, leases map[int64]int64) {
	t.Helper()
	leases = map[int64]int64{}
	require.NoError(t, viewed(path, func(tx *bolt.Tx) error {
		c := tx.Bucket(keyOf).Cursor()
		for name, _ := c.Seek(raised(5)); name != nil; name, _ = c.Next() {
			text := fmt.Sprintf("%d/%d", binary.BigEndian.Uint64(name), binary.BigEndian.Uint64(name[9:]))
			records = append(records, text+string(name[revisionLength:]))
		}
		return tx.Bucket([]byte(leasesBucket)).ForEach(func(_, value []byte) error {
			var l leasepb.Lease
			require.NoError(t, proto.Unmarshal(value, &l))
			leases[l.ID] = l.TTL
			return nil
		})
	}))
	return records, leases
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	// Two writers: they overlap, and the second begins in the middle of the first.
	segment(t, dir, stream.Header{First: 3, Last: 6,
		Leases: &stream.Leases{Since: 6, Revision: 6, TTL: map[int64]int64{1: 100, 3: 300}}},
		putting(3, 1), putting(4, 1), putting(5, 3), deleting("a", 6), deleting("b", 6))
	segment(t, dir, stream.Header{First: 6, Last: 8}, deleting("a", 6), deleting("b", 6), putting(7, 4), putting(8, 4))
	segment(t, dir, stream.Header{First: 9, Last: 9, Leases: &stream.Leases{Since: 8, Revision: 9, TTL: map[int64]int64{4: 400}}},
		deleting("a", 9))
	for until, want := range map[int64]struct {
		records []string
		leases  map[int64]int64
	}{
		4: {nil, map[int64]int64{1: 100, 2: 100}},
		5: {[]string{"5/0"}, map[int64]int64{1: 100, 2: 100, 3: 300}}, // the list is of a later revision
		6: {[]string{"5/0", "6/0t", "6/1t"}, map[int64]int64{1: 100, 3: 300}},
		7: {[]string{"5/0", "6/0t", "6/1t", "7/0"}, map[int64]int64{1: 100, 3: 300, 4: unknownTTL}},
		0: {[]string{"5/0", "6/0t", "6/1t", "7/0", "8/0", "9/0t"}, map[int64]int64{4: 400}},
	} {
		path := snapshotAt4(t)
		r, err := replayed(t, dir, path, until)
		require.NoError(t, err, until)
		records, leases := contents(t, path)
		assert.Equal(t, want.records, records, until)
		assert.Equal(t, want.leases, leases, until)
		holds, err := archive.Examine(t.Context(), path)
		require.NoError(t, err)
		require.NoError(t, r.agrees(holds))
		end := until
		if until == 0 {
			end = 9
		}
		assert.Equal(t, end, r.told(&stores.Artifact{}).Revision)
		holds.Sum++
		assert.Equal(t, damaged, archive.ReasonOf(r.agrees(holds)))
	}
}

func TestReplayRefuses(t *testing.T) {
	last := sha256.Sum256([]byte("another"))
	for name, test := range map[string]struct {
		headers []stream.Header
		until   int64
		reason  string
		words   string
	}{
		"a gap": {[]stream.Header{{First: 6, Last: 6}}, 6, notFound, "5 to 5 are missing"},
		"less than is asked for": {[]stream.Header{{First: 5, Last: 5}}, 6, notFound,
			"the changes end at revision 5, and the restore is to end at 6: nothing behind it is stored"},
		"a snapshot that goes further": {nil, 3, notFound, "use an earlier snapshot"},
		"users that have changed": {[]stream.Header{{First: 5, Last: 5, AuthRevision: 4}}, 5, failed,
			"use a later snapshot, or end at revision 4"},
		"another history": {[]stream.Header{{First: 5, Last: 5, Before: fmt.Sprintf("%x", last)}}, 5, damaged,
			"revision 4 is not the same"},
		"another hash": {[]stream.Header{{First: 5, Last: 5, Hash: &stream.Hash{Revision: 5, Hash: "00000000"}}}, 5,
			damaged, "and a member had 00000000"},
		"a hash that can't be compared": {[]stream.Header{{First: 5, Last: 5,
			Hash: &stream.Hash{Revision: 6, Hash: "00000000"}}}, 5, "", ""},
		"users that were not looked at yet": {[]stream.Header{{First: 5, Last: 5, AuthRevision: 2}}, 5, "", ""},
		"the same users":                    {[]stream.Header{{First: 5, Last: 5, AuthRevision: 3}}, 5, "", ""},
	} {
		dir, path := t.TempDir(), snapshotAt4(t)
		for _, h := range test.headers {
			segment(t, dir, h, putting(h.First, 0))
		}
		_, err := replayed(t, dir, path, test.until)
		if test.reason == "" {
			assert.NoError(t, err, name)
			continue
		}
		assert.Equal(t, test.reason, archive.ReasonOf(err), name)
		assert.ErrorContains(t, err, test.words, name)
	}
}

// TestReplayOnlyEncrypted: who may write to a store, and has no key, adds nothing behind a snapshot that is encrypted.
func TestReplayOnlyEncrypted(t *testing.T) {
	for _, asFar := range []bool{true, false} {
		dir, path := t.TempDir(), snapshotAt4(t)
		segment(t, dir, stream.Header{First: 5, Last: 5}, putting(5, 0))
		tail, err := stream.OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir}, stream.Opening{})
		require.NoError(t, err)
		o := Options{Tail: tail, AsFarAsPossible: asFar}
		_, err = o.replay(t.Context(), path, &stores.Artifact{ClusterID: "c1", Encrypted: true})
		assert.ErrorContains(t, err, "tail/c1/5-5.seg is not encrypted")
		var end *ending
		require.ErrorAs(t, err, &end)
		assert.Equal(t, int64(4), end.at, "that is where a recovery ends")
		_, err = o.replay(t.Context(), path, &stores.Artifact{ClusterID: "c1"})
		assert.NoError(t, err)
		require.NoError(t, tail.Close())
	}
}

// TestReplayBehindOtherRecipients: what is encrypted for others ends a recovery at the last revision that can be read.
// A restore to what is behind it says so.
func TestReplayBehindOtherRecipients(t *testing.T) {
	dir := t.TempDir()
	segment(t, dir, stream.Header{First: 5, Last: 5}, putting(5, 0))
	segment(t, dir, stream.Header{First: 6, Last: 6}, putting(6, 0))
	own, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	identity := filepath.Join(t.TempDir(), "identity")
	require.NoError(t, os.WriteFile(identity, []byte(own.String()), 0o600))
	others, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	for name, to := range map[string]*age.X25519Identity{"5-5.seg": own, "6-6.seg": others} {
		plain := filepath.Join(dir, "tail", "c1", name)
		text, err := os.ReadFile(plain)
		require.NoError(t, err)
		require.NoError(t, os.Remove(plain))
		var sealed bytes.Buffer
		w, err := age.Encrypt(&sealed, to.Recipient())
		require.NoError(t, err)
		_, err = w.Write(text)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.NoError(t, os.WriteFile(plain+".age", sealed.Bytes(), 0o600))
	}
	tail, err := stream.OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir}, stream.Opening{IdentityFile: identity})
	require.NoError(t, err)
	defer tail.Close()
	_, err = Options{Tail: tail, AsFarAsPossible: true}.replay(t.Context(), snapshotAt4(t),
		&stores.Artifact{ClusterID: "c1", Encrypted: true})
	var end *ending
	require.ErrorAs(t, err, &end)
	assert.Equal(t, int64(5), end.at, "a recovery goes on to there")
	assert.Contains(t, end.why, "the segment 6-6")
	assert.Contains(t, end.why, "is encrypted for others")
	assert.Equal(t, archive.WrongKey, archive.ReasonOf(err))
	assert.ErrorContains(t, err, "name a Secret with the identities of all recipients there were, or end at revision 5")
}

// TestReplayTellsOfTheHead: a stream's sign of life tells of users that have changed since, and of what is missing at
// the end. Without anything of a stream a restore to its end is refused.
func TestReplayTellsOfTheHead(t *testing.T) {
	dir := t.TempDir()
	_, err := replayed(t, dir, snapshotAt4(t), 0)
	assert.ErrorContains(t, err, "no stream of cluster c1 has stored anything there")
	for _, test := range []struct {
		head stream.Head
		ends string
	}{
		{stream.Head{ClusterID: "c1", Revision: 4, AuthRevision: 3}, ""},
		{stream.Head{ClusterID: "c1", Revision: 4, AuthRevision: 4}, usersChanged},
		{stream.Head{ClusterID: "c1", Revision: 6, AuthRevision: 3}, "5 to 6 are missing"},
		{stream.Head{ClusterID: "c2", Revision: 6, AuthRevision: 4}, ""},
	} {
		leaves(t, dir, test.head)
		tail, err := stream.OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir}, stream.Opening{})
		require.NoError(t, err)
		r, err := Options{Tail: tail, AsFarAsPossible: true}.replay(t.Context(), snapshotAt4(t),
			&stores.Artifact{ClusterID: "c1"})
		require.NoError(t, err)
		assert.Equal(t, test.ends, r.ended)
		require.NoError(t, tail.Close())
	}
}

// fetching gets the snapshot at revision 4, and counts.
func fetching(t *testing.T, count *int) func(context.Context, string) (*stores.Artifact, error) {
	return func(_ context.Context, to string) (*stores.Artifact, error) {
		*count++
		content, err := os.ReadFile(snapshotAt4(t))
		require.NoError(t, err)
		return &stores.Artifact{ClusterID: "c1", SHA256: "sum"}, os.WriteFile(to, content, 0o600)
	}
}

// filled is what fill makes of the snapshot at revision 4 and what is stored in dir.
func filled(t *testing.T, dir string, o Options) (to place, r *replay, err error) {
	t.Helper()
	return filledBy(t, dir, "", o)
}

// filledBy is that with the keys of the stream in a file.
func filledBy(t *testing.T, dir, keys string, o Options) (to place, r *replay, err error) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tail", "c1"), 0o750))
	o.Tail, err = stream.OpenTail(t.Context(), archive.Place{URL: "file:///tail/c1", Dir: dir},
		stream.Opening{KeysFile: keys})
	require.NoError(t, err)
	defer o.Tail.Close()
	to.dataDir = filepath.Join(t.TempDir(), "data")
	require.NoError(t, os.MkdirAll(filepath.Dir(to.staged().database()), 0o700))
	o.EtcdVersion = "3.6.16"
	_, r, err = o.fill(t.Context(), to)
	return to, r, err
}

// TestReplayAsFarAsPossible: whatever can't be followed ends the replay where all is known to be good.
func TestReplayAsFarAsPossible(t *testing.T) {
	other := fmt.Sprintf("%x", sha256.Sum256([]byte("another")))
	wrong := &stream.Hash{Revision: 6, Hash: "00000000"}
	at5, _, err := filled(t, tailTo(t, stream.Header{First: 5, Last: 5}), Options{Fetch: fetching(t, new(int))})
	require.NoError(t, err)
	good, err := archive.HashAt(t.Context(), at5.staged().database(), 5, 0)
	require.NoError(t, err)
	for name, test := range map[string]struct {
		headers []stream.Header
		damaged string
		until   int64
		ended   string
		fetches int
	}{
		"nothing is stored": {nil, "", 4, "", 1},
		"all":               {[]stream.Header{{First: 5, Last: 5}, {First: 6, Last: 6}}, "", 6, "", 1},
		"a gap":             {[]stream.Header{{First: 5, Last: 5}, {First: 7, Last: 7}}, "", 5, "6 to 6 are missing", 1},
		"a gap at once":     {[]stream.Header{{First: 7, Last: 7}}, "", 4, "5 to 6 are missing", 1},
		"a damaged segment": {[]stream.Header{{First: 5, Last: 5}, {First: 6, Last: 6}, {First: 7, Last: 7}}, "6-6.seg", 5,
			"tail/c1/6-6.seg is not a segment of the stream", 2},
		"the first is damaged": {[]stream.Header{{First: 5, Last: 5}}, "5-5.seg", 4,
			"tail/c1/5-5.seg is not a segment of the stream", 2},
		"users that have changed": {[]stream.Header{{First: 5, Last: 5, AuthRevision: 3},
			{First: 6, Last: 6, AuthRevision: 4}}, "", 5, "users or roles have changed", 2},
		"another history": {[]stream.Header{{First: 5, Last: 5}, {First: 6, Last: 6, Before: other}}, "", 5,
			"another history", 2},
		"a hash that differs": {[]stream.Header{{First: 5, Last: 5}, {First: 6, Last: 6, Hash: wrong}}, "", 4,
			"at revision 6 a member had other keys", 2},
		"one that was the same before": {[]stream.Header{
			{First: 5, Last: 5, Hash: &stream.Hash{Revision: 5, Hash: good}}, {First: 6, Last: 6, Hash: wrong},
			{First: 7, Last: 7}}, "", 5, "at revision 6 a member had other keys", 2},
		"first a hash, then users": {[]stream.Header{{First: 5, Last: 5, Hash: &stream.Hash{Revision: 5, Hash: "1"}},
			{First: 6, Last: 6, AuthRevision: 4}}, "", 4, "at revision 5 a member had other keys", 3},
	} {
		dir, fetches := tailTo(t, test.headers...), 0
		if test.damaged != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "tail", "c1", test.damaged), []byte("cut"), 0o600))
		}
		to, r, err := filled(t, dir, Options{AsFarAsPossible: true, Fetch: fetching(t, &fetches)})
		require.NoError(t, err, name)
		assert.Equal(t, test.until, r.until, name)
		assert.Contains(t, r.ended, test.ended, name)
		assert.Equal(t, test.ended == "", r.ended == "", "%s: %s", name, r.ended)
		assert.Equal(t, test.fetches, fetches, name)
		records, _ := contents(t, to.staged().database())
		assert.Len(t, records, int(test.until-4), name)
		holds, err := archive.Examine(t.Context(), to.staged().database())
		require.NoError(t, err, name)
		assert.NoError(t, r.agrees(holds), name)
		assert.Equal(t, test.until, holds.Revision, name)
	}
}

// tailTo is a folder with segments of one put in each revision.
func tailTo(t *testing.T, headers ...stream.Header) string {
	t.Helper()
	dir := t.TempDir()
	for _, h := range headers {
		var events []*mvccpb.Event
		for revision := h.First; revision <= h.Last; revision++ {
			lease := int64(0)
			if revision <= 4 {
				lease = 1 // as in the snapshot
			}
			events = append(events, putting(revision, lease))
		}
		segment(t, dir, h, events...)
	}
	return dir
}

// leaves a stream's sign of life.
func leaves(t *testing.T, dir string, head stream.Head) {
	t.Helper()
	text, err := json.Marshal(head)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "tail", "c1"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tail", "c1", "head.json"), text, 0o600))
}

// TestReplayUntilATime: a time has one revision, or is an error that says up to when there is one.
func TestReplayUntilATime(t *testing.T) {
	began := time.Date(2026, 11, 22, 14, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	none := stream.Head{}
	alive := func(revision int64, seconds int, users int64) stream.Head {
		return stream.Head{ClusterID: "c1", Revision: revision, At: at(seconds), AuthRevision: users}
	}
	stored := []stream.Header{
		{First: 3, Last: 6, Times: []stream.Mark{{Revision: 3, At: at(-20)}, {Revision: 5, At: at(10)},
			{Revision: 6, At: at(20)}}},
		{First: 7, Last: 7, Times: []stream.Mark{{Revision: 7, At: at(30)}}},
	}
	for name, test := range map[string]struct {
		stored   []stream.Header
		complete time.Time
		seconds  int
		until    int64
		words    string
		head     stream.Head
	}{
		"of a change":                {stored, began, 10, 5, "", none},
		"between two":                {stored, began, 19, 5, "", none},
		"at the end of a segment":    {stored, began, 29, 6, "", none},
		"of the last":                {stored, time.Time{}, 30, 7, "", none},
		"after the last":             {stored, began, 31, 0, "all is stored up to 2026-11-22T14:00:30Z, at revision 7", none},
		"after the snapshot":         {stored, began, 5, 4, "", none},
		"before the snapshot":        {stored, began, -1, 0, "use an earlier snapshot", none},
		"of an unknown snapshot":     {stored, time.Time{}, 5, 0, "use an earlier snapshot", none},
		"of nothing":                 {nil, began, 5, 0, "all is stored up to 2026-11-22T14:00:00Z, at revision 4", none},
		"of nothing, and before":     {nil, began, -5, 0, "use an earlier snapshot", none},
		"of nothing, and who knows?": {nil, time.Time{}, 5, 0, "no change behind the snapshot is stored", none},
		"nothing written since":      {stored, began, 40, 7, "", alive(7, 50, 1)},
		"and not even the first":     {nil, began, 40, 4, "", alive(4, 50, 1)},
		"after the sign of life":     {stored, began, 51, 0, "all is stored up to 2026-11-22T14:00:50Z", alive(7, 50, 1)},
		"of a sign before the last":  {stored, began, 31, 0, "all is stored up to 2026-11-22T14:00:30Z", alive(6, 25, 1)},
		"of a sign behind a gap":     {stored, began, 31, 0, "all is stored up to 2026-11-22T14:00:30Z", alive(9, 50, 1)},
		"users changed at the end":   {stored, began, 40, 0, usersChanged, alive(7, 50, 9)},
		"users changed after it":     {stored, began, 19, 5, "", alive(7, 50, 9)},
	} {
		fetch := func(ctx context.Context, to string) (*stores.Artifact, error) {
			told, err := fetching(t, new(int))(ctx, to)
			told.Completed = test.complete
			return told, err
		}
		dir := tailTo(t, test.stored...)
		if test.head.Revision != 0 {
			leaves(t, dir, test.head)
		}
		_, r, err := filled(t, dir, Options{Fetch: fetch, UntilTime: at(test.seconds)})
		if test.words != "" {
			assert.Equal(t, test.words == usersChanged, archive.ReasonOf(err) != notFound, name)
			assert.ErrorContains(t, err, test.words, name)
			continue
		}
		require.NoError(t, err, name)
		assert.Equal(t, test.until, r.until, name)
		assert.False(t, r.arrived.After(at(test.seconds)), name)
	}
}
