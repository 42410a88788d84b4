package decision

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
)

// What tools that wait are told: kubectl wait, helm --wait, Flux and Argo CD. They know three words for an object
// (kstatus, of sigs.k8s.io/cli-utils): it is as its spec asks for, it is on its way there, or it will not come there
// by itself. So exactly one of the conditions Ready, Reconciling and Stalled is True.

// Outlook is what to expect of a decision.
type Outlook string

const (
	// Works says that Quorate goes on by itself, or waits for what Kubernetes, etcd or another controller will do.
	// Condition Reconciling.
	Works Outlook = "Works"
	// Waits says that nothing goes on before a person does something. Condition Stalled.
	Waits Outlook = "Waits"
	// Rests says that what runs is what the spec asks for, at this hour. Condition Ready.
	Rests Outlook = "Rests"
	// Aside says that what is done, or not done, has nothing to do with that. The rules that come after it tell.
	Aside Outlook = "Aside"
)

// Conditions sets those of one status in one call.
type Conditions struct {
	// List is what the status has so far.
	List       *[]metav1.Condition
	Generation int64
	Now        time.Time
}

// Set sets one. Since when it is so stays while it stays so.
func (c Conditions) Set(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(c.List, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: c.Generation, LastTransitionTime: metav1.NewTime(c.Now.Truncate(time.Second))})
}

// Expect sets Ready, Reconciling and Stalled.
func (c Conditions) Expect(o Outlook, reason, message string) {
	c.Set(v1beta1.Ready, o == Rests, reason, message)
	if o == Works {
		c.Set(v1beta1.Reconciling, true, reason, message)
	} else {
		c.Set(v1beta1.Reconciling, false, "NotReconciling", "nothing is in progress")
	}
	if o == Waits {
		c.Set(v1beta1.Stalled, true, reason, message)
	} else {
		c.NotStalled()
	}
}

// NotStalled says that nothing waits for a person.
func (c Conditions) NotStalled() {
	c.Set(v1beta1.Stalled, false, "NotStalled", "nothing waits for you")
}
