package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// silent lets a member not have served for so long, in a cluster that has had quorum for a day.
func silent(o *observation.Observation, member string, since time.Duration) {
	if o.Health != nil {
		o.Health[member] = observation.Health{Err: "connection refused"}
	}
	o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Available, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))}}
	watch(o, 24*time.Hour)
	if o.Etcd == nil {
		return
	}
	for _, m := range o.Etcd.Members {
		if name, _ := objects.MemberAt(o.Cluster, m.PeerURLs); name == member {
			o.Cluster.Status.Members = append(wording.Filter(o.Cluster.Status.Members,
				func(s v1alpha1.MemberStatus) bool { return s.ID != wording.Hex(m.ID) }),
				v1alpha1.MemberStatus{Name: member, ID: wording.Hex(m.ID),
					JoinTime:           metav1.NewTime(now.Add(-24 * time.Hour)),
					LastTransitionTime: metav1.NewTime(now.Add(-since))})
		}
	}
}

// given is a cluster of three in which demo-1 has been silent for five minutes, with what else is the case.
func given(what ...func(o *observation.Observation)) observation.Observation {
	o := serve(3)
	silent(&o, "demo-1", 5*time.Minute)
	removes("demo-1")(&o)
	for _, change := range what {
		change(&o)
	}
	return o
}

func marked(o *observation.Observation) {
	note(o.Children.Claims["demo-1"], objects.AnnotationFailedMember, "true")
	o.Cluster.Status.Internal.Replacement = &v1alpha1.ReplacementStatus{GivenUp: 1, Voter: "demo-1",
		NextGivenUpTime: metav1.NewTime(now.Add(9 * time.Second))}
	o.Cluster.Status.ObservedGeneration = o.Cluster.Generation
}

