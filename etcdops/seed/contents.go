package seed

import (
	"context"
	"encoding/binary"
	"hash/crc32"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/hooks"
)

// same checks that a database holds what another one did, record by record, with the revision raised by bump.
func same(ctx context.Context, db string, was *archive.Contents, bump int64) error {
	is, err := archive.Examine(ctx, db)
	if err != nil {
		return err
	}
	sum, revision := was.Sum, was.Revision
	if bump > 0 {
		revision = was.Last + bump
		sum = crc32.Update(sum, crc32.MakeTable(crc32.Castagnoli), raised(revision))
	}
	if is.Sum != sum || is.Revision != revision {
		return failure(Failed, nil, "what was restored is not what there was: revision %d and checksum %08x instead of %d and %08x; nothing was put in place", is.Revision, is.Sum, revision, sum)
	}
	return nil
}

// raised is the name of the record, without content, with which etcdutl raises a revision (unsafeBumpBucketsRevision in its snapshot/v3_snapshot.go).
func raised(revision int64) []byte {
	name := binary.BigEndian.AppendUint64(nil, uint64(revision))
	return binary.BigEndian.AppendUint64(append(name, '_'), 0)
}

// agrees checks that a snapshot holds what its record tells. Without a hash nobody had looked into it when the record was written, which then tells
// the revision of a moment before.
func agrees(told *hooks.Artifact, c *archive.Contents) error {
	other := c.Revision < told.Revision
	if told.Hash != "" {
		hash := c.Hash != "" && told.CompactRevision == c.CompactRevision && told.Hash != c.Hash
		other = told.Revision != c.Revision || c.Keys >= 0 && told.Keys != c.Keys || hash
	}
	if other {
		return failure(Damaged, nil, "the snapshot holds %d keys at revision %d with the hash %s, but its record tells of %d at %d with %s; take another one", c.Keys, c.Revision, c.Hash, told.Keys, told.Revision, told.Hash)
	}
	return nil
}
