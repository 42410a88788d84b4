package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

const (
	// partSize of uploads in parts, each of which is held in memory until it is sent. S3 takes 10,000 of them: 78
	// GiB, where etcd itself advises 8 GiB at most.
	partSize = 8 << 20
	// partsAtOnce are sent at the same time.
	partsAtOnce = 3
	// cleaningTime is for removing what was not finished, when everything else was told to end.
	cleaningTime = 10 * time.Second
)

// Form is how a snapshot is stored.
type Form struct {
	Compression v1beta1.Compression
	// Recipients of age who may read it; with none, everyone may.
	Recipients []age.Recipient
	// Lock that S3 puts on what is stored; nil for none.
	Lock *Lock
}

// ParseRecipients reads public keys of age.
func ParseRecipients(keys []string) ([]age.Recipient, error) {
	var all []age.Recipient
	for i, key := range keys {
		one, err := age.ParseRecipients(bytes.NewReader([]byte(key)))
		if err != nil {
			// The cause and the key are left out: it may be an identity, which is a secret.
			return nil, failure(Failed, nil, "recipient %d is not an age public key: it must look like "+
				"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p", i+1)
		}
		all = append(all, one...)
	}
	return all, nil
}

// Two runs may write under one name: a pod that was given up with its node may write on. No store has locks, so a run
// looks before each step whether what is there is still its own, and gives way to another one's: it removes and
// describes nothing that is not its own. What was found missing is not replaced when another run is done first
// (IfNotExist). What is left open is the moment between a look and the write that follows it, where S3 is another's
// than Amazon's also the time of the upload, and on a claim a database of the same size. Then a record may describe
// another run's object. That never passes for whole: who reads it compares hashes, and the next run, or the one that
// verifies, takes another.

// errReplaced is about what is another run's.
var errReplaced = failure(Failed, nil, "another run has stored it meanwhile")

// put stores what etcd sends as an artifact, without its record. Whatever was there under its name is removed before,
// the record first; so is what comes of a failure, unless another run is done. With keep, what was there stays until
// it is replaced, at once: every store has an object whole or not at all. The identity reads the artifact back, in
// this process: see witness.
func (s *store) put(ctx context.Context, key string, snapshot io.Reader, form Form,
	keep bool) (stored *stores.Artifact, back age.Identity, err error) {
	s.tag = ""
	if !keep {
		if err := s.clear(ctx, key); err != nil {
			return nil, nil, err
		}
		defer func() {
			if err != nil {
				err = s.abandoned(ctx, key, err)
			}
		}()
	}
	whole := &witness{}
	database := newSeal()
	object := &counted{hash: sha256.New()}
	err = s.write(ctx, key, !keep && s.conditional(), func(w io.Writer) error {
		object.w = w
		layers, err := form.layers(object, whole)
		if err != nil {
			return err
		}
		if err := pump(io.MultiWriter(database, layers), snapshot); err != nil {
			return err
		}
		if !database.whole() { // found out before the object has an end, so that there is none
			return failure(Damaged, nil, "the snapshot did not arrive as the member sent it: its hash is another "+
				"one; it will be tried again")
		}
		return layers.Close()
	})
	if err != nil {
		return nil, nil, err
	}
	stored = &stores.Artifact{
		URI: s.uri(key), Compression: string(form.Compression), Encrypted: len(form.Recipients) > 0,
		Size: database.size, StoredSize: object.n,
		SHA256: database.sum(), StoredSHA256: hex.EncodeToString(object.hash.Sum(nil)),
	}
	s.tag, err = s.settle(ctx, key, stored.StoredSize)
	return stored, whole.identity(), err
}

// conditional reports whether the store is known to write an object on the condition that there is none. Another's S3
// may refuse such a request, and an upload can't be repeated.
func (s *store) conditional() bool {
	return s.url.Scheme != stores.S3 || s.url.Parameter("endpoint") == ""
}

