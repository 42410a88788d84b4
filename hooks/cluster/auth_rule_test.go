package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/auth"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// asking is a cluster that serves and whose spec has just got users and roles.
func asking() observation.Observation {
	o := serve(3)
	o.Now = time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC) // far from the slow look
	all := ""
	o.Cluster.Spec.Auth = &v1alpha1.AuthSpec{
		Enabled: true,
		Roles: []v1alpha1.RoleSpec{{Name: "all",
			Permissions: []v1alpha1.Permission{{Access: v1alpha1.ReadWrite, Prefix: &all}}}},
		Users: []v1alpha1.UserSpec{
			{Name: "app", Roles: []string{"all"}, Credential: v1alpha1.CredentialCertificate},
			{Name: "ops", Roles: []string{"all"}},
			{Name: "own", PasswordSecretRef: &v1alpha1.SecretKeyRef{Name: "mine"}},
		},
	}
	o.Related.Secrets = map[string]*observation.Secret{"mine": {Keys: []string{"password"}}}
	return o
}

// called is one whole call in which etcd does what it is asked for.
func called(t *testing.T, o *observation.Observation) (decision.Decision, decision.Step) {
	t.Helper()
	d := Decide(*o)
	require.NoError(t, verify(*o, d))
	step := d.Step
	if step != nil {
		o.Taken = &decision.Outcome{Step: step, Rule: d.Reason.Rule}
		d = Decide(*o)
		o.Taken = nil
	}
	observe(o, d)
	return d, step
}

func condition(o observation.Observation) string {
	c := meta.FindStatusCondition(o.Cluster.Status.Conditions, v1alpha1.Authorized)
	return c.Reason + ": " + c.Message
}

func TestUsersAndRolesAreAppliedOnce(t *testing.T) {
	o := asking()
	d, step := called(t, &o)
	require.Nil(t, step, "a password that was not observed can't be given")
	assert.Equal(t, "demo-client.app demo-user.ops demo-user.root", named(recipes(d)))
	assert.Contains(t, condition(o), "Applying: the generated password does not exist yet")

	d, step = called(t, &o)
	require.Nil(t, step, "the names are recorded before anything is made")
	assert.Equal(t, "Authorize", d.Reason.Rule)
	assert.Equal(t, []string{"all"}, o.Cluster.Status.Auth.Roles)
	assert.Contains(t, condition(o), "Applying")

	d, step = called(t, &o)
	want, ok := step.(decision.Authorize)
	require.True(t, ok)
	assert.True(t, want.Want.Enabled)
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.True(t, o.Cluster.Status.Auth.Enabled)
	assert.Contains(t, condition(o), "Enabled: etcd authenticates every client, with 3 users and 1 role of the spec")

	before := o.Cluster.Status
	_, step = called(t, &o)
	assert.Nil(t, step, "and then there is nothing to do")

	forgetful := o
	forgetful.Cluster = o.Cluster.DeepCopy()
	forgetful.Cluster.Status.Internal = v1alpha1.InternalStatus{}
	_, step = called(t, &forgetful)
	assert.Equal(t, want.Want.Hash(), step.(decision.Authorize).Want.Hash(), "without its memory it looks once more")
	assert.Equal(t, before, o.Cluster.Status)
}

// applied is asking after everything was applied.
func appliedAuth(t *testing.T) observation.Observation {
	t.Helper()
	o := asking()
	for range 4 {
		called(t, &o)
	}
	require.Contains(t, condition(o), "Enabled")
	return o
}

func TestAnotherPasswordIsApplied(t *testing.T) {
	o := appliedAuth(t)
	changed := *o.Related.Secrets["mine"]
	changed.ResourceVersion = "2"
	o.Related.Secrets["mine"] = &changed
	_, step := called(t, &o)
	assert.IsType(t, decision.Authorize{}, step)
	_, step = called(t, &o)
	assert.Nil(t, step)
}

func TestWhatOthersChangeIsFoundSlowly(t *testing.T) {
	o := appliedAuth(t)
	before := o.Cluster.Status
	n := 0
	for range 40 { // twenty minutes of resyncs
		o.Now = o.Now.Add(30 * time.Second)
		if _, step := called(t, &o); step != nil {
			n++
		}
	}
	assert.GreaterOrEqual(t, n, 2)
	assert.LessOrEqual(t, n, 4)
	assert.Equal(t, before, o.Cluster.Status, "without a word while nothing was changed")
}

