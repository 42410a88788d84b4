package manifests

import (
	"fmt"
	"strings"
	"testing"
)

// withAuth is an EtcdCluster with this spec.auth, in YAML's flow style.
func withAuth(t *testing.T, auth string) map[string]any {
	t.Helper()
	return cluster(t, "demo", `{version: 3.6.16, auth: `+auth+`}`)
}

func TestAuthRefused(t *testing.T) {
	k := etcdCluster(t)
	for _, c := range []struct{ spec, want string }{
		{`{}`, "spec.auth.enabled: Required"},
		{`{enabled: true, users: [{name: a, roles: [x]}]}`, "names a role that auth.roles does not declare"},
		{`{enabled: true, roles: [{name: y}], users: [{name: a, roles: [y, x]}]}`,
			"names a role that auth.roles does not declare"},
		{`{enabled: true, users: [{name: root}]}`, "the user root always exists"},
		{`{enabled: true, roles: [{name: root}]}`, "the role root is reserved by etcd"},
		{`{enabled: true, roles: [{name: A}]}`, "a role's name has lower-case"},
		{`{enabled: true, users: [{name: -a}]}`, "a user's name has lower-case"},
		{`{enabled: true, users: [{name: a}, {name: a}]}`, "Duplicate"},
		{`{enabled: true, users: [{name: a, credential: Certificate, passwordSecretRef: {name: x}}]}`,
			"has no password"},
		{`{enabled: true, roles: [{name: a, permissions: [{access: Read}]}]}`, "exactly one of key, prefix and range"},
		{`{enabled: true, roles: [{name: a, permissions: [{access: Read, key: a, prefix: ""}]}]}`,
			"exactly one of key, prefix and range"},
		{`{enabled: true, roles: [{name: a, permissions: [{access: Read, key: ""}]}]}`, "should be at least 1"},
		{`{enabled: true, roles: [{name: a, permissions: [{access: All, key: a}]}]}`, "supported values"},
		{`{enabled: true, roles: [{name: a, permissions: [{access: Read, range: {from: b, to: a}}]}]}`,
			"the range is empty"},
		{`{enabled: true, roles: [{name: a, permissions: [{access: Read, range: {from: b, to: b}}]}]}`,
			"the range is empty"},
		{`{enabled: true, token: Cookie}`, "supported values"},
		{`{enabled: true, rootPasswordSecretRef: {}}`, "rootPasswordSecretRef.name"},
	} {
		t.Run(c.spec, func(t *testing.T) {
			if said := fmt.Sprint(k.admit(withAuth(t, c.spec), nil).ToAggregate()); !strings.Contains(said, c.want) {
				t.Errorf("%s\nis not refused with %q but: %s", c.spec, c.want, said)
			}
		})
	}
}

// TestAuthAdmitted: with the largest declaration among them, so that the CEL rules stay within what the API server
// lets them cost.
func TestAuthAdmitted(t *testing.T) {
	k := etcdCluster(t)
	var roles, users, names, permissions []string
	for i := range 64 {
		permissions = append(permissions, fmt.Sprintf("{access: Read, range: {from: %s%da, to: %s%db}}",
			strings.Repeat("k", 500), i, strings.Repeat("k", 500), i))
		names = append(names, fmt.Sprintf("%s%d", strings.Repeat("r", 38), i+10))
	}
	for i, name := range names {
		roles = append(roles, fmt.Sprintf("{name: %s, permissions: [%s]}", name, strings.Join(permissions, ", ")))
		users = append(users, fmt.Sprintf("{name: u%d, roles: [%s]}", i, strings.Join(names[48:], ", ")))
	}
	for _, spec := range []string{
		`{enabled: false}`,
		`{enabled: true, roles: [{name: a, permissions: [{access: Read, prefix: ""}, {access: Write, range: {from: a}}]}], users: [{name: a.b-c, roles: [a]}, {name: w, credential: Certificate}]}`,
		`{enabled: true, users: [{name: w, credential: Password, passwordSecretRef: {name: x}}]}`,
		fmt.Sprintf(`{enabled: true, roles: [%s], users: [%s]}`, strings.Join(roles, ", "), strings.Join(users, ", ")),
	} {
		object := withAuth(t, spec)
		if fields := k.unknown(object); len(fields) > 0 {
			t.Errorf("%.100s: unknown fields: %v", spec, fields)
		}
		if errs := k.admit(object, nil); len(errs) > 0 {
			t.Errorf("%.100s: %.1000v", spec, errs.ToAggregate())
		}
	}
}
