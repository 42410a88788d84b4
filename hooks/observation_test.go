package hooks

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
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
	"github.com/quorate-dev/quorate/hooks/rules"
	"github.com/quorate-dev/quorate/hooks/safety"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fresh is a cluster that was created a moment ago.
func fresh(replicas int) observation.Observation {
	o := observation.Observation{
		Cluster: &v1beta1.EtcdCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid-demo", Generation: 1},
			Spec: v1beta1.EtcdClusterSpec{
				Replicas: new(int32(replicas)), Version: "3.6.16",
				Storage: v1beta1.StorageSpec{Medium: v1beta1.Persistent, Size: resource.MustParse("1Gi")},
			},
		},
		Children: observation.Children{
			Pods: map[string]*corev1.Pod{}, Claims: map[string]*corev1.PersistentVolumeClaim{},
			ConfigMaps: map[string]*corev1.ConfigMap{},
			Services:   map[string]*corev1.Service{}, Budgets: map[string]*policyv1.PodDisruptionBudget{},
			Secrets:  map[string]*observation.Secret{},
			Policies: map[string]*networkingv1.NetworkPolicy{},
		},
		Health:   map[string]observation.Health{},
		Now:      now,
		Settings: observation.Settings{Images: objects.Images{Image: "quorate:test"}, Namespace: "quorate-system"},
	}
	withCertificates(&o)
	return o
}

// withCertificates makes the Secrets of the cluster, as the first two answers do.
func withCertificates(o *observation.Observation) {
	for range 2 {
		forge(o, answer.Secrets(facts.New(*o)))
	}
}

// serve is a cluster of n voters that serves, converged, led by demo-0.
func serve(n int) observation.Observation {
	o := fresh(n)
	observeRecord(&o, n)
	o.Etcd = &observation.Membership{ClusterID: 0xc1, Leader: 1}
	for i := range n {
		addMember(&o, i, false)
	}
	observe(&o, Decide(o))
	return o
}

func observeRecord(o *observation.Observation, n int) {
	r := facts.New(*o).NewRecord(0, n)
	r.ClusterID = 0xc1
	r.StartsOn = map[string]types.UID{}
	for i := range n {
		name := objects.MemberName("demo", i)
		r.StartsOn[name] = types.UID("uid-claim-" + strconv.Itoa(i))
	}
	cm := record.New(o.Cluster, 1, r)
	cm.UID = "uid-record"
	o.Children.ConfigMaps[cm.Name] = cm
}

// addMember lists member i and lets it run on its claim.
func addMember(o *observation.Observation, i int, learner bool) {
	name := objects.MemberName("demo", i)
	address := facts.New(*o).Address(name)
	o.Etcd.Members = append(o.Etcd.Members, observation.Member{
		ID: uint64(i + 1), Name: name, PeerURLs: []string{objects.PeerURL(o.Cluster, name, address)},
		ClientURLs: []string{objects.ClientURL(o.Cluster, name, address)}, Learner: learner,
	})
	if !learner {
		list(o, name, time.Hour)
	}
	addClaim(o, i)
	addPod(o, i, objects.StartBootstrap)
	o.Health[name] = observation.Health{ClusterID: 0xc1, MemberID: uint64(i + 1), Leader: 1, Learner: learner,
		Version: "3.6.16", RaftTerm: 2, RaftIndex: 1000, DBSize: 20480, DBSizeInUse: 16384}
	shakeHands(o, name)
}

func addClaim(o *observation.Observation, i int) {
	f := facts.New(*o)
	claim := answer.NewClaim(f, objects.MemberName("demo", i))
	claim.UID = types.UID("uid-claim-" + strconv.Itoa(i))
	claim.OwnerReferences = []metav1.OwnerReference{{UID: o.Cluster.UID}}
	o.Children.Claims[claim.Name] = claim
}

func addPod(o *observation.Observation, i int, start string) {
	f := facts.New(*o)
	pod := answer.Pod(f, objects.MemberName("demo", i), start, nil)
	pod.UID = types.UID(fmt.Sprintf("uid-pod-%d", i))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i+1),
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: objects.ContainerEtcd, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}
	o.Children.Pods[pod.Name] = pod
}

// observe makes an answer the next observation, as a cluster at rest would.
func observe(o *observation.Observation, d decision.Decision) {
	o.Children = observation.Children{Secrets: o.Children.Secrets,
		Pods: byName(d.Children.Pods), Claims: byName(d.Children.Claims), ConfigMaps: byName(d.Children.ConfigMaps),
		Services: byName(d.Children.Services), Budgets: byName(d.Children.Budgets),
		Policies: byName(d.Children.Policies),
	}
	o.Cluster.Status = d.Status
	forge(o, d.Children.Secrets)
}

