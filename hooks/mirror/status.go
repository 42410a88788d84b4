package mirror

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// status is what people see of a mirror.
func (v *view) status(because decision.Reason) v1beta1.EtcdMirrorStatus {
	s := *v1beta1.Copy(&v.Mirror.Status)
	s.ObservedGeneration = v.Mirror.Generation
	s.Rule = because.Rule
	s.Message = objects.Clipped(because.Message)
	s.Pod = ""
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
	return v.copier != nil && objects.Ready(v.copier) && !v.over() && !v.Mirror.Spec.Suspend
}

// outlook is what tools are told, with one of the reasons that the API promises.
func (v *view) outlook(because string) (decision.Outlook, string) {
	switch {
	case because == ruleMirroring:
		return decision.Rests, v1beta1.ReasonServing
	case because == rulePromoted:
		return decision.Rests, v1beta1.ReasonPromoted
	case because == ruleSuspended:
		return decision.Rests, v1beta1.ReasonSuspended
	case because == ruleUnsupported:
		return decision.Waits, v1beta1.ReasonInvalid
	case because == ruleStopped && v.lasting():
		return decision.Waits, v1beta1.ReasonActionNeeded
	}
	return decision.Works, v1beta1.ReasonProgressing
}

func (v *view) setConditions(s *v1beta1.EtcdMirrorStatus, because string) {
	to := decision.Conditions{List: &s.Conditions, Generation: v.Mirror.Generation, Now: v.Now}
	outlook, reason := v.outlook(because)
	to.Expect(outlook, reason, s.Message)
	if v.copies() { // also while it is being promoted
		to.Set(v1beta1.Mirroring, true, ruleMirroring, mirroring(v))
	} else {
		to.Set(v1beta1.Mirroring, false, because, s.Message)
	}
	if because == rulePromoted || because == rulePromoting {
		to.Set(v1beta1.Promoted, because == rulePromoted, because, s.Message)
	} else {
		to.Set(v1beta1.Promoted, false, "NotAsked", "spec.promote is not set")
	}
}
