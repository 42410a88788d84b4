package hooks

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// list lets the status have listed the member for some time.
func list(o *observation.Observation, member string, since time.Duration) {
	for _, m := range o.Etcd.Members {
		if m.Name == member {
			o.Cluster.Status.Members = append(o.Cluster.Status.Members,
				v1beta1.MemberStatus{Name: member, ID: objects.Hex(m.ID), JoinTime: metav1.NewTime(now.Add(-since))})
		}
	}
}

// learnerAt lists demo-3 as a learner at this raft index, beside three voters at 1000, with five voters wanted.
func learnerAt(index uint64) observation.Observation {
	o := serve(3)
	o.Cluster.Spec.Replicas = new(int32(5))
	addMember(&o, 3, true)
	h := o.Health["demo-3"]
	h.RaftIndex = index
	o.Health["demo-3"] = h
	nextMember(4)(&o)
	o.Children.Budgets["demo"].Spec.MinAvailable = new(intstr.FromInt(3))
	return o
}

// room is what there is room for on a volume of this size.
func room(size string) defaults.Room {
	return defaults.RoomOn(defaults.Volume{Size: quantity(size).Value()}, 3<<19)
}

func TestPodsAreMadeForProduction(t *testing.T) {
	o := serve(1)
	o.Cluster.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *quantity("1500m"),
		corev1.ResourceMemory: *quantity("1Gi")}
	pod := answer.NewPod(o, "demo-0", "", "3.5.35", objects.StartBootstrap, room("10Gi"), defaults.Speech{PeersTLS: true},
		answer.BootstrapEnv("demo-epoch-1"))
	etcd := pod.Spec.Containers[0]
	assert.Contains(t, etcd.Command, "--quota-backend-bytes=4345298944", "half of what the log and the file system leave")
	assert.Contains(t, etcd.Command, "--experimental-initial-corrupt-check=true", "3.5 knows no feature gates")
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "GOMAXPROCS", ValueFrom: objects.LimitOf(corev1.ResourceCPU, "1")})
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "$(MEMORY_LIMIT_MIB)000000"})
	assert.Equal(t, etcd.Resources, pod.Spec.InitContainers[0].Resources, "a quota on limits lets it in")
	assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.True(t, *etcd.SecurityContext.ReadOnlyRootFilesystem)

	o.Cluster.Spec.Storage.Medium = v1beta1.Memory
	o.Cluster.Spec.Storage.Size = *quantity("512Mi")
	pod = answer.NewPod(o, "demo-0", "", "3.7.3", objects.StartBootstrap, room("512Mi"), defaults.Speech{PeersTLS: true}, nil)
	etcd = pod.Spec.Containers[0]
	assert.Equal(t, "1536Mi", etcd.Resources.Limits.Memory().String(), "the tmpfs counts against the limit")
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "966367638"}, "but not for the Go heap")
	assert.Contains(t, etcd.Command, "--feature-gates=CompactHashCheck=true,InitialCorruptCheck=true")
}

// unreachable lets a member not have served for so long, in a cluster that has had quorum for a day.
func unreachable(o *observation.Observation, member string, since time.Duration) {
	if o.Health != nil {
		o.Health[member] = observation.Health{Err: "connection refused"}
	}
	o.Cluster.Status.Conditions = []metav1.Condition{{Type: v1beta1.Available, Status: metav1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Add(-24 * time.Hour))}}
	watch(o, 24*time.Hour)
	if o.Etcd == nil {
		return
	}
	for _, m := range o.Etcd.Members {
		if name, _ := objects.MemberAt(o.Cluster, m.PeerURLs); name == member {
			o.Cluster.Status.Members = append(objects.Filter(o.Cluster.Status.Members,
				func(s v1beta1.MemberStatus) bool { return s.ID != objects.Hex(m.ID) }),
				v1beta1.MemberStatus{Name: member, ID: objects.Hex(m.ID),
					JoinTime:           metav1.NewTime(now.Add(-24 * time.Hour)),
					LastTransitionTime: metav1.NewTime(now.Add(-since))})
		}
	}
}

