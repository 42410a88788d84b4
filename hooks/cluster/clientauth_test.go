package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/users"
)

// byPassword is a cluster that serves with users and roles, and whose spec has just got clientAuth None.
func byPassword(t *testing.T) observation.Observation {
	o := asking()
	o.Cluster.Spec.Auth.Users = o.Cluster.Spec.Auth.Users[1:2]
	for range 3 {
		called(t, &o)
	}
	require.Contains(t, condition(o), "Enabled")
	o.Cluster.Spec.TLS.ClientAuth = v1alpha1.ClientAuthNone
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
	if !state.TLSFlagsOf(pod).Anonymous {
		panic("the flags have other names")
	}
}

func TestClientAuthNeedsAuth(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.EtcdClusterSpec){
		"no auth":            func(s *v1alpha1.EtcdClusterSpec) { s.Auth = nil },
		"auth off":           func(s *v1alpha1.EtcdClusterSpec) { s.Auth.Enabled = false },
		"simple tokens":      func(s *v1alpha1.EtcdClusterSpec) { s.Auth.Token = v1alpha1.TokenSimple },
		"plain text":         func(s *v1alpha1.EtcdClusterSpec) { s.TLS.Mode = v1alpha1.TLSDisabled },
		"another word":       func(s *v1alpha1.EtcdClusterSpec) { s.TLS.ClientAuth = "Optional" },
		"a certificate user": func(s *v1alpha1.EtcdClusterSpec) { s.Auth.Users[0].Credential = "Certificate" },
	} {
		o := byPassword(t)
		require.NoError(t, spec.Validate(&o.Cluster.Spec, o.Settings))
		change(&o.Cluster.Spec)
		err := spec.Validate(&o.Cluster.Spec, o.Settings)
		require.Error(t, err, name)
		assert.Contains(t, err.Error(), "clientAuth", name)
		tellAuth(&o, true)
		assert.False(t, state.AsksNone(newView(o)), name)
	}
}

func TestMembersAskForNoCertificateOnlyWhereAuthIsOn(t *testing.T) {
	o := byPassword(t)
	assert.Equal(t, "Converged", Decide(o).Reason.Rule, "no member has told")
	tellAuth(&o, true)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "clients need no certificate any more")

	off, h := false, o.Health["demo-1"]
	h.Auth = &off
	o.Health["demo-1"] = h
	d = Decide(o)
	require.NoError(t, verify(o, d))
	require.IsType(t, decision.Authorize{}, d.Step, "what a person has turned off is turned on again at once")

	tellAuth(&o, true)
	delete(o.Children.Pods, "demo-1")
	pod := func() *corev1.Pod {
		t.Helper()
		d := Decide(o)
		require.NoError(t, verify(o, d))
		for _, pod := range d.Children.Pods {
			if pod.Name == "demo-1" {
				return pod
			}
		}
		require.Fail(t, "no pod")
		return nil
	}
	assert.True(t, state.TLSFlagsOf(pod()).Anonymous)
	o.Etcd = nil
	assert.False(t, state.TLSFlagsOf(pod()).Anonymous, "blind, it is not known")
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
	assert.Equal(t, "demo-client-tls", d.Status.Connection.AuthoritySecretRef.Name)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.Equal(t, v1alpha1.ClientAuthNone, d.Status.TLS.ClientAuth)
	assert.Contains(t, d.Children.Policies[0].Spec.Ingress[0].From[1].PodSelector.MatchLabels, "app.kubernetes.io/name",
		"Quorate comes to the peers' door")

	o.Cluster.Spec.TLS.ClientAuth, o.Cluster.Spec.Auth.Enabled = v1alpha1.ClientAuthRequired, false
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

// TestForeignMembersTellThatAuthIsOn: beside an etcd whose clients have passwords alone, the first member of ours asks
// them for no certificate either, as soon as a foreign member has told that auth is on.
func TestForeignMembersTellThatAuthIsOn(t *testing.T) {
	o := besideThree(1)
	o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSAuto, ClientAuth: v1alpha1.ClientAuthNone}
	o.Cluster.Spec.Auth = &v1alpha1.AuthSpec{Enabled: true}
	withCertificates(&o)
	o.Cluster.Spec.Bootstrap.Existing.Endpoints = []string{"https://old-0:2379"}
	o.Cluster.Spec.Bootstrap.Existing.TLS = &v1alpha1.ExistingTLS{SecretRef: v1alpha1.SecretRef{Name: "former"}}
	for _, e := range state.ForeignEndpoints(o) {
		assert.True(t, e.AsksAuth)
	}
	assert.False(t, state.AsksNone(newView(o)), "none has told")
	on, off := true, false
	change(&o, "old-1", func(h *observation.Health) { h.Auth = &on })
	assert.True(t, state.AsksNone(newView(o)))
	delete(o.Children.Pods, "demo-0")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, 1)
	assert.True(t, state.TLSFlagsOf(d.Children.Pods[0]).Anonymous)
	change(&o, "old-2", func(h *observation.Health) { h.Auth = &off })
	assert.False(t, state.AsksNone(newView(o)))
	require.ErrorContains(t, verify(o, d), "S20: demo-0 is to ask clients for no certificate")
}