func claimNamed(d decision.Decision, name string) *corev1.PersistentVolumeClaim {
	for _, c := range d.Children.Claims {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func TestWhoIsGivenUp(t *testing.T) {
	agedOthers := func(o *observation.Observation) {
		for _, name := range []string{"demo-0", "demo-2"} {
			o.Children.Pods[name].Annotations[objects.AnnotationTemplate] = "older"
		}
	}
	for name, c := range map[string]struct {
		o    observation.Observation
		rule string
		step decision.Step
	}{
		"its claim is marked first": {given(), "ReplaceDead", nil},
		"it is noted, too": {given(marked,
			func(o *observation.Observation) { o.Cluster.Status.Internal.Replacement = nil }), "ReplaceDead", nil},
		"then it goes": {given(marked), "ReplaceDead",
			decision.Remove{ID: serve(3).Etcd.Members[1].ID, Name: "demo-1"}},
		"not before its time": {given(marked,
			func(o *observation.Observation) { o.Now = o.Now.Add(-time.Second) }), "WaitForMembers", nil},
		"nor before the time that the spec sets": {given(marked,
			func(o *observation.Observation) { o.Cluster.Spec.MemberReplacement.After.Duration = time.Hour }),
			"WaitForMembers",
			nil},
		"nor without a status": {given(marked,
			func(o *observation.Observation) { o.Cluster.Status = v1alpha1.EtcdClusterStatus{} }), "WaitForMembers",
			nil},
		"nor soon after a time of blindness": {given(marked, func(o *observation.Observation) {
			o.Cluster.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute))
		}), "WaitForMembers", nil},
		"nor right after one": {given(marked,
			func(o *observation.Observation) { o.Cluster.Status.Conditions[0].Status = metav1.ConditionFalse }),
			"WaitForMembers",
			nil},
		"nor when it serves": {given(marked, func(o *observation.Observation) {
			o.Health["demo-1"] = serve(3).Health["demo-1"]
		}),
			"RollingUpdate", nil},
		"nor when a person decides": {given(marked, func(o *observation.Observation) {
			o.Cluster.Spec.MemberReplacement.Policy = v1alpha1.ReplaceManual
		}), "WaitForMembers", nil},
		"nor for a change that only it has had": {given(marked, agedOthers, restartedInto("serving")), "WaitForMembers",
			nil},
		"but when it was down before": {given(marked, agedOthers, restartedInto("down")), "ReplaceDead",
			decision.Remove{ID: serve(3).Etcd.Members[1].ID, Name: "demo-1"}},
		"and when it was not chosen": {given(marked, agedOthers), "ReplaceDead",
			decision.Remove{ID: serve(3).Etcd.Members[1].ID, Name: "demo-1"}},
		"unless a node is gone": {given(marked, agedOthers, restartedInto("serving"), func(o *observation.Observation) {
			o.Children.Pods["demo-1"].Status.Reason, o.Children.Pods["demo-1"].Spec.NodeName = "NodeLost", "node"
		}),
			"ReplaceDead", decision.Remove{ID: serve(3).Etcd.Members[1].ID, Name: "demo-1"}},
		"nor while it gives free space back": {given(marked, func(o *observation.Observation) {
			o.Cluster.Status.Defragmentation = &v1alpha1.DefragmentationStatus{
				StartTime: metav1.NewTime(now.Add(-6 * time.Minute)),
				Done:      []string{"demo-0", "demo-1"}}
			o.Cluster.Status.Internal.Defragmentation.LastMemberTime = metav1.NewTime(now.Add(-5 * time.Minute))
		}), "WaitForMembers", nil},
		"but when that takes too long": {given(marked, func(o *observation.Observation) {
			o.Cluster.Status.Defragmentation = &v1alpha1.DefragmentationStatus{
				StartTime: metav1.NewTime(now.Add(-time.Hour)),
				Done:      []string{"demo-1"}}
			o.Cluster.Status.Internal.Defragmentation.LastMemberTime = metav1.NewTime(now.Add(-11 * time.Minute))
		}), "ReplaceDead", decision.Remove{ID: serve(3).Etcd.Members[1].ID, Name: "demo-1"}},
		"nor when another etcd answers": {given(marked, func(o *observation.Observation) {
			o.Health["demo-1"] = observation.Health{Err: "another etcd answers", ClusterID: 1, MemberID: 2}
		}), "WaitForMembers", nil},
		"nor when the rest has no quorum": {given(marked,
			func(o *observation.Observation) { o.Health["demo-2"] = observation.Health{Err: "x"} }), "ReplaceDead",
			nil},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.o)
			require.NoError(t, verify(c.o, d))
			assert.Equal(t, c.rule, d.Reason.Rule, d.Reason.Message)
			assert.Equal(t, c.step, d.Step)
		})
	}
}

func TestTheClaimOfWhoIsGivenUp(t *testing.T) {
	d := Decide(given())
	assert.Equal(t, objects.FailedSilent, claimNamed(d, "demo-1").Annotations[objects.AnnotationFailedMember])
	assert.Empty(t, claimNamed(d, "demo-0").Annotations[objects.AnnotationFailedMember])

	back := given(marked, func(o *observation.Observation) { o.Health["demo-1"] = serve(3).Health["demo-1"] })
	assert.Empty(t, claimNamed(Decide(back), "demo-1").Annotations[objects.AnnotationFailedMember],
		"who serves again is no longer given up")

	gone := serve(3)
	gone.Etcd.Members = append(gone.Etcd.Members[:1:1], gone.Etcd.Members[2:]...)
	delete(gone.Children.Pods, "demo-1")
	delete(gone.Health, "demo-1")
	gone.Cluster.Spec.Replicas = new(int32(2))
	require.Nil(t, claimNamed(Decide(gone), "demo-1"), "without a mark it goes with its member")
	marked(&gone)
	kept := claimNamed(Decide(gone), "demo-1")
	require.NotNil(t, kept)
	assert.Equal(t, now.UTC().Format(time.RFC3339), kept.Annotations[objects.AnnotationQuarantined])
	assert.Equal(t, "true", kept.Labels[objects.LabelQuarantined])

	for _, c := range []struct {
		since string
		keep  *metav1.Duration
		stays bool
	}{
		{now.Add(-24 * time.Hour).Format(time.RFC3339), nil, false},
		{now.Add(-24*time.Hour + time.Second).Format(time.RFC3339), nil, true},
		{now.Add(-time.Hour).Format(time.RFC3339), &metav1.Duration{Duration: time.Hour}, false},
		{now.Format(time.RFC3339), &metav1.Duration{}, false},
		{"until Jo has looked at it", nil, true},
	} {
		gone.Children.Claims["demo-1"].Annotations[objects.AnnotationQuarantined] = c.since
		gone.Cluster.Spec.MemberReplacement.KeepClaimFor = c.keep
		d := Decide(gone)
		require.NoError(t, verify(gone, d))
		assert.Equal(t, c.stays, claimNamed(d, "demo-1") != nil, "%s, kept for %v", c.since, c.keep)
	}

	gone.Etcd, gone.Health = nil, nil
	d = Decide(gone)
	require.NoError(t, verify(gone, d))
	assert.NotNil(t, claimNamed(d, "demo-1"), "blind, no claim goes")
	for _, p := range d.Children.Pods {
		assert.NotEqual(t, "demo-1", p.Name, "and none in quarantine gets a pod")
	}
}

