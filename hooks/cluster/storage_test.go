package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// onVolumes is a cluster of three that serves on bound volumes of 1Gi of the class slow.
func onVolumes() observation.Observation {
	o := serve(3)
	for _, c := range o.Children.Claims {
		c.Spec.StorageClassName = new("slow")
		c.Status.Phase = corev1.ClaimBound
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: *quantity("1Gi")}
	}
	return o
}

// asked lets the status say that the API server was asked for this size some time ago.
func asked(o *observation.Observation, size string, ago time.Duration) {
	for i := range o.Cluster.Status.Members {
		o.Cluster.Status.Members[i].Volume = &v1alpha1.VolumeStatus{Wanted: quantity(size),
			RequestTime: metav1.NewTime(now.Add(-ago))}
	}
}

// sizes are what the answer asks for, by claim.
func sizes(d decision.Decision) map[string]string {
	all := map[string]string{}
	for _, c := range d.Children.Claims {
		all[c.Name] = c.Spec.Resources.Requests.Storage().String()
	}
	return all
}

func all(size string) map[string]string {
	return map[string]string{"demo-0": size, "demo-1": size, "demo-2": size}
}

func TestChangedStorage(t *testing.T) {
	cases := []struct {
		name, reason string
		given        func(o *observation.Observation)
		rule         string
		step         bool
		sizes        map[string]string
	}{
		{"nothing has changed", "claims keep what they have", func(*observation.Observation) {}, "Converged", false,
			all("1Gi")},
		{"larger", "claims grow all at once: no member is disturbed", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
		}, "Resize", false, all("2Gi")},
		{"larger, blind", "a full disk may be why no member answers", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size, o.Etcd = *quantity("2Gi"), nil
		}, "Blind", false, all("2Gi")},
		{"larger, suspended", "nothing is changed", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size, o.Cluster.Spec.Suspend = *quantity("2Gi"), true
		}, "Suspended", false, all("1Gi")},
		{"larger, not bound yet", "the API server takes it only of bound claims", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			o.Children.Claims["demo-1"].Status.Phase = corev1.ClaimPending
		}, "Resize", false, map[string]string{"demo-0": "2Gi", "demo-1": "1Gi", "demo-2": "2Gi"}},
		{"asked a moment ago", "the answer may not have been carried out", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			asked(o, "2Gi", 4*time.Second)
		}, "Resize", false, all("2Gi")},
		{"asked and refused", "it is not asked again and again", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			asked(o, "2Gi", volumes.RefusedAfter)
		}, "VolumePending", false, all("1Gi")},
		{"asked for another size and refused", "this one was not asked for", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			asked(o, "3Gi", volumes.RefusedAfter)
		}, "Resize", false, all("2Gi")},
		{"asked and refused long ago", "the class may have been changed", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			asked(o, "2Gi", volumes.AskAgain)
		}, "Resize", false, all("2Gi")},
		{"asked and refused, to be replaced", "a successor joins first", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size, o.Cluster.Spec.Storage.Migration = *quantity("2Gi"), v1alpha1.MigrateReplace
			asked(o, "2Gi", volumes.ReplacedAfter)
		}, "Grow", true, all("1Gi")},
		{"asked and perhaps refused, to be replaced", "an old view of the claims is not worth a member",
			func(o *observation.Observation) {
				o.Cluster.Spec.Storage.Size, o.Cluster.Spec.Storage.Migration = *quantity("2Gi"),
					v1alpha1.MigrateReplace
				asked(o, "2Gi", volumes.ReplacedAfter-time.Second)
			}, "Resize", false, all("1Gi")},
		{"another class", "a person chooses", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.StorageClassName = new("fast")
		}, "VolumePending", false, all("1Gi")},
		{"another class, to be replaced", "a successor joins first", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.StorageClassName, o.Cluster.Spec.Storage.Migration = new("fast"),
				v1alpha1.MigrateReplace
		}, "Grow", true, all("1Gi")},
		{"another class and larger, to be replaced", "what is to go does not grow", func(o *observation.Observation) {
			o.Cluster.Spec.Storage = v1alpha1.StorageSpec{Medium: v1alpha1.Persistent, StorageClassName: new("fast"),
				Size: *quantity("2Gi"), Migration: v1alpha1.MigrateReplace}
		}, "Grow", true, all("1Gi")},
		{"smaller", "a volume can't shrink", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("512Mi")
		}, "VolumePending", false, all("1Gi")},
		{"smaller, to be replaced", "the data fits", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size, o.Cluster.Spec.Storage.Migration = *quantity("512Mi"), v1alpha1.MigrateReplace
		}, "Grow", true, all("1Gi")},
		{"smaller than the data, to be replaced", "the file of one member is larger than the quota",
			func(o *observation.Observation) {
				o.Cluster.Spec.Storage.Size, o.Cluster.Spec.Storage.Migration = *quantity("512Mi"),
					v1alpha1.MigrateReplace
				h := o.Health["demo-2"]
				h.DBSize = 400 << 20
				o.Health["demo-2"] = h
			}, "VolumePending", false, all("1Gi")},
		{"grown", "etcd learns of it when it is restarted", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			for _, c := range o.Children.Claims {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("2Gi")
			}
			o.Children.Claims["demo-1"].Status.Capacity[corev1.ResourceStorage] = *quantity("2Gi")
		}, "RollingUpdate", false, all("2Gi")},
		{"growing", "there is nothing to learn yet", func(o *observation.Observation) {
			o.Cluster.Spec.Storage.Size = *quantity("2Gi")
			for _, c := range o.Children.Claims {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("2Gi")
			}
		}, "Resize", false, all("2Gi")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := onVolumes()
			c.given(&o)
			d := Decide(o)
			assert.Equal(t, c.rule, d.Reason.Rule, "%s: %s", c.reason, d.Reason.Message)
			assert.Equal(t, c.step, d.Step != nil, c.reason)
			assert.Equal(t, c.sizes, sizes(d), c.reason)
			assert.NoError(t, verify(o, d))
		})
	}
}

