package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
)

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
		relate(o, "demo-peer-tls",
			func(s *observation.Secret) { s.Trust, s.Anchors = nil, nil })
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
				provide(&o, v1alpha1.TLSCertManager)
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
					assert.Equal(t, objects.StartResume, state.PodStart(podIn(d, "demo-1")))
					assert.NotNil(t, podIn(d, "demo-2"))

					d.Children.Pods = slices.DeleteFunc(d.Children.Pods,
						func(p *corev1.Pod) bool { return p.Name == "demo-1" })
					assert.Error(t, verify(o, d), "the oracle misses it")
				}
			})
		}
	}
}

// TestBeginningsNeedCertificates: no member is begun while any is lacking.
func TestBeginningsNeedCertificates(t *testing.T) {
	for name, lack := range lackings {
		t.Run(name, func(t *testing.T) {
			o := serve(3)
			addMember(&o, 3, true)
			o.Etcd.Members[3].Name, o.Etcd.Members[3].ClientURLs = "", nil
			provide(&o, v1alpha1.TLSCertManager)
			observeIssued(&o, Decide(o))
			delete(o.Children.Pods, "demo-3")
			silence(&o, "demo-3")
			record := o.Children.ConfigMaps["demo-epoch-1"]
			record.Annotations[objects.AnnotationStartsOn] += ",demo-3:" + string(o.Children.Claims["demo-3"].UID)
			require.Equal(t, objects.StartJoin, state.PodStart(podIn(Decide(o), "demo-3")))

			lack(&o)
			d := Decide(o)
			require.NoError(t, verify(o, d))
			assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
			assert.Nil(t, podIn(d, "demo-3"))
		})
	}
}

// TestWhatAPodWasMadeWith: what it trusts is not said of a pod that mounts what Quorate can't see.
func TestWhatAPodWasMadeWith(t *testing.T) {
	o := issued(3)
	delete(o.Children.Pods, "demo-1")
	silence(&o, "demo-1")
	assert.NotEmpty(t, podIn(Decide(o), "demo-1").Annotations[objects.AnnotationTrusts])
	for _, secret := range []string{"demo-server-tls", "demo-peer-tls"} {
		unseen := o.Related.Secrets[secret]
		delete(o.Related.Secrets, secret)
		pod := podIn(Decide(o), "demo-1")
		_, known := certificates.BegunWith(pod)
		assert.False(t, known)
		o.Related.Secrets[secret] = unseen
	}
}

// TestForeignSecretsWithholdNoPod: those by which Quorate talks with foreign members are no pod's.
func TestForeignSecretsWithholdNoPod(t *testing.T) {
	o := besideThree(3)
	o.Cluster.Spec.TLS.Mode = v1alpha1.TLSAuto
	withCertificates(&o)
	o.Cluster.Spec.Bootstrap.Existing = &v1alpha1.ExistingCluster{
		Endpoints: []string{"https://old-0:2379"},
		TLS:       &v1alpha1.ExistingTLS{SecretRef: v1alpha1.SecretRef{Name: "theirs"}},
	}
	delete(o.Children.Pods, "demo-1")
	silence(&o, "demo-1")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "WaitForCertificates", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "Secret theirs: it does not exist")
	assert.NotNil(t, podIn(d, "demo-1"))
}
