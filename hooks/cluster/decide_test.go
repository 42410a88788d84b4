package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// list lets the status have listed the member for some time.
func list(o *observation.Observation, member string, since time.Duration) {
	for _, m := range o.Etcd.Members {
		if m.Name == member {
			o.Cluster.Status.Members = append(o.Cluster.Status.Members,
				v1alpha1.MemberStatus{Name: member, ID: wording.Hex(m.ID), JoinTime: metav1.NewTime(now.Add(-since))})
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
	o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationNextMember] = "4"
	o.Children.Budgets["demo"].Spec.MinAvailable = new(intstr.FromInt(3))
	return o
}

// What a story shows is not repeated here.
func TestDecideFiresTheRightRule(t *testing.T) {
	cases := []struct {
		name   string
		reason string
		given  func() observation.Observation
		rule   string
		step   decision.Step
	}{
		{"fresh", "the record comes before everything else", func() observation.Observation { return fresh(3) },
			"Record", nil},
		{"fresh with replicas 0", "nothing is made for a cluster that should be paused",
			func() observation.Observation { return fresh(0) }, "Empty", nil},
		{"nine converged", "the largest size is no exception", func() observation.Observation { return serve(9) },
			"Converged",
			nil},
		{"version with a leading zero", "no image has such a tag", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.Version = "3.6.016"
			return o
		}, "Unsupported", nil},
		{"blind", "without an answer there is no step", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.Replicas = new(int32(5))
			o.Etcd = nil
			return o
		}, "Blind", nil},
		{"another cluster answers", "its list is not ours to act on", func() observation.Observation {
			o := serve(3)
			o.Etcd.ClusterID = 0xbad
			return o
		}, "WrongCluster", nil},
		{"grow", "a missing voter joins as a learner under a new name", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.Replicas = new(int32(5))
			return o
		}, "Grow", decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.demo-peers.default.svc:2380"}},
		{"grow with a voter down", "all others must serve before a member is added", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.Replicas = new(int32(5))
			silence(&o, "demo-2")
			return o
		}, "Grow", nil},
		{"grow after a shrink", "a number is never used twice", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.Replicas = new(int32(5))
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationNextMember] = "7"
			return o
		}, "Grow", decision.AddLearner{Name: "demo-7", PeerURL: "https://demo-7.demo-peers.default.svc:2380"}},
		{"learner caught up", "it answered, is in sync and has its volume",
			func() observation.Observation { return learnerAt(990) }, "Promote", decision.Promote{ID: 4,
				Name: "demo-3"}},
		{"learner behind", "below 90 % of the leader's index", func() observation.Observation { return learnerAt(899) },
			"Learner",
			nil},
		{"learner caught up and silent", "etcd would promote it, but it did not answer in this call",
			func() observation.Observation {
				o := learnerAt(1000)
				silence(&o, "demo-3")
				return o
			}, "Learner", nil},
		{"learner without its claim", "a volume that is going can't become a voter's", func() observation.Observation {
			o := learnerAt(1000)
			o.Children.Claims["demo-3"].DeletionTimestamp = &metav1.Time{Time: now}
			list(&o, "demo-3", state.CallsEnd)
			return o
		}, "LearnerLost", decision.Remove{ID: 4, Name: "demo-3"}},
		{"learner that is no longer wanted", "the target was lowered meanwhile", func() observation.Observation {
			o := learnerAt(990)
			o.Cluster.Spec.Replicas = new(int32(3))
			list(&o, "demo-3", state.CallsEnd)
			return o
		}, "LearnerSurplus", decision.Remove{ID: 4, Name: "demo-3"}},
		{"learner that is no longer wanted, just added", "a call that looked before it was added may add it again",
			func() observation.Observation {
				o := learnerAt(990)
				o.Cluster.Spec.Replicas = new(int32(3))
				list(&o, "demo-3", state.CallsEnd-time.Second)
				return o
			}, "LearnerSurplus", nil},
		{"learner that is no longer wanted, of which the status knows nothing", "a lost status only delays",
			func() observation.Observation {
				o := learnerAt(990)
				o.Cluster.Spec.Replicas = new(int32(3))
				return o
			}, "LearnerSurplus", nil},
		{"promotion that would cost quorum", "2 of 4 voters are no quorum", func() observation.Observation {
			o := learnerAt(990)
			silence(&o, "demo-1")
			silence(&o, "demo-2")
			return o
		}, "Learner", nil},
		{"number not recorded yet", "the mark is written before anything can go", func() observation.Observation {
			o := learnerAt(990)
			o.Children.ConfigMaps["demo-epoch-1"].Annotations[objects.AnnotationNextMember] = "3"
			return o
		}, "ReserveName", nil},
		{"claim lost in a stale view", "the member answers, so its volume is there", func() observation.Observation {
			o := serve(3)
			delete(o.Children.Claims, "demo-1")
			return o
		}, "Converged", nil},
		{"claim of the leader being deleted", "it serves: its successor joins first", func() observation.Observation {
			o := serve(3)
			o.Children.Claims["demo-0"].DeletionTimestamp = &metav1.Time{Time: now}
			return o
		}, "Grow", decision.AddLearner{Name: "demo-3", PeerURL: "https://demo-3.demo-peers.default.svc:2380"}},
		{"claim of the leader being deleted, successor votes", "leadership is handed on before the leader goes",
			func() observation.Observation {
				o := serve(4)
				o.Cluster.Spec.Replicas = new(int32(3))
				o.Children.Claims["demo-0"].DeletionTimestamp = &metav1.Time{Time: now}
				return o
			}, "Replace", decision.MoveLeader{To: 2, Name: "demo-1"}},
		{"two lost of five", "one at a time, while the rest has quorum", func() observation.Observation {
			o := serve(5)
			lose(&o, "demo-3")
			lose(&o, "demo-4")
			return o
		}, "Replace", decision.Remove{ID: 4, Name: "demo-3"}},
		{"shrink with one down", "the one that does not serve goes first", func() observation.Observation {
			o := serve(5)
			o.Cluster.Spec.Replicas = new(int32(3))
			silence(&o, "demo-1")
			return o
		}, "Shrink", decision.Remove{ID: 2, Name: "demo-1"}},
		{"another version is asked for", "it is gone to when all members have settled", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.Version = "3.7.3"
			return o
		}, "Upgrade", nil},
		{"another template is asked for", "members are restarted one at a time", func() observation.Observation {
			o := serve(3)
			o.Cluster.Spec.PriorityClassName = "high"
			return o
		}, "RollingUpdate", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := onceChosen(t, c.given())
			d := Decide(o)
			assert.Equal(t, c.rule, d.Reason.Rule, "%s: %s", c.reason, d.Reason.Message)
			assert.Equal(t, c.step, d.Step, c.reason)
			assert.NoError(t, verify(o, d))
			again := o
			again.Taken = &decision.Outcome{Step: decision.Remove{}}
			assert.Nil(t, Decide(again).Step, "one step in a call")
		})
	}
}