func TestVerifySeesWhoIsGivenUpForNothing(t *testing.T) {
	for name, o := range map[string]observation.Observation{
		"S6: too soon":     given(marked, func(o *observation.Observation) { o.Now = o.Now.Add(-time.Second) }),
		"S6: not marked":   given(),
		"S6: blind lately": given(marked, func(o *observation.Observation) { o.Cluster.Status.Conditions = nil }),
		"S6: it serves": given(marked, func(o *observation.Observation) {
			o.Health["demo-1"] = serve(3).Health["demo-1"]
		}),
		"S6: another etcd": given(marked,
			func(o *observation.Observation) {
				o.Health["demo-1"] = observation.Health{Err: "x", ClusterID: 1, MemberID: 2}
			}),
		"S6: for people": given(marked,
			func(o *observation.Observation) { o.Cluster.Spec.MemberReplacement.Policy = v1alpha1.ReplaceManual }),
		"S7: its claim goes": given(marked,
			func(o *observation.Observation) { o.Etcd.Members = append(o.Etcd.Members[:1:1], o.Etcd.Members[2:]...) }),
	} {
		d := Decide(o)
		if name[:2] == "S7" {
			d.Children.Claims = wording.Filter(d.Children.Claims,
				func(c *corev1.PersistentVolumeClaim) bool { return c.Name != "demo-1" })
		} else {
			d.Step = decision.Remove{ID: o.Etcd.Members[1].ID, Name: "demo-1"}
		}
		assert.ErrorContains(t, verify(o, d), name[:2], name)
	}
}

func TestWhatAPodShows(t *testing.T) {
	waiting := func(reason string) func(p *corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
	}
	ended := func(before time.Duration) func(p *corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
				State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137,
					FinishedAt: metav1.NewTime(now.Add(-before))}}}}
		}
	}
	for want, shows := range map[string]func(p *corev1.Pod){
		"":                               func(*corev1.Pod) {},
		"its image can't be pulled":      waiting("ImagePullBackOff"),
		"its container can't be created": waiting("CreateContainerConfigError"),
		"it crashes: exit 137":           ended(5 * time.Minute),
		"no node accepts its pod": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
				Reason: corev1.PodReasonUnschedulable}}
		},
		"its node does not answer": func(p *corev1.Pod) {
			p.Spec.NodeName, p.DeletionTimestamp = "node", new(metav1.NewTime(now.Add(-time.Minute)))
		},
	} {
		o := given(func(o *observation.Observation) { shows(o.Children.Pods["demo-1"]) })
		d := Decide(o)
		assert.Contains(t, d.Reason.Message, want)
		assert.Contains(t, meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Degraded).Message, want)
	}
	long := given(func(o *observation.Observation) { ended(time.Hour)(o.Children.Pods["demo-1"]) })
	assert.NotContains(t, Decide(long).Reason.Message, "crashes", "that was long before it went silent")
}

