package rules

import (
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
)

// Decided is what the first rule that applies has said.
type Decided struct {
	decision.Plan
	Mode string
	Rule *Rule
	// Next is what tools are told; Aside: it is what the rules after this one say.
	Next  decision.Prospect
	Aside bool
}

// Decide asks the rules.
func Decide(f *facts.Facts) Decided {
	in := modeOf(f)
	at, said := in.Rules.First(f)
	p := Decided{Plan: *said, Mode: in.Name, Rule: &in.Rules[at]}
	if p.Outlook == "" {
		p.Outlook = p.Rule.Outlooks[0]
	}
	p.Aside = p.Outlook == decision.Aside
	then := f.WithRun(p.Defragmentation)
	p.Next = prospectOf(then, in, at, said)
	p.Leaving = leaving(then, &p.Plan)
	return p
}
