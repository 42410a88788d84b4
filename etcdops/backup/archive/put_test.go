package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

const key = "shop/demo-1.db"

// database is what a member sends: half of it compresses well.
func database(size int) []byte {
	random := rand.NewChaCha8([32]byte{7})
	data := make([]byte, size)
	_, _ = random.Read(data[:size/2])
	return sealed(data)
}

func newFolder(t *testing.T) (*store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := openStore(context.Background(), Place{URL: "file:///folder", Dir: dir}, true)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, dir
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	i, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	return i
}

// files are those of a folder, with their paths in it.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	return found
}

func forms(t *testing.T) map[string]Form {
	one, other := identity(t), identity(t)
	hybrid, err := age.GenerateHybridIdentity()
	require.NoError(t, err)
	return map[string]Form{
		"as it is":   {Compression: v1beta1.CompressNone},
		"compressed": {Compression: v1beta1.CompressZstd},
		"encrypted":  {Compression: v1beta1.CompressNone, Recipients: []age.Recipient{one.Recipient()}},
		"both, for two": {Compression: v1beta1.CompressZstd,
			Recipients: []age.Recipient{one.Recipient(), other.Recipient()}},
		"both, for quantum": {Compression: v1beta1.CompressZstd, Recipients: []age.Recipient{hybrid.Recipient()}},
	}
}

// What is there in part under the name of an object is replaced; what is there whole stays.
func TestPutOfWhatIsThere(t *testing.T) {
	s, dir := newFolder(t)
	f, path := &Folder{store: s}, filepath.Join(dir, "folder", "5-9.seg")
	for there, want := range map[string]string{"": "whole", "who": "whole", "WHOLE": "WHOLE"} {
		require.NoError(t, os.WriteFile(path, []byte(there), 0o600))
		size, err := f.Put(t.Context(), "5-9.seg", []byte("whole"), Form{})
		require.NoError(t, err)
		assert.EqualValues(t, 5, size)
		is, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, want, string(is))
	}
}

// What is stored is read back without an identity, in the process that stored it and in no other.
func TestPutAndBack(t *testing.T) {
	ctx := context.Background()
	for name, form := range forms(t) {
		t.Run(name, func(t *testing.T) {
			s, dir := newFolder(t)
			sent := database(3 << 20)
			stored, back, err := s.put(ctx, key, bytes.NewReader(sent), form, false)
			require.NoError(t, err)
			assert.EqualValues(t, len(sent), stored.Size)
			sum := sha256.Sum256(sent)
			assert.Equal(t, hex.EncodeToString(sum[:]), stored.SHA256)
			object, err := os.ReadFile(filepath.Join(dir, "folder", key))
			require.NoError(t, err)
			sum = sha256.Sum256(object)
			assert.Equal(t, hex.EncodeToString(sum[:]), stored.StoredSHA256)
			assert.EqualValues(t, len(object), stored.StoredSize)
			assert.Equal(t, len(form.Recipients), bytes.Count(object[:min(len(object), 8<<10)], []byte("\n-> ")),
				"no one else can read it")
			require.NoError(t, s.finish(ctx, key, stored))
			assert.Equal(t, []string{"folder/" + key, "folder/" + key + ".json"}, files(t, dir))

			to := filepath.Join(t.TempDir(), "db")
			var identities []age.Identity
			if back != nil {
				identities = append(identities, back)
			}
			found, err := s.fetchFile(ctx, key, identities, 1<<30, to)
			require.NoError(t, err)
			require.NoError(t, agree("", stored, found, ""))
			fetched, err := os.ReadFile(to)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(sent, fetched))
		})
	}
}

