package hooks

import (
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
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
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
		o.Cluster.Status.Members[i].Volume = &v1beta1.VolumeStatus{Wanted: quantity(size),
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

// TestChangedStorage: what the stories storage_*.txt don't play, the borders of times and sizes.
func TestChangedStorage(t *testing.T) {
	replaced := func(o *observation.Observation) { o.Cluster.Spec.Storage.Migration = v1beta1.MigrateReplace }
	before := func(size string, ago time.Duration) fact {
		return func(o *observation.Observation) { asked(o, size, ago) }
	}
	unbound := func(o *observation.Observation) { o.Children.Claims["demo-1"].Status.Phase = corev1.ClaimPending }
	full := answering("demo-2", func(h *observation.Health) { h.DBSize = 200 << 20 })
	cases := []struct {
		name, reason string
		facts        []fact
		rule         string
		sizes        map[string]string
	}{
		{"larger, blind", "a full disk may be why no member answers", []fact{size("2Gi"), blinded}, "Blind",
			all("2Gi")},
		{"larger, suspended", "nothing is changed", []fact{size("2Gi"), suspending}, "Suspended", all("1Gi")},
		{"larger, not bound yet", "the API server takes it only of bound claims", []fact{size("2Gi"), unbound},
			"Resize", map[string]string{"demo-0": "2Gi", "demo-1": "1Gi", "demo-2": "2Gi"}},
		{"asked a moment ago", "the answer may not have been carried out", []fact{size("2Gi"), before("2Gi",
			4*time.Second)}, "Resize", all("2Gi")},
		{"asked and refused", "it is not asked again and again", []fact{size("2Gi"), before("2Gi", facts.RefusedAfter)},
			"VolumePending", all("1Gi")},
		{"asked for another size and refused", "this one was not asked for",
			[]fact{size("2Gi"), before("3Gi", facts.RefusedAfter)}, "Resize", all("2Gi")},
		{"asked and refused long ago", "the class may have been changed",
			[]fact{size("2Gi"), before("2Gi", facts.AskAgain)}, "Resize", all("2Gi")},
		{"asked and refused, to be replaced", "a successor joins first",
			[]fact{size("2Gi"), replaced, before("2Gi", facts.ReplacedAfter)}, "Grow",
			map[string]string{"demo-0": "1Gi", "demo-1": "1Gi", "demo-2": "1Gi", "demo-3": "2Gi"}},
		{"asked and perhaps refused, to be replaced", "an old view of the claims is not worth a member",
			[]fact{size("2Gi"), replaced, before("2Gi", facts.ReplacedAfter-time.Second)}, "Resize", all("1Gi")},
		{"smaller than the data, to be replaced", "the file of one member is larger than the quota",
			[]fact{size("512Mi"), replaced, full}, "VolumePending", all("1Gi")},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			o := with(onVolumes(), c.facts...)
			d := Decide(o)
			assert.Equal(t, c.rule, d.Reason.Rule, "%s: %s", c.reason, d.Reason.Message)
			assert.Equal(t, c.rule == "Grow", d.Step != nil, c.reason)
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
		assert.Contains(t, pod.Spec.Containers[0].Command, "--quota-backend-bytes=268435456", pod.Name)
	}
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

// autoGrowing lets volumes grow by themselves, where the databases of all use so much.
func autoGrowing(most string, used int64) fact {
	return func(o *observation.Observation) {
		o.Cluster.Spec.Storage.AutoGrow = &v1beta1.AutoGrow{Max: *quantity(most)}
		for name, h := range o.Health {
			h.DBSize = used
			h.DBSizeInUse = used
			o.Health[name] = h
		}
	}
}

// TestVolumesGrowByThemselves: of 1Gi etcd may take 256 MiB, of 2Gi 688, of 3Gi 1120.
func TestVolumesGrowByThemselves(t *testing.T) {
	limit := func(memory string) fact {
		return func(o *observation.Observation) {
			o.Cluster.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *quantity(memory)}
		}
	}
	has := func(size string) fact {
		return func(o *observation.Observation) {
			for _, c := range o.Children.Claims {
				c.Spec.Resources.Requests[corev1.ResourceStorage] = *quantity(size)
				c.Status.Capacity[corev1.ResourceStorage] = *quantity(size)
			}
		}
	}
	other := func(o *observation.Observation) {
		o.Children.Claims["demo-1"].Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("2Gi")
	}
	for _, c := range []struct {
		name    string
		facts   []fact
		size    string
		advises string
	}{
		{"enough room", []fact{autoGrowing("9Gi", 204<<20)}, "1Gi", ""},
		{"80 % in use", []fact{autoGrowing("9Gi", 205<<20)}, "2Gi", ""},
		{"more than the next size has room for", []fact{autoGrowing("9Gi", 600<<20)}, "3Gi", ""},
		{"no further than said", []fact{autoGrowing("1536Mi", 600<<20)}, "1536Mi", "spec.storage.autoGrow.max is 1536Mi"},
		{"a limit of memory", []fact{autoGrowing("9Gi", 600<<20), limit("1Gi")}, "2Gi",
			"a quota of 1120 MiB is more than spec.resources.limits.memory 1Gi"},
		{"one has grown already", []fact{autoGrowing("9Gi", 0), other}, "2Gi", ""},
		{"they have grown, and now may not", []fact{autoGrowing("2Gi", 0), has("3Gi")}, "3Gi", ""},
		{"etcd takes no more", []fact{autoGrowing("99Gi", 8<<30), has("20Gi")}, "20Gi",
			"etcd's quota is 8192 MiB whatever the volume"},
		{"none answers", []fact{autoGrowing("9Gi", 0), has("3Gi"), blinded}, "3Gi", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := with(onVolumes(), c.facts...)
			d := Decide(o)
			assert.Equal(t, all(c.size), sizes(d), d.Reason.Message)
			assert.NoError(t, verify(o, d))
			assert.Contains(t, facts.New(o).GrowsNoMore(), c.advises)
			assert.Equal(t, c.advises == "", facts.New(o).GrowsNoMore() == "")
		})
	}
}

func TestVolumesGrowNoFurtherThanSaidWhateverOneHas(t *testing.T) {
	o := with(onVolumes(), autoGrowing("9Gi", 0))
	o.Children.Claims["demo-1"].Spec.Resources.Requests[corev1.ResourceStorage] = *quantity("500Gi")
	d := Decide(o)
	assert.Equal(t, map[string]string{"demo-0": "9Gi", "demo-1": "500Gi", "demo-2": "9Gi"}, sizes(d))
	assert.NoError(t, verify(o, d))
	d.Children.Claims[0].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity("500Gi")}
	assert.ErrorContains(t, verify(o, d), "S12")
}