func TestFoundingMakesWhatMembersNeedBeforeTheyStart(t *testing.T) {
	o := fresh(3)
	d := Decide(o)
	require.Len(t, d.Children.ConfigMaps, 1)
	assert.Empty(t, d.Children.Claims, "the record decides whose claims there are")

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	d = Decide(o)
	assert.Len(t, d.Children.Claims, 3)
	assert.Empty(t, d.Children.Pods, "a pod needs its claim to be observed as ours")

	for i := range 3 {
		addClaim(&o, i)
	}
	d = Decide(o)
	assert.Equal(t, "Provision", d.Reason.Rule)
	assert.Equal(t, "demo-0:uid-claim-0,demo-1:uid-claim-1,demo-2:uid-claim-2",
		d.Children.ConfigMaps[0].Annotations[objects.AnnotationStartsOn])
	assert.Empty(t, d.Children.Pods, "nothing runs before the record says on which claims")

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	d = Decide(o)
	assert.Equal(t, "Start", d.Reason.Rule)
	require.Len(t, d.Children.Pods, 3)
	for _, p := range d.Children.Pods {
		assert.Equal(t, objects.StartBootstrap, p.Annotations[objects.AnnotationStart])
	}
	assert.NoError(t, verify(o, d))
}

func TestAFoundedMemberNeverGetsANewClaim(t *testing.T) {
	o := serve(3)
	lose(&o, "demo-1")
	o.Etcd = nil
	d := Decide(o)
	for _, c := range d.Children.Claims {
		assert.NotEqual(t, "demo-1", c.Name, "its data is lost, and an empty volume would not bring it back")
	}
	assert.NoError(t, verify(o, d))
}

