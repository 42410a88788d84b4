//go:build unix

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/etcdops"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
	"github.com/quorate-dev/quorate/test/real/conformance/etcdproc"
)

// secured is a cluster that asks clients for certificates, with the Secrets that passwords are in.
type secured struct {
	*etcdproc.Cluster
	ca *etcdproc.Authority

	mu      sync.Mutex
	secrets map[string]string
}

func startSecured(t *testing.T, version, name string, n int, token func(*etcdproc.Authority) string) *secured {
	ca := etcdproc.NewAuthority(t)
	s := &secured{ca: ca, secrets: map[string]string{"root": "root-1", "app": "app-1", "web": "web-1"}}
	s.Cluster = etcdproc.StartTLS(t, version, name, n, ca, token(ca))
	return s
}

func simple(*etcdproc.Authority) string { return "--auth-token=simple" }

// quorate is how Quorate comes: with a certificate in the name root and no password of its own.
func (s *secured) quorate() *etcdops.Etcd {
	return &etcdops.Etcd{TLS: s.ca.Client("root"), Password: func(secret, _ string) (string, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.secrets[secret], nil
	}}
}

func (s *secured) look(t *testing.T) *observation.Membership {
	t.Helper()
	var m *observation.Membership
	etcdproc.Eventually(t, "a quorum answers", func(ctx context.Context) error {
		var health map[string]observation.Health
		m, health = s.quorate().Observe(ctx, s.Endpoints())
		return while(m == nil || m.Leader == 0, "%+v", health)
	})
	return m
}

// apply carries out an Authorize and sees that nothing is left to do.
func (s *secured) apply(t *testing.T, want users.Want) {
	t.Helper()
	began := time.Now()
	require.NoError(t, s.quorate().Do(t.Context(), decision.Authorize{Want: want}, s.look(t), s.Endpoints()))
	t.Logf("applied in %s", time.Since(began).Round(time.Millisecond))
}

// applyAll goes on from call to call, as the hooks do, until all is as wanted; the result is how many calls that took.
func (s *secured) applyAll(t *testing.T, want users.Want) int {
	t.Helper()
	for calls := 1; ; calls++ {
		require.Less(t, calls, 30)
		err := s.quorate().Do(t.Context(), decision.Authorize{Want: want}, s.look(t), s.Endpoints())
		if err == nil {
			return calls
		}
		var unfinished *users.Unfinished
		require.ErrorAs(t, err, &unfinished)
		// a single call may be late on a busy machine; the next goes on from where this one came to
		if !errors.Is(err, etcdops.ErrNoAnswer) {
			require.ErrorIs(t, err, etcdops.ErrAuthUnfinished)
		}
		for i := range want.Users {
			if version := unfinished.Passwords[want.Users[i].Name]; version != "" {
				want.Users[i].Applied = version
			}
		}
	}
}

func (s *secured) client(config clientv3.Config, name string) *clientv3.Client {
	return s.Members[0].ClientOf(config, name)
}

func password(secret, version string) *users.PasswordFrom {
	return &users.PasswordFrom{Secret: secret, Key: "password", Version: version}
}

func wantOf(roles []users.RoleWant, others ...users.UserWant) users.Want {
	root := users.UserWant{Name: "root", Roles: []string{"root"}, Password: password("root", "1"), Applied: "1"}
	return users.Want{Enabled: true, Roles: roles, Users: append([]users.UserWant{root}, others...)}
}

func role(name string, permits ...users.Permit) users.RoleWant {
	return users.RoleWant{Name: name, Permits: permits}
}

func permit(access v1beta1.Access, key, end string) users.Permit {
	return users.Permit{Keys: users.Keys{Key: key, End: end}, Access: access}
}

var everything = permit(v1beta1.ReadWrite, "\x00", "\x00")

// shortly is a context for one call.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// busy calls f again and again until it is told to stop, and then returns how often, and all its errors with how
// often each came.
func busy(f func(ctx context.Context) error) (stop func() (int, map[string]int)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	calls, errs := 0, map[string]int{}
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			calls++
			one, done := context.WithTimeout(context.Background(), 5*time.Second)
			if err := f(one); err != nil {
				errs[err.Error()]++
			}
			done()
		}
	}()
	return func() (int, map[string]int) {
		cancel()
		<-ended
		return calls, errs
	}
}