func TestVerifyLetsVolumesGrowByThemselvesOnlyWhenFull(t *testing.T) {
	for name, c := range map[string]struct {
		used int64
		size string
	}{"empty": {100 << 20, "2Gi"}, "too much": {205 << 20, "10Gi"}} {
		o := with(onVolumes(), autoGrowing("9Gi", c.used))
		d := Decide(o)
		d.Children.Claims[1].Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity(c.size)}
		assert.ErrorContains(t, verify(o, d), "S12", name)
	}
}

func TestStorageFieldsLeaveTheTemplateAlone(t *testing.T) {
	o := onVolumes()
	before := facts.New(o).TemplateNow("3.6.16")
	o.Cluster.Spec.Storage = v1beta1.StorageSpec{Medium: v1beta1.Persistent, Size: *quantity("2Gi"),
		StorageClassName: new("fast"), Migration: v1beta1.MigrateReplace,
		AutoGrow: &v1beta1.AutoGrow{Max: *quantity("5Gi")}}
	assert.Equal(t, before, facts.New(o).TemplateNow("3.6.16"))
}

// withLogs is onVolumes with a volume for each member's write-ahead log.
func withLogs() observation.Observation {
	o := onVolumes()
	o.Cluster.Spec.Storage.WAL = &v1beta1.WALSpec{Size: *quantity("1Gi")}
	for i := range 3 {
		name := objects.MemberName("demo", i)
		wal := *o.Children.Claims[name]
		wal.Name, wal.UID = facts.WALClaim(name), "uid-wal-"+wal.UID
		o.Children.Claims[wal.Name] = &wal
		noted(func(r *record.Record) { r.StartsOn[wal.Name] = wal.UID })(&o)
		answer.WithWAL(o.Children.Pods[name])
	}
	return o
}

