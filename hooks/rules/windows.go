package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1beta1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// allWaiting is everything that waits for a window.
func allWaiting(f *facts.Facts) []string {
	var all []string
	var restarts, replacements objects.GroupedReasons
	for _, m := range f.VotersAndSpare() {
		switch {
		case !f.WaitsForWindow(m):
		case f.RestartSuffices(m, f.UpdateOf(m)):
			restarts.Add(m.PodName, f.UpdateOf(m).Reason)
		default:
			replacements.Add(m.PodName, f.UpdateOf(m).Reason)
		}
	}
	if len(restarts) > 0 {
		all = append(all, "to restart "+restarts.String())
	}
	if len(replacements) > 0 {
		all = append(all, "to replace "+replacements.String())
	}
	if f.HopWaits() {
		all = append(all, fmt.Sprintf("to upgrade etcd from %s to %s", f.Epoch.Version, f.Hops()[0]))
	}
	if nextReaddressed(f) != nil {
		all = append(all, "to change peer URLs to https")
	}
	if dueRun(f) == v1beta1.TriggerSchedule && f.Windows.Closed() {
		all = append(all, "to defragment, on schedule")
	}
	return all
}

func waitForWindow(f *facts.Facts) *decision.Plan {
	if !f.Windows.Closed() {
		return nil
	}
	what := strings.Join(allWaiting(f), "; ")
	switch {
	case what == "":
		return nil
	case f.Windows.Opens.IsZero():
		return &decision.Plan{
			Message: fmt.Sprintf("serving; no maintenance window ever opens %s; correct "+
				"spec.maintenance.windows (%s)",
				what, strings.Join(f.Windows.Flaws, "; ")),
			Outlook: decision.Waits,
		}
	}
	return &decision.Plan{Message: fmt.Sprintf("serving; waiting for the maintenance window that opens at %s %s",
		f.Windows.Opens.Format(time.RFC3339), what)}
}
