package stream

import (
	"context"
	"fmt"
	"maps"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/hooks/reports"
)

const (
	// standingEvery is how often users and roles are looked at: each time makes an entry in etcd's log.
	standingEvery = 30 * time.Second
	// leasesEvery is how often leases are told though they are the same.
	leasesEvery = time.Minute
	// hashEvery is how often a member reads its whole database for a hash, for which it has hashTime.
	hashEvery, hashTime = time.Hour, 5 * time.Minute
	// askTime is for each other question; newLeases are asked for their TTL at a time.
	askTime, newLeases = 10 * time.Second, 5000
)

// survey is what a watch does not show; what is nil was not asked, or not answered.
type survey struct {
	leases *Leases
	hash   *Hash
}

// surveyor asks for it.
type surveyor struct {
	Options
	monitor *Monitor
	was     archive.Standing
	to      chan<- survey

	client *clientv3.Client
	// ttl that leases have been granted, by ID; told are those of the last list, then.
	ttl    map[int64]int64
	told   map[int64]int64
	toldAt time.Time
}

// run asks until the context ends, or the cluster is not what it was.
func (s *surveyor) run(ctx context.Context) error {
	s.ttl = map[int64]int64{}
	tick := time.NewTicker(s.FlushAfter)
	defer tick.Stop()
	defer s.hangUp()
	every := s.HashEvery
	if every == 0 {
		every = hashEvery
	}
	stood, hashed := time.Now(), time.Now().Add(-every)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if time.Since(stood) >= standingEvery {
			if err := s.stands(ctx); ctx.Err() == nil && err != nil {
				if ReasonOf(err) != archive.Unreachable || time.Since(stood) > patience {
					return err
				}
			} else {
				stood = time.Now()
			}
		}
		found := survey{leases: s.leases(ctx)}
		if time.Since(hashed) >= every {
			if found.hash = s.hash(ctx); found.hash != nil {
				hashed = time.Now()
			}
		}
		if found == (survey{}) {
			continue
		}
		select {
		case s.to <- found:
		case <-ctx.Done():
		}
	}
}

// stands looks whether the cluster is what it was.
func (s *surveyor) stands(ctx context.Context) error {
	seen := s.monitor.Report().SeenRevision
	is, err := s.Cluster.Standing(ctx)
	switch {
	case err != nil:
		return err
	case is.ClusterID != s.was.ClusterID:
		return otherCluster("cluster %x answers, and %x was streamed", is.ClusterID, s.was.ClusterID)
	case is.Revision < seen:
		return otherCluster("the cluster is at revision %d, and %d has been seen: it has another history now; take a new "+
			"snapshot", is.Revision, seen)
	case is.AuthRevision != s.was.AuthRevision:
		return failure(reports.StreamUsersChanged, nil, "users or roles have changed, which a stream does not have: take "+
			"a new snapshot")
	}
	return nil
}

// dial is a client that is kept while it works.
func (s *surveyor) dial() (*clientv3.Client, error) {
	if s.client != nil {
		return s.client, nil
	}
	client, err := s.Cluster.Dial()
	if err != nil {
		return nil, err
	}
	s.client = client
	return client, nil
}

func (s *surveyor) hangUp() {
	if s.client != nil {
		_ = s.client.Close()
	}
	s.client = nil
}

// leases are those that there are, when they have changed; nil for not.
func (s *surveyor) leases(ctx context.Context) *Leases {
	ctx, stop := context.WithTimeout(ctx, askTime)
	defer stop()
	client, err := s.dial()
	if err != nil {
		return nil
	}
	answer, err := client.Leases(ctx)
	if err != nil {
		s.hangUp()
		return nil
	}
	is, asked := make(map[int64]int64, len(answer.Leases)), 0
	for _, l := range answer.Leases {
		id := int64(l.ID)
		if s.ttl[id] == 0 && asked < newLeases {
			asked++
			if granted, err := client.TimeToLive(ctx, l.ID); err == nil && granted.GrantedTTL > 0 {
				s.ttl[id] = granted.GrantedTTL
			}
		}
		is[id] = s.ttl[id]
	}
	maps.DeleteFunc(s.ttl, func(id, _ int64) bool { _, there := is[id]; return !there })
	if s.told != nil && maps.Equal(is, s.told) && time.Since(s.toldAt) < leasesEvery {
		return nil
	}
	s.told, s.toldAt = is, time.Now()
	return &Leases{Revision: answer.ResponseHeader.GetRevision(), TTL: is}
}

// hash is that of all keys at the last revision that has arrived; nil when the member that is asked does not have it
// yet, or any more.
func (s *surveyor) hash(ctx context.Context) *Hash {
	ctx, stop := context.WithTimeout(ctx, hashTime)
	defer stop()
	client, err := s.dial()
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
