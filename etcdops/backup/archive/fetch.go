package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/quorate-dev/quorate/etcdops/backup/pages"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Source says which artifact to fetch, and how it is reached and opened.
type Source struct {
	// URL of the artifact, as reports.Artifact.URI and the status of an EtcdSnapshot have it.
	URL string
	// StoreURL is that of its folder, whose query counts when URL has none; may be empty.
	StoreURL string
	// StoreDir and CAFile are Dir and CAFile of its Place.
	StoreDir, CAFile string
	// IdentityFile holds age identities, one a line; may be empty.
	IdentityFile string
	// SHA256 that the database must have, in hexadecimal; empty when it is not known.
	SHA256 string
}

// Fetch fetches an artifact, decrypts and decompresses it, and leaves in the file what `etcdctl snapshot save` would
// have: for etcdutl to restore. The file exists afterwards only if everything was whole. Its record says what it
// holds. An artifact without a record is taken when its name ends in .db and it ends with etcd's hash: etcdctl wrote
// it.
//
// Errors have a reason: see ReasonOf.
func Fetch(ctx context.Context, from Source, to string) (*stores.Artifact, error) {
	var err error
	var identities []age.Identity
	if from.IdentityFile != "" {
		if identities, err = readIdentities(from.IdentityFile); err != nil {
			return nil, err
		}
	}
	store, key, err := from.store(ctx)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	record, err := store.record(ctx, key)
	if err != nil {
		return nil, err
	}
	if from.SHA256 != "" && record.SHA256 != "" && from.SHA256 != record.SHA256 {
		return nil, failure(Damaged, nil, "%s is not the one that was asked for: its database has the SHA-256 %s, "+
			"and %s was expected", store.named(key), record.SHA256, from.SHA256)
	}
	found, err := store.fetchFile(ctx, key, identities, record.Size, to)
	if err == nil {
		err = agree(store.named(key), record, found, from.SHA256)
	}
	if err != nil {
		return nil, errors.Join(err, discardFile(to))
	}
	record.URI = found.URI
	record.Encrypted = found.Encrypted
	record.Compression = found.Compression
	record.Size = found.Size
	record.StoredSize = found.StoredSize
	record.SHA256 = found.SHA256
	record.StoredSHA256 = found.StoredSHA256
	return record, nil
}

// folder of the artifact, and what that is called in it.
func (from Source) folder() (folder stores.URL, key string, err error) {
	artifact, err := stores.ParseArtifactURL(from.URL)
	if err != nil {
		return folder, "", failure(Failed, nil, "the URL of the artifact is not one that can be used: %s", err)
	}
	if folder, err := stores.ParseURL(from.StoreURL); err == nil && artifact.Parameters == "" &&
		folder.Scheme == artifact.Scheme {
		artifact.Parameters = folder.Parameters
	}
	folder, key = artifact.Split()
	return folder, key, nil
}

// store opens the store of the artifact, and says what that is called in it.
func (from Source) store(ctx context.Context) (*store, string, error) {
	folder, key, err := from.folder()
	if err != nil {
		return nil, "", err
	}
	place := Place{URL: folder.String(), Dir: from.StoreDir, CAFile: from.CAFile}
	store, err := openStore(ctx, place, false)
	return store, key, err
}

// SizeOf is how many bytes Fetch will write, before it is called: what the record of the artifact says, or without
// one the size of what is stored, which etcdctl has written as it is.
func SizeOf(ctx context.Context, from Source) (int64, error) {
	store, key, err := from.store(ctx)
	if err != nil {
		return 0, err
	}
	defer store.Close()
	record, err := store.record(ctx, key)
	if err != nil {
		return 0, err
	}
	if record.Size > 0 {
		return record.Size, nil
	}
	stored, err := store.bucket.Attributes(ctx, key)
	if err != nil {
		return 0, store.storeFailure(err, store.about("looking for", key))
	}
	return stored.Size, nil
}

// discardFile removes what is not whole.
func discardFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func readIdentities(path string) ([]age.Identity, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, failure(WrongKey, err, "the age identities can't be read; check the Secret and its key")
	}
	defer f.Close()
	identities, err := age.ParseIdentities(f)
	if err != nil {
		// The cause is left out: it may quote a line, and the line may be a secret.
		return nil, failure(WrongKey, nil, "%s holds no age identities: every line must be one, such as "+
			"AGE-SECRET-KEY-1..., or a comment", filepath.Base(path))
	}
	return identities, nil
}

