package etcdops

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// An authFake is a fake with users. It refuses nothing that a test does not tell it to.
type authFake struct {
	pb.UnimplementedAuthServer
	*fake

	lock    sync.Mutex
	enabled bool
	users   map[string]*pb.AuthUserAddRequest
	roles   map[string][]string // of users
	// refuses is what is said to the addition of this user; hangs is that of which etcd thinks too long.
	refuses, hangs string
	// gaveUp is the one of which etcd says that the deadline has passed, while our own timer still runs.
	gaveUp string
	// tries is how long it takes etcd to try a password.
	tries time.Duration
	// forgets makes it lose every user at once.
	forgets bool
}

func withUsers(t *testing.T) *authFake {
	t.Helper()
	f := &authFake{fake: fakes(t, 1)[0], users: map[string]*pb.AuthUserAddRequest{}, roles: map[string][]string{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	pb.RegisterClusterServer(s, f.fake)
	pb.RegisterMaintenanceServer(s, f.fake)
	pb.RegisterAuthServer(s, f)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	f.endpoint.ClientURL = "http://" + l.Addr().String()
	return f
}

func (f *authFake) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Enabled: f.enabled}, nil
}

func (f *authFake) AuthEnable(context.Context, *pb.AuthEnableRequest) (*pb.AuthEnableResponse, error) {
	f.enabled = true
	return &pb.AuthEnableResponse{}, nil
}

func (f *authFake) RoleList(context.Context, *pb.AuthRoleListRequest) (*pb.AuthRoleListResponse, error) {
	return &pb.AuthRoleListResponse{Roles: []string{"root"}}, nil
}

func (f *authFake) UserList(context.Context, *pb.AuthUserListRequest) (*pb.AuthUserListResponse, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	r := &pb.AuthUserListResponse{}
	for name := range f.users {
		r.Users = append(r.Users, name)
	}
	if f.forgets {
		clear(f.users)
		return &pb.AuthUserListResponse{}, nil
	}
	return r, nil
}

func (f *authFake) UserGet(_ context.Context, r *pb.AuthUserGetRequest) (*pb.AuthUserGetResponse, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	return &pb.AuthUserGetResponse{Roles: f.roles[r.GetName()]}, nil
}

func (f *authFake) UserAdd(ctx context.Context, r *pb.AuthUserAddRequest) (*pb.AuthUserAddResponse, error) {
	f.note("UserAdd " + r.GetName())
	switch r.GetName() {
	case f.refuses:
		return nil, rpctypes.ErrGRPCPermissionDenied
	case f.hangs:
		<-ctx.Done()
		return nil, ctx.Err()
	case f.gaveUp:
		return nil, status.FromContextError(context.DeadlineExceeded).Err()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.users[r.GetName()] = r
	return &pb.AuthUserAddResponse{}, nil
}

func (f *authFake) Authenticate(ctx context.Context, r *pb.AuthenticateRequest) (*pb.AuthenticateResponse, error) {
	select {
	case <-time.After(f.tries):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.users[r.GetName()].GetPassword() != r.GetPassword() {
		return nil, rpctypes.ErrGRPCAuthFailed
	}
	return &pb.AuthenticateResponse{}, nil
}

func (f *authFake) UserChangePassword(_ context.Context,
	r *pb.AuthUserChangePasswordRequest) (*pb.AuthUserChangePasswordResponse, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.users[r.GetName()].Password = r.GetPassword()
	return &pb.AuthUserChangePasswordResponse{}, nil
}

func (f *authFake) UserDelete(_ context.Context, r *pb.AuthUserDeleteRequest) (*pb.AuthUserDeleteResponse, error) {
	f.note("UserDelete " + r.GetName())
	f.lock.Lock()
	defer f.lock.Unlock()
	delete(f.users, r.GetName())
	return &pb.AuthUserDeleteResponse{}, nil
}

func (f *authFake) UserGrantRole(_ context.Context, r *pb.AuthUserGrantRoleRequest) (*pb.AuthUserGrantRoleResponse,
	error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.roles[r.GetUser()] = append(f.roles[r.GetUser()], r.GetRole())
	return &pb.AuthUserGrantRoleResponse{}, nil
}

func (f *authFake) authorize(t *testing.T, e *Etcd, want users.Want) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second+2*f.tries)
	defer cancel()
	on := &observation.Membership{ClusterID: testCluster, Leader: 1,
		Members: []observation.Member{{ID: 1, PeerURLs: []string{peerURL(0)}}}}
	return e.Do(ctx, decision.Authorize{Want: want}, on, []observation.Endpoint{f.endpoint})
}

func wantUsers(names ...string) users.Want {
	w := users.Want{Users: []users.UserWant{{Name: "root", Roles: []string{"root"},
		Password: &users.PasswordFrom{Secret: "root", Key: "password", Version: "7"}}}}
	for _, name := range names {
		w.Users = append(w.Users,
			users.UserWant{Name: name, Password: &users.PasswordFrom{Secret: name, Key: "password", Version: "8",
				Field: "spec.auth.users[0].passwordSecretRef"}})
	}
	return w
}

// secrets answers as a namespace in which every Secret has a password.
func secrets() *Etcd {
	return &Etcd{Password: func(secret, key string) (string, error) {
		switch secret {
		case "gone":
			return "", errors.New("no such Secret: gone")
		case "broken":
			return "hunter2\n", nil
		}
		return "hunter2 of " + secret + " " + key, nil
	}}
}