// silence makes a member unreachable.
func silence(o *observation.Observation, name string) {
	o.Health[name] = observation.Health{Err: "connection refused"}
}

// lose deletes a member's claim, data and pod.
func lose(o *observation.Observation, name string) {
	silence(o, name)
	delete(o.Children.Claims, name)
	delete(o.Children.Pods, name)
	delete(o.Health, name)
}

func quantity(s string) *resource.Quantity { return new(resource.MustParse(s)) }

// fact is something that is the case in an observation.
type fact = func(o *observation.Observation)

// with is the observation with what else is the case.
func with(o observation.Observation, facts ...fact) observation.Observation {
	for _, add := range facts {
		add(&o)
	}
	return o
}

func replicas(n int32) fact {
	return func(o *observation.Observation) { o.Cluster.Spec.Replicas = new(n) }
}

func version(v string) fact {
	return func(o *observation.Observation) { o.Cluster.Spec.Version = v }
}

// high has the spec ask for another template.
func high(o *observation.Observation) { o.Cluster.Spec.PriorityClassName = "high" }

func blinded(o *observation.Observation) { o.Etcd, o.Health = nil, map[string]observation.Health{} }

func suspending(o *observation.Observation) { o.Cluster.Spec.Suspend = true }

func silenced(name string) fact {
	return func(o *observation.Observation) { silence(o, name) }
}

func withoutPod(name string) fact {
	return func(o *observation.Observation) { delete(o.Children.Pods, name) }
}

// goingClaim has a person delete the claim.
func goingClaim(name string) fact {
	return func(o *observation.Observation) {
		o.Children.Claims[name].DeletionTimestamp = &metav1.Time{Time: now}
	}
}

// noted changes what the record says.
func noted(change func(r *record.Record)) fact {
	return func(o *observation.Observation) { recordtest.Edit(o.Children.ConfigMaps["demo-epoch-1"], change) }
}

// neverQuorate has the record say that its epoch has had no quorum yet.
func neverQuorate(o *observation.Observation) { noted(func(r *record.Record) { r.ClusterID = 0 })(o) }

// chosen has the record name a member that is restarted or removed.
func chosen(c record.Choice) fact { return noted(func(r *record.Record) { r.Choice = c }) }

// restart is that of member i, by its pod.
func restart(i int) record.Choice {
	return record.Choice{Name: objects.MemberName("demo", i), Pod: fmt.Sprintf("uid-pod-%d", i)}
}

// removal is that of member i.
func removal(i int) record.Choice {
	return record.Choice{Name: objects.MemberName("demo", i), Removes: true}
}

// nextMember has the record say which number is the next one.
func nextMember(i int) fact { return noted(func(r *record.Record) { r.NextOrdinal = i }) }

// startsOn has the record say what demo-0 and those after it may start on.
func startsOn(what ...types.UID) fact {
	return noted(func(r *record.Record) {
		r.StartsOn = map[string]types.UID{}
		for i, on := range what {
			r.StartsOn[objects.MemberName("demo", i)] = on
		}
	})
}

// recordOf is what the first record of an answer says.
func recordOf(d decision.Decision) record.Record { return recordtest.Says(d.Children.ConfigMaps[0]) }

// answering changes what a member answers.
func answering(name string, how func(h *observation.Health)) fact {
	return func(o *observation.Observation) {
		h := o.Health[name]
		how(&h)
		o.Health[name] = h
	}
}

// everyone changes what each member answers.
func everyone(how func(h *observation.Health)) fact {
	return func(o *observation.Observation) {
		for name := range o.Health {
			answering(name, how)(o)
		}
	}
}

// size asks for other volumes.
func size(s string) fact {
	return func(o *observation.Observation) { o.Cluster.Spec.Storage.Size = *quantity(s) }
}

func byName[T metav1.Object](list []T) map[string]T {
	all := map[string]T{}
	for _, object := range list {
		all[object.GetName()] = object
	}
	return all
}

// verify is hooks.Verify, which the tests of a package below it can't import.
func verify(o observation.Observation, d decision.Decision) error {
	return errors.Join(rules.VerifyOutlook(d), safety.Verify(o, d))
}

// TestADecisionIsCheap bounds what a decision about a calm cluster of three allocates, which no machine's pace changes:
// it had come to be three times as much before it was measured.
func TestADecisionIsCheap(t *testing.T) {
	o := serve(3)
	if made := testing.AllocsPerRun(20, func() { Decide(o) }); made > 700 {
		t.Errorf("a decision makes %v objects", made)
	}
}

// BenchmarkDecide is the cost of one decision at rest. Bounds: 50 microseconds for 3 members, 150 for 9.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{3, 9} {
		o := serve(n)
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			for b.Loop() {
				Decide(o)
			}
		})
	}
}