// readsAndWrites puts and gets this key.
func readsAndWrites(c *clientv3.Client, key string) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := c.Put(ctx, key, "v"); err != nil {
			return err
		}
		_, err := c.Get(ctx, key)
		return err
	}
}

func TestUsersAndRoles(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		s := startSecured(t, version, "demo", 3, (*etcdproc.Authority).JWT)
		app := s.client(clientv3.Config{}, "app")

		chapter(t, "auth is turned on under a client with a certificate, which goes on", func(t *testing.T) {
			stop := busy(readsAndWrites(app, "/app/x"))
			s.apply(t, wantOf([]users.RoleWant{role("app", permit(v1beta1.ReadWrite, "/app/", "/app0"))},
				users.UserWant{Name: "app", Roles: []string{"app"}}))
			calls, errs := stop()
			assert.Empty(t, errs)
			t.Logf("%d calls", calls)
		})

		chapter(t, "a role lets in up to its borders", func(t *testing.T) { borders(t, s, app) })

		chapter(t, "a second time there is nothing to do, and it costs this", func(t *testing.T) {
			before := revision(t, s)
			s.apply(t, wantOf([]users.RoleWant{everythingOn("app")},
				users.UserWant{Name: "app", Roles: []string{"app"}}))
			middle := revision(t, s)
			s.apply(t, wantOf([]users.RoleWant{everythingOn("app")},
				users.UserWant{Name: "app", Roles: []string{"app"}}))
			t.Logf("log entries: %d with changes, %d without", middle-before, revision(t, s)-middle)
		})

		chapter(t, "what is allowed before and after is allowed at every moment between",
			func(t *testing.T) { neverDenied(t, s, app) })

		chapter(t, "what plans take for granted about grants and passwords",
			func(t *testing.T) { grantsAndPasswords(t, s) })

		chapter(t, "strangers stay, except with prune", func(t *testing.T) { strangers(t, s) })

		chapter(t, "a new password counts, the old one no more", func(t *testing.T) { rotation(t, s) })

		chapter(t, "a user with a certificate only gets a password, and loses it again",
			func(t *testing.T) { certificateOnly(t, s) })

		chapter(t, "two at the same time end alike", func(t *testing.T) { twins(t, s) })

		chapter(t, "who may ask what", func(t *testing.T) { whoMayAskWhat(t, s, version) })

		chapter(t, "a learner joins and is promoted as ever", func(t *testing.T) { learnerUnderAuth(t, s) })

		chapter(t, "a password that can't be had stops it, and says whose", func(t *testing.T) {
			want := wantOf(nil, users.UserWant{Name: "more", Password: password("missing", "1")})
			want.Users[1].Password.Field = "spec.auth.users[0].passwordSecretRef"
			err := s.quorate().Do(t.Context(), decision.Authorize{Want: want}, s.look(t), s.Endpoints())
			require.ErrorIs(t, err, etcdops.ErrPassword)
			assert.EqualError(t, err,
				`apply users and roles: add user more with the password in Secret missing: the password cannot be used: spec.auth.users[0].passwordSecretRef: what is under "password" in Secret missing is empty`)
		})

		chapter(t, "auth is turned off again, and users stay", func(t *testing.T) {
			want := wantOf(nil)
			want.Enabled = false
			stop := busy(readsAndWrites(app, "/app/x"))
			s.apply(t, want)
			_, errs := stop()
			assert.Empty(t, errs)
			noUser := s.client(clientv3.Config{}, "no-user")
			_, err := noUser.Get(shortly(t), "/any")
			require.NoError(t, err)
			users, err := noUser.UserList(shortly(t))
			require.NoError(t, err)
			assert.Contains(t, users.Users, "app")
		})
	})
}

func everythingOn(name string) users.RoleWant { return role(name, everything) }

func revision(t *testing.T, s *secured) uint64 {
	_, health := s.quorate().Observe(t.Context(), s.Endpoints())
	return health[s.Members[0].Name].RaftIndex
}

