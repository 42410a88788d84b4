package answer

import (
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// Of is the answer to what the rules have decided: the children, the records and the status that follow.
func Of(f *facts.Facts, p rules.Decided) decision.Decision {
	f = f.WithRun(p.Defragmentation)
	children := desired(f, &p.Plan)
	awaited := await(f, children)
	says := told{
		Because: decision.Reason{Rule: p.Rule.Name, Message: awaited.AddTo(p.Message)},
		Next:    awaited.Prospect(p.Next),
		Awaited: awaited,

		WantsSnapshot: p.WantsSnapshot,
	}
	if p.Aside {
		says.Next.Reason = p.Next.Reason
		says.Next.Message = awaited.AddTo(p.Next.Message)
	}
	if p.GivenUp.Mark == objects.FailedUnreachable {
		says.GivenUp = p.GivenUp.Member
	}
	newStatus := statusOf(f, says)
	return decision.Decision{
		Step:        p.Step,
		Children:    children,
		Status:      newStatus,
		ResyncAfter: awaited.Resync(resyncAfter(f, &p.Plan, &newStatus)),
		Mode:        p.Mode,
		Quiet:       p.Rule.IsQuiet,
		Reason:      says.Because,
		Outlook:     p.Outlook,
	}
}
