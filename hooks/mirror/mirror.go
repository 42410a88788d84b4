// Package mirror decides about an EtcdMirror: which pod copies the keys of another etcd, and which one ends that.
//
// How far a mirror is stands in the destination, written with the data (docs/decisions/0042-stream.md). So two pods at
// once, or one that is made again on an old view, neither repeat nor leave out anything, and a promotion that is asked
// for once more reports the end that there was. Nothing hangs on the status: one that is lost is found again (S14).
package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/snapshot"
	"github.com/quorate-dev/quorate/hooks/stores"
)

// Observation is all that a decision about an EtcdMirror may depend on.
type Observation struct {
	// Mirror is the parent as Metacontroller sent it. Its cache may lag behind the API server.
	Mirror *v1beta1.EtcdMirror
	// Pods that it owns, by name.
	Pods map[string]*corev1.Pod
	// Clusters of the namespace, by name, its destination and its source among them.
	Clusters map[string]*v1beta1.EtcdCluster
	// Images are where the installation has them from, AllowedEndpoints where an etcd may be that Quorate does not run;
	// nil allows none.
	Images           objects.Images
	AllowedEndpoints *objects.AllowedEndpoints
	// Labelled are the Secrets of the namespace that have objects.LabelExternal.
	Labelled map[string]bool
	// Now is the time of the call.
	Now time.Time
}

// Decision is the answer to an observation.
type Decision struct {
	// Pods are complete: one that was observed and is not among them will be deleted. One without UID is new.
	Pods []*corev1.Pod
	// Status replaces the mirror's status whole.
	Status v1beta1.EtcdMirrorStatus
	// ResyncAfter is when to ask again at the latest; 0 leaves it to the controller's resync period.
	ResyncAfter time.Duration
	// Reason is the rule that fired.
	Reason decision.Reason
}

const (
	rulePromoted    = "Promoted"
	rulePromoting   = "Promoting"
	ruleSuspended   = "Suspended"
	ruleUnsupported = "Unsupported"
	ruleMirroring   = "Mirroring"
	ruleStopped     = "Stopped"
	ruleStarting    = "Starting"
)

// rules are all rules about mirrors in order; the first that applies decides. Each says what it is about.
var rules = decision.Rules[*view, string]{
	decision.NewRule(rulePromoted, "A mirror that has ended stays so: others write to the destination.", promoted),
	decision.NewRule(ruleUnsupported, "A spec that the API server would refuse makes no pod.", unsupported),
	decision.NewRule(rulePromoting, "With spec.promote a second pod waits for the revision, and ends the mirror.", promoting),
	decision.NewRule(ruleSuspended, "While spec.suspend is true no pod runs.", suspended),
	decision.NewRule(ruleMirroring, "The pod is ready: what was written 30 seconds ago is at the destination.", mirroring),
	decision.NewRule(ruleStopped, "The pod has ended, and says why; it begins again after a pause that grows.", stopped),
	decision.NewRule("Waiting", "Source or destination can't be reached yet; a pod that runs stays.", waiting),
	decision.NewRule(ruleStarting, "The pod is made, or waits for what it needs.", starting),
	decision.NewRule("Copying", "The pod copies all keys for the first time.", copying),
	decision.NewRule("Lagging", "What was written 30 seconds ago is not at the destination.", lagging),
}

const (
	// podLost is how long a pod may take to end after its time, before its node is taken to be lost.
	podLost = 5 * time.Minute
	// soon is when to ask again while a pod starts: what it lacks is said only after a while.
	soon = 20 * time.Second
	// settled is how long a pod runs before its last end is no longer what there is to say.
	settled = time.Minute
)

// view is an observation put together.
type view struct {
	Observation
	// copier and promoter are the pods that go on; nil for none.
	copier, promoter *corev1.Pod
	// end is how a pod says that the mirror was ended; nil while none does.
	end *stores.Mirror
}

// Decide is a pure function of what was observed, and does not change that.
func Decide(o Observation) Decision {
	v := newView(o)
	at, message := rules.First(v)
	d := Decision{Pods: v.pods(), Reason: decision.Reason{Rule: rules[at].Name, Message: message}}
	d.Status = v.status(d.Reason)
	d.ResyncAfter = v.wake(d.Reason.Rule)
	return d
}

func newView(o Observation) *view {
	v := &view{Observation: o}
	for _, name := range slices.Sorted(maps.Keys(o.Pods)) {
		pod := o.Pods[name]
		if report := told(pod); report != nil && report.Ended {
			v.end = report
		}
		switch purpose := objects.Purpose(&pod.Spec); {
		case pod.DeletionTimestamp != nil || !v.stays(pod):
		case purpose == objects.ContainerMirror:
			v.copier = pod
		case purpose == objects.ContainerPromote:
			v.promoter = pod
		}
	}
	return v
}

