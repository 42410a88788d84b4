package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/safety"
	"github.com/quorate-dev/quorate/hooks/state"
)

func TestWhatTheRecordSaysOfARestart(t *testing.T) {
	for _, said := range []string{"", "demo-1", "demo-1 uid", "demo-1 uid containerd://7", "demo-1 uid -",
		"demo-1 uid down", "demo-1 uid - down", "demo-1 removal", "demo-1 removal withdrawn 2026-01-02T03:04:05Z"} {
		assert.Equal(t, said, state.ReadChoice(said).String())
	}
	assert.Equal(t, state.Choice{Name: "a", Pod: "b", Container: "c"}, state.ReadChoice(" a  b c d "))
	assert.Equal(t, state.Choice{Name: "a", Removes: true}, state.ReadChoice("a removal withdrawn nonsense"))
}

// choosing is an observation whose record names demo-1 in this way.
func choosing(said string) observation.Observation {
	o := serve(3)
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationChosen] = said
	o.Children.Pods["demo-1"].Status.ContainerStatuses[0].ContainerID = "containerd://7"
	return o
}

// removes has the record name this member as the one that is removed.
func removes(name string) func(o *observation.Observation) {
	return func(o *observation.Observation) {
		o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationChosen] = name + " removal"
	}
}

// onceChosen is an observation once the record names the member that Decide wants removed; the same when it wants
// none removed.
func onceChosen(t *testing.T, o observation.Observation) observation.Observation {
	d := Decide(o)
	require.NoError(t, verify(o, d))
	record := o.Children.ConfigMaps["demo-epoch-1"]
	if record == nil || len(d.Children.ConfigMaps) == 0 || !state.ReadChoice(
		recordOf(d)[objects.AnnotationChosen]).Removes {
		return o
	}
	assert.Nil(t, d.Step, "it is recorded first")
	record.Annotations[objects.AnnotationChosen] = recordOf(d)[objects.AnnotationChosen]
	return o
}

func TestAChoiceHoldsUntilItsEndIsSeen(t *testing.T) {
	for _, c := range []struct {
		name, said string
		change     func(pod *corev1.Pod)
		held       bool
	}{
		{"the pod is there", "demo-1 uid-pod-1", func(*corev1.Pod) {}, true},
		{"the container is there", "demo-1 uid-pod-1 containerd://7", func(*corev1.Pod) {}, true},
		{"nothing is said of a pod", "demo-1", func(*corev1.Pod) {}, false},
		{"nothing is chosen", "", func(*corev1.Pod) {}, false},
		{"no member is chosen", "demo-7 uid-pod-7", func(*corev1.Pod) {}, false},
		{"it was down", "demo-1 uid-pod-1 down", func(*corev1.Pod) {}, true},
		{"it was down, and the container is there", "demo-1 uid-pod-1 containerd://7 down", func(*corev1.Pod) {}, true},
		{"another pod", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.UID = "other" }, false},
		{"another pod for another container", "demo-1 uid-pod-1 containerd://7",
			func(p *corev1.Pod) { p.UID = "other" }, false},
		{"another container", "demo-1 uid-pod-1 containerd://6", func(*corev1.Pod) {}, false},
		{"another container, but the pod is to go", "demo-1 uid-pod-1",
			func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "x" }, true},
		{"the pod goes", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} },
			false},
		{"the container ends", "demo-1 uid-pod-1 containerd://7",
			func(p *corev1.Pod) { p.Annotations[objects.AnnotationExchanged] = "containerd://7" }, false},
		{"the pod has ended", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"a removal", "demo-1 removal", func(*corev1.Pod) {}, true},
		{"a removal, and another pod", "demo-1 removal", func(p *corev1.Pod) { p.UID = "other" }, true},
		{"a removal, and the pod goes", "demo-1 removal",
			func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, true},
		{"a removal, and the pod's restart was withdrawn long ago", "demo-1 removal", withdrawnAgo(state.CallsEnd),
			true},
		{"a removal, withdrawn just now", "demo-1 removal withdrawn " + ago(state.CallsEnd-time.Second),
			func(*corev1.Pod) {},
			true},
		{"a removal, withdrawn for long", "demo-1 removal withdrawn " + ago(state.CallsEnd), func(*corev1.Pod) {},
			false},
		{"a removal of no member", "demo-7 removal", func(*corev1.Pod) {}, false},
		{"withdrawn just now", "demo-1 uid-pod-1", withdrawnAgo(state.CallsEnd - time.Second), true},
		{"withdrawn long ago", "demo-1 uid-pod-1", withdrawnAgo(state.CallsEnd), false},
		{"withdrawn at an unknown time", "demo-1 uid-pod-1",
			func(p *corev1.Pod) { p.Annotations[objects.AnnotationWithdrawn] = "x" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := choosing(c.said)
			c.change(o.Children.Pods["demo-1"])
			assert.Equal(t, c.held, newView(o).Chosen() != nil)
		})
	}
}

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

