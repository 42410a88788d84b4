//go:build unix && releases

package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops/backup/archive"
	"github.com/quorate-dev/quorate/etcdops/backup/mirror"
	commands "github.com/quorate-dev/quorate/etcdops/backup/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

func startMirror(t *testing.T, args ...string) *process {
	t.Helper()
	return startProcess(t, append(append([]string{"mirror"}, args...), "--listen=")...)
}

// standby is a destination, and the source that it is mirrored from.
type standby struct {
	t              *testing.T
	source, client *clientv3.Client
	scope          mirror.Scope
	name           string
}

// place is that of the mirror, as JSON.
type place struct {
	Revision, Towards, WholeAt int64
	Doing                      string
	Ended                      bool
}

// look reads the place and the keys at one revision of the destination. While the place says that they are whole, they
// must be what the source has at that revision; compared tells whether that could be asked.
func (s *standby) look(ctx context.Context) (is place, compared bool) {
	s.t.Helper()
	all := func(client *clientv3.Client, revision int64) (map[string]string, error) {
		answer, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision))
		if err != nil {
			return nil, err
		}
		keys := map[string]string{}
		for _, kv := range answer.Kvs {
			keys[string(kv.Key)] = string(kv.Value)
		}
		return keys, nil
	}
	there, err := all(s.client, 0)
	require.NoError(s.t, err)
	text := there[mirror.Reserved+s.name]
	if text == "" {
		return is, false
	}
	require.NoError(s.t, json.Unmarshal([]byte(text), &is))
	if is.Doing != "" {
		return is, false
	}
	at, err := all(s.source, is.Revision)
	if errors.Is(err, rpctypes.ErrCompacted) {
		return is, false
	}
	require.NoError(s.t, err)
	want := map[string]string{}
	for key, value := range at {
		rest, mirrored := strings.CutPrefix(key, s.scope.Prefix)
		for _, prefix := range s.scope.Exclude {
			mirrored = mirrored && !strings.HasPrefix(key, prefix)
		}
		if mirrored {
			want[s.scope.ToPrefix+rest] = value
		}
	}
	maps.DeleteFunc(there, func(key, _ string) bool { return !strings.HasPrefix(key, s.scope.ToPrefix) })
	require.Equal(s.t, want, there, "at revision %d", is.Revision)
	return is, true
}

// reaches waits until the destination is what the source was at a revision, or at a later one: leases run out.
func (s *standby) reaches(revision int64, each func()) {
	s.t.Helper()
	etcdproc.Eventually(s.t, "the destination is what the source is", func(ctx context.Context) error {
		each()
		is, compared := s.look(ctx)
		return while(is.Revision < revision || !compared, "%+v, and not %d", is, revision)
	})
}

// breaking passes connections on to a member, and breaks each of them off after a while.
func breaking(t *testing.T, m *etcdproc.Member, random *rand.Rand) (url string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(m.ClientURL, "http://"))
			if err != nil {
				_ = in.Close()
				continue
			}
			end := func() { _, _ = in.Close(), out.Close() }
			go func() { _, _ = io.Copy(in, out); end() }()
			go func() { _, _ = io.Copy(out, in); end() }()
			time.AfterFunc(time.Duration(200+random.IntN(1500))*time.Millisecond, end)
		}
	}()
	return "http://" + listener.Addr().String()
}

// told is what a command of mirror reports, and its exit code.
func mirrorTells(ctx context.Context, t *testing.T, args ...string) (report stores.Mirror, code int) {
	t.Helper()
	var out, said bytes.Buffer
	code = commands.Mirror(ctx, args, &out, &said)
	require.NoError(t, json.Unmarshal(out.Bytes(), &report), "%s", said.String())
	return report, code
}

