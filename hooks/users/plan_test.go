package users

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// probes are keys at and beside all borders of chooseKeys.
var probes = []string{"a", "a\x00", "a\x00\x00", "a\x00\x01", "aa", "b", "b\x00", "ba", "c", "d", "\xff", "\xff\xff",
	"z"}

func chooseKeys(r *rand.Rand) Keys {
	return []Keys{
		{Key: "a"}, {Key: "a", End: "b"}, {Key: "a", End: "c"}, {Key: "a", End: noEnd}, {Key: "a", End: "a\x00\x00"},
		{Key: "aa"},
		{Key: "a\x00", End: "b"}, {Key: "b"}, {Key: "b", End: "c"}, {Key: "b", End: "d"}, {Key: "a\x00"}, prefixed(""),
		prefixed("\xff"), {Key: "\xff"},
	}[r.IntN(14)]
}

var threeAccesses = []v1beta1.Access{v1beta1.Read, v1beta1.Write, v1beta1.ReadWrite}

var (
	someRoles = []string{"r1", "r2", "r3"}
	someUsers = []string{"u1", "u2", "u3"}
)

func some(r *rand.Rand, from []string) []string {
	return slices.DeleteFunc(slices.Clone(from), func(string) bool { return r.IntN(2) != 0 })
}

func randomWant(r *rand.Rand, generation string) Want {
	w := Want{Enabled: r.IntN(4) > 0, Prune: r.IntN(3) == 0}
	for _, name := range some(r, someRoles) {
		sum := map[Keys]access{}
		for range r.IntN(5) {
			sum[chooseKeys(r)] |= accessOf(threeAccesses[r.IntN(3)])
		}
		role := RoleWant{Name: name}
		for _, k := range sortedKeys(sum) {
			role.Permits = append(role.Permits, Permit{k, accesses[sum[k]]})
		}
		w.Roles = append(w.Roles, role)
	}
	w.Users = []UserWant{{Name: Root, Roles: []string{Root},
		Password: &PasswordFrom{Secret: "root", Version: fmt.Sprint(r.IntN(2))}}}
	for _, name := range some(r, someUsers) {
		u := UserWant{Name: name}
		for _, role := range w.Roles {
			if r.IntN(2) == 0 {
				u.Roles = append(u.Roles, role.Name)
			}
		}
		if r.IntN(3) > 0 {
			u.Password = &PasswordFrom{Secret: name, Version: generation + fmt.Sprint(r.IntN(2))}
		}
		w.Users = append(w.Users, u)
	}
	return w
}

// randomStore is whatever people and we may have left behind.
func randomStore(r *rand.Rand) *authStore {
	s := newAuthStore()
	for _, name := range append(some(r, someRoles), some(r, []string{"stranger"})...) {
		s.roles[name] = nil
		for range r.IntN(6) {
			_ = s.grant(Grant{Role: name, Permit: Permit{chooseKeys(r), threeAccesses[r.IntN(3)]}})
		}
	}
	for _, name := range append(some(r, someUsers), some(r, []string{"visitor"})...) {
		s.users[name] = &storedUser{roles: some(r, slices.Sorted(maps.Keys(s.roles))), password: "other",
			noPassword: r.IntN(3) == 0}
	}
	if r.IntN(2) == 0 {
		s.users[Root] = &storedUser{roles: []string{Root}, password: "other", noPassword: r.IntN(5) == 0}
		s.enabled = r.IntN(3) > 0
	}
	return s
}

// remember is what a status would know: of users that have the wanted password, sometimes, and which names are ours.
func remember(r *rand.Rand, w *Want, s *authStore, known bool) {
	for i := range w.Users {
		if u := s.users[w.Users[i].Name]; u != nil && known {
			w.Users[i].Applied = map[bool]string{true: NoPassword, false: u.password}[u.noPassword ||
				u.password == "unknown"]
		}
	}
	for name := range s.roles {
		if !w.hasRole(name) && name != Root && name != "stranger" && r.IntN(2) == 0 {
			w.FormerRoles = append(w.FormerRoles, name)
		}
	}
	for name := range s.users {
		if !w.hasUser(name) && name != "visitor" && r.IntN(2) == 0 {
			w.FormerUsers = append(w.FormerUsers, name)
		}
	}
}