func borders(t *testing.T, s *secured, app *clientv3.Client) {
	tests := map[string]struct {
		is        users.Permit
		in, out   []string
		inRange   [][2]string
		outRanges [][2]string
	}{
		"a prefix": {
			permit(v1beta1.ReadWrite, "/app/", "/app0"), []string{"/app/", "/app/x", "/app/\xff\xff"},
			[]string{"/app", "/app0", "/b", "\x00"},
			[][2]string{{"/app/", "/app0"}, {"/app/a", "/app/b"}}, [][2]string{{"/app/", "/app1"}, {"/app", "/app0"},
				{"\x00", "\x00"}, {"/app/", "\x00"}},
		},
		"a prefix that ends in ff": {permit(v1beta1.ReadWrite, "a\xff", "b"), []string{"a\xff", "a\xff\xff"},
			[]string{"a", "a\xfe", "b"}, [][2]string{{"a\xff", "b"}}, [][2]string{{"a", "b"}}},
		"a prefix of ff alone": {permit(v1beta1.ReadWrite, "\xff", "\x00"), []string{"\xff", "\xff\xff\xff"},
			[]string{"\xfe", "a"}, [][2]string{{"\xff", "\x00"}}, [][2]string{{"\xfe", "\x00"}}},
		"a key": {permit(v1beta1.ReadWrite, "k", ""), []string{"k"},
			[]string{"k\x00", "ka", "j"}, nil, [][2]string{{"k", "l"}}},
		"the other form of a key": {permit(v1beta1.ReadWrite, "k", "k\x00"), []string{"k"},
			[]string{"k\x00", "ka", "j"}, [][2]string{{"k", "k\x00"}}, [][2]string{{"k", "l"}}},
		"all keys": {everything, []string{"\x00", "a", "\xff\xff"}, nil,
			[][2]string{{"\x00", "\x00"}, {"a", "\x00"}}, nil},
		"a range": {permit(v1beta1.ReadWrite, "b", "d"), []string{"b", "c", "c\xff"},
			[]string{"a", "d"}, [][2]string{{"b", "d"}}, [][2]string{{"b", "d\x00"}}},
		"a range that is in two parts": {permit(v1beta1.ReadWrite, "b", "d"), []string{"b"}, nil,
			[][2]string{{"b", "d"}}, nil},
	}
	for name, test := range tests {
		permits := []users.Permit{test.is}
		if strings.Contains(name, "two parts") {
			permits = []users.Permit{permit(test.is.Access, "b", "b\x00"), permit(test.is.Access, "b\x00", "d")}
		}
		s.apply(t, wantOf([]users.RoleWant{role("app", permits...)},
			users.UserWant{Name: "app", Roles: []string{"app"}}))
		for _, key := range test.in {
			assert.NoError(t, readsAndWrites(app, key)(shortly(t)), "%s: %q", name, key)
		}
		for _, key := range test.out {
			assert.ErrorIs(t, readsAndWrites(app, key)(shortly(t)), rpctypes.ErrPermissionDenied, "%s: %q", name, key)
		}
		for _, r := range test.inRange {
			_, err := app.Get(shortly(t), r[0], clientv3.WithRange(r[1]), clientv3.WithKeysOnly())
			assert.NoError(t, err, "%s: %q", name, r)
		}
		for _, r := range test.outRanges {
			_, err := app.Get(shortly(t), r[0], clientv3.WithRange(r[1]), clientv3.WithKeysOnly())
			assert.ErrorIs(t, err, rpctypes.ErrPermissionDenied, "%s: %q", name, r)
		}
	}
}

