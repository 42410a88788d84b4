package hooks

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/answer"
	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/record"
	"github.com/quorate-dev/quorate/hooks/record/recordtest"
)

// mishaps are what may be true of an observation, in any combination: faults, stale caches, nonsense. n chooses the
// member.
var mishaps = []func(o *observation.Observation, n int){
	func(o *observation.Observation, _ int) { o.Etcd = nil },
	func(o *observation.Observation, _ int) { o.Cluster.Spec.Suspend = !o.Cluster.Spec.Suspend },
	func(o *observation.Observation, n int) { o.Cluster.Spec.Replicas = new(int32(n % 10)) },
	func(o *observation.Observation, _ int) { o.Cluster.Spec.Storage.Medium = v1beta1.Memory },
	func(o *observation.Observation, _ int) { o.Cluster.Spec.Version = "3.7.3" },
	func(o *observation.Observation, _ int) { o.Cluster.Spec.Version = "nonsense" },
	func(o *observation.Observation, _ int) { o.Cluster.Spec.PriorityClassName = "other" },
	func(o *observation.Observation, _ int) { o.Cluster.Status = v1beta1.EtcdClusterStatus{} },
	func(o *observation.Observation, n int) { delete(o.Children.Pods, objects.MemberName("demo", n)) },
	func(o *observation.Observation, n int) { delete(o.Children.Claims, objects.MemberName("demo", n)) },
	func(o *observation.Observation, n int) { lose(o, objects.MemberName("demo", n)) },
	func(o *observation.Observation, n int) { silence(o, objects.MemberName("demo", n)) },
	func(o *observation.Observation, _ int) { clear(o.Children.ConfigMaps) },
	func(o *observation.Observation, _ int) { clear(o.Children.Pods) },
	func(o *observation.Observation, _ int) { clear(o.Children.Claims) },
	func(o *observation.Observation, _ int) { clear(o.Children.Services); clear(o.Children.Budgets) },
	func(o *observation.Observation, _ int) { o.Children = observation.Children{} },
	onRecord(func(r *record.Record, _ int) { r.StartsOn = nil }),
	onRecord(func(r *record.Record, _ int) { r.ClusterID = 0 }),
	onRecord(func(r *record.Record, n int) { r.NextOrdinal = n }),
	onRecord(func(r *record.Record, _ int) { r.StartsOn = map[string]types.UID{"rubbish": "", "": "x", "demo-0": ""} }),
	onPod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }),
	onPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
	onPod(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending}; p.Spec.NodeName = "" }),
	onPod(func(p *corev1.Pod) { p.Annotations = map[string]string{objects.AnnotationStart: objects.StartResume} }),
	onPod(func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: answer.ProvisionGate}}
	}),
	onPod(func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name:  objects.ContainerPrepare,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: objects.ExitDataLost}},
		}}}
	}),
	onPod(func(p *corev1.Pod) { p.UID = "another" }),
	onClaim(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }),
	onClaim(func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }),
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("an older cluster")}}
	}),
	onMember(func(m *observation.Member) { m.Learner = !m.Learner }),
	onMember(func(m *observation.Member) { m.Name, m.ClientURLs = "", nil }),
	onMember(func(m *observation.Member) { m.PeerURLs = []string{"http://elsewhere:2380"} }),
	onMember(func(m *observation.Member) { m.PeerURLs = []string{"%"} }),
	func(o *observation.Observation, n int) {
		if o.Etcd != nil && n < len(o.Etcd.Members) {
			o.Etcd.Members = slices.Delete(slices.Clone(o.Etcd.Members), n, n+1)
		}
	},
	func(o *observation.Observation, n int) {
		if o.Etcd != nil {
			o.Etcd.Leader = uint64(n)
		}
	},
	func(o *observation.Observation, _ int) {
		if o.Etcd != nil {
			o.Etcd.ClusterID++
		}
	},
	trusting(func(h *observation.Health, _ int) { h.RaftIndex, h.Learner, h.Alarms = 1, true, []string{"NOSPACE"} }),
	trusting(func(h *observation.Health, _ int) { h.MemberID++ }),
	func(o *observation.Observation, _ int) {
		o.Taken = &decision.Outcome{Step: decision.Remove{ID: 1, Name: "demo-0"}, Err: "refused"}
	},

	// What more than one hand has written.
	onPod(func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: "sidecar", RestartCount: 3,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		})
	}),
	onPod(func(p *corev1.Pod) {
		p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses,
			corev1.ContainerStatus{Name: "mesh", Ready: true}, corev1.ContainerStatus{Name: objects.ContainerPrepare})
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady},
			corev1.PodCondition{Type: corev1.PodScheduled})
	}),
	onPod(func(p *corev1.Pod) {
		p.Labels = map[string]string{"theirs": "x", objects.Domain + "old": "x"}
		p.OwnerReferences = []metav1.OwnerReference{{UID: "uid-demo"}, {UID: "other"}}
	}),
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{"theirs": "x", objects.AnnotationStart: "x"}
		c.OwnerReferences = append(c.OwnerReferences, metav1.OwnerReference{UID: "other"},
			metav1.OwnerReference{UID: "third"})
	}),

	// Nonsense, as far as the wire lets it through.
	onPod(func(p *corev1.Pod) { *p = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}} }),
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		*c = corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: c.Name, UID: c.UID}}
	}),
	func(o *observation.Observation, n int) {
		for i, name := range []string{"demo", "demo-", "demo-x", "demo-007", "demo--1", "demo-99999999999999999999",
			"other-0", "demo-9223372036854775807"} {
			if i <= n && o.Children.Pods != nil {
				o.Children.Pods[name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name,
					UID: types.UID("uid-" + name)}}
				o.Children.Claims[name] = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name,
					UID: types.UID("uid-" + name)}}
			}
		}
	},
	func(o *observation.Observation, n int) { addRecord(o, n, record.Record{}) },
	func(o *observation.Observation, n int) {
		var r record.Record
		r.Initial = map[string]string{"": "", "a": "b", "demo-1": "", "demo-2": "http://x"}
		addRecord(o, n, r)
	},
	func(o *observation.Observation, n int) {
		for _, cm := range o.Children.ConfigMaps {
			cm.Data = map[string]string{"bootstrap": []string{"", "{", "null", "[]", `{"previousEpoch":"x"}`, `{"source":7}`}[n%6]}
		}
	},
	onRecord(func(r *record.Record, _ int) { r.NextOrdinal = -7 }),
	func(o *observation.Observation, n int) {
		var r record.Record
		r.Initial = map[string]string{"demo-8": "http://x", "demo-9": "http://y"}
		r.Source = record.SourceSnapshot
		r.Snapshot = []*record.Resolved{nil, {}}[n%2]
		r.Floor = []int64{0, record.MostRevisions, math.MaxInt64}[n%3]
		r.Past = map[int]record.Past{0: {}, 3: {ClusterID: 0xc1, Voters: []int{-1, 7}}}
		r.Answered = map[string]int{"a": -1, "": 2, "c": 3}
		addRecord(o, n, r)
	},
	onRecord(func(r *record.Record, n int) {
		r.Highest = []int64{-1, record.MostRevisions, math.MaxInt64}[n%3]
		r.Sum = "x"
	}),
	func(o *observation.Observation, n int) {
		for _, s := range o.Children.Services {
			s.Annotations = map[string]string{objects.AnnotationHighestRevision: []string{"x", "-1", "7",
				"4611686018427387904"}[n%4], objects.AnnotationEpoch: fmt.Sprint(n),
				objects.AnnotationAnswered: "a=1,b=x"}
		}
	},
	trusting(func(h *observation.Health, n int) { h.Revision = []int64{-1, 1, math.MaxInt64}[n%3] }),
	onRecord(func(r *record.Record, _ int) { r.State = record.State{} }),
	onRecord(func(r *record.Record, _ int) { r.NextOrdinal = math.MaxInt }),
	func(o *observation.Observation, n int) {
		for _, s := range o.Children.Services {
			s.Annotations = map[string]string{objects.AnnotationNextMember: []string{"x", "-1", "7", "1000",
				"9223372036854775807"}[n%5]}
		}
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Replicas = []*int32{nil, new(int32(-1)), new(int32(math.MaxInt32))}[n%3]
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Storage.Size = []resource.Quantity{{}, *quantity("-1"), *quantity("1"), *quantity("1e30"),
			*quantity("100m")}[n%5]
	},
	func(o *observation.Observation, _ int) {
		o.Cluster.Status.Members = append(o.Cluster.Status.Members, v1beta1.MemberStatus{},
			v1beta1.MemberStatus{Name: "demo-1", Role: v1beta1.Voter})
		o.Cluster.Status.ClusterID, o.Cluster.Status.Version = "no number", "no version"
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Status.Conditions = append(o.Cluster.Status.Conditions, metav1.Condition{Type: "Theirs"},
			metav1.Condition{Type: fmt.Sprint(n)})
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.AdditionalMetadata.Labels = map[string]v1beta1.LabelValue{[]string{objects.LabelMember,
			"app.kubernetes.io/name", ""}[n%3]: "x", "note": "", "app.kubernetes.io/instance": "x"}
	},
	func(o *observation.Observation, n int) {
		o.Now = []time.Time{now.Add(time.Second), now.Add(time.Hour), now.AddDate(-1, 0, 0)}[n%3]
	},

	// Versions on their way, and members that are restarted for it.
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Version = []string{"3.5.35", "3.6.16", "3.6.4", "3.6.17", "3.7.3", "3.7.0", "3.5.26"}[n%7]
		o.Cluster.Spec.UpgradePolicy = []v1beta1.UpgradePolicy{"", v1beta1.UpgradeStep}[n/7]
	},
	onRecord(func(r *record.Record, n int) {
		r.Version = []string{"3.5.35", "3.6.5", "3.6.16", "3.7.3", "4.0.0", "rubbish", ""}[n%7]
	}),
	onRecord(func(r *record.Record, n int) {
		r.OldLog = []record.OldLog{{There: true}, {There: true, UpTo: 900}, {UpTo: 900},
			{There: true, UpTo: math.MaxInt64}}[n%4]
	}),
	onRecord(func(r *record.Record, n int) {
		i := n % 3
		name := objects.MemberName("demo", i)
		r.Choice = []record.Choice{{Name: name}, restart(i), ofContainer(restart(i), "containerd://1"),
			ofContainer(restart(i), "-"), {Name: name, Pod: "another"}, {Pod: "a", Down: true, Removes: true},
			wasDown(restart(i)), removal(i), withdrawn(removal(i), 0), withdrawn(removal(i), facts.CallsEnd)}[n/3%10]
	}),
	func(o *observation.Observation, n int) {
		for _, p := range o.Children.Pods {
			if p.Annotations != nil {
				p.Annotations[objects.AnnotationWithdrawn] = []string{"rubbish", now.Format(time.RFC3339),
					now.Add(-facts.CallsEnd).Format(time.RFC3339)}[n%3]
			}
		}
	},
	trusting(func(h *observation.Health, n int) {
		h.Version = []string{"3.5.35", "3.6.16", "3.7.3", "", "rubbish"}[n%5]
		h.StorageVersion, h.Downgrade = []string{"", "3.5.0", "3.6.0", "3.7.0"}[n%4],
			[]string{"", "3.6.0", "3.5.0", "rubbish"}[n/3%4]
	}),
	func(o *observation.Observation, n int) {
		everyone(func(h *observation.Health) {
			h.StorageVersion = []string{"3.5.0", "3.6.0", "3.7.0"}[n%3]
			h.Downgrade = []string{"", "3.5.0", "3.6.0"}[n/3%3]
		})(o)
	},
	onPod(func(p *corev1.Pod) {
		if p.Annotations != nil {
			p.Annotations[objects.AnnotationImage], p.Annotations[objects.AnnotationFlagsFor],
				p.Annotations[objects.AnnotationExchanged] = "a/b:v3.5.35", "rubbish", ""
		}
	}),
	onPod(func(p *corev1.Pod) {
		if p.Annotations != nil {
			p.Annotations[objects.AnnotationImage] = "without a tag"
		}
	}),
	func(o *observation.Observation, n int) {
		fence := askFence(o, [][]string{{"demo-0"}, {"demo-1", "demo-2"}, {"demo-9", "rubbish"}}[n%3]...)
		if n%2 == 0 {
			fence.Spec.Fence.Duration = &metav1.Duration{Duration: time.Duration(n) * time.Second}
		}
	},
	func(o *observation.Observation, n int) {
		ask(o, "move", v1beta1.EtcdOperationSpec{Type: v1beta1.OperationMoveLeader,
			MoveLeader: &v1beta1.MoveLeaderOperation{To: fmt.Sprintf("demo-%d", n%4)}})
	},
	func(o *observation.Observation, n int) {
		o.Recent = []v1beta1.HistoryEntry{{Rule: "Grow", Time: metav1.NewTime(now)}, {Rule: fmt.Sprint(n)}}
	},

	// Storage.
	func(o *observation.Observation, _ int) { o.Cluster.Spec.Storage.Migration = v1beta1.MigrateReplace },
	func(o *observation.Observation, _ int) {
		o.Cluster.Spec.Storage.WAL = &v1beta1.WALSpec{Size: *quantity("1Gi")}
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Storage.Size,
			o.Cluster.Spec.Storage.StorageClassName = *quantity([]string{"2Gi", "512Mi", "1Gi"}[n%3]),
			[]*string{nil, new("fast")}[n%2]
	},
	func(o *observation.Observation, n int) {
		for i := range o.Cluster.Status.Members {
			o.Cluster.Status.Members[i].Volume = &v1beta1.VolumeStatus{Wanted: quantity("2Gi"),
				RequestTime: metav1.NewTime(now.Add(-time.Duration(n) * 3 * time.Second))}
		}
	},
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound,
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *quantity("1Gi")}}
	}),
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *quantity("2Gi")}
	}),
	func(o *observation.Observation, n int) {
		if data := o.Children.Claims[objects.MemberName("demo", n)]; data != nil {
			wal := *data
			wal.Name, wal.UID = facts.WALClaim(data.Name), "uid-wal-"+data.UID
			o.Children.Claims[wal.Name] = &wal
		}
	},
	onRecord(func(r *record.Record, n int) {
		with := maps.Clone(r.StartsOn)
		if with != nil {
			with[fmt.Sprintf("demo-%d-wal", n)] = types.UID(fmt.Sprintf("uid-wal-uid-claim-%d", n))
		}
		r.StartsOn = with
	}),

	// Certificates.
	func(o *observation.Observation, n int) {
		for i, name := range slices.Sorted(maps.Keys(o.Children.Secrets)) {
			if i == n {
				delete(o.Children.Secrets, name)
			}
		}
	},
	func(o *observation.Observation, n int) { o.Now = now.Add(time.Duration(n) * 400 * 24 * time.Hour) },
	trusting(func(h *observation.Health, _ int) { h.Trusts = []string{"subject of an older one"} }),
	trusting(func(h *observation.Health, _ int) { h.Certificate, h.Trusts = "", nil }),
	func(o *observation.Observation, _ int) { provide(o, v1beta1.TLSSecrets) },
	func(o *observation.Observation, _ int) { provide(o, v1beta1.TLSCertManager) },
	func(o *observation.Observation, n int) {
		provide(o, v1beta1.TLSCertManager)
		a, b := authority("A", "a"), authority([]string{"A", "B"}[n%2], "b")
		switch n / 2 {
		case 0:
			issue(o, b, b)
		case 1:
			issue(o, a, a, b)
		case 2:
			issue(o, b, a, b)
		default:
			issue(o, b, a)
		}
	},
	func(o *observation.Observation, n int) {
		provide(o, v1beta1.TLSSecrets)
		for i, name := range slices.Sorted(maps.Keys(o.Related.Secrets)) {
			if i == n {
				delete(o.Related.Secrets, name)
			}
		}
	},
	trusting(func(h *observation.Health, n int) { h.Certificate, h.Trusts = "an older one", []string{"B"} }),
	onPod(func(p *corev1.Pod) {
		if p.Annotations != nil {
			p.Annotations[objects.AnnotationTrusts] = "rubbish,,:,a:b"
		}
	}),

	// A cluster on its way from plain text to TLS.
	func(o *observation.Observation, n int) { o.Cluster.Spec.TLS.AllowPlaintextClients = n%2 == 0 },
	func(o *observation.Observation, _ int) { o.Cluster.Spec.TLS.Mode = v1beta1.TLSDisabled },
	onMember(func(m *observation.Member) {
		for i, u := range m.PeerURLs {
			m.PeerURLs[i] = strings.Replace(u, "https:", "http:", 1)
		}
	}),
	onPod(func(p *corev1.Pod) { speak(p, "https:", "http:") }),
	onPod(func(p *corev1.Pod) { speak(p, "--peer-cert-file=", "--unknown=") }),
	onRecord(func(r *record.Record, _ int) { r.HTTPSPeers = []string{"demo-1", "", "rubbish"} }),

	// Alarms, and the databases' sizes.
	onAlarms(observation.AlarmNoSpace, func(n int) uint64 { return uint64(n) }),
	onAlarms(observation.AlarmCorrupt, func(n int) uint64 { return uint64(n) }),
	onAlarms(observation.AlarmCorrupt, func(int) uint64 { return math.MaxUint64 }),
	trusting(func(h *observation.Health, n int) { h.Hash = &observation.Hash{Revision: 7, Value: uint32(n / 7)} }),
	trusting(func(h *observation.Health, n int) {
		h.Hash = &observation.Hash{Revision: int64(n), CompactRevision: int64(n / 2), Value: 1}
	}),
	func(o *observation.Observation, n int) {
		for name, h := range o.Health {
			h.Hash = &observation.Hash{Revision: 7, CompactRevision: 3, Value: 1}
			if name == objects.MemberName("demo", n) {
				h.Hash.Value = 2
			}
			o.Health[name] = h
		}
	},
	trusting(func(h *observation.Health, n int) {
		h.DBSize, h.DBSizeInUse, h.Revision = int64(n)*100<<20, int64(n)*50<<20, int64(n)
	}),
	trusting(func(h *observation.Health, _ int) {
		h.DBSize, h.DBSizeInUse, h.Revision = math.MaxInt64, math.MinInt64, -1
	}),
	func(o *observation.Observation, n int) { everyDatabase(o, 800<<20, int64(n)*90<<20) },
	func(o *observation.Observation, _ int) {
		o.Cluster.Spec.Options.AutoCompaction.Retention = &metav1.Duration{}
	},
	func(o *observation.Observation, _ int) {
		askDefragment(o, "now")
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Maintenance.Defragmentation = &v1beta1.Defragmentation{
			Schedule: []string{"", "* * * * *", "0 3 * * 0", "0 0 30 2 *", "rubbish", "TZ=",
				"TZ=Europe/Paris 0 3 * * *", "*/0 * * * *", "1-59/9223372036854775807 * * * *", "@every 1s"}[n],
		}
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Maintenance.Defragmentation = &v1beta1.Defragmentation{Schedule: "* * * * *",
			FragmentationPercent: new(int32(n - 3)), MinReclaim: quantity("-1")}
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.Maintenance.Windows = append(o.Cluster.Spec.Maintenance.Windows, v1beta1.MaintenanceWindow{
			Schedule: []string{"* * * * *", "0 3 * * 5", "0 2 * * 6", "0 0 30 2 *", "rubbish", "TZ=", "", "4 3 2 1 *",
				"*/0 * * * *", "@every 1s"}[n],
			Duration: metav1.Duration{Duration: []time.Duration{10 * time.Minute, time.Hour, 168 * time.Hour, -1}[n%4]},
			TimeZone: []string{"", "", "Europe/Belin"}[n%3],
		})
	},
	inARun(v1beta1.TriggerRequest),
	inARun(v1beta1.TriggerSchedule),
	inARun(v1beta1.TriggerNoSpace),
	func(o *observation.Observation, n int) {
		o.Taken = &decision.Outcome{Step: decision.Defragment{ID: uint64(n + 1), Name: objects.MemberName("demo", n),
			DBSize: 1 << 30}, Rule: "Defragment", Err: []string{"", "no answer in time"}[n%2]}
	},
	func(o *observation.Observation, n int) {
		o.Taken = &decision.Outcome{Step: decision.Compact{Revision: int64(n)}, Rule: "NoSpace",
			Err: []string{"", "no answer in time"}[n%2]}
	},

	// Users and roles.
	func(o *observation.Observation, n int) {
		all := ""
		o.Cluster.Spec.Auth = &v1beta1.AuthSpec{
			Enabled: n%2 == 0,
			Roles: []v1beta1.RoleSpec{{Name: "all",
				Permissions: []v1beta1.Permission{{Access: v1beta1.Read, Prefix: &all}}}},
			Users: []v1beta1.UserSpec{{Name: "app", Roles: []string{"all"},
				Credential: v1beta1.CredentialCertificate},
				{Name: "ops", Roles: []string{[]string{"all", "none"}[n/5]}}},
		}
	},
	func(o *observation.Observation, _ int) {
		o.Cluster.Status.Internal.AppliedAuth = "x"
		o.Cluster.Status.Auth = &v1beta1.AuthStatus{Roles: []string{"old", "root"},
			Users: []v1beta1.UserStatus{{Name: "gone"}, {}}}
	},
	func(o *observation.Observation, _ int) {
		o.Taken = &decision.Outcome{Step: decision.Authorize{}, Err: "refused",
			Passwords: map[string]string{"ops": "1"}}
	},

	// Members that are unreachable, given up, or answer as another.
	func(o *observation.Observation, n int) {
		unreachable(o, objects.MemberName("demo", n), time.Duration(n)*2*time.Minute)
		o.Cluster.Spec.MemberReplacement.Policy = []v1beta1.ReplacementPolicy{"", v1beta1.ReplaceManual}[n/5%2]
	},
	func(o *observation.Observation, n int) {
		if o.Etcd != nil && n < len(o.Etcd.Members) {
			unreachable(o, objects.MemberName("demo", n), time.Hour)
		}
	},
	func(o *observation.Observation, n int) { watch(o, time.Duration(n)*2*time.Minute) },
	func(o *observation.Observation, n int) {
		o.Resync = time.Duration(n) * 10 * time.Second
		if w := o.Cluster.Status.Internal.Watched; w != nil {
			w.LastProbeTime = metav1.NewTime(now.Add(-time.Duration(n) * 30 * time.Second))
		}
	},
	onClaim(func(c *corev1.PersistentVolumeClaim) { note(c, objects.AnnotationFailedMember, "true") }),
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		note(c, objects.AnnotationQuarantined, now.Add(-25*time.Hour).Format(time.RFC3339))
	}),
	onClaim(func(c *corev1.PersistentVolumeClaim) { note(c, objects.AnnotationQuarantined, "forever") }),
	onPod(func(p *corev1.Pod) { p.Labels = map[string]string{objects.LabelRole: facts.RoleFenced} }),
	func(o *observation.Observation, n int) {
		if o.Health != nil {
			o.Health[objects.MemberName("demo", n)] = observation.Health{Err: "another etcd", ClusterID: 7, MemberID: 8}
		}
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Status.Internal.Replacement = &v1beta1.ReplacementStatus{Failures: int32(n * 10),
			NextLearnerTime: metav1.NewTime(now.Add(time.Duration(n-3) * time.Minute))}
		o.Cluster.Status.ObservedGeneration = o.Cluster.Generation
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Status.Internal.Replacement = &v1beta1.ReplacementStatus{GivenUp: int32(n),
			Voter:               objects.MemberName("demo", n),
			NextReplacementTime: metav1.NewTime(now.Add(time.Duration(n-3) * time.Hour))}
		o.Cluster.Status.ObservedGeneration = o.Cluster.Generation
	},
	func(o *observation.Observation, n int) {
		o.Cluster.Spec.MemberReplacement.KeepVolumesFor = &metav1.Duration{Duration: time.Duration(n) * 10 * time.Hour}
	},

	// Members in directories on nodes.
	func(o *observation.Observation, n int) { on(o, strings.Split("a b c d e f g h i j", " ")[:n+1]...) },
	func(o *observation.Observation, n int) {
		*o = serveOn("a", "b", "c", "d", "e")
		o.Cluster.Spec.Replicas = new(int32(n))
	},
	onRecord(func(r *record.Record, n int) {
		r.StartsOn = map[string]types.UID{"demo-0": "a", objects.MemberName("demo", n): "b"}
	}),
	func(o *observation.Observation, n int) {
		if peers := o.Children.Services[objects.PeerService("demo")]; peers != nil {
			peers.Annotations[objects.AnnotationNodes] = string(o.Cluster.UID) + "/demo-1:c,x:,demo-" + fmt.Sprint(n) +
				":d"
		}
	},
	onPod(func(p *corev1.Pod) { p.Spec.Affinity = answer.Pinned(p.Spec.Affinity, "e") }),

	// What brings a pod back, and what it shows then.
	onPod(func(p *corev1.Pod) {
		p.Labels, p.Annotations[objects.AnnotationStart] = nil, objects.StartResume
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}),
	onPod(func(p *corev1.Pod) {
		p.Labels = map[string]string{objects.LabelRole: facts.RoleLearner}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}),
	onPod(meshed),
	onRecord(func(r *record.Record, n int) {
		r.Mismatched = []string{"demo-1", "", "rubbish", objects.MemberName("demo", n)}
	}),
	func(o *observation.Observation, _ int) { o.Children.Certificates = nil },
	func(o *observation.Observation, _ int) { clear(o.Related.Secrets); clear(o.Children.Secrets) },
}