// given is a cluster of three in which demo-1 has been unreachable for five minutes, with what else is the case.
func given(what ...func(o *observation.Observation)) observation.Observation {
	o := serve(3)
	unreachable(&o, "demo-1", 5*time.Minute)
	chosen(removal(1))(&o)
	for _, change := range what {
		change(&o)
	}
	return o
}

func marked(o *observation.Observation) {
	note(o.Children.Claims["demo-1"], objects.AnnotationFailedMember, "true")
	o.Cluster.Status.Internal.Replacement = &v1beta1.ReplacementStatus{GivenUp: 1, Voter: "demo-1",
		NextReplacementTime: metav1.NewTime(now.Add(9 * time.Second))}
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

// TestTheClaimOfWhoIsGivenUp: it is marked, and kept as long as the spec says. The stories given_up*.txt have the rest.
func TestTheClaimOfWhoIsGivenUp(t *testing.T) {
	d := Decide(given())
	assert.Equal(t, objects.FailedUnreachable, claimNamed(d, "demo-1").Annotations[objects.AnnotationFailedMember])
	assert.Empty(t, claimNamed(d, "demo-0").Annotations[objects.AnnotationFailedMember])

	gone := with(serve(3), withoutPod("demo-1"), replicas(2), marked)
	gone.Etcd.Members = append(gone.Etcd.Members[:1:1], gone.Etcd.Members[2:]...)
	delete(gone.Health, "demo-1")
	kept := claimNamed(Decide(gone), "demo-1")
	require.NotNil(t, kept)
	assert.Equal(t, now.UTC().Format(time.RFC3339), kept.Annotations[objects.AnnotationQuarantined])
	assert.Equal(t, "true", kept.Labels[objects.LabelQuarantined])
	for _, c := range []struct {
		since string
		keep  *metav1.Duration
		stays bool
	}{
		{ago(24 * time.Hour), nil, false},
		{ago(24*time.Hour - time.Second), nil, true},
		{ago(time.Hour), &metav1.Duration{Duration: time.Hour}, false},
		{ago(0), &metav1.Duration{}, false},
		{"until Jo has looked at it", nil, true},
	} {
		gone.Children.Claims["demo-1"].Annotations[objects.AnnotationQuarantined] = c.since
		gone.Cluster.Spec.MemberReplacement.KeepVolumesFor = c.keep
		d := Decide(gone)
		require.NoError(t, verify(gone, d))
		assert.Equal(t, c.stays, claimNamed(d, "demo-1") != nil, "%s, kept for %v", c.since, c.keep)
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
		"S6: another etcd": given(marked, answering("demo-1",
			func(h *observation.Health) { *h = observation.Health{Err: "x", ClusterID: 1, MemberID: 2} })),
		"S6: for people": given(marked,
			func(o *observation.Observation) { o.Cluster.Spec.MemberReplacement.Policy = v1beta1.ReplaceManual }),
		"S6: its disk is full": given(marked, func(o *observation.Observation) {
			etcd := &o.Children.Pods["demo-1"].Status.ContainerStatuses[0]
			etcd.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1,
				Message: objects.DiskFullWords}
		}),
		"S7: its claim goes": given(marked,
			func(o *observation.Observation) { o.Etcd.Members = append(o.Etcd.Members[:1:1], o.Etcd.Members[2:]...) }),
	} {
		d := Decide(o)
		if name[:2] == "S7" {
			d.Children.Claims = objects.Filter(d.Children.Claims,
				func(c *corev1.PersistentVolumeClaim) bool { return c.Name != "demo-1" })
		} else {
			d.Step = decision.Remove{ID: o.Etcd.Members[1].ID, Name: "demo-1"}
		}
		assert.ErrorContains(t, verify(o, d), name[:2], name)
	}
}

