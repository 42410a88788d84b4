package hooks

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/safety"
)

// growing is a cluster of three voters that should have five, with a learner that has caught up.
func growing() observation.Observation {
	o := with(serve(3), replicas(5))
	addMember(&o, 3, true)
	o.Children.Pods["demo-3"].Annotations[objects.AnnotationStart] = objects.StartJoin
	list(&o, "demo-3", time.Hour)
	return with(o, nextMember(4))
}

// readied is the same, and demo-4 is made ready to be added: its pod waits on its recorded claim.
func readied() observation.Observation {
	o := growing()
	for range 3 { // the claim, its UID in the record, the pod
		secrets := o.Children.Secrets
		o = stored(o, Decide(o))
		o.Children.Secrets = secrets
	}
	return o
}

// TestVerifySeesWrongDecisions: each is made by hand, in place of what the rules say, and the oracle names what it
// breaks.
func TestVerifySeesWrongDecisions(t *testing.T) {
	promotion := decision.Promote{ID: 4, Name: "demo-3"}
	for name, c := range map[string]struct {
		o      observation.Observation
		wrong  func(d *decision.Decision)
		breaks string
	}{
		"a promotion while the leader is unreachable": {with(growing(), silenced("demo-0")),
			func(d *decision.Decision) { d.Step = promotion }, "while the leader is unreachable"},
		"the removal of a healthy learner that is wanted": {with(growing(), chosen(removal(3))),
			func(d *decision.Decision) { d.Step = decision.Remove{ID: 4, Name: "demo-3"} },
			"a learner that is wanted and that nothing is wrong with"},
		"no Secret with the keys of tokens": {serve(3), func(d *decision.Decision) {
			d.Children.Secrets = without(d.Children.Secrets, defaults.TokenSecret("demo"))
		}, "the Secret demo-token is not in the answer"},
		"no NetworkPolicy": {serve(3), func(d *decision.Decision) { d.Children.Policies = nil },
			"the NetworkPolicy demo is not in the answer"},
		"no budget": {serve(3), func(d *decision.Decision) { d.Children.Budgets = nil },
			"the PodDisruptionBudget demo is not in the answer"},
		"a Service that is gone while all is held back": {with(serve(3), suspending), func(d *decision.Decision) {
			d.Children.Services = d.Children.Services[:1]
		}, "is gone from the answer"},
		"the removal of a member that a person looks at": {with(serve(5), replicas(4), fencing("demo-4"),
			chosen(removal(4))), func(d *decision.Decision) {
			d.Step = decision.Remove{ID: 5, Name: "demo-4"}
		}, "which a person has fenced"},
		"the promotion of a learner that is far behind": {with(growing(), lagging("demo-3")),
			func(d *decision.Decision) { d.Step = promotion }, "which is far behind the leader"},
		"the removal of a member beside one that lags": {with(serve(4), replicas(3), lagging("demo-2"),
			chosen(removal(3))), func(d *decision.Decision) {
			d.Step = decision.Remove{ID: 4, Name: "demo-3"}
		}, "which serves, while another voter does not"},
		"the restart of a member beside one that lags": {with(serve(3), lagging("demo-2"),
			chosen(restart(1))), func(d *decision.Decision) {
			d.Children.Pods = slices.DeleteFunc(d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == "demo-1" })
		}, "the pod demo-1 goes, which serves"},
		"clients in data that is open to all": {with(asking(), func(o *observation.Observation) {
			noted(func(r *record.Record) {
				r.Source = record.SourceClaims
				r.Claim = &record.FormerClaim{}
			})(o)
			delete(o.Children.Pods["demo-1"].Labels, objects.LabelRole)
		}), func(d *decision.Decision) {
			for _, pod := range d.Children.Pods {
				pod.Labels[objects.LabelRole] = "voter"
			}
		}, "clients are led to demo-1 before users and roles are applied to the data of epoch 1"},
		"a certificate that begins tomorrow": {serve(3), func(d *decision.Decision) {
			signLeaf(d, now.Add(24*time.Hour))
		}, "begins in the future"},
		"a certificate by an authority that begins tomorrow": {with(serve(3), func(o *observation.Observation) {
			ca := *o.Children.Secrets[defaults.CASecret("demo")]
			certificate := *ca.Certificate
			certificate.NotBefore = now.Add(24 * time.Hour)
			ca.Certificate = &certificate
			o.Children.Secrets[ca.Name] = &ca
		}), func(d *decision.Decision) { signLeaf(d, now) }, "is not valid yet"},
		"the end of a pod that waits until its member is added": {readied(), func(d *decision.Decision) {
			d.Children.Pods = slices.DeleteFunc(d.Children.Pods, func(p *corev1.Pod) bool { return p.Name == "demo-4" })
		}, "the pod demo-4 goes, in which a member may start"},
		"the end of its claim": {readied(), func(d *decision.Decision) {
			d.Children.Claims = slices.DeleteFunc(d.Children.Claims,
				func(c *corev1.PersistentVolumeClaim) bool { return c.Name == "demo-4" })
		}, "the claim demo-4 goes before its number is recorded, or that nothing starts there"},
		"the start of one that is not added": {readied(), func(d *decision.Decision) {
			podIn(*d, "demo-4").Annotations[objects.AnnotationBegins] = "yes"
		}, "the pod demo-4 may start, and is no new learner's"},
		"a mark that passes one that may start": {readied(), func(d *decision.Decision) {
			recordtest.Edit(d.Children.ConfigMaps[0], func(r *record.Record) { r.NextOrdinal = 5 })
		}, "the mark passes demo-4, which was never added and may start"},
		"one that is not missing": {readied(), func(d *decision.Decision) {
			claim := d.Children.Claims[0].DeepCopy()
			claim.Name = "demo-5"
			claim.UID = ""
			d.Children.Claims = append(d.Children.Claims, claim)
		}, "a new claim for demo-5, and enough members are made ready"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.o)
			require.NoError(t, verify(c.o, d), "what the rules say")
			c.wrong(&d)
			assert.ErrorContains(t, verify(c.o, d), c.breaks)
		})
	}
}

