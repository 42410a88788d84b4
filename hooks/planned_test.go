package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// bootstrap is a cluster whose initial members have volumes and no pods yet.
func bootstrap(facts ...fact) observation.Observation {
	o := fresh(3)
	observeRecord(&o, 3)
	for i := range 3 {
		addClaim(&o, i)
	}
	neverQuorate(&o)
	return with(o, facts...)
}

// stood is a pod that is told of as one that has been made, and whose etcd has not started.
func stood(pod *corev1.Pod, preparedWith string) {
	pod.UID, pod.Spec.NodeName = "uid-"+pod.UID, "node"
	pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerPrepare,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: preparedWith}}}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd, State: corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
}

// unpulled has the initial members have pods, whose image can't be pulled; found is what prepare has said there.
func unpulled(found string) observation.Observation {
	o := bootstrap()
	observe(&o, Decide(o))
	for _, pod := range o.Children.Pods {
		stood(pod, found)
	}
	return o
}

// TestNothingHasRunIsProven: a version two minor versions away is taken before the first quorum only on proof.
func TestNothingHasRunIsProven(t *testing.T) {
	proven := unpulled(objects.NothingFound)
	require.Empty(t, facts.New(proven).Unproven())
	recorded := func(o observation.Observation, asked string) string {
		o = with(o, version(asked))
		d := Decide(o)
		assert.NoError(t, verify(o, d))
		return recordOf(d).Version
	}
	assert.Equal(t, "3.7.3", recorded(proven, "3.7.3"))
	for name, change := range map[string]fact{
		"prepare has found data": func(o *observation.Observation) { *o = unpulled("") },
		"a pod is not seen":      withoutPod("demo-1"),
		"nothing is told of it":  func(o *observation.Observation) { o.Children.Pods["demo-0"].Status = corev1.PodStatus{} },
		"one has run": func(o *observation.Observation) {
			o.Children.Pods["demo-2"].Status.ContainerStatuses[0].RestartCount = 1
		},
	} {
		o := with(unpulled(objects.NothingFound), change)
		if name == "a pod is not seen" {
			o.Children.Claims["demo-1"].Status.Phase = corev1.ClaimBound
		}
		assert.NotEmpty(t, facts.New(o).Unproven(), name)
		assert.Equal(t, "3.6.16", recorded(o, "3.7.3"), name)
		assert.Equal(t, "3.6.17", recorded(o, "3.6.17"), "another patch release")
	}
	unbound := bootstrap(version("3.7.3"))
	assert.Empty(t, facts.New(unbound).Unproven(), "no volume has been made")
	unbound.Children.Claims["demo-1"].Status.Phase = corev1.ClaimBound
	assert.Equal(t, []string{"demo-1"}, facts.New(unbound).Unproven())
}

// TestTheFirstQuorumSaysItsVersion: whatever the record came to say meanwhile.
func TestTheFirstQuorumSaysItsVersion(t *testing.T) {
	o := with(serve(3), neverQuorate, noted(func(r *record.Record) { r.Version = "3.7.3" }))
	o = with(o, version("3.7.3"), everyone(func(h *observation.Health) { h.Version = "3.5.26" }))
	d := Decide(o)
	assert.NoError(t, verify(o, d))
	assert.Equal(t, "3.5.26", recordOf(d).Version)
}

