package mirror

import (
	"context"
	"log/slog"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/stream"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// origin is what is mirrored: an etcd, or what a stream has stored of one.
type origin interface {
	// standing is which cluster it is, and how far it has come. A mirror goes on behind the place where it is.
	standing(ctx context.Context, at place) (archive.Standing, error)
	// keys are those at the revision of a standing, as they are called at the destination. They are used until the next
	// ones are asked for.
	keys(ctx context.Context, at archive.Standing, scope Scope) (keys, error)
	// watch tells what changes behind a place, until the context ends or that can't go on.
	watch(ctx context.Context, clusterID uint64, behind place, to chan<- stream.Batch) error
	close()
}

func (o Options) origin(ctx context.Context) (origin, error) {
	if o.Stored != nil {
		return openStored(ctx, *o.Stored, o.Log)
	}
	client, err := o.Source.Dial()
	if err != nil {
		return nil, failure(archive.Unreachable, archive.ByEtcd(err), "the source can't be reached")
	}
	return &live{o.Source, client, o.Log}, nil
}

// live is an etcd.
type live struct {
	cluster archive.Cluster
	client  *clientv3.Client
	log     *slog.Logger
}

func (l *live) close() { _ = l.client.Close() }

func (l *live) standing(ctx context.Context, at place) (archive.Standing, error) {
	now, err := l.cluster.Standing(ctx)
	if err == nil && at.ClusterID == idOf(now) && now.Revision < at.Revision {
		err = failure(stores.StreamOtherCluster, nil, "the source is at revision %d, and %d was mirrored", now.Revision,
			at.Revision)
	}
	return now, err
}

func (l *live) keys(_ context.Context, at archive.Standing, scope Scope) (keys, error) {
	return &walk{client: l.client, log: l.log, clusterID: at.ClusterID, spans: scope.spans(), revision: at.Revision,
		strip: scope.Prefix, add: scope.ToPrefix, refusal: unread}, nil
}

func (l *live) watch(ctx context.Context, clusterID uint64, behind place, to chan<- stream.Batch) error {
	return stream.Watch(ctx, stream.Watching{Cluster: l.cluster, ClusterID: clusterID, Last: behind.Revision,
		Sum: behind.Sum, AskEvery: askEvery, Silence: silence, Log: l.log}, to)
}