func TestAFailedApplicationIsToldAndTriedAgain(t *testing.T) {
	o := appliedAuth(t)
	o.Cluster.Spec.Auth.Users = o.Cluster.Spec.Auth.Users[:2]
	d := Decide(o)
	require.IsType(t, decision.Authorize{}, d.Step)
	o.Taken = &decision.Outcome{Step: d.Step, Rule: d.Reason.Rule, Err: "apply users and roles: no answer in time"}
	d = Decide(o)
	assert.Nil(t, d.Step)
	assert.Equal(t, "Converged", d.Reason.Rule, "nothing else waits for it")
	o.Taken = nil
	observe(&o, d)
	assert.Contains(t, condition(o), "NotApplied: apply users and roles: no answer in time")
	assert.True(t, o.Cluster.Status.Auth.Enabled, "it still is")
	require.Len(t, o.Cluster.Status.Auth.Users, 4, "own is ours until it is gone")
	_, step := called(t, &o)
	assert.IsType(t, decision.Authorize{}, step)
	assert.Len(t, o.Cluster.Status.Auth.Users, 3)
}

func TestWrongFieldsAreNamedAndStopNothingElse(t *testing.T) {
	for says, spoil := range map[string]func(*observation.Observation){
		"spec.auth.users[1].roles[0]": func(o *observation.Observation) {
			o.Cluster.Spec.Auth.Users[1].Roles = []string{"none"}
		},
		"spec.auth.users[2].passwordSecretRef": func(o *observation.Observation) { delete(o.Related.Secrets, "mine") },
		"has no key \"password\"": func(o *observation.Observation) {
			o.Related.Secrets["mine"] = &observation.Secret{Keys: []string{"pass"}}
		},
		"spec.auth.roles[0].permissions[0].ra": func(o *observation.Observation) {
			o.Cluster.Spec.Auth.Roles[0].Permissions[0] = v1alpha1.Permission{Access: v1alpha1.Read,
				Range: &v1alpha1.KeyRange{From: "b", To: "a"}}
		},
	} {
		o := appliedAuth(t)
		secrets := len(o.Children.Secrets)
		spoil(&o)
		d, step := called(t, &o)
		assert.Nil(t, step)
		assert.Equal(t, "Converged", d.Reason.Rule)
		assert.Contains(t, condition(o), says)
		assert.Len(t, o.Children.Secrets, secrets, "no Secret goes for a mistake in the spec")
		assert.True(t, o.Cluster.Status.Auth.Enabled)
	}
}

func TestWithoutItsSectionAuthIsLeftAsItIs(t *testing.T) {
	o := appliedAuth(t)
	secrets := len(o.Children.Secrets)
	o.Cluster.Spec.Auth = nil
	_, step := called(t, &o)
	assert.Nil(t, step)
	assert.Contains(t, condition(o), "LeftOn")
	assert.Len(t, o.Children.Secrets, secrets)
}

func TestAUserThatGoesTakesItsSecretAlong(t *testing.T) {
	o := appliedAuth(t)
	o.Cluster.Spec.Auth.Users = o.Cluster.Spec.Auth.Users[2:]
	called(t, &o)
	assert.NotContains(t, o.Children.Secrets, "demo-client.app")
	assert.NotContains(t, o.Children.Secrets, "demo-user.ops")
	assert.Contains(t, o.Children.Secrets, "demo-user.root")
}

func TestAPasswordThatIsMissingNamesTheField(t *testing.T) {
	from := &users.PasswordFrom{Secret: "web-login", Key: "password", Field: "spec.auth.users[0].passwordSecretRef"}
	assert.EqualError(t, auth.MissingPassword(from, nil),
		`spec.auth.users[0].passwordSecretRef: there is no Secret with the label etcd.quorate.dev/cluster called web-login; create it with that label and the password under the key "password", or label it`)
	assert.EqualError(t, auth.MissingPassword(from, &observation.Secret{}),
		`spec.auth.users[0].passwordSecretRef: Secret web-login has no key "password"; put the password there`)
	assert.NoError(t, auth.MissingPassword(from, &observation.Secret{Keys: []string{"password"}}))
}
