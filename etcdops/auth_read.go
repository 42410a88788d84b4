package etcdops

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/users"
)

// readAuth reads what there is, in full for the users and roles that are wanted, and tries the passwords of users
// that were not given theirs before; later are the users whose passwords it had no time for. With an error, it is what
// was read until then.
func (e *Etcd) readAuth(ctx context.Context, client *clientv3.Client,
	want users.Want) (have users.Have, later []string, err error) {
	have = users.Have{Roles: map[string][]users.Permit{}, Users: map[string]users.UserHave{}}
	for _, question := range []func(context.Context) error{
		func(ctx context.Context) error {
			status, err := client.AuthStatus(ctx)
			have.Enabled = status != nil && status.Enabled
			return err
		},
		func(ctx context.Context) error {
			list, err := client.RoleList(ctx)
			for _, name := range rolesIn(list) {
				have.Roles[name] = nil
			}
			return err
		},
		func(ctx context.Context) error {
			list, err := client.UserList(ctx)
			for _, name := range usersIn(list) {
				have.Users[name] = users.UserHave{}
			}
			return err
		},
	} {
		if err := e.readOne(ctx, question); err != nil {
			return have, nil, err
		}
	}
	if err := e.readWanted(ctx, client, want, &have); err != nil {
		return have, nil, err
	}
	later, err = e.tryPasswords(ctx, client, want, &have)
	return have, later, err
}

func rolesIn(list *clientv3.AuthRoleListResponse) []string {
	if list == nil {
		return nil
	}
	return list.Roles
}

func usersIn(list *clientv3.AuthUserListResponse) []string {
	if list == nil {
		return nil
	}
	return list.Users
}

// readWanted fills in the wanted roles and users, several at a time: etcd takes their questions into its log together.
func (e *Etcd) readWanted(ctx context.Context, client *clientv3.Client, want users.Want, have *users.Have) error {
	var mu sync.Mutex
	var questions []func(context.Context) error
	for _, role := range want.Roles {
		if _, ok := have.Roles[role.Name]; ok {
			questions = append(questions, func(ctx context.Context) error {
				permits, err := e.readRole(ctx, client, role.Name)
				mu.Lock()
				defer mu.Unlock()
				have.Roles[role.Name] = permits
				return err
			})
		}
	}
	for _, user := range want.Users {
		if _, ok := have.Users[user.Name]; ok {
			questions = append(questions, func(ctx context.Context) error {
				roles, err := e.readUser(ctx, client, user.Name)
				mu.Lock()
				defer mu.Unlock()
				have.Users[user.Name] = users.UserHave{Roles: roles}
				return err
			})
		}
	}
	return together(ctx, authAtOnce, questions)
}

// tryPasswords tries those of the users that exist and were not given theirs before, while auth is on.
func (e *Etcd) tryPasswords(ctx context.Context, client *clientv3.Client, want users.Want,
	have *users.Have) (later []string, err error) {
	var mu sync.Mutex
	var questions []func(context.Context) error
	until := time.Now().Add(triesTime)
	for _, user := range want.Users {
		if _, ok := have.Users[user.Name]; !ok || !have.Enabled || user.Settled() {
			continue
		}
		questions = append(questions, func(ctx context.Context) error {
			if time.Now().After(until) {
				mu.Lock()
				defer mu.Unlock()
				later = append(later, user.Name)
				return nil
			}
			state, err := e.tryPassword(ctx, client, user)
			mu.Lock()
			defer mu.Unlock()
			has := have.Users[user.Name]
			has.Password = state
			have.Users[user.Name] = has
			return err
		})
	}
	err = together(ctx, triesAtOnce, questions)
	return later, err
}

// readRole is what a role permits; nothing when it has just been deleted.
func (e *Etcd) readRole(ctx context.Context, client *clientv3.Client, name string) (permits []users.Permit, err error) {
	err = e.readOne(ctx, func(ctx context.Context) error {
		role, err := client.RoleGet(ctx, name)
		if err != nil {
			return unlessGone(err)
		}
		for _, p := range role.Perm {
			permits = append(permits,
				users.Permit{Keys: users.Keys{Key: string(p.GetKey()), End: string(p.GetRangeEnd())},
					Access: accesses[p.GetPermType()]})
		}
		return nil
	})
	return permits, err
}

var accesses = map[authpb.Permission_Type]v1beta1.Access{
	authpb.Permission_READ:      v1beta1.Read,
	authpb.Permission_WRITE:     v1beta1.Write,
	authpb.Permission_READWRITE: v1beta1.ReadWrite,
}

// readUser are the roles of a user; none when it has just been deleted.
func (e *Etcd) readUser(ctx context.Context, client *clientv3.Client, name string) (roles []string, err error) {
	err = e.readOne(ctx, func(ctx context.Context) error {
		user, err := client.UserGet(ctx, name)
		if err != nil {
			return unlessGone(err)
		}
		roles = user.Roles
		return nil
	})
	return roles, err
}

// passwordless is what etcd says when a password is tried for a user that has none (ErrNoPasswordUser in its
// auth/store.go). Its API server has no code for that error and passes the words on (togRPCError in
// etcdserver/api/v3rpc/util.go), in 3.5 to 3.7.
const passwordless = "auth: authentication failed, password was given for no password user"

// tryPassword logs in as the user to see whether it has the password that is wanted. For a user that should have none
// it tries a random one.
func (e *Etcd) tryPassword(ctx context.Context, client *clientv3.Client,
	want users.UserWant) (state users.PasswordState, err error) {
	password, err := e.passwordOrRandom(want.Password)
	if err != nil {
		return 0, err
	}
	err = e.call(ctx, callAuthRead, authorizeTime, func(ctx context.Context) error {
		_, err := client.Authenticate(ctx, want.Name, password)
		switch {
		case err == nil:
			state = users.PasswordRight
		case rpctypes.ErrorDesc(err) == passwordless:
			state = users.PasswordNone
		case errors.Is(err, rpctypes.ErrAuthFailed):
			state = users.PasswordOther
		case errors.Is(err, rpctypes.ErrAuthNotEnabled): // just turned off
			state = users.PasswordNotAsked
		default:
			return err
		}
		return nil
	})
	return state, err
}

func (e *Etcd) readOne(ctx context.Context, f func(context.Context) error) error {
	return e.call(ctx, callAuthRead, e.stepTimeout(), f)
}

// unlessGone is nil for what is not there any more.
func unlessGone(err error) error {
	if errors.Is(err, rpctypes.ErrUserNotFound) || errors.Is(err, rpctypes.ErrRoleNotFound) {
		return nil
	}
	return err
}

// together runs all, so many at a time, and is the first error. After an error no further one is begun.
func together(ctx context.Context, atOnce int, all []func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	var mu sync.Mutex
	var first error
	for _, f := range all {
		turns <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-turns }()
			if err := f(ctx); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if first == nil && ctx.Err() != nil {
		return explain(ctx.Err())
	}
	return first
}
