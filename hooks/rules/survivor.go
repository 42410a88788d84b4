package rules

import (
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// chooseSurvivor notes on the record whose log is ahead, once that is known.
func chooseSurvivor(f *facts.Facts) *decision.Plan {
	c := f.BestSurvivor()
	if c.Evidence == "" {
		return &decision.Plan{Message: c.Message, Outlook: c.Outlook, Resync: decision.ResyncLater}
	}
	return &decision.Plan{
		Message: c.Message,
		Record:  decision.RecordChange{Evidence: c.Evidence},
		Resync:  decision.ResyncSoon,
	}
}
