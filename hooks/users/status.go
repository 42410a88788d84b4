package users

import (
	"cmp"
	"slices"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// Recorded reports whether the status names everything that is wanted as ours. Names are recorded before they are made,
// so that nothing that we made is ever left behind as another's.
func Recorded(old *v1beta1.AuthStatus, w Want) bool {
	if old == nil {
		return false
	}
	for _, r := range w.Roles {
		if !slices.Contains(old.Roles, r.Name) {
			return false
		}
	}
	for _, u := range w.Users {
		if !slices.ContainsFunc(old.Users, func(o v1beta1.UserStatus) bool { return o.Name == u.Name }) {
			return false
		}
	}
	return true
}

// InAnother is what is known of another etcd than that of the status, as after a restore: nothing but which names are
// ours, those that were deleted among them, which its data may have.
func InAnother(old *v1beta1.AuthStatus) *v1beta1.AuthStatus {
	if old == nil {
		return nil
	}
	s := &v1beta1.AuthStatus{DeletedUsers: old.DeletedUsers, DeletedRoles: old.DeletedRoles}
	s.Roles = slices.Concat(old.Roles, missing(old.DeletedRoles, old.Roles))
	names := userNames(old)
	for _, name := range slices.Concat(names, missing(old.DeletedUsers, names)) {
		s.Users = append(s.Users, v1beta1.UserStatus{Name: name})
	}
	return s
}

func userNames(s *v1beta1.AuthStatus) []string {
	var names []string
	for _, u := range s.Users {
		names = append(names, u.Name)
	}
	return names
}

// missing are the names that are not among those.
func missing(names, those []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return slices.Contains(those, name) })
}

// mostDeleted are remembered of the users, and of the roles, that were deleted.
const mostDeleted = 64

// deleted adds names to those that were deleted before.
func deleted(before, names []string) []string {
	all := slices.Concat(missing(before, names), names)
	return all[max(0, len(all)-mostDeleted):]
}

// Done is the status once etcd is as wanted.
func Done(old *v1beta1.AuthStatus, w Want) *v1beta1.AuthStatus {
	s := fulfilled(w)
	if old != nil {
		s.DeletedUsers = missing(deleted(old.DeletedUsers, w.FormerUsers), userNames(s))
		s.DeletedRoles = missing(deleted(old.DeletedRoles, w.FormerRoles), s.Roles)
	}
	return s
}

func fulfilled(w Want) *v1beta1.AuthStatus {
	s := &v1beta1.AuthStatus{Enabled: w.Enabled}
	for _, r := range w.Roles {
		s.Roles = append(s.Roles, r.Name)
	}
	for _, u := range w.Users {
		s.Users = append(s.Users, v1beta1.UserStatus{Name: u.Name, PasswordVersion: u.Version()})
	}
	return s
}

// Pending is the status before etcd is as wanted: what is ours and what will be, with the passwords that were given
// meanwhile, by user.
func Pending(old *v1beta1.AuthStatus, w Want, passwords map[string]string) *v1beta1.AuthStatus {
	s := fulfilled(w)
	for i := range s.Users {
		s.Users[i].PasswordVersion = cmp.Or(passwords[s.Users[i].Name], w.Users[i].Applied)
	}
	s.Enabled = false
	if old != nil {
		s.Enabled = old.Enabled
		s.DeletedUsers = old.DeletedUsers
		s.DeletedRoles = old.DeletedRoles
	}
	s.Roles = append(s.Roles, w.FormerRoles...)
	for _, name := range w.FormerUsers {
		s.Users = append(s.Users, v1beta1.UserStatus{Name: name})
	}
	return s
}
