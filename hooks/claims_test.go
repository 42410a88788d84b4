package hooks

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// former is a new cluster that should begin with claims, whose pods have told this of them, in their order; nil for
// nothing yet.
func former(t *testing.T, c v1beta1.FormerClaims, told ...*stores.Inspection) (observation.Observation,
	decision.Decision) {
	t.Helper()
	o := fresh(3)
	o.Cluster.Spec.Storage.Medium = v1beta1.Persistent
	o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{Claims: &c}
	d := Decide(o)
	require.NoError(t, verify(o, d))
	require.Len(t, d.Children.Pods, len(c.Names), "a pod for each claim")
	for i, pod := range d.Children.Pods {
		pod.UID, pod.CreationTimestamp = "uid", metav1.NewTime(now)
		o.Children.Pods[pod.Name] = pod
		if i < len(told) && told[i] != nil {
			ends(pod, told[i])
		}
	}
	d = Decide(o)
	require.NoError(t, verify(o, d))
	return o, d
}

// ends lets the pod that looks at a claim end with this report.
func ends(pod *corev1.Pod, told *stores.Inspection) {
	raw, err := json.Marshal(told)
	if err != nil {
		panic(err)
	}
	pod.Status.Phase = corev1.PodSucceeded
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerInspectData,
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: string(raw)}}}}
}

// holds is what a claim of this member holds, of three that could vote.
func holds(member string, term, index uint64) *stores.Inspection {
	return &stores.Inspection{ClusterID: "c1", MemberID: member, LastTerm: term, LastIndex: index,
		Members:     map[string]string{"a": "former-0", "b": "former-1", "c": "former-2"},
		Electorates: [][]string{{"a", "b", "c"}}}
}

func recorded(d decision.Decision) bool { return len(d.Children.ConfigMaps) > 0 }

// TestClaimsThatAreThere: what is done by what the claims hold.
func TestClaimsThatAreThere(t *testing.T) {
	two := v1beta1.FormerClaims{Names: []string{"data-former-0", "data-former-1"}}
	one := v1beta1.FormerClaims{Names: two.Names[:1]}
	anyway := v1beta1.FormerClaims{Names: two.Names[:1], WithoutQuorum: true}
	damaged := &stores.Inspection{Reason: "Damaged", Error: "the log ends midway"}
	other, promoted, unknown := holds("b", 9, 9), holds("a", 2, 7), holds("a", 2, 7)
	other.ClusterID = "c2"
	promoted.Electorates = [][]string{{"a"}, {"a", "b", "c"}} // etcd 3.5 has not written that learners became voters
	unknown.Members, unknown.Electorates = nil, nil
	for name, c := range map[string]struct {
		claims  v1beta1.FormerClaims
		told    []*stores.Inspection
		begins  bool
		says    string
		outlook decision.Outlook
	}{
		"nothing told": {two, nil, false, "inspecting the claims data-former-0, data-former-1", decision.Works},
		"one told": {two, []*stores.Inspection{holds("a", 2, 7)}, false,
			"inspecting the claims data-former-1", decision.Works},
		"in use": {two, []*stores.Inspection{holds("a", 2, 7), {Reason: "Failed", Error: "the database is in use"}}, false,
			"data-former-1 (its pod has ended: the database is in use)", decision.Waits},
		"a quorum": {two, []*stores.Inspection{holds("a", 2, 9), holds("b", 3, 5)}, true,
			"which begins with the data of the claim data-former-1", decision.Works},
		"different clusters": {two, []*stores.Inspection{holds("a", 2, 7), other}, false,
			"of different etcd clusters: data-former-0: term 2, index 7, of etcd cluster c1; data-former-1: term 9",
			decision.Waits},
		"no quorum": {one, []*stores.Inspection{holds("a", 2, 7)}, false,
			"of 1 of the 3 former members, which is no quorum, and those of former-1, former-2 are missing",
			decision.Waits},
		"two claims of one member": {two, []*stores.Inspection{holds("a", 2, 7), holds("a", 2, 6)}, false,
			"of 1 of the 3 former members", decision.Waits},
		"a claim of another member": {two, []*stores.Inspection{holds("a", 2, 7), holds("gone", 2, 6)}, false,
			"of 1 of the 3 former members", decision.Waits},
		"no quorum, and consent": {anyway, []*stores.Inspection{holds("a", 2, 7)}, true, "the claim data-former-0",
			decision.Works},
		"learners that may vote": {one, []*stores.Inspection{promoted}, false, "of 1 of the 3 former members",
			decision.Waits},
		"members are not known": {one, []*stores.Inspection{unknown}, false, "does not tell who the members were",
			decision.Waits},
		"one damaged": {two, []*stores.Inspection{holds("a", 2, 7), damaged}, false,
			"of 1 of the 3 former", decision.Waits},
		"all damaged": {one, []*stores.Inspection{damaged}, false,
			"no claim can be used: data-former-0: the log", decision.Waits},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := former(t, c.claims, c.told...)
			assert.Equal(t, "RecordEpoch", d.Reason.Rule)
			assert.Contains(t, d.Reason.Message, c.says)
			assert.Equal(t, c.begins, recorded(d), "a record")
			assert.Equal(t, c.outlook, d.Outlook)
			if c.begins {
				assert.Empty(t, d.Children.Pods)
			} else {
				assert.Len(t, d.Children.Pods, len(c.claims.Names), "no pod goes that has told something")
			}
		})
	}
}