// neverDenied changes roles under a client that reads in a tight loop, also a range at once.
func neverDenied(t *testing.T, s *secured, app *clientv3.Client) {
	read := func(a v1beta1.Access) users.Permit { return permit(a, "/app/", "/app0") }
	key := permit(v1beta1.ReadWrite, "/app/", "")
	user := func(roles ...string) users.UserWant { return users.UserWant{Name: "app", Roles: roles} }
	turns := []users.Want{
		wantOf([]users.RoleWant{role("app", read(v1beta1.ReadWrite), key)}, user("app")),
		// beside another that begins alike
		wantOf([]users.RoleWant{role("app", read(v1beta1.Read), key)}, user("app")),
		wantOf([]users.RoleWant{role("app", read(v1beta1.Read))}, user("app")),      // without it
		wantOf([]users.RoleWant{role("app", read(v1beta1.ReadWrite))}, user("app")), // in place
		wantOf([]users.RoleWant{role("app", read(v1beta1.Read))}, user("app")),      // and back
		// another role, with a wider range
		wantOf([]users.RoleWant{role("new", permit(v1beta1.Read, "/", "0"))}, user("new")),
		wantOf([]users.RoleWant{role("app", read(v1beta1.ReadWrite), key)}, user("app")),
	}
	for i := range turns {
		turns[i].FormerRoles = []string{"app", "new"}
	}
	s.apply(t, turns[0])
	stopKey := busy(func(ctx context.Context) error { _, err := app.Get(ctx, "/app/x"); return err })
	stopRange := busy(func(ctx context.Context) error {
		_, err := app.Get(ctx, "/app/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		return err
	})
	once := s.Members[0].ClientOf(clientv3.Config{MaxUnaryRetries: 1}, "app")
	stopOnce := busy(func(ctx context.Context) error { _, err := once.Get(ctx, "/app/x"); return err })
	for range 2 {
		for _, want := range turns {
			want.FormerRoles = slices.DeleteFunc(slices.Clone(want.FormerRoles),
				func(name string) bool { return want.Roles[0].Name == name })
			s.apply(t, want)
		}
	}
	calls, errs := stopOnce()
	t.Logf("without repeating: %d calls, errors %v", calls, errs)
	for said := range errs {
		assert.Equal(t, rpctypes.ErrAuthOldRevision.Error(), said, "what etcd's client repeats by itself")
	}
	for name, stop := range map[string]func() (int, map[string]int){"a key": stopKey, "a range": stopRange} {
		calls, errs := stop()
		t.Logf("%s: %d calls, errors %v", name, calls, errs)
		assert.Empty(t, errs)
	}
}

func grantsAndPasswords(t *testing.T, s *secured) {
	root := s.client(clientv3.Config{}, "root")
	_, err := root.RoleAdd(shortly(t), "facts")
	require.NoError(t, err)
	grant := func(end string, access clientv3.PermissionType) {
		_, err := root.RoleGrantPermission(shortly(t), "facts", "k", end, access)
		require.NoError(t, err)
	}
	has := func() int {
		r, err := root.RoleGet(shortly(t), "facts")
		require.NoError(t, err)
		return len(r.Perm)
	}
	grant("l", clientv3.PermissionType(clientv3.PermReadWrite))
	grant("l", clientv3.PermissionType(clientv3.PermRead))
	assert.Equal(t, 1, has(), "overwritten in place")
	grant("m", clientv3.PermissionType(clientv3.PermRead))
	grant("l", clientv3.PermissionType(clientv3.PermWrite))
	grant("m", clientv3.PermissionType(clientv3.PermWrite))
	assert.Equal(t, 3, has(), "one of the two is found and overwritten, the other one added once more")
	for _, end := range []string{"l", "m"} {
		_, err = root.RoleRevokePermission(shortly(t), "facts", "k", end)
		require.NoError(t, err)
	}
	assert.Zero(t, has(), "all entries for a range go at once")

	_, err = root.UserAddWithOptions(shortly(t), "facts", "", &clientv3.UserAddOptions{NoPassword: true})
	require.NoError(t, err)
	_, err = root.UserChangePassword(shortly(t), "facts", "secret")
	require.NoError(t, err, "accepted")
	require.ErrorContains(t, logIn(t, s, "facts", "secret"), "password was given for no password user", "and dropped")
}

func strangers(t *testing.T, s *secured) {
	root := s.client(clientv3.Config{}, "root")
	_, err := root.RoleAdd(shortly(t), "visitors")
	require.NoError(t, err)
	_, err = root.UserAdd(shortly(t), "visitor", "pw")
	require.NoError(t, err)
	want := wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "app", Roles: []string{"app"}})
	s.apply(t, want)
	users, err := root.UserList(shortly(t))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"root", "app", "visitor", "facts"}, users.Users)
	want.Prune = true
	s.apply(t, want)
	users, err = root.UserList(shortly(t))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"root", "app"}, users.Users)
	roles, err := root.RoleList(shortly(t))
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"root", "app"}, roles.Roles)
}