func withdrawnAgo(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[objects.AnnotationWithdrawn] = now.Add(-ago).Format(time.RFC3339) }
}

func TestAVoterIsChosenBeforeItIsRestarted(t *testing.T) {
	for _, c := range []struct {
		name, said     string
		inPlace        bool
		change         func(pod *corev1.Pod)
		message, renew string
	}{
		{"chosen", "demo-1 uid-pod-1", false, func(*corev1.Pod) {}, "", ""},
		{"chosen for its image", "demo-1 uid-pod-1 containerd://7", true, func(*corev1.Pod) {}, "", ""},
		{"not chosen", "", false, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why",
			"demo-1 uid-pod-1"},
		{"not chosen for its image", "", true, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why",
			"demo-1 uid-pod-1 containerd://7"},
		{"chosen otherwise", "demo-1 uid-pod-1 containerd://7", false, func(*corev1.Pod) {},
			"recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"chosen as another pod", "demo-1 uid-old", false, func(*corev1.Pod) {},
			"recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"another one is chosen", "demo-2 uid-pod-2", false, func(*corev1.Pod) {},
			"waiting for earlier calls that may still restart demo-2, 20 seconds after that was withdrawn", ""},
		{"chosen and withdrawn", "demo-1 uid-pod-1", false, withdrawnAgo(0),
			"waiting for earlier calls that may still restart demo-1, 20 seconds after that was withdrawn", ""},
		{"chosen and withdrawn long ago", "demo-1 uid-pod-1", false, withdrawnAgo(state.CallsEnd),
			"waiting until the withdrawn restart of demo-1 is forgotten: why", ""},
		{"it is removed", "demo-1 removal", false, func(*corev1.Pod) {},
			"waiting for earlier calls that may still remove demo-1, 20 seconds after that was withdrawn",
			"demo-1 removal withdrawn " + ago(0)},
		{"its removal is withdrawn", "demo-1 removal withdrawn " + ago(0), false, func(*corev1.Pod) {},
			"waiting for earlier calls that may still remove demo-1, 20 seconds after that was withdrawn",
			"demo-1 removal withdrawn " + ago(0)},
		{"its removal was withdrawn long ago", "demo-1 removal withdrawn " + ago(state.CallsEnd), false,
			func(*corev1.Pod) {},
			"recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"another one is removed", "demo-2 removal", false, func(*corev1.Pod) {},
			"waiting for earlier calls that may still remove demo-2, 20 seconds after that was withdrawn",
			"demo-2 removal withdrawn " + ago(0)},
		{"withdrawn once", "", false, withdrawnAgo(time.Hour),
			"waiting until the withdrawn restart of demo-1 is forgotten: why", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := choosing(c.said)
			c.change(o.Children.Pods["demo-1"])
			v := newView(o)
			decision := state.ChooseForRestart(v, v.Find("demo-1"), c.inPlace, "why")
			if c.message == "" {
				assert.Nil(t, decision)
				return
			}
			require.NotNil(t, decision)
			assert.Equal(t, c.message, decision.Message)
			assert.Equal(t, c.renew, decision.Choose)
		})
	}
}