// TestMirror: whenever it is looked at, the destination is what the source was at the revision that its place tells,
// whatever happens to the source and to two processes that mirror, of which one loses its connections again and again,
// and both are killed.
func TestMirror(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 1).Members[0]
		to := etcdproc.Start(t, version, "standby", 1).Members[0]
		random := rand.New(rand.NewPCG(1, 43))
		s := &standby{t: t, source: source.Client(), client: to.Client(), name: "east",
			scope: mirror.Scope{ToPrefix: "/copy/", Exclude: []string{"txn-00", "key-1"}}}
		ctx, stop := context.WithTimeout(context.Background(), 4*time.Minute)
		defer stop()
		at := int64(0)
		c := &churn{t: t, m: source, client: s.source, random: random, stored: func() int64 { return at }}
		for range 60 {
			c.step(ctx)
		}
		for i := range 20 { // some pages
			_, err := s.source.Put(ctx, fmt.Sprintf("large-%02d", i), strings.Repeat("v", 100_000))
			require.NoError(t, err)
		}
		scope := []string{"--name=east", "--to-prefix=/copy/", "--exclude=txn-00", "--exclude=key-1"}
		reach := func(url string) []string { return []string{"--endpoint=" + source.ClientURL, "--to-endpoint=" + url} }
		mirrors := []*process{
			startMirror(t, append(reach(to.ClientURL), scope...)...),
			startMirror(t, append(reach(breaking(t, to, random)), scope...)...),
		}
		compared, unwhole := 0, 0
		see := func() {
			is, equal := s.look(ctx)
			if at = is.Revision; equal {
				compared++
			} else if is.Doing != "" {
				unwhole++
			}
		}
		for i := 0; i < 700 || compared <= 50; i++ { // a slow machine takes more steps to as many looks
			require.NoError(t, ctx.Err(), "%d times the destination was whole and equal", compared)
			c.step(ctx)
			time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
			if i%5 == 0 {
				see()
			}
			if random.IntN(60) == 0 {
				mirrors[i%2].kill()
				mirrors[i%2].start()
			}
		}
		s.reaches(c.now(ctx), see)
		t.Logf("%d times the destination was whole and equal, %d times not whole", compared, unwhole)

		for _, m := range mirrors { // a gap
			m.kill()
		}
		c.stored = func() int64 { return c.revision }
		for range 100 {
			c.step(ctx)
		}
		_, err := s.source.Delete(ctx, "large-0", clientv3.WithPrefix())
		require.NoError(t, err)
		_, err = s.source.Compact(ctx, c.now(ctx), clientv3.WithCompactPhysical())
		require.NoError(t, err)
		for range 4 { // within the copy that follows, too
			for _, m := range mirrors {
				m.start()
			}
			time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
			for _, m := range mirrors {
				m.kill()
			}
			see()
		}
		for _, m := range mirrors {
			m.start()
		}
		s.reaches(c.now(ctx), see)

		direct := append(reach(to.ClientURL), "--name=east")
		report, code := mirrorTells(ctx, t, append([]string{"check"}, direct...)...)
		require.Zero(t, code, "%+v", report)
		require.LessOrEqual(t, report.Revision, c.now(ctx))
		require.Positive(t, report.Keys)
		_, err = s.client.Put(ctx, "/copy/key-99", "of another writer")
		require.NoError(t, err)
		report, _ = mirrorTells(ctx, t, append([]string{"check"}, direct...)...)
		require.Equal(t, stores.MirrorDiffers, report.Reason)
		require.Equal(t, `"/copy/key-99"`, report.Difference)
		mirrors[0].kill()
		mirrors[0].args = append(mirrors[0].args, "--compare-on-start")
		mirrors[0].start()
		s.reaches(c.now(ctx), func() {
			kept, err := s.client.Get(ctx, "/copy/key-99")
			require.NoError(t, err)
			if len(kept.Kvs) > 0 {
				s.name = "none" // look again
			} else {
				s.name = "east"
			}
		})

		busy, rest := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() { // a source that is never at rest
			defer close(done)
			for i := 0; busy.Err() == nil; i++ {
				_, _ = s.source.Put(busy, "busy", fmt.Sprint(i))
			}
		}()
		report, code = mirrorTells(ctx, t, append([]string{"promote"}, direct...)...)
		rest()
		<-done
		require.Zero(t, code, "%+v", report)
		require.True(t, report.Ended)
		is, equal := s.look(ctx)
		require.True(t, equal)
		require.Equal(t, report.Revision, is.Revision)
		for _, m := range mirrors {
			select {
			case <-m.ended:
				require.Equal(t, 1, m.run.ProcessState.ExitCode())
			case <-time.After(etcdproc.Patience):
				t.Fatal("a mirror goes on behind its end")
			}
		}
		again, code := mirrorTells(ctx, t, append([]string{"promote", "--force"}, direct...)...)
		require.Zero(t, code)
		require.Equal(t, report.Revision, again.Revision)
		refused, code := mirrorTells(ctx, t, append(append(direct, "--listen="), scope...)...)
		require.Equal(t, 1, code)
		require.Equal(t, stores.MirrorEnded, refused.Reason)
	})
}