// asWanted compares the store with what is wanted.
func asWanted(t *testing.T, w Want, before, after *authStore) {
	t.Helper()
	require.Equal(t, w.Enabled, after.enabled)
	for _, r := range w.Roles {
		has := map[Keys]access{}
		for _, p := range after.roles[r.Name] {
			has[p.Keys] |= accessOf(p.Access)
		}
		wanted := map[Keys]access{}
		for _, p := range r.Permits {
			wanted[p.Keys] = accessOf(p.Access)
		}
		require.Equal(t, wanted, has, r.Name)
		require.Contains(t, after.roles, r.Name)
	}
	for _, u := range w.Users {
		has := after.users[u.Name]
		require.NotNil(t, has, u.Name)
		require.ElementsMatch(t, u.Roles, has.roles, u.Name)
		switch {
		case u.Name == Root && before.enabled && before.users[Root].noPassword:
			require.True(t, has.noPassword)
		case u.Password == nil:
			require.True(t, has.noPassword || has.password == "unknown", u.Name)
		default:
			require.False(t, has.noPassword, u.Name)
			require.Equal(t, u.Password.Version, has.password, u.Name)
		}
	}
	for name := range before.users {
		stays := name == Root || w.hasUser(name) || !w.Prune && !slices.Contains(w.FormerUsers, name)
		require.Equal(t, stays, after.users[name] != nil, name)
	}
	for name := range before.roles {
		_, is := after.roles[name]
		stays := name == Root || w.hasRole(name) || !w.Prune && !slices.Contains(w.FormerRoles, name)
		require.Equal(t, stays, is, name)
	}
}

// TestPlansNeverTakeWhatStays: change after change, etcd refuses none, no user lacks what it has before and after, the
// end is what is wanted, a plan that was cut off anywhere is finished by the next, and then there is nothing left to
// do.
func TestPlansNeverTakeWhatStays(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := randomStore(r)
		known := false
		for generation := range 3 {
			w := randomWant(r, fmt.Sprint(generation/2, "."))
			remember(r, &w, s, known)
			known = true
			before, after := s.clone(), s.clone()
			plan := Plan(w, s.read(w))
			context := fmt.Sprintf("seed %d, generation %d:\n%s", seed, generation, lines(plan))
			for _, c := range plan {
				require.NoError(t, after.apply(c), "%s\n%s", c, context)
			}
			asWanted(t, w, before, after)
			cut := r.IntN(len(plan) + 1)
			for i, c := range plan {
				if i == cut && generation == 1 {
					finishes(t, w, s.clone(), context)
				}
				require.NoError(t, s.apply(c))
				noUserLacks(t, before, s, after, plan, fmt.Sprintf("after %d, %s; %s", i, c, context))
			}
			require.Empty(t, Plan(settledNow(w), s.read(settledNow(w))), context)
		}
	}
}

// finishes: what is wanted is reached from a plan that was cut off, of which nothing was recorded.
func finishes(t *testing.T, w Want, s *authStore, context string) {
	t.Helper()
	before := s.clone()
	for _, c := range Plan(w, s.read(w)) {
		require.NoError(t, s.apply(c), "%s\n%s", c, context)
	}
	asWanted(t, w, before, s)
}

func settledNow(w Want) Want {
	w.Users = slices.Clone(w.Users)
	for i := range w.Users {
		w.Users[i].Applied = w.Users[i].Version()
	}
	return w
}

func noUserLacks(t *testing.T, before, now, after *authStore, plan []Change, context string) {
	t.Helper()
	for name := range before.users {
		if after.users[name] == nil || slices.Contains(plan, Change(DeleteUser{name})) {
			continue
		}
		for _, key := range probes {
			for _, a := range []access{reads, writes} {
				if before.may(name, key, a) && after.may(name, key, a) && !now.may(name, key, a) {
					t.Fatalf("%s lacks %s on %q %s", name, accesses[a], key, context)
				}
			}
		}
	}
}

func lines(plan []Change) string {
	var all []string
	for _, c := range plan {
		all = append(all, c.String())
	}
	return strings.Join(all, "\n")
}

func wantOf(roles []RoleWant, users ...UserWant) Want {
	root := UserWant{Name: Root, Roles: []string{Root}, Password: &PasswordFrom{Secret: "demo-user-root", Version: "1"}}
	return Want{Enabled: true, Roles: roles, Users: append([]UserWant{root}, users...)}
}

