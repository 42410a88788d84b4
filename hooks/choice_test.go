package hooks

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func TestWhatTheRecordSaysOfARestart(t *testing.T) {
	for _, said := range []string{"", "demo-1", "demo-1 uid", "demo-1 uid containerd://7", "demo-1 uid -", "demo-1 uid down", "demo-1 uid - down", "demo-1 removal", "demo-1 removal withdrawn 2026-01-02T03:04:05Z"} {
		assert.Equal(t, said, readRestart(said).String())
	}
	assert.Equal(t, restart{name: "a", pod: "b", container: "c"}, readRestart(" a  b c d "))
	assert.Equal(t, restart{name: "a", removes: true}, readRestart("a removal withdrawn nonsense"))
}

// choosing is an observation whose record names demo-1 in this way.
func choosing(said string) Observation {
	o := serve(3)
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationRenewing] = said
	o.Children.Pods["demo-1"].Status.ContainerStatuses[0].ContainerID = "containerd://7"
	return o
}

// removes has the record name this member as the one that is removed.
func removes(name string) func(o *Observation) {
	return func(o *Observation) {
		o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationRenewing] = name + " removal"
	}
}

// onceChosen is an observation once the record names the member that Decide wants removed; the same when it wants none removed.
func onceChosen(t *testing.T, o Observation) Observation {
	d := Decide(o)
	require.NoError(t, Verify(o, d))
	record := o.Children.ConfigMaps["demo-epoch-1"]
	if record == nil || len(d.Children.ConfigMaps) == 0 || !readRestart(recordOf(d)[objects.AnnotationRenewing]).removes {
		return o
	}
	assert.Nil(t, d.Step, "it is recorded first")
	record.Annotations[objects.AnnotationRenewing] = recordOf(d)[objects.AnnotationRenewing]
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
		{"nobody is chosen", "", func(*corev1.Pod) {}, false},
		{"no member is chosen", "demo-7 uid-pod-7", func(*corev1.Pod) {}, false},
		{"it was down", "demo-1 uid-pod-1 down", func(*corev1.Pod) {}, true},
		{"it was down, and the container is there", "demo-1 uid-pod-1 containerd://7 down", func(*corev1.Pod) {}, true},
		{"another pod", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.UID = "other" }, false},
		{"another pod for another container", "demo-1 uid-pod-1 containerd://7", func(p *corev1.Pod) { p.UID = "other" }, false},
		{"another container", "demo-1 uid-pod-1 containerd://6", func(*corev1.Pod) {}, false},
		{"another container, but the pod is to go", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "x" }, true},
		{"the pod goes", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, false},
		{"the container ends", "demo-1 uid-pod-1 containerd://7", func(p *corev1.Pod) { p.Annotations[objects.AnnotationExchanged] = "containerd://7" }, false},
		{"the pod has ended", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, false},
		{"a removal", "demo-1 removal", func(*corev1.Pod) {}, true},
		{"a removal, and another pod", "demo-1 removal", func(p *corev1.Pod) { p.UID = "other" }, true},
		{"a removal, and the pod goes", "demo-1 removal", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, true},
		{"a removal, and the pod is spared for long", "demo-1 removal", spared(CallsEnd), true},
		{"a removal, withdrawn just now", "demo-1 removal withdrawn " + ago(CallsEnd-time.Second), func(*corev1.Pod) {}, true},
		{"a removal, withdrawn for long", "demo-1 removal withdrawn " + ago(CallsEnd), func(*corev1.Pod) {}, false},
		{"a removal of no member", "demo-7 removal", func(*corev1.Pod) {}, false},
		{"spared just now", "demo-1 uid-pod-1", spared(CallsEnd - time.Second), true},
		{"spared for long", "demo-1 uid-pod-1", spared(CallsEnd), false},
		{"spared since nobody knows when", "demo-1 uid-pod-1", func(p *corev1.Pod) { p.Annotations[objects.AnnotationSpared] = "x" }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := choosing(c.said)
			c.change(o.Children.Pods["demo-1"])
			assert.Equal(t, c.held, newView(o).held() != nil)
		})
	}
}

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

func spared(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[objects.AnnotationSpared] = now.Add(-ago).Format(time.RFC3339) }
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
		{"not chosen", "", false, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"not chosen for its image", "", true, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why", "demo-1 uid-pod-1 containerd://7"},
		{"chosen otherwise", "demo-1 uid-pod-1 containerd://7", false, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"chosen as another pod", "demo-1 uid-old", false, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"another one is chosen", "demo-2 uid-pod-2", false, func(*corev1.Pod) {}, "waiting until calls are over that would still restart demo-2, 20 seconds after it was spared", ""},
		{"chosen and spared", "demo-1 uid-pod-1", false, spared(0), "waiting until calls are over that would still restart demo-1, 20 seconds after it was spared", ""},
		{"chosen and spared for long", "demo-1 uid-pod-1", false, spared(CallsEnd), "waiting until the pod of demo-1 is no longer spared: why", ""},
		{"it is removed", "demo-1 removal", false, func(*corev1.Pod) {}, "waiting until calls are over that would still remove demo-1, 20 seconds after that was withdrawn", "demo-1 removal withdrawn " + ago(0)},
		{"its removal is withdrawn", "demo-1 removal withdrawn " + ago(0), false, func(*corev1.Pod) {}, "waiting until calls are over that would still remove demo-1, 20 seconds after that was withdrawn", "demo-1 removal withdrawn " + ago(0)},
		{"its removal was withdrawn long ago", "demo-1 removal withdrawn " + ago(CallsEnd), false, func(*corev1.Pod) {}, "recording that demo-1 is restarted next: why", "demo-1 uid-pod-1"},
		{"another one is removed", "demo-2 removal", false, func(*corev1.Pod) {}, "waiting until calls are over that would still remove demo-2, 20 seconds after that was withdrawn", "demo-2 removal withdrawn " + ago(0)},
		{"spared once", "", false, spared(time.Hour), "waiting until the pod of demo-1 is no longer spared: why", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := choosing(c.said)
			c.change(o.Children.Pods["demo-1"])
			v := newView(o)
			said := v.choose(v.find("demo-1"), c.inPlace, "why")
			if c.message == "" {
				assert.Nil(t, said)
				return
			}
			require.NotNil(t, said)
			assert.Equal(t, c.message, said.message)
			assert.Equal(t, c.renew, said.renew)
		})
	}
}

