package users

import (
	"fmt"
	"maps"
	"slices"
)

// Have is what etcd's users and roles are.
type Have struct {
	// Enabled is whether etcd asks every client who it is.
	Enabled bool
	// Roles by name. What they permit is needed for those only that are wanted. A range may be listed more than once,
	// with different accesses; they add up.
	Roles map[string][]Permit
	// Users by name. What they have is needed for those only that are wanted.
	Users map[string]UserHave
}

// UserHave is a user in etcd.
type UserHave struct {
	Roles    []string
	Password PasswordState
}

// PasswordState is what etcd tells about a user's password. It does so only to a client that tries to log in, and only
// while it asks every client who it is (Authenticate in etcd's auth/store.go; UserGet tells nothing).
type PasswordState int

const (
	// PasswordNotAsked is what is known when etcd was not asked, or could not be.
	PasswordNotAsked PasswordState = iota
	// PasswordRight is that the user has the password that is wanted.
	PasswordRight
	// PasswordOther is that the user has a password, and not the one that is wanted.
	PasswordOther
	// PasswordNone is that the user was made without a password and can't be given one.
	PasswordNone
)

// Change is one change to etcd's users and roles, which is one call to etcd and one entry of its log. The set is
// closed. Its words never hold a password.
type Change interface {
	fmt.Stringer
	authChange()
}

type (
	// AddRole makes a role that permits nothing yet.
	AddRole struct{ Role string }
	// Grant lets a role have this access to these keys, in the place of its other access to them.
	Grant struct {
		Role string
		Permit
	}
	// Revoke takes from a role its access to exactly these keys.
	Revoke struct {
		Role string
		Keys
	}
	// DeleteRole deletes a role and takes it from all users.
	DeleteRole struct{ Role string }
	// AddUser makes a user without roles; without a password when there is none.
	AddUser struct {
		User     string
		Password *PasswordFrom
	}
	// ChangePassword gives a user another password; one that no one knows when there is none.
	ChangePassword struct {
		User     string
		Password *PasswordFrom
	}
	// GrantRole gives a role to a user.
	GrantRole struct{ User, Role string }
	// RevokeRole takes a role from a user.
	RevokeRole struct{ User, Role string }
	// DeleteUser deletes a user.
	DeleteUser struct{ User string }
	// EnableAuth makes etcd ask every client who it is.
	EnableAuth struct{}
	// DisableAuth lets every client do everything.
	DisableAuth struct{}
)

func (c AddRole) String() string { return "add role " + c.Role }
func (c Grant) String() string {
	return fmt.Sprintf("grant role %s %s on %s", c.Role, c.Access, c.Keys)
}
func (c Revoke) String() string     { return fmt.Sprintf("revoke from role %s the %s", c.Role, c.Keys) }
func (c DeleteRole) String() string { return "delete role " + c.Role }
func (c AddUser) String() string {
	if c.Password == nil {
		return fmt.Sprintf("add user %s without a password", c.User)
	}
	return fmt.Sprintf("add user %s with the password in Secret %s", c.User, c.Password.Secret)
}
func (c ChangePassword) String() string {
	if c.Password == nil {
		return fmt.Sprintf("change the password of user %s to a random one", c.User)
	}
	return fmt.Sprintf("change the password of user %s to that in Secret %s", c.User, c.Password.Secret)
}
func (c GrantRole) String() string { return fmt.Sprintf("grant user %s role %s", c.User, c.Role) }
func (c RevokeRole) String() string {
	return fmt.Sprintf("revoke from user %s role %s", c.User, c.Role)
}
func (c DeleteUser) String() string { return "delete user " + c.User }
func (EnableAuth) String() string   { return "enable auth" }
func (DisableAuth) String() string  { return "disable auth" }