// TestVerifySeesWhatEpochsArePlannedWith: wrong decisions that are made by hand.
func TestVerifySeesWhatEpochsArePlannedWith(t *testing.T) {
	type wrong = func() (observation.Observation, decision.Decision)
	restoring := func() (observation.Observation, decision.Decision) {
		o := serve(3)
		verified(&o, "s1", "c1", time.Hour)
		askSnapshot(&o, "one", "s1")
		return o, Decide(o)
	}
	staged := func(change func(*corev1.Pod)) wrong {
		return func() (observation.Observation, decision.Decision) {
			o := preparedEpoch(t)
			for name := range o.Children.Pods {
				if facts.New(o).Next.Epoch.Initial[name] != "" {
					delete(o.Children.Pods, name)
				}
			}
			d := Decide(o)
			change(podIn(d, "demo-3"))
			return o, d
		}
	}
	for words, decide := range map[string]wrong{
		"S8: epoch 2 is recorded although a quorum answers": func() (observation.Observation, decision.Decision) {
			o := serve(3)
			f := facts.New(o)
			from := record.Origin{Source: record.SourceSurvivor, SurvivorsOf: 1}
			d := Decide(o)
			d.Children.ConfigMaps = append(d.Children.ConfigMaps, rules.RecordNextEpoch(f, from, "").NextEpoch)
			return o, d
		},
		"S8: epoch 2 answers the restore \"one\", which no operation asks for": func() (observation.Observation,
			decision.Decision) {
			o, d := restoring()
			o.Related.Operations = nil
			return o, d
		},
		"S8: epoch 2 begins with other data than the restore \"one\" names": func() (observation.Observation,
			decision.Decision) {
			o, d := restoring()
			recordtest.Edit(d.Children.ConfigMaps[1], func(r *record.Record) { r.Source = record.SourceEmpty })
			return o, d
		},
		"S18: epoch 2 is to run 3.8.0, and epoch 1 has 3.6.16": func() (observation.Observation, decision.Decision) {
			o, d := restoring()
			recordtest.Edit(d.Children.ConfigMaps[1], func(r *record.Record) { r.Version = "3.8.0" })
			return o, d
		},
		"S18: epoch 2, which has not begun, is to run 3.7.3 instead of 3.6.16": func() (observation.Observation,
			decision.Decision) {
			o := preparedEpoch(t)
			d := Decide(o)
			recordtest.Edit(d.Children.ConfigMaps[1], func(r *record.Record) { r.Version = "3.7.3" })
			return o, d
		},
		"S18: demo-3 is given the image gcr.io/etcd-development/etcd:v3.7.3": func() (observation.Observation,
			decision.Decision) {
			o := preparedEpoch(t)
			d := Decide(o)
			podIn(d, "demo-3").Spec.Containers = []corev1.Container{{Name: objects.ContainerEtcd,
				Image: "gcr.io/etcd-development/etcd:v3.7.3"}}
			return o, d
		},
		"S18: a new pod demo-3 has the image another:v3.6.16": staged(func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "another:v3.6.16"
		}),
		"S8: a new pod demo-3 is at https://elsewhere:2380": staged(func(p *corev1.Pod) {
			p.Spec.Containers[0].Command = []string{"--initial-advertise-peer-urls=https://elsewhere:2380"}
		}),
		"S18: a new pod demo-3 is filled by ": staged(func(p *corev1.Pod) { seedOf(p).Image = "another:v3.6.16" }),
		"S5: a new pod demo-1 is led clients to": func() (observation.Observation, decision.Decision) {
			o := with(serve(3), withoutPod("demo-1"))
			d := Decide(o)
			podIn(d, "demo-1").Labels[objects.LabelRole] = facts.RoleVoter
			return o, d
		},
		"S9: a new pod demo-1 is at ": func() (observation.Observation, decision.Decision) {
			o := with(serve(3), withoutPod("demo-1"))
			d := Decide(o)
			podIn(d, "demo-1").Spec.Containers[0].Command = nil
			return o, d
		},
		"S18: the version goes from 3.6.16 to 3.7.3, and [demo-0 demo-1 demo-2] may have run": func() (
			observation.Observation, decision.Decision) {
			o := with(unpulled(""), version("3.7.3"))
			d := Decide(o)
			recordtest.Edit(d.Children.ConfigMaps[0], func(r *record.Record) { r.Version = "3.7.3" })
			return o, d
		},
		"S18: enable the downgrade to 3.1.0, and the members run 3.6.16": func() (observation.Observation,
			decision.Decision) {
			o := serve(3)
			d := Decide(o)
			d.Step = decision.EnableDowngrade{Version: "3.1.0"}
			return o, d
		},
	} {
		t.Run(words, func(t *testing.T) { assert.ErrorContains(t, verify(decide()), words) })
	}
}

// TestWhoEndedAsFailedAsksForNothing: the epoch that was prepared for it does not begin, also when what failed it is
// taken back.
func TestWhoEndedAsFailedAsksForNothing(t *testing.T) {
	o := preparedEpoch(t)
	for _, op := range o.Related.Operations {
		op.Status.Phase = v1beta1.OperationFailed
	}
	d := Decide(o)
	assert.NoError(t, verify(o, d))
	assert.Equal(t, record.PhaseCancelled, recordtest.Says(d.Children.ConfigMaps[1]).Phase)
	assert.Contains(t, d.Reason.Message, "the restore was withdrawn")
}