// note puts an annotation on a claim.
func note(c *corev1.PersistentVolumeClaim, key, value string) {
	c.Annotations = map[string]string{key: value}
}

func onAlarms(kind string, of func(n int) uint64) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		if o.Etcd != nil {
			o.Etcd.Alarms = append(o.Etcd.Alarms, observation.Alarm{MemberID: of(n), Kind: kind})
		}
	}
}

// everyDatabase makes all of them so large.
func everyDatabase(o *observation.Observation, size, inUse int64) {
	everyone(func(h *observation.Health) { h.DBSize, h.DBSizeInUse, h.Revision = size, inUse, 100 })(o)
}

// inARun lets a run of defragmentation be under way.
func inARun(trigger v1beta1.DefragmentationTrigger) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		o.Cluster.Status.Defragmentation = &v1beta1.DefragmentationStatus{
			Trigger: trigger, StartTime: metav1.NewTime(now.Add(-time.Minute)),
			Done: []string{objects.MemberName("demo", n)}, Request: "before",
		}
		o.Cluster.Status.Internal.Defragmentation = v1beta1.DefragmentationMemory{
			LastMemberTime: metav1.NewTime(now.Add(-time.Duration(n) * 10 * time.Second)),
			Before:         quantity("1Gi"), Compacted: int64(n),
		}
	}
}

