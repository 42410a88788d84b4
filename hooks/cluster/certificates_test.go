package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/status"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// forge stands for the edge: it carries out what a decision asks for, in facts.
func forge(o *observation.Observation, desired []*decision.DesiredSecret) {
	before := o.Children.Secrets
	after := map[string]*observation.Secret{}
	for _, d := range desired {
		s := forged(d, before)
		s.ObjectMeta, s.Type = d.ObjectMeta, d.Type
		s.UID, s.ResourceVersion = types.UID("uid-"+d.Name), "1"
		after[d.Name] = s
	}
	o.Children.Secrets = after
}

func forged(d *decision.DesiredSecret, before map[string]*observation.Secret) *observation.Secret {
	pair := []string{objects.KeyTrust, objects.KeyCertificate, objects.KeyPrivate}
	switch r := d.Make.(type) {
	case decision.Authority:
		id := fmt.Sprintf("ca-%s-%s", r.CommonName, d.Name)
		own := observation.Certificate{ID: id, CommonName: r.CommonName, Subject: "subject of " + id, Key: id,
			Issuer: id, NotBefore: r.NotBefore, NotAfter: r.NotAfter, Authority: true}
		s := &observation.Secret{Keys: pair, Certificate: &own, Trust: []observation.Certificate{own}}
		if r.Inherit != "" {
			s.Trust = append(s.Trust, before[r.Inherit].Trust...)
		}
		if r.Previous {
			s.Previous = before[d.Name].Certificate
			s.Trust = append(s.Trust, before[d.Name].Trust...)
		}
		return s
	case decision.Trim:
		s := *before[d.Name]
		s.Trust = wording.Filter(s.Trust, func(c observation.Certificate) bool { return !r.At.After(c.NotAfter) })
		s.Previous = nil
		return &s
	case decision.Leaf:
		signer := before[r.Signer].Certificate
		if r.Previous {
			signer = before[r.Signer].Previous
		}
		return &observation.Secret{Keys: pair, Trust: before[r.Signer].Trust, Certificate: &observation.Certificate{
			ID:         fmt.Sprintf("%s by %s at %s", d.Name, signer.ID, r.NotBefore.Format(time.RFC3339)),
			CommonName: r.CommonName, Issuer: signer.Key,
			NotBefore: r.NotBefore, NotAfter: r.NotAfter, Names: r.Names, Server: r.Server, Client: r.Client,
		}}
	case decision.Bundle:
		s := *before[d.Name]
		s.Trust = before[r.Signer].Trust
		return &s
	case decision.Password:
		return &observation.Secret{Keys: []string{r.Key}}
	case decision.TokenKeys:
		return &observation.Secret{Keys: []string{objects.KeyTokenPrivate, objects.KeyTokenPublic}}
	case nil:
		s := *before[d.Name]
		return &s
	}
	panic(fmt.Sprintf("there is no recipe %T", d.Make))
}

// shakeHands lets a member tell what its files hold now, as after a restart.
func shakeHands(o *observation.Observation, name string) {
	if !objects.Encrypted(o.Cluster) {
		return
	}
	h := o.Health[name]
	server := certificates.Secret(newView(*o), spec.ServerSecret(o.Cluster))
	h.Certificate, h.Trusts = server.Certificate.ID, certificates.Subjects(server.Trust)
	o.Health[name] = h
}

// recipes are those of a decision, by the Secret that they are for.
func recipes(d decision.Decision) map[string]decision.Recipe {
	all := map[string]decision.Recipe{}
	for _, s := range d.Children.Secrets {
		if s.Make != nil {
			all[s.Name] = s.Make
		}
	}
	return all
}

func named(all map[string]decision.Recipe) string {
	return strings.Join(slices.Sorted(maps.Keys(all)), " ")
}

func TestCertificatesAreMadeOnlyFromAnObservedAuthority(t *testing.T) {
	o := fresh(3)
	o.Children.Secrets = map[string]*observation.Secret{}
	d := Decide(o)
	assert.Equal(t, "demo-ca demo-token", named(recipes(d)), "first the authority, and what needs none")
	forge(&o, d.Children.Secrets)
	d = Decide(o)
	assert.Equal(t, "demo-client-tls demo-operator-tls demo-peer-tls demo-server-tls", named(recipes(d)),
		"then everything that it signs")
	forge(&o, d.Children.Secrets)
	assert.Empty(t, recipes(Decide(o)), "and then nothing")
}

func TestNoPodBeforeItsCertificates(t *testing.T) {
	for _, missing := range []string{"demo-server-tls", "demo-peer-tls", "demo-operator-tls", "demo-token"} {
		o := fresh(1)
		observeRecord(&o, 1)
		addClaim(&o, 0)
		delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationClusterID)
		require.Len(t, Decide(o).Children.Pods, 1)
		delete(o.Children.Secrets, missing)
		d := Decide(o)
		assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
		assert.Contains(t, d.Reason.Message, missing)
		assert.Empty(t, d.Children.Pods)
	}
}

