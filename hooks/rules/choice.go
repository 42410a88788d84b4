package rules

import (
	"fmt"
	"time"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/record"
)

// ChooseForRestart says what must happen before the voter is restarted in this way; nil when nothing must, for it was
// chosen for it.
func ChooseForRestart(f *facts.Facts, m *facts.Member, inPlace bool, reason string) *decision.Plan {
	chosen := f.Chosen()
	wanted := facts.RestartChoice(m.Pod, inPlace)
	// one without a role has not served since
	wanted.Down = !m.Answers() && (!facts.ServedBefore(m.Pod) || m.Pod.Labels[objects.LabelRole] != "")
	switch {
	case chosen != nil && (chosen != m || f.Epoch.Choice.Removes ||
		m.Pod.Annotations[objects.AnnotationWithdrawn] != ""):
		return withdraw(f)
	case m.Pod.Annotations[objects.AnnotationWithdrawn] != "":
		return &decision.Plan{
			Message: fmt.Sprintf("waiting until the withdrawn restart of %s is forgotten: %s",
				m.PodName, reason),
			Resync: decision.ResyncSoon,
		}
	case facts.SameChoice(f.Epoch.Choice, wanted):
		return nil
	}
	return &decision.Plan{
		Message: fmt.Sprintf("recording that %s is restarted next: %s", m.PodName, reason),
		Record:  decision.RecordChange{Choice: wanted},
		Resync:  decision.ResyncSoon,
	}
}

// chooseForRemoval says what must happen before the member is removed; nil when nothing must, for it was chosen for
// it. One that was chosen to be restarted needs no wait: it is out of the count all the same.
func chooseForRemoval(f *facts.Facts, m *facts.Member, why string) *decision.Plan {
	chosen := f.Chosen()
	recorded := f.Epoch.Choice
	switch {
	case chosen == m && recorded.Removes && recorded.Withdrawn.IsZero():
		return nil
	case chosen != nil && (chosen != m || recorded.Removes):
		plan := withdraw(f)
		plan.Message = why + "; " + plan.Message
		return plan
	}
	return &decision.Plan{
		Message: why + "; recording the removal first",
		Record:  decision.RecordChange{Choice: record.Choice{Name: m.DisplayName(), Removes: true}},
		Resync:  decision.ResyncSoon,
	}
}

// withdraw lets go of the member that was chosen; nil when none is.
func withdraw(f *facts.Facts) *decision.Plan {
	chosen := f.Chosen()
	recorded := f.Epoch.Choice
	switch {
	case chosen == nil:
		return nil
	case !recorded.Removes:
		since, _ := time.Parse(time.RFC3339, chosen.Pod.Annotations[objects.AnnotationWithdrawn])
		return &decision.Plan{
			Message: fmt.Sprintf("waiting for earlier calls, which may still restart %s until %.0f seconds after "+
				"that was withdrawn", chosen.PodName, facts.CallsEnd.Seconds()),
			Pod:    decision.PodChange{Name: chosen.PodName, Fate: decision.Unchosen},
			Resync: decision.ResyncLater,
			Due:    f.CallsLeft(since),
		}
	case recorded.Withdrawn.IsZero():
		recorded.Withdrawn = f.Now
	}
	return &decision.Plan{
		Message: fmt.Sprintf("waiting for earlier calls, which may still remove %s until %.0f seconds after that was "+
			"withdrawn", chosen.DisplayName(), facts.CallsEnd.Seconds()),
		Record: decision.RecordChange{Choice: recorded},
		Resync: decision.ResyncLater,
		Due:    f.CallsLeft(recorded.Withdrawn),
	}
}