// TestVotersGivenUpInARow: their successors may go the same way, and of each a claim is kept.
func TestVotersGivenUpInARow(t *testing.T) {
	in := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Truncate(time.Second).Add(d)) }
	row := func(n int32, next time.Duration) observation.Observation {
		return given(marked, func(o *observation.Observation) {
			o.Cluster.Status.Internal.Replacement = &v1beta1.ReplacementStatus{Failures: 2, GivenUp: n, Voter: "demo-9",
				NextReplacementTime: in(next)}
		})
	}
	changed := row(9, time.Hour)
	changed.Cluster.Generation++
	for name, c := range map[string]struct {
		o    observation.Observation
		n    int32
		next time.Duration
	}{
		"the first":                 {given(), 1, 10 * time.Second},
		"when the pause is over":    {row(9, 0), 10, time.Hour},
		"soon after it":             {row(4, -59*time.Minute), 5, 160 * time.Second},
		"an hour after it":          {row(9, -time.Hour), 1, 10 * time.Second},
		"when the spec was changed": {changed, 1, 10 * time.Second},
	} {
		r := Decide(c.o).Status.Internal.Replacement
		require.NotNil(t, r, name)
		assert.Equal(t, []any{c.n, "demo-1", in(c.next)}, []any{r.GivenUp, r.Voter, r.NextReplacementTime}, name)
	}
	waits := row(9, time.Hour)
	d := Decide(waits)
	require.NoError(t, verify(waits, d))
	assert.Nil(t, d.Step)
	assert.Equal(t, int32(9), d.Status.Internal.Replacement.GivenUp)
	unseen := with(row(9, -2*time.Hour), blinded)
	assert.Equal(t, unseen.Cluster.Status.Internal.Replacement, Decide(unseen).Status.Internal.Replacement)
	served := serve(3)
	served.Cluster.Status.Internal.Replacement = row(9, -time.Hour).Cluster.Status.Internal.Replacement
	assert.Nil(t, Decide(served).Status.Internal.Replacement)
}

func TestALearnersTimeGrowsWithTheData(t *testing.T) {
	for size, want := range map[int64]time.Duration{0: 5 * time.Minute, 1 << 29: 5*time.Minute + 30*time.Second,
		8 << 30: 13 * time.Minute} {
		o := learnerAt(0)
		h := o.Health["demo-0"]
		h.DBSize = size
		o.Health["demo-0"] = h
		assert.Equal(t, want, facts.New(o).TimeFor())
	}
}

// ofContainer is the restart of a member by this container in its pod.
func ofContainer(c record.Choice, id string) record.Choice {
	c.Container = id
	return c
}

// wasDown is the choice of a member that did not serve then.
func wasDown(c record.Choice) record.Choice {
	c.Down = true
	return c
}

// withdrawn is a removal that was taken back so long ago.
func withdrawn(c record.Choice, since time.Duration) record.Choice {
	c.Withdrawn = now.Add(-since)
	return c
}

// mismatched has the record name members at whose addresses another etcd has answered.
func mismatched(names ...string) fact { return noted(func(r *record.Record) { r.Mismatched = names }) }

// choosing is an observation whose record names demo-1 in this way.
func choosing(c record.Choice) observation.Observation {
	o := with(serve(3), chosen(c))
	o.Children.Pods["demo-1"].Status.ContainerStatuses[0].ContainerID = "containerd://7"
	return o
}

// onceChosen is an observation once the record names the member that Decide wants removed; the same when it wants
// none removed.
func onceChosen(t *testing.T, o observation.Observation) observation.Observation {
	d := Decide(o)
	require.NoError(t, verify(o, d))
	if o.Children.ConfigMaps["demo-epoch-1"] == nil || len(d.Children.ConfigMaps) == 0 || !recordOf(d).Choice.Removes {
		return o
	}
	assert.Nil(t, d.Step, "it is recorded first")
	return with(o, chosen(recordOf(d).Choice))
}

func ago(d time.Duration) string { return now.Add(-d).Format(time.RFC3339) }

func withdrawnAgo(ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations[objects.AnnotationWithdrawn] = now.Add(-ago).Format(time.RFC3339) }
}

// cameBack is a cluster of three that serves without Quorate, and the pod of demo-1 has come back.
func cameBack(o observation.Observation) observation.Observation {
	o.Etcd, o.Health = nil, map[string]observation.Health{}
	pod := answer.Pod(facts.New(o), "demo-1", objects.StartResume, answer.ResumeEnv())
	pod.UID, pod.Status = "uid-new", o.Children.Pods["demo-1"].Status
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	o.Children.Pods["demo-1"] = pod
	return o
}

