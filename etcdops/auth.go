package etcdops

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/users"
)

const (
	// authorizeTime is how long one Authorize goes on: what is left then is for the next one. Each password takes etcd
	// some 60 ms of computing (bcrypt), so that very many users may need several.
	authorizeTime = 5 * time.Second
	// authRounds is how often an Authorize finds something to do without getting further with passwords: once is
	// expected, more often means that another client is at work.
	authRounds = 4
	// triesTime is how long one look goes on to try passwords: what is left then is for the next one.
	triesTime = authorizeTime * 2 / 5
	// authAtOnce is how many questions about single users and roles are under way at the same time, and triesAtOnce how
	// many passwords are tried, which wait for etcd's processor alone.
	authAtOnce  = 8
	triesAtOnce = 2
)

// authorize makes etcd's users and roles what is wanted, in one go: read, plan, change after change, and read again
// until there is nothing left to do. It stops at the first error, then with a [users.Unfinished].
//
// Reading goes through etcd's log as a change does (AuthStatus, UserGet and the like in etcd's
// etcdserver/v3_server.go make a raftRequest each): nothing here may be called only to observe.
func (e *Etcd) authorize(ctx context.Context, client *clientv3.Client, step decision.Authorize) error {
	ctx, cancel := context.WithTimeout(ctx, authorizeTime)
	defer cancel()
	run := &authRun{Etcd: e, client: client, want: step.Want, given: map[string]string{}}
	run.want.Users = slices.Clone(step.Want.Users)
	if err := run.settle(ctx); err != nil {
		// etcd knows our deadline (gRPC sends it along) and may say that it has passed before our own timer does.
		if ctx.Err() != nil || errors.Is(err, ErrNoAnswer) {
			err = because(ErrAuthUnfinished, err.Error())
		}
		return &users.Unfinished{Passwords: run.given, Err: err}
	}
	return nil
}

// authRun is one Authorize.
type authRun struct {
	*Etcd
	client *clientv3.Client
	want   users.Want
	// given are the versions of the passwords that users have, as far as this run has given them or found them right.
	given map[string]string
}

func (r *authRun) settle(ctx context.Context) error {
	for noProgress := 0; noProgress < authRounds; {
		left := r.unsettled()
		have, later, err := r.readAuth(ctx, r.client, r.want)
		r.found(have) // what was found until an error, too
		if err != nil {
			return err
		}
		plan := users.Plan(r.without(later), have)
		if len(plan) == 0 && len(later) == 0 {
			return nil
		}
		for _, change := range plan {
			if err := r.apply(ctx, change); err != nil {
				return fmt.Errorf("%s: %w", change, err)
			}
		}
		if r.unsettled() >= left {
			noProgress++
		}
	}
	return ErrAuthContended
}

// without is what is wanted, with the passwords of these users as they are.
func (r *authRun) without(later []string) users.Want {
	want := r.want
	want.Users = slices.Clone(r.want.Users)
	for i := range want.Users {
		if u := &want.Users[i]; slices.Contains(later, u.Name) {
			u.Applied = u.Version()
		}
	}
	return want
}

// unsettled is how many passwords there are to see to.
func (r *authRun) unsettled() int {
	left := 0
	for _, u := range r.want.Users {
		if !u.Settled() {
			left++
		}
	}
	return left
}

// found notes the users that turned out to have the right password, or rightly none.
func (r *authRun) found(have users.Have) {
	for _, u := range r.want.Users {
		switch have.Users[u.Name].Password {
		case users.PasswordRight:
			r.has(u.Name)
		case users.PasswordNone:
			if u.Password == nil {
				r.has(u.Name)
			}
		case users.PasswordNotAsked, users.PasswordOther:
		}
	}
}

// apply makes one change. That another client was faster is no error: the next look tells what is left to do.
func (r *authRun) apply(ctx context.Context, change users.Change) error {
	if err := r.mayEnable(change); err != nil {
		return err
	}
	password, err := r.passwordFor(change)
	if err != nil {
		return err
	}
	overtaken := false
	err = r.call(ctx, callAuthChange, r.stepTimeout(), func(ctx context.Context) error {
		err := carryOutChange(ctx, r.client.Auth, change, password)
		if overtaken = wasOvertaken(err); overtaken {
			return nil
		}
		return err
	})
	if err == nil && !overtaken {
		r.note(change)
	}
	return err
}

// passwordFor is the password that the change is to set; empty for one that sets none.
func (r *authRun) passwordFor(change users.Change) (string, error) {
	switch c := change.(type) {
	case users.AddUser:
		if c.Password != nil {
			return r.password(*c.Password)
		}
	case users.ChangePassword:
		return r.passwordOrRandom(c.Password)
	}
	return "", nil
}

