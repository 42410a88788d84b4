package users

import (
	"cmp"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Recorded reports whether the status names everything that is wanted as ours. Names are recorded before they are made,
// so that nothing that we made is ever left behind as a stranger's.
func Recorded(old *v1alpha1.AuthStatus, w Want) bool {
	if old == nil {
		return false
	}
	for _, r := range w.Roles {
		if !slices.Contains(old.Roles, r.Name) {
			return false
		}
	}
	for _, u := range w.Users {
		if !slices.ContainsFunc(old.Users, func(o v1alpha1.UserStatus) bool { return o.Name == u.Name }) {
			return false
		}
	}
	return true
}

// Done is the status once etcd is as wanted.
func Done(w Want) *v1alpha1.AuthStatus {
	s := &v1alpha1.AuthStatus{Enabled: w.Enabled}
	for _, r := range w.Roles {
		s.Roles = append(s.Roles, r.Name)
	}
	for _, u := range w.Users {
		s.Users = append(s.Users, v1alpha1.UserStatus{Name: u.Name, PasswordVersion: u.Version()})
	}
	return s
}

// Pending is the status before etcd is as wanted: what is ours and what will be, with the passwords that were given
// meanwhile, by user.
func Pending(old *v1alpha1.AuthStatus, w Want, passwords map[string]string) *v1alpha1.AuthStatus {
	s := Done(w)
	for i := range s.Users {
		s.Users[i].PasswordVersion = cmp.Or(passwords[s.Users[i].Name], w.Users[i].Applied)
	}
	if old != nil {
		s.Enabled = old.Enabled
	} else {
		s.Enabled = false
	}
	s.Roles = append(s.Roles, w.FormerRoles...)
	for _, name := range w.FormerUsers {
		s.Users = append(s.Users, v1alpha1.UserStatus{Name: name})
	}
	return s
}
