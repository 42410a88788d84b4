package hooks

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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rules"
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
		s.Trust = objects.Filter(s.Trust, func(c observation.Certificate) bool { return !r.At.After(c.NotAfter) })
		s.Previous = nil
		return &s
	case decision.Leaf:
		signer := before[r.Signer].Certificate
		if r.Previous {
			signer = before[r.Signer].Previous
		}
		id := fmt.Sprintf("%s by %s at %s", d.Name, signer.ID, r.NotBefore.Format(time.RFC3339))
		own := observation.Certificate{ID: id, CommonName: r.CommonName, Issuer: signer.Key, NotBefore: r.NotBefore,
			NotAfter: r.NotAfter, Names: r.Names, Server: r.Server, Client: r.Client}
		return &observation.Secret{Keys: pair, Trust: before[r.Signer].Trust, Serials: []string{id}, Certificate: &own}
	case decision.Bundle:
		s := *before[d.Name]
		s.Trust = before[r.Signer].Trust
		return &s
	case decision.Password:
		return &observation.Secret{Keys: []string{r.Key}}
	case decision.StreamKeys:
		return &observation.Secret{Keys: []string{objects.KeyStream}}
	case decision.TokenKeys:
		return &observation.Secret{Keys: []string{objects.KeyTokenPrivate, objects.KeyTokenPublic}}
	case decision.Revoked:
		return revoking("list of " + r.From)
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
	server := facts.New(*o).Secret(defaults.ServerSecret(o.Cluster))
	h.Certificate, h.Trusts = server.Certificate.ID, facts.Subjects(server.Trust)
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
	assert.Equal(t, o.Now.Add(defaults.DefaultLeafDuration), leaf.NotAfter)
	assert.Contains(t, leaf.Names, "*.demo-peers.default.svc")
	assert.Empty(t, leaf.CommonName, "etcd would take it for a user")
}

func TestOwnCertificatesAreLookedAtBeforeAnyPodIsTouched(t *testing.T) {
	given := map[string]string{"demo-server-tls": "mine", "demo-peer-tls": "ours", "demo-operator-tls": "quorates"}
	good := func() observation.Observation {
		o := fresh(1)
		observeRecord(&o, 1)
		addClaim(&o, 0)
		neverQuorate(&o)
		o.Related.Secrets = map[string]*observation.Secret{}
		for from, to := range given {
			o.Related.Secrets[to] = o.Children.Secrets[from]
		}
		o.Cluster.Spec.TLS = v1beta1.TLSSpec{Mode: v1beta1.TLSSecrets,
			Secrets: &v1beta1.SecretsTLS{ServerSecretRef: v1beta1.SecretRef{Name: "mine"},
				PeerSecretRef:     v1beta1.SecretRef{Name: "ours"},
				OperatorSecretRef: v1beta1.SecretRef{Name: "quorates"}}}
		return o
	}
	d := Decide(good())
	require.Len(t, d.Children.Pods, 1, d.Reason.Message)
	assert.Equal(t, "Start", d.Reason.Rule)
	assert.Equal(t, "mine", d.Children.Pods[0].Spec.Volumes[2].Projected.Sources[0].Secret.Name)

	secret := func(name string, spoil func(s *observation.Secret)) fact {
		return func(o *observation.Observation) { spoil(o.Related.Secrets[name]) }
	}
	at := func(when func(c *observation.Certificate) time.Time) fact {
		return func(o *observation.Observation) { o.Now = when(o.Related.Secrets["mine"].Certificate) }
	}
	for says, spoils := range map[string]fact{
		"Secret mine: it does not exist": func(o *observation.Observation) { delete(o.Related.Secrets, "mine") },
		"Secret ours: tls.key does not belong": secret("ours",
			func(s *observation.Secret) { s.Flaw = "tls.key does not belong to tls.crt" }),
		"Secret mine: tls.crt expired on": at(func(c *observation.Certificate) time.Time {
			return c.NotAfter.Add(time.Second)
		}),
		"Secret mine: tls.crt is not valid before": at(func(c *observation.Certificate) time.Time {
			return c.NotBefore.Add(-time.Second)
		}),
		"Secret mine: tls.crt is not valid for": secret("mine",
			func(s *observation.Secret) { s.Certificate.Names = []string{"elsewhere"} }),
		"Secret ours: tls.crt has the common name": secret("ours",
			func(s *observation.Secret) { s.Certificate.CommonName = "me" }),
		"Secret quorates: tls.crt does not allow clients": secret("quorates",
			func(s *observation.Secret) { s.Certificate.Client = false }),
		"Secret quorates: it does not have all of": secret("quorates", func(s *observation.Secret) { s.Trust = nil }),
	} {
		o := with(good(), spoils)
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Contains(t, d.Reason.Message, says)
		assert.Empty(t, d.Children.Pods, says)
		reason, _, secured := answer.Security(facts.New(o))
		assert.False(t, secured)
		assert.Equal(t, "CertificatesLacking", reason)
	}
}