func (AddRole) authChange()        {}
func (Grant) authChange()          {}
func (Revoke) authChange()         {}
func (DeleteRole) authChange()     {}
func (AddUser) authChange()        {}
func (ChangePassword) authChange() {}
func (GrantRole) authChange()      {}
func (RevokeRole) authChange()     {}
func (DeleteUser) authChange()     {}
func (EnableAuth) authChange()     {}
func (DisableAuth) authChange()    {}

// Plan is the difference between what etcd's users and roles are and what they should be, in the order in which it must
// be applied; empty when there is none.
//
// First everything is granted, then everything else is revoked: until the last grant, a user has at least what it had,
// and from then on at least what it should have. So no user is ever without a permission that it has before and after.
// There is one exception: a user that was made without a password and should have one must be deleted and made again,
// since etcd cannot give it one (UserChangePassword in etcd's auth/store.go drops the password of such a user without a
// word).
//
// Auth is enabled last, with everything in place, and disabled first. Root's own role is never taken from it.
func Plan(want Want, have Have) []Change {
	p := newPlan(want, have)
	if have.Enabled && !want.Enabled {
		p.add(DisableAuth{})
	}
	for _, r := range want.Roles {
		p.widen(r)
	}
	if _, ok := have.Roles[Root]; !ok {
		p.add(AddRole{Root})
	}
	for _, u := range want.Users {
		p.user(u)
	}
	for _, r := range want.Roles {
		p.narrow(r)
	}
	for _, u := range want.Users {
		p.revokeRoles(u)
	}
	p.delete()
	if want.Enabled && !have.Enabled {
		p.add(EnableAuth{})
	}
	return p.changes
}

// plan is a plan while it is made: the changes so far, and what they have made of the roles.
type plan struct {
	want    Want
	have    Have
	roles   map[string]*rolePlan
	changes []Change
}

// rolePlan is what a role permits after the changes so far.
type rolePlan struct {
	// permits by range, those of one range added up.
	permits map[Keys]access
	// beginnings is how many permissions begin with a key, at most.
	beginnings map[string]int
}

func newPlan(want Want, have Have) *plan {
	p := &plan{want: want, have: have, roles: map[string]*rolePlan{}}
	for _, r := range want.Roles {
		role := &rolePlan{permits: map[Keys]access{}, beginnings: map[string]int{}}
		for _, permit := range have.Roles[r.Name] {
			role.permits[permit.Keys] |= accessOf(permit.Access)
			role.beginnings[permit.Key]++
		}
		p.roles[r.Name] = role
	}
	return p
}

func (p *plan) add(changes ...Change) { p.changes = append(p.changes, changes...) }

func (p *plan) grant(role string, k Keys, a access) {
	p.add(Grant{Role: role, Permit: Permit{Keys: k, Access: accesses[a]}})
	r := p.roles[role]
	if _, ok := r.permits[k]; !ok {
		r.beginnings[k.Key]++
	}
	r.permits[k] = a
}

// widen makes the role, and lets it permit at least what is wanted.
func (p *plan) widen(r RoleWant) {
	if _, ok := p.have.Roles[r.Name]; !ok {
		p.add(AddRole{r.Name})
	}
	for _, permit := range r.Permits {
		if has, wanted := p.roles[r.Name].permits[permit.Keys], accessOf(permit.Access); has|wanted != has {
			p.grant(r.Name, permit.Keys, has|wanted)
		}
	}
}

// narrow lets the role permit no more than what is wanted, once it permits at least that.
//
// etcd overwrites the access to a range in one entry of its log, but only when it finds the range: it looks at the
// first permission alone that begins with the range's key, and beside another one it adds a second access to the range,
// so that both count (RoleGrantPermission in etcd's auth/store.go, the same in 3.5, 3.6 and 3.7). RoleRevokePermission
// then takes both. So a range that shares its beginning with another is revoked and granted again, while other ranges
// stand in for it.
func (p *plan) narrow(r RoleWant) {
	role := p.roles[r.Name]
	wanted := map[Keys]access{}
	for _, permit := range r.Permits {
		wanted[permit.Keys] = accessOf(permit.Access)
	}
	for _, permit := range r.Permits {
		k := permit.Keys
		a := wanted[permit.Keys]
		if role.permits[k] == a {
			continue
		}
		if role.beginnings[k.Key] > 1 {
			for _, other := range standIns(k, wanted) {
				p.grant(r.Name, other, a)
			}
			p.add(Revoke{Role: r.Name, Keys: k})
		}
		p.grant(r.Name, k, a)
	}
	for _, k := range sortedKeys(role.permits) {
		if _, ok := wanted[k]; !ok {
			p.add(Revoke{Role: r.Name, Keys: k})
		}
	}
}

