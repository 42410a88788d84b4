// Package operation says what became of an EtcdOperation. Nothing is decided here: its EtcdCluster is told of it, does
// it, and says in status.operations how far it has come. That is copied until it has ended, and then stays.
//
// An act is an object, which runs once and keeps its end. As fields of the spec or as annotations acts stayed in Git and
// did their work again, and had no rights of their own.
package operation

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// Observation is everything that an answer about an EtcdOperation may depend on.
type Observation struct {
	// Operation is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Operation *v1alpha1.EtcdOperation
	// Clusters are EtcdClusters of the namespace, by name, its own among them.
	Clusters map[string]*v1alpha1.EtcdCluster
	// Now is the time of the call.
	Now time.Time
}

// Decision is the answer to an observation.
type Decision struct {
	// Status replaces the parent's status whole.
	Status v1alpha1.EtcdOperationStatus
	// Reason is the rule that fired.
	Reason rule.Reason
	// Finalized lets an operation that is being deleted go.
	Finalized bool
}

// verdict is what a rule says.
type verdict struct {
	phase   v1alpha1.OperationPhase
	message string
	// finalized lets it go when it is being deleted.
	finalized bool
}

var rules = rule.List[*Observation, *verdict]{
	rule.New("Ended", "An operation that has ended stays as it is.", ended),
	rule.New("ClusterNotFound", "Its EtcdCluster is not there, or is being deleted.", clusterNotFound),
	rule.New("Told", "The status of its EtcdCluster says how far it has come.", told),
	rule.New("NotSeen", "Its EtcdCluster has not been told of it yet.", notSeen),
}

// Rules are all rules in their order, by name and with a sentence.
func Rules() (all [][2]string) {
	for i := range rules {
		all = append(all, [2]string{rules[i].Name, rules[i].Why})
	}
	return all
}

// Decide is a pure function of what was observed.
func Decide(o Observation) Decision {
	at, v := rules.First(&o)
	return Decision{Status: status(o, v), Reason: rule.Reason{Rule: rules[at].Name, Message: v.message},
		Finalized: v.finalized}
}

func ended(o *Observation) *verdict {
	s := &o.Operation.Status
	if !s.Phase.Ended() {
		return nil
	}
	return &verdict{s.Phase, s.Message, true}
}

func clusterNotFound(o *Observation) *verdict {
	name := o.Operation.Spec.ClusterRef.Name
	switch c := o.Clusters[name]; {
	case c == nil:
		return &verdict{v1alpha1.OperationPending, fmt.Sprintf("EtcdCluster %s does not exist in namespace %s", name,
			o.Operation.Namespace), true}
	case c.DeletionTimestamp != nil:
		return &verdict{v1alpha1.OperationPending, fmt.Sprintf("EtcdCluster %s is being deleted", name), true}
	}
	return nil
}

func told(o *Observation) *verdict {
	all := o.Clusters[o.Operation.Spec.ClusterRef.Name].Status.Operations
	i := slices.IndexFunc(all, func(p v1alpha1.OperationProgress) bool { return p.UID == o.Operation.UID })
	if i < 0 {
		return nil
	}
	return &verdict{all[i].Phase, all[i].Message, all[i].Phase.Ended()}
}

func notSeen(o *Observation) *verdict {
	if s := o.Operation.Status; s.Phase != "" { // the cluster's status is shown as it was before
		return &verdict{s.Phase, s.Message, false}
	}
	return &verdict{v1alpha1.OperationPending, fmt.Sprintf("EtcdCluster %s has not been told of it yet",
		o.Operation.Spec.ClusterRef.Name), false}
}

func status(o Observation, v *verdict) v1alpha1.EtcdOperationStatus {
	s := *o.Operation.Status.DeepCopy()
	now := metav1.NewTime(o.Now.Truncate(time.Second))
	s.ObservedGeneration, s.Phase, s.Message = o.Operation.Generation, v.phase, v.message
	if s.StartTime.IsZero() && v.phase != v1alpha1.OperationPending {
		s.StartTime = now
	}
	if s.CompletionTime.IsZero() && v.phase.Ended() {
		s.CompletionTime = now
	}
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: o.Operation.Generation, LastTransitionTime: now}
		if is {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	phase := string(v.phase)
	set(v1alpha1.Ready, v.phase == v1alpha1.OperationSucceeded, phase, v.message)
	set(v1alpha1.Complete, v.phase == v1alpha1.OperationSucceeded, phase, v.message)
	set(v1alpha1.Failed, v.phase == v1alpha1.OperationFailed, phase, v.message)
	if v.phase.Ended() {
		set(v1alpha1.Reconciling, false, wording.NotReconciling, wording.NothingUnderWay)
	} else {
		set(v1alpha1.Reconciling, true, phase, v.message)
	}
	if v.phase == v1alpha1.OperationFailed {
		set(v1alpha1.Stalled, true, phase, v.message)
	} else {
		set(v1alpha1.Stalled, false, wording.NotStalled, wording.NothingWaits)
	}
	return s
}
