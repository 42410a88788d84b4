package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/users"
)

// asking is a cluster that serves and whose spec has just got users and roles.
func asking() observation.Observation {
	o := serve(3)
	o.Now = time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC) // far from the slow look
	all := ""
	o.Cluster.Spec.Auth = &v1beta1.AuthSpec{
		Enabled: true,
		Roles: []v1beta1.RoleSpec{{Name: "all",
			Permissions: []v1beta1.Permission{{Access: v1beta1.ReadWrite, Prefix: &all}}}},
		Users: []v1beta1.UserSpec{
			{Name: "app", Roles: []string{"all"}, Credential: v1beta1.CredentialCertificate},
			{Name: "ops", Roles: []string{"all"}},
			{Name: "own", PasswordSecretRef: &v1beta1.SecretKeyRef{Name: "mine"}},
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
	c := meta.FindStatusCondition(o.Cluster.Status.Conditions, v1beta1.Authorized)
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
	forgetful.Cluster.Status.Internal = v1beta1.InternalStatus{}
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
			o.Cluster.Spec.Auth.Roles[0].Permissions[0] = v1beta1.Permission{Access: v1beta1.Read,
				Range: &v1beta1.KeyRange{From: "b", To: "a"}}
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

func TestAPasswordThatIsMissingNamesTheField(t *testing.T) {
	from := &users.PasswordFrom{Secret: "web-login", Key: "password", Field: "spec.auth.users[0].passwordSecretRef"}
	assert.EqualError(t, facts.MissingPassword(from, nil),
		`spec.auth.users[0].passwordSecretRef: there is no Secret with the label etcd.quorate.dev/cluster called web-login; create it with that label and the password under the key "password", or label it`)
	assert.EqualError(t, facts.MissingPassword(from, &observation.Secret{}),
		`spec.auth.users[0].passwordSecretRef: Secret web-login has no key "password"; put the password there`)
	assert.NoError(t, facts.MissingPassword(from, &observation.Secret{Keys: []string{"password"}}))
}

// byPassword is a cluster that serves with users and roles, and whose spec has just got clientAuth None.
func byPassword(t *testing.T) observation.Observation {
	o := asking()
	o.Cluster.Spec.Auth.Users = o.Cluster.Spec.Auth.Users[1:2]
	for range 3 {
		called(t, &o)
	}
	require.Contains(t, condition(o), "Enabled")
	o.Cluster.Spec.TLS.ClientAuth = v1beta1.ClientAuthNone
	return o
}

// tellAuth has every member tell whether auth is on.
func tellAuth(o *observation.Observation, on bool) {
	for name, h := range o.Health {
		h.Auth = &on
		o.Health[name] = h
	}
}

// open makes a member's pod one that asks clients for no certificate.
func open(o *observation.Observation, name string) {
	pod := o.Children.Pods[name]
	flags := pod.Spec.Containers[0].Command
	pod.Spec.Containers[0].Command = nil
	for _, flag := range flags {
		if flag != "--client-cert-auth=true" && flag != "--trusted-ca-file=/etc/etcd/pki/server/ca.crt" {
			pod.Spec.Containers[0].Command = append(pod.Spec.Containers[0].Command, flag)
		}
	}
	if !facts.TLSFlagsOf(pod).Anonymous {
		panic("the flags have other names")
	}
}

func TestClientAuthNeedsAuth(t *testing.T) {
	for name, change := range map[string]func(*v1beta1.EtcdClusterSpec){
		"no auth":            func(s *v1beta1.EtcdClusterSpec) { s.Auth = nil },
		"auth off":           func(s *v1beta1.EtcdClusterSpec) { s.Auth.Enabled = false },
		"plain text":         func(s *v1beta1.EtcdClusterSpec) { s.TLS.Mode = v1beta1.TLSDisabled },
		"another word":       func(s *v1beta1.EtcdClusterSpec) { s.TLS.ClientAuth = "Optional" },
		"a certificate user": func(s *v1beta1.EtcdClusterSpec) { s.Auth.Users[0].Credential = "Certificate" },
	} {
		o := byPassword(t)
		require.NoError(t, defaults.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec)
		err := defaults.Validate(&o.Cluster.Spec, o.Settings)
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), "clientAuth", name)
		tellAuth(&o, true)
		assert.False(t, facts.New(o).AsksNone(), name)
	}
}

