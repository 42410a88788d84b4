package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/defaults"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

func replaceUnreachable(f *facts.Facts) *decision.Plan {
	for _, m := range f.Voters {
		if f.Overdue(m) && f.WhyNotReplaced(m) == "" {
			why := fmt.Sprintf("replacing %s: it has not served for %s%s", m.PodName,
				objects.Brief(defaults.ReplaceAfter(&f.Cluster.Spec)), objects.Colon(f.WhyNotServing(m)))
			return cmp.Or(pausedReplacement(f, m, why), replaceUnreachableVoter(f, m, why))
		}
	}
	return nil
}

// replaceUnreachableVoter removes a voter and keeps its claim.
func replaceUnreachableVoter(f *facts.Facts, m *facts.Member, why string) *decision.Plan {
	return keepingClaim(f, m, why, objects.FailedUnreachable, removeVoter(f, m, why))
}

// keepingClaim removes a member as was said, and keeps its claim: the claim is marked first, so that a later call that
// sees it without its member knows that it must be kept. The mark stays while the member is about to be removed, even
// if it serves. One that is only unreachable is not marked while its removal has to wait: it may have more than the
// others when these are lost.
func keepingClaim(f *facts.Facts, m *facts.Member, why, failure string, plan *decision.Plan) *decision.Plan {
	unmarked := func(c *corev1.PersistentVolumeClaim) bool { return f.Ours(c) && !facts.OfFailedMember(c) }
	_, removes := plan.Step.(decision.Remove)
	removes = removes || recordsRemoval(plan)
	if !removes && failure == objects.FailedUnreachable {
		return plan
	}
	switch {
	case removes && slices.ContainsFunc(f.MemberClaims(m.PodName), unmarked):
		plan = &decision.Plan{
			Message: why + "; first marking its claim to be kept",
			Record:  decision.RecordChange{Choice: plan.Record.Choice},
			Resync:  decision.ResyncSoon,
		}
	case removes && failure == objects.FailedUnreachable && f.Replacements("").Voter != m.PodName:
		plan = &decision.Plan{
			Message: why + "; recording the replacement first",
			Record:  decision.RecordChange{Choice: plan.Record.Choice},
			Resync:  decision.ResyncSoon,
		}
	}
	plan.GivenUp = decision.GivenUp{Member: m.PodName, Mark: failure}
	return plan
}

func learnerOverdue(f *facts.Facts) *decision.Plan {
	l := f.Late()
	if l == nil {
		return nil
	}
	failed := fmt.Sprintf("did not catch up within %s", objects.Brief(f.TimeFor()))
	why := f.WhyNotServing(l)
	if f.CutOff(l) {
		failed = fmt.Sprintf("could not be promoted within %s", objects.Brief(f.TimeFor()))
		why = "what the leader writes does not reach it"
	}
	if noted := f.Cluster.Status.Internal.Replacement; noted == nil || noted.Learner != l.PodName {
		return &decision.Plan{
			Message: fmt.Sprintf("recording that the learner %s %s, before it is removed%s", l.PodName, failed,
				objects.Colon(why)),
			Resync: decision.ResyncLater,
		}
	}
	return removeMember(f, l, fmt.Sprintf("removing the learner %s, which %s; the next one gets a new name%s",
		l.PodName, failed, objects.Colon(why)))
}

// pausedReplacement says why a voter is not given up now, although its time is over; nil when it is.
func pausedReplacement(f *facts.Facts, m *facts.Member, why string) *decision.Plan {
	r := f.Replacements("")
	if r.Voter == m.PodName || !f.Now.Before(r.NextReplacementTime.Time) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s; after %s replaced in a row it stays a member until %s, or until the spec changes",
			why,
			objects.Count(int(r.GivenUp), "voter"), r.NextReplacementTime.UTC().Format(time.RFC3339)),
		Due: r.NextReplacementTime.Sub(f.Now),
	}
}

// pausedGrowth says why no learner is added now; nil when one may be.
func pausedGrowth(f *facts.Facts, why string) *decision.Plan {
	a := f.Replacements("")
	if !f.Now.Before(a.NextLearnerTime.Time) {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s; %s did not catch up; the next one is added at %s, or when the spec "+
			"changes", why, objects.Count(int(a.Failures), "learner"),
			a.NextLearnerTime.UTC().Format(time.RFC3339)),
		Due: a.NextLearnerTime.Sub(f.Now),
	}
}

// waitForRestarts says what must end before something is done that needs all of these voters, or more of them than
// stay: another one's restart. The voter that is only chosen for one is let go. Nil when nothing of ours is in the
// way.
func waitForRestarts(f *facts.Facts, voters []*facts.Member, why string) *decision.Plan {
	chosen := f.Chosen()
	var restarting []*facts.Member
	for _, m := range voters {
		if m == chosen {
			plan := withdraw(f)
			plan.Message = why + "; " + plan.Message
			return plan
		}
		if m.Restarting() {
			restarting = append(restarting, m)
		}
	}
	if len(restarting) == 0 {
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("%s; waiting for %s to restart%s", why,
			strings.Join(facts.Names(restarting), ", "), f.ExplainAll(restarting)),
		Resync: decision.ResyncSoon,
	}
}