// A put that stops at any byte, or has a full disk there, leaves nothing: neither of this try nor of the one before.
func TestStoppedAnywhere(t *testing.T) {
	sent := database(2 << 20)
	random := rand.New(rand.NewPCG(1, 2))
	for name, form := range forms(t) {
		t.Run(name, func(t *testing.T) {
			s, dir := newFolder(t)
			for range 12 {
				stored, _, err := s.put(context.Background(), key, bytes.NewReader(sent), form, false)
				require.NoError(t, err)
				require.NoError(t, s.finish(context.Background(), key, stored))

				ctx, stop := context.WithCancel(context.Background())
				at := random.IntN(len(sent))
				_, _, err = s.put(ctx, key, io.MultiReader(bytes.NewReader(sent[:at]), stopping{ctx, stop}), form,
					false)
				require.Error(t, err)
				assert.Empty(t, files(t, dir), "stopped at %d", at)
			}
			ctx, stop := context.WithCancel(context.Background())
			stop()
			assert.Error(t, s.finish(ctx, key, &stores.Artifact{}))
			assert.Empty(t, files(t, dir))
		})
	}
}

// stopping ends the context and then fails, as a stream of gRPC does.
type stopping struct {
	ctx  context.Context
	stop context.CancelFunc
}

func (s stopping) Read([]byte) (int, error) {
	s.stop()
	return 0, s.ctx.Err()
}

// A member that breaks off, or sends something else than its hash says, leaves nothing.
func TestNotWhatTheMemberSent(t *testing.T) {
	s, dir := newFolder(t)
	sent := database(1 << 20)
	for name, wrong := range map[string][]byte{
		"nothing": nil, "cut off": sent[:len(sent)-1], "short": sent[:20], "flipped": flipped(sent, 1000),
		"its hash": flipped(sent, len(sent)-1),
	} {
		_, _, err := s.put(context.Background(), key, bytes.NewReader(wrong), Form{Compression: v1beta1.CompressZstd},
			false)
		assert.Equal(t, Damaged, ReasonOf(err), "%s: %v", name, err)
		assert.Empty(t, files(t, dir), name)
	}
	_, _, err := s.put(context.Background(), key, io.MultiReader(bytes.NewReader(sent), failing{}), Form{}, false)
	var source *readError
	assert.True(t, errors.As(err, &source), "%v", err)
	assert.Empty(t, files(t, dir))
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("the member is gone") }

func flipped(data []byte, at int) []byte {
	changed := bytes.Clone(data)
	changed[at] ^= 1
	return changed
}

// A process that is killed leaves a file under another name, and the next try removes it.
func TestKilled(t *testing.T) {
	s, dir := newFolder(t)
	rest := filepath.Join(dir, "folder", key+".18a9c5.tmp")
	external := filepath.Join(dir, "folder", "shop/demo-2.db.18a9c5.tmp")
	require.NoError(t, os.MkdirAll(filepath.Dir(rest), 0o750))
	for _, path := range []string{rest, external} {
		require.NoError(t, os.WriteFile(path, []byte("half"), 0o600))
	}
	_, err := s.record(context.Background(), "shop/demo-1.db.zst")
	assert.Equal(t, NotFound, ReasonOf(err))
	_, _, err = s.put(context.Background(), key, bytes.NewReader(database(1000)), Form{}, false)
	require.NoError(t, err)
	assert.Equal(t, []string{"folder/" + key, "folder/shop/demo-2.db.18a9c5.tmp"}, files(t, dir))
}

// store stores an artifact for good, encrypted and compressed.
func storeOne(t *testing.T, s *store, i *age.X25519Identity, sent []byte) *stores.Artifact {
	t.Helper()
	stored, _, err := s.put(context.Background(), key, bytes.NewReader(sent),
		Form{Compression: v1beta1.CompressZstd, Recipients: []age.Recipient{i.Recipient()}}, false)
	require.NoError(t, err)
	require.NoError(t, s.finish(context.Background(), key, stored))
	return stored
}

func identityFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "identity")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return path
}

