package users

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

func someAuth() *v1beta1.AuthSpec {
	return &v1beta1.AuthSpec{
		Enabled: true,
		Roles: []v1beta1.RoleSpec{
			{Name: "writer", Permissions: []v1beta1.Permission{
				{Access: v1beta1.Write, Prefix: new("/app/")}, {Access: v1beta1.Read, Prefix: new("/app/")},
				{Access: v1beta1.Read, Key: "/app"},
			}},
			{Name: "all", Permissions: []v1beta1.Permission{{Access: v1beta1.Read, Prefix: new("")}}},
		},
		Users: []v1beta1.UserSpec{
			{Name: "web", Roles: []string{"writer", "all"},
				PasswordSecretRef: &v1beta1.SecretKeyRef{Name: "web-login"}},
			{Name: "batch", Roles: []string{"all"}},
			{Name: "agent", Credential: v1beta1.CredentialCertificate},
		},
	}
}

func versions(secret string) string { return "v-" + secret }

func TestWhatIsWanted(t *testing.T) {
	old := &v1beta1.AuthStatus{
		Roles: []string{"all", "before"},
		Users: []v1beta1.UserStatus{{Name: "root", PasswordVersion: "v-old"},
			{Name: "agent", PasswordVersion: NoPassword}, {Name: "gone"}},
	}
	w := Wanted("demo", someAuth(), old, versions)
	assert.Equal(t, Want{
		Enabled: true,
		Roles: []RoleWant{
			{"all", []Permit{{Keys{"\x00", "\x00"}, v1beta1.Read}}},
			{"writer", []Permit{{Keys{Key: "/app"}, v1beta1.Read}, {Keys{"/app/", "/app0"}, v1beta1.ReadWrite}}},
		},
		Users: []UserWant{
			{Name: "root", Roles: []string{"root"}, Password: &PasswordFrom{"demo-user.root", "password",
				"v-demo-user.root", "spec.auth.rootPasswordSecretRef"}, Applied: "v-old"},
			{Name: "agent", Applied: NoPassword},
			{Name: "batch", Roles: []string{"all"}, Password: &PasswordFrom{"demo-user.batch", "password",
				"v-demo-user.batch", "spec.auth.users[1].passwordSecretRef"}},
			{Name: "web", Roles: []string{"all", "writer"},
				Password: &PasswordFrom{"web-login", "password", "v-web-login",
					"spec.auth.users[0].passwordSecretRef"}},
		},
		FormerRoles: []string{"before"}, FormerUsers: []string{"gone"},
	}, w)
	assert.False(t, w.Users[0].Settled())
	assert.True(t, w.Users[1].Settled())
	assert.False(t, w.Users[2].Settled())
}

func TestTheHashIsOfWhatIsWanted(t *testing.T) {
	hash := func(change func(*v1beta1.AuthSpec), old *v1beta1.AuthStatus, version func(string) string) string {
		s := someAuth()
		change(s)
		return Wanted("demo", s, old, version).Hash()
	}
	same := func(*v1beta1.AuthSpec) {}
	is := hash(same, nil, versions)
	assert.Equal(t, is, hash(same, Done(nil, Wanted("demo", someAuth(), nil, versions)), versions),
		"what was done does not count")
	assert.Equal(t, is, hash(func(s *v1beta1.AuthSpec) { s.Users[0], s.Users[1] = s.Users[1], s.Users[0] }, nil,
		versions), "nor does the order")
	assert.NotEqual(t, is, hash(same, nil, func(string) string { return "rotated" }))
	assert.NotEqual(t, is, hash(func(s *v1beta1.AuthSpec) { s.Enabled = false }, nil, versions))
	assert.NotEqual(t, is, hash(func(s *v1beta1.AuthSpec) { s.Roles[1].Permissions[0].Prefix = new("x") }, nil,
		versions))
}