func TestTheStatusTellsOfAVolumeUntilItIsAsWanted(t *testing.T) {
	o := onVolumes()
	assert.Nil(t, Decide(o).Status.Members[1].Volume)

	o.Cluster.Spec.Storage.Size = *quantity("2Gi")
	d := Decide(o)
	v := d.Status.Members[1].Volume
	require.NotNil(t, v)
	assert.Equal(t, "2Gi", v.Wanted.String())
	assert.Equal(t, "1Gi", v.Capacity.String())
	assert.Equal(t, now.Truncate(time.Second), v.RequestTime.Time, "the next call knows since when")
	o.Cluster.Status = d.Status
	o.Now = now.Add(time.Minute)
	d = Decide(o)
	assert.Contains(t, d.Status.Members[1].Volume.Message, "allowVolumeExpansion")
	assert.Equal(t, now.Truncate(time.Second), d.Status.Members[1].Volume.RequestTime.Time)
	assert.Contains(t, d.Reason.Message, "demo-0, demo-1, demo-2: the API server does not let it grow")

	o.Children.Claims["demo-1"].Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("2Gi")
	o.Children.Claims["demo-1"].Status.Conditions = []corev1.PersistentVolumeClaimCondition{
		{Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue,
			Message: "the pool is full"},
	}
	d = Decide(o)
	assert.Equal(t, "the pool is full", d.Status.Members[1].Volume.Message)
	assert.Contains(t, d.Reason.Message, "demo-1: the pool is full")

	o.Children.Claims["demo-1"].Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound,
		Capacity: corev1.ResourceList{corev1.ResourceStorage: *quantity("2Gi")}}
	assert.Nil(t, Decide(o).Status.Members[1].Volume)
}

func TestAPodOnAVolumeThatStillGrowsGetsTheQuotaOfWhatIsThere(t *testing.T) {
	o := onVolumes()
	o.Cluster.Spec.Storage.Size = *quantity("2Gi")
	o.Children.Claims["demo-1"].Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("2Gi")
	delete(o.Children.Pods, "demo-1")
	delete(o.Health, "demo-1")
	for _, pod := range Decide(o).Children.Pods {
		assert.Contains(t, pod.Spec.Containers[0].Command, "--quota-backend-bytes=805306368", pod.Name)
	}
}

