package archive

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	clientv3 "go.etcd.io/etcd/client/v3"
	"gocloud.dev/blob"
	"google.golang.org/grpc"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// SegmentSuffix is in the names of segments of a stream of changes; what follows it tells their form.
const SegmentSuffix = ".seg"

// Suffix is what the name of an object in this form ends with, such as .zst.age.
func (f Form) Suffix() string {
	suffix := ""
	if f.Compression == v1beta1.CompressZstd {
		suffix = ".zst"
	}
	if len(f.Recipients) > 0 {
		suffix += ".age"
	}
	return suffix
}

// Folder is a folder of a store with objects that fit into memory.
type Folder struct {
	store      *store
	identities []age.Identity
}

// Object is what a store lists.
type Object struct {
	// Name in the folder; Size in bytes; Stored by the store's clock.
	Name   string
	Size   int64
	Stored time.Time
}

// OpenFolder opens a folder, and makes it where that is needed and asked for. The file has age identities to read what
// is encrypted; empty for none.
func OpenFolder(ctx context.Context, place Place, identityFile string, create bool) (*Folder, error) {
	f := &Folder{}
	var err error
	if identityFile != "" {
		if f.identities, err = readIdentities(identityFile); err != nil {
			return nil, err
		}
	}
	f.store, err = openStore(ctx, place, create)
	return f, err
}

// FolderOf is the place of a folder, reached as an artifact is: by the parameters of its store, where the folder's URL
// has none, and by its directory and authorities.
func FolderOf(url string, like Source) (Place, error) {
	folder, err := stores.ParseURL(url)
	if err != nil {
		return Place{}, failure(Failed, nil, "the URL of the folder is not one that can be used: %s", err)
	}
	if store, err := stores.ParseURL(like.StoreURL); err == nil && folder.Parameters == "" &&
		store.Scheme == folder.Scheme {
		folder.Parameters = store.Parameters
	}
	return Place{URL: folder.String(), Dir: like.StoreDir, CAFile: like.CAFile}, nil
}

// Close ends the use of the folder.
func (f *Folder) Close() error { return f.store.Close() }

// Put stores an object, whole or not at all, and returns its size. One of that size that is there already stays, where
// the store can be told so.
func (f *Folder) Put(ctx context.Context, name string, content []byte, form Form) (int64, error) {
	if err := checkKey(name); err != nil {
		return 0, err
	}
	f.store.lock = form.Lock
	size, err := f.put(ctx, name, content, form, f.store.conditional())
	if !errors.Is(err, errReplaced) {
		return size, err
	}
	// A try whose answer was lost has stored it, or another writer has. What has another size may not be whole.
	if _, err = f.store.settle(ctx, name, size); ReasonOf(err) != Damaged {
		return size, err
	}
	if size, err = f.put(ctx, name, content, form, false); ReasonOf(err) == Locked {
		return 0, nil
	}
	return size, err
}

// Replace stores an object as it is, in the place of one that is there, and without a lock.
func (f *Folder) Replace(ctx context.Context, name string, content []byte) error {
	f.store.lock = nil
	_, err := f.put(ctx, name, content, Form{}, false)
	return err
}

// put stores an object; with fresh, one that is there by then stays, and the error is errReplaced.
func (f *Folder) put(ctx context.Context, name string, content []byte, form Form, fresh bool) (int64, error) {
	object := &counted{hash: sha256.New()}
	err := f.store.write(ctx, name, fresh, func(w io.Writer) error {
		object.w = w
		layers, err := form.layers(object, &witness{})
		if err != nil {
			return err
		}
		if _, err := layers.Write(content); err != nil {
			return err
		}
		return layers.Close()
	})
	if err == nil {
		_, err = f.store.settle(ctx, name, object.n)
	}
	return object.n, err
}

// Get reads an object of at most so many bytes: decrypted, and decompressed. It tells whether the object is encrypted.
func (f *Folder) Get(ctx context.Context, name string, limit int64) (content []byte, encrypted bool, err error) {
	reader, err := f.store.bucket.NewReader(ctx, name, nil)
	if err != nil {
		return nil, false, f.store.storeFailure(err, f.store.about("reading", name))
	}
	defer reader.Close()
	source := &watched{r: reader}
	found := &stores.Artifact{}
	plain, end, err := open(source, f.identities, found)
	if err != nil {
		return nil, false, f.store.fetchFailure(name, source, err)
	}
	defer end()
	var whole bytes.Buffer
	n, err := whole.ReadFrom(io.LimitReader(plain, limit+1))
	switch {
	case err != nil:
		return nil, false, f.store.fetchFailure(name, source, err)
	case n > limit:
		return nil, false, failure(Damaged, nil, "%s is larger than anything that is stored there", f.store.named(name))
	}
	return whole.Bytes(), found.Encrypted, nil
}

