package archive

import (
	"context"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks/stores"
)

// testimony is what a member says of the revision of a snapshot.
type testimony struct {
	// hash and keys: it was asked for them, and has the same.
	hash, keys bool
	// differs says how it has others; empty when it has not.
	differs string
}

func (t testimony) silent() bool { return !t.hash && !t.keys && t.differs == "" }

// compare compares a snapshot with members that run: with a follower other than the one that it came from, so that
// two members' data are compared by the way. Of one that can't say, because it lags or has compacted since, nothing
// follows, and the next is asked. The leader is the last: a hash costs it a scan of its database, as it does the
// others.
//
// One that has other data may itself be the one that is wrong. Then all are asked. The snapshot is disproved when a
// majority of all voters has other data than it; when most of those that can say have the same, the report has a
// warning.
func (o Order) compare(ctx context.Context, all []member, with *Contents, report *stores.Snapshot) error {
	ctx, stop := context.WithTimeout(ctx, hashTime)
	defer stop()
	all = slices.DeleteFunc(slices.Clone(all), func(m member) bool {
		// another cluster of the same name
		return fmt.Sprintf("%x", m.status.GetHeader().GetClusterId()) != report.ClusterID
	})
	said := map[string]testimony{}
	ask := func(m member) testimony {
		if _, already := said[m.name]; !already {
			said[m.name] = o.testify(ctx, m, with)
		}
		return said[m.name]
	}
	witnesses := slices.Clone(all)
	slices.Reverse(witnesses) // the first is the one that is furthest, and so the source
	slices.SortStableFunc(witnesses, func(a, b member) int { return compareBool(a.leader, b.leader) })
	for _, m := range witnesses {
		if m.name == report.Member {
			continue
		}
		switch t := ask(m); {
		case t.differs != "":
			for _, other := range all {
				ask(other)
			}
			return judge(said, m.voters, report)
		case t.hash:
			report.HashOf = m.name
			report.KeysOf = m.name
			return nil
		case t.keys && report.KeysOf == "":
			report.KeysOf = m.name
		}
		if report.KeysOf != "" && with.Hash == "" {
			return nil // another one could say no more
		}
	}
	return nil
}

// judge counts what all members have said of a snapshot that one of them contradicts.
func judge(said map[string]testimony, voters int, report *stores.Snapshot) error {
	var same, other []string
	for name, t := range said {
		switch {
		case t.differs != "":
			other = append(other, name+" "+t.differs)
		case !t.silent():
			same = append(same, name)
			if name != report.Member && t.hash {
				report.HashOf = name
			}
			if name != report.Member {
				report.KeysOf = name
			}
		}
	}
	if t := said[report.Member]; t.silent() { // the snapshot itself is what it has to say
		same = append(same, report.Member)
	}
	slices.Sort(same)
	slices.Sort(other)
	differ := strings.Join(other, ", ")
	switch {
	case len(other) > len(same) && 2*len(other) > voters:
		return failure(Damaged, nil, "most members have other data than the snapshot: %s; see the cluster's alarms",
			differ)
	case len(other) >= len(same):
		return failure(Failed, nil, "the members' data differ, and it is not known whose is right: %s, unlike the "+
			"snapshot and %s; see the cluster's alarms", differ, strings.Join(same, ", "))
	}
	report.Warning = fmt.Sprintf("a member has other data than the snapshot and %s: %s; see the cluster's alarms",
		strings.Join(same, ", "), differ)
	return nil
}

// testify asks a member for the number of keys and their hash at the revision of a snapshot.
func (o Order) testify(ctx context.Context, m member, with *Contents) testimony {
	var t testimony
	client, err := o.Cluster.client(m.urls...)
	if err != nil {
		return t
	}
	defer client.Close()
	count, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithCountOnly(),
		clientv3.WithRev(with.Revision), clientv3.WithSerializable())
	switch {
	case err != nil: // it lags, has compacted since, or is busy: nothing follows
	case count.Count != with.Keys:
		t.differs = fmt.Sprintf("has %d keys instead of %d at revision %d", count.Count, with.Keys, with.Revision)
		return t
	default:
		t.keys = true
	}
	if with.Hash == "" {
		return t
	}
	// It is not made to read its whole database for a hash that can't be compared: one that has compacted since has
	// this revision no more.
	if _, err = client.Get(ctx, "\x00", clientv3.WithCountOnly(), clientv3.WithRev(max(with.CompactRevision, 1)),
		clientv3.WithSerializable()); err != nil {
		o.Log.Info("a hash can't be compared", "member", m.name, "snapshotCompacted", with.CompactRevision, "error",
			err)
		return t
	}
	live, err := pb.NewMaintenanceClient(client.ActiveConnection()).HashKV(ctx,
		&pb.HashKVRequest{Revision: with.Revision})
	if err != nil || max(live.GetCompactRevision(), 0) != with.CompactRevision {
		o.Log.Info("a hash can't be compared", "member", m.name, "compacted", live.GetCompactRevision(),
			"snapshotCompacted", with.CompactRevision, "error", err)
		return t
	}
	if hash := fmt.Sprintf("%08x", live.GetHash()); hash != with.Hash {
		t.differs = fmt.Sprintf("has the hash %s instead of %s at revision %d", hash, with.Hash, with.Revision)
		return t
	}
	t.hash = true
	return t
}