// Each way in which an artifact can't be had has its reason, and leaves no file.
func TestFetchSaysWhy(t *testing.T) {
	s, dir := newFolder(t)
	right, wrong := identity(t), identity(t)
	sent := database(1 << 20)
	stored := storeOne(t, s, right, sent)
	object := filepath.Join(dir, "folder", key)
	intact, err := os.ReadFile(object)
	require.NoError(t, err)
	record, err := os.ReadFile(object + ".json")
	require.NoError(t, err)
	good := Source{URL: "file:///folder/" + key, StoreDir: dir, IdentityFile: identityFile(t, "# mine", wrong.String(),
		right.String()), SHA256: stored.SHA256}
	for _, c := range []struct {
		name, want string
		change     func(from *Source)
	}{
		{"as it was stored", "", func(*Source) {}},
		{"no identity", WrongKey, func(f *Source) { f.IdentityFile = "" }},
		{"another person's identity", WrongKey, func(f *Source) { f.IdentityFile = identityFile(t, wrong.String()) }},
		{"no identity in the file", WrongKey, func(f *Source) { f.IdentityFile = identityFile(t, "secret words") }},
		{"no file with identities", WrongKey, func(f *Source) { f.IdentityFile = "/does/not/exist" }},
		{"another hash was wanted", Damaged, func(f *Source) { f.SHA256 = strings.Repeat("0", 64) }},
		{"cut off", Damaged, func(*Source) { put(t, object, intact[:len(intact)-1]) }},
		{"cut off in the middle", Damaged, func(*Source) { put(t, object, intact[:len(intact)/2]) }},
		{"empty", Damaged, func(*Source) { put(t, object, nil) }},
		{"more behind it", Damaged, func(*Source) { put(t, object, append(bytes.Clone(intact), 0)) }},
		{"no record", Damaged, func(*Source) { put(t, object+".json", []byte("{}")) }},
		{"half a record", Damaged, func(*Source) { put(t, object+".json", record[:20]) }},
		{"another's record", Damaged, func(*Source) { put(t, object+".json", otherRecord(t, record)) }},
		{"the folder is gone", NotFound, func(f *Source) { f.URL = "file:///elsewhere/" + key }},
		{"the artifact is gone", NotFound, func(f *Source) { require.NoError(t, os.Remove(object)) }},
		{"the volume is not mounted", NotFound, func(f *Source) { f.StoreDir = "/does/not/exist" }},
		{"no name", Failed, func(f *Source) { f.URL = "file:///" }},
		{"the name of a record", Failed, func(f *Source) { f.URL += ".json" }},
		{"a URL that is none", Failed, func(f *Source) { f.URL = "s3:///folder/name" }},
		{"credentials in the URL", Failed, func(f *Source) { f.URL = "s3://me:secret@bucket/name" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			put(t, object, intact)
			put(t, object+".json", record)
			from, to := good, filepath.Join(t.TempDir(), "db")
			c.change(&from)
			found, err := Fetch(context.Background(), from, to)
			if c.want == "" {
				require.NoError(t, err)
				assert.Equal(t, stored.SHA256, found.SHA256)
				return
			}
			require.Error(t, err)
			assert.Equal(t, c.want, ReasonOf(err), "%v", err)
			assert.NotContains(t, err.Error(), "secret words")
			_, err = os.Stat(to)
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}

// An artifact that was renamed or copied is fetched by any name that the API admits.
func TestFetchByAnyName(t *testing.T) {
	s, dir := newFolder(t)
	stored := storeOne(t, s, identity(t), database(100))
	text, err := json.Marshal(stored)
	require.NoError(t, err)
	object, err := os.ReadFile(filepath.Join(dir, "folder", key))
	require.NoError(t, err)
	for _, name := range []string{".hidden", "_x", "team:shop,prod=1+@~.db", "a/..b/x..y.", "-"} {
		path := filepath.Join(dir, "folder", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		put(t, path, object)
		put(t, path+".json", text)
		size, err := SizeOf(context.Background(), Source{URL: "file:///folder/" + name, StoreDir: dir})
		require.NoError(t, err, name)
		assert.Equal(t, stored.Size, size)
		_, err = Fetch(context.Background(), Source{URL: "file:///folder/" + name, StoreDir: dir},
			filepath.Join(t.TempDir(), "db"))
		assert.Equal(t, WrongKey, ReasonOf(err), "it is found, and encrypted: %v", err)
	}
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, data, 0o600))
}

func otherRecord(t *testing.T, text []byte) []byte {
	t.Helper()
	var record stores.Artifact
	require.NoError(t, json.Unmarshal(text, &record))
	record.StoredSHA256 = strings.Repeat("0", 64)
	changed, err := json.Marshal(record)
	require.NoError(t, err)
	return changed
}

// A flipped bit anywhere is damage. (In what age says of the recipients it may look like another key.)
func TestFlippedBits(t *testing.T) {
	s, dir := newFolder(t)
	i := identity(t)
	storeOne(t, s, i, database(1<<20))
	object := filepath.Join(dir, "folder", key)
	intact, err := os.ReadFile(object)
	require.NoError(t, err)
	from := Source{URL: "file:///folder/" + key, StoreDir: dir, IdentityFile: identityFile(t, i.String())}
	random := rand.New(rand.NewPCG(3, 4))
	header := bytes.Index(intact, []byte("\n---")) // the code of the header comes after it
	for n := range 200 {
		at := random.IntN(len(intact))
		if n < 50 {
			at = n * 4 // most of the header
		}
		put(t, object, flipped(intact, at))
		_, err := Fetch(context.Background(), from, filepath.Join(t.TempDir(), "db"))
		require.Error(t, err, "byte %d", at)
		if at > header {
			assert.Equal(t, Damaged, ReasonOf(err), "byte %d: %v", at, err)
		} else {
			assert.True(t, slices.Contains([]string{Damaged, WrongKey}, ReasonOf(err)), "byte %d: %v", at, err)
		}
	}
}

func TestDiscard(t *testing.T) {
	s, dir := newFolder(t)
	storeOne(t, s, identity(t), database(100))
	place := Place{URL: "file:///folder", Dir: dir}
	for range 2 {
		require.NoError(t, Discard(context.Background(), place, key))
		assert.Empty(t, files(t, dir))
	}
	require.NoError(t, Discard(context.Background(), Place{URL: "file:///never/made", Dir: dir}, key))
	assert.Error(t, Discard(context.Background(), place, "../elsewhere"))
	assert.Error(t, Discard(context.Background(), place, "demo.db.json"))
}

// Credentials never get into an error, and a record's URI leads back to the artifact.
func TestURI(t *testing.T) {
	s, _ := newFolder(t)
	assert.Equal(t, "file:///folder/"+key, s.uri(key))
	for _, from := range []Source{
		{URL: "s3://bucket/a/b/demo.db.zst?region=eu-west-1"},
		{URL: "s3://bucket/a/b/demo.db.zst", StoreURL: "s3://bucket/a?region=eu-west-1"},
		{URL: "s3://bucket/a/b/demo.db.zst?region=eu-west-1", StoreURL: "s3://bucket/a?region=elsewhere"},
	} {
		folder, name, err := from.folder()
		require.NoError(t, err)
		assert.Equal(t, "demo.db.zst", name)
		store := &store{url: folder}
		assert.Equal(t, "s3://bucket/a/b/demo.db.zst?region=eu-west-1", store.uri(name))
		assert.Equal(t, "reading the snapshot in s3://bucket", store.about("reading", name))
		assert.Equal(t, "reading the record of the snapshot in s3://bucket", store.about("reading", name+recordSuffix))
	}
}

// The seal finds etcd's hash however the bytes come in.
func TestSeal(t *testing.T) {
	sent := database(1000)
	for size := 1; size < 200; size++ {
		s := newSeal()
		for chunk := range slices.Chunk(sent, size) {
			_, _ = s.Write(chunk)
		}
		assert.True(t, s.whole(), "chunks of %d", size)
		sum := sha256.Sum256(sent)
		assert.Equal(t, hex.EncodeToString(sum[:]), s.sum())
	}
}
