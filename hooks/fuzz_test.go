package hooks

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
)

// mishaps are what may be true of an observation, in any combination: faults, stale caches, nonsense. n chooses the member.
var mishaps = []func(o *Observation, n int){
	func(o *Observation, _ int) { o.Etcd = nil },
	func(o *Observation, _ int) { o.Cluster.Spec.Suspend = !o.Cluster.Spec.Suspend },
	func(o *Observation, n int) { o.Cluster.Spec.Replicas = new(int32(n % 10)) },
	func(o *Observation, _ int) { o.Cluster.Spec.Storage.Medium = v1alpha1.Memory },
	func(o *Observation, _ int) { o.Cluster.Spec.Version = "3.7.3" },
	func(o *Observation, _ int) { o.Cluster.Spec.Version = "nonsense" },
	func(o *Observation, _ int) { o.Cluster.Spec.PriorityClassName = "other" },
	func(o *Observation, _ int) { o.Cluster.Status = v1alpha1.EtcdClusterStatus{} },
	func(o *Observation, n int) { delete(o.Children.Pods, MemberName("demo", n)) },
	func(o *Observation, n int) { delete(o.Children.Claims, MemberName("demo", n)) },
	func(o *Observation, n int) { lose(o, MemberName("demo", n)) },
	func(o *Observation, n int) { silence(o, MemberName("demo", n)) },
	func(o *Observation, _ int) { clear(o.Children.ConfigMaps) },
	func(o *Observation, _ int) { clear(o.Children.Pods) },
	func(o *Observation, _ int) { clear(o.Children.Claims) },
	func(o *Observation, _ int) { clear(o.Children.Services); clear(o.Children.Budgets) },
	func(o *Observation, _ int) { o.Children = Children{} },
	onRecord(func(a map[string]string, _ int) { delete(a, AnnotationStartsOn) }),
	onRecord(func(a map[string]string, _ int) { delete(a, AnnotationClusterID) }),
	onRecord(func(a map[string]string, n int) { a[AnnotationNextMember] = fmt.Sprint(n) }),
	onRecord(func(a map[string]string, _ int) { a[AnnotationStartsOn] = "rubbish,,:,demo-0" }),
	onPod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }),
	onPod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
	onPod(func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending}; p.Spec.NodeName = "" }),
	onPod(func(p *corev1.Pod) { p.Annotations = map[string]string{AnnotationStart: StartResume} }),
	onPod(func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: foundingGate}} }),
	onPod(func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
			Name: ContainerPrepare, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: ExitDataLost}},
		}}}
	}),
	onPod(func(p *corev1.Pod) { p.UID = "another" }),
	onClaim(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: now} }),
	onClaim(func(c *corev1.PersistentVolumeClaim) { c.UID = "another" }),
	onClaim(func(c *corev1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("an older cluster")}}
	}),
	onMember(func(m *Member) { m.Learner = !m.Learner }),
	onMember(func(m *Member) { m.Name, m.ClientURLs = "", nil }),
	onMember(func(m *Member) { m.PeerURLs = []string{"http://elsewhere:2380"} }),
	onMember(func(m *Member) { m.PeerURLs = []string{"%"} }),
	func(o *Observation, n int) {
		if o.Etcd != nil && n < len(o.Etcd.Members) {
			o.Etcd.Members = slices.Delete(slices.Clone(o.Etcd.Members), n, n+1)
		}
	},
	func(o *Observation, n int) {
		if o.Etcd != nil {
			o.Etcd.Leader = uint64(n)
		}
	},
	func(o *Observation, _ int) {
		if o.Etcd != nil {
			o.Etcd.ClusterID++
		}
	},
	func(o *Observation, n int) {
		h := o.Health[MemberName("demo", n)]
		h.RaftIndex, h.Learner, h.Alarms = 1, true, []string{"NOSPACE"}
		o.Health[MemberName("demo", n)] = h
	},
	func(o *Observation, n int) {
		h := o.Health[MemberName("demo", n)]
		h.MemberID++
		o.Health[MemberName("demo", n)] = h
	},
	func(o *Observation, _ int) { o.Taken = &Outcome{Step: Remove{ID: 1, Name: "demo-0"}, Err: "refused"} },
}

func onRecord(change func(a map[string]string, n int)) func(*Observation, int) {
	return func(o *Observation, n int) {
		for _, cm := range o.Children.ConfigMaps {
			change(cm.Annotations, n)
		}
	}
}

func onPod(change func(*corev1.Pod)) func(*Observation, int) {
	return func(o *Observation, n int) {
		if p := o.Children.Pods[MemberName("demo", n)]; p != nil {
			change(p)
		}
	}
}

func onClaim(change func(*corev1.PersistentVolumeClaim)) func(*Observation, int) {
	return func(o *Observation, n int) {
		if c := o.Children.Claims[MemberName("demo", n)]; c != nil {
			change(c)
		}
	}
}

func onMember(change func(*Member)) func(*Observation, int) {
	return func(o *Observation, n int) {
		if o.Etcd != nil && n < len(o.Etcd.Members) {
			change(&o.Etcd.Members[n])
		}
	}
}

// FuzzDecide holds what must be true of every decision, whatever was observed: it is made at all, it is made alike for the same
// observation in another order, it leaves the observation untouched, and it breaks no safety rule. The first byte is the size of
// the cluster; then each pair is a mishap and the member that it befalls.
func FuzzDecide(f *testing.F) {
	f.Add([]byte{3})
	f.Add([]byte{0, 2, 3})
	for i := range mishaps {
		f.Add([]byte{3, byte(i), 1})
		f.Add([]byte{4, byte(i), 3, byte(i + 1), 1, byte(i + 7), 2})
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) == 0 {
			return
		}
		o, twin := befallen(raw), befallen(raw)
		d := Decide(o)
		if err := Verify(o, d); err != nil {
			t.Errorf("%s (%s): %v", d.Because.Rule, d.Because.Message, err)
		}
		if !reflect.DeepEqual(o, twin) {
			t.Errorf("%s has changed its observation", d.Because.Rule)
		}
		if twin.Etcd != nil {
			slices.Reverse(twin.Etcd.Members)
		}
		if again := Decide(twin); !reflect.DeepEqual(d, again) {
			t.Errorf("decided %s, and %s for the same in another order", d.Because.Rule, again.Because.Rule)
		}
		if o.Taken != nil && d.Step != nil {
			t.Errorf("a second step: %s", d.Step)
		}
	})
}

func befallen(raw []byte) Observation {
	o := fresh(3)
	if n := int(raw[0]) % 10; n > 0 {
		o = serve(n)
	}
	for i := 1; i+1 < len(raw); i += 2 {
		mishaps[int(raw[i])%len(mishaps)](&o, int(raw[i+1])%10)
	}
	return o
}
