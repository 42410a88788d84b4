// Package archive keeps snapshots of etcd in stores outside of the cluster, and reads them back.
//
// An artifact is one object: what `etcdctl snapshot save` writes, compressed with Zstandard and encrypted with age as
// was asked for, in that order. Beside it lies <artifact>.json, a [reports.Artifact], which is written last: an
// artifact without it is not whole. Both are read without Quorate as docs/how-to/back-up.md says.
//
// Everything is done in one pass with buffers of a fixed size, so memory does not grow with the data.
package archive

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Place says where a store is and how it is reached. Credentials come from the environment, as the stores' own tools
// take them.
type Place struct {
	// URL of the folder, as v1beta1.Store has it.
	URL string
	// Dir is where the claim of file:///folder is mounted; empty: the folder is one of this machine.
	Dir string
	// CAFile holds PEM certificates of authorities that may sign the store's certificate, besides the public ones;
	// may be empty.
	CAFile string
	// Bucket opens the store instead; nil opens that at the URL. Tests have one in memory.
	Bucket func() *blob.Bucket `json:"-"`
}

// store is a folder in which artifacts are kept.
type store struct {
	bucket *blob.Bucket
	// url is that of the folder.
	url stores.URL
	// dir is the folder itself where it is one of this machine, else empty.
	dir string
	// tag tells what this run has stored, or found stored, from what another run stores in its place: an ETag, or on
	// a claim, where times may be cut short later, the size. Empty when it is not known.
	tag string
	// lock is put on what is written; nil for none.
	lock *Lock
}

// openStore opens a store. Whether it is there and lets us in shows with the first object; but a folder of file:// must
// be there, or is made when asked to.
func openStore(ctx context.Context, p Place, create bool) (*store, error) {
	u, err := stores.ParseURL(p.URL)
	if err != nil {
		return nil, failure(Failed, nil, "the URL of the store is not one that can be used: %s", err)
	}
	s := &store{url: u}
	if u.Scheme == stores.Claim {
		if err := s.openDir(p.Dir, create); err != nil {
			return nil, err
		}
		return s, nil
	}
	if err := trust(p.CAFile); err != nil {
		return nil, err
	}
	bucket, err := p.open(ctx, u)
	if err != nil {
		return nil, s.storeFailure(err, "opening the store "+u.Scheme+"://"+u.Bucket)
	}
	if u.Path != "" {
		bucket = blob.PrefixedBucket(bucket, u.Path+"/")
	}
	s.bucket = bucket
	return s, nil
}

func (p Place) open(ctx context.Context, u stores.URL) (*blob.Bucket, error) {
	if p.Bucket != nil {
		return p.Bucket(), nil
	}
	return openBucket(ctx, u)
}

// openDir opens a folder below dir. Dir itself is never made: it is a volume that should be mounted.
func (s *store) openDir(dir string, create bool) error {
	s.dir = filepath.Join("/", dir, s.url.Path)
	if dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return s.storeFailure(err, "looking for the volume of the store")
		}
	}
	bucket, err := fileblob.OpenBucket(s.dir, &fileblob.Options{
		CreateDir: create, DirFileMode: 0o750,
		// A temporary file elsewhere could not be renamed into the volume; attributes would be files of their own.
		NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return s.storeFailure(err, "opening the folder on the claim")
	}
	s.bucket = bucket
	return nil
}

// Close ends the use of the store.
func (s *store) Close() error { return s.bucket.Close() }

// uri of an object: the folder's URL with its name, and with its parameters, without which the
// object would not be found again. It is for reports; messages have named.
func (s *store) uri(key string) string { return s.url.Join(key).String() }

// named is what messages call an object.
func (s *store) named(key string) string {
	if strings.Contains(key, SegmentSuffix) || key == "" {
		return "the stream of changes " + s.url.Words()
	}
	if strings.HasSuffix(key, stores.ContentsSuffix) {
		return "what is told of the contents of the snapshot " + s.url.Words()
	}
	if strings.HasSuffix(key, recordSuffix) {
		return "the record of the snapshot " + s.url.Words()
	}
	return "the snapshot " + s.url.Words()
}

func (s *store) about(doing, key string) string { return doing + " " + s.named(key) }

// keys are names that every store takes as they are.
var keys = regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]*(/[0-9A-Za-z][-._0-9A-Za-z]*)*$`)

func checkKey(key string) error {
	if len(key) > 900 || !keys.MatchString(key) || strings.HasSuffix(key, recordSuffix) {
		return failure(Failed, nil, "the name of the artifact is not one that can be used: it has letters, digits, "+
			"'-', '_', '.', and '/' between, and does not end in %s", recordSuffix)
	}
	return nil
}

// recordSuffix makes the name of an artifact that of what is known of it.
const recordSuffix = stores.RecordSuffix