func TestPausesBetweenLearners(t *testing.T) {
	for failures, want := range map[int32]time.Duration{0: 10 * time.Second, 1: 10 * time.Second, 2: 20 * time.Second,
		9: 2560 * time.Second, 10: time.Hour, 1 << 30: time.Hour} {
		assert.Equal(t, want, health.PauseAfter(failures), failures)
	}
}

// TestVotersGivenUpInARow: their successors may go the same way, and of each a claim is kept.
func TestVotersGivenUpInARow(t *testing.T) {
	second := now.Truncate(time.Second)
	in := func(d time.Duration) metav1.Time { return metav1.NewTime(second.Add(d)) }
	d := Decide(given())
	assert.Equal(t, &v1alpha1.ReplacementStatus{GivenUp: 1, Voter: "demo-1", NextGivenUpTime: in(10 * time.Second)},
		d.Status.Internal.Replacement)

	row := func(n int32, next time.Duration, what ...func(o *observation.Observation)) observation.Observation {
		o := given(marked)
		o.Cluster.Status.Internal.Replacement = &v1alpha1.ReplacementStatus{Failures: 2, GivenUp: n, Voter: "demo-9",
			NextGivenUpTime: in(next)}
		for _, change := range what {
			change(&o)
		}
		return o
	}
	waits := row(9, time.Hour)
	d = Decide(waits)
	require.NoError(t, verify(waits, d))
	assert.Nil(t, d.Step)
	assert.Equal(t, "ReplaceDead", d.Reason.Rule)
	assert.Contains(t, d.Reason.Message, "after 9 voters replaced in a row it stays a member until "+
		second.Add(time.Hour).Format(time.RFC3339))
	assert.Equal(t, int32(9), d.Status.Internal.Replacement.GivenUp)

	for name, c := range map[string]struct {
		o    observation.Observation
		n    int32
		next time.Duration
	}{
		"when the pause is over": {row(9, 0), 10, time.Hour},
		"soon after it":          {row(4, -59*time.Minute), 5, 160 * time.Second},
		"an hour after it":       {row(9, -time.Hour), 1, 10 * time.Second},
		"when the spec was changed": {row(9, time.Hour, func(o *observation.Observation) { o.Cluster.Generation++ }), 1,
			10 * time.Second},
	} {
		r := Decide(c.o).Status.Internal.Replacement
		require.NotNil(t, r, name)
		assert.Equal(t, []any{c.n, "demo-1", in(c.next)}, []any{r.GivenUp, r.Voter, r.NextGivenUpTime}, name)
	}
	blind := row(9, -2*time.Hour, func(o *observation.Observation) { o.Etcd = nil })
	assert.Equal(t, blind.Cluster.Status.Internal.Replacement, Decide(blind).Status.Internal.Replacement)
	all := serve(3)
	all.Cluster.Status.Internal.Replacement = &v1alpha1.ReplacementStatus{GivenUp: 9, Voter: "demo-9",
		NextGivenUpTime: in(-time.Hour)}
	assert.Nil(t, Decide(all).Status.Internal.Replacement)
}

func TestALearnersTimeGrowsWithTheData(t *testing.T) {
	for size, want := range map[int64]time.Duration{0: 5 * time.Minute, 1 << 29: 5*time.Minute + 30*time.Second,
		8 << 30: 13 * time.Minute} {
		o := learnerAt(0)
		h := o.Health["demo-0"]
		h.DBSize = size
		o.Health["demo-0"] = h
		assert.Equal(t, want, health.TimeFor(newView(o)))
	}
}

