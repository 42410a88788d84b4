package cluster

import (
	"cmp"

	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
)

// decide is Decide, at a time.
func decide(o observation.Observation) decision.Decision {
	v := newView(o)
	in := modeOf(v)
	at, plan := in.Rules.First(v)
	v.DefragRun = cmp.Or(plan.Defragmentation, v.DefragRun)
	if plan.GivenUp.Mark == objects.FailedSilent {
		v.FailedVoter = plan.GivenUp.Member
	}
	plan.Leaving = leaving(v, plan)
	answer := desired(v, plan)
	health.Expect(v, answer)
	plan.Message = health.AndUnmade(v, plan.Message)
	because := rule.Reason{Rule: in.Rules[at].Name, Message: plan.Message}
	newStatus := status.Of(v, because, prospectOf(v, in, at, plan))
	return decision.Decision{
		Step:        plan.Step,
		Children:    answer,
		Status:      newStatus,
		ResyncAfter: health.ResyncForUnmade(v, resyncAfter(v, plan, &newStatus)),
		Mode:        in.Name,
		Quiet:       in.Rules[at].IsQuiet,
		Reason:      because,
		Outlook:     cmp.Or(plan.Outlook, in.Rules[at].Outlooks[0]),
	}
}

// AsObserved are the children as they are, all of them: the answer that changes nothing.
func AsObserved(o observation.Observation) decision.Desired {
	return decision.Desired{
		Services:     state.KeptServices(o),
		Budgets:      state.KeptAll(o.Cluster, o.Children.Budgets),
		Policies:     state.KeptAll(o.Cluster, o.Children.Policies),
		Secrets:      state.KeptSecrets(o),
		Certificates: state.KeptAll(o.Cluster, o.Children.Certificates),
		ConfigMaps:   state.KeptAll(o.Cluster, o.Children.ConfigMaps),
		Claims:       state.KeptAll(o.Cluster, o.Children.Claims),
		Pods:         state.KeptAll(o.Cluster, o.Children.Pods),
	}
}

// newView is an observation put together, with what is worked out once for all rules.
func newView(o observation.Observation) *state.View { return certificates.Examine(state.New(o)) }