// logIn is what comes of logging in with a password.
func logIn(t *testing.T, s *secured, name, password string) error {
	t.Helper()
	noUser := s.client(clientv3.Config{}, "no-user")
	_, err := noUser.Authenticate(shortly(t), name, password)
	return err
}

func rotation(t *testing.T, s *secured) {
	want := wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "web", Roles: []string{"app"},
		Password: password("web", "1")})
	s.apply(t, want)
	require.NoError(t, logIn(t, s, "web", "web-1"))
	web := s.client(clientv3.Config{Username: "web", Password: "web-1"}, "no-user")
	_, err := web.Get(shortly(t), "/app/x")
	require.NoError(t, err)

	s.mu.Lock()
	s.secrets["web"], s.secrets["root"] = "web-2", "root-2"
	s.mu.Unlock()
	want.Users[1].Applied, want.Users[1].Password = "1", password("web", "2")
	want.Users[0].Applied, want.Users[0].Password = "1", password("root", "2")
	s.apply(t, want)
	require.ErrorIs(t, logIn(t, s, "web", "web-1"), rpctypes.ErrAuthFailed)
	require.NoError(t, logIn(t, s, "web", "web-2"))
	require.ErrorIs(t, logIn(t, s, "root", "root-1"), rpctypes.ErrAuthFailed)
	require.NoError(t, logIn(t, s, "root", "root-2"))
	_, err = web.Get(shortly(t), "/app/x")
	assert.ErrorIs(t, err, rpctypes.ErrAuthFailed, "a client that keeps the old password is out: its token was of "+
		"before the change")
}

func certificateOnly(t *testing.T, s *secured) {
	app := s.client(clientv3.Config{}, "app")
	with := func(p *users.PasswordFrom, applied string) users.Want {
		return wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "app", Roles: []string{"app"},
			Password: p, Applied: applied})
	}
	s.apply(t, with(nil, ""))
	err := logIn(t, s, "app", "anything")
	require.ErrorContains(t, err, "password was given for no password user")

	var denied time.Time
	var gap time.Duration
	stop := busy(func(ctx context.Context) error {
		_, err := app.Get(ctx, "/app/x")
		switch {
		case err != nil && denied.IsZero():
			denied = time.Now()
		case err == nil && !denied.IsZero() && gap == 0:
			gap = time.Since(denied)
		}
		return err
	})
	s.apply(t, with(password("app", "1"), users.NoPassword))
	calls, errs := stop()
	t.Logf("made again: %d calls, errors %v, without permission for about %s", calls, errs, gap.Round(time.Millisecond))
	for said := range errs {
		assert.Contains(t, said, "permission denied")
	}
	require.NoError(t, logIn(t, s, "app", "app-1"))

	stop = busy(func(ctx context.Context) error { _, err := app.Get(ctx, "/app/x"); return err })
	s.apply(t, with(nil, "1"))
	s.apply(t, with(password("app", "2"), users.NoPassword))
	require.NoError(t, logIn(t, s, "app", "app-1"))
	s.apply(t, with(nil, "2"))
	_, errs = stop()
	assert.Empty(t, errs, "from a password to none and back without a gap, for a user that had one")
	require.ErrorIs(t, logIn(t, s, "app", "app-1"), rpctypes.ErrAuthFailed)
}

func twins(t *testing.T, s *secured) {
	m := s.look(t)
	for i := range 6 {
		var roles []users.RoleWant
		others := []users.UserWant{{Name: "app", Roles: []string{"app"}, Applied: users.NoPassword}}
		for j := range 5 {
			name := fmt.Sprintf("r%d", j)
			roles = append(roles, role(name,
				permit([]v1beta1.Access{v1beta1.Read, v1beta1.Write, v1beta1.ReadWrite}[(i+j)%3],
					fmt.Sprint("/", (i+j)%4), "0")))
			others = append(others, users.UserWant{Name: name, Roles: []string{name}})
		}
		want := wantOf(append(roles, everythingOn("app")), others...)
		want.Prune = i%2 == 0
		var wg sync.WaitGroup
		var errs [2]error
		for twin := range 2 {
			wg.Go(func() { errs[twin] = s.quorate().Do(t.Context(), decision.Authorize{Want: want}, m, s.Endpoints()) })
		}
		wg.Wait()
		for _, err := range errs {
			if !errors.Is(err, etcdops.ErrAuthContended) {
				require.NoError(t, err)
			}
		}
		s.apply(t, want)
	}
}

