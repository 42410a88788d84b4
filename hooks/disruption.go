package hooks

import (
	"fmt"
	"strings"

	"github.com/quorate-dev/quorate/hooks/rule"
)

// Voters that may be down because of us: restarted, stopped by a fence, or defragmented, or chosen for it. A call
// that we don't see may carry such a choice out in a moment, so a rule that takes a voter away or down, or makes the
// quorum larger, counts none of them among those that serve (S1, S2). Which voter is chosen, choice.go says.

// disrupted reports whether the voter may be down because of us, now or in a moment, although it may serve still.
func (v *view) disrupted(m *member) bool {
	return m.restarting() || m == v.chosen() || !m.serving() && v.busy(m)
}

// stays reports whether the voter serves, and will as far as it is for us to say.
func (v *view) stays(m *member) bool { return m.serving() && !v.disrupted(m) }

// waitForRestarts says what must end before something is done that needs all of these voters, or more of them than
// stay: another one's restart. The voter that is only chosen for one is let go. Nil when nothing of ours is in the
// way.
func (v *view) waitForRestarts(voters []*member, why string) *verdict {
	chosen := v.chosen()
	var restarting []*member
	for _, m := range voters {
		if m == chosen {
			decision := v.withdraw()
			decision.message = why + "; " + decision.message
			return decision
		}
		if m.restarting() {
			restarting = append(restarting, m)
		}
	}
	if len(restarting) == 0 {
		return nil
	}
	return &verdict{message: fmt.Sprintf("%s; waiting for %s to restart%s", why, strings.Join(names(restarting), ", "),
		v.explainAll(restarting)), resync: rule.ResyncLater}
}