func TestAFileSystemThatGrowsOnlyAtTheStartGetsOneRestart(t *testing.T) {
	o := onVolumes()
	o.Cluster.Spec.Storage.Size = *quantity("2Gi")
	for name, c := range o.Children.Claims {
		c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("2Gi")
		c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{
			{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now.Add(-volumes.OnlineAfter))},
		}
		o.Children.Pods[name].CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	}
	assert.Equal(t, "Resize", Decide(o).Reason.Rule, "the kubelet may do it while the pod runs")
	o.Now = now.Add(time.Second)
	d := Decide(o)
	assert.Equal(t, "RollingUpdate", d.Reason.Rule)
	assert.NoError(t, verify(o, d))
	for _, pod := range o.Children.Pods {
		pod.CreationTimestamp = metav1.NewTime(now)
	}
	assert.Equal(t, "Resize", Decide(o).Reason.Rule, "a pod that has started since was restarted for nothing")
}

func TestVerifyLetsClaimsOnlyGrow(t *testing.T) {
	for name, change := range map[string]func(*corev1.PersistentVolumeClaim){
		"smaller": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity("512Mi")}
		},
		"larger than said": func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity("3Gi")}
		},
		"another class": func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("fast") },
	} {
		o := onVolumes()
		o.Cluster.Spec.Storage.Size = *quantity("2Gi")
		d := Decide(o)
		change(d.Children.Claims[1])
		assert.ErrorContains(t, verify(o, d), "S12", name)
	}
}

func TestStorageFieldsLeaveTheTemplateAlone(t *testing.T) {
	o := onVolumes()
	before := children.TemplateNow(newView(o), "3.6.16")
	o.Cluster.Spec.Storage = v1alpha1.StorageSpec{Medium: v1alpha1.Persistent, Size: *quantity("2Gi"),
		StorageClassName: new("fast"), Migration: v1alpha1.MigrateReplace}
	assert.Equal(t, before, children.TemplateNow(newView(o), "3.6.16"))
}

// withLogs is onVolumes with a volume for each member's write-ahead log.
func withLogs() observation.Observation {
	o := onVolumes()
	o.Cluster.Spec.Storage.WAL = &v1alpha1.WALSpec{Size: *quantity("1Gi")}
	record := o.Children.ConfigMaps["demo-epoch-1"]
	for i := range 3 {
		name := objects.MemberName("demo", i)
		wal := *o.Children.Claims[name]
		wal.Name, wal.UID = state.WALClaim(name), "uid-wal-"+wal.UID
		o.Children.Claims[wal.Name] = &wal
		record.Annotations[objects.AnnotationStartsOn] += "," + wal.Name + ":" + string(wal.UID)
		volumes.WithWAL(o.Children.Pods[name])
	}
	return o
}

func TestAMemberStandsOnBothOfItsVolumes(t *testing.T) {
	o := withLogs()
	d := Decide(o)
	assert.Equal(t, "Converged", d.Reason.Rule, d.Reason.Message)
	assert.Len(t, d.Children.Claims, 6)
	assert.NoError(t, verify(o, d))

	delete(o.Children.Pods, "demo-1")
	silence(&o, "demo-1")
	d = Decide(o)
	pod := d.Children.Pods[1]
	assert.Contains(t, pod.Spec.Containers[0].Command, "--wal-dir=/var/lib/etcd-wal/wal")
	assert.Contains(t, pod.Spec.InitContainers[0].Args, "--wal-dir=/var/lib/etcd-wal/wal",
		"prepare looks at what etcd will")
	assert.Equal(t, []string{"demo-1", "demo-1-wal"}, state.ClaimsIn(pod))
	assert.NoError(t, verify(o, d))

	o.Cluster.Spec.Storage.WAL = nil
	d = Decide(o)
	assert.Equal(t, []string{"demo-1", "demo-1-wal"}, state.ClaimsIn(d.Children.Pods[1]),
		"its log is where it was made, whatever the spec says now")

	delete(o.Children.Claims, "demo-1-wal")
	d = Decide(onceChosen(t, o))
	assert.Equal(t, "Replace", d.Reason.Rule)
	assert.Equal(t, decision.Remove{ID: 2, Name: "demo-1"}, d.Step)
	assert.Len(t, d.Children.Pods, 2, "no pod without its log")
	assert.NoError(t, verify(o, d))

	o.Etcd = nil
	d = Decide(o)
	assert.Len(t, d.Children.Pods, 2)
	for _, c := range d.Children.Claims {
		assert.NotEqual(t, "demo-1-wal", c.Name, "an empty one would not bring it back")
	}
	assert.NoError(t, verify(o, d))
}