// TestClaimsAreCopied: the first member is filled from the claim that is ahead, which it mounts for reading.
func TestClaimsAreCopied(t *testing.T) {
	o, d := former(t, v1beta1.FormerClaims{Names: []string{"demo-0", "demo-4"}, Path: "default.etcd", WAL: true},
		holds("a", 2, 7), holds("b", 2, 8))
	require.Len(t, d.Children.ConfigMaps, 1)
	assert.Contains(t, recordOf(d).Initial, "demo-5")
	for range 5 {
		d = goOn(t, &o)
	}
	pod := o.Children.Pods["demo-5"]
	require.NotNil(t, pod, d.Reason.Message)
	seed := pod.Spec.InitContainers[1]
	require.Equal(t, objects.ContainerSeed, seed.Name)
	assert.Subset(t, seed.Args, []string{"--from-data=/survivor/default.etcd", "--from-wal=/survivor-wal/wal"})
	assert.Contains(t, seed.Args, "--begin-after=0")
	for _, mount := range seed.VolumeMounts {
		if mount.Name == "survivor" || mount.Name == "survivor-wal" {
			assert.True(t, mount.ReadOnly)
		}
	}
	var claims []string
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			claims = append(claims, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	assert.Equal(t, []string{"demo-5", "demo-4", "demo-4-wal"}, claims)
	assert.Equal(t, "Claims", d.Status.Origin.Source)
	assert.Equal(t, "demo-4", d.Status.Origin.Survivor)
}

// TestClaimsAreLookedAtAgain: by a pod that ended without a word, and when the spec names others.
func TestClaimsAreLookedAtAgain(t *testing.T) {
	o, _ := former(t, v1beta1.FormerClaims{Names: []string{"data-former-0"}},
		&stores.Inspection{Reason: "Failed", Error: "the database is in use"})
	pass(&o, now.Add(facts.InspectAgain-time.Second))
	assert.Len(t, Decide(o).Children.Pods, 1)
	pass(&o, now.Add(facts.InspectAgain))
	assert.Empty(t, Decide(o).Children.Pods, "it goes, and then there is another")

	o, _ = former(t, v1beta1.FormerClaims{Names: []string{"data-former-0"}}, holds("a", 2, 7))
	for _, edit := range []func(*v1beta1.FormerClaims){
		func(c *v1beta1.FormerClaims) { c.Names = []string{"data-former-1"} },
		func(c *v1beta1.FormerClaims) { c.Path = "default.etcd" },
		func(c *v1beta1.FormerClaims) { c.WAL = true },
	} {
		edited := o
		edited.Cluster = o.Cluster.DeepCopy()
		edit(edited.Cluster.Spec.Bootstrap.Claims)
		d := Decide(edited)
		assert.Contains(t, d.Reason.Message, "inspecting the claims")
		assert.Empty(t, d.Children.Pods, "what it has told is of another volume")
	}
}

// TestClaimsTheAPIServerLetThrough are refused by us.
func TestClaimsTheAPIServerLetThrough(t *testing.T) {
	for name, edit := range map[string]func(*v1beta1.EtcdClusterSpec){
		"Persistent": func(s *v1beta1.EtcdClusterSpec) { s.Storage.Medium = v1beta1.Memory },
		"is empty":   func(s *v1beta1.EtcdClusterSpec) { s.Bootstrap.Claims.Names = nil },
		"not a path": func(s *v1beta1.EtcdClusterSpec) { s.Bootstrap.Claims.Path = "../../etc" },
	} {
		o := fresh(3)
		o.Cluster.Spec.Bootstrap = &v1beta1.Bootstrap{Claims: &v1beta1.FormerClaims{Names: []string{"data-former-0"}}}
		edit(&o.Cluster.Spec)
		d := Decide(o)
		assert.Equal(t, "Unsupported", d.Reason.Rule)
		assert.Contains(t, d.Reason.Message, name)
		assert.Empty(t, d.Children.Pods)
		assert.True(t, meta.IsStatusConditionTrue(d.Status.Conditions, v1beta1.Stalled))
	}
}

// unborn is a cluster of one whose etcd has run for so long without a quorum, with what else is the case.
func unborn(since time.Duration, what ...func(o *observation.Observation, pod *corev1.Pod)) observation.Observation {
	o := serve(1)
	neverQuorate(&o)
	o.Etcd, o.Health["demo-0"] = nil, observation.Health{Err: "no answer in time"}
	o.Cluster.Status = v1beta1.EtcdClusterStatus{}
	pod := o.Children.Pods["demo-0"]
	pod.CreationTimestamp = metav1.NewTime(now.Add(-since - time.Hour))
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerEtcd,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(now.Add(-since))}}}}
	for _, change := range what {
		change(&o, pod)
	}
	return o
}

