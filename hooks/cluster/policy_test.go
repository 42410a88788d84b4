package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	selectors "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/children"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
)

// lets reports whether the policy of a cluster lets a pod with these labels, in a namespace with these, reach a port
// of its members.
func lets(t *testing.T, o observation.Observation, port int32, namespace string, namespaceLabels,
	podLabels map[string]string) bool {
	t.Helper()
	d := Decide(o).Children.Policies
	require.Len(t, d, 1)
	matches := func(s *metav1.LabelSelector, of map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(selectors.Set(of))
	}
	require.True(t, matches(&d[0].Spec.PodSelector, map[string]string{objects.LabelCluster: "demo"}))
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, d[0].Spec.PolicyTypes)
	all := map[string]string{corev1.LabelMetadataName: namespace}
	for k, v := range namespaceLabels {
		all[k] = v
	}
	for _, rule := range d[0].Spec.Ingress {
		if rule.Ports[0].Port.IntVal != port {
			continue
		}
		if len(rule.From) == 0 {
			return true
		}
		for _, from := range rule.From {
			near := from.NamespaceSelector == nil && namespace == "default" || from.NamespaceSelector != nil &&
				matches(from.NamespaceSelector, all)
			if near && (from.PodSelector == nil || matches(from.PodSelector, podLabels)) {
				return true
			}
		}
	}
	return false
}

func TestWhoMayReachAMember(t *testing.T) {
	member, quorate := map[string]string{objects.LabelCluster: "demo"},
		map[string]string{"app.kubernetes.io/name": "quorate"}
	o := serve(3)
	assert.True(t, lets(t, o, objects.PeerPort, "default", nil, member))
	assert.False(t, lets(t, o, objects.PeerPort, "default", nil, map[string]string{objects.LabelCluster: "other"}),
		"peers among themselves only")
	assert.False(t, lets(t, o, objects.PeerPort, "elsewhere", nil, member))
	assert.False(t, lets(t, o, objects.PeerPort, "quorate-system", nil, quorate))
	assert.True(t, lets(t, o, objects.ClientPort, "elsewhere", nil, nil),
		"what a client may do is up to its certificate")
	assert.True(t, lets(t, o, objects.MetricsPort, "default", nil, nil))
	assert.False(t, lets(t, o, objects.MetricsPort, "elsewhere", nil, nil))
	scrapes := map[string]string{children.ScrapeLabel: "true"}
	assert.True(t, lets(t, o, objects.MetricsPort, "monitoring", scrapes, scrapes))
	assert.False(t, lets(t, o, objects.MetricsPort, "elsewhere", nil, scrapes),
		"every tenant can put a label on its pods")
	assert.False(t, lets(t, o, objects.MetricsPort, "monitoring", scrapes, nil))

	o.Cluster.Spec.NetworkPolicy = v1alpha1.NetworkPolicySpec{
		Clients: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}},
		Metrics: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "watch"}},
	}
	shop, watch := map[string]string{"team": "shop"}, map[string]string{"team": "watch"}
	assert.True(t, lets(t, o, objects.ClientPort, "elsewhere", shop, nil))
	assert.False(t, lets(t, o, objects.ClientPort, "elsewhere", nil, nil))
	assert.True(t, lets(t, o, objects.ClientPort, "default", nil, nil), "the cluster's own namespace")
	assert.True(t, lets(t, o, objects.ClientPort, "quorate-system", nil, quorate), "Quorate itself")
	assert.False(t, lets(t, o, objects.ClientPort, "elsewhere", nil, quorate), "and no pod elsewhere with its label")
	assert.True(t, lets(t, o, objects.MetricsPort, "elsewhere", watch, nil))
	assert.False(t, lets(t, o, objects.MetricsPort, "elsewhere", shop, nil))

	o.Settings.Namespace = ""
	assert.True(t, lets(t, o, objects.ClientPort, "anywhere", nil, quorate), "where Quorate runs is not known")

	o.Cluster.Spec.NetworkPolicy = v1alpha1.NetworkPolicySpec{Mode: v1alpha1.NetworkPolicyDisabled}
	assert.Empty(t, Decide(o).Children.Policies)
}

// TestMembersLetJobsOfSnapshotsIn: the Job's pod is of the namespace, and so may reach the client port whatever
// clients the spec selects.
func TestMembersLetJobsOfSnapshotsIn(t *testing.T) {
	c := fresh(3).Cluster
	c.Spec.NetworkPolicy.Clients = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "web"}}
	for _, rule := range children.Policies(newView(observation.Observation{Cluster: c}))[0].Spec.Ingress {
		if rule.Ports[0].Port.IntValue() == objects.ClientPort {
			everyPodOfTheNamespace := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
			assert.Contains(t, rule.From, everyPodOfTheNamespace)
			return
		}
	}
	t.Error("there is no rule for the client port")
}

func TestMembersThatAreNotReadyAreEvictedOnlyWhileAQuorumIsReady(t *testing.T) {
	o := serve(3)
	d := Decide(o)
	require.NoError(t, verify(o, d))
	policy := d.Children.Budgets[0].Spec.UnhealthyPodEvictionPolicy
	require.NotNil(t, policy)
	assert.Equal(t, policyv1.IfHealthyBudget, *policy)
	*policy = policyv1.AlwaysAllow
	assert.ErrorContains(t, verify(o, d), "S1: members that are not ready may be evicted")
}

func TestALearnerVotesOnceTheBudgetProtectsAQuorumWithIt(t *testing.T) {
	for _, replicas := range []int32{3, 5} { // a successor, and a cluster that grows
		o := learnerAt(990)
		o.Cluster.Spec.Replicas = new(replicas)
		if replicas == 3 {
			o.Children.Claims["demo-0"].DeletionTimestamp = &metav1.Time{Time: now}
		}
		promotes := Decide(o)
		require.IsType(t, decision.Promote{}, promotes.Step)

		o.Children.Budgets["demo"].Spec.MinAvailable = new(intstr.FromInt(2))
		d := Decide(o)
		assert.Nil(t, d.Step)
		assert.Contains(t, d.Reason.Message, "waiting until the PodDisruptionBudget demo protects 3 pods")
		assert.Equal(t, 3, d.Children.Budgets[0].Spec.MinAvailable.IntValue())
		assert.NoError(t, verify(o, d))
		assert.ErrorContains(t, verify(o, promotes), "S1: promote demo-3")
	}
}
