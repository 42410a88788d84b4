// Package schedule decides which snapshots of an EtcdSnapshotSchedule should exist, as a cluster is decided: from what
// was observed, by rules in order.
//
// Which run was the last is read from the snapshots themselves: a snapshot is named after the time of its run, and the
// newest one always stays. The status is asked as well, for a snapshot that a person has deleted. So a run that was
// decided twice is made once, and neither a lost status nor a list of snapshots that lags makes one that was made
// before, but under the same name (S14, S15).
package schedule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// Observation is all that a decision about an EtcdSnapshotSchedule may depend on.
type Observation struct {
	Schedule *v1beta1.EtcdSnapshotSchedule
	// Snapshots that it owns, by name.
	Snapshots map[string]*v1beta1.EtcdSnapshot
	// Pods that it owns, by name: of its stream.
	Pods map[string]*corev1.Pod
	// Secrets that it owns, by name; Keyed tells that the installation has keys for streams.
	Secrets map[string]*Secret
	Keyed   bool
	// Clusters of the namespace, by name, its own among them.
	Clusters map[string]*v1beta1.EtcdCluster
	// Images are where the installation has them from, AllowedEndpoints where an etcd may be that Quorate does not run;
	// nil allows none. They are for the stream.
	Images           objects.Images
	AllowedEndpoints *objects.AllowedEndpoints
	// Labelled are the Secrets of the namespace that have objects.LabelExternal.
	Labelled map[string]bool
	// Zone that spec.timeZone names; nil for a name that no zone has. To look it up is to read files, and not for a
	// decision.
	Zone *time.Location
	Now  time.Time
}

// Secret has the keys by which a stream signs, of which decisions know the SHA-256 in hexadecimal alone.
type Secret struct {
	metav1.ObjectMeta
	Sum string
}

// Decision is the answer.
type Decision struct {
	// Snapshots are complete: one that was observed and is not among them will be deleted. They are as they were
	// observed; one without UID is new. Sorted by name.
	Snapshots []*v1beta1.EtcdSnapshot
	// Pods are complete, likewise: of the stream.
	Pods []*corev1.Pod
	// Secrets are complete, likewise: the edge puts the keys of the namespace's streams into them.
	Secrets []*Secret
	// Status replaces the schedule's status whole.
	Status v1beta1.EtcdSnapshotScheduleStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Due is when a newer snapshot should be there at the latest: the second run after the newest that counts, so that
	// one run may fail. Zero while no snapshots are taken.
	Due time.Time
	// Reason is the rule that fired.
	Reason decision.Reason
}

const (
	// skew is how far clocks may differ: ours, those of other replicas of Quorate, the API server's.
	skew = 5 * time.Minute
	// punctual is the least time until the next look at the clock: who asks again may count it a little faster than we
	// do.
	punctual = 100 * time.Millisecond
	// runFormat is the time of a run in the name of its snapshot, in UTC.
	runFormat = "20060102-1504"
)

// snapshotName is the name of the snapshot that a schedule takes for the run at a time.
func snapshotName(schedule string, run time.Time) string {
	return schedule + "-" + run.UTC().Format(runFormat)
}

const (
	ruleTake       = "Take"
	ruleBase       = "TakeBase"
	ruleHeld       = "Suspended"
	ruleUnreadable = "Unreadable"
)

// allRules are all rules about schedules in order; the first that applies decides.
var allRules = decision.Rules[*agenda, string]{
	decision.NewRule(ruleHeld, "While spec.suspend is true no snapshot is taken and none is let go.", (*agenda).heldBack),
	decision.NewRule(ruleUnreadable,
		"A schedule or a time zone that can't be read changes nothing; the message says what to correct.",
		(*agenda).unreadable),
	decision.NewRule(ruleBase, "With spec.stream a snapshot is taken at once where the stream has no base, or needs another one.",
		(*agenda).takeBase),
	decision.NewRule("Wait", "A run waits until the snapshot before is finished.",
		(*agenda).wait),
	decision.NewRule(ruleTake, "The run that is due is taken; of several that were missed, the latest alone.", (*agenda).take),
	decision.NewRule("Running", "A snapshot is being taken.", (*agenda).running),
	decision.NewRule("Failing",
		"The newest run failed, or is stored and could not be verified; the next one is by the schedule.",
		(*agenda).failing),
	decision.NewRule("Waiting", "Nothing is due.", (*agenda).waiting),
}

// Decide says which snapshots of a schedule should exist. It is pure, and does not change what it is given.
func Decide(o Observation) Decision {
	a := newAgenda(o)
	at, message := allRules.First(a)
	d := Decision{Reason: decision.Reason{Rule: allRules[at].Name, Message: message}}
	a.decide(&d)
	slices.SortFunc(d.Snapshots, func(x, y *v1beta1.EtcdSnapshot) int { return cmp.Compare(x.Name, y.Name) })
	d.Pods = a.pods()
	d.Secrets = a.secrets()
	d.Status = a.status(&d)
	d.ResyncAfter = a.wake()
	d.Due = a.dueAfter(&d.Status)
	return d
}

func (a *agenda) heldBack() string {
	if !a.Schedule.Spec.Suspend {
		return ""
	}
	return "SUSPENDED: no snapshot is taken or deleted until spec.suspend is false"
}

func (a *agenda) unreadable() string {
	if a.flaw == "" {
		return ""
	}
	return a.flaw + "; until you correct that, no snapshot is taken or deleted"
}

func (a *agenda) wait() string {
	if a.due.IsZero() || len(a.active) == 0 {
		return ""
	}
	return fmt.Sprintf("%s waits%s", a.dueName(), a.unfinished())
}

func (a *agenda) take() string {
	if a.due.IsZero() {
		return ""
	}
	return "taking " + a.dueName()
}

func (a *agenda) running() string {
	if len(a.active) == 0 {
		return ""
	}
	return "being taken: " + strings.Join(a.activeNames(), ", ")
}

func (a *agenda) failing() string {
	f := a.failure()
	if f == nil {
		return ""
	}
	best := "none has succeeded yet"
	if a.success != nil {
		best = "the newest successful one is " + a.success.Name
	}
	became := "failed"
	if f.stored() {
		became = "is Unverified"
	}
	return fmt.Sprintf("%s %s%s; %s", f.Name, became, objects.Colon(f.Status.Message), best)
}

func (a *agenda) waiting() string {
	switch {
	case a.success == nil:
		return "no snapshot has been taken yet"
	case a.current != nil:
		return fmt.Sprintf("%s is the newest snapshot, and nothing has changed since", a.success.Name)
	}
	return a.success.Name + " is the newest snapshot"
}
