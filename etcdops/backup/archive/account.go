package archive

import (
	"context"
	"encoding/json"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/contents"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// How many prefixes are told in a report, and in the object beside an artifact; and how large that is at most.
const (
	mostReported  = 20
	mostPrefixes  = 1000
	contentsLimit = 1 << 20
)

// tellContents reports what fills a database, and stores more of it beside the artifact, in the same form: who can't
// read a snapshot reads no names of its keys either. A snapshot is as good without.
func (o Order) tellContents(ctx context.Context, store *store, account *contents.Account, holds *Contents,
	report *stores.Snapshot) {
	of := func(most int) *v1beta1.SnapshotContents {
		c := account.Report(most)
		c.InUse = holds.Free.Used()
		c.Leases = holds.Leases
		return c
	}
	report.Contents = of(mostReported)
	if report.Encrypted {
		report.Contents.Prefixes = nil
	}
	text, err := json.Marshal(of(mostPrefixes))
	if err == nil {
		_, err = (&Folder{store: store}).put(ctx, o.Key+stores.ContentsSuffix, text, o.Form, false)
	}
	if err != nil {
		o.Log.Warn("what fills the database is not stored beside the artifact", "reason", Words(err))
	}
}

// ContentsOf reads what is stored beside an artifact of what fills its database.
func ContentsOf(ctx context.Context, place Place, key, identityFile string) (*v1beta1.SnapshotContents, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	f, err := OpenFolder(ctx, place, identityFile, false)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	name := key + stores.ContentsSuffix
	text, _, err := f.Get(ctx, name, contentsLimit)
	if err != nil {
		return nil, err
	}
	c := &v1beta1.SnapshotContents{}
	if err := json.Unmarshal(text, c); err != nil {
		return nil, failure(Damaged, nil, "%s is no account of what fills a database", f.store.named(name))
	}
	return c, nil
}
