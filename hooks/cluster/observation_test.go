package cluster

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fresh is a cluster that was created a moment ago.
func fresh(replicas int) observation.Observation {
	o := observation.Observation{
		Cluster: &v1alpha1.EtcdCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "default", UID: "uid-demo", Generation: 1},
			Spec: v1alpha1.EtcdClusterSpec{
				Replicas: new(int32(replicas)), Version: "3.6.16",
				Storage: v1alpha1.StorageSpec{Medium: v1alpha1.Persistent, Size: resource.MustParse("1Gi")},
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
		forge(o, children.Secrets(newView(*o)))
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
	record := state.NewRecord(newView(*o), 1, 0, n)
	record.UID = "uid-record"
	uids := map[string]types.UID{}
	for i := range n {
		name := objects.MemberName("demo", i)
		uids[name] = types.UID("uid-claim-" + strconv.Itoa(i))
	}
	record.Annotations[objects.AnnotationStartsOn] = state.FormatPairs(uids, ":")
	record.Annotations[objects.AnnotationClusterID] = "c1"
	o.Children.ConfigMaps[record.Name] = record
}

// addMember lists member i and lets it run on its claim.
func addMember(o *observation.Observation, i int, learner bool) {
	name := objects.MemberName("demo", i)
	address := newView(*o).Address(name)
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
	v := newView(*o)
	claim := volumes.NewClaim(v, objects.MemberName("demo", i))
	claim.UID = types.UID("uid-claim-" + strconv.Itoa(i))
	claim.OwnerReferences = []metav1.OwnerReference{{UID: o.Cluster.UID}}
	o.Children.Claims[claim.Name] = claim
}

func addPod(o *observation.Observation, i int, start string) {
	v := newView(*o)
	pod := children.Pod(v, objects.MemberName("demo", i), start, nil)
	pod.UID = types.UID(fmt.Sprintf("uid-pod-%d", i))
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i+1),
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: objects.ContainerEtcd, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		}}
	o.Children.Pods[pod.Name] = pod
}

// observe makes an answer the next observation, as a cluster at rest would.
func observe(o *observation.Observation, d decision.Decision) {
	next := observation.Children{
		Pods: map[string]*corev1.Pod{}, Claims: map[string]*corev1.PersistentVolumeClaim{},
		ConfigMaps: map[string]*corev1.ConfigMap{},
		Services:   map[string]*corev1.Service{}, Budgets: map[string]*policyv1.PodDisruptionBudget{},
		Secrets:  o.Children.Secrets,
		Policies: map[string]*networkingv1.NetworkPolicy{},
	}
	for _, p := range d.Children.Pods {
		next.Pods[p.Name] = p
	}
	for _, c := range d.Children.Claims {
		next.Claims[c.Name] = c
	}
	for _, c := range d.Children.ConfigMaps {
		next.ConfigMaps[c.Name] = c
	}
	for _, s := range d.Children.Services {
		next.Services[s.Name] = s
	}
	for _, b := range d.Children.Budgets {
		next.Budgets[b.Name] = b
	}
	for _, p := range d.Children.Policies {
		next.Policies[p.Name] = p
	}
	o.Children, o.Cluster.Status = next, d.Status
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
