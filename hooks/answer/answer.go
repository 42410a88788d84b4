package answer

import (
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rules"
)

// Of is what becomes of a plan.
func Of(f *facts.Facts, p rules.Decided) decision.Decision {
	f = f.WithRun(p.Defragmentation)
	children := desired(f, &p.Plan)
	awaited := await(f, children)
	told := told{
		Because: decision.Reason{Rule: p.Rule.Name, Message: awaited.AddTo(p.Message)},
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
	newStatus := statusOf(f, told)
	return decision.Decision{
		Step:        p.Step,
		Children:    children,
		Status:      newStatus,
		ResyncAfter: awaited.Resync(resyncAfter(f, &p.Plan, &newStatus)),
		Mode:        p.Mode,
		Quiet:       p.Rule.IsQuiet,
		Reason:      told.Because,
		Outlook:     p.Outlook,
	}
}