// told is what a pod reported when its container last ended; nil while it has not, or reported nothing.
func told(pod *corev1.Pod) *stores.Mirror {
	return stores.Last[stores.Mirror](pod, objects.Purpose(&pod.Spec))
}

// over reports whether the mirror has ended.
func (v *view) over() bool {
	return v.end != nil || meta.IsStatusConditionTrue(v.Mirror.Status.Conditions, v1beta1.Promoted)
}

// revision of the source at which it has ended; 0 where that is not known.
func (v *view) revision() int64 {
	if v.end != nil && v.end.Revision > 0 {
		return v.end.Revision
	}
	return v.Mirror.Status.PromotedRevision
}

func promoted(v *view) string {
	if !v.over() {
		return ""
	}
	message := fmt.Sprintf("promoted at revision %d of the source: EtcdCluster %s is yours to write to, and nothing is "+
		"copied any more", v.revision(), v.Mirror.Spec.ClusterRef.Name)
	if v.Mirror.Spec.Promote == nil { // by hand, or as another object of this name
		message += "; another mirror needs another name"
	}
	return message
}

func unsupported(v *view) string {
	if err := validate(&v.Mirror.Spec); err != nil {
		return err.Error()
	}
	return ""
}

func promoting(v *view) string {
	p := v.Mirror.Spec.Promote
	if p == nil {
		return ""
	}
	until := "the last revision of the source"
	switch {
	case p.Force:
		until = "the last revision that the destination had whole"
	case p.Revision > 0:
		until = fmt.Sprintf("revision %d of the source", p.Revision)
	}
	var does string
	if v.promoter != nil {
		does = cmp.Or(snapshot.PodWaits(v.promoter, v.Now), "waiting until the destination has it")
	} else if pod, why := v.wanted(objects.ContainerPromote); pod == nil {
		does = why
	} else {
		does = "pod " + pod.Name + " is created"
	}
	return fmt.Sprintf("ending at %s: %s", until, does)
}

func suspended(v *view) string {
	if !v.Mirror.Spec.Suspend {
		return ""
	}
	return "SUSPENDED: nothing is copied until spec.suspend is false"
}

func mirroring(v *view) string {
	if v.copier == nil || !objects.Ready(v.copier) {
		return ""
	}
	return fmt.Sprintf("pod %s copies each change to EtcdCluster %s", v.copier.Name, v.Mirror.Spec.ClusterRef.Name)
}

func stopped(v *view) string {
	if v.copier == nil || v.goesOn() {
		return ""
	}
	report := told(v.copier)
	if report == nil || report.Reason == "" && report.Error == "" {
		return ""
	}
	return "nothing is copied: " + cmp.Or(report.Error, report.Reason)
}

// goesOn reports whether the pod that copies has run for so long that it does not end as it did before.
func (v *view) goesOn() bool {
	runs := objects.StatusOf(v.copier, objects.ContainerMirror).State.Running
	return runs != nil && v.Now.Sub(runs.StartedAt.Time) > settled
}

// lasting reports whether the pod has ended for a reason that only a person can change.
func (v *view) lasting() bool {
	report := told(v.copier)
	return report != nil && slices.Contains([]string{stores.MirrorOccupied, stores.MirrorOtherScope,
		stores.StreamOtherCluster}, report.Reason)
}

func waiting(v *view) string {
	if v.copier != nil {
		return ""
	}
	_, why := v.wanted(objects.ContainerMirror)
	return why
}

func starting(v *view) string {
	switch {
	case v.copier == nil:
		return "the pod is created"
	case v.goesOn():
		return ""
	}
	return snapshot.PodWaits(v.copier, v.Now)
}

func copying(v *view) string {
	if !v.Mirror.Status.CopiedTime.IsZero() {
		return ""
	}
	return fmt.Sprintf("pod %s copies all keys; until that is done, the destination has some of them", v.copier.Name)
}

func lagging(v *view) string {
	return fmt.Sprintf("pod %s runs, and what was written 30 seconds ago is not at the destination, or not whole: its "+
		"log says more", v.copier.Name)
}

// wake is how soon to be asked again; everything else that matters is a change of an object that is watched.
func (v *view) wake(reason string) (after time.Duration) {
	if reason == ruleStarting || reason == ruleStopped || reason == rulePromoting {
		after = soon
	}
	for _, pod := range v.Pods {
		if pod.DeletionTimestamp == nil {
			continue
		}
		if left := pod.DeletionTimestamp.Add(podLost).Sub(v.Now); left > 0 {
			after = min(cmp.Or(after, left), left+time.Second)
		}
	}
	return after
}