func TestLearnersThatComeToNothing(t *testing.T) {
	late := learnerAt(0)
	silent(&late, "demo-3", 0)
	late.Cluster.Status.Members[len(late.Cluster.Status.Members)-1].JoinTime = metav1.NewTime(now.Add(-10 * time.Minute))
	d := Decide(late)
	require.NoError(t, verify(late, d))
	assert.Equal(t, "LearnerLate", d.Reason.Rule)
	assert.Nil(t, d.Step, "it is counted first: a call that is shown an older status would not wait before it adds "+
		"the next one")
	assert.Equal(t, &v1alpha1.ReplacementStatus{Failures: 1, Learner: "demo-3",
		NextLearnerTime: metav1.NewTime(now.Truncate(time.Second).Add(10 * time.Second))}, d.Status.Internal.Replacement)

	late.Cluster.Status.Internal.Replacement = &v1alpha1.ReplacementStatus{Failures: 2, Learner: "demo-2"}
	late.Cluster.Status.ObservedGeneration = late.Cluster.Generation
	status := Decide(late).Status
	assert.Equal(t, &v1alpha1.ReplacementStatus{Failures: 3, Learner: "demo-3",
		NextLearnerTime: metav1.NewTime(now.Truncate(time.Second).Add(40 * time.Second))}, status.Internal.Replacement)
	late.Cluster.Status.Internal.Replacement = status.Internal.Replacement
	d = Decide(onceChosen(t, late))
	require.NoError(t, verify(late, d))
	assert.IsType(t, decision.Remove{}, d.Step)
	assert.Equal(t, status.Internal.Replacement, d.Status.Internal.Replacement, "it is counted once")

	after := serve(3)
	after.Cluster.Spec.Replicas = new(int32(5))
	after.Taken, after.Cluster.Status.ObservedGeneration = nil, after.Cluster.Generation
	after.Cluster.Status.Internal.Replacement = status.Internal.Replacement
	waits := Decide(after)
	assert.Equal(t, "Grow", waits.Reason.Rule)
	assert.Nil(t, waits.Step)
	assert.Equal(t, status.Internal.Replacement, waits.Status.Internal.Replacement)
	assert.Contains(t, waits.Reason.Message, "3 learners did not catch up")

	after.Cluster.Generation++
	assert.NotNil(t, Decide(after).Step, "an edit may be what mends it")
	after.Cluster.Generation--
	after.Now = status.Internal.Replacement.NextLearnerTime.Time
	assert.NotNil(t, Decide(after).Step)
	after.Taken = &decision.Outcome{Step: decision.Promote{}}
	assert.Nil(t, Decide(after).Status.Internal.Replacement)
}

func TestWhoIsFenced(t *testing.T) {
	o := given(func(o *observation.Observation) {
		o.Health["demo-1"] = observation.Health{Err: "another etcd answers", ClusterID: 0xbad, MemberID: 2}
	})
	d := Decide(o)
	require.NoError(t, verify(o, d))
	role := func(d decision.Decision) string { return d.Children.Pods[1].Labels[objects.LabelRole] }
	assert.Equal(t, pods.RoleFenced, role(d))
	trouble := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.Degraded)
	assert.Equal(t, "MemberMismatch", trouble.Reason)
	assert.Contains(t, trouble.Message, "member 2 of cluster bad")
	assert.Contains(t, trouble.Message, wording.Hex(o.Etcd.Members[1].ID))

	o.Children.Pods["demo-1"].Labels[objects.LabelRole] = pods.RoleFenced
	o.Health["demo-1"] = observation.Health{Err: "no answer"}
	assert.Equal(t, pods.RoleFenced, role(Decide(o)), "until it answers as itself")
	o.Health["demo-1"] = serve(3).Health["demo-1"]
	assert.Equal(t, pods.RoleVoter, role(Decide(o)))

	other := serve(3)
	h := other.Health["demo-1"]
	h.MemberID = 99
	other.Health["demo-1"] = h
	assert.Equal(t, pods.RoleFenced, role(Decide(other)), "an answer that was not unmasked")
}

func TestWhereTheClientServiceLeads(t *testing.T) {
	for _, o := range []observation.Observation{fresh(3), serve(3)} {
		assert.Equal(t, pods.RoleVoter, Decide(o).Children.Services[0].Spec.Selector[objects.LabelRole])
	}
}

// restartedInto notes whether demo-1 served when it was chosen to be restarted.
func restartedInto(was string) func(*observation.Observation) {
	return func(o *observation.Observation) {
		o.Children.Pods["demo-1"].Annotations[objects.AnnotationRestarted] = was
	}
}
