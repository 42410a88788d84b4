package hooks

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
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
func revoking(id string, serials ...string) *observation.Secret {
	return &observation.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Keys: []string{objects.KeyCRL},
		CRL: &observation.CRL{ID: id, Serials: serials}}
}

// revokes has the spec name the Secret "revoked", with these serials.
func revokes(o *observation.Observation, serials ...string) {
	o.Cluster.Spec.TLS.ClientCRLSecretRef = &v1beta1.SecretRef{Name: "revoked"}
	o.Related.Secrets = map[string]*observation.Secret{"revoked": revoking("list of revoked", serials...)}
}

// decided is the decision about what is observed, with its Secrets made.
func decided(t *testing.T, o *observation.Observation) decision.Decision {
	t.Helper()
	d := Decide(*o)
	require.NoError(t, verify(*o, d))
	forge(o, d.Children.Secrets)
	return d
}

// listed is a cluster of which every member has the list.
func listed(t *testing.T) observation.Observation {
	t.Helper()
	o := serve(3)
	revokes(&o, "7")
	assert.Equal(t, decision.Revoked{From: "revoked"}, recipes(decided(t, &o))[copied])
	d := decided(t, &o)
	assert.Empty(t, recipes(d))
	assert.Contains(t, d.Reason.Message, "it has no list of revoked clients yet")
	remade(o)
	assert.Contains(t, o.Children.Pods["demo-0"].Spec.Containers[0].Command,
		"--client-crl-file=/etc/etcd/pki/clients/ca.crl")
	assert.Equal(t, "Converged", decided(t, &o).Reason.Rule)
	return o
}

// remade puts pods as they are made now in the place of those that run.
func remade(o observation.Observation) {
	for name, was := range o.Children.Pods {
		pod := answer.Pod(facts.New(o), name, objects.StartResume, answer.ResumeEnv())
		pod.ObjectMeta = *was.ObjectMeta.DeepCopy()
		pod.Annotations[objects.AnnotationServes] = facts.New(o).Serves
		pod.Spec.NodeName = was.Spec.NodeName
		pod.Status = was.Status
		o.Children.Pods[name] = pod
	}
}

// TestClientsAreRevoked: a running cluster gets the list by a roll, another list without one, and gives it back by one.
func TestClientsAreRevoked(t *testing.T) {
	o := listed(t)
	before := facts.New(o).Serves
	o.Related.Secrets["revoked"].CRL.ID = "another list"
	assert.Equal(t, decision.Revoked{From: "revoked"}, recipes(decided(t, &o))[copied])
	o.Children.Secrets[copied].CRL.ID = "another list"
	d := Decide(o)
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.NotEqual(t, before, podIn(d, "demo-0").Annotations[objects.AnnotationServes], "kubelets bring it up at once")

	o.Cluster.Spec.TLS.ClientCRLSecretRef = nil
	d = decided(t, &o)
	assert.Contains(t, d.Reason.Message, "no list of revoked clients is asked for any more")
	remade(o)
	assert.Equal(t, "Converged", decided(t, &o).Reason.Rule)

	d = Decide(o)
	d.Children.Secrets = slices.DeleteFunc(d.Children.Secrets,
		func(s *decision.DesiredSecret) bool { return s.Name == copied })
	require.ErrorContains(t, verify(o, d), "S13: the Secret demo-client-crl is not in the answer",
		"a pod may have it that is not seen yet")

	revokes(&o)
	clear(o.Related.Secrets)
	assert.Equal(t, "Converged", decided(t, &o).Reason.Rule, "what is left over is in use no more")
	assert.Contains(t, answer.Advice(facts.New(o)), "no client is revoked by it")
}

// TestAListThatIsGone: members are led away from a list that neither the spec's Secret nor ours has any more.
func TestAListThatIsGone(t *testing.T) {
	o := listed(t)
	clear(o.Related.Secrets)
	assert.Equal(t, "Converged", decided(t, &o).Reason.Rule)
	delete(o.Children.Secrets, copied)
	assert.Contains(t, decided(t, &o).Reason.Message, "its list of revoked clients is gone")
	remade(o)
	assert.Equal(t, "Converged", decided(t, &o).Reason.Rule)

	o = listed(t)
	delete(o.Children.Secrets, copied)
	assert.Equal(t, "Converged", decided(t, &o).Reason.Rule, "it is made again at once")
	assert.NotNil(t, o.Children.Secrets[copied])
}

