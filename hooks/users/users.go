// Package users is etcd's users and roles as they are declared, and the plan to get there.
package users

import (
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Root is the name of etcd's own user and role that may do everything (rootUser and rootRole in etcd's auth/store.go).
const Root = "root"

// Want is what etcd's users and roles should be. It holds no password, only where each is.
type Want struct {
	// Enabled is whether etcd asks every client who it is.
	Enabled bool
	// Prune deletes users and roles that are neither wanted nor ours.
	Prune bool
	// Roles that should be, sorted by name, without root's.
	Roles []RoleWant
	// Users that should be: root first, the others sorted by name.
	Users []UserWant
	// FormerRoles and FormerUsers are ours and wanted no more.
	FormerRoles, FormerUsers []string `json:"-"`
}

// RoleWant is a role and exactly what it permits: every range once.
type RoleWant struct {
	Name    string
	Permits []Permit
}

// UserWant is a user, exactly its roles, and its password.
type UserWant struct {
	Name  string
	Roles []string
	// Password is nil for a user with a certificate only.
	Password *PasswordFrom
	// Applied is the version of the password that the user was last given by us; empty for none, or when we have
	// forgotten.
	Applied string `json:"-"`
}

// Version is the version of the password that the user should have.
func (u UserWant) Version() string {
	if u.Password == nil {
		return NoPassword
	}
	return u.Password.Version
}

// Settled reports whether the user was given this very password before.
func (u UserWant) Settled() bool { return u.Applied != "" && u.Applied == u.Version() }

// Wanted puts together what etcd's users and roles should be. Version says which version of a Secret was seen.
func Wanted(cluster string, s *v1beta1.AuthSpec, old *v1beta1.AuthStatus, version func(secret string) string) Want {
	if old == nil {
		old = &v1beta1.AuthStatus{}
	}
	w := Want{Enabled: s.Enabled, Prune: s.Prune}
	for _, r := range s.Roles {
		w.Roles = append(w.Roles, RoleWant{Name: r.Name, Permits: permits(r.Permissions)})
	}
	slices.SortFunc(w.Roles, func(a, b RoleWant) int { return strings.Compare(a.Name, b.Name) })

	user := func(name string, roles []string, source *PasswordFrom) UserWant {
		u := UserWant{Name: name, Roles: slices.Compact(slices.Sorted(slices.Values(roles))), Password: source}
		if source != nil {
			source.Version = version(source.Secret)
		}
		if i := slices.IndexFunc(old.Users, func(o v1beta1.UserStatus) bool { return o.Name == name }); i >= 0 {
			u.Applied = old.Users[i].PasswordVersion
		}
		return u
	}
	for i, u := range s.Users {
		w.Users = append(w.Users, user(u.Name, u.Roles, passwordSource(cluster, i, u)))
	}
	slices.SortFunc(w.Users, func(a, b UserWant) int { return strings.Compare(a.Name, b.Name) })
	w.Users = slices.Insert(w.Users, 0, user(Root, []string{Root}, RootPasswordSource(cluster, s)))

	for _, name := range old.Roles {
		if name != Root && !w.hasRole(name) {
			w.FormerRoles = append(w.FormerRoles, name)
		}
	}
	for _, u := range old.Users {
		if !w.hasUser(u.Name) {
			w.FormerUsers = append(w.FormerUsers, u.Name)
		}
	}
	return w
}

func (w Want) hasRole(name string) bool {
	return slices.ContainsFunc(w.Roles, func(r RoleWant) bool { return r.Name == name })
}

func (w Want) hasUser(name string) bool {
	return slices.ContainsFunc(w.Users, func(u UserWant) bool { return u.Name == name })
}

// Hash changes when something else is wanted, a new version of a password among it.
func (w Want) Hash() string {
	raw, err := json.Marshal(w)
	if err != nil { // plain data always encodes
		return "unknown"
	}
	h := fnv.New64a()
	_, _ = h.Write(raw)
	return strconv.FormatUint(h.Sum64(), 16)
}

// Unfinished is the error of an Authorize that stopped on its way: what it had done by then is done.
type Unfinished struct {
	// Passwords are the versions of the passwords that users were given, or were found to have, by user.
	Passwords map[string]string
	// Err is why it stopped.
	Err error
}

func (e *Unfinished) Error() string { return e.Err.Error() }

// Unwrap is why it stopped.
func (e *Unfinished) Unwrap() error { return e.Err }