// mounts adds a claim to those that the pod names.
func mounts(pod *corev1.Pod, claim string) {
	volume := corev1.Volume{Name: claim}
	volume.PersistentVolumeClaim = &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
	pod.Spec.Volumes = append(pod.Spec.Volumes, volume)
}

// TestRoleWhileBlind: what stands for the answer that can't be had.
func TestRoleWhileBlind(t *testing.T) {
	pod := func(change func(p *corev1.Pod)) fact {
		return func(o *observation.Observation) { change(o.Children.Pods["demo-1"]) }
	}
	shown := func(role string) fact {
		return pod(func(p *corev1.Pod) { p.Labels[objects.LabelRole] = role })
	}
	answer := func(h observation.Health) fact {
		return func(o *observation.Observation) { o.Health["demo-1"] = h }
	}
	for name, c := range map[string]struct {
		facts []fact
		role  string
	}{
		"it is ready, on its claim": {nil, facts.RoleVoter},
		"it is not ready": {[]fact{pod(func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })},
			""},
		"nothing is known of that": {[]fact{pod(func(p *corev1.Pod) { p.Status.Conditions = nil })}, ""},
		"on another claim": {[]fact{func(o *observation.Observation) { o.Children.Claims["demo-1"].UID = "another" }},
			""},
		"its claim goes":    {[]fact{goingClaim("demo-1")}, ""},
		"its claim is gone": {[]fact{func(o *observation.Observation) { delete(o.Children.Claims, "demo-1") }}, ""},
		"filled from a claim that goes with its epoch": {[]fact{pod(func(p *corev1.Pod) { mounts(p, "demo-5") })},
			facts.RoleVoter},
		"with a log that the record does not name": {[]fact{pod(func(p *corev1.Pod) { mounts(p, "demo-1-wal") })}, ""},
		"the record was deleted":                   {[]fact{startsOn()}, ""},
		"another etcd has answered there":          {[]fact{mismatched("demo-0", "demo-1")}, ""},
		"and it was shown to vote":                 {[]fact{mismatched("demo-1"), shown(facts.RoleVoter)}, facts.RoleFenced},
		"another cluster answers there": {[]fact{answer(observation.Health{ClusterID: 0xbad, MemberID: 2})},
			facts.RoleFenced},
		"another member answers there": {[]fact{answer(observation.Health{Err: "another etcd answers", ClusterID: 0xc1,
			MemberID: 9})}, facts.RoleFenced},
		"it answers without a quorum": {[]fact{answer(observation.Health{ClusterID: 0xc1, MemberID: 2})},
			facts.RoleVoter},
		"it was a learner, and is ready": {[]fact{shown(facts.RoleLearner)}, facts.RoleVoter},
		"it is fenced":                   {[]fact{shown(facts.RoleFenced)}, facts.RoleFenced},
	} {
		t.Run(name, func(t *testing.T) {
			o := with(cameBack(serve(3)), c.facts...)
			d := Decide(o)
			require.NoError(t, verify(o, d))
			assert.Equal(t, c.role, podIn(d, "demo-1").Labels[objects.LabelRole])
			if c.role == facts.RoleVoter {
				return
			}
			podIn(d, "demo-1").Labels[objects.LabelRole] = facts.RoleVoter
			assert.ErrorContains(t, verify(o, d), "S8: clients are led to demo-1", "the oracle sees it")
		})
	}
}