func TestAMemberIsChosenBeforeItIsRemoved(t *testing.T) {
	withdrawn := "why; waiting for earlier calls that may still remove demo-%d, 20 seconds after that was withdrawn"
	for _, c := range []struct {
		name, said     string
		change         func(pod *corev1.Pod)
		message, renew string
	}{
		{"chosen", "demo-1 removal", func(*corev1.Pod) {}, "", ""},
		{"chosen, and the restart of its pod was withdrawn", "demo-1 removal", withdrawnAgo(0), "", ""},
		{"withdrawn at no time that can be read", "demo-1 removal withdrawn nonsense", func(*corev1.Pod) {}, "", ""},
		{"not chosen", "", func(*corev1.Pod) {}, "why; recording that first", "demo-1 removal"},
		{"not chosen, and its pod goes", "", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} },
			"why; recording that first", "demo-1 removal"},
		{"it is restarted", "demo-1 uid-pod-1", func(*corev1.Pod) {}, "why; recording that first", "demo-1 removal"},
		{"its image is exchanged", "demo-1 uid-pod-1 containerd://7", func(*corev1.Pod) {}, "why; recording that first",
			"demo-1 removal"},
		{"it was restarted", "demo-1 uid-pod-1", withdrawnAgo(0), "why; recording that first", "demo-1 removal"},
		{"withdrawn", "demo-1 removal withdrawn " + ago(0), func(*corev1.Pod) {}, fmt.Sprintf(withdrawn, 1),
			"demo-1 removal withdrawn " + ago(0)},
		{"withdrawn long ago", "demo-1 removal withdrawn " + ago(state.CallsEnd), func(*corev1.Pod) {},
			"why; recording that first", "demo-1 removal"},
		{"another one is removed", "demo-2 removal", func(*corev1.Pod) {}, fmt.Sprintf(withdrawn, 2),
			"demo-2 removal withdrawn " + ago(0)},
		{"another one is restarted", "demo-2 uid-pod-2", func(*corev1.Pod) {},
			"why; waiting for earlier calls that may still restart demo-2, 20 seconds after that was withdrawn",
			""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := choosing(c.said)
			c.change(o.Children.Pods["demo-1"])
			v := newView(o)
			decision := state.ChooseForRemoval(v, v.Find("demo-1"), "why")
			if c.message == "" {
				assert.Nil(t, decision)
				return
			}
			require.NotNil(t, decision)
			assert.Equal(t, c.message, decision.Message)
			assert.Equal(t, c.renew, decision.Choose)
		})
	}
}

// On Memory the pod of a member that was chosen for its removal would take the data with it.
func TestARemovalThatIsNotWantedRestartsNothing(t *testing.T) {
	o := choosing("demo-1 removal")
	o.Cluster.Spec.Storage.Medium = v1alpha1.Memory
	for _, pod := range o.Children.Pods {
		pod.Annotations[objects.AnnotationImage] = "gcr.io/etcd-development/etcd:v3.6.15"
		pod.Annotations[objects.AnnotationTemplate] = children.TemplateNow(newView(o), "3.6.16")
	}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "demo-1 removal withdrawn "+ago(0), recordOf(d)[objects.AnnotationChosen], d.Reason.Message)
	for name, pod := range o.Children.Pods {
		require.NotNil(t, podIn(d, name))
		assert.Equal(t, safety.EtcdImage(pod), safety.EtcdImage(podIn(d, name)))
	}
}

func TestAChoiceThatIsNotWantedIsSpared(t *testing.T) {
	o := choosing("demo-1 uid-pod-1")
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.Equal(t, now.Format(time.RFC3339), podIn(d, "demo-1").Annotations[objects.AnnotationWithdrawn])
	assert.Equal(t, "demo-1 uid-pod-1", recordOf(d)[objects.AnnotationChosen])

	o.Children.Pods["demo-1"].Annotations[objects.AnnotationWithdrawn] = now.Format(time.RFC3339)
	o.Now = now.Add(state.CallsEnd)
	d = Decide(o)
	assert.Equal(t, "Converged", d.Reason.Rule)
	assert.NotEmpty(t, podIn(d, "demo-1").Annotations[objects.AnnotationWithdrawn], "as long as the record names it")
	assert.Empty(t, recordOf(d)[objects.AnnotationChosen])

	delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationChosen)
	assert.Empty(t, podIn(Decide(o), "demo-1").Annotations[objects.AnnotationWithdrawn])
}

func TestADeletionThatWasChosenIsNotTurnedIntoAnExchange(t *testing.T) {
	o := choosing("demo-1 uid-pod-1")
	for _, pod := range o.Children.Pods {
		pod.Annotations[objects.AnnotationImage] = "gcr.io/etcd-development/etcd:v3.6.15"
	}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Contains(t, d.Reason.Message, "restarting demo-1: it should run etcd")
	assert.Nil(t, podIn(d, "demo-1"))
}
