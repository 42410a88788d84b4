package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/pods"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/spec"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// How members that do not serve are healed. A voter that is silent for too long is given up: removed, and succeeded
// under a new name. Its data may be all that is left of something one day, so its claim is kept for a while, in
// quarantine. A learner that does not come to anything is tried again, ever more slowly. A member that answers as
// another is fenced off, and left to a person.
//
// The clock is the status: since when a member is not ready, and since when the others have quorum, as far as Quorate
// has looked (state/since.go). Losing it only delays.

const (
	defaultKeepClaimFor = 24 * time.Hour
)

// keepClaimFor is how long the claim of a voter that was given up is kept.
func keepClaimFor(s *v1alpha1.EtcdClusterSpec) time.Duration {
	if d := s.MemberReplacement.KeepClaimFor; d != nil {
		return max(0, d.Duration)
	}
	return defaultKeepClaimFor
}

func replaceDead(v *state.View) *decision.Plan {
	for _, m := range v.Voters {
		if health.Overdue(v, m) && health.WhyNotReplaced(v, m) == "" {
			why := fmt.Sprintf("replacing %s: it has not served for %s%s", m.PodName,
				wording.Brief(spec.ReplaceAfter(&v.Cluster.Spec)), wording.Colon(pods.WhyNotServing(v, m)))
			return cmp.Or(pausedReplacement(v, m, why), replaceDeadVoter(v, m, why))
		}
	}
	return nil
}

// replaceDeadVoter removes a voter and keeps its claim.
func replaceDeadVoter(v *state.View, m *state.Member, why string) *decision.Plan {
	return keepingClaim(v, m, why, objects.FailedSilent, removeVoter(v, m, why))
}

// keepingClaim removes a member as was said, and keeps its claim: the claim is marked first, so that a later call that
// sees it without its member knows that it must be kept. The mark stays while the member is about to be removed, even
// if it serves. One that is only silent is not marked while its removal has to wait: it may have more than the others
// when these are lost.
func keepingClaim(v *state.View, m *state.Member, why, failure string, plan *decision.Plan) *decision.Plan {
	unmarked := func(c *corev1.PersistentVolumeClaim) bool { return v.Ours(c) && !state.OfFailedMember(c) }
	_, removes := plan.Step.(decision.Remove)
	removes = removes || recordsRemoval(plan)
	if !removes && failure == objects.FailedSilent {
		return plan
	}
	switch {
	case removes && slices.ContainsFunc(v.MemberClaims(m.PodName), unmarked):
		plan = &decision.Plan{
			Message: why + "; first its claim is marked to be kept",
			Record:  decision.RecordChange{Choice: plan.Record.Choice},
			Resync:  rule.ResyncSoon,
		}
	case removes && failure == objects.FailedSilent && health.Replacements(v, "").Voter != m.PodName:
		plan = &decision.Plan{
			Message: why + "; first that is recorded",
			Record:  decision.RecordChange{Choice: plan.Record.Choice},
			Resync:  rule.ResyncSoon,
		}
	}
	plan.GivenUp = decision.GivenUp{Member: m.PodName, Mark: failure}
	return plan
}

// claimKept reports whether a claim is kept although etcd no longer lists its member. What a person writes in place
// of the time keeps it for good.
func claimKept(v *state.View, claim *corev1.PersistentVolumeClaim) bool {
	keep := keepClaimFor(&v.Cluster.Spec)
	if keep == 0 || !state.Quarantined(claim) {
		return keep > 0 && state.OfFailedMember(claim)
	}
	since, err := time.Parse(time.RFC3339, claim.Annotations[objects.AnnotationQuarantined])
	return err != nil || v.Now.Before(since.Add(keep))
}

// quarantine puts on the claims, with etcd's list in hand, which members are given up and which claims are kept
// without theirs. A member that serves again, and is not given up for something else, is no longer marked.
func quarantine(v *state.View, claims []*corev1.PersistentVolumeClaim, plan *decision.Plan) {
	for _, claim := range claims {
		member, _ := state.MemberOfClaim(v.Cluster.Name, claim.Name)
		m := v.Find(member)
		switch {
		case member == plan.GivenUp.Member && v.Ours(claim):
			if old := claim.Annotations[objects.AnnotationFailedMember]; old == "" || old == objects.FailedSilent {
				claim.Annotations[objects.AnnotationFailedMember] = plan.GivenUp.Mark
			}
		case m != nil && m.Answers():
			delete(claim.Annotations, objects.AnnotationFailedMember)
		case m == nil && state.OfFailedMember(claim) && !state.Quarantined(claim):
			claim.Annotations[objects.AnnotationQuarantined] = v.Now.UTC().Format(time.RFC3339)
			claim.Labels[objects.LabelQuarantined] = "true"
		}
	}
}

func learnerLate(v *state.View) *decision.Plan {
	l := health.Late(v)
	if l == nil {
		return nil
	}
	if noted := v.Cluster.Status.Internal.Replacement; noted == nil || noted.Learner != l.PodName {
		return &decision.Plan{
			Message: fmt.Sprintf("recording that the learner %s did not catch up within %s, before it is removed%s",
				l.PodName, wording.Brief(health.TimeFor(v)), wording.Colon(pods.WhyNotServing(v, l))),
			Resync: rule.ResyncLater,
		}
	}
	return removeMember(v, l, fmt.Sprintf("removing the learner %s, which did not catch up within %s; the next one "+
		"gets a new name%s", l.PodName, wording.Brief(health.TimeFor(v)), wording.Colon(pods.WhyNotServing(v, l))))
}

// pausedReplacement says why a voter is not given up now, although its time is over; nil when it is.
func pausedReplacement(v *state.View, m *state.Member, why string) *decision.Plan {
	r := health.Replacements(v, "")
	if r.Voter == m.PodName || !v.Now.Before(r.NextGivenUpTime.Time) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s; after %s replaced in a row it stays a member until %s, or until the spec changes",
			why,
			wording.Count(int(r.GivenUp), "voter"), r.NextGivenUpTime.UTC().Format(time.RFC3339)),
		Due: r.NextGivenUpTime.Sub(v.Now),
	}
}

// pausedGrowth says why no learner is added now; nil when one may be.
func pausedGrowth(v *state.View, why string) *decision.Plan {
	a := health.Replacements(v, "")
	if !v.Now.Before(a.NextLearnerTime.Time) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s; %s did not catch up, so the next one is added at %s, or when the spec "+
			"changes", why, wording.Count(int(a.Failures), "learner"),
			a.NextLearnerTime.UTC().Format(time.RFC3339)),
		Due: a.NextLearnerTime.Sub(v.Now),
	}
}