// List lists the objects whose names begin so, in the order of their names.
func (f *Folder) List(ctx context.Context, prefix string) (all []Object, err error) {
	err = f.each(ctx, prefix, "", func(o *blob.ListObject) {
		all = append(all, Object{Name: o.Key, Size: o.Size, Stored: o.ModTime})
	})
	return all, err
}

// Folders lists the folders directly in one.
func (f *Folder) Folders(ctx context.Context, prefix string) (all []string, err error) {
	err = f.each(ctx, prefix, "/", func(o *blob.ListObject) {
		if o.IsDir {
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(o.Key, prefix), "/"))
		}
	})
	slices.Sort(all)
	return all, err
}

// Base is what is known of a snapshot, and its name in the folder. Where it is says the folder: what its record says of
// that is whatever was written there.
type Base struct {
	*stores.Artifact
	Key string
}

// In is the artifact with a name in a folder.
func In(place Place, key string) (Source, error) {
	folder, err := stores.ParseURL(place.URL)
	if err != nil {
		return Source{}, failure(Failed, nil, "the URL of the store is not one that can be used: %s", err)
	}
	return Source{URL: folder.Join(key).String(), StoreURL: place.URL, StoreDir: place.Dir, CAFile: place.CAFile}, nil
}

// Snapshots are what is known of the snapshots directly in a folder. One that can't be read is an error.
func (f *Folder) Snapshots(ctx context.Context, prefix string) (all []Base, err error) {
	var keys []string
	listed := map[string]bool{}
	err = f.each(ctx, prefix, "/", func(o *blob.ListObject) {
		listed[o.Key] = true
		if key, is := strings.CutSuffix(o.Key, recordSuffix); is && !o.IsDir {
			keys = append(keys, key)
		}
	})
	for _, key := range keys {
		record, err := f.store.record(ctx, key)
		external := !listed[key] && !strings.Contains(key, ".db")
		if external && ReasonOf(err) == Damaged {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Base{record, key})
	}
	return all, err
}

// each tells what a store lists, down to a delimiter.
func (f *Folder) each(ctx context.Context, prefix, delimiter string, tell func(*blob.ListObject)) error {
	if err := f.store.listable(prefix, delimiter == ""); err != nil {
		return err
	}
	objects := f.store.bucket.List(&blob.ListOptions{Prefix: prefix, Delimiter: delimiter})
	for {
		o, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return f.store.storeFailure(err, f.store.about("listing", ""))
		}
		tell(o)
	}
}

// listable is an error where a folder of this machine can't be listed whole: gocloud.dev's fileblob passes over what it
// can't read, and over links (ListPaged in its blob/fileblob).
func (s *store) listable(prefix string, deep bool) error {
	if s.dir == "" {
		return nil
	}
	root := filepath.Join(s.dir, filepath.FromSlash(path.Dir(prefix+"x")))
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		inside := name != root
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed meanwhile
			return nil
		case err != nil:
			return err
		case entry.Type()&fs.ModeSymlink != 0 && (deep || !inside):
			return failure(Failed, nil, "listing %s: %s is a link, and links are not followed: put there what it leads to",
				s.named(""), entry.Name())
		case entry.IsDir() && inside && !deep:
			return fs.SkipDir
		}
		return nil
	})
	return s.storeFailure(err, s.about("listing", ""))
}

// Delete removes an object. One that is not there is removed.
func (f *Folder) Delete(ctx context.Context, name string) error {
	if err := f.store.bucket.Delete(ctx, name); err != nil && f.store.reason(err) != NotFound {
		return f.store.changeFailure(ctx, name, err, f.store.about("removing", name))
	}
	return nil
}

// Standing is how far a cluster has come, as a quorum tells.
type Standing struct {
	ClusterID uint64
	// Revision of the keys, AuthRevision of users and roles.
	Revision, AuthRevision int64
}

// Standing asks a cluster. AuthStatus makes an entry in its log, so this is not for every second.
func (c Cluster) Standing(ctx context.Context) (Standing, error) {
	_, asked, err := c.ask(ctx)
	return Standing{ClusterID: asked.cluster, Revision: asked.revision, AuthRevision: asked.authRevision}, err
}

// Dial makes a client of the cluster.
func (c Cluster) Dial(options ...grpc.DialOption) (*clientv3.Client, error) {
	config := c.config(c.Endpoints)
	config.DialOptions = append(config.DialOptions, options...)
	return clientv3.New(config)
}

// ByEtcd is an error of etcd's client, whose words may be passed on.
func ByEtcd(err error) error { return byEtcd(err) }