// record reads what is known of an artifact: nothing, of one by etcdctl.
func (s *store) record(ctx context.Context, key string) (*stores.Artifact, error) {
	text, err := s.readAll(ctx, key+recordSuffix)
	switch {
	case err != nil && s.reason(err) == NotFound && strings.HasSuffix(key, ".db"):
		return &stores.Artifact{}, nil
	case err != nil && s.reason(err) == NotFound:
		return nil, failure(NotFound, err, "%s has no record %s beside it, so it is not there or was never finished",
			s.named(key), recordSuffix)
	case err != nil:
		return nil, s.storeFailure(err, s.about("reading", key+recordSuffix))
	}
	record := &stores.Artifact{}
	if err := json.Unmarshal(text, record); err != nil || record.SHA256 == "" {
		return nil, failure(Damaged, nil, "%s does not say what that holds; take another snapshot",
			s.named(key+recordSuffix))
	}
	return record, nil
}

// recordLimit is far above what a record takes, and far below what would hurt.
const recordLimit = 64 << 10

func (s *store) readAll(ctx context.Context, key string) ([]byte, error) {
	r, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(io.LimitReader(r, recordLimit))
}

// fetchFile reads an artifact into a file, which gets as many bytes as the artifact's record says at most. Without one,
// size is 0 and the artifact has been written as it is, so that there are no more than are stored.
func (s *store) fetchFile(ctx context.Context, key string, identities []age.Identity, size int64, to string) (
	*stores.Artifact, error) {
	f, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, localFailure(err, to)
	}
	found, err := s.fetch(ctx, key, identities, size, f)
	if closed := f.Close(); err == nil && closed != nil {
		err = localFailure(closed, to)
	}
	return found, err
}

// localFailure is about a file of this machine.
func localFailure(err error, path string) error {
	if full(err) {
		return failure(NoSpace, err, "no space is left for %s, which needs as much as the database; free some space "+
			"or enlarge the volume", path)
	}
	return failure(Failed, err, "%s can't be written", path)
}

// fetch reads an artifact: decrypted, decompressed, with etcd's own hash checked. What it found is told as an artifact.
func (s *store) fetch(ctx context.Context, key string, identities []age.Identity, size int64, to *os.File) (
	*stores.Artifact, error) {
	reader, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, s.storeFailure(err, s.about("reading", key))
	}
	defer reader.Close()
	found := &stores.Artifact{URI: s.uri(key), Compression: string(v1beta1.CompressNone)}
	stored := sha256.New()
	source := &watched{r: reader}
	artifact, begins, err := peek(source, len(ageMagic))
	if err != nil {
		return nil, s.fetchFailure(key, source, err)
	}
	asItIs := !bytes.HasPrefix(begins, ageMagic) && !bytes.HasPrefix(begins, zstdMagic)
	if !asItIs { // else what is stored is the database, and its hash is that of the database
		artifact = io.TeeReader(artifact, stored)
	}
	plain, end, err := open(artifact, identities, found)
	if err != nil {
		return nil, s.fetchFailure(key, source, err)
	}
	defer end()
	database := newSeal()
	written := &watchedWriter{w: &file{File: to}}
	if size == 0 {
		size = reader.Size()
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(written, database)},
		struct{ io.Reader }{io.LimitReader(plain, size+1)}, make([]byte, 256<<10))
	switch {
	case err == nil && n > size:
		return nil, failure(Damaged, nil, "%s holds more than the %d bytes that it is to have: it is not what was stored",
			s.named(key), size)
	case written.err != nil:
		return nil, localFailure(written.err, to.Name())
	case err != nil:
		return nil, s.fetchFailure(key, source, err)
	case !database.whole():
		return nil, failure(Damaged, nil, "%s does not end with the hash of what it holds: it is cut off, damaged, "+
			"or no snapshot by etcd; take another one", s.named(key))
	}
	found.Size = database.size
	found.SHA256 = database.sum()
	found.StoredSize = source.n
	found.StoredSHA256 = hex.EncodeToString(stored.Sum(nil))
	if asItIs {
		found.StoredSHA256 = found.SHA256
	}
	return found, nil
}