// TestWhoIsRecordedAsMismatched: a member that answered as another stays on the record until it answers as itself.
func TestWhoIsRecordedAsMismatched(t *testing.T) {
	recorded := func(d decision.Decision) []string { return recordOf(d).Mismatched }
	o := serve(3)
	o.Health["demo-1"] = observation.Health{Err: "another etcd answers", ClusterID: 0xbad, MemberID: 2}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, []string{"demo-1"}, recorded(d))

	mismatched("demo-1")(&o)
	o.Health["demo-1"] = observation.Health{Err: "no answer"}
	o.Children.Pods["demo-1"].UID = types.UID("another pod, without the label")
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, []string{"demo-1"}, recorded(d))
	recordtest.Edit(d.Children.ConfigMaps[0], func(r *record.Record) { r.Mismatched = nil })
	assert.ErrorContains(t, verify(o, d), "the record forgets")

	blind := o
	blind.Etcd, blind.Health = nil, map[string]observation.Health{"demo-2": {ClusterID: 0xbad, MemberID: 9}}
	d = Decide(blind)
	require.NoError(t, verify(blind, d))
	assert.Equal(t, []string{"demo-1", "demo-2"}, recorded(d))

	o.Health["demo-1"] = serve(3).Health["demo-1"]
	d = Decide(o)
	require.NoError(t, verify(o, d))
	assert.Empty(t, recorded(d))
}

// haveClients lets clients be led to every member.
func haveClients(o *observation.Observation) {
	for _, pod := range o.Children.Pods {
		pod.Labels[objects.LabelRole] = facts.RoleVoter
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
}

// TestClientsAreLedAwayFirst: a voter that is chosen to be restarted or removed gets no new clients, as long as another
// one has them, and gets them back when the choice is withdrawn.
func TestClientsAreLedAwayFirst(t *testing.T) {
	leaves := func(o *observation.Observation) {
		o.Children.Pods["demo-1"].Labels[objects.LabelRole] = facts.RoleLeaving
	}
	exchanges := func(o *observation.Observation) {
		pod := o.Children.Pods["demo-1"]
		pod.Annotations[objects.AnnotationExchanged] = "containerd://7"
		pod.Status.ContainerStatuses[0].ContainerID = "containerd://7"
	}
	for name, c := range map[string]struct {
		o         observation.Observation
		pod, role string // none for a pod that goes
	}{
		"in the answer that chooses it": {with(serve(3), haveClients, high), "demo-1", facts.RoleLeaving},
		"who is not chosen":             {with(serve(3), haveClients, high), "demo-2", facts.RoleVoter},
		"once it is chosen, it goes":    {with(serve(3), haveClients, high, chosen(restart(1)), leaves), "demo-1", ""},
		"withdrawn":                     {with(serve(3), haveClients, chosen(restart(1)), leaves), "demo-1", facts.RoleVoter},
		"one that is removed":           {with(serve(3), haveClients, replicas(2)), "demo-2", facts.RoleLeaving},
		"its old container runs still":  {with(serve(3), haveClients, high, exchanges), "demo-1", facts.RoleLeaving},
	} {
		d := Decide(c.o)
		require.NoError(t, verify(c.o, d), name)
		if pod := podIn(d, c.pod); assert.Equal(t, c.role == "", pod == nil, name) && pod != nil {
			assert.Equal(t, c.role, pod.Labels[objects.LabelRole], name)
		}
	}

	o := with(serve(3), haveClients, high)
	for _, other := range []string{"demo-0", "demo-2"} {
		delete(o.Children.Pods[other].Labels, objects.LabelRole)
		o.Children.Pods[other].Status.Conditions = nil
	}
	d := Decide(o)
	assert.Equal(t, facts.RoleVoter, podIn(d, "demo-1").Labels[objects.LabelRole], "no one else has clients")
	podIn(d, "demo-1").Labels[objects.LabelRole] = facts.RoleLeaving
	assert.ErrorContains(t, verify(o, d), "S2: clients are led away from demo-1", "the oracle sees it")
}

// TestAChoiceThatIsNotWantedIsSpared: when it was withdrawn stays on the pod as long as the record names it.
func TestAChoiceThatIsNotWantedIsSpared(t *testing.T) {
	o := choosing(restart(1))
	d := Decide(o)
	require.NoError(t, verify(o, d))
	assert.Equal(t, ago(0), podIn(d, "demo-1").Annotations[objects.AnnotationWithdrawn])
	assert.Equal(t, restart(1), recordOf(d).Choice)

	o.Children.Pods["demo-1"].Annotations[objects.AnnotationWithdrawn] = ago(0)
	o.Now = now.Add(facts.CallsEnd)
	d = Decide(o)
	assert.NotEmpty(t, podIn(d, "demo-1").Annotations[objects.AnnotationWithdrawn])
	assert.Zero(t, recordOf(d).Choice)
	chosen(record.Choice{})(&o)
	assert.Empty(t, podIn(Decide(o), "demo-1").Annotations[objects.AnnotationWithdrawn])
}

func TestAVoterIsChosenBeforeItIsRestarted(t *testing.T) {
	const recording = "recording that demo-1 is restarted next: why"
	var none record.Choice
	const waiting = "waiting for earlier calls, which may still "
	for _, c := range []struct {
		name      string
		chosen    record.Choice
		inPlace   bool
		withdrawn time.Duration // before now; negative for not
		message   string
		renew     record.Choice
	}{
		{"chosen", restart(1), false, -1, "", none},
		{"chosen for its image", ofContainer(restart(1), "containerd://7"), true, -1, "", none},
		{"not chosen", none, false, -1, recording, restart(1)},
		{"not chosen for its image", none, true, -1, recording, ofContainer(restart(1), "containerd://7")},
		{"chosen otherwise", ofContainer(restart(1), "containerd://7"), false, -1, recording, restart(1)},
		{"chosen as another pod", record.Choice{Name: "demo-1", Pod: "uid-old"}, false, -1, recording, restart(1)},
		{"another one is chosen", restart(2), false, -1, waiting + "restart demo-2", none},
		{"chosen and withdrawn", restart(1), false, 0, waiting + "restart demo-1", none},
		{"chosen and withdrawn long ago", restart(1), false, facts.CallsEnd,
			"waiting until the withdrawn restart of demo-1 is forgotten: why", none},
		{"it is removed", removal(1), false, -1, waiting + "remove demo-1", withdrawn(removal(1), 0)},
		{"its removal is withdrawn", withdrawn(removal(1), 0), false, -1, waiting + "remove demo-1",
			withdrawn(removal(1), 0)},
		{"its removal was withdrawn long ago", withdrawn(removal(1), facts.CallsEnd), false, -1, recording, restart(1)},
		{"another one is removed", removal(2), false, -1, waiting + "remove demo-2", withdrawn(removal(2), 0)},
		{"withdrawn once", none, false, time.Hour,
			"waiting until the withdrawn restart of demo-1 is forgotten: why", none},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := facts.New(choosingAfter(c.chosen, c.withdrawn))
			chosenAs(t, rules.ChooseForRestart(f, f.Find("demo-1"), c.inPlace, "why"), c.message, c.renew)
		})
	}
}