func without(list []*decision.DesiredSecret, name string) (left []*decision.DesiredSecret) {
	for _, s := range list {
		if s.Name != name {
			left = append(left, s)
		}
	}
	return left
}

// signLeaf has the servers' certificate made again.
func signLeaf(d *decision.Decision, begins time.Time) {
	for _, s := range d.Children.Secrets {
		if s.Name == "demo-server-tls" {
			s.Make = decision.Leaf{Signer: defaults.CASecret("demo"), NotBefore: begins, NotAfter: begins.Add(time.Hour)}
		}
	}
}

// lagging lets a snapshot be on its way to the member.
func lagging(name string) fact {
	return func(o *observation.Observation) {
		for member, h := range o.Health {
			if h.RaftIndex = 1_000_000; member == name {
				h.RaftIndex -= 5001
			}
			o.Health[member] = h
		}
	}
}

// TestWhoKeepsPaceIsPromotedAndCounts: a member that is as far behind as one under load may be serves.
func TestWhoKeepsPaceIsPromotedAndCounts(t *testing.T) {
	o := with(learnerAt(0), lagging("demo-3"))
	assert.Nil(t, Decide(o).Step)
	assert.Contains(t, Decide(o).Reason.Message, "waiting for the learner demo-3 to catch up")
	h := o.Health["demo-3"]
	h.RaftIndex++
	o.Health["demo-3"] = h
	assert.Equal(t, decision.Promote{ID: 4, Name: "demo-3"}, Decide(o).Step)
}

// fencing has an operation fence the member.
func fencing(name string) fact {
	return func(o *observation.Observation) {
		fence := &v1beta1.EtcdOperation{}
		fence.Name, fence.UID, fence.Namespace = "fence", "uid-fence", o.Cluster.Namespace
		fence.Finalizers = []string{"kept"}
		fence.Spec.ClusterRef.Name, fence.Spec.Type = o.Cluster.Name, v1beta1.OperationFence
		fence.Spec.Fence = &v1beta1.FenceOperation{Members: []string{name}}
		o.Related.Operations = map[string]*v1beta1.EtcdOperation{fence.Name: fence}
	}
}