// TestMirrorRefuses: a mirror writes neither over keys of others nor over those of another mirror, and goes on with
// neither another source nor other prefixes. A promotion takes back what a mirror has begun and not ended.
func TestMirrorRefuses(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 1, "--max-txn-ops=1000").Members[0]
		to := etcdproc.Start(t, version, "standby", 1).Members[0]
		s := &standby{t: t, source: source.Client(), client: to.Client(), name: "a",
			scope: mirror.Scope{Prefix: "/a/", ToPrefix: "/a/"}}
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
		defer stop()
		put := func(client *clientv3.Client, key, value string) {
			_, err := client.Put(ctx, key, value)
			require.NoError(t, err)
		}
		run := func(args ...string) (report stores.Mirror) {
			report, code := mirrorTells(ctx, t, append([]string{"--endpoint=" + source.ClientURL,
				"--to-endpoint=" + to.ClientURL, "--listen="}, args...)...)
			require.Equal(t, 1, code)
			return report
		}
		put(s.source, "/a/1", "one")
		put(s.client, "/b/1", "of another")
		require.Equal(t, stores.MirrorOccupied, run("--name=a", "--prefix=/a/", "--to-prefix=/").Reason)
		left, err := s.client.Get(ctx, mirror.Reserved, clientv3.WithPrefix())
		require.NoError(t, err)
		require.Empty(t, left.Kvs)
		m := startMirror(t, "--endpoint="+source.ClientURL, "--to-endpoint="+to.ClientURL, "--name=a", "--prefix=/a/")
		s.reaches(2, func() {})
		var large []clientv3.Op
		for i := range 300 {
			large = append(large, clientv3.OpPut(fmt.Sprintf("/a/large-%03d", i), "large"))
		}
		answer, err := s.source.Txn(ctx).Then(large...).Commit()
		require.NoError(t, err)
		s.reaches(answer.Header.Revision, func() {})
		put(s.source, "elsewhere", "the place follows all the same")
		s.reaches(answer.Header.Revision+1, func() {})
		m.kill()

		require.Equal(t, stores.MirrorOtherScope, run("--name=a", "--prefix=/a/", "--exclude=/a/x").Reason)
		require.Equal(t, stores.MirrorOccupied, run("--name=b", "--prefix=/a/large-").Reason)
		report, _ := mirrorTells(ctx, t, "--endpoint="+to.ClientURL, "--to-endpoint="+to.ClientURL, "--listen=",
			"--name=a", "--prefix=/a/")
		require.Equal(t, stores.StreamOtherCluster, report.Reason)

		// What a mirror leaves that is killed within a revision.
		kept, err := s.client.Get(ctx, mirror.Reserved+"a")
		require.NoError(t, err)
		var is map[string]any
		require.NoError(t, json.Unmarshal(kept.Kvs[0].Value, &is))
		is["doing"], is["towards"], is["wholeAt"] = "Applying", answer.Header.Revision+9, kept.Kvs[0].ModRevision
		text, err := json.Marshal(is)
		require.NoError(t, err)
		_, err = s.client.Txn(ctx).Then(clientv3.OpPut(mirror.Reserved+"a", string(text)),
			clientv3.OpPut("/a/1", "two"), clientv3.OpPut("/a/new", "new"), clientv3.OpDelete("/a/large-2", clientv3.WithPrefix())).Commit()
		require.NoError(t, err)
		report, code := mirrorTells(ctx, t, "check", "--endpoint="+source.ClientURL,
			"--to-endpoint="+to.ClientURL, "--name=a")
		require.Equal(t, 1, code)
		require.Contains(t, report.Error, "between two revisions")
		report, code = mirrorTells(ctx, t, "promote", "--to-endpoint="+to.ClientURL, "--name=a", "--force")
		require.Zero(t, code, "%+v", report)
		require.Equal(t, answer.Header.Revision+1, report.Revision)
		now, equal := s.look(ctx)
		require.True(t, equal && now.Ended, "%+v", now)
		report, _ = mirrorTells(ctx, t, "promote", "--to-endpoint="+to.ClientURL, "--name=none", "--force")
		require.Equal(t, "NotFound", report.Reason)
	})
}