// fetchFailure tells trouble with the store from trouble with what it keeps.
func (s *store) fetchFailure(key string, source *watched, err error) error {
	var wrong *age.NoIdentityMatchError
	var own *reasonedError
	switch {
	case source.err != nil:
		return s.storeFailure(source.err, s.about("reading", key))
	case errors.As(err, &own):
		return err
	case errors.As(err, &wrong):
		return failure(WrongKey, nil, "%s is encrypted for others: none of the age identities opens it", s.named(key))
	default:
		return failure(Damaged, err, "%s is damaged: it is not what was stored; take another snapshot", s.named(key))
	}
}

// What artifacts begin with: age-encryption.org/v1, and RFC 8878, section 3.1.1.
var (
	ageMagic  = []byte("age-encryption.org/")
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// windowLimit of zstd: what we write has 8 MiB.
const windowLimit = 32 << 20

// open takes off encryption and compression, which show by what there is, and tells so. To be called when done: end.
func open(stored io.Reader, identities []age.Identity, found *stores.Artifact) (plain io.Reader, end func(),
	err error) {
	end = func() {}
	plain, begins, err := peek(stored, len(ageMagic))
	if err != nil {
		return nil, end, err
	}
	if bytes.Equal(begins, ageMagic) {
		found.Encrypted = true
		if len(identities) == 0 {
			return nil, end, failure(WrongKey, nil, "the snapshot is encrypted, and there are no age identities to "+
				"open it: name their Secret")
		}
		decrypted, err := age.Decrypt(plain, identities...)
		if err != nil {
			return nil, end, err
		}
		plain = decrypted
	}
	if plain, begins, err = peek(plain, len(zstdMagic)); err != nil {
		return nil, end, err
	}
	if bytes.Equal(begins, zstdMagic) {
		found.Compression = string(v1beta1.CompressZstd)
		decoder, err := zstd.NewReader(plain, zstd.WithDecoderMaxWindow(windowLimit), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, end, err
		}
		return decoder, decoder.Close, nil
	}
	return plain, end, nil
}

// peek looks at the first bytes; fewer when there are fewer.
func peek(r io.Reader, n int) (io.Reader, []byte, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	begins, err := buffered.Peek(n)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	return buffered, begins, nil
}

// agree compares what was found with what the record says, and with the hash that was asked for. A record of nothing
// agrees with all.
func agree(name string, record, found *stores.Artifact, wanted string) error {
	switch {
	case record.StoredSHA256 != "" && record.StoredSHA256 != found.StoredSHA256:
		return failure(Damaged, nil, "%s is damaged: %d bytes with the SHA-256 %s are stored, and %d with %s were; "+
			"take another snapshot", name, found.StoredSize, found.StoredSHA256, record.StoredSize, record.StoredSHA256)
	case record.SHA256 != "" && record.SHA256 != found.SHA256:
		return failure(Damaged, nil, "%s is damaged: its database has the SHA-256 %s, not the recorded %s; take "+
			"another snapshot", name, found.SHA256, record.SHA256)
	case wanted != "" && wanted != found.SHA256:
		return failure(Damaged, nil, "%s is not the one that was asked for: its database has the SHA-256 %s, and %s "+
			"was expected", name, found.SHA256, wanted)
	}
	return nil
}

// watched is a reader that remembers its error and how much was read, so that the error is known behind decoders that
// have their own.
type watched struct {
	r   io.Reader
	n   int64
	err error
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.n += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		w.err = err
	}
	return n, err
}

// watchedWriter is the same for writers.
type watchedWriter struct {
	w   io.Writer
	n   int64
	err error
}

// file is a large one that is written from its beginning.
type file struct {
	*os.File
	at, out int64
}

// writeOut is after how many bytes the kernel is told to begin to write them to the disk.
const writeOut = 16 << 20

func (f *file) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.at += int64(n)
	if f.at-f.out >= writeOut {
		pages.WriteOut(f.File, f.out, f.at-f.out)
		f.out = f.at
	}
	return n, err
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.n += int64(n)
	if err != nil {
		w.err = err
	}
	return n, err
}
