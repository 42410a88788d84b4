package archive

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/contents"
)

// revision is a record of a history.
type revision struct {
	*mvccpb.KeyValue
	gone bool
	kind string
}

func (r revision) name() []byte {
	name := append(binary.BigEndian.AppendUint64(nil, uint64(r.ModRevision)), '_')
	name = binary.BigEndian.AppendUint64(name, 0)
	if r.gone {
		name = append(name, 't')
	}
	return name
}

func (r revision) text(t *testing.T) []byte {
	text, err := proto.Marshal(r.KeyValue)
	require.NoError(t, err)
	return text
}

// historyOf is what etcd keeps of random changes, and the revision up to which it was compacted.
func historyOf(random *rand.Rand) (kept []revision, compacted int64) {
	last := map[string]*mvccpb.KeyValue{}
	changes := 1 + random.IntN(400)
	for i := range changes {
		key := fmt.Sprintf("%s%s/%d", []string{"/registry/", "/app/", "", "a//"}[random.IntN(4)],
			[]string{"pods/a", "pods/b", "services/specs/a", "x.io/things/b"}[random.IntN(4)], random.IntN(12))
		if random.IntN(9) == 0 {
			key = fmt.Sprint("plain-", random.IntN(5))
		}
		is := &mvccpb.KeyValue{Key: []byte(key), ModRevision: int64(i + 2)}
		was := last[key]
		if was != nil && random.IntN(4) == 0 {
			kept = append(kept, revision{is, true, ""})
			delete(last, key)
			continue
		}
		is.Version = 1
		if was != nil {
			is.Version = was.Version + 1
		}
		if random.IntN(5) == 0 {
			is.Lease = 7
		}
		kind := []string{"", "", "v1 Pod", "apps/v1 Deployment"}[random.IntN(4)]
		if strings.Contains(key, "pods/") {
			kind = "v1 Pod"
		}
		is.Value = make([]byte, random.IntN(200))
		if apiVersion, word, is8s := strings.Cut(kind, " "); is8s {
			meta := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), apiVersion)
			meta = protowire.AppendString(protowire.AppendTag(meta, 2, protowire.BytesType), word)
			is.Value = protowire.AppendBytes(append([]byte("k8s\x00"), 0x0a), meta)
		}
		last[key] = is
		kept = append(kept, revision{is, false, kind})
	}
	if random.IntN(4) == 0 {
		return kept, 0
	}
	compacted = int64(2 + random.IntN(changes))
	newest := map[string]int64{}
	for _, r := range kept {
		if r.ModRevision <= compacted {
			newest[string(r.Key)] = r.ModRevision
		}
	}
	return slices.DeleteFunc(kept, func(r revision) bool {
		old := r.ModRevision <= compacted && r.ModRevision != newest[string(r.Key)]
		return old || r.gone && r.ModRevision < compacted
	}), compacted
}

// brute is the account by brute force.
func brute(t *testing.T, kept []revision, compacted int64) (map[string]*v1beta1.PrefixContents, int64) {
	t.Helper()
	all := map[string]*v1beta1.PrefixContents{}
	kinds := map[string]map[string]bool{}
	versions := map[string]int64{}
	last := map[string]revision{}
	each := func(r revision, f func(prefix string, p *v1beta1.PrefixContents)) {
		parts := strings.SplitAfter(strings.TrimPrefix(string(r.Key), "/"), "/")
		for i := range min(len(parts), 6) {
			prefix := strings.Join(parts[:i], "")
			if i > 0 && r.Key[0] == '/' {
				prefix = "/" + prefix
			}
			if all[prefix] == nil {
				all[prefix] = &v1beta1.PrefixContents{Prefix: prefix}
				kinds[prefix] = map[string]bool{}
			}
			f(prefix, all[prefix])
		}
	}
	for _, r := range kept {
		versions[string(r.Key)]++
		last[string(r.Key)] = r
		each(r, func(prefix string, p *v1beta1.PrefixContents) {
			p.Revisions++
			p.Bytes += int64(len(r.name()) + len(r.text(t)))
			if r.ModRevision > compacted {
				p.Writes++
			}
			p.LargestValue = max(p.LargestValue, int64(len(r.Value)))
			p.MostRevisions = max(p.MostRevisions, versions[string(r.Key)])
			if !r.gone {
				kinds[prefix][r.kind] = true
			}
		})
	}
	leased := int64(0)
	for _, r := range last {
		if r.gone {
			continue
		}
		if r.Lease != 0 {
			leased++
		}
		each(r, func(_ string, p *v1beta1.PrefixContents) {
			p.Keys++
			p.LiveBytes += int64(len(r.name()) + len(r.text(t)))
		})
	}
	for prefix, of := range kinds {
		if len(of) == 1 {
			all[prefix].Kind = slices.Collect(maps.Keys(of))[0]
		}
	}
	return all, leased
}

// TestAccount: what is counted while a database is examined is what is in it, compacted or not, and in the middle of
// a compaction.
func TestAccount(t *testing.T) {
	t.Parallel()
	rounds := uint64(400)
	if testing.Short() {
		rounds = 60
	}
	dir := t.TempDir()
	for seed := range rounds {
		random := rand.New(rand.NewPCG(seed, 1))
		kept, compacted := historyOf(random)
		midway := compacted > 0 && random.IntN(4) == 0
		path := filepath.Join(dir, fmt.Sprint(seed))
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
		require.NoError(t, err)
		require.NoError(t, db.Update(func(tx *bolt.Tx) error {
			put := func(bucket, name, value []byte) {
				b, err := tx.CreateBucketIfNotExists(bucket)
				require.NoError(t, err)
				require.NoError(t, b.Put(name, value))
			}
			for _, r := range kept {
				put(keyBucket, r.name(), r.text(t))
			}
			put(leaseBucket, make([]byte, 8), []byte("lease"))
			is := append(binary.BigEndian.AppendUint64(nil, uint64(compacted)), '_', 0, 0, 0, 0, 0, 0, 0, 0)
			put(metaBucket, scheduledCompact, is)
			if !midway {
				put(metaBucket, finishedCompact, is)
			}
			return nil
		}))
		require.NoError(t, db.Close())
		account := contents.New()
		holds, err := Account(t.Context(), path, account)
		require.NoError(t, err)
		require.EqualValues(t, 1, holds.Leases)
		told := account.Report(1000)
		want, leased := brute(t, kept, compacted)
		require.Equal(t, want[""], &told.Total, seed)
		require.Equal(t, leased, told.LeasedKeys, seed)
		require.False(t, told.Estimated)
		if !midway {
			require.Equal(t, told.Total.Keys, holds.Keys, seed)
		}
		rare := 0
		for _, p := range told.Prefixes {
			require.Equal(t, want[p.Prefix], &p, seed)
		}
		for prefix, p := range want {
			if prefix != "" && !slices.ContainsFunc(told.Prefixes, func(is v1beta1.PrefixContents) bool { return is.Prefix == prefix }) {
				require.Less(t, p.Keys*200, max(told.Total.Keys, 1), seed)
				rare++
			}
		}
		require.Equal(t, len(want)-1, len(told.Prefixes)+rare, seed)
	}
}
