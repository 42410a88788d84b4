//go:build unix && releases

package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/etcdops/archive"
	"github.com/quorate-dev/quorate/etcdops/mirror"
	"github.com/quorate-dev/quorate/hooks/reports"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// TestMirrorOfStored: a mirror that sees only a store is, whenever it is looked at, what the source was at the revision
// that its place tells; and it ends at the last revision that is stored when the source is lost.
func TestMirrorOfStored(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 1).Members[0]
		to := etcdproc.Start(t, version, "standby", 1).Members[0]
		random := rand.New(rand.NewPCG(1, 44))
		s := &standby{t: t, source: source.Client(), client: to.Client(), name: "west",
			scope: mirror.Scope{Prefix: "key-", ToPrefix: "/copy/", Exclude: []string{"key-1"}}}
		ctx, stop := context.WithTimeout(context.Background(), 4*time.Minute)
		defer stop()
		dir := t.TempDir()
		store := archive.Place{URL: "file:///backups", Dir: dir}
		base := func(name string) int64 {
			report, err := archive.Take(ctx, archive.Order{Cluster: archive.Cluster{Endpoints: []string{source.ClientURL}},
				Place: store, Key: name, Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			return report.Revision
		}
		at := int64(0)
		c := &churn{t: t, m: source, client: s.source, random: random, stored: func() int64 { return at }}
		for range 60 {
			c.step(ctx)
		}
		streaming := startStream(t, dir, source, base("first.db"))
		flags := []string{"--store-url=file:///backups", "--store-dir=" + dir, "--tail=tail", "--to-endpoint=" + to.ClientURL,
			"--name=west", "--scratch=" + t.TempDir()}
		mirroring := startMirror(t, append(flags, "--prefix=key-", "--to-prefix=/copy/", "--exclude=key-1")...)
		see := func() {
			if is, equal := s.look(ctx); equal {
				at = is.Revision
			}
		}
		for range 400 {
			c.step(ctx)
			time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond)
			see()
			if random.IntN(100) == 0 {
				mirroring.kill()
				mirroring.start()
				streaming.kill()
				streaming.start()
			}
		}
		s.reaches(c.now(ctx), see)

		streaming.kill() // a gap
		for range 20 {
			c.step(ctx)
		}
		_, err := s.source.Compact(ctx, c.now(ctx))
		require.NoError(t, err)
		c.compacted = c.revision
		streaming.args[5] = fmt.Sprint("--from-revision=", base("second.db"))
		streaming.start()
		_, err = s.source.Put(ctx, "key-behind", "the gap") // a snapshot alone might be ahead of the stream for a while
		require.NoError(t, err)
		s.reaches(c.now(ctx), see)

		for range 10 {
			c.step(ctx)
		}
		end := c.now(ctx)
		etcdproc.Eventually(t, "all is stored", func(context.Context) error {
			tail := lookAtTail(t, dir, "", end-1)
			return while(tail.StoredRevision < end, "%+v, and not %d", tail, end)
		})
		streaming.kill()
		source.Kill()
		report, code := mirrorTells(ctx, t, append([]string{"promote"}, flags...)...)
		require.Zero(t, code, "%+v", report)
		require.True(t, report.Ended)
		require.GreaterOrEqual(t, report.Revision, end)
		report, _ = mirrorTells(ctx, t, append([]string{"check"}, flags...)...)
		require.Equal(t, reports.MirrorEnded, report.Reason)
	})
}