// speak changes the words of the flags that a pod was made with.
func speak(p *corev1.Pod, old, now string) {
	p.Spec.Containers = slices.Clone(p.Spec.Containers)
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Command = slices.Clone(p.Spec.Containers[i].Command)
		for j, flag := range p.Spec.Containers[i].Command {
			p.Spec.Containers[i].Command[j] = strings.Replace(flag, old, now, 1)
		}
	}
}

func trusting(change func(h *observation.Health, n int)) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		answering(objects.MemberName("demo", n), func(h *observation.Health) { change(h, n) })(o)
	}
}

// addRecord observes a ConfigMap by the name of an epoch record.
func addRecord(o *observation.Observation, n int, r record.Record) {
	if o.Children.ConfigMaps != nil {
		cm := record.New(o.Cluster, n, r)
		cm.UID = types.UID("uid-" + cm.Name)
		o.Children.ConfigMaps[cm.Name] = cm
	}
}

func onRecord(change func(r *record.Record, n int)) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		for _, cm := range o.Children.ConfigMaps {
			recordtest.Edit(cm, func(r *record.Record) { change(r, n) })
		}
	}
}

func onPod(change func(*corev1.Pod)) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		if p := o.Children.Pods[objects.MemberName("demo", n)]; p != nil {
			change(p)
		}
	}
}

