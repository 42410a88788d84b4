package hooks

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// children are everything that should exist now. What becomes of the record, the claims and the pods is the mode's to
// say.
func children(v *view, decision *verdict) Desired {
	if v.mode.pods == nil {
		return asObserved(v.ofAllEpochs())
	}
	d := Desired{Services: services(v), Budgets: []*policyv1.PodDisruptionBudget{budget(v)}, Policies: policies(v),
		Secrets: secrets(v), Certificates: certificates(v), ConfigMaps: records(v, decision)}
	d.Claims = append(v.formerClaims(), v.mode.claims(v, decision)...)
	d.Pods = v.mode.pods(v, decision)
	if v.next != nil && !v.cancelled() {
		claims, pods := v.next.stagedChildren()
		d.Claims, d.Pods = append(d.Claims, claims...), append(d.Pods, pods...)
	}
	d.Pods = append(d.Pods, v.surveyPods(decision)...)
	d.Pods = filter(d.Pods, v.mayExist)
	for _, pod := range d.Pods {
		if pod.UID == "" {
			objects.Literal(&pod.Spec)
		}
	}
	d.Pods = append(d.Pods, v.strangePods()...)
	return d
}

// heldBack reports whether every child is to stay as it is.
func (o Observation) heldBack() bool {
	return o.Cluster.Spec.Suspend || len(o.WithoutLastApplied) > 0 || o.unsupported() != nil
}

// stagedChildren are the claims and pods of an epoch that is to take over. A survivor's volume is copied when it is
// known which.
func (v *view) stagedChildren() ([]*corev1.PersistentVolumeClaim, []*corev1.Pod) {
	if v.epoch.source == objects.SourceSurvivor && v.epoch.survivor == "" {
		return v.keptClaims(v.names), v.keptPods(v.names)
	}
	claims, pods := v.mode.claims(v, &verdict{}), v.mode.pods(v, &verdict{})
	for _, pod := range pods {
		if v.predecessorGone && awaits(pod) {
			pod.Annotations[objects.AnnotationPredecessorGone] = "yes"
		}
	}
	return claims, pods
}

// ---- what every cluster has

func services(v *view) []*corev1.Service {
	c := v.Cluster
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: name, Labels: labels(c, nil), Annotations: annotations(c, nil)}
	}
	client := corev1.ServicePort{Name: "client", Port: objects.ClientPort, Protocol: corev1.ProtocolTCP,
		TargetPort: intstr.FromString("client")}
	peers := meta(objects.PeerService(c.Name))
	if n := v.nextOrdinal(); n > 0 {
		peers.Annotations[objects.AnnotationNextMember] = strconv.Itoa(n)
	}
	for key, copied := range v.copies() {
		peers.Annotations[key] = copied
	}
	if nodes := v.noteNodes(); nodes != "" {
		peers.Annotations[objects.AnnotationNodes] = nodes
	}
	peer := corev1.ServicePort{Name: "peer", Port: objects.PeerPort, Protocol: corev1.ProtocolTCP,
		TargetPort: intstr.FromString("peer")}
	return []*corev1.Service{
		{
			ObjectMeta: meta(objects.ClientService(c.Name)),
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: v.clientSelector(),
				Ports: []corev1.ServicePort{client}},
		},
		{
			ObjectMeta: peers,
			// Members must find each other before they are ready: a quorum is what makes them ready.
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
				Selector: selector(c), Ports: []corev1.ServicePort{client, peer},
			},
		},
	}
}

// budget lets Kubernetes evict as many serving members as quorum can spare, and any member that does not serve.
func budget(v *view) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: v.Cluster.Name, Labels: labels(v.Cluster, nil),
			Annotations: annotations(v.Cluster, nil)},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:                   &metav1.LabelSelector{MatchLabels: selector(v.Cluster)},
			MinAvailable:               new(intstr.FromInt(v.minAvailable() + v.mismatchedPods())),
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
	if old := v.Children.Budgets[v.Cluster.Name]; v.Etcd == nil && old != nil && old.Spec.MinAvailable != nil {
		b.Spec.MinAvailable = old.Spec.MinAvailable // blind, the number of voters is not known
	}
	return b
}

// ---- objects as they are

// kept is an observed object as it is, with those of its labels and annotations that are ours.
func kept[T any, P interface {
	*T
	metav1.Object
}](c *v1alpha1.EtcdCluster, old P) P {
	object := *old
	p := P(&object)
	p.SetLabels(ownKeys(old.GetLabels(), labels(c, nil)))
	p.SetAnnotations(ownKeys(old.GetAnnotations(), annotations(c, nil)))
	return p
}

// foreignKeys are the labels or annotations of a spec. None is of our own domain: by those we know what we did, as
// that a member was told to join (S10).
func foreignKeys[V ~string](all map[string]V) map[string]string {
	some := map[string]string{}
	for k, value := range all {
		if !strings.HasPrefix(k, objects.Domain) {
			some[k] = string(value)
		}
	}
	return some
}

// ownKeys are the labels or annotations that Quorate sets: those of its own domain, and those of these names.
func ownKeys(all, names map[string]string) map[string]string {
	some := map[string]string{}
	for k, value := range all {
		if _, named := names[k]; named || strings.HasPrefix(k, objects.Domain) {
			some[k] = value
		}
	}
	return some
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.SortFunc(all, byOrdinal)
	return slices.Compact(all)
}
