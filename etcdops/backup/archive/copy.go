package archive

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// Copy writes what the member at the first endpoint has applied to a file, as etcdctl snapshot save
// does: the database, and its hash behind it, which is checked. The file exists afterwards only if
// everything was whole. It asks no other member, and needs no quorum.
func (c Cluster) Copy(ctx context.Context, to string) (*stores.Artifact, error) {
	found, err := c.copy(ctx, to)
	if err != nil {
		return nil, errors.Join(err, discardFile(to))
	}
	return found, nil
}

func (c Cluster) copy(ctx context.Context, to string) (*stores.Artifact, error) {
	client, err := c.client(c.Endpoints[0])
	if err != nil {
		return nil, failure(Unreachable, byEtcd(err), "no client for the member at %s", c.Endpoints[0])
	}
	defer client.Close()
	sent, err := client.Snapshot(ctx)
	if err != nil {
		return nil, failure(Unreachable, byEtcd(err), "the member at %s gives no snapshot", c.Endpoints[0])
	}
	defer sent.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, localFailure(err, to)
	}
	database := newSeal()
	written := &watchedWriter{w: &file{File: target}}
	_, err = io.Copy(io.MultiWriter(written, database), sent)
	if closed := target.Close(); written.err == nil {
		written.err = closed
	}
	switch {
	case written.err != nil:
		return nil, localFailure(written.err, to)
	case err != nil:
		return nil, failure(Unreachable, byEtcd(err), "the snapshot of the member at %s broke off; it will be tried "+
			"again", c.Endpoints[0])
	case !database.whole():
		return nil, failure(Unreachable, nil, "the snapshot of the member at %s did not arrive as it was sent: its "+
			"hash is another one; it will be tried again", c.Endpoints[0])
	}
	return &stores.Artifact{Size: database.size, SHA256: database.sum()}, nil
}