// unusable are the ways in which a list can't be used, by what is said.
var unusable = map[string]func(o *observation.Observation){
	"Secret revoked, which spec.tls.clientCRLSecretRef names, does not exist": func(o *observation.Observation) {
		delete(o.Related.Secrets, "revoked")
	},
	"Secret revoked has no ca.crl": func(o *observation.Observation) { o.Related.Secrets["revoked"].CRL = nil },
	"Secret revoked: ca.crl is no list": func(o *observation.Observation) {
		o.Related.Secrets["revoked"].CRL.Flaw = "ca.crl is no list"
	},
}

// TestAListThatCantBeUsed changes nothing in a cluster that runs, and a new one waits for one that can.
func TestAListThatCantBeUsed(t *testing.T) {
	for says, spoils := range unusable {
		o := serve(3)
		revokes(&o, "7")
		spoils(&o)
		d := decided(t, &o)
		assert.Equal(t, "Converged", d.Reason.Rule, says)
		assert.Empty(t, recipes(d), says)
		assert.Contains(t, answer.Advice(facts.New(o)), says)
		assert.Contains(t, answer.Advice(facts.New(o)), "no client is revoked by it")

		o = listed(t)
		spoils(&o)
		assert.Equal(t, "Converged", decided(t, &o).Reason.Rule, says)
		assert.Contains(t, answer.Advice(facts.New(o)), "the list before it stays in effect")

		o = fresh(1)
		observeRecord(&o, 1)
		addClaim(&o, 0)
		neverQuorate(&o)
		revokes(&o, "7")
		spoils(&o)
		d = decided(t, &o)
		assert.Empty(t, d.Children.Pods, says)
		assert.Contains(t, d.Reason.Message, says)
		there := o.Related.Secrets["revoked"] != nil
		assert.Equal(t, there, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Stalled), "it may still come")
		revokes(&o, "7")
		d = decided(t, &o)
		assert.Empty(t, d.Children.Pods)
		assert.Contains(t, d.Reason.Message, "Secret demo-client-crl: it is not there yet")
		d = decided(t, &o)
		require.Len(t, d.Children.Pods, 1)
		assert.True(t, facts.TLSFlagsOf(d.Children.Pods[0]).Revokes)
	}
}

// TestARestoreDoesNotWaitForAList: the next epoch begins whatever has become of the list.
func TestARestoreDoesNotWaitForAList(t *testing.T) {
	for says, spoils := range unusable {
		o := fresh(1)
		observeRecord(&o, 2)
		addClaim(&o, 0)
		revokes(&o, "7")
		spoils(&o)
		assert.NotContains(t, decided(t, &o).Reason.Message, says)
	}
}

// TestAListThatNamesOurs: what Quorate has made is made again before the list is in effect, and what others have made
// is told to them.
func TestAListThatNamesOurs(t *testing.T) {
	for _, secret := range []string{"demo-operator-tls", "demo-server-tls", "demo-client-tls"} {
		o := serve(3)
		revokes(&o, o.Children.Secrets[secret].Serials...)
		ours := secret != "demo-client-tls"
		d := decided(t, &o)
		leaf, is := recipes(d)[secret].(decision.Leaf)
		assert.True(t, is, "%s: %v", secret, leaf)
		assert.Equal(t, ours, recipes(d)[copied] == nil, "not before it is made again")
		if ours {
			o.Children.Secrets[secret].Serials = []string{"new"}
			assert.NotNil(t, recipes(decided(t, &o))[copied])
		}
	}
	o := serve(3)
	provide(&o, v1beta1.TLSSecrets)
	o.Cluster.Spec.TLS.ClientCRLSecretRef = &v1beta1.SecretRef{Name: "revoked"}
	o.Related.Secrets["revoked"] = revoking("list of revoked", "7")
	decided(t, &o)
	o.Related.Secrets["revoked"] = revoking("another list", "cd")
	for _, l := range facts.New(o).Leaves {
		if l.What == "operator" {
			o.Related.Secrets[l.Secret].Serials = []string{"ab", "cd"}
		}
	}
	assert.Contains(t, answer.Advice(facts.New(o)), "by which Quorate or the members themselves reach etcd: replace that "+
		"first; the list before it stays in effect")
	o.Children.Secrets[copied] = revoking("this list", "cd")
	o.Children.Secrets[copied].Annotations = map[string]string{objects.AnnotationMadeFor: "revoked"}
	assert.Contains(t, answer.Advice(facts.New(o)), "members refuse it already")
}