func TestTheOrderOfAPlan(t *testing.T) {
	app := RoleWant{"app", []Permit{{prefixed("/app/"), v1beta1.ReadWrite}}}
	withRoot := func(role []Permit, users map[string]UserHave) Have {
		users[Root] = UserHave{Roles: []string{Root}, Password: PasswordRight}
		return Have{Enabled: true, Roles: map[string][]Permit{Root: nil, "app": role}, Users: users}
	}
	password := &PasswordFrom{Secret: "demo-user-a", Version: "7"}
	tests := map[string]struct {
		want Want
		have Have
		plan string
	}{
		"from nothing: auth last": {
			want: wantOf([]RoleWant{app}, UserWant{Name: "a", Roles: []string{"app"}, Password: password},
				UserWant{Name: "b"}),
			plan: `
add role app
grant role app ReadWrite on keys with the prefix "/app/"
add role root
add user root with the password in Secret demo-user-root
grant user root role root
add user a with the password in Secret demo-user-a
grant user a role app
add user b without a password
enable auth`,
		},
		"a range moves from one role to another, and the user with it": {
			want: wantOf([]RoleWant{app, {"new", []Permit{{Keys{Key: "k"}, v1beta1.Read}}}},
				UserWant{Name: "a", Roles: []string{"new"}}),
			have: withRoot([]Permit{{Keys{Key: "k"}, v1beta1.Read}},
				map[string]UserHave{"a": {Roles: []string{"app"}, Password: PasswordNone}}),
			plan: `
grant role app ReadWrite on keys with the prefix "/app/"
add role new
grant role new Read on key "k"
grant user a role new
revoke from role app the key "k"
revoke from user a role app`,
		},
		"another access to the same range, in place": {
			want: wantOf([]RoleWant{{"app", []Permit{{prefixed(""), v1beta1.Read}}}}),
			have: withRoot([]Permit{{prefixed(""), v1beta1.Write}}, map[string]UserHave{}),
			plan: `
grant role app ReadWrite on all keys
grant role app Read on all keys`,
		},
		"less access to a range that shares its beginning with another": {
			want: wantOf([]RoleWant{{"app",
				[]Permit{{Keys{Key: "k"}, v1beta1.Write}, {prefixed("k"), v1beta1.Read}}}}),
			have: withRoot([]Permit{{Keys{Key: "k"}, v1beta1.Write}, {prefixed("k"), v1beta1.ReadWrite}},
				map[string]UserHave{}),
			plan: `
grant role app Read on keys from "k" to "k\x00"
grant role app Read on keys from "k\x00" to "l"
revoke from role app the keys with the prefix "k"
grant role app Read on keys with the prefix "k"
revoke from role app the keys from "k" to "k\x00"
revoke from role app the keys from "k\x00" to "l"`,
		},
		"another password, one for a user that has none, none for a user that has one": {
			want: wantOf([]RoleWant{app}, UserWant{Name: "a", Roles: []string{"app"}, Password: password},
				UserWant{Name: "b", Roles: []string{"app"}, Password: password}, UserWant{Name: "c"}),
			have: withRoot(app.Permits, map[string]UserHave{"a": {Roles: []string{"app"}, Password: PasswordOther},
				"b": {Roles: []string{"app", "x"}, Password: PasswordNone}, "c": {Password: PasswordOther}}),
			plan: `
change the password of user a to that in Secret demo-user-a
delete user b
add user b with the password in Secret demo-user-a
grant user b role app
change the password of user c to a random one`,
		},
		"strangers and their roles stay": {
			want: wantOf([]RoleWant{app}),
			have: withRoot(app.Permits, map[string]UserHave{"visitor": {Roles: []string{"app"}}}),
		},
		"prune, and never root": {
			want: func() Want { w := wantOf(nil); w.Prune = true; return w }(),
			have: withRoot(app.Permits, map[string]UserHave{"visitor": {Roles: []string{"app"}}}),
			plan: `
delete user visitor
delete role app`,
		},
		"ours and declared no more": {
			want: func() Want {
				w := wantOf(nil)
				w.FormerRoles, w.FormerUsers = []string{"app", "gone"}, []string{"a"}
				return w
			}(),
			have: withRoot(app.Permits, map[string]UserHave{"a": {}, "visitor": {}}),
			plan: `
delete user a
delete role app`,
		},
		"auth goes first": {
			want: func() Want { w := wantOf([]RoleWant{app}); w.Enabled = false; return w }(),
			have: withRoot(nil, map[string]UserHave{}),
			plan: `
disable auth
grant role app ReadWrite on keys with the prefix "/app/"`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, strings.TrimSpace(test.plan), lines(Plan(test.want, test.have)))
		})
	}
}