func onClaim(change func(*corev1.PersistentVolumeClaim)) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		if c := o.Children.Claims[objects.MemberName("demo", n)]; c != nil {
			change(c)
		}
	}
}

func onMember(change func(*observation.Member)) func(*observation.Observation, int) {
	return func(o *observation.Observation, n int) {
		if o.Etcd != nil && n < len(o.Etcd.Members) {
			change(&o.Etcd.Members[n])
		}
	}
}

// FuzzDecide holds what must be true of every decision, whatever was observed. It is made at all, and again in the
// same way; it is made alike for the same things in another order; it leaves the observation untouched; it breaks no
// safety rule; stored and fed back, it comes to rest; and at rest a converged cluster is quiet. The first byte is the
// size of the cluster; then each pair is a mishap and the member that it befalls.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{3})
	f.Add([]byte{0, 2, 3})
	for i := range mishaps {
		f.Add([]byte{3, byte(i), 1})
		f.Add([]byte{3, byte(i), 9, 2, 5})
		f.Add([]byte{4, byte(i), 3, byte(i + 1), 1, byte(i + 7), 2})
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) == 0 {
			return
		}
		o, twin := befallen(raw), befallen(raw)
		d := Decide(o)
		if err := verify(o, d); err != nil {
			t.Errorf("%s (%s): %v", d.Reason.Rule, d.Reason.Message, err)
		}
		if o.Taken != nil && d.Step != nil {
			t.Errorf("a second step: %s", d.Step)
		}
		if !reflect.DeepEqual(o, twin) {
			t.Errorf("%s has changed its observation", d.Reason.Rule)
		}
		if again := Decide(o); !reflect.DeepEqual(d, again) {
			t.Errorf("decided %s, and the second time %s", d.Reason.Rule, again.Reason.Rule)
		}
		shuffle(twin, raw)
		if again := Decide(twin); !reflect.DeepEqual(said(d), said(again)) {
			t.Errorf("decided %s, and %s for the same in another order: %+v, %+v", d.Reason.Rule, again.Reason.Rule,
				said(d), said(again))
		}
		eachOnce(t, d.Children)
		quietWhenConverged(t, comesToRest(t, o))
	})
}

