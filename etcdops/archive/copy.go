package archive

import (
	"context"
	"io"
	"os"

	"github.com/quorate-dev/quorate/hooks"
)

// Copy writes what the member at the first endpoint has applied to a file, as etcdctl snapshot save does: the database, and its hash behind it.
// It asks nobody else, and needs no quorum.
func (c Cluster) Copy(ctx context.Context, to string) (*hooks.Artifact, error) {
	client, err := c.client(c.Endpoints[0])
	if err != nil {
		return nil, failure(Unreachable, err, "no client for the member at %s", c.Endpoints[0])
	}
	defer client.Close()
	database, err := client.Snapshot(ctx)
	if err != nil {
		return nil, failure(Unreachable, err, "the member at %s gives no snapshot", c.Endpoints[0])
	}
	defer database.Close()
	file, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, failure(Failed, err, "%s can't be written", to)
	}
	_, err = io.Copy(file, database)
	if closed := file.Close(); err == nil {
		err = closed
	}
	switch {
	case err == nil:
		return &hooks.Artifact{URI: c.Endpoints[0]}, nil
	case full(err):
		return nil, failure(NoSpace, err, "there is no space left for %s; make room", to)
	}
	return nil, failure(Unreachable, err, "the snapshot of the member at %s broke off; it will be tried again", c.Endpoints[0])
}
