// Package operation says what became of an EtcdOperation. Nothing is decided here: its EtcdCluster is told of it, does
// it, and says in status.operations how far it has come. That is copied until it has ended, and then stays.
//
// An act is an object, which runs once and keeps its end. As fields of the spec or as annotations acts stayed in Git
// and did their work again, and had no rights of their own.
package operation

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Observation is everything that an answer about an EtcdOperation may depend on.
type Observation struct {
	// Operation is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Operation *v1beta1.EtcdOperation
	// Clusters are EtcdClusters of the namespace, by name, its own among them.
	Clusters map[string]*v1beta1.EtcdCluster
	// Now is the time of the call.
	Now time.Time
}

// Decision is the answer to an observation.
type Decision struct {
	// Status replaces the parent's status whole.
	Status v1beta1.EtcdOperationStatus
	// Reason is the rule that fired.
	Reason decision.Reason
	// Finalized lets an operation that is being deleted go.
	Finalized bool
}

// plan is what a rule says.
type plan struct {
	phase   v1beta1.OperationPhase
	message string
	// finalized lets it go when it is being deleted.
	finalized bool
}

var rules = decision.Rules[*Observation, *plan]{
	decision.NewRule("Ended", "An operation that has ended stays as it is.", ended),
	decision.NewRule("ClusterNotFound", "Its EtcdCluster is not there, or is being deleted.", clusterNotFound),
	decision.NewRule("Told", "The status of its EtcdCluster says how far it has come.", told),
	decision.NewRule("NotSeen", "Its EtcdCluster has not been told of it yet.", notSeen),
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
	return Decision{Status: status(o, v), Reason: decision.Reason{Rule: rules[at].Name, Message: v.message},
		Finalized: v.finalized}
}

func ended(o *Observation) *plan {
	s := &o.Operation.Status
	if !s.Phase.Ended() {
		return nil
	}
	return &plan{s.Phase, s.Message, true}
}

func clusterNotFound(o *Observation) *plan {
	name := o.Operation.Spec.ClusterRef.Name
	switch c := o.Clusters[name]; {
	case c == nil:
		return &plan{v1beta1.OperationPending, fmt.Sprintf("EtcdCluster %s does not exist in namespace %s", name,
			o.Operation.Namespace), true}
	case c.DeletionTimestamp != nil:
		return &plan{v1beta1.OperationPending, fmt.Sprintf("EtcdCluster %s is being deleted", name), true}
	}
	return nil
}

func told(o *Observation) *plan {
	all := o.Clusters[o.Operation.Spec.ClusterRef.Name].Status.Operations
	p := objects.Find(all, func(p *v1beta1.OperationProgress) bool { return p.UID == o.Operation.UID })
	if p == nil {
		return nil
	}
	return &plan{p.Phase, p.Message, p.Phase.Ended()}
}

func notSeen(o *Observation) *plan {
	if s := o.Operation.Status; s.Phase != "" { // the cluster's status is shown as it was before
		return &plan{s.Phase, s.Message, false}
	}
	return &plan{v1beta1.OperationPending, fmt.Sprintf("EtcdCluster %s has not been told of it yet",
		o.Operation.Spec.ClusterRef.Name), false}
}

// waitsForPerson reports whether its cluster waits for a person: then it does not come to other data by itself either.
func waitsForPerson(o Observation) bool {
	spec := &o.Operation.Spec
	c := o.Clusters[o.Operation.Spec.ClusterRef.Name]
	if c == nil || spec.Restore == nil && spec.Recover == nil {
		return false
	}
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1beta1.Stalled)
}

func status(o Observation, v *plan) v1beta1.EtcdOperationStatus {
	s := *v1beta1.Copy(&o.Operation.Status)
	now := metav1.NewTime(o.Now.Truncate(time.Second))
	s.ObservedGeneration = o.Operation.Generation
	s.Phase = v.phase
	s.Message = v.message
	if s.StartTime.IsZero() && v.phase != v1beta1.OperationPending {
		s.StartTime = now
	}
	if s.CompletionTime.IsZero() && v.phase.Ended() {
		s.CompletionTime = now
	}
	to := decision.Conditions{List: &s.Conditions, Generation: o.Operation.Generation, Now: o.Now}
	outlook := decision.Works
	switch v.phase {
	case v1beta1.OperationSucceeded:
		outlook = decision.Rests
	case v1beta1.OperationFailed:
		outlook = decision.Waits
	case v1beta1.OperationPending, v1beta1.OperationRunning:
		if waitsForPerson(o) {
			outlook = decision.Waits
		}
	}
	to.Expect(outlook, string(v.phase), v.message)
	to.Set(v1beta1.Complete, v.phase == v1beta1.OperationSucceeded, string(v.phase), v.message)
	to.Set(v1beta1.Failed, v.phase == v1beta1.OperationFailed, string(v.phase), v.message)
	return s
}
