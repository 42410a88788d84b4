package seed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// object is one in the store. One that is gone, or has another content since, may be listed as before for a while.
type object struct {
	content []byte
	gone    bool
	changed time.Time
	before  bool // it was there before the last change
}

// bucket is how a process reaches the store of the model, with each request a call. Without a process it is how the
// store is.
type bucket struct {
	w   *world
	who *process
}

var (
	errNone  = errors.New("not there")
	errThere = errors.New("there already")
	errFault = errors.New("500")
)

// place is the store, or a folder in it.
func (w *world) place(who *process, folder string) archive.Place {
	url := "s3://bucket/" + folder
	if !w.conditional {
		url += "?endpoint=https://store"
	}
	return archive.Place{URL: url, Bucket: func() *blob.Bucket { return blob.NewBucket(&bucket{w, who}) }}
}

func (w *world) put(key string, content []byte) {
	o := w.objects[key]
	if o == nil {
		o = &object{gone: true}
		w.objects[key] = o
	}
	*o = object{content: content, changed: time.Now(), before: !o.gone}
	w.dirty = true
}

func (w *world) remove(key string) error {
	o := w.objects[key]
	if o == nil || o.gone {
		return errNone
	}
	*o = object{gone: true, changed: time.Now(), before: true}
	w.dirty = true
	return nil
}

// listed are the keys of a page.
func (w *world) listed(o *driver.ListOptions, lags bool) *driver.ListPage {
	page, last := &driver.ListPage{}, ""
	most := 1000
	if lags && w.dice.IntN(8) == 0 {
		most = 1 + w.dice.IntN(4)
	}
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		is := w.objects[key]
		there := !is.gone
		if lags && time.Since(is.changed) < w.lag && w.dice.IntN(2) == 0 {
			there = is.before
		}
		if !there || !strings.HasPrefix(key, o.Prefix) {
			continue
		}
		one := &driver.ListObject{Key: key, ModTime: is.changed, Size: int64(len(is.content))}
		if at := strings.IndexByte(key[len(o.Prefix):], '/'); o.Delimiter == "/" && at >= 0 {
			one = &driver.ListObject{Key: key[:len(o.Prefix)+at+1], IsDir: true}
		}
		if one.Key == last || one.Key <= string(o.PageToken) {
			continue
		}
		if len(page.Objects) == most {
			page.NextPageToken = []byte(last)
			break
		}
		page.Objects, last = append(page.Objects, one), one.Key
	}
	return page
}

// ListPaged implements [driver.Bucket].
func (b *bucket) ListPaged(ctx context.Context, o *driver.ListOptions) (page *driver.ListPage, err error) {
	err = b.w.ask(ctx, call{who: b.who, what: "list " + o.Prefix, do: func() error {
		page = b.w.listed(o, b.who != nil)
		return nil
	}})
	return page, err
}

// NewRangeReader implements [driver.Bucket].
func (b *bucket) NewRangeReader(ctx context.Context, key string, _, _ int64, _ *driver.ReaderOptions) (driver.Reader,
	error) {
	r := &reader{}
	return r, b.w.ask(ctx, call{who: b.who, what: "read " + key, do: func() error {
		o := b.w.objects[key]
		if o == nil || o.gone {
			return errNone
		}
		r.content, r.at = b.w.shown(b.who, key, o.content), o.changed
		r.Reader = bytes.NewReader(r.content)
		if b.who != nil && b.w.faulty && b.w.dice.IntN(30) == 0 {
			r.Reader = io.MultiReader(bytes.NewReader(r.content[:len(r.content)/2]), broken{})
		}
		return nil
	}})
}

type broken struct{}

// Read implements [io.Reader].
func (broken) Read([]byte) (int, error) { return 0, errFault }

type reader struct {
	io.Reader
	content []byte
	at      time.Time
}

// Close implements [driver.Reader].
func (*reader) Close() error { return nil }

// As implements [driver.Reader].
func (*reader) As(any) bool { return false }

// Attributes implements [driver.Reader].
func (r *reader) Attributes() *driver.ReaderAttributes {
	return &driver.ReaderAttributes{ModTime: r.at, Size: int64(len(r.content))}
}

// NewTypedWriter implements [driver.Bucket].
func (b *bucket) NewTypedWriter(ctx context.Context, key, _ string, o *driver.WriterOptions) (driver.Writer, error) {
	return &writer{bucket: b, ctx: ctx, key: key, fresh: o.IfNotExist}, nil
}

type writer struct {
	bytes.Buffer
	*bucket
	ctx   context.Context
	key   string
	fresh bool
}

// Upload implements [driver.Uploader].
func (f *writer) Upload(r io.Reader) error {
	_, err := f.ReadFrom(r)
	return err
}

// Close implements [driver.Writer].
func (f *writer) Close() error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	store := func(content []byte) error {
		if o := f.w.objects[f.key]; f.fresh && o != nil && !o.gone {
			return errThere
		}
		f.w.put(f.key, content)
		return nil
	}
	f.w.claim(f.key, f.Len())
	return f.w.ask(f.ctx, call{who: f.who, what: "write " + f.key, changes: true,
		do: func() error { return store(f.Bytes()) }, cut: func() { _ = store(f.Bytes()[:f.Len()/2]) }})
}

// Attributes implements [driver.Bucket].
func (b *bucket) Attributes(ctx context.Context, key string) (found *driver.Attributes, err error) {
	err = b.w.ask(ctx, call{who: b.who, what: "look " + key, do: func() error {
		o := b.w.objects[key]
		if o == nil || o.gone {
			if size, claimed := b.w.claimed[key]; claimed && b.w.wrong == "an error of a write is taken for success" {
				found = &driver.Attributes{Size: int64(size)}
				return nil
			}
			return errNone
		}
		found = &driver.Attributes{Size: int64(len(o.content)), ModTime: o.changed, ETag: o.changed.String()}
		return nil
	}})
	return found, err
}

// Delete implements [driver.Bucket].
func (b *bucket) Delete(ctx context.Context, key string, _ *driver.DeleteOptions) error {
	return b.w.ask(ctx, call{who: b.who, what: "delete " + key, changes: true, do: func() error {
		b.w.pruned(key)
		return b.w.remove(key)
	}})
}

// ErrorCode implements [driver.Bucket].
func (b *bucket) ErrorCode(err error) gcerrors.ErrorCode {
	switch {
	case errors.Is(err, errNone):
		return gcerrors.NotFound
	case errors.Is(err, errThere):
		return gcerrors.FailedPrecondition
	}
	return gcerrors.Internal
}

// As implements [driver.Bucket].
func (*bucket) As(any) bool { return false }

// ErrorAs implements [driver.Bucket].
func (*bucket) ErrorAs(error, any) bool { return false }

// Close implements [driver.Bucket].
func (*bucket) Close() error { return nil }

// Copy implements [driver.Bucket].
func (*bucket) Copy(context.Context, string, string, *driver.CopyOptions) error { return errFault }

// SignedURL implements [driver.Bucket].
func (*bucket) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errFault
}

// claim keeps how much a process wants to store.
func (w *world) claim(key string, size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.claimed[key] = size
}
