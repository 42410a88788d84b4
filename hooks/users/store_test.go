package users

import (
	"errors"
	"fmt"
	"slices"
	"sort"
)

// authStore is etcd's own store of users and roles in memory, as auth/store.go of 3.5 to 3.7 has it.
type authStore struct {
	enabled bool
	roles   map[string][]Permit
	users   map[string]*storedUser
}

type storedUser struct {
	roles      []string
	noPassword bool
	password   string // the Secret's version; "other" or "unknown"
}

func newAuthStore() *authStore {
	return &authStore{roles: map[string][]Permit{}, users: map[string]*storedUser{}}
}

func (s *authStore) clone() *authStore {
	c := &authStore{enabled: s.enabled, roles: map[string][]Permit{}, users: map[string]*storedUser{}}
	for name, permits := range s.roles {
		c.roles[name] = slices.Clone(permits)
	}
	for name, u := range s.users {
		c.users[name] = &storedUser{roles: slices.Clone(u.roles), noPassword: u.noPassword, password: u.password}
	}
	return c
}

type byKey []Permit

func (p byKey) Len() int { return len(p) }

func (p byKey) Less(i, j int) bool { return p[i].Key < p[j].Key }

func (p byKey) Swap(i, j int) { p[i], p[j] = p[j], p[i] }

// apply does what etcd does, and refuses what etcd refuses.
func (s *authStore) apply(change Change) error {
	switch c := change.(type) {
	case AddRole:
		if _, ok := s.roles[c.Role]; ok {
			return errors.New("role name already exists")
		}
		s.roles[c.Role] = nil
	case Grant:
		return s.grant(c)
	case Revoke:
		kept := slices.DeleteFunc(slices.Clone(s.roles[c.Role]), func(p Permit) bool { return p.Keys == c.Keys })
		if len(kept) == len(s.roles[c.Role]) {
			return errors.New("permission is not granted to the role")
		}
		s.roles[c.Role] = kept
	case DeleteRole:
		if _, ok := s.roles[c.Role]; !ok || c.Role == Root && s.enabled {
			return errors.New("role name not found, or root")
		}
		delete(s.roles, c.Role)
		for _, u := range s.users {
			u.roles = slices.DeleteFunc(slices.Clone(u.roles), func(r string) bool { return r == c.Role })
		}
	case EnableAuth:
		if root := s.users[Root]; root == nil || !slices.Contains(root.roles, Root) {
			return errors.New("root user does not have root role")
		}
		s.enabled = true
	case DisableAuth:
		s.enabled = false
	default:
		return s.applyToUser(change)
	}
	return nil
}

func (s *authStore) grant(c Grant) error {
	list, ok := s.roles[c.Role]
	if !ok {
		return errors.New("role name not found")
	}
	if c.Access == "" || c.Key == "" || c.End != "" && c.End != noEnd && c.Key >= c.End {
		return fmt.Errorf("invalid permission %+v", c.Permit)
	}
	i := sort.Search(len(list), func(i int) bool { return list[i].Key >= c.Key })
	if i < len(list) && list[i].Keys == c.Keys {
		list[i].Access = c.Access
		return nil
	}
	list = append(list, c.Permit)
	sort.Sort(byKey(list))
	s.roles[c.Role] = list
	return nil
}

func (s *authStore) applyToUser(change Change) error {
	version := func(p *PasswordFrom) string {
		if p == nil {
			return "unknown"
		}
		return p.Version
	}
	need := func(name string) (*storedUser, error) {
		if u := s.users[name]; u != nil {
			return u, nil
		}
		return &storedUser{}, fmt.Errorf("user name %s not found", name)
	}
	switch c := change.(type) {
	case AddUser:
		if s.users[c.User] != nil {
			return errors.New("user name already exists")
		}
		s.users[c.User] = &storedUser{noPassword: c.Password == nil, password: version(c.Password)}
	case ChangePassword:
		u, err := need(c.User)
		u.password = version(c.Password)
		return err
	case GrantRole:
		u, err := need(c.User)
		if _, ok := s.roles[c.Role]; !ok && c.Role != Root {
			return errors.New("role name not found")
		}
		u.roles = append(u.roles, c.Role)
		return err
	case RevokeRole:
		u, err := need(c.User)
		if !slices.Contains(u.roles, c.Role) || s.enabled && c.User == Root && c.Role == Root {
			return errors.New("role is not granted to the user")
		}
		u.roles = slices.DeleteFunc(slices.Clone(u.roles), func(r string) bool { return r == c.Role })
		return err
	case DeleteUser:
		if c.User == Root && s.enabled {
			return errors.New("root")
		}
		_, err := need(c.User)
		delete(s.users, c.User)
		return err
	default:
		return fmt.Errorf("unknown change %T", change)
	}
	return nil
}

// read is what etcdops tells of the store.
func (s *authStore) read(w Want) Have {
	c := s.clone()
	h := Have{Enabled: c.enabled, Roles: c.roles, Users: map[string]UserHave{}}
	for name, u := range c.users {
		has := UserHave{Roles: u.roles}
		i := slices.IndexFunc(w.Users, func(u UserWant) bool { return u.Name == name })
		if s.enabled && i >= 0 && !w.Users[i].Settled() {
			switch {
			case u.noPassword:
				has.Password = PasswordNone
			case u.password == w.Users[i].Version():
				has.Password = PasswordRight
			default:
				has.Password = PasswordOther
			}
		}
		h.Users[name] = has
	}
	return h
}

// may reports whether the user may do this with the key.
func (s *authStore) may(user, key string, a access) bool {
	if !s.enabled {
		return true
	}
	u := s.users[user]
	if u == nil {
		return false
	}
	for _, role := range u.roles {
		if role == Root {
			return true
		}
		for _, p := range s.roles[role] {
			in := key == p.Key || p.End != "" && key > p.Key && (key < p.End || p.End == noEnd)
			if in && accessOf(p.Access)&a == a {
				return true
			}
		}
	}
	return false
}