// whoMayAskWhat is the table of README.md: calls under auth, by who asks.
func whoMayAskWhat(t *testing.T, s *secured, version string) {
	s.apply(t, wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "app", Roles: []string{"app"}}))
	m := s.look(t)
	at := s.Members[slices.IndexFunc(s.Members,
		func(member *etcdproc.Member) bool { return idOf(t, m, member) == m.Leader })]
	const yes, nameless, denied, unknown = "", "user name is empty", "permission denied", "not found"
	// By the common name of the certificate; "stranger" is no user, and "" is a certificate without one.
	adminOnly := map[string]string{"root": yes, "app": denied, "stranger": unknown, "": nameless}
	everyone := map[string]string{"root": yes, "app": yes, "stranger": yes, "": yes}
	authStatus := adminOnly
	if version >= "3.7" {
		authStatus = everyone
	}
	tests := []struct {
		name string
		call func(c *clientv3.Client) error
		want map[string]string
	}{
		{"Status", func(c *clientv3.Client) error { _, err := c.Status(shortly(t), at.ClientURL); return err },
			everyone},
		{"MemberList", func(c *clientv3.Client) error { _, err := c.MemberList(shortly(t)); return err }, everyone},
		{"AlarmList", func(c *clientv3.Client) error { _, err := c.AlarmList(shortly(t)); return err }, everyone},
		{"AlarmDisarm", func(c *clientv3.Client) error {
			_, err := c.AlarmDisarm(shortly(t), &clientv3.AlarmMember{MemberID: 1})
			return err
		}, adminOnly},
		{"MoveLeader", func(c *clientv3.Client) error { _, err := c.MoveLeader(shortly(t), m.Leader); return err },
			adminOnly},
		{"MemberRemove", func(c *clientv3.Client) error {
			_, err := c.MemberRemove(shortly(t), 1)
			if errors.Is(err, rpctypes.ErrMemberNotFound) {
				return nil // it was let in
			}
			return err
		}, adminOnly},
		{"Defragment", func(c *clientv3.Client) error { _, err := c.Defragment(shortly(t), at.ClientURL); return err },
			adminOnly},
		{"Snapshot", func(c *clientv3.Client) error {
			r, err := c.Snapshot(shortly(t))
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			return err
		}, adminOnly},
		{"AuthStatus", func(c *clientv3.Client) error { _, err := c.AuthStatus(shortly(t)); return err }, authStatus},
		{"UserList", func(c *clientv3.Client) error { _, err := c.UserList(shortly(t)); return err }, adminOnly},
	}
	for _, test := range tests {
		for who, want := range test.want {
			c := at.ClientOf(clientv3.Config{}, who)
			err := test.call(c)
			_ = c.Close()
			if want == yes {
				assert.NoError(t, err, "%s by %q", test.name, who)
			} else {
				assert.ErrorContains(t, err, want, "%s by %q", test.name, who)
			}
		}
	}
	for _, path := range []string{"/readyz", "/livez", "/health", "/metrics"} {
		transport := &http.Transport{TLSClientConfig: s.ca.Client(""), DisableKeepAlives: true}
		code, body, err := page(shortly(t), transport, at.ClientURL+path)
		require.NoError(t, err)
		assert.Equal(t, http.StatusOK, code, "%s: %s", path, body)
	}
}

