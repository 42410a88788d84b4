package cluster

import (
	"github.com/quorate-dev/quorate/hooks/certificates"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/health"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/observation"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/status"
)

// decide is Decide, at a time: the facts, what the rules plan, and the answer.
func decide(o observation.Observation) decision.Decision {
	v := newView(o)
	return answer(v, planned(v))
}

// plan is what the first rule that applies has said.
type plan struct {
	decision.Plan
	Mode string
	Rule *Rule
	// Next is what tools are told; Aside: it is what the rules after this one say.
	Next  decision.Prospect
	Aside bool
}

// planned asks the rules.
func planned(v *state.View) plan {
	in := modeOf(v)
	at, said := in.Rules.First(v)
	p := plan{Plan: *said, Mode: in.Name, Rule: &in.Rules[at]}
	if p.Outlook == "" {
		p.Outlook = p.Rule.Outlooks[0]
	}
	p.Aside = p.Outlook == rule.Aside
	then := v.WithRun(p.Defragmentation)
	p.Next = prospectOf(then, in, at, said)
	p.Leaving = leaving(then, &p.Plan)
	return p
}

// answer is what becomes of a plan.
func answer(v *state.View, p plan) decision.Decision {
	v = v.WithRun(p.Defragmentation)
	children := desired(v, &p.Plan)
	awaited := health.Await(v, children)
	told := status.Decided{
		Because: rule.Reason{Rule: p.Rule.Name, Message: awaited.AddTo(p.Message)},
		Next:    awaited.Prospect(p.Next),
		Awaited: awaited,
	}
	if p.Aside {
		told.Next.Reason = p.Next.Reason
		told.Next.Message = awaited.AddTo(p.Next.Message)
	}
	if p.GivenUp.Mark == objects.FailedSilent {
		told.GivenUp = p.GivenUp.Member
	}
	newStatus := status.Of(v, told)
	return decision.Decision{
		Step:        p.Step,
		Children:    children,
		Status:      newStatus,
		ResyncAfter: awaited.Resync(resyncAfter(v, &p.Plan, &newStatus)),
		Mode:        p.Mode,
		Quiet:       p.Rule.IsQuiet,
		Reason:      told.Because,
		Outlook:     p.Outlook,
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