// replaced reports whether another run has stored something in the place of what the tag is of, or has removed that.
func (s *store) replaced(ctx context.Context, key string) (bool, error) {
	if s.tag == "" {
		return false, nil
	}
	found, err := s.bucket.Attributes(ctx, key)
	switch {
	case err == nil:
		return s.tagOf(found) != s.tag, nil
	case s.reason(err) == NotFound:
		return true, nil
	case s.reason(err) == Denied: // who may only write can't look
		return false, nil
	}
	return false, s.storeFailure(err, s.about("looking at", key))
}

func (s *store) tagOf(object *blob.Attributes) string {
	if s.dir != "" {
		return strconv.FormatInt(object.Size, 10)
	}
	return object.ETag
}

// pump copies until the end. Reading and writing take turns no longer than one buffer: the next one is read while the
// last is written.
func pump(to io.Writer, from io.Reader) error {
	const buffers = 4
	free := make(chan []byte, buffers)
	filled := make(chan []byte, buffers)
	for range buffers {
		free <- make([]byte, 1<<20)
	}
	read := make(chan error, 1)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		defer close(filled)
		for {
			var buffer []byte
			select {
			case buffer = <-free:
			case <-stop:
				return
			}
			n, err := io.ReadFull(from, buffer[:cap(buffer)])
			filled <- buffer[:n] // has room for all buffers
			if err != nil {
				read <- err
				return
			}
		}
	}()
	for buffer := range filled {
		if _, err := to.Write(buffer); err != nil {
			return err
		}
		free <- buffer
	}
	if err := <-read; !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return &readError{err}
	}
	return nil
}

// readError is one of the source, not of the store.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// Words implements [Worded]: the source is etcd's client.
func (e *readError) Words() string { return oneLine(e.error) }

// layers are compression and encryption around an object, to be closed from the outside in.
func (f Form) layers(object io.Writer, whole *witness) (io.WriteCloser, error) {
	all := stack{Writer: object}
	if len(f.Recipients) > 0 {
		recipients := append([]age.Recipient{}, f.Recipients...)
		whole.Recipient = recipients[0]
		recipients[0] = whole
		encrypted, err := age.Encrypt(all.Writer, recipients...)
		if err != nil {
			return nil, failure(Failed, err, "the snapshot can't be encrypted for these recipients")
		}
		all.push(encrypted)
	}
	if f.Compression == v1beta1.CompressZstd {
		// Each thread takes some 20 MiB: as many as there are cores would make memory grow with the machine.
		compressed, err := zstd.NewWriter(all.Writer, zstd.WithEncoderConcurrency(2), zstd.WithWindowSize(4<<20))
		if err != nil {
			return nil, failure(Failed, err, "the snapshot can't be compressed")
		}
		all.push(compressed)
	}
	return &all, nil
}

// stack are writers around each other; the last one is outside.
type stack struct {
	io.Writer
	closers []io.Closer
}

func (s *stack) push(w io.WriteCloser) {
	s.Writer = w
	s.closers = append(s.closers, w)
}

// Close closes all, the outside first.
func (s *stack) Close() error {
	for i := len(s.closers) - 1; i >= 0; i-- {
		if err := s.closers[i].Close(); err != nil {
			return err
		}
	}
	return nil
}

// witness is a recipient that keeps the key of the file in memory, so that what was stored can be read back for
// verification: no identity is needed for that, and no recipient is added who could read it later.
type witness struct {
	age.Recipient
	fileKey []byte
}

// Wrap implements [age.Recipient].
func (w *witness) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	w.fileKey = bytes.Clone(fileKey)
	return w.Recipient.Wrap(fileKey)
}

// WrapWithLabels implements [age.RecipientWithLabels], by which age finds recipients that don't go together.
func (w *witness) WrapWithLabels(fileKey []byte) ([]*age.Stanza, []string, error) {
	w.fileKey = bytes.Clone(fileKey)
	if labelled, ok := w.Recipient.(age.RecipientWithLabels); ok {
		return labelled.WrapWithLabels(fileKey)
	}
	stanzas, err := w.Recipient.Wrap(fileKey)
	return stanzas, nil, err
}