func TestALateRenewalIsAWarning(t *testing.T) {
	o := serve(3)
	o.Now = o.Children.Secrets["demo-server-tls"].Certificate.Late().Add(time.Second)
	reason, message, secured := answer.Security(facts.New(o))
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
	f := facts.New(o)
	assert.Equal(t, decision.MoveLeader{To: 3, Name: "demo-2"}, rules.HandOver(f, f.Find("demo-0")))
}

var fromCertManager = v1beta1.TLSSpec{Mode: v1beta1.TLSCertManager,
	CertManager: &v1beta1.CertManagerTLS{IssuerRef: v1beta1.IssuerRef{Name: "ours"}}}

// issued is a cluster of n voters that serves with certificates of an issuer's.
func issued(n int) observation.Observation {
	o := serve(n)
	provide(&o, v1beta1.TLSCertManager)
	observeIssued(&o, Decide(o))
	return o
}

// provide makes the cluster one whose certificates come from others, and have from its beginning.
func provide(o *observation.Observation, from v1beta1.TLSMode) {
	if o.Related.Secrets != nil || o.Children.Secrets == nil {
		return
	}
	o.Settings.SharedIssuers = true
	o.Related.Secrets = map[string]*observation.Secret{}
	for name, s := range o.Children.Secrets {
		if s.Certificate != nil {
			delete(o.Children.Secrets, name)
			if name != defaults.CASecret("demo") {
				o.Related.Secrets[name] = s
			}
		}
	}
	o.Cluster.Spec.TLS = v1beta1.TLSSpec{Mode: from,
		Secrets: &v1beta1.SecretsTLS{ServerSecretRef: v1beta1.SecretRef{Name: "demo-server-tls"},
			PeerSecretRef:     v1beta1.SecretRef{Name: "demo-peer-tls"},
			OperatorSecretRef: v1beta1.SecretRef{Name: "demo-operator-tls"}}}
	if from == v1beta1.TLSCertManager {
		o.Cluster.Spec.TLS, o.Children.Certificates = fromCertManager, map[string]*decision.CertManagerCertificate{}
	}
	issue(o, authority("A", "a"), authority("A", "a"))
	for name, pod := range o.Children.Pods {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[objects.AnnotationTemplate] = facts.New(*o).TemplateNow("3.6.16")
		if facts.New(*o).Secret("demo-server-tls") != nil && o.Health[name].Err == "" {
			begin(o, name)
		}
	}
}

// observeIssued is observe for the mode CertManager: the Certificates are there, and their Secrets stay.
func observeIssued(o *observation.Observation, d decision.Decision) {
	kept := o.Children.Secrets
	observe(o, d)
	o.Children.Secrets = kept
	o.Children.Certificates = map[string]*decision.CertManagerCertificate{}
	for _, c := range d.Children.Certificates {
		c.UID = "uid-certificate-" + c.UID
		o.Children.Certificates[c.Name] = c
	}
}

// authority is one that the issuer has signed with: this subject, this key.
func authority(subject, key string) observation.Certificate {
	return observation.Certificate{ID: subject + " with " + key, Subject: subject, Key: key, Issuer: key,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(1000 * time.Hour), Authority: true}
}