func TestAuthGoesOffOnceAllAskForCertificates(t *testing.T) {
	o := byPassword(t)
	tellAuth(&o, true)
	for _, name := range []string{"demo-0", "demo-1", "demo-2"} {
		assert.Equal(t, "demo-client-tls", Decide(o).Status.Connection.ClientSecretRef.Name, "%s asks for one", name)
		open(&o, name)
	}
	d := Decide(o)
	assert.Empty(t, d.Status.Connection.ClientSecretRef)
	assert.Equal(t, "demo-client-tls", d.Status.Connection.CASecretRef.Name)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.Equal(t, v1beta1.ClientAuthNone, d.Status.TLS.ClientAuth)
	assert.Contains(t, d.Children.Policies[0].Spec.Ingress[0].From[1].PodSelector.MatchLabels, "app.kubernetes.io/name",
		"Quorate comes to the peers' door")

	o.Cluster.Spec.TLS.ClientAuth, o.Cluster.Spec.Auth.Enabled = v1beta1.ClientAuthRequired, false
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Nil(t, d.Step)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "clients need a certificate again")

	d.Step = decision.Authorize{Want: users.Want{}}
	require.ErrorContains(t, verify(o, d), "S20: auth would be turned off while demo-")
}

func TestOracleOfOpenMembers(t *testing.T) {
	o := byPassword(t)
	tellAuth(&o, true)
	delete(o.Children.Pods, "demo-1")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	tellAuth(&o, false)
	require.ErrorContains(t, verify(o, d), "S20: demo-1 is to ask clients for no certificate")
}

func TestMemberWithAnotherTokenKeyIsRestarted(t *testing.T) {
	o := byPassword(t)
	tellAuth(&o, true)
	for _, name := range []string{"demo-0", "demo-1", "demo-2"} {
		open(&o, name)
	}
	h := o.Health["demo-1"]
	h.TokenRefused, h.Auth = true, nil
	o.Health["demo-1"] = h
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Contains(t, d.Reason.Message, "another key for tokens")
}

// TestExternalMembersTellThatAuthIsOn: beside an etcd whose clients have passwords alone, the first member of ours asks
// them for no certificate either, as soon as an external member has told that auth is on.
func TestExternalMembersTellThatAuthIsOn(t *testing.T) {
	o := besideThree(1)
	o.Cluster.Spec.TLS = v1beta1.TLSSpec{Mode: v1beta1.TLSAuto, ClientAuth: v1beta1.ClientAuthNone}
	o.Cluster.Spec.Auth = &v1beta1.AuthSpec{Enabled: true}
	withCertificates(&o)
	o.Cluster.Spec.Bootstrap.External.Endpoints = []string{"https://old-0:2379"}
	o.Cluster.Spec.Bootstrap.External.CASecretRef = v1beta1.SecretRef{Name: "former"}
	for _, e := range facts.Endpoints(o) {
		assert.Equal(t, e.External, e.AsksAuth)
	}
	assert.False(t, facts.New(o).AsksNone(), "none has told")
	on, off := true, false
	externally("old-1", func(h *observation.Health) { h.Auth = &on })(&o)
	assert.True(t, facts.New(o).AsksNone())
	delete(o.Children.Pods, "demo-0")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, 1)
	assert.True(t, facts.TLSFlagsOf(d.Children.Pods[0]).Anonymous)
	externally("old-2", func(h *observation.Health) { h.Auth = &off })(&o)
	assert.False(t, facts.New(o).AsksNone())
	require.ErrorContains(t, verify(o, d), "S20: demo-0 is to ask clients for no certificate")
}
