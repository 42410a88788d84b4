package mirror

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// status is what people see of a mirror.
func (v *view) status(because rule.Reason) v1alpha1.EtcdMirrorStatus {
	s := *v.Mirror.Status.DeepCopy()
	s.ObservedGeneration, s.Message, s.Pod = v.Mirror.Generation, clipped(because.Message), ""
	switch {
	case v.over():
		s.PromotedRevision = v.revision()
	case v.copier != nil:
		s.Pod = v.copier.Name
	}
	if v.copies() && s.CopiedTime.IsZero() {
		s.CopiedTime = metav1.NewTime(v.Now.Truncate(time.Second))
	}
	v.setConditions(&s, because.Rule)
	return s
}

// copies reports whether what was written 30 seconds ago is at the destination.
func (v *view) copies() bool {
	return v.copier != nil && ready(v.copier) && !v.over() && !v.Mirror.Spec.Suspend
}

func (v *view) setConditions(s *v1alpha1.EtcdMirrorStatus, because string) {
	set := func(kind string, is bool, reason, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			ObservedGeneration: v.Mirror.Generation, LastTransitionTime: metav1.NewTime(v.Now.Truncate(time.Second))}
		if is {
			c.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	well := slices.Contains([]string{ruleMirroring, rulePromoted, ruleSuspended}, because)
	stalled := because == ruleUnsupported || because == ruleStopped && v.lasting()
	set(v1alpha1.Ready, well, because, s.Message)
	if well || stalled {
		set(v1alpha1.Reconciling, false, wording.NotReconciling, wording.NothingUnderWay)
	} else {
		set(v1alpha1.Reconciling, true, because, s.Message)
	}
	if stalled {
		set(v1alpha1.Stalled, true, because, s.Message)
	} else {
		set(v1alpha1.Stalled, false, wording.NotStalled, wording.NothingWaits)
	}
	if v.copies() { // also while it is being promoted
		set(v1alpha1.Mirroring, true, ruleMirroring, mirroring(v))
	} else {
		set(v1alpha1.Mirroring, false, because, s.Message)
	}
	if because == rulePromoted || because == rulePromoting {
		set(v1alpha1.Promoted, because == rulePromoted, because, s.Message)
	} else {
		set(v1alpha1.Promoted, false, "NotAsked", "spec.promote is not set")
	}
}

// clipped is a message of at most 1000 bytes: some words are others'.
func clipped(message string) string {
	const most = 1000
	if len(message) <= most {
		return message
	}
	return strings.ToValidUTF8(message[:most], "") + " ..."
}