// TestMirrorPromotionIsWithdrawn: of a promotion that is killed, and not begun again, nothing keeps a mirror from going
// on.
func TestMirrorPromotionIsWithdrawn(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 1).Members[0]
		to := etcdproc.Start(t, version, "standby", 1).Members[0]
		s := &standby{t: t, source: source.Client(), client: to.Client(), name: "a",
			scope: mirror.Scope{Prefix: "/a/", ToPrefix: "/a/"}}
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
		defer stop()
		put := func(value string) int64 {
			answer, err := s.source.Put(ctx, "/a/1", value)
			require.NoError(t, err)
			return answer.Header.Revision
		}
		at := put("one")
		m := startMirror(t, "--endpoint="+source.ClientURL, "--to-endpoint="+to.ClientURL, "--name=a", "--prefix=/a/")
		s.reaches(at, func() {})
		m.kill()

		const end = mirror.Reserved + "a/end"
		seen := s.client.Watch(ctx, end)
		promotes := startProcess(t, "mirror", "promote", "--to-endpoint="+to.ClientURL, "--name=a", "--force")
		begun := (<-seen).Events[0]
		promotes.kill()
		held, err := s.client.TimeToLive(ctx, clientv3.LeaseID(begun.Kv.Lease))
		require.NoError(t, err)
		require.Positive(t, held.TTL, "its key goes with it")
		kept, err := s.client.Get(ctx, mirror.Reserved+"a")
		require.NoError(t, err)
		var is map[string]any
		require.NoError(t, json.Unmarshal(kept.Kvs[0].Value, &is))
		delete(is, "ended") // where it was quicker
		is["doing"], is["wholeAt"] = "Ending", kept.Kvs[0].ModRevision
		text, err := json.Marshal(is)
		require.NoError(t, err)
		_, err = s.client.Txn(ctx).Then(clientv3.OpPut(mirror.Reserved+"a", string(text)),
			clientv3.OpPut("/a/1", "taken back")).Commit()
		require.NoError(t, err)
		m.start()
		s.reaches(put("two"), func() {})
		left, err := s.client.Get(ctx, end)
		require.NoError(t, err)
		require.Empty(t, left.Kvs)
	})
}

// TestMirrorUser: a user that may write to the prefix and to the place is enough at the destination.
func TestMirrorUser(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		source := etcdproc.Start(t, version, "source", 1).Members[0]
		to := etcdproc.Start(t, version, "standby", 1).Members[0]
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		plain := to.Client()
		done := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
		done(plain.UserAdd(ctx, "root", "secret"))
		done(plain.UserGrantRole(ctx, "root", "root"))
		done(plain.RoleAdd(ctx, "mirror"))
		for _, prefix := range []string{"/copy/", mirror.Reserved} {
			done(plain.RoleGrantPermission(ctx, "mirror", prefix, clientv3.GetPrefixRangeEnd(prefix),
				clientv3.PermissionType(clientv3.PermReadWrite)))
		}
		done(plain.UserAdd(ctx, "mirror", "word"))
		done(plain.UserGrantRole(ctx, "mirror", "mirror"))
		done(plain.AuthEnable(ctx))
		dir := t.TempDir()
		for file, text := range map[string]string{"user": "mirror\n", "password": "word\n"} {
			require.NoError(t, os.WriteFile(dir+"/"+file, []byte(text), 0o600))
		}
		s := &standby{t: t, source: source.Client(), name: "default",
			client: to.ClientOf(clientv3.Config{Username: "root", Password: "secret"}, "root"),
			scope:  mirror.Scope{ToPrefix: "/copy/"}}
		end := put(t, s.source, "key", 100)
		direct := []string{"--endpoint=" + source.ClientURL, "--to-endpoint=" + to.ClientURL,
			"--to-username-file=" + dir + "/user", "--to-password-file=" + dir + "/password"}
		startMirror(t, append(direct, "--to-prefix=/copy/")...)
		s.reaches(end, func() {})
		report, code := mirrorTells(ctx, t, append([]string{"promote"}, direct...)...)
		require.Zero(t, code, "%+v", report)
		refused, code := mirrorTells(ctx, t, append(direct, "--listen=", "--name=b", "--to-prefix=/else/")...)
		require.Equal(t, 1, code)
		require.Equal(t, "Denied", refused.Reason, "%+v", refused)
	})
}

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
		require.Equal(t, stores.MirrorEnded, report.Reason)
	})
}