// issue puts new leaves, signed by an authority, and those that are trusted into the Secrets.
func issue(o *observation.Observation, signer observation.Certificate, trust ...observation.Certificate) {
	for name, old := range o.Related.Secrets {
		s, c := *old, *old.Certificate
		c.ID, c.Issuer = name+" by "+signer.ID, signer.Key
		s.Certificate, s.Trust = &c, trust
		s.Anchors = objects.Filter(trust, func(a observation.Certificate) bool { return a.Key == signer.Key })
		if len(s.Anchors) == 0 {
			s.Flaw = "tls.crt is not signed by an authority in ca.crt"
		}
		o.Related.Secrets[name] = &s
	}
	server := facts.New(*o).Secret("demo-server-tls")
	for name, h := range o.Health { // the kubelet has written it
		if server != nil && h.Err == "" {
			h.Certificate = server.Certificate.ID
			o.Health[name] = h
		}
	}
}

// begin lets the member's etcd start with what is in the Secrets now, in a new pod.
func begin(o *observation.Observation, name string) {
	o.Children.Pods[name].Annotations[objects.AnnotationTrusts] = objects.FormatPairs(facts.New(*o).Trusted(), ":")
	shakeHands(o, name)
}

func TestCertManagerIsAskedForEveryLeaf(t *testing.T) {
	o := fresh(3)
	o.Cluster.Spec.TLS = fromCertManager
	o.Cluster.Spec.TLS.ExtraSANs = []string{"etcd.example.com", "192.0.2.7"}
	o.Children.Secrets = map[string]*observation.Secret{"demo-token": o.Children.Secrets["demo-token"]}
	observeRecord(&o, 3)

	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "quorate install --cert-manager")
	assert.Contains(t, d.Reason.Message, "manifests/components/cert-manager")
	assert.Empty(t, d.Children.Certificates, "an answer with a kind that has no rule would be refused")

	o.Children.Certificates = map[string]*decision.CertManagerCertificate{}
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
	assert.Empty(t, d.Children.Pods)
	var asked []string
	for _, c := range d.Children.Certificates {
		asked = append(asked, c.Name)
		assert.Equal(t, c.Name, c.Spec.SecretName)
		assert.Equal(t, map[string]string{objects.LabelCluster: "demo"}, c.Spec.SecretTemplate.Labels,
			"so that the hook customize finds it")
		assert.Equal(t, v1beta1.IssuerRef{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}, c.Spec.IssuerRef)
		assert.Equal(t, "Always", c.Spec.PrivateKey.RotationPolicy)
	}
	assert.Equal(t, []string{"demo-client-tls", "demo-operator-tls", "demo-peer-tls", "demo-server-tls"}, asked)
	server := d.Children.Certificates[3].Spec
	assert.Empty(t, server.CommonName)
	assert.Equal(t, []string{"127.0.0.1", "192.0.2.7", "::1"}, server.IPAddresses)
	assert.Contains(t, server.DNSNames, "etcd.example.com")
	assert.Contains(t, server.DNSNames, "*.demo-peers.default.svc")
	assert.Equal(t, []string{"digital signature", "server auth", "client auth"}, server.Usages)
	assert.Equal(t, "demo:peers", d.Children.Certificates[2].Spec.CommonName)
	operator := d.Children.Certificates[1].Spec
	assert.Equal(t, "root", operator.CommonName)
	assert.Equal(t, []string{"digital signature", "client auth"}, operator.Usages)
	assert.Len(t, d.Children.Secrets, 1, "the Secrets are cert-manager's; only the token keys are Quorate's")

	observeIssued(&o, d)
	o.Children.Certificates["demo-peer-tls"].Status.Conditions = []metav1.Condition{{Type: "Ready",
		Status: metav1.ConditionFalse, Message: `Issuer "ours" not found`}}
	d = Decide(o)
	assert.Contains(t, d.Reason.Message,
		`Secret demo-peer-tls: it is not there yet; cert-manager says of the Certificate: Issuer "ours" not found`)
}

