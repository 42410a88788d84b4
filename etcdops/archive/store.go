// Package archive keeps snapshots of etcd in stores outside of the cluster, and reads them back.
//
// An artifact is one object: what `etcdctl snapshot save` writes, compressed with Zstandard and encrypted with age as was asked for, in
// that order. Beside it lies <artifact>.json, a [hooks.Artifact], which is written last: an artifact without it is not whole. Both are
// read without Quorate as docs/backup.md says.
//
// Everything is done in one pass with buffers of a fixed size, so memory does not grow with the data.
package archive

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/gcsblob" // gs://
	_ "gocloud.dev/blob/s3blob"  // s3://
)

// Place says where a store is and how it is reached. Credentials come from the environment, as the stores' own tools take them.
type Place struct {
	// URL of the folder, as v1alpha1.Store has it.
	URL string
	// Dir is where the claim of file:///folder is mounted; empty: the folder is one of this machine.
	Dir string
	// CAFile holds PEM certificates of authorities that may sign the store's certificate, besides the public ones; may be empty.
	CAFile string
}

// Store is a folder in which artifacts are kept.
type Store struct {
	bucket *blob.Bucket
	// url is that of the folder, for messages and URIs.
	url *url.URL
	// dir is the folder itself where it is one of this machine, else empty.
	dir string
}

// Open opens a store. Whether it is there and lets us in shows with the first object; but a folder of file:// must be there.
func Open(ctx context.Context, p Place) (*Store, error) { return openStore(ctx, p, false) }

// openStore opens a store, and makes the folder of file:// when asked to.
func openStore(ctx context.Context, p Place, create bool) (*Store, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, failure(Failed, err, "the URL of the store is none")
	}
	if u.User != nil {
		return nil, failure(Failed, nil, "the URL of the store must hold no credentials: they belong in a Secret")
	}
	if u.Scheme == fileblob.Scheme {
		return openDir(u, p.Dir, create)
	}
	if u.Host == "" {
		return nil, failure(Failed, nil, "the URL of the store %q has no bucket: it must look like s3://bucket/folder, gs://bucket/folder, azblob://container/folder or file:///folder", p.URL)
	}
	if err := trust(p.CAFile); err != nil {
		return nil, err
	}
	s := &Store{url: u}
	bare := *u
	bare.Path, bare.RawPath, bare.Fragment = "", "", ""
	bucket, err := blob.OpenBucket(ctx, bare.String())
	if err != nil {
		return nil, s.storeFailure(err, "opening the store "+u.Redacted())
	}
	if folder := strings.Trim(path.Clean("/"+u.Path), "/"); folder != "" {
		bucket = blob.PrefixedBucket(bucket, folder+"/")
	}
	s.bucket = bucket
	return s, nil
}

// openDir opens a folder below dir. Dir itself is never made: it is a volume that should be mounted.
func openDir(u *url.URL, dir string, create bool) (*Store, error) {
	if u.Host != "" {
		return nil, failure(Failed, nil, "the URL of the store %q has a host: a folder on a claim is file:///folder, with three slashes", u.Redacted())
	}
	s := &Store{url: u, dir: filepath.Join("/", dir, path.Clean("/"+u.Path))}
	if dir != "" {
		if _, err := os.Stat(dir); err != nil {
			return nil, s.storeFailure(err, "looking for the volume of the store")
		}
	}
	bucket, err := fileblob.OpenBucket(s.dir, &fileblob.Options{
		CreateDir: create, DirFileMode: 0o750,
		// A temporary file elsewhere could not be renamed into the volume; attributes would be files of their own.
		NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
	})
	if err != nil {
		return nil, s.storeFailure(err, "opening the folder "+s.dir)
	}
	s.bucket = bucket
	return s, nil
}

// Close ends the use of the store.
func (s *Store) Close() error { return s.bucket.Close() }

// URI of an object: the folder's URL with its name, and with the query, without which the object would not be found again.
func (s *Store) URI(key string) string {
	u := *s.url
	u.Path = path.Join("/", u.Path, key)
	u.RawPath = ""
	return u.String()
}

// split takes the URL of an artifact apart: its folder's, and its name.
func split(artifact string) (folder, key string, err error) {
	u, err := url.Parse(artifact)
	if err != nil {
		return "", "", failure(Failed, err, "the URL of the artifact is none")
	}
	dir, key := path.Split(u.Path)
	if err := checkKey(key); err != nil {
		return "", "", err
	}
	u.Path, u.RawPath = dir, ""
	return u.String(), key, nil
}

// keys are names that every store takes as they are.
var keys = regexp.MustCompile(`^[0-9A-Za-z][-._0-9A-Za-z]*(/[0-9A-Za-z][-._0-9A-Za-z]*)*$`)

func checkKey(key string) error {
	if len(key) > 900 || !keys.MatchString(key) || strings.HasSuffix(key, recordSuffix) {
		return failure(Failed, nil, "%q is no name of an artifact: use letters, digits, '-', '_', '.' and '/' between, and no ending %s", key, recordSuffix)
	}
	return nil
}

// recordSuffix makes the name of an artifact that of what is known of it.
const recordSuffix = ".json"

func (s *Store) about(doing, key string) string { return fmt.Sprintf("%s %s", doing, s.URI(key)) }