// choosingAfter is choosing, and the restart of demo-1 was withdrawn so long ago; not at all, when that is negative.
func choosingAfter(c record.Choice, withdrawn time.Duration) observation.Observation {
	o := choosing(c)
	if withdrawn >= 0 {
		withdrawnAgo(withdrawn)(o.Children.Pods["demo-1"])
	}
	return o
}

// chosenAs compares a choice with its words, and with what the record is to say; none where there are no words.
func chosenAs(t *testing.T, is *decision.Plan, message string, renew record.Choice) {
	t.Helper()
	if message == "" {
		assert.Nil(t, is)
		return
	}
	require.NotNil(t, is)
	assert.Contains(t, is.Message, message)
	assert.Equal(t, renew, is.Record.Choice)
}

// TestCallsAreOverThoughClocksDiffer: a learner that is lost stays while a call from before it was added may go on,
// which is for half of CallsEnd, also by a clock that is ahead by nearly as much.
func TestCallsAreOverThoughClocksDiffer(t *testing.T) {
	for since, gone := range map[time.Duration]bool{facts.CallsEnd/2 + 9*time.Second: false, facts.CallsEnd: true} {
		o := with(growing(), chosen(removal(3)), replicas(3))
		o.Cluster.Status.Members = nil
		list(&o, "demo-3", since)
		assert.Equal(t, gone, Decide(o).Step != nil, "%s: %s", since, Decide(o).Reason.Message)
	}
}