// standIns are ranges that together are the same keys and none of which is wanted by itself. A single key has one other
// form; a range is cut in two, behind as many zero bytes as it takes. There are none for a few ranges that no one
// declares, such as one of two keys of which each begins another range.
func standIns(k Keys, wanted map[Keys]access) []Keys {
	if k.End == "" {
		return []Keys{{Key: k.Key, End: k.Key + "\x00"}}
	}
	for cut := k.Key + "\x00"; (k.End == noEnd || cut < k.End) && len(cut) <= len(k.Key)+len(wanted)+1; cut += "\x00" {
		left := Keys{Key: k.Key, End: cut}
		right := Keys{Key: cut, End: k.End}
		if _, taken := wanted[left]; taken {
			continue
		}
		if _, taken := wanted[right]; !taken {
			return []Keys{left, right}
		}
	}
	return nil
}

// user makes the user, or sees to its password, and grants it its roles.
func (p *plan) user(u UserWant) {
	has, exists := p.have.Users[u.Name]
	switch {
	case !exists:
		p.add(AddUser{User: u.Name, Password: u.Password})
	case p.mustBeReplaced(u, has):
		p.add(DeleteUser{u.Name}, AddUser{User: u.Name, Password: u.Password})
		has.Roles = nil
	case mayChange(u, has):
		p.add(ChangePassword{User: u.Name, Password: u.Password})
	}
	for _, role := range u.Roles {
		if !slices.Contains(has.Roles, role) {
			p.add(GrantRole{User: u.Name, Role: role})
		}
	}
}

// mustBeReplaced reports whether a password or none can be had only by deleting the user. While auth is off etcd does
// not tell whether a user has a password, and no one misses a user for a moment. Root can't be deleted while auth is
// on; it then stays without a password.
func (p *plan) mustBeReplaced(u UserWant, has UserHave) bool {
	if !p.have.Enabled {
		return !u.Settled()
	}
	return has.Password == PasswordNone && u.Password != nil && u.Name != Root
}

// mayChange reports whether the user should get another password, or one that no one knows.
func mayChange(u UserWant, has UserHave) bool {
	if u.Settled() || has.Password == PasswordNone {
		return false
	}
	return u.Password == nil || has.Password != PasswordRight
}

func (p *plan) revokeRoles(u UserWant) {
	if u.Name == Root {
		return
	}
	for _, role := range slices.Sorted(slices.Values(p.have.Users[u.Name].Roles)) {
		if !slices.Contains(u.Roles, role) && !p.isReplaced(u) {
			p.add(RevokeRole{User: u.Name, Role: role})
		}
	}
}

func (p *plan) isReplaced(u UserWant) bool {
	return slices.Contains(p.changes, Change(DeleteUser{u.Name}))
}

// delete deletes what is ours and wanted no more, and with prune whatever else is not wanted.
func (p *plan) delete() {
	goes := func(name string, former []string, wanted bool) bool {
		return name != Root && !wanted && (p.want.Prune || slices.Contains(former, name))
	}
	for _, name := range slices.Sorted(maps.Keys(p.have.Users)) {
		if goes(name, p.want.FormerUsers, p.want.hasUser(name)) {
			p.add(DeleteUser{name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.have.Roles)) {
		if goes(name, p.want.FormerRoles, p.want.hasRole(name)) {
			p.add(DeleteRole{name})
		}
	}
}