// TestVerifySeesWrongFinalizations: a cluster that is being deleted takes nothing along before its time, and waits for
// nothing.
func TestVerifySeesWrongFinalizations(t *testing.T) {
	o := serve(3)
	o.Cluster.DeletionTimestamp = &metav1.Time{Time: now}
	o.Cluster.Spec.DeletionPolicy = v1beta1.DeletionDelete
	remaining, finalized := answer.Finalize(o)
	require.NoError(t, safety.Finalize(o, remaining, finalized))

	assert.ErrorContains(t, safety.Finalize(o, remaining, false), "the deletion is held up")
	fewer := remaining
	fewer.Claims = fewer.Claims[1:]
	assert.ErrorContains(t, safety.Finalize(o, fewer, true), "PersistentVolumeClaim demo-0 goes before its owner")
	more := remaining
	more.Pods = append(more.Pods, o.Children.Pods["demo-0"].DeepCopy())
	more.Pods[len(more.Pods)-1].Name = "demo-9"
	assert.ErrorContains(t, safety.Finalize(o, more, true), "Pod demo-9 is made")

	o.Cluster.Spec.DeletionPolicy = ""
	remaining, finalized = answer.Finalize(o)
	require.NoError(t, safety.Finalize(o, remaining, finalized))
	assert.ErrorContains(t, safety.Finalize(o, remaining, true), "takes claims along")
}

// TestVerifySeesABelievedForgery: what would be decided if a record without a seal were believed breaks a rule, be it
// of an epoch that has taken over or of the one that runs, and so does a decision that seals it.
func TestVerifySeesABelievedForgery(t *testing.T) {
	o := serve(3)
	genuine := o.Children.ConfigMaps["demo-epoch-1"]
	for name, after := range map[string]int{"taken over": 1, "begun": 0} {
		t.Run(name, func(t *testing.T) {
			forged := *genuine
			forged.Name = "demo-epoch-2"
			recordtest.Edit(&forged, func(r *record.Record) {
				r.After = after
				r.First = 3
				r.Initial = map[string]string{"demo-3": "x"}
				r.Phase = record.PhaseBegan
			})
			o := o
			o.Children.ConfigMaps = map[string]*corev1.ConfigMap{genuine.Name: genuine, forged.Name: &forged}
			believed := Decide(o)
			o.Unsealed = []string{forged.Name}
			assert.ErrorContains(t, verify(o, believed), "S8")

			d := Decide(o)
			require.NoError(t, verify(o, d))
			assert.Equal(t, "Converged", d.Reason.Rule)
			assert.Len(t, d.Children.ConfigMaps, 1, "it goes, while the etcd of the epoch before answers")
			assert.Len(t, d.Children.Pods, 3)

			o.Etcd = nil
			o.Health = nil
			assert.ErrorContains(t, verify(o, believed), "has no seal")
			d = Decide(o)
			require.NoError(t, verify(o, d))
			assert.Equal(t, "RecordRefused", d.Reason.Rule)
			assert.Len(t, d.Children.Pods, 3)
		})
	}
	t.Run("sealed", func(t *testing.T) {
		o := o
		o.Unsealed, o.Cluster.Status.ClusterID = []string{genuine.Name}, ""
		d := Decide(o)
		require.NoError(t, verify(o, d))
		cm := d.Children.ConfigMaps[0]
		cm.Annotations = objects.With(cm.Annotations, record.AnnotationSeal, "x")
		assert.ErrorContains(t, verify(o, d), "is changed, which has no seal")
		o.Cluster.Status.ClusterID = objects.Hex(o.Etcd.ClusterID)
		d = Decide(o)
		require.NoError(t, verify(o, d))
		assert.Empty(t, d.Children.ConfigMaps, "it is of the etcd that answers, and is written again")
		o.Cluster.Status.ClusterID = "1"
		assert.ErrorContains(t, verify(o, d), "goes, and the record")
	})
}
