package hooks

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

const copied = "demo-client-crl"

// revoking is a Secret with a list of revoked certificates.
func revoking(name string, serials ...string) *observation.Secret {
	return &observation.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Keys: []string{objects.KeyCRL}, CRL: &observation.CRL{ID: "list of " + name, Serials: serials}}
}

// revokes has the spec name the Secret "revoked", with these serials.
func revokes(o *observation.Observation, serials ...string) {
	o.Cluster.Spec.TLS.ClientCRLSecretRef = &v1beta1.SecretRef{Name: "revoked"}
	o.Related.Secrets = map[string]*observation.Secret{"revoked": revoking("revoked", serials...)}
}

// decided is the decision about what is observed, with its Secrets made.
func decided(t *testing.T, o *observation.Observation) decision.Decision {
	t.Helper()
	d := Decide(*o)
	require.NoError(t, verify(*o, d))
	forge(o, d.Children.Secrets)
	return d
}

// TestClientsAreRevoked: a running cluster gets the list by a roll, another list without one, and gives it back by one.
func TestClientsAreRevoked(t *testing.T) {
	o := serve(3)
	revokes(&o, "7")
	assert.Equal(t, decision.Revoked{From: "revoked"}, recipes(decided(t, &o))[copied])
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Empty(t, recipes(d))
	assert.Contains(t, d.Reason.Message, "it has no list of revoked clients yet")
	for name := range o.Children.Pods {
		o.Children.Pods[name] = madeAgain(o, name)
	}
	assert.Contains(t, o.Children.Pods["demo-0"].Spec.Containers[0].Command,
		"--client-crl-file=/etc/etcd/pki/clients/ca.crl")
	before := facts.New(o).Serves
	assert.Equal(t, "Converged", Decide(o).Reason.Rule)

	o.Related.Secrets["revoked"].CRL.ID = "another list"
	d = decided(t, &o)
	assert.Equal(t, decision.Revoked{From: "revoked"}, recipes(d)[copied])
	o.Children.Secrets[copied].CRL.ID = "another list"
	d = Decide(o)
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.NotEqual(t, before, podIn(d, "demo-0").Annotations[objects.AnnotationServes], "kubelets bring it up at once")

	o.Cluster.Spec.TLS.ClientCRLSecretRef = nil
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Contains(t, d.Reason.Message, "no list of revoked clients is asked for any more")
	require.Contains(t, keptSecrets(d), copied, "pods have it")
	for i, s := range d.Children.Secrets {
		if s.Name == copied {
			d.Children.Secrets[i] = d.Children.Secrets[0]
		}
	}
	require.ErrorContains(t, verify(o, d), "S13: the Secret demo-client-crl is not in the answer")
}

// madeAgain is the pod of a member as it is made now, in the place of the one that runs.
func madeAgain(o observation.Observation, name string) *corev1.Pod {
	was := o.Children.Pods[name]
	pod := answer.Pod(facts.New(o), name, objects.StartResume, answer.ResumeEnv())
	pod.UID = was.UID
	pod.ResourceVersion = was.ResourceVersion
	pod.CreationTimestamp = was.CreationTimestamp
	pod.Namespace = was.Namespace
	pod.OwnerReferences = was.OwnerReferences
	pod.Spec.NodeName = was.Spec.NodeName
	pod.Labels = was.Labels
	pod.Status = was.Status
	return pod
}

func keptSecrets(d decision.Decision) []string {
	var names []string
	for _, s := range d.Children.Secrets {
		names = append(names, s.Name)
	}
	return names
}

// TestAListThatCantBeUsed changes nothing in a cluster that runs, and a new one waits for one that can.
func TestAListThatCantBeUsed(t *testing.T) {
	for says, spoils := range map[string]func(o *observation.Observation){
		"Secret revoked, which spec.tls.clientCRLSecretRef names, does not exist": func(o *observation.Observation) {
			delete(o.Related.Secrets, "revoked")
		},
		"Secret revoked has no ca.crl": func(o *observation.Observation) { o.Related.Secrets["revoked"].CRL = nil },
		"Secret revoked: ca.crl is no list": func(o *observation.Observation) {
			o.Related.Secrets["revoked"].CRL.Flaw = "ca.crl is no list"
		},
		"ca.crl names the certificate in Secret demo-operator-tls": func(o *observation.Observation) {
			o.Related.Secrets["revoked"].CRL.Serials = []string{"ab"}
			o.Children.Secrets["demo-operator-tls"].Certificate.Serial = "ab"
		},
		"ca.crl names the certificate in Secret demo-server-tls": func(o *observation.Observation) {
			o.Related.Secrets["revoked"].CRL.Serials = []string{"cd"}
			o.Children.Secrets["demo-server-tls"].Certificate.Serial = "cd"
		},
	} {
		o := serve(3)
		revokes(&o, "7")
		spoils(&o)
		d := decided(t, &o)
		assert.Equal(t, "Converged", d.Reason.Rule, says)
		assert.Empty(t, recipes(d), says)
		assert.Contains(t, answer.Advice(facts.New(o)), says)
		assert.Contains(t, answer.Advice(facts.New(o)), "no client is revoked")

		o.Children.Secrets[copied] = revoking(copied, "5")
		assert.Contains(t, answer.Advice(facts.New(o)), "the list before it stays in effect")
		assert.Contains(t, keptSecrets(decided(t, &o)), copied)

		o = fresh(1)
		observeRecord(&o, 1)
		addClaim(&o, 0)
		neverQuorate(&o)
		revokes(&o, "7")
		spoils(&o)
		d = decided(t, &o)
		assert.Empty(t, d.Children.Pods, says)
		assert.Contains(t, d.Reason.Message, says)
	}
}
