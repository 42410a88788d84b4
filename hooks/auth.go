package hooks

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// Root is the name of etcd's own user and role that may do everything (rootUser and rootRole in etcd's auth/store.go).
const Root = "root"

// NoPassword is what a user's version of its password is when it has none and comes with a certificate only.
const NoPassword = "certificate"

// AuthWant is what etcd's users and roles should be. It holds no password, only where each is.
type AuthWant struct {
	// Enabled is whether etcd asks everybody who they are.
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
	// Applied is the version of the password that the user was last given by us; empty for none, or when we have forgotten.
	Applied string `json:"-"`
}

// PasswordFrom is where a password is.
type PasswordFrom struct {
	// Secret in the cluster's namespace, and the key in its data.
	Secret, Key string
	// Version changes whenever the password may have. It reaches the status, which more people may read than Secrets, and is
	// therefore never made from the password.
	Version string
	// Field of the spec that names the Secret, such as spec.auth.users[2].passwordSecret; for messages.
	Field string `json:"-"`
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

// Keys are those that a permission is for, as etcd writes it: a single key with an empty End, all from Key up to and without
// End, or all from Key on with the End "\x00" (the comment above isOpenEnded in etcd's auth/range_perm_cache.go).
type Keys struct{ Key, End string }

// noEnd is the End of a range without one.
const noEnd = "\x00"

// String says which keys, quoted.
func (k Keys) String() string {
	switch {
	case k == prefixed(""):
		return "all keys"
	case k.End == "":
		return fmt.Sprintf("key %q", k.Key)
	case k.End == noEnd:
		return fmt.Sprintf("keys from %q on", k.Key)
	case k == prefixed(k.Key):
		return fmt.Sprintf("keys with the prefix %q", k.Key)
	}
	return fmt.Sprintf("keys from %q to %q", k.Key, k.End)
}

// Permit is an access to keys.
type Permit struct {
	Keys
	Access v1alpha1.Access
}

// prefixed are all keys that begin with the prefix; every key with the empty one. After a prefix of nothing but 0xff no key
// comes, so that its range has no end (getPrefix in etcd's client/v3/op.go).
func prefixed(prefix string) Keys {
	if prefix == "" {
		return Keys{Key: "\x00", End: noEnd}
	}
	end := []byte(prefix)
	for len(end) > 0 && end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	if len(end) == 0 {
		return Keys{Key: prefix, End: noEnd}
	}
	end[len(end)-1]++
	return Keys{Key: prefix, End: string(end)}
}

// keysOf are the keys of a declared permission. A range of one key is that key.
func keysOf(p v1alpha1.Permission) Keys {
	switch {
	case p.Prefix != nil:
		return prefixed(*p.Prefix)
	case p.Range == nil:
		return Keys{Key: p.Key}
	case p.Range.To == p.Range.From+"\x00":
		return Keys{Key: p.Range.From}
	}
	return Keys{Key: p.Range.From, End: cmp.Or(p.Range.To, noEnd)}
}

// An access is a set: reads, writes, both.
type access uint8

const (
	reads access = 1 << iota
	writes
)

var accesses = map[access]v1alpha1.Access{reads: v1alpha1.Read, writes: v1alpha1.Write, reads | writes: v1alpha1.ReadWrite}

func accessOf(a v1alpha1.Access) access {
	switch a {
	case v1alpha1.Read:
		return reads
	case v1alpha1.Write:
		return writes
	case v1alpha1.ReadWrite:
		return reads | writes
	}
	return 0
}

// PasswordSecret names the Secret of a user's generated password; its key is `password`. No cluster's name has a dot, so that no other
// cluster's Secret has this name.
func PasswordSecret(cluster, user string) string { return cluster + "-user." + user }

// passwordKey is the key of a password in a Secret that names no other.
const passwordKey = "password"

// passwordSource is where the password of a declared user is; nil for a user with a certificate only.
func passwordSource(cluster string, i int, u v1alpha1.UserSpec) *PasswordFrom {
	if u.Certificate {
		return nil
	}
	return sourceOr(fmt.Sprintf("spec.auth.users[%d].passwordSecret", i), u.PasswordSecret, PasswordSecret(cluster, u.Name))
}

// rootPasswordSource is where root's password is.
func rootPasswordSource(cluster string, s *v1alpha1.AuthSpec) *PasswordFrom {
	return sourceOr("spec.auth.rootPasswordSecret", s.RootPasswordSecret, PasswordSecret(cluster, Root))
}

func sourceOr(field string, given *v1alpha1.SecretKey, generated string) *PasswordFrom {
	if given == nil {
		return &PasswordFrom{Secret: generated, Key: passwordKey, Field: field}
	}
	return &PasswordFrom{Secret: given.Name, Key: cmp.Or(given.Key, passwordKey), Field: field}
}

// authWant puts together what etcd's users and roles should be. Version says which version of a Secret was seen.
func authWant(cluster string, s *v1alpha1.AuthSpec, old *v1alpha1.AuthStatus, version func(secret string) string) AuthWant {
	if old == nil {
		old = &v1alpha1.AuthStatus{}
	}
	w := AuthWant{Enabled: s.Enabled, Prune: s.Prune}
	for _, r := range s.Roles {
		w.Roles = append(w.Roles, RoleWant{Name: r.Name, Permits: permits(r.Permissions)})
	}
	slices.SortFunc(w.Roles, func(a, b RoleWant) int { return strings.Compare(a.Name, b.Name) })

	user := func(name string, roles []string, source *PasswordFrom) UserWant {
		u := UserWant{Name: name, Roles: slices.Compact(slices.Sorted(slices.Values(roles))), Password: source}
		if source != nil {
			source.Version = version(source.Secret)
		}
		if i := slices.IndexFunc(old.Users, func(o v1alpha1.UserStatus) bool { return o.Name == name }); i >= 0 {
			u.Applied = old.Users[i].PasswordVersion
		}
		return u
	}
	for i, u := range s.Users {
		w.Users = append(w.Users, user(u.Name, u.Roles, passwordSource(cluster, i, u)))
	}
	slices.SortFunc(w.Users, func(a, b UserWant) int { return strings.Compare(a.Name, b.Name) })
	w.Users = slices.Insert(w.Users, 0, user(Root, []string{Root}, rootPasswordSource(cluster, s)))

	w.FormerRoles = filter(old.Roles, func(name string) bool { return name != Root && !w.hasRole(name) })
	for _, u := range old.Users {
		if !w.hasUser(u.Name) {
			w.FormerUsers = append(w.FormerUsers, u.Name)
		}
	}
	return w
}

// permits are the declared permissions by range, in the order of the keys; what is declared twice for a range adds up.
func permits(declared []v1alpha1.Permission) []Permit {
	sum := map[Keys]access{}
	for _, p := range declared {
		sum[keysOf(p)] |= accessOf(p.Access)
	}
	var list []Permit
	for _, k := range sortedKeys(sum) {
		list = append(list, Permit{Keys: k, Access: accesses[sum[k]]})
	}
	return list
}

func sortedKeys(m map[Keys]access) []Keys {
	return slices.SortedFunc(maps.Keys(m), func(a, b Keys) int {
		return strings.Compare(a.Key, b.Key)*2 + strings.Compare(a.End, b.End)
	})
}

func (w AuthWant) hasRole(name string) bool {
	return slices.ContainsFunc(w.Roles, func(r RoleWant) bool { return r.Name == name })
}

func (w AuthWant) hasUser(name string) bool {
	return slices.ContainsFunc(w.Users, func(u UserWant) bool { return u.Name == name })
}

// Hash changes when something else is wanted, a new version of a password among it.
func (w AuthWant) Hash() string {
	raw, err := json.Marshal(w)
	if err != nil { // plain data always encodes
		return "unknown"
	}
	h := fnv.New64a()
	_, _ = h.Write(raw)
	return strconv.FormatUint(h.Sum64(), 16)
}

// Authorize makes etcd's users and roles what is wanted, by what [PlanAuth] says. It may be carried out twice, or twice at
// the same time.
type Authorize struct{ Want AuthWant }

func (Authorize) String() string { return "apply users and roles" }

// Verb implements Step.
func (Authorize) Verb() string { return "authorize" }

func (Authorize) step() {}

// AuthUnfinished is the error of an Authorize that stopped on its way: what it had done by then is done.
type AuthUnfinished struct {
	// Passwords are the versions of the passwords that users were given, or were found to have, by user.
	Passwords map[string]string
	// Err is why it stopped.
	Err error
}

func (e *AuthUnfinished) Error() string { return e.Err.Error() }

// Unwrap is why it stopped.
func (e *AuthUnfinished) Unwrap() error { return e.Err }

// ---- the status

// authRecorded reports whether the status names everything that is wanted as ours. Names are recorded before they are made, so that
// nothing that we made is ever left behind as a stranger's.
func authRecorded(old *v1alpha1.AuthStatus, w AuthWant) bool {
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

// authDone is the status once etcd is as wanted.
func authDone(w AuthWant) *v1alpha1.AuthStatus {
	s := &v1alpha1.AuthStatus{Enabled: w.Enabled, Applied: w.Hash()}
	for _, r := range w.Roles {
		s.Roles = append(s.Roles, r.Name)
	}
	for _, u := range w.Users {
		s.Users = append(s.Users, v1alpha1.UserStatus{Name: u.Name, PasswordVersion: u.Version()})
	}
	return s
}

// authPending is the status before etcd is as wanted: what is ours and what will be, with the passwords that were given
// meanwhile, by user. Applied is empty, so that it is tried again.
func authPending(old *v1alpha1.AuthStatus, w AuthWant, passwords map[string]string) *v1alpha1.AuthStatus {
	s := authDone(w)
	s.Applied = ""
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

// ---- what can't be applied

var authName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

const authNameWords = "is not 1 to 40 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit"

// validateAuth says what is wrong with a declaration that can't be applied, and names the field. The API server refuses all
// of it (CEL rules); this is for a Kubernetes without them.
func validateAuth(s *v1alpha1.AuthSpec) error {
	roles := map[string]bool{}
	for i, r := range s.Roles {
		field := fmt.Sprintf("spec.auth.roles[%d]", i)
		if err := validateName(field, r.Name, roles); err != nil {
			return err
		}
		for j, p := range r.Permissions {
			if problem := validatePermission(p); problem != "" {
				return fmt.Errorf("%s.permissions[%d]%s", field, j, problem)
			}
		}
	}
	users := map[string]bool{}
	for i, u := range s.Users {
		field := fmt.Sprintf("spec.auth.users[%d]", i)
		if err := validateName(field, u.Name, users); err != nil {
			return err
		}
		if u.Certificate && u.PasswordSecret != nil {
			return fmt.Errorf("%s: a user with certificate: true has no password; remove passwordSecret or certificate", field)
		}
		for j, r := range u.Roles {
			if !roles[r] {
				return fmt.Errorf("%s.roles[%d]: there is no role %q in spec.auth.roles; declare it there, or correct the name", field, j, r)
			}
		}
	}
	switch s.Token {
	case "", v1alpha1.TokenJWT, v1alpha1.TokenSimple:
		return nil
	}
	return fmt.Errorf("spec.auth.token %q is not JWT or Simple", s.Token)
}

func validateName(field, name string, seen map[string]bool) error {
	switch {
	case name == Root:
		return fmt.Errorf("%s.name: root is etcd's own; choose another name", field)
	case len(name) > 40 || !authName.MatchString(name):
		return fmt.Errorf("%s.name %q %s", field, name, authNameWords)
	case seen[name]:
		return fmt.Errorf("%s.name %q is declared twice", field, name)
	}
	seen[name] = true
	return nil
}

// validatePermission says what is wrong after the name of the permission; empty for nothing.
func validatePermission(p v1alpha1.Permission) string {
	given := 0
	for _, is := range []bool{p.Key != "", p.Prefix != nil, p.Range != nil} {
		if is {
			given++
		}
	}
	switch {
	case accessOf(p.Access) == 0:
		return fmt.Sprintf(".access %q is not Read, Write or ReadWrite", p.Access)
	case given != 1:
		return " is not for exactly one of key, prefix and range"
	case p.Range != nil && p.Range.From == "":
		return ".range.from is empty; use prefix \"\" for all keys"
	case p.Range != nil && p.Range.To != "" && p.Range.To <= p.Range.From:
		return fmt.Sprintf(".range is empty: to %q must come after from %q; remove to for everything from there on", p.Range.To, p.Range.From)
	}
	return ""
}

// longestPassword in bytes: bcrypt, by which etcd stores passwords, takes no more.
const longestPassword = 72

// PasswordFlaw says what is wrong with a password, as the end of a sentence about it; empty when etcd and people can use it.
func PasswordFlaw(password string) string {
	switch {
	case password == "":
		return "is empty"
	case len(password) > longestPassword:
		return fmt.Sprintf("has %d bytes; etcd takes %d at most", len(password), longestPassword)
	case strings.ContainsAny(password, "\r\n\x00"):
		return "has a line break or a zero byte in it; make it again without, as kubectl create secret --from-literal does"
	}
	return ""
}

// missing says why there is no password that will do; nil when there is.
func (p PasswordFrom) missing(s *Secret) error {
	switch {
	case s == nil:
		return fmt.Errorf("%s: %w %s; create it, with the password under the key %q", p.Field, errNoSecret, p.Secret, p.Key)
	case !s.has(p.Key) && len(s.Keys) == 0 && s.Flaw != "":
		return fmt.Errorf("%s: Secret %s can't be read: %s", p.Field, p.Secret, s.Flaw)
	case !s.has(p.Key):
		return fmt.Errorf("%s: there is nothing under the key %q in Secret %s; put the password there", p.Field, p.Key, p.Secret)
	case s.Unfit[p.Key] != "":
		return fmt.Errorf("%s: the password under %q in Secret %s %s", p.Field, p.Key, p.Secret, s.Unfit[p.Key])
	}
	return nil
}