// mostMishaps keeps inputs short: what a dozen do not show, a hundred hide.
const mostMishaps = 12

func befallen(raw []byte) observation.Observation {
	o := fresh(3)
	if n := int(raw[0]) % 10; n > 0 {
		o = serve(n)
	}
	for i := 1; i+1 < min(len(raw), 2*mostMishaps+1); i += 2 {
		mishaps[int(raw[i])%len(mishaps)](&o, int(raw[i+1])%10)
	}
	return o
}

// shuffle brings every list whose order means nothing into another one. (Go does it to maps.)
func shuffle(o observation.Observation, seed []byte) {
	h := fnv.New64a()
	_, _ = h.Write(seed)
	r := rand.New(rand.NewPCG(h.Sum64(), 0))
	if o.Etcd != nil {
		mix(r, o.Etcd.Members)
		mix(r, o.Etcd.Alarms)
	}
	mix(r, o.Cluster.Status.Conditions)
	for _, name := range slices.Sorted(maps.Keys(o.Children.Pods)) {
		p := o.Children.Pods[name]
		mix(r, p.OwnerReferences)
		mix(r, p.Status.Conditions)
		mix(r, p.Status.ContainerStatuses)
		mix(r, p.Status.InitContainerStatuses)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Children.Claims)) {
		mix(r, o.Children.Claims[name].OwnerReferences)
	}
}