func learnerUnderAuth(t *testing.T, s *secured) {
	m := s.NewMember("demo-3")
	others := slices.Clone(s.Members[:3])
	again := func(step func(list *observation.Membership) decision.Step) {
		t.Helper()
		etcdproc.Eventually(t, "etcd agrees", func(context.Context) error {
			list := s.look(t)
			return s.quorate().Do(t.Context(), step(list), list, s.Endpoints())
		})
	}
	again(func(*observation.Membership) decision.Step {
		return decision.AddLearner{Name: m.Name, PeerURL: m.PeerURL}
	})
	s.Join(m, others...)
	s.WaitServing(m)
	_, health := s.quorate().Observe(t.Context(), s.Endpoints())
	assert.True(t, health[m.Name].Learner)
	assert.True(t, health[m.Name].Serving())
	err := s.quorate().Do(t.Context(), decision.Authorize{}, s.look(t), []observation.Endpoint{m.Endpoint()})
	require.ErrorIs(t, err, etcdops.ErrNoExecutor, "a learner is not asked")
	want := wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "app", Roles: []string{"app"}})
	s.apply(t, want)
	again(func(list *observation.Membership) decision.Step {
		return decision.Promote{ID: idOf(t, list, m), Name: m.Name}
	})
	etcdproc.Eventually(t, "the new voter has heard that it votes", func(context.Context) error {
		_, health := s.quorate().Observe(t.Context(), s.Endpoints())
		if h := health[m.Name]; h.Learner || !h.Serving() {
			return fmt.Errorf("it says %+v", h)
		}
		return nil
	})
	app := m.ClientOf(clientv3.Config{}, "app")
	_, err = app.Get(shortly(t), "/app/x")
	require.NoError(t, err, "the new voter knows users and roles")
	again(func(list *observation.Membership) decision.Step {
		return decision.Remove{ID: idOf(t, list, m), Name: m.Name}
	})
	s.Members = s.Members[:3]
}

// TestManyUsersAndRoles: as many users as can be declared, which takes one call or several, of which each goes on
// where the one before stopped.
func TestManyUsersAndRoles(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		s := startSecured(t, version, "demo", 3, (*etcdproc.Authority).JWT)
		var roles []users.RoleWant
		var others []users.UserWant
		for i := range 64 {
			r := role(fmt.Sprintf("r%d", i))
			for j := range 4 {
				r.Permits = append(r.Permits, permit(v1beta1.ReadWrite, fmt.Sprintf("/%d/%d/", i, j),
					fmt.Sprintf("/%d/%d0", i, j)))
			}
			roles = append(roles, r)
			others = append(others, users.UserWant{Name: fmt.Sprintf("u%d", i), Roles: []string{r.Name},
				Password: password("app", "1")})
		}
		want := wantOf(roles, others...)
		began := time.Now()
		calls := s.applyAll(t, want)
		t.Logf("%s: 64 users, 64 roles, 256 permissions from nothing in %s, %d calls", version,
			time.Since(began).Round(time.Millisecond), calls)
		for i := range want.Users {
			want.Users[i].Applied = "1"
		}
		before, began := revision(t, s), time.Now()
		s.apply(t, want)
		t.Logf("%s: with nothing to do %s, %d entries of the log", version, time.Since(began).Round(time.Millisecond),
			revision(t, s)-before)
		for i := range want.Users {
			want.Users[i].Applied = ""
		}
		want.Users = want.Users[:21] // more than are tried at a time
		began = time.Now()
		s.applyAll(t, want)
		t.Logf("%s: 21 passwords found right in %s", version, time.Since(began).Round(time.Millisecond))
	})
}

// TestRestoredUsersAndRoles: data in which auth is on already, with another root password and other users, and
// nothing that tells which are ours.
func TestRestoredUsersAndRoles(t *testing.T) {
	eachVersion(t, func(t *testing.T, version string) {
		s := startSecured(t, version, "demo", 1, (*etcdproc.Authority).JWT)
		s.apply(t, wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "app", Roles: []string{"app"}},
			users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "1")}))
		s.Members[0].Kill()
		s.Members[0].RestartAlone()
		s.WaitServing(s.Members[0])
		app := s.client(clientv3.Config{}, "app")
		_, err := app.Get(shortly(t), "/app/x")
		require.NoError(t, err, "it keeps working before anything is applied")

		s.secrets["root"] = "of the new cluster"
		before := revision(t, s)
		want := wantOf([]users.RoleWant{everythingOn("app")}, users.UserWant{Name: "app", Roles: []string{"app"}},
			users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "of the new cluster")})
		want.Users[0].Applied = ""
		s.apply(t, want)
		t.Logf("%d entries of the log", revision(t, s)-before)
		require.NoError(t, logIn(t, s, "root", "of the new cluster"))
		require.NoError(t, logIn(t, s, "web", "web-1"), "a password that is right is left as it is")
	})
}

