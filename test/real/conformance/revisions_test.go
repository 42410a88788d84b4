//go:build unix && releases

package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/seed"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// seen is what a client knows of an epoch: the revision that it saw last, and at which the key was written last.
type seen struct{ last, key int64 }

// lived lets clients write in an epoch, as many times as in any other, and ends it.
func lived(t *testing.T, epoch *etcdproc.Cluster) seen {
	t.Helper()
	client := epoch.Members[0].Client()
	s := seen{key: put(t, client, "key", 7)}
	s.last = put(t, client, "other", 3)
	return s
}

// begin starts an epoch of one member.
func begin(t *testing.T, version, name string, from seed.Options) (*etcdproc.Cluster, stores.Restore) {
	t.Helper()
	c, told := seeded(t, version, name, 1, from)
	c.WaitServing(c.Members...)
	return c, told[0]
}

// notices asks an etcd as a client does that has seen another one: it watches from where that was, and swaps what it
// has read there.
func notices(t *testing.T, epoch *etcdproc.Cluster, s seen, within time.Duration) (swapped bool, watch error) {
	t.Helper()
	client := epoch.Members[0].Client()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	select {
	case answer := <-client.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(s.last+1)):
		watch = answer.Err()
	case <-ctx.Done():
	}
	ctx, cancel = context.WithTimeout(t.Context(), etcdproc.Patience)
	defer cancel()
	txn, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("key-6"), "=",
		s.key)).Then(clientv3.OpPut("key-6", "swapped")).Commit()
	require.NoError(t, err)
	return txn.Succeeded, watch
}

// TestARevisionThatIsRaisedByTheSameTwice is why no constant will do: a snapshot that is restored twice, each time
// with its revision raised by as much, and as many writes after each.
func TestARevisionThatIsRaisedByTheSameTwice(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		first := etcdproc.Start(t, version, "first", 1)
		lived(t, first)
		from := seed.Options{Fetch: fetching(snapshotOf(t, version, first.Members[0])), BeginAfter: new(int64)}
		first.Members[0].Kill()
		second, _ := begin(t, version, "second", from)
		s := lived(t, second)
		second.Members[0].Kill()
		third, _ := begin(t, version, "third", from)
		lived(t, third)
		swapped, watch := notices(t, third, s, time.Second)
		require.NoError(t, watch, "silence")
		require.True(t, swapped, "what another client wrote is lost")
	})
}

// TestNoClientIsAnsweredByALaterEpochUnnoticed: whatever an epoch begins with, clients of all that were before it
// notice.
func TestNoClientIsAnsweredByALaterEpochUnnoticed(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		var clients []seen
		var highest int64
		live := func(c *etcdproc.Cluster) {
			s := lived(t, c)
			require.Greater(t, s.last, highest)
			clients, highest = append(clients, s), s.last
		}
		epoch := etcdproc.Start(t, version, "epoch-1", 1)
		epoch.Members[0].Put(5)
		snapshot := snapshotOf(t, version, epoch.Members[0])
		live(epoch)
		dirs := []string{epoch.Members[0].DataDir()}
		for i, from := range []struct {
			what string
			seed.Options
		}{
			{"a snapshot", seed.Options{Fetch: fetching(snapshot)}},
			{"the same once more", seed.Options{Fetch: fetching(snapshot)}},
			{"the survivor of epoch 2", seed.Options{FromData: "epoch 2"}},
			{"the survivor of epoch 1", seed.Options{FromData: "epoch 1"}},
			{"nothing", seed.Options{Empty: true}},
			{"the survivor of that", seed.Options{FromData: "epoch 6"}},
			{"the first snapshot", seed.Options{Fetch: fetching(snapshot)}},
		} {
			epoch.Members[0].Kill()
			if from.FromData != "" {
				var of int
				_, err := fmt.Sscanf(from.FromData, "epoch %d", &of)
				require.NoError(t, err)
				from.FromData = dirs[of-1]
			}
			from.BeginAfter = &highest
			var report stores.Restore
			epoch, report = begin(t, version, fmt.Sprintf("epoch-%d", i+2), from.Options)
			require.Equal(t, highest+seed.BeginGap, report.Revision, from.what)
			dirs = append(dirs, epoch.Members[0].DataDir())
			before := clients
			live(epoch)
			for n, s := range before {
				swapped, watch := notices(t, epoch, s, etcdproc.Patience)
				require.ErrorIs(t, watch, rpctypes.ErrCompacted, "%s after epoch %d", from.what, n+1)
				require.False(t, swapped, "%s after epoch %d", from.what, n+1)
			}
		}
	})
}

// TestAllBeginEmpty: three members that begin without data agree about it, and users, leases and alarms can be had as
// in any other etcd.
func TestAllBeginEmpty(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		floor := int64(5_000_000_000)
		fresh, filled := seeded(t, version, "fresh", 3, seed.Options{Empty: true, BeginAfter: &floor})
		fresh.WaitServing(fresh.Members...)
		require.Equal(t, stores.Restore{Revision: floor + seed.BeginGap, Hash: filled[0].Hash}, filled[0])
		require.Equal(t, filled[0], filled[1])
		require.Equal(t, filled[0], filled[2])
		client := fresh.Members[1].Client()
		require.Zero(t, count(t, client, ""))
		require.Equal(t, floor+seed.BeginGap+10, put(t, client, "key", 10))
		ctx, cancel := context.WithTimeout(t.Context(), etcdproc.Patience)
		defer cancel()
		lease, err := client.Grant(ctx, 60)
		require.NoError(t, err)
		ok := done(t)
		ok(client.Put(ctx, "leased", "value", clientv3.WithLease(lease.ID)))
		ok(client.UserAdd(ctx, "someone", "password"))
		ok(client.RoleAdd(ctx, "reader"))
		ok(client.AlarmList(ctx))
		file := snapshotOf(t, version, fresh.Members[0])
		killAll(fresh)
		for _, m := range fresh.Members {
			m.Restart()
		}
		fresh.WaitServing(fresh.Members...)
		require.EqualValues(t, 10, count(t, client, "key"))
		again, report := begin(t, version, "again", seed.Options{Fetch: fetching(file), BeginAfter: &floor})
		require.Equal(t, floor+2*seed.BeginGap+11, report.Revision)
		require.NotEmpty(t, report.SHA256)
		require.EqualValues(t, 11, report.Keys)
		require.True(t, again.Members[0].Running())
	})
}
