package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
	"github.com/quorate-dev/quorate/hooks/wording"
)

var fromCertManager = v1alpha1.TLSSpec{Mode: v1alpha1.TLSCertManager,
	CertManager: &v1alpha1.CertManagerTLS{IssuerRef: v1alpha1.IssuerRef{Name: "ours"}}}

// issued is a cluster of n voters that serves with certificates of an issuer's.
func issued(n int) observation.Observation {
	o := serve(n)
	provide(&o, v1alpha1.TLSCertManager)
	observeIssued(&o, Decide(o))
	return o
}

// provide makes the cluster one whose certificates come from others, and have from its beginning.
func provide(o *observation.Observation, from v1alpha1.TLSMode) {
	if o.Related.Secrets != nil || o.Children.Secrets == nil {
		return
	}
	o.Settings.SharedIssuers = true
	o.Related.Secrets = map[string]*observation.Secret{}
	for name, s := range o.Children.Secrets {
		if s.Certificate != nil {
			delete(o.Children.Secrets, name)
			if name != spec.CASecret("demo") {
				o.Related.Secrets[name] = s
			}
		}
	}
	o.Cluster.Spec.TLS = v1alpha1.TLSSpec{Mode: from,
		Secrets: &v1alpha1.SecretsTLS{ServerSecretRef: v1alpha1.SecretRef{Name: "demo-server-tls"},
			PeerSecretRef:     v1alpha1.SecretRef{Name: "demo-peer-tls"},
			OperatorSecretRef: v1alpha1.SecretRef{Name: "demo-operator-tls"}}}
	if from == v1alpha1.TLSCertManager {
		o.Cluster.Spec.TLS, o.Children.Certificates = fromCertManager, map[string]*decision.CertManagerCertificate{}
	}
	issue(o, authority("A", "a"), authority("A", "a"))
	for name, pod := range o.Children.Pods {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[objects.AnnotationTemplate] = children.TemplateNow(newView(*o), "3.6.16")
		if certificates.Secret(newView(*o), "demo-server-tls") != nil && o.Health[name].Err == "" {
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
		s.Anchors = wording.Filter(trust, func(a observation.Certificate) bool { return a.Key == signer.Key })
		if len(s.Anchors) == 0 {
			s.Flaw = "tls.crt is not signed by an authority in ca.crt"
		}
		o.Related.Secrets[name] = &s
	}
	server := certificates.Secret(newView(*o), "demo-server-tls")
	for name, h := range o.Health { // the kubelet has written it
		if server != nil && h.Err == "" {
			h.Certificate = server.Certificate.ID
			o.Health[name] = h
		}
	}
}

// begin lets the member's etcd start with what is in the Secrets now, in a new pod.
func begin(o *observation.Observation, name string) {
	o.Children.Pods[name].Annotations[objects.AnnotationTrusts] = state.FormatPairs(certificates.Trusted(newView(*o)),
		":")
	shakeHands(o, name)
}

// restarted lets Roll restart members, one at a time, as long as it wants to, and returns who was.
func restarted(t *testing.T, o *observation.Observation) []string {
	t.Helper()
	var all []string
	for Decide(*o).Reason.Rule == "RollingUpdate" && len(all) < 10 {
		name := rolled(t, o)
		begin(o, name)
		all = append(all, name)
	}
	return all
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
		assert.Equal(t, v1alpha1.IssuerRef{Name: "ours", Kind: "Issuer", Group: "cert-manager.io"}, c.Spec.IssuerRef)
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
	remaining, _ := Finalize(o)
	assert.Len(t, remaining.Certificates, 4)
}

func TestAnIssuersRenewalRestartsNoMember(t *testing.T) {
	o := issued(3)
	before := o.Children.Pods["demo-0"].Annotations[objects.AnnotationServes]
	o.Related.Secrets["demo-server-tls"].Certificate.ID = "the next one"
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.NotEqual(t, before, d.Children.Pods[0].Annotations[objects.AnnotationServes],
		"the kubelet is to write it at once")
	assert.NotEmpty(t, d.Children.Pods[0].Annotations[objects.AnnotationTrusts])
}

func TestAnotherAuthorityWithOverlap(t *testing.T) {
	o := issued(3)
	a, b := authority("A", "a"), authority("B", "b")
	issue(&o, a, a, b)
	assert.Equal(t, []string{"demo-1", "demo-2", "demo-0"}, restarted(t, &o), "one at a time, the leader last")
	issue(&o, b, a, b)
	assert.Equal(t, "Converged", Decide(o).Reason.Rule, "every member trusts both already")
	issue(&o, b, b)
	assert.Len(t, restarted(t, &o), 3)
	assert.Equal(t, "Converged", Decide(o).Reason.Rule)
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
			reason, _, secured := status.Security(newView(o))
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

func TestALeafOfAnAuthorityThatIsNotKnownYet(t *testing.T) {
	o := issued(3)
	a, b := authority("A", "a"), authority("B", "b")
	issue(&o, b, a, b) // too early: both at once
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "WaitForCertificates", d.Reason.Rule)

	// A decision that restarts a member all the same is found out.
	d.Children.Pods = slices.DeleteFunc(d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == "demo-1" })
	require.ErrorContains(t, verify(o, d), "S19: a member is to show others the certificate in Secret demo-server-tls")

	issue(&o, a, a, b)
	assert.Len(t, restarted(t, &o), 3, "put back, it goes on")
}

func TestAnAuthorityRenewedWithItsKey(t *testing.T) {
	o := issued(3)
	renewed := authority("A", "a")
	renewed.ID = "A with a, until later"
	issue(&o, renewed, renewed)
	assert.Len(t, restarted(t, &o), 3, "what they have in memory ends when the former certificate does")
}

func TestEveryMemberShowsTheNewestBeforeAnyIsRestarted(t *testing.T) {
	o := issued(3)
	a, b := authority("A", "a"), authority("B", "b")
	issue(&o, a, a, b)
	h := o.Health["demo-2"]
	h.Certificate = "an older one"
	o.Health["demo-2"] = h
	assert.Equal(t, "Converged", Decide(o).Reason.Rule)
	h.Certificate = certificates.Secret(newView(o), "demo-server-tls").Certificate.ID
	o.Health["demo-2"] = h
	assert.Equal(t, "RollingUpdate", Decide(o).Reason.Rule)
}

func TestAnEtcdThatWasStartedAgainHasReadItsFiles(t *testing.T) {
	o := issued(3)
	next := authority("A", "b")
	issue(&o, next, next)
	for _, pod := range o.Children.Pods {
		pod.Status.ContainerStatuses[0].RestartCount = 1
	}
	assert.Equal(t, "Converged", Decide(o).Reason.Rule, "what the pod was made with says nothing any more")
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

func TestAnotherAuthorityForOneOrTwoGoesThroughANewMember(t *testing.T) {
	for n := range 2 {
		o := issued(n + 1)
		a, b := authority("A", "a"), authority("B", "b")
		issue(&o, a, a, b)
		d := Decide(o)
		require.NoError(t, verify(o, d))
		assert.Equal(t, "Grow", d.Reason.Rule, d.Reason.Message)
		issue(&o, b, b)
		assert.Equal(t, "WaitForCertificates", Decide(o).Reason.Rule, "a new member would hear no other")
	}
}