func TestCertificatesAreKept(t *testing.T) {
	o := issued(3)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "Converged", d.Reason.Rule, d.Reason.Message)
	require.Len(t, d.Children.Certificates, 4)
	for _, c := range d.Children.Certificates {
		assert.Equal(t, o.Children.Certificates[c.Name], c, "at rest nothing changes")
	}
	d.Children.Certificates = d.Children.Certificates[1:]
	require.ErrorContains(t, verify(o, d), "S19: the Certificate demo-client-tls is gone")
	o.Cluster.Spec.Suspend = true
	assert.Len(t, Decide(o).Children.Certificates, 4)
	remaining, _ := answer.Finalize(o)
	assert.Len(t, remaining.Certificates, 4)
}

func TestAnotherAuthorityWithoutOverlapRestartsNoMember(t *testing.T) {
	for why, next := range map[string]observation.Certificate{"another subject": authority("B", "b"),
		"the same subject, another key": authority("A", "b")} {
		o := issued(3)
		issue(&o, next, next)
		for _, blind := range []bool{false, true} {
			if blind {
				o.Etcd = nil
				delete(o.Children.Pods, "demo-1")
			}
			d := Decide(o)
			require.NoError(t, verify(o, d), why)
			assert.Equal(t, "WaitForCertificates", d.Reason.Rule, why)
			assert.Contains(t, d.Reason.Message, "Secret demo-server-tls: the authority that signed tls.crt is not "+
				"trusted by demo-0")
			assert.Len(t, d.Children.Pods, 3, "all stay, and who is gone is brought back")
			reason, _, secured := answer.Security(facts.New(o))
			assert.False(t, secured)
			assert.Equal(t, "AuthorityChanged", reason)
		}
		o.Cluster.Spec.Replicas = new(int32(0))
		d := Decide(o)
		assert.Equal(t, "Pause", d.Reason.Rule, "the way out: stop all, start all")
		clear(o.Children.Pods)
		clear(o.Health)
		o.Cluster.Spec.Replicas = new(int32(3))
		assert.Len(t, Decide(o).Children.Pods, 3, why)
	}
}

func TestQuoratesOwnCertificateIsRefused(t *testing.T) {
	o := issued(3)
	b := authority("B", "b")
	s := *o.Related.Secrets["demo-operator-tls"]
	s.Trust, s.Anchors = []observation.Certificate{b}, []observation.Certificate{b}
	o.Related.Secrets["demo-operator-tls"] = &s
	o.Etcd = nil
	assert.Contains(t, Decide(o).Reason.Message, "Secret demo-operator-tls: the authority that signed tls.crt is not "+
		"trusted by demo-0, demo-1, demo-2")
}

// TestAnIssuerThatIsSharedIsRefused: who has a certificate of it in the name of root is root in the cluster's etcd,
// so nothing is asked of it unless the installation allows it. A cluster that has its certificates of it already is
// looked after as before, and advised; another one is not begun with.
func TestAnIssuerThatIsSharedIsRefused(t *testing.T) {
	for _, c := range []struct {
		ref              v1beta1.IssuerRef
		allowed, refused bool
	}{
		{v1beta1.IssuerRef{Name: "ours"}, false, false},
		{v1beta1.IssuerRef{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}, false, false},
		{v1beta1.IssuerRef{Name: "ours", Kind: "ClusterIssuer"}, false, true},
		{v1beta1.IssuerRef{Name: "ours", Kind: "ClusterIssuer"}, true, false},
		{v1beta1.IssuerRef{Name: "ours", Kind: "Issuer", Group: "awspca.cert-manager.io"}, false, true},
		{v1beta1.IssuerRef{Name: "ours", Kind: "VaultIssuer", Group: "example.com"}, true, false},
	} {
		o := fresh(3)
		o.Cluster.Spec.TLS = v1beta1.TLSSpec{Mode: v1beta1.TLSCertManager,
			CertManager: &v1beta1.CertManagerTLS{IssuerRef: c.ref}}
		o.Children.ConfigMaps, o.Children.Certificates = nil, map[string]*decision.CertManagerCertificate{}
		o.Settings.SharedIssuers = c.allowed
		d := Decide(o)
		assert.Equal(t, c.refused, d.Reason.Rule == "Unsupported", "%+v: %s", c, d.Reason)
		if c.refused {
			assert.Empty(t, d.Children.Certificates)
			assert.Contains(t, d.Reason.Message, "spec.tls.certManager.issuerRef names "+c.ref.Kind+
				" ours, which also issues for other namespaces")
			assert.Contains(t, d.Reason.Message, "quorate install --shared-issuers")
		}
	}

	o := serve(3)
	provide(&o, v1beta1.TLSCertManager)
	o.Cluster.Spec.TLS.CertManager.IssuerRef.Kind = "ClusterIssuer"
	o.Settings.SharedIssuers = true
	d := Decide(o)
	require.NotEmpty(t, d.Children.Certificates)
	o.Children.Certificates = map[string]*decision.CertManagerCertificate{}
	for _, c := range d.Children.Certificates {
		o.Children.Certificates[c.Name] = c
	}
	o.Settings.SharedIssuers = false
	d = Decide(o)
	assert.NotEqual(t, "Unsupported", d.Reason.Rule)
	assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1beta1.Advised).Message, "ClusterIssuer ours")
	o.Cluster.Spec.TLS.CertManager.IssuerRef.Name = "another"
	assert.Equal(t, "Unsupported", Decide(o).Reason.Rule)
}