func TestAMemberStandsOnBothOfItsVolumes(t *testing.T) {
	o := with(withLogs(), withoutPod("demo-1"), silenced("demo-1"))
	d := Decide(o)
	assert.Len(t, d.Children.Claims, 6)
	pod := d.Children.Pods[1]
	assert.Contains(t, pod.Spec.Containers[0].Command, "--wal-dir=/var/lib/etcd-wal/wal")
	assert.Contains(t, pod.Spec.InitContainers[0].Args, "--wal-dir=/var/lib/etcd-wal/wal",
		"prepare looks at what etcd will")
	assert.NoError(t, verify(o, d))
	o.Cluster.Spec.Storage.WAL = nil
	assert.Equal(t, []string{"demo-1", "demo-1-wal"}, facts.ClaimsIn(Decide(o).Children.Pods[1]),
		"its log is where it was made, whatever the spec says now")

	o = fresh(1)
	o.Cluster.Spec.Storage.WAL = &v1beta1.WALSpec{Size: *quantity("2Gi"), StorageClassName: new("fast")}
	o.Children.ConfigMaps["demo-epoch-1"] = record.New(o.Cluster, 1, facts.New(o).NewRecord(0, 1))
	wal := Decide(o).Children.Claims[1]
	assert.Equal(t, "demo-0-wal", wal.Name)
	assert.Equal(t, "2Gi", wal.Spec.Resources.Requests.Storage().String())
	assert.Equal(t, "fast", *wal.Spec.StorageClassName)
}

func TestVerifyWatchesTheLogs(t *testing.T) {
	o := withLogs()
	delete(o.Children.Pods, "demo-1")
	silence(&o, "demo-1")
	d := Decide(o)
	d.Children.Pods[1] = bare(o, "demo-1")
	assert.ErrorContains(t, verify(o, d), "leaves out the volume demo-1-wal")

	d = Decide(o)
	d.Children.Claims = objects.Filter(d.Children.Claims,
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
	f := facts.New(o)
	pod := answer.NewPod(o, name, "", f.Epoch.Version, objects.StartResume, room("1Gi"), defaults.Speech{PeersTLS: true}, answer.ResumeEnv())
	return pod
}

// TestASuccessorMayTakeTheNodeOfTheMemberThatLeaves: counted, the one that leaves would keep its node free, and on
// three nodes two members would share another one in two of three cases.
func TestASuccessorMayTakeTheNodeOfTheMemberThatLeaves(t *testing.T) {
	replaced := func(o *observation.Observation) {
		o.Cluster.Spec.Storage.Migration = v1beta1.MigrateReplace
		o.Cluster.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule},
			{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "data"}}},
		}
	}
	o := with(onVolumes(), replaced, size("2Gi"))
	for _, pod := range o.Children.Pods {
		pod.Annotations[objects.AnnotationTemplate] = facts.TemplateOf(o.Cluster, "3.6.16").Hash()
	}
	asked(&o, "2Gi", facts.ReplacedAfter)
	addMember(&o, 3, true)
	delete(o.Children.Pods, "demo-3")
	nextMember(4)(&o)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	var pod *corev1.Pod
	for _, p := range d.Children.Pods {
		if p.Name == "demo-3" {
			pod = p
		}
	}
	require.NotNil(t, pod, d.Reason.Message)
	stay := &metav1.LabelSelector{MatchLabels: objects.Selector(o.Cluster),
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: objects.LabelMember,
			Operator: metav1.LabelSelectorOpNotIn, Values: []string{"demo-1"}}}}
	apart := pod.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	assert.Equal(t, stay, apart[0].PodAffinityTerm.LabelSelector)
	assert.Equal(t, stay, pod.Spec.TopologySpreadConstraints[0].LabelSelector)
	assert.Equal(t, "data", pod.Spec.TopologySpreadConstraints[1].LabelSelector.MatchLabels["tier"],
		"a selector of the spec's own stays")
}

// TestMemoryBelowTheQuota: a limit of memory that is smaller than the database may become is advised against, and
// works.
func TestMemoryBelowTheQuota(t *testing.T) {
	advised := func(limit string, medium v1beta1.Medium) string {
		o := onVolumes()
		o.Cluster.Spec.Storage.Medium = medium
		o.Cluster.Spec.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *quantity(limit)}
		return answer.Advice(facts.New(o))
	}

	assert.Contains(t, advised("128Mi", v1beta1.Persistent), "resources.limits.memory 128Mi is less than the quota of")
	assert.Empty(t, advised("1Gi", v1beta1.Persistent))
	assert.Empty(t, advised("128Mi", v1beta1.Memory), "its volume is added to the limit")
}