func TestALeafIsRenewedAtTwoThirdsOfItsLife(t *testing.T) {
	o := serve(3)
	server := o.Children.Secrets["demo-server-tls"].Certificate
	o.Now = server.Due().Add(-time.Second)
	assert.Empty(t, recipes(Decide(o)))
	o.Now = server.Due()
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "demo-client-tls demo-operator-tls demo-peer-tls demo-server-tls", named(recipes(d)))
	assert.Equal(t, "Converged", d.Reason.Rule, "no member is restarted for it")
	leaf, _ := recipes(d)["demo-server-tls"].(decision.Leaf)
	assert.Equal(t, o.Now.Add(spec.DefaultLeafDuration), leaf.NotAfter)
	assert.Contains(t, leaf.Names, "*.demo-peers.default.svc")
	assert.Empty(t, leaf.CommonName, "etcd would take it for a user")
}

// TestAnAuthorityIsSucceeded goes through a whole rotation, by the observations that a cluster would give.
func TestAnAuthorityIsSucceeded(t *testing.T) {
	o := serve(3)
	first := *o.Children.Secrets["demo-ca"].Certificate
	step := func() decision.Decision {
		d := Decide(o)
		require.NoError(t, verify(o, d))
		observe(&o, d)
		return d
	}
	rest := func() {
		for range 3 { // the authority, then what the peers trust, and then what the servers trust
			step()
		}
	}
	o.Now = first.Due()
	rest()
	ca := o.Children.Secrets["demo-ca"]
	require.NotEqual(t, first.ID, ca.Certificate.ID)
	require.Equal(t, first.ID, ca.Previous.ID)
	for _, secret := range []string{"demo-server-tls", "demo-peer-tls", "demo-client-tls", "demo-operator-tls"} {
		s := o.Children.Secrets[secret]
		assert.Equal(t, first.Key, s.Certificate.Issuer, "%s: the old authority signs until every member trusts the "+
			"new one", secret)
		assert.Len(t, s.Trust, 2, secret)
	}

	var restarted []string
	for range 3 {
		restarted = append(restarted, rolled(t, &o))
	}
	assert.Equal(t, []string{"demo-1", "demo-2", "demo-0"}, restarted, "the leader last")
	rest()
	assert.Equal(t, first.Key, o.Children.Secrets["demo-server-tls"].Certificate.Issuer,
		"clients have time to hear of the new authority")
	o.Now = ca.Certificate.NotBefore.Add(ca.Certificate.NotAfter.Sub(ca.Certificate.NotBefore) / 12)
	rest()
	assert.Equal(t, ca.Certificate.Key, o.Children.Secrets["demo-server-tls"].Certificate.Issuer)
	assert.Equal(t, ca.Certificate.Key, o.Children.Secrets["demo-operator-tls"].Certificate.Issuer)
	assert.Equal(t, "Converged", step().Reason.Rule)

	o.Now = first.NotAfter.Add(time.Second)
	rest()
	assert.Len(t, o.Children.Secrets["demo-server-tls"].Trust, 1, "what has expired is trusted no longer")
	assert.Equal(t, "RollingUpdate", Decide(o).Reason.Rule)
}

// rolled lets the next member restart, handing the leadership on where that is asked for, and returns its name.
func rolled(t *testing.T, o *observation.Observation) string {
	t.Helper()
	d := Decide(*o)
	require.Equal(t, "RollingUpdate", d.Reason.Rule, d.Reason.Message)
	require.NoError(t, verify(*o, d))
	if move, ok := d.Step.(decision.MoveLeader); ok {
		o.Etcd.Leader = move.To
		d = Decide(*o)
	}
	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0] // the record names who is next
	d = Decide(*o)
	for name := range o.Children.Pods {
		if !slices.ContainsFunc(d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == name }) {
			shakeHands(o, name)
			o.Children.Pods[name].UID += "-again"
			return name
		}
	}
	t.Fatal("no member is restarted")
	return ""
}

func TestRotationsOfOneOrTwoAndOnMemoryGoThroughANewMember(t *testing.T) {
	for _, change := range []func(*observation.Observation){
		func(o *observation.Observation) { *o = serve(1) },
		func(o *observation.Observation) { *o = serve(2) },
		func(o *observation.Observation) { *o = serve(3); o.Cluster.Spec.Storage.Medium = v1alpha1.Memory },
	} {
		var o observation.Observation
		change(&o)
		for name, h := range o.Health {
			h.Trusts = []string{"of an older authority"}
			o.Health[name] = h
		}
		for _, pod := range o.Children.Pods {
			pod.Annotations[objects.AnnotationTemplate] = children.TemplateNow(newView(o), "3.6.16")
		}
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Equal(t, "Grow", d.Reason.Rule, d.Reason.Message)
	}
}

