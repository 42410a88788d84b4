package world

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/users"
)

// Auth is what etcd keeps of users and roles: it is in the log and in every snapshot, as keys are. It is never changed,
// only replaced.
type Auth struct {
	// Enabled: every client is asked who it is.
	Enabled bool
	// Users by name, and Roles with what they permit.
	Users map[string]AuthUser
	Roles map[string][]users.Permit
	// Since is the first entry of the log after which it is so, and Before what was before.
	Since  uint64
	Before *Auth
}

// AuthUser is a user in etcd.
type AuthUser struct {
	Roles []string
	// Password is the version of the Secret that it was given from; empty for none, or for one that is not known.
	Password string
	// None: it was made without a password, and can't be given one.
	None bool
}

// at is what it was after that many entries of the log.
func (a Auth) at(index uint64) Auth {
	for a.Since > index && a.Before != nil {
		a = *a.Before
	}
	return a
}

// carried is what a snapshot, or a copy of a data directory, brings into another log.
func (a Auth) carried() Auth {
	a.Since, a.Before = 0, nil
	return a
}

// have is what etcd tells Quorate of it: of passwords only while it asks clients who they are.
func (a Auth) have(want users.Want) users.Have {
	have := users.Have{Enabled: a.Enabled, Roles: a.Roles, Users: map[string]users.UserHave{}}
	for name, user := range a.Users {
		told := users.UserHave{Roles: user.Roles}
		i := slices.IndexFunc(want.Users, func(u users.UserWant) bool { return u.Name == name })
		if a.Enabled && i >= 0 && !want.Users[i].Settled() {
			told.Password = user.asked(want.Users[i])
		}
		have.Users[name] = told
	}
	return have
}

// asked is what a login tells of the user's password.
func (u AuthUser) asked(want users.UserWant) users.PasswordState {
	switch {
	case u.None:
		return users.PasswordNone
	case u.Password == want.Version():
		return users.PasswordRight
	}
	return users.PasswordOther
}

// changed is what becomes of it by one change.
func (a Auth) changed(change users.Change) Auth {
	a.Users, a.Roles = maps.Clone(a.Users), maps.Clone(a.Roles)
	if a.Users == nil {
		a.Users, a.Roles = map[string]AuthUser{}, map[string][]users.Permit{}
	}
	switch c := change.(type) {
	case users.EnableAuth:
		a.Enabled = true
	case users.DisableAuth:
		a.Enabled = false
	case users.AddRole:
		a.Roles[c.Role] = nil
	case users.DeleteRole:
		delete(a.Roles, c.Role)
		for name, user := range a.Users {
			user.Roles = without(user.Roles, c.Role)
			a.Users[name] = user
		}
	case users.Grant:
		a.Roles[c.Role] = append(withoutKeys(a.Roles[c.Role], c.Keys), c.Permit)
	case users.Revoke:
		a.Roles[c.Role] = withoutKeys(a.Roles[c.Role], c.Keys)
	case users.AddUser:
		a.Users[c.User] = AuthUser{Password: versionOf(c.Password), None: c.Password == nil}
	case users.DeleteUser:
		delete(a.Users, c.User)
	case users.ChangePassword:
		user := a.Users[c.User]
		if !user.None { // etcd drops it without a word
			user.Password = versionOf(c.Password)
		}
		a.Users[c.User] = user
	case users.GrantRole:
		user := a.Users[c.User]
		user.Roles = append(slices.Clone(user.Roles), c.Role)
		a.Users[c.User] = user
	case users.RevokeRole:
		user := a.Users[c.User]
		user.Roles = without(user.Roles, c.Role)
		a.Users[c.User] = user
	}
	return a
}

func versionOf(p *users.PasswordFrom) string {
	if p == nil {
		return ""
	}
	return p.Version
}

func without(list []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(other string) bool { return other == name })
}

func withoutKeys(list []users.Permit, keys users.Keys) []users.Permit {
	return slices.DeleteFunc(slices.Clone(list), func(p users.Permit) bool { return p.Keys == keys })
}

// authorized is the cluster once its users and roles are what is wanted: each change is an entry of the log.
func (c Cluster) authorized(want users.Want) Cluster {
	before := c.Auth
	plan := users.Plan(want, c.Auth.have(want))
	for _, change := range plan {
		c.Auth = c.Auth.changed(change)
	}
	if len(plan) > 0 {
		c.Commit += uint64(len(plan))
		c.Auth.Since, c.Auth.Before = c.Commit, &before
	}
	return c
}

// everEnabled reports whether auth was on at any time since the data began.
func (a Auth) everEnabled() bool {
	for before := &a; before != nil; before = before.Before {
		if before.Enabled {
			return true
		}
	}
	return false
}

// tellsAuth looks at what a call says of users and roles: none says that an etcd asks its clients who they are which
// never has (S20).
func (w *World) tellsAuth(c *Call, s sight) {
	said := meta.IsStatusConditionTrue(c.Decision.Status.Conditions, v1beta1.Authorized)
	if said && s.etcd != nil && !w.Etcd.Clusters[s.etcd.ClusterID].Auth.everEnabled() {
		w.violate("S20", "Authorized is True, and etcd asks no client who it is")
	}
}

// DisableAuth is what a person does who turns auth off.
func (w *World) DisableAuth() {
	for _, c := range w.clusters() {
		before := c.Auth
		c.Auth = c.Auth.changed(users.DisableAuth{})
		c.Commit++
		c.Auth.Since, c.Auth.Before = c.Commit, &before
		w.store(c)
	}
}

// Auth are users and roles of the etcd to which clients speak.
func (w *World) Auth() Auth {
	c, _ := w.led()
	return c.Auth
}
