package archive

import (
	"context"
	"path"
	"strings"

	"gocloud.dev/blob"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Latest finds the newest snapshot directly in a folder of a store: of the etcd whose snapshot was completed last, the
// one with the highest revision. Revisions of one etcd only rise, where the clocks of those who stored may differ. What
// can't be read is an error, since it may be the newest.
func Latest(ctx context.Context, place Place, folder string) (stores.Latest, error) {
	whole, unfinished, err := wholeIn(ctx, place, folder)
	switch {
	case err != nil:
		return stores.Latest{}, err
	case len(whole) == 0 && unfinished > 0:
		return stores.Latest{}, failure(NotFound, nil, "the folder %s has no snapshot with a record beside it, and "+
			"%d without: they were never finished, or etcdctl wrote them; name one that is meant in "+
			"spec.bootstrap.snapshot.artifact, or remove them", folder, unfinished)
	case len(whole) == 0:
		return stores.Latest{None: true}, nil
	}
	newest := whole[0]
	for _, b := range whole[1:] {
		if b.Completed.After(newest.Completed) {
			newest = b
		}
	}
	for _, b := range whole {
		if b.ClusterID == newest.ClusterID && b.Revision > newest.Revision {
			newest = b
		}
	}
	return stores.Latest{Artifact: path.Join(folder, path.Base(newest.Key)), SHA256: newest.SHA256,
		ClusterID: newest.ClusterID, Revision: newest.Revision, Completed: newest.Completed, Snapshots: len(whole)}, nil
}

// wholeIn are the snapshots in a folder that have a record, and how many have none.
// On a claim nothing may have made the folder yet: so it is looked for from the volume on, which must be there.
func wholeIn(ctx context.Context, place Place, folder string) (whole []Base, unfinished int, err error) {
	url, err := stores.ParseURL(place.URL)
	if err == nil && url.Scheme == stores.Claim && place.Dir != "" {
		folder = path.Join(url.Path, folder)
		place.URL = stores.URL{Scheme: stores.Claim}.String()
	}
	f, err := OpenFolder(ctx, place, "", false)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	all, err := f.Snapshots(ctx, folder+"/")
	if err != nil {
		return nil, 0, err
	}
	there := map[string]bool{}
	err = f.each(ctx, folder+"/", "/", func(o *blob.ListObject) { there[o.Key] = !o.IsDir })
	recorded := map[string]bool{}
	for _, b := range all {
		recorded[b.Key] = true
		if there[b.Key] {
			whole = append(whole, b)
		}
	}
	for key, object := range there {
		name := strings.TrimSuffix(strings.TrimSuffix(key, ".age"), ".zst")
		// also one whose record was written since it was looked for
		if object && strings.HasSuffix(name, ".db") && !recorded[key] {
			unfinished++
		}
	}
	return whole, unfinished, err
}
