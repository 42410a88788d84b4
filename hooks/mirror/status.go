package mirror

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// status is what people see of a mirror.
func (v *view) status(because decision.Reason) v1alpha1.EtcdMirrorStatus {
	s := *v1alpha1.Copy(&v.Mirror.Status)
	s.ObservedGeneration = v.Mirror.Generation
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

func (v *view) setConditions(s *v1alpha1.EtcdMirrorStatus, because string) {
	to := decision.Conditions{List: &s.Conditions, Generation: v.Mirror.Generation, Now: v.Now}
	outlook := decision.Works
	switch {
	case slices.Contains([]string{ruleMirroring, rulePromoted, ruleSuspended}, because):
		outlook = decision.Rests
	case because == ruleUnsupported || because == ruleStopped && v.lasting():
		outlook = decision.Waits
	}
	to.Expect(outlook, because, s.Message)
	if v.copies() { // also while it is being promoted
		to.Set(v1alpha1.Mirroring, true, ruleMirroring, mirroring(v))
	} else {
		to.Set(v1alpha1.Mirroring, false, because, s.Message)
	}
	if because == rulePromoted || because == rulePromoting {
		to.Set(v1alpha1.Promoted, because == rulePromoted, because, s.Message)
	} else {
		to.Set(v1alpha1.Promoted, false, "NotAsked", "spec.promote is not set")
	}
}