func TestUsersAreMadeAsWanted(t *testing.T) {
	f := withUsers(t)
	w := wantUsers("a")
	w.Users = append(w.Users, users.UserWant{Name: "certified"})
	require.NoError(t, f.authorize(t, secrets(), w))
	assert.Equal(t, []string{"MemberList", "UserAdd root", "UserAdd a", "UserAdd certified"}, f.calls())
	assert.Equal(t, "hunter2 of a password", f.users["a"].GetPassword())
	assert.Equal(t, &authpb.UserAddOptions{NoPassword: true}, f.users["certified"].GetOptions())
	assert.Equal(t, []string{"root"}, f.roles["root"])
}

func TestAnAuthorizeThatStopsTellsHowFarItCame(t *testing.T) {
	tests := map[string]struct {
		want users.Want
		set  func(*authFake)
		is   error
		says string
	}{
		"refused": {
			wantUsers("a", "b", "c"), func(f *authFake) { f.refuses = "b" }, errNotPermitted,
			"apply users and roles: add user b with the password in Secret b: etcd's auth does not permit it to the " +
				"user of our certificate",
		},
		"out of time": {
			wantUsers("a", "b", "c"), func(f *authFake) { f.hangs = "b" }, ErrAuthUnfinished,
			"apply users and roles: not done yet, to be continued: add user b with the password in Secret b: no " +
				"answer in time",
		},
		"out of time by etcd's clock": {
			wantUsers("a", "b", "c"), func(f *authFake) { f.gaveUp = "b" }, ErrAuthUnfinished,
			"apply users and roles: not done yet, to be continued: add user b with the password in Secret b: no " +
				"answer in time",
		},
		"no password": {
			wantUsers("a", "gone", "c"), func(*authFake) {}, ErrPassword,
			"apply users and roles: add user gone with the password in Secret gone: the password cannot be used: " +
				"spec.auth.users[0].passwordSecretRef: no such Secret: gone",
		},
		"a bad password": {
			wantUsers("a", "broken", "c"), func(*authFake) {}, ErrPassword,
			`apply users and roles: add user broken with the password in Secret broken: the password cannot be used: spec.auth.users[0].passwordSecretRef: what is under "password" in Secret broken has a line break or a zero byte; create it without, as kubectl create secret --from-literal does`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := withUsers(t)
			test.set(f)
			err := f.authorize(t, secrets(), test.want)
			require.ErrorIs(t, err, test.is)
			require.EqualError(t, err, test.says)
			assert.NotContains(t, err.Error(), "hunter2")
			var unfinished *users.Unfinished
			require.ErrorAs(t, err, &unfinished)
			assert.Equal(t, map[string]string{"root": "7", "a": "8"}, unfinished.Passwords)
			assert.False(t, slices.Contains(f.calls(), "UserAdd c"))
		})
	}
}

func TestAuthIsNotTurnedOnWhenItWouldLockUsOut(t *testing.T) {
	f := withUsers(t)
	w := wantUsers()
	w.Enabled = true
	require.ErrorIs(t, f.authorize(t, secrets(), w), errNoCertificate)
	assert.False(t, f.enabled)

	plain := secrets()
	// which is not shown over plain text
	plain.TLS = &tls.Config{Certificates: []tls.Certificate{{}}, MinVersion: tls.VersionTLS13}
	require.ErrorIs(t, f.authorize(t, plain, w), errNoCertificate)
	assert.False(t, f.enabled)
}

func TestAuthIsTurnedOnAfterTheLastPassword(t *testing.T) {
	f := withUsers(t)
	var names []string
	passwords := map[string]string{"root": "7"}
	for i := range 48 {
		names = append(names, fmt.Sprintf("u%02d", i))
		f.users[names[i]] = &pb.AuthUserAddRequest{Name: names[i], Password: "of another client"}
		passwords[names[i]] = "8"
	}
	w := wantUsers(names...)
	w.Enabled = true
	err := f.authorize(t, secrets(), w)
	require.ErrorIs(t, err, errNoCertificate)
	var unfinished *users.Unfinished
	require.ErrorAs(t, err, &unfinished)
	assert.Equal(t, passwords, unfinished.Passwords)
	for _, name := range names {
		assert.Equal(t, "hunter2 of "+name+" password", f.users[name].GetPassword())
	}
}

// TestEveryCallGetsFurther: etcd tries passwords so slowly that a call has time for few, some of which are wrong.
func TestEveryCallGetsFurther(t *testing.T) {
	t.Parallel()
	f := withUsers(t)
	f.enabled = true
	f.tries = authorizeTime * 3 / 5
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprintf("u%02d", i))
		f.users[names[i]] = &pb.AuthUserAddRequest{Name: names[i], Password: "hunter2 of " + names[i] + " password"}
	}
	f.users["u00"].Password = "of another client"
	w := wantUsers(names...)
	w.Enabled = true
	for i := range w.Users {
		if w.Users[i].Name == "root" {
			w.Users[i].Applied = w.Users[i].Version()
		}
	}
	f.users["root"] = &pb.AuthUserAddRequest{Name: "root"}
	err := f.authorize(t, secrets(), w)
	require.ErrorIs(t, err, ErrAuthUnfinished)
	var unfinished *users.Unfinished
	require.ErrorAs(t, err, &unfinished)
	assert.Equal(t, map[string]string{"u00": "8", "u01": "8"}, unfinished.Passwords)
	assert.Equal(t, "hunter2 of u00 password", f.users["u00"].GetPassword())
}

func TestAuthorizeGivesUpWhenAnotherClientUndoesEverything(t *testing.T) {
	f := withUsers(t)
	f.forgets = true
	require.ErrorIs(t, f.authorize(t, secrets(), wantUsers("a")), ErrAuthContended)
	assert.Len(t, f.calls(), 1+2*(1+authRounds), "what was done once, and then done again to no effect")
}