func TestBlindBringsPodsBack(t *testing.T) {
	o := serve(3)
	o.Etcd = nil
	clear(o.Children.Pods)
	clear(o.Health)
	d := Decide(o)
	require.Len(t, d.Children.Pods, 3)
	for _, p := range d.Children.Pods {
		assert.Equal(t, objects.StartResume, p.Annotations[objects.AnnotationStart],
			"a cluster that was quorate never starts a member empty")
	}
	assert.NoError(t, verify(o, d))
}

func TestMemoryPodsAreHeldBackUntilRecorded(t *testing.T) {
	o := fresh(3)
	o.Cluster.Spec.Storage.Medium = v1alpha1.Memory
	o.Children.ConfigMaps["demo-epoch-1"] = state.NewRecord(newView(o), 1, 0, 3)
	d := Decide(o)
	require.Len(t, d.Children.Pods, 3)
	for _, p := range d.Children.Pods {
		assert.NotEmpty(t, p.Spec.SchedulingGates)
		p.UID = "uid-" + "pod-" + "x"
		o.Children.Pods[p.Name] = p
	}
	d = Decide(o)
	assert.Contains(t, d.Children.ConfigMaps[0].Annotations[objects.AnnotationStartsOn], "demo-0:uid-pod-x")
	assert.NotEmpty(t, d.Children.Pods[0].Spec.SchedulingGates, "held back until the record is observed")

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	d = Decide(o)
	assert.Empty(t, d.Children.Pods[0].Spec.SchedulingGates)

	delete(o.Children.Pods, "demo-2")
	d = Decide(o)
	assert.Len(t, d.Children.Pods, 2, "a founded memory pod that is gone took its data along")
}

func TestSteadyStateIsQuiet(t *testing.T) {
	o := serve(3)
	first := Decide(o)
	observe(&o, first)
	o.Now = o.Now.Add(30_000_000_000)
	second := Decide(o)
	assert.Equal(t, first.Children, second.Children)
	assert.Equal(t, first.Status, second.Status)
	assert.Zero(t, second.ResyncAfter)
}

func TestFinalizeWaitsForNoMemberAndDeletesNothingItself(t *testing.T) {
	o := serve(3)
	o.Etcd = nil
	remaining, done := Finalize(o)
	assert.True(t, done)
	assert.Len(t, remaining.Pods, 3, "the garbage collector takes them, if that is what was asked for")
	assert.Len(t, remaining.Claims, 3)
}

func TestPodsAreMadeForProduction(t *testing.T) {
	o := serve(1)
	o.Cluster.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: *quantity("1500m"),
		corev1.ResourceMemory: *quantity("1Gi")}
	pod := children.NewPod(o, "demo-0", "", "3.5.35", objects.StartBootstrap, *quantity("10Gi"), spec.Speech{PeersTLS: true},
		state.BootstrapEnv("demo-epoch-1"))
	etcd := pod.Spec.Containers[0]
	assert.Contains(t, etcd.Command, "--quota-backend-bytes=8053063680", "three quarters of the volume")
	assert.Contains(t, etcd.Command, "--experimental-initial-corrupt-check=true", "3.5 knows no feature gates")
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "GOMAXPROCS", Value: "2"})
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "966367638"})
	assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
	assert.False(t, *pod.Spec.AutomountServiceAccountToken)
	assert.True(t, *etcd.SecurityContext.ReadOnlyRootFilesystem)

	o.Cluster.Spec.Storage.Medium = v1alpha1.Memory
	o.Cluster.Spec.Storage.Size = *quantity("512Mi")
	pod = children.NewPod(o, "demo-0", "", "3.7.3", objects.StartBootstrap, *quantity("512Mi"), spec.Speech{PeersTLS: true}, nil)
	etcd = pod.Spec.Containers[0]
	assert.Equal(t, "1536Mi", etcd.Resources.Limits.Memory().String(), "the tmpfs counts against the limit")
	assert.Contains(t, etcd.Env, corev1.EnvVar{Name: "GOMEMLIMIT", Value: "966367638"}, "but not for the Go heap")
	assert.Contains(t, etcd.Command, "--feature-gates=CompactHashCheck=true,InitialCorruptCheck=true")
}