// note remembers whose password the change has set.
func (r *authRun) note(change users.Change) {
	switch c := change.(type) {
	case users.AddUser:
		r.has(c.User)
	case users.ChangePassword:
		r.has(c.User)
	}
}

// has remembers that the user has the password that is wanted.
func (r *authRun) has(user string) {
	for i := range r.want.Users {
		if u := &r.want.Users[i]; u.Name == user {
			u.Applied = u.Version()
			r.given[user] = u.Version()
		}
	}
}

// mayEnable refuses to turn auth on when we would be the first to be locked out.
func (r *authRun) mayEnable(change users.Change) error {
	if _, ok := change.(users.EnableAuth); !ok || hasCertificate(r.TLS) && strings.HasPrefix(r.client.Endpoints()[0],
		"https://") {
		return nil
	}
	return errNoCertificate
}

func hasCertificate(c *tls.Config) bool {
	return c != nil && (len(c.Certificates) > 0 || c.GetClientCertificate != nil)
}

func carryOutChange(ctx context.Context, etcd clientv3.Auth, change users.Change, password string) (err error) {
	switch c := change.(type) {
	case users.AddRole:
		_, err = etcd.RoleAdd(ctx, c.Role)
	case users.Grant:
		_, err = etcd.RoleGrantPermission(ctx, c.Role, c.Key, c.End, permissionTypes[c.Access])
	case users.Revoke:
		_, err = etcd.RoleRevokePermission(ctx, c.Role, c.Key, c.End)
	case users.DeleteRole:
		_, err = etcd.RoleDelete(ctx, c.Role)
	case users.AddUser:
		_, err = etcd.UserAddWithOptions(ctx, c.User, password, &clientv3.UserAddOptions{NoPassword: c.Password == nil})
	case users.ChangePassword:
		_, err = etcd.UserChangePassword(ctx, c.User, password)
	case users.GrantRole:
		_, err = etcd.UserGrantRole(ctx, c.User, c.Role)
	case users.RevokeRole:
		_, err = etcd.UserRevokeRole(ctx, c.User, c.Role)
	case users.DeleteUser:
		_, err = etcd.UserDelete(ctx, c.User)
	case users.EnableAuth:
		_, err = etcd.AuthEnable(ctx)
	case users.DisableAuth:
		_, err = etcd.AuthDisable(ctx)
	default:
		err = fmt.Errorf("%w: %T", errUnknownStep, change)
	}
	return err
}

var permissionTypes = map[v1beta1.Access]clientv3.PermissionType{
	v1beta1.Read:      clientv3.PermissionType(clientv3.PermRead),
	v1beta1.Write:     clientv3.PermissionType(clientv3.PermWrite),
	v1beta1.ReadWrite: clientv3.PermissionType(clientv3.PermReadWrite),
}

// wasOvertaken reports whether etcd refused because it is so already, or because what we wanted to change is gone.
func wasOvertaken(err error) bool {
	return slices.ContainsFunc([]error{
		rpctypes.ErrUserAlreadyExist, rpctypes.ErrUserNotFound, rpctypes.ErrRoleAlreadyExist, rpctypes.ErrRoleNotFound,
		rpctypes.ErrRoleNotGranted, rpctypes.ErrPermissionNotGranted, rpctypes.ErrRootUserNotExist,
		rpctypes.ErrRootRoleNotExist,
		// To delete root, which is allowed while auth is off, just after another client has turned it on.
		rpctypes.ErrInvalidAuthMgmt,
	}, func(known error) bool { return errors.Is(err, known) })
}

// password is what is under a Secret's key.
func (e *Etcd) password(from users.PasswordFrom) (string, error) {
	if e.Password == nil {
		return "", because(ErrPassword, "Secrets can't be read here")
	}
	password, err := e.Password(from.Secret, from.Key)
	if err != nil {
		return "", because(ErrPassword, fmt.Sprintf("%s: %s", from.Field, err))
	}
	if flaw := users.PasswordFlaw(password); flaw != "" {
		return "", because(ErrPassword, fmt.Sprintf("%s: what is under %q in Secret %s %s", from.Field, from.Key,
			from.Secret, flaw))
	}
	return password, nil
}

func (e *Etcd) passwordOrRandom(from *users.PasswordFrom) (string, error) {
	if from == nil {
		return rand.Text() + rand.Text(), nil
	}
	return e.password(*from)
}