func waiting(reason string) func(*observation.Observation, *corev1.Pod) {
	return func(_ *observation.Observation, p *corev1.Pod) {
		p.Status.ContainerStatuses[0].State = corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
}

func crashed(_ *observation.Observation, p *corev1.Pod) {
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1}
}

func initContainer(state corev1.ContainerState) func(*observation.Observation, *corev1.Pod) {
	return func(_ *observation.Observation, p *corev1.Pod) {
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: objects.ContainerPrepare, State: state}}
	}
}

func began(from record.Origin) func(*observation.Observation, *corev1.Pod) {
	return func(o *observation.Observation, _ *corev1.Pod) { noted(func(r *record.Record) { r.Origin = from })(o) }
}

const beginAgain = "kubectl quorate recover -n default demo Recreate --yes"

func TestABootstrapThatStalls(t *testing.T) {
	bySnapshot := record.Origin{Source: record.SourceSnapshot, Snapshot: &record.Resolved{}}
	byRestore := bySnapshot
	byRestore.Restore = "one"
	for name, c := range map[string]struct {
		o    observation.Observation
		says string // nothing while it may still begin
		// other: it is not the annotation that begins it again.
		other bool
	}{
		"in time":                   {unborn(4 * time.Minute), "", false},
		"an etcd that never elects": {unborn(5 * time.Minute), "demo-0: its etcd runs: no answer in time", false},
		"that has crashed and runs": {unborn(time.Second, crashed), "demo-0: it crashed: exit 1", false},
		"that crashes, in the same words": {unborn(time.Second, crashed, waiting("CrashLoopBackOff")),
			"demo-0: it crashed: exit 1", false},
		"without an image": {unborn(0, waiting("ImagePullBackOff")), "demo-0: its image can't be pulled", false},
		"that can't be made": {unborn(0, waiting("CreateContainerConfigError")),
			"demo-0: its container can't be created", false},
		"without a volume": {unborn(0, waiting("PodInitializing"),
			initContainer(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}})),
			"demo-0: its containers have not started", false},
		"while its data is fetched": {unborn(24*time.Hour, waiting("PodInitializing"),
			initContainer(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})), "", false},
		"that has a leader": {unborn(time.Hour, func(_ *observation.Observation, p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}), "demo-0's pod is ready, so clients may be served, but Quorate can't reach it", true},
		"sooner, as the spec says": {unborn(time.Minute,
			func(o *observation.Observation, _ *corev1.Pod) { o.Cluster.Spec.Recovery.After.Duration = time.Minute }),
			"within 1m", false},
		"on a record that was deleted": {unborn(0, func(o *observation.Observation, _ *corev1.Pod) {
			startsOn()(o)
		}), "the epoch record was deleted before the first quorum", true},
		"from a snapshot": {unborn(time.Hour, began(bySnapshot)),
			"beginning again: delete the EtcdCluster and create it again", true},
		"from a restored one": {unborn(time.Hour, began(byRestore), func(o *observation.Observation, _ *corev1.Pod) {
			askRestore(o, "one", v1beta1.RestoreOperation{})
		}), "beginning again: create another EtcdOperation of type Restore", true},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.o)
			require.Equal(t, "Start", d.Reason.Rule)
			degraded := meta.FindStatusCondition(d.Status.Conditions, v1beta1.Degraded)
			if c.says == "" {
				assert.Equal(t, "starting demo-0", d.Reason.Message)
				assert.Equal(t, metav1.ConditionFalse, degraded.Status)
				return
			}
			assert.Equal(t, metav1.ConditionTrue, degraded.Status)
			assert.Equal(t, "BootstrapStalled", degraded.Reason)
			assert.Equal(t, d.Reason.Message, degraded.Message)
			assert.Contains(t, degraded.Message, c.says)
			assert.Equal(t, !c.other, strings.Contains(degraded.Message, beginAgain))
		})
	}
}
