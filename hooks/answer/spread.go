package answer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// succeeds has the scheduler not count the member that leaves when it looks for a node for the pod of its successor,
// wherever the members of this cluster are counted. Both run for a while: counted, the one that leaves would keep its
// node free of its successor, and two members would share another one afterwards.
func succeeds(c *v1beta1.EtcdCluster, pod *corev1.Pod, leaves string) {
	members := &metav1.LabelSelector{MatchLabels: objects.Selector(c)}
	stay := &metav1.LabelSelector{
		MatchLabels: objects.Selector(c),
		MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: objects.LabelMember, Operator: metav1.LabelSelectorOpNotIn, Values: []string{leaves},
		}},
	}
	of := func(selector **metav1.LabelSelector) {
		if equality.Semantic.DeepEqual(*selector, members) {
			*selector = stay
		}
	}
	pod.Spec = *pod.Spec.DeepCopy()
	for i := range pod.Spec.TopologySpreadConstraints {
		of(&pod.Spec.TopologySpreadConstraints[i].LabelSelector)
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return
	}
	apart := pod.Spec.Affinity.PodAntiAffinity
	for i := range apart.RequiredDuringSchedulingIgnoredDuringExecution {
		of(&apart.RequiredDuringSchedulingIgnoredDuringExecution[i].LabelSelector)
	}
	for i := range apart.PreferredDuringSchedulingIgnoredDuringExecution {
		of(&apart.PreferredDuringSchedulingIgnoredDuringExecution[i].PodAffinityTerm.LabelSelector)
	}
}