func TestALostAuthorityIsSucceededWithoutItsKey(t *testing.T) {
	o := serve(3)
	old := *o.Children.Secrets["demo-ca"].Certificate
	o.Now = o.Now.Add(time.Hour)
	delete(o.Children.Secrets, "demo-ca")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	made, _ := recipes(d)["demo-ca"].(decision.Authority)
	assert.NotEmpty(t, made.Inherit, "what the members trust is trusted on")
	observe(&o, d)
	observe(&o, Decide(o)) // the peers first
	observe(&o, Decide(o))
	s := o.Children.Secrets["demo-server-tls"]
	assert.Equal(t, old.Key, s.Certificate.Issuer, "no member trusts the new one yet")
	assert.Len(t, s.Trust, 2)
	for range 3 {
		rolled(t, &o)
	}
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "demo-client-tls demo-operator-tls demo-peer-tls demo-server-tls", named(recipes(d)))
}

func TestOwnCertificatesAreLookedAtBeforeAnyPodIsTouched(t *testing.T) {
	good := func() observation.Observation {
		o := fresh(1)
		observeRecord(&o, 1)
		addClaim(&o, 0)
		delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationClusterID)
		o.Related.Secrets = map[string]*observation.Secret{}
		for from, to := range map[string]string{"demo-server-tls": "mine", "demo-peer-tls": "ours",
			"demo-operator-tls": "quorates"} {
			o.Related.Secrets[to] = o.Children.Secrets[from]
		}
		o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: v1alpha1.TLSSecrets,
			Secrets: &v1alpha1.SecretsTLS{ServerSecretRef: v1alpha1.SecretRef{Name: "mine"},
				PeerSecretRef:     v1alpha1.SecretRef{Name: "ours"},
				OperatorSecretRef: v1alpha1.SecretRef{Name: "quorates"}}}
		return o
	}
	o := good()
	d := Decide(o)
	require.Len(t, d.Children.Pods, 1, d.Reason.Message)
	assert.Equal(t, "Start", d.Reason.Rule)
	assert.Equal(t, "mine", d.Children.Pods[0].Spec.Volumes[2].Projected.Sources[0].Secret.Name)
	for _, c := range []struct {
		says   string
		spoils func(o *observation.Observation)
	}{
		{"Secret mine: it does not exist", func(o *observation.Observation) { delete(o.Related.Secrets, "mine") }},
		{"Secret ours: tls.key does not belong",
			func(o *observation.Observation) {
				o.Related.Secrets["ours"].Flaw = "tls.key does not belong to tls.crt"
			}},
		{"Secret mine: tls.crt expired on",
			func(o *observation.Observation) {
				o.Now = o.Related.Secrets["mine"].Certificate.NotAfter.Add(time.Second)
			}},
		{"Secret mine: tls.crt is not valid before",
			func(o *observation.Observation) {
				o.Now = o.Related.Secrets["mine"].Certificate.NotBefore.Add(-time.Second)
			}},
		{"Secret mine: tls.crt is not valid for",
			func(o *observation.Observation) { o.Related.Secrets["mine"].Certificate.Names = []string{"elsewhere"} }},
		{"Secret ours: tls.crt has the common name",
			func(o *observation.Observation) { o.Related.Secrets["ours"].Certificate.CommonName = "me" }},
		{"Secret quorates: tls.crt does not allow clients",
			func(o *observation.Observation) { o.Related.Secrets["quorates"].Certificate.Client = false }},
		{"Secret quorates: it does not have all of", func(o *observation.Observation) { o.Related.Secrets["quorates"].Trust = nil }},
	} {
		o := good()
		c.spoils(&o)
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Contains(t, d.Reason.Message, c.says)
		assert.Empty(t, d.Children.Pods, c.says)
		reason, _, secured := status.Security(newView(o))
		assert.False(t, secured)
		assert.Equal(t, "CertificatesLacking", reason)
	}
}

func TestPlainTextIsSaidAloud(t *testing.T) {
	o := fresh(1)
	o.Cluster.Spec.TLS.Mode = v1alpha1.TLSDisabled
	clear(o.Children.Secrets)
	reason, message, secured := status.Security(newView(o))
	assert.False(t, secured)
	assert.Equal(t, "Disabled", reason)
	assert.Contains(t, message, "plain text")
	assert.Empty(t, Decide(o).Children.Secrets)
}

func TestALateRenewalIsAWarning(t *testing.T) {
	o := serve(3)
	o.Now = o.Children.Secrets["demo-server-tls"].Certificate.Late().Add(time.Second)
	reason, message, secured := status.Security(newView(o))
	assert.False(t, secured)
	assert.Equal(t, "CertificatesExpire", reason)
	assert.Contains(t, message, "demo-server-tls")
}

func TestTheLeadershipGoesToAMemberThatStays(t *testing.T) {
	o := serve(3)
	o.Cluster.Spec.Replicas = new(int32(2)) // so that the leader's successors are one that stays and one that does not
	for name, h := range o.Health {
		if name != "demo-2" {
			h.Trusts = []string{"of an older authority"}
		}
		h.RaftIndex = 1000
		if name == "demo-1" {
			h.RaftIndex = 2000
		}
		o.Health[name] = h
	}
	v := newView(o)
	assert.Equal(t, decision.MoveLeader{To: 3, Name: "demo-2"}, handOver(v, v.Find("demo-0")))
}