func (w *witness) identity() age.Identity {
	if w.fileKey == nil {
		return nil
	}
	return age.NewInjectedFileKeyIdentity(w.fileKey)
}

// counted hashes and counts what becomes the object.
type counted struct {
	w    io.Writer
	hash hash.Hash
	n    int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.hash.Write(p[:n])
	c.n += int64(n)
	return n, err
}

// errUploadEnded is what the function that still fills an object is told.
var errUploadEnded = errors.New("the upload has ended")

// write makes one object, all or nothing: a store keeps nothing of an upload whose context ended before its last byte.
//
// The upload reads from a pipe, and is not written to: in gocloud.dev v0.47 a writer of azureblob panics in Close
// when its upload has failed (the reader of its own pipe is nil by then).
//
// With fresh, an object that is there by then stays, and the error is errReplaced.
func (s *store) write(ctx context.Context, key string, fresh bool, fill func(io.Writer) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	reader, feed := io.Pipe()
	filled := make(chan error, 1)
	go func() {
		err := fill(feed)
		if err != nil {
			stop() // before the upload sees an end that is none
		}
		_ = feed.CloseWithError(err) // always nil
		filled <- err
	}()
	err := s.bucket.Upload(ctx, key, reader, &blob.WriterOptions{
		BufferSize: partSize, MaxConcurrency: partsAtOnce, IfNotExist: fresh,
		ContentType: "application/octet-stream", DisableContentTypeDetection: true, BeforeWrite: s.lock.put,
	})
	_ = reader.CloseWithError(errUploadEnded) // always nil
	switch wrong := <-filled; {
	case wrong != nil && !errors.Is(wrong, errUploadEnded):
		return wrong
	case fresh && gcerrors.Code(err) == gcerrors.FailedPrecondition:
		return errReplaced
	default:
		return s.changeFailure(ctx, key, err, s.about("writing", key))
	}
}

// settle makes sure that the store has the object, and has it for good. It returns its tag.
func (s *store) settle(ctx context.Context, key string, size int64) (string, error) {
	doing := s.about("looking at what was written to", key)
	found, err := s.bucket.Attributes(ctx, key)
	if err != nil {
		// Who may only write can't look; every store has confirmed the upload with a checksum of its own.
		if err = s.storeFailure(err, doing); ReasonOf(err) == Denied {
			return "", nil
		}
		return "", err
	}
	if found.Size != size {
		return "", failure(Damaged, nil, "%s: it has %d bytes, and %d were written", doing, found.Size, size)
	}
	if s.dir == "" {
		return s.tagOf(found), nil
	}
	return s.tagOf(found), s.storeFailure(syncFile(filepath.Join(s.dir, filepath.FromSlash(key))), doing)
}

// syncFile has a file and its name on the disk when it returns.
func syncFile(path string) error {
	for _, name := range []string{path, filepath.Dir(path)} {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the first record of an artifact: from now on it is whole. Without one it never will be, and is removed.
func (s *store) finish(ctx context.Context, key string, record any) error {
	err := s.note(ctx, key, record)
	if err != nil && !errors.Is(err, errReplaced) {
		return s.cleared(ctx, key, err)
	}
	return err
}

// note writes the record, a reports.Artifact or the report that holds it, in the place of an earlier one. What
// another run has stored meanwhile has a record of its own, or will.
func (s *store) note(ctx context.Context, key string, record any) error {
	switch replaced, err := s.replaced(ctx, key); {
	case err != nil:
		return err
	case replaced:
		return errReplaced
	}
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return failure(Failed, err, "the record of %s can't be written", s.named(key))
	}
	text = append(text, '\n')
	err = s.write(ctx, key+recordSuffix, false, func(w io.Writer) error { _, err := w.Write(text); return err })
	if err == nil {
		_, err = s.settle(ctx, key+recordSuffix, int64(len(text)))
	}
	return err
}