func TestVerifyWatchesTheLogs(t *testing.T) {
	o := withLogs()
	delete(o.Children.Pods, "demo-1")
	silence(&o, "demo-1")
	d := Decide(o)
	d.Children.Pods[1] = bare(o, "demo-1")
	assert.ErrorContains(t, verify(o, d), "leaves out the volume demo-1-wal")

	d = Decide(o)
	d.Children.Claims = wording.Filter(d.Children.Claims,
		func(c *corev1.PersistentVolumeClaim) bool { return c.Name != "demo-2-wal" })
	assert.ErrorContains(t, verify(o, d), "S7: the claim demo-2 goes without a list in hand that omits it")

	o = withLogs()
	delete(o.Children.Claims, "demo-2-wal")
	silence(&o, "demo-2")
	d = Decide(o)
	wal := *o.Children.Claims["demo-1-wal"]
	wal.Name, wal.UID = "demo-2-wal", ""
	d.Children.Claims = append(d.Children.Claims, &wal)
	assert.ErrorContains(t, verify(o, d), "S10: a new claim for demo-2")
}

// bare is a pod of a member without the volume for its log.
func bare(o observation.Observation, name string) *corev1.Pod {
	v := newView(o)
	pod := children.NewPod(o, name, "", v.Epoch.Version, objects.StartResume, *quantity("1Gi"), spec.Speech{PeersTLS: true}, state.ResumeEnv())
	return pod
}

func TestFoundingWaitsForBothClaims(t *testing.T) {
	o := fresh(1)
	o.Cluster.Spec.Storage.WAL = &v1alpha1.WALSpec{Size: *quantity("2Gi"), StorageClassName: new("fast")}
	o.Children.ConfigMaps["demo-epoch-1"] = state.NewRecord(newView(o), 1, 0, 1)
	d := Decide(o)
	require.Len(t, d.Children.Claims, 2)
	wal := d.Children.Claims[1]
	assert.Equal(t, "demo-0-wal", wal.Name)
	assert.Equal(t, "2Gi", wal.Spec.Resources.Requests.Storage().String())
	assert.Equal(t, "fast", *wal.Spec.StorageClassName)

	addClaim(&o, 0)
	d = Decide(o)
	assert.Empty(t, d.Children.ConfigMaps[0].Annotations[objects.AnnotationStartsOn],
		"half of what it stands on is missing")
	wal.UID, wal.OwnerReferences = "uid-wal", []metav1.OwnerReference{{UID: o.Cluster.UID}}
	o.Children.Claims["demo-0-wal"] = wal
	d = Decide(o)
	assert.Equal(t, "demo-0:uid-claim-0,demo-0-wal:uid-wal",
		d.Children.ConfigMaps[0].Annotations[objects.AnnotationStartsOn])
	assert.Empty(t, d.Children.Pods)

	o.Children.ConfigMaps["demo-epoch-1"] = d.Children.ConfigMaps[0]
	d = Decide(o)
	require.Len(t, d.Children.Pods, 1)
	assert.Equal(t, objects.StartBootstrap, state.PodStart(d.Children.Pods[0]))
	assert.NoError(t, verify(o, d))
	o.Children.Claims["demo-0-wal"].UID = "another"
	for _, pod := range Decide(o).Children.Pods {
		assert.NotEqual(t, objects.StartBootstrap, state.PodStart(pod),
			"it may begin on what is recorded, and on nothing else")
	}
}