// writeDown makes a member commit its database, so that it will not learn of a token again from the log when it
// restarts. It does so by itself ten times a second, and as part of a defragmentation.
func writeDown(t *testing.T, m *etcdproc.Member) {
	t.Helper()
	root := m.Client()
	_, err := root.Defragment(shortly(t), m.ClientURL)
	require.NoError(t, err)
}

// TestTokens: what becomes of a client that has logged in with a password when members die.
func TestTokens(t *testing.T) {
	for name, kind := range map[string]func(*etcdproc.Authority) string{"jwt": (*etcdproc.Authority).JWT,
		"simple": simple} {
		t.Run(name, func(t *testing.T) {
			eachVersion(t, func(t *testing.T, version string) {
				s := startSecured(t, version, "demo", 3, kind)
				var early []*clientv3.Client
				for _, name := range []string{"", "no-user"} { // of the certificate
					c := s.client(clientv3.Config{Username: "web", Password: "web-1"}, name)
					require.NoError(t, readsAndWrites(c, "/app/x")(shortly(t)),
						"a password is no hindrance while auth is off")
					early = append(early, c)
				}
				s.apply(t, wantOf([]users.RoleWant{everythingOn("app")},
					users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "1")}))
				for _, m := range s.Members {
					is, err := m.Client().AuthStatus(shortly(t)) // it goes through the log of the member that is asked
					require.NoError(t, err)
					require.True(t, is.Enabled, "a request that meets the change on its way has a client log in")
				}
				for _, c := range early {
					require.ErrorIs(t, readsAndWrites(c, "/app/x")(shortly(t)), rpctypes.ErrPermissionDenied,
						"etcd knows it by its certificate, so it never logs in")
				}
				noUser := s.client(clientv3.Config{}, "no-user")
				logged, err := noUser.Authenticate(shortly(t), "web", "web-1")
				require.NoError(t, err)
				works := func(m *etcdproc.Member) error {
					c := m.ClientOf(clientv3.Config{Token: logged.Token, MaxUnaryRetries: 1}, "no-user")
					_, err := c.Get(shortly(t), "/app/x")
					return err
				}
				for _, m := range s.Members {
					require.NoError(t, works(m), "at every member")
					writeDown(t, m)
				}
				forgotten := map[*etcdproc.Member]bool{}
				for _, m := range s.Members {
					m.Kill()
					for _, other := range s.Members {
						if other != m && !forgotten[other] {
							etcdproc.Eventually(t, "the token is good at "+other.Name,
								func(context.Context) error { return works(other) })
						}
					}
					m.Restart()
					s.WaitServing(m)
					if forgotten[m] = name == "simple"; forgotten[m] {
						require.ErrorIs(t, works(m), rpctypes.ErrInvalidAuthToken)
					} else {
						etcdproc.Eventually(t, "the token is good at "+m.Name,
							func(context.Context) error { return works(m) })
					}
				}

				logged, err = noUser.Authenticate(shortly(t), "web", "web-1")
				require.NoError(t, err)
				s.apply(t, wantOf([]users.RoleWant{everythingOn("app"), role("another")},
					users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "1"), Applied: "1"}))
				if name == "simple" {
					require.NoError(t, works(s.Members[0]))
				} else {
					require.ErrorIs(t, works(s.Members[0]), rpctypes.ErrAuthOldRevision,
						"any change of users and roles ends it")
				}
				web := s.client(clientv3.Config{Username: "web", Password: "web-1"}, "no-user")
				stop := busy(readsAndWrites(web, "/app/x"))
				for i := range 3 {
					s.apply(t, wantOf([]users.RoleWant{everythingOn("app"), role(fmt.Sprint("r", i))},
						users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "1"),
							Applied: "1"}))
				}
				_, errs := stop()
				assert.Empty(t, errs, "etcd's client logs in again by itself")

				logged, err = noUser.Authenticate(shortly(t), "web", "web-1")
				require.NoError(t, err)
				s.secrets["web"] = "web-2"
				s.apply(t, wantOf([]users.RoleWant{everythingOn("app")},
					users.UserWant{Name: "web", Roles: []string{"app"}, Password: password("web", "2"), Applied: "1"}))
				require.Error(t, works(s.Members[0]), "a token of before another password")
			})
		})
	}
}
