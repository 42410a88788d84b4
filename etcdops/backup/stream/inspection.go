package stream

import (
	"context"
	"fmt"
	"maps"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/hooks/stores"
)

const (
	// standingEvery is how often users and roles are looked at: each time makes an entry in etcd's log.
	standingEvery = 30 * time.Second
	// leasesEvery is how often leases are told though they are the same.
	leasesEvery = time.Minute
	// hashEvery is how often a member reads its whole database for a hash, for which it has hashTime.
	hashEvery, hashTime = time.Hour, 5 * time.Minute
	// leasesTime is for the list of leases and for the TTL of newLeases of them. usersTime is for the revision of
	// users: what can't be known is not waited for, as that it is stored is worth more.
	leasesTime, newLeases = 3 * time.Second, 5000
	usersTime             = 3 * time.Second
)

var errUsersChanged = failure(stores.StreamUsersChanged, nil, "users or roles have changed, which a stream does not "+
	"have: take a new snapshot")

// inspector looks at the cluster besides the watch: whether it is what it was, and which hash its keys have.
type inspector struct {
	Options
	line
	monitor *Monitor
	was     archive.Standing
	to      chan<- *Hash
}

// line is a client of one endpoint, kept while it works: what it answers is of one member, whatever the order. After
// that the next endpoint has its turn.
type line struct {
	client *clientv3.Client
	turn   int
}

// run asks until the context ends, or the cluster is not what it was.
func (s *inspector) run(ctx context.Context) error {
	tick := time.NewTicker(s.FlushAfter)
	defer tick.Stop()
	defer s.hangUp()
	every := s.HashEvery
	if every == 0 {
		every = hashEvery
	}
	stood := time.Now()
	hashed := time.Now().Add(-every)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if time.Since(stood) >= standingEvery {
			if err := s.stands(ctx); ctx.Err() == nil && err != nil {
				if archive.ReasonOf(err) != archive.Unreachable || time.Since(stood) > patience {
					return err
				}
			} else {
				stood = time.Now()
			}
		}
		if time.Since(hashed) < every {
			continue
		}
		hash := s.hash(ctx)
		if hash == nil {
			continue
		}
		hashed = time.Now()
		select {
		case s.to <- hash:
		case <-ctx.Done():
		}
	}
}

// stands looks whether the cluster is what it was.
func (s *inspector) stands(ctx context.Context) error {
	seen := s.monitor.Report().SeenRevision
	is, err := s.Cluster.Standing(ctx)
	if err == nil && is.ClusterID == s.was.ClusterID {
		s.monitor.looked(is.AuthRevision)
	}
	switch {
	case err != nil:
		return err
	case is.ClusterID != s.was.ClusterID:
		return otherCluster("cluster %x answers, and %x was streamed", is.ClusterID, s.was.ClusterID)
	case is.Revision < seen:
		return otherCluster("the cluster is at revision %d, and %d has been seen: it has another history now; take a "+
			"new snapshot", is.Revision, seen)
	case is.AuthRevision != s.was.AuthRevision:
		return errUsersChanged
	}
	return nil
}

// hash is that of all keys at the last revision that has arrived; nil when the member that is asked does not have it
// yet, or any more.
func (s *inspector) hash(ctx context.Context) *Hash {
	ctx, stop := context.WithTimeout(ctx, hashTime)
	defer stop()
	client, err := s.dial(s.Cluster)
	if err != nil {
		return nil
	}
	revision := s.monitor.Report().SeenRevision
	answer, err := pb.NewMaintenanceClient(client.ActiveConnection()).HashKV(ctx, &pb.HashKVRequest{Revision: revision})
	if err != nil {
		return nil
	}
	return &Hash{Revision: revision, CompactRevision: max(answer.GetCompactRevision(), 0),
		Hash: fmt.Sprintf("%08x", answer.GetHash())}
}

func (l *line) dial(c archive.Cluster) (*clientv3.Client, error) {
	if l.client != nil {
		return l.client, nil
	}
	c.Endpoints = c.Endpoints[l.turn%len(c.Endpoints):][:1]
	client, err := c.Dial()
	if err == nil {
		l.client = client
	}
	return client, err
}

func (l *line) hangUp() {
	if l.client != nil {
		_ = l.client.Close()
	}
	l.client = nil
	l.turn = l.turn + 1
}

// leaser knows the leases that there are.
type leaser struct {
	line
	// ttl that leases have been granted, by ID; asked is when there was an answer last, and failed when there was none.
	// Told are those of the last list that went into a segment, then.
	ttl, told             map[int64]int64
	asked, failed, toldAt time.Time
}

// users is the revision of users and roles now, as a quorum tells; 0 where there is no answer.
func (l *leaser) users(ctx context.Context, o Options) int64 {
	if time.Since(l.failed) < o.FlushAfter {
		return 0
	}
	ctx, stop := context.WithTimeout(ctx, usersTime)
	defer stop()
	client, err := l.dial(o.Cluster)
	if err != nil {
		return 0
	}
	revision, err := o.Cluster.Users(ctx, client)
	if err != nil {
		l.failed = time.Now()
		l.hangUp()
		return 0
	}
	return revision
}

// leases are those that there are, for a segment that refers to some; nil when there is nothing new to tell.
func (l *leaser) leases(ctx context.Context, o Options, referred map[int64]struct{}) *Leases {
	if !l.news(o, referred) || time.Since(l.failed) < o.FlushAfter {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, leasesTime)
	defer stop()
	client, err := l.dial(o.Cluster)
	if err != nil {
		return nil
	}
	before, err := client.Get(ctx, "\x00", clientv3.WithCountOnly(), clientv3.WithSerializable())
	if err != nil {
		l.failed = time.Now()
		l.hangUp()
		return nil
	}
	answer, err := client.Leases(ctx)
	if err == nil && answer.ResponseHeader.GetMemberId() != before.Header.GetMemberId() {
		return nil // a Service has led elsewhere meanwhile
	}
	if err != nil {
		l.failed = time.Now() // a later segment asks again
		l.hangUp()
		return nil
	}
	is := l.withTTL(ctx, client, answer.Leases)
	l.ttl = is
	l.asked = time.Now()
	if l.told != nil && maps.Equal(is, l.told) && time.Since(l.toldAt) < leasesEvery {
		return nil
	}
	l.told = is
	l.toldAt = l.asked
	return &Leases{Since: before.Header.GetRevision(), Revision: answer.ResponseHeader.GetRevision(), TTL: is}
}

// news reports whether it is time to ask for leases: it was long ago, or one is referred to that is not known.
func (l *leaser) news(o Options, referred map[int64]struct{}) bool {
	if time.Since(l.asked) >= o.FlushAfter {
		return true
	}
	for id := range referred {
		if _, known := l.ttl[id]; !known {
			return true
		}
	}
	return false
}

// withTTL is what these leases have been granted, by ID: 0 where it is not known yet.
func (l *leaser) withTTL(ctx context.Context, client *clientv3.Client, leases []clientv3.LeaseStatus) map[int64]int64 {
	all := make(map[int64]int64, len(leases))
	asked := 0
	for _, one := range leases {
		id := int64(one.ID)
		ttl := l.ttl[id]
		if ttl == 0 && asked < newLeases {
			asked++
			if granted, err := client.TimeToLive(ctx, one.ID); err == nil {
				ttl = max(granted.GrantedTTL, 0)
			}
		}
		all[id] = ttl
	}
	return all
}
