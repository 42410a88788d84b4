package hooks

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decide is the whole of Quorate's judgement: a pure function of what was observed. It is total (any observation of a
// cluster with a name gets an answer), deterministic, and leaves its input untouched. With o.Taken set it asks for no
// further step.
func Decide(o Observation) Decision {
	v := newView(o)
	for _, r := range Rules {
		said := r.applies(v)
		if said == nil {
			continue
		}
		because := Because{Rule: r.Name, Message: said.message}
		return Decision{
			Step:        said.step,
			Children:    children(v, said),
			Status:      status(v, because, said.settled),
			ResyncAfter: said.resync,
			Because:     because,
		}
	}
	panic("the last rule always applies")
}

// Finalize is what remains while the cluster is being deleted: nothing, and it is done when Kubernetes has been told to delete
// every child. It asks etcd nothing and waits for nobody (S17). Children are kept when their owner asked to orphan them
// (kubectl delete --cascade=orphan).
func Finalize(o Observation) (remaining Desired, finalized bool) {
	if slices.Contains(o.Cluster.Finalizers, "orphan") {
		return asObserved(o), true
	}
	c := o.Children
	going := all(c.Pods) && all(c.Claims) && all(c.ConfigMaps) && all(c.Services) && all(c.Budgets)
	return Desired{}, going
}

// all reports whether every object is already being deleted.
func all[T metav1.Object](objects map[string]T) bool {
	for _, o := range objects {
		if o.GetDeletionTimestamp() == nil {
			return false
		}
	}
	return true
}

// asObserved is every child as it is.
func asObserved(o Observation) Desired {
	return Desired{
		Services:   keptAll(o.Children.Services),
		Budgets:    keptAll(o.Children.Budgets),
		ConfigMaps: keptAll(o.Children.ConfigMaps),
		Claims:     keptAll(o.Children.Claims),
		Pods:       keptAll(o.Children.Pods),
	}
}

func keptAll[T any, P interface {
	*T
	metav1.Object
}](objects map[string]P) []P {
	var list []P
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		list = append(list, kept(objects[name]))
	}
	return list
}
