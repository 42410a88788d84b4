package seed

import (
	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// agrees checks that a snapshot holds what its record tells. A record without a hash was written before the snapshot
// was examined, and tells the revision of a moment before.
func agrees(told *stores.Artifact, c *archive.Contents) error {
	other := c.Revision < told.Revision
	if told.Hash != "" {
		hash := c.Hash != "" && told.CompactRevision == c.CompactRevision && told.Hash != c.Hash
		other = told.Revision != c.Revision || c.Keys >= 0 && told.Keys != c.Keys || hash
	}
	if other {
		return failure(damaged, nil, "the snapshot has %d keys at revision %d with the hash %s, but its record says "+
			"%d at %d with %s; take another one", c.Keys, c.Revision, c.Hash, told.Keys, told.Revision,
			told.Hash)
	}
	return nil
}
