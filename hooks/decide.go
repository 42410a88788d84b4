package hooks

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rule"
)

// Decide is the whole of Quorate's judgement: a pure function of what was observed. It is total (any observation of a
// cluster with a name gets an answer), deterministic, and leaves its input untouched. With o.Taken set it asks for no
// further step.
func Decide(o Observation) Decision {
	v := newView(o)
	at, decision := v.mode.rules.First(v)
	v.defragRun = cmp.Or(decision.defragRun, v.defragRun)
	if decision.failure == objects.FailedSilent {
		v.failedVoter = decision.failed
	}
	answer := children(v, decision)
	v.expect(answer)
	decision.message = v.andUnmade(decision.message)
	because := rule.Reason{Rule: v.mode.rules[at].Name, Message: decision.message}
	newStatus := status(v, because, v.prospectOf(at, decision))
	return Decision{
		Step:        decision.step,
		Children:    answer,
		Status:      newStatus,
		ResyncAfter: v.resyncForUnmade(v.resyncAfter(decision.resync, &newStatus)),
		Mode:        v.mode.name,
		Reason:      because,
	}
}

// asObserved is every child as it is.
func asObserved(o Observation) Desired {
	return Desired{
		Services:     keptAll(o.Cluster, o.Children.Services),
		Budgets:      keptAll(o.Cluster, o.Children.Budgets),
		Policies:     keptAll(o.Cluster, o.Children.Policies),
		Secrets:      keptSecrets(o),
		Certificates: keptAll(o.Cluster, o.Children.Certificates),
		ConfigMaps:   keptAll(o.Cluster, o.Children.ConfigMaps),
		Claims:       keptAll(o.Cluster, o.Children.Claims),
		Pods:         keptAll(o.Cluster, o.Children.Pods),
	}
}

func keptSecrets(o Observation) []*DesiredSecret {
	var list []*DesiredSecret
	for _, name := range slices.Sorted(maps.Keys(o.Children.Secrets)) {
		list = append(list, keptSecret(o.Cluster, o.Children.Secrets[name]))
	}
	return list
}

func keptSecret(c *v1alpha1.EtcdCluster, old *Secret) *DesiredSecret {
	return &DesiredSecret{ObjectMeta: kept(c, old).ObjectMeta, Type: old.Type}
}

func keptAll[T any, P interface {
	*T
	metav1.Object
}](c *v1alpha1.EtcdCluster, objects map[string]P) []P {
	var list []P
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		list = append(list, kept(c, objects[name]))
	}
	return list
}
