package stream

import (
	"context"
	"path"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
)

// Kept is what a store has of streams, and of the snapshots beside them.
type Kept struct {
	folder *archive.Folder
	tail   string
	keys   Keys
}

// Opening says by what files is opened what a stream has stored: the age identities that decrypt it, and the keys that
// have signed it. Empty is none.
type Opening struct{ IdentityFile, KeysFile string }

// OpenKept opens a folder of a store; tail is the folder in it that has one folder for each cluster ID.
func OpenKept(ctx context.Context, place archive.Place, by Opening, tail string) (*Kept, error) {
	keys, err := ReadKeys(by.KeysFile)
	if err != nil {
		return nil, err
	}
	folder, err := archive.OpenFolder(ctx, place, by.IdentityFile, false)
	if err != nil {
		return nil, err
	}
	return &Kept{folder: folder, tail: tail, keys: keys}, nil
}

// Close ends the use of the folder.
func (k *Kept) Close() error { return k.folder.Close() }

// Bases are the snapshots beside the streams.
func (k *Kept) Bases(ctx context.Context) ([]archive.Base, error) {
	beside := path.Dir(strings.Trim(k.tail, "/")) + "/"
	if beside == "./" {
		beside = ""
	}
	return k.folder.Snapshots(ctx, beside)
}

// Tail lists what is stored of a cluster's stream now. It must not be closed.
func (k *Kept) Tail(ctx context.Context, clusterID string) (*Tail, error) {
	t := &Tail{folder: k.folder, clusterID: clusterID, prefix: folderOf(k.tail, clusterID), keys: k.keys}
	t.readHead(ctx) // before the segments, so that these are there
	var err error
	t.spans, err = spans(ctx, k.folder, t.prefix)
	return t, err
}

// Behind is what a segment has behind a revision, as a member would have sent it then.
func (s *Segment) Behind(revision int64) (Batch, error) {
	b := batch{first: max(s.First, revision+1), last: s.Last, at: s.Arrived()}
	var before, last Sum
	err := s.Each(func(c Change) error {
		switch {
		case c.Revision < revision:
			return nil
		case c.Revision == revision:
			before.Add(c)
			return nil
		}
		b.records = protowire.AppendBytes(b.records, c.raw)
		b.events = b.events + 1
		last.Add(c)
		return nil
	})
	b.sum = last.Of()
	b.before = before.Of()
	if s.First == revision+1 {
		b.before = s.Before
	}
	return b, err
}

// Nothing is a batch that tells that there was nothing behind a revision at a time.
func Nothing(revision int64, at time.Time) Batch {
	return batch{first: revision + 1, last: revision, at: at}
}
