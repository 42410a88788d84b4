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
	at, said := v.mode.rules.First(v)
	v.run = cmp.Or(said.run, v.run)
	if said.mark == objects.CondemnedSilent {
		v.condemns = said.condemn
	}
	answer := children(v, said)
	v.expect(answer)
	said.message = v.andUnmade(said.message)
	because := rule.Because{Rule: v.mode.rules[at].Name, Message: said.message}
	told := status(v, because, v.prospectOf(at, said))
	return Decision{
		Step:        said.step,
		Children:    answer,
		Status:      told,
		ResyncAfter: v.wakeForUnmade(v.wake(said.resync, &told)),
		Mode:        v.mode.name,
		Because:     because,
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