func TestKeysOfAPermission(t *testing.T) {
	tests := map[string]struct {
		of  v1beta1.Permission
		is  Keys
		say string
	}{
		"a key":    {v1beta1.Permission{Key: "k"}, Keys{"k", ""}, `key "k"`},
		"a prefix": {v1beta1.Permission{Prefix: new("/a/")}, Keys{"/a/", "/a0"}, `keys with the prefix "/a/"`},
		"a prefix that ends in ff": {v1beta1.Permission{Prefix: new("a\xff\xff")}, Keys{"a\xff\xff", "b"},
			`keys with the prefix "a\xff\xff"`},
		"a prefix that ends in fe": {v1beta1.Permission{Prefix: new("a\xfe")}, Keys{"a\xfe", "a\xff"},
			`keys with the prefix "a\xfe"`},
		"a prefix of ff alone": {v1beta1.Permission{Prefix: new("\xff\xff")}, Keys{"\xff\xff", "\x00"},
			`keys from "\xff\xff" on`},
		"the empty prefix": {v1beta1.Permission{Prefix: new("")}, Keys{"\x00", "\x00"}, "all keys"},
		"a range": {v1beta1.Permission{Range: &v1beta1.KeyRange{From: "a", To: "m"}}, Keys{"a", "m"},
			`keys from "a" to "m"`},
		"a range without an end": {v1beta1.Permission{Range: &v1beta1.KeyRange{From: "a"}}, Keys{"a", "\x00"},
			`keys from "a" on`},
		"a range of one key": {v1beta1.Permission{Range: &v1beta1.KeyRange{From: "a", To: "a\x00"}},
			Keys{"a", ""}, `key "a"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, test.is, keysOf(test.of))
			assert.Equal(t, test.say, keysOf(test.of).String())
		})
	}
}

func TestStatusOfUsersAndRoles(t *testing.T) {
	w := Wanted("demo", someAuth(), nil, versions)
	assert.False(t, Recorded(nil, w))

	before := Pending(nil, w, nil)
	assert.Equal(t, &v1beta1.AuthStatus{
		Roles: []string{"all", "writer"},
		Users: []v1beta1.UserStatus{{Name: "root"}, {Name: "agent"}, {Name: "batch"}, {Name: "web"}},
	}, before)
	assert.True(t, Recorded(before, w), "names are recorded before they are made")

	cut := Pending(before, Wanted("demo", someAuth(), before, versions),
		map[string]string{"batch": "v-demo-user.batch"})
	w = Wanted("demo", someAuth(), cut, versions)
	assert.True(t, w.Users[2].Settled(), "and goes on where it stopped")
	assert.False(t, w.Users[3].Settled())

	done := Done(cut, w)
	assert.True(t, done.Enabled)
	for _, u := range Wanted("demo", someAuth(), done, versions).Users {
		assert.True(t, u.Settled(), u.Name)
	}
	for _, u := range Wanted("demo", someAuth(), InAnother(done), versions).Users {
		assert.False(t, u.Settled(), "another etcd has the password of its data for %s", u.Name)
	}

	less := someAuth()
	less.Roles, less.Users = nil, nil
	w = Wanted("demo", less, done, versions)
	assert.Equal(t, []string{"all", "writer"}, w.FormerRoles)
	assert.Equal(t, []string{"agent", "batch", "web"}, w.FormerUsers)
	pending := Pending(done, w, nil)
	assert.Equal(t, done.Roles, pending.Roles, "ours until they are deleted")
	assert.Len(t, pending.Users, 4)
	gone := Done(pending, w)
	assert.Equal(t, []v1beta1.UserStatus{{Name: "root", PasswordVersion: "v-demo-user.root"}}, gone.Users)

	w = Wanted("demo", less, InAnother(gone), versions)
	assert.Equal(t, []string{"agent", "batch", "web"}, w.FormerUsers, "which the data of another etcd may have")
	assert.Equal(t, []string{"all", "writer"}, w.FormerRoles)
	again := Done(gone, Wanted("demo", someAuth(), gone, versions))
	assert.Empty(t, again.DeletedUsers)
	assert.Empty(t, again.DeletedRoles)
}

func TestWhatIsWrongNamesTheField(t *testing.T) {
	long := strings.Repeat("a", 41)
	permission := func(p v1beta1.Permission) func(*v1beta1.AuthSpec) {
		return func(s *v1beta1.AuthSpec) { s.Roles[1].Permissions = append(s.Roles[1].Permissions, p) }
	}
	tests := map[string]struct {
		change func(*v1beta1.AuthSpec)
		says   string
	}{
		"unknown role": {func(s *v1beta1.AuthSpec) { s.Users[1].Roles = []string{"all", "admin"} },
			`spec.auth.users[1].roles[1]: spec.auth.roles has no role "admin"; declare it there, or correct the name`},
		"the role root": {func(s *v1beta1.AuthSpec) { s.Roles[0].Name = "root" },
			"spec.auth.roles[0].name: root is reserved by etcd; choose another name"},
		"the user root": {func(s *v1beta1.AuthSpec) { s.Users[2].Name = "root" },
			"spec.auth.users[2].name: root is reserved by etcd; choose another name"},
		"a long name": {func(s *v1beta1.AuthSpec) { s.Users[2].Name = long }, `spec.auth.users[2].name "` + long +
			`" is not 1 to 40 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit`},
		"a name twice": {func(s *v1beta1.AuthSpec) { s.Users[2].Name = "web" },
			`spec.auth.users[2].name "web" is declared twice`},
		"two credentials": {func(s *v1beta1.AuthSpec) { s.Users[0].Credential = v1beta1.CredentialCertificate },
			"spec.auth.users[0]: a user with the credential Certificate has no password; remove passwordSecretRef"},
		"no access": {permission(v1beta1.Permission{Key: "a"}),
			`spec.auth.roles[1].permissions[1].access "" is not Read, Write or ReadWrite`},
		"no keys": {permission(v1beta1.Permission{Access: v1beta1.Read}),
			"spec.auth.roles[1].permissions[1] needs exactly one of key, prefix and range"},
		"two of them": {permission(v1beta1.Permission{Access: v1beta1.Read, Key: "a", Prefix: new("")}),
			"spec.auth.roles[1].permissions[1] needs exactly one of key, prefix and range"},
		"an empty range": {permission(v1beta1.Permission{Access: v1beta1.Read,
			Range: &v1beta1.KeyRange{From: "b", To: "b"}}),
			`spec.auth.roles[1].permissions[1].range is empty: to "b" must be after from "b"; remove to for all keys from there on`},
		"a range of none": {permission(v1beta1.Permission{Access: v1beta1.Read, Range: &v1beta1.KeyRange{}}),
			`spec.auth.roles[1].permissions[1].range.from is empty; use prefix "" for all keys`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := someAuth()
			require.NoError(t, Validate(s))
			test.change(s)
			assert.EqualError(t, Validate(s), test.says)
		})
	}
}

func TestPasswordsThatCannotBeUsed(t *testing.T) {
	assert.Equal(t, "is empty", PasswordFlaw(""))
	assert.Equal(t, "has 73 bytes; etcd takes 72 at most", PasswordFlaw(strings.Repeat("x", 73)))
	assert.Contains(t, PasswordFlaw("secret\n"), "has a line break")
	assert.Empty(t, PasswordFlaw(strings.Repeat("x", 72)))
}