func mix[T any](r *rand.Rand, list []T) {
	r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// said is what a decision says: of the children only what is answered, and the conditions by their types (they keep
// the order that the status has them in).
func said(d decision.Decision) decision.Decision {
	d.Status.Conditions = slices.Clone(d.Status.Conditions)
	slices.SortFunc(d.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	d.Children.Pods = each(d.Children.Pods, func(p *corev1.Pod) {
		p.OwnerReferences, p.Status = nil, corev1.PodStatus{}
	})
	d.Children.Claims = each(d.Children.Claims, func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = nil })
	return d
}

// each is the list of changed copies.
func each[T any](list []*T, change func(*T)) []*T {
	var changed []*T
	for _, old := range list {
		object := *old
		change(&object)
		changed = append(changed, &object)
	}
	return changed
}

// eachOnce: of two children with one name, one would be lost.
func eachOnce(t *testing.T, d decision.Desired) {
	once := func(kind string, wanted, different int) {
		if wanted != different {
			t.Errorf("of %d %s two have one name", wanted, kind)
		}
	}
	once("services", len(d.Services), len(byName(d.Services)))
	once("budgets", len(d.Budgets), len(byName(d.Budgets)))
	once("records", len(d.ConfigMaps), len(byName(d.ConfigMaps)))
	once("claims", len(d.Claims), len(byName(d.Claims)))
	once("pods", len(d.Pods), len(byName(d.Pods)))
}

// callsToRest is more than the answers that may follow one another while etcd and time stand still: the record, what
// members start on, that noted, their pods, and nine pods replaced, each gone in one answer and back in the next.
const callsToRest = 60

// comesToRest feeds decisions back until nothing more would be written, and returns that observation. It must not
// take long.
func comesToRest(t *testing.T, o observation.Observation) observation.Observation {
	var rules []string
	for range callsToRest {
		d := Decide(o)
		if err := verify(o, d); err != nil {
			t.Fatalf("after %v, %s (%s): %v", rules, d.Reason.Rule, d.Reason.Message, err)
		}
		next := stored(o, d)
		if reflect.DeepEqual(o.Children, next.Children) && reflect.DeepEqual(o.Cluster.Status, next.Cluster.Status) {
			return o
		}
		o, rules = next, append(rules, d.Reason.Rule)
	}
	t.Fatalf("never at rest: %v", rules)
	return o
}

// quietWhenConverged: nothing asks again, and neither time nor traffic changes a byte.
func quietWhenConverged(t *testing.T, o observation.Observation) {
	o.Taken = nil // the history tells of a step
	d := Decide(o)
	// with a schedule, time brings what to do
	if d.Reason.Rule != "Converged" || o.Cluster.Spec.Maintenance.Defragmentation != nil {
		return
	}
	o.Now = o.Now.Add(time.Hour)
	o.Health = maps.Clone(o.Health)
	for name, h := range o.Health {
		h.RaftIndex += 1000
		o.Health[name] = h
	}
	later := Decide(o)
	if d.Step != nil || d.ResyncAfter != 0 || !reflect.DeepEqual(d, later) {
		t.Errorf("converged, but not quiet: %+v, an hour later %+v", d, later)
	}
}

// stored is the observation after Metacontroller and the API server have stored an answer: what it omits is gone,
// what is new has a UID and an owner, and of what was there everything stays that is not ours.
func stored(o observation.Observation, d decision.Decision) observation.Observation {
	cluster := *o.Cluster
	cluster.Status = d.Status
	o.Cluster = &cluster
	o.Children = observation.Children{
		Pods:       storedAll(o, o.Children.Pods, d.Children.Pods),
		Claims:     storedAll(o, o.Children.Claims, d.Children.Claims),
		ConfigMaps: storedAll(o, o.Children.ConfigMaps, d.Children.ConfigMaps),
		Services:   storedAll(o, o.Children.Services, d.Children.Services),
		Budgets:    storedAll(o, o.Children.Budgets, d.Children.Budgets),
	}
	return o
}

func storedAll[T any, P interface {
	*T
	metav1.Object
}](o observation.Observation, observed map[string]P, wanted []P) map[string]P {
	all := map[string]P{}
	for _, want := range wanted {
		object := *want
		p := P(&object)
		if old, there := observed[p.GetName()]; there {
			p.SetLabels(merged(old.GetLabels(), p.GetLabels()))
			p.SetAnnotations(merged(old.GetAnnotations(), p.GetAnnotations()))
		} else {
			p.SetUID(types.UID(fmt.Sprintf("uid-stored-%T-%s", p, p.GetName())))
			p.SetOwnerReferences([]metav1.OwnerReference{{UID: o.Cluster.UID}})
		}
		all[p.GetName()] = p
	}
	return all
}

// merged are the labels or annotations of others and ours: those of ours that we no longer want go.
func merged(observed, wanted map[string]string) map[string]string {
	all := maps.Clone(wanted)
	for k, value := range observed {
		if _, set := wanted[k]; !set && !strings.HasPrefix(k, objects.Domain) {
			all[k] = value
		}
	}
	return all
}