// lackings are ways in which certificates are not in order for a cluster that has run.
var lackings = map[string]func(o *observation.Observation){
	"the operator's expired": func(o *observation.Observation) {
		relate(o, "demo-operator-tls", func(s *observation.Secret) { s.Certificate.NotAfter = o.Now.Add(-time.Hour) })
	},
	"the operator's gone": func(o *observation.Observation) { delete(o.Related.Secrets, "demo-operator-tls") },
	"the server's unseen": func(o *observation.Observation) { delete(o.Related.Secrets, "demo-server-tls") },
	"the peers' flawed": func(o *observation.Observation) {
		relate(o, "demo-peer-tls", func(s *observation.Secret) { s.Flaw = "tls.key does not belong to tls.crt" })
	},
	"the peers' without ca": func(o *observation.Observation) {
		relate(o, "demo-peer-tls", func(s *observation.Secret) { s.Trust, s.Anchors = nil, nil })
	},
	"all gone":          func(o *observation.Observation) { clear(o.Related.Secrets); clear(o.Children.Secrets) },
	"no --cert-manager": func(o *observation.Observation) { o.Children.Certificates = nil },
}

// relate changes a Secret that others keep.
func relate(o *observation.Observation, name string, change func(*observation.Secret)) {
	s := *o.Related.Secrets[name]
	c := *s.Certificate
	s.Certificate = &c
	change(&s)
	o.Related.Secrets[name] = &s
}

// TestWhatPodsNeed: whatever certificate is lacking, the pods of members that have run come back, on claims and on
// nodes, whether etcd answers or not; and nothing else is begun or changed.
func TestWhatPodsNeed(t *testing.T) {
	for name, lack := range lackings {
		for medium, on := range map[string]func(*observation.Observation){
			"claims": func(*observation.Observation) {},
			"nodes":  func(o *observation.Observation) { on(o, "a", "b", "c") },
		} {
			t.Run(name+" on "+medium, func(t *testing.T) {
				o := serve(3)
				on(&o)
				provide(&o, v1beta1.TLSCertManager)
				observeIssued(&o, Decide(o))
				lack(&o)
				o.Children.Pods["demo-0"].Status.Phase = corev1.PodFailed
				delete(o.Children.Pods, "demo-1")
				silence(&o, "demo-0")
				silence(&o, "demo-1")
				for _, sees := range []bool{true, false} {
					if !sees {
						o.Etcd, o.Health = nil, nil
					}
					d := Decide(o)
					require.NoError(t, verify(o, d))
					assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
					assert.Contains(t, d.Reason.Message, "waiting for certificates")
					assert.Contains(t, d.Reason.Message, "keeps or recreates pods: ")
					assert.Nil(t, d.Step)
					require.NotNil(t, podIn(d, "demo-1"))
					assert.Equal(t, objects.StartResume, facts.PodStart(podIn(d, "demo-1")))
					assert.NotNil(t, podIn(d, "demo-2"))

					d.Children.Pods = slices.DeleteFunc(d.Children.Pods,
						func(p *corev1.Pod) bool { return p.Name == "demo-1" })
					assert.Error(t, verify(o, d), "the oracle misses it")
				}
			})
		}
	}
}