func TestAMemberIsChosenBeforeItIsRemoved(t *testing.T) {
	withdrawn := "why; waiting until calls are over that would still remove demo-%d, 20 seconds after that was withdrawn"
	for _, c := range []struct {
		name, said     string
		change         func(pod *corev1.Pod)
		message, renew string
	}{
		{"chosen", "demo-1 removal", func(*corev1.Pod) {}, "", ""},
		{"chosen, and its pod is spared", "demo-1 removal", spared(0), "", ""},
		{"not chosen", "", func(*corev1.Pod) {}, "why; recording that first", "demo-1 removal"},
		{"not chosen, and its pod goes", "", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }, "why; recording that first", "demo-1 removal"},
		{"it is restarted", "demo-1 uid-pod-1", func(*corev1.Pod) {}, "why; recording that first", "demo-1 removal"},
		{"its image is exchanged", "demo-1 uid-pod-1 containerd://7", func(*corev1.Pod) {}, "why; recording that first", "demo-1 removal"},
		{"it was restarted", "demo-1 uid-pod-1", spared(0), "why; recording that first", "demo-1 removal"},
		{"withdrawn", "demo-1 removal withdrawn " + ago(0), func(*corev1.Pod) {}, fmt.Sprintf(withdrawn, 1), "demo-1 removal withdrawn " + ago(0)},
		{"withdrawn long ago", "demo-1 removal withdrawn " + ago(CallsEnd), func(*corev1.Pod) {}, "why; recording that first", "demo-1 removal"},
		{"another one is removed", "demo-2 removal", func(*corev1.Pod) {}, fmt.Sprintf(withdrawn, 2), "demo-2 removal withdrawn " + ago(0)},
		{"another one is restarted", "demo-2 uid-pod-2", func(*corev1.Pod) {}, "why; waiting until calls are over that would still restart demo-2, 20 seconds after it was spared", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := choosing(c.said)
			c.change(o.Children.Pods["demo-1"])
			v := newView(o)
			said := v.chooseToGo(v.find("demo-1"), "why")
			if c.message == "" {
				assert.Nil(t, said)
				return
			}
			require.NotNil(t, said)
			assert.Equal(t, c.message, said.message)
			assert.Equal(t, c.renew, said.renew)
		})
	}
}

// On Memory the pod of a member that was chosen for its removal would take the data with it.
func TestARemovalThatNobodyWantsRestartsNothing(t *testing.T) {
	o := choosing("demo-1 removal")
	o.Cluster.Spec.Storage.Medium = v1alpha1.Memory
	for _, pod := range o.Children.Pods {
		pod.Annotations[objects.AnnotationImage] = "gcr.io/etcd-development/etcd:v3.6.15"
		pod.Annotations[objects.AnnotationTemplate] = newView(o).templateNow("3.6.16")
	}
	d := Decide(o)
	require.NoError(t, Verify(o, d))
	assert.Equal(t, "demo-1 removal withdrawn "+ago(0), recordOf(d)[objects.AnnotationRenewing], d.Because.Message)
	for name, pod := range o.Children.Pods {
		require.NotNil(t, podIn(d, name))
		assert.Equal(t, etcdImage(pod), etcdImage(podIn(d, name)))
	}
}

func TestAChoiceThatNobodyWantsIsSpared(t *testing.T) {
	o := choosing("demo-1 uid-pod-1")
	d := Decide(o)
	require.NoError(t, Verify(o, d))
	assert.Equal(t, "RollingUpdate", d.Because.Rule)
	assert.Equal(t, now.Format(time.RFC3339), podIn(d, "demo-1").Annotations[objects.AnnotationSpared])
	assert.Equal(t, "demo-1 uid-pod-1", recordOf(d)[objects.AnnotationRenewing])

	o.Children.Pods["demo-1"].Annotations[objects.AnnotationSpared] = now.Format(time.RFC3339)
	o.Now = now.Add(CallsEnd)
	d = Decide(o)
	assert.Equal(t, "Converged", d.Because.Rule)
	assert.NotEmpty(t, podIn(d, "demo-1").Annotations[objects.AnnotationSpared], "as long as the record names it")
	assert.Empty(t, recordOf(d)[objects.AnnotationRenewing])

	delete(o.Children.ConfigMaps["demo-epoch-1"].Annotations, objects.AnnotationRenewing)
	assert.Empty(t, podIn(Decide(o), "demo-1").Annotations[objects.AnnotationSpared])
}

func TestADeletionThatWasChosenIsNotTurnedIntoAnExchange(t *testing.T) {
	o := choosing("demo-1 uid-pod-1")
	for _, pod := range o.Children.Pods {
		pod.Annotations[objects.AnnotationImage] = "gcr.io/etcd-development/etcd:v3.6.15"
	}
	d := Decide(o)
	require.NoError(t, Verify(o, d))
	assert.Contains(t, d.Because.Message, "restarting demo-1: it is to run etcd")
	assert.Nil(t, podIn(d, "demo-1"))
}
