package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/quorate-dev/quorate/hooks/api/v1alpha1"
	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// allWaiting is everything that waits for a window.
func allWaiting(v *facts.Facts) []string {
	var all []string
	var restarts, successions objects.GroupedReasons
	for _, m := range v.Voters {
		switch {
		case !v.WaitsForWindow(m):
		case v.RestartSuffices(v.UpdateOf(m)):
			restarts.Add(m.PodName, v.UpdateOf(m).Reason)
		default:
			successions.Add(m.PodName, v.UpdateOf(m).Reason)
		}
	}
	if len(restarts) > 0 {
		all = append(all, "to restart "+restarts.String())
	}
	if len(successions) > 0 {
		all = append(all, "to replace "+successions.String())
	}
	if v.HopWaits() {
		all = append(all, fmt.Sprintf("to upgrade etcd from %s to %s", v.Epoch.Version, v.Hops()[0]))
	}
	if nextReaddressed(v) != nil {
		all = append(all, "to change peer URLs to https")
	}
	if dueRun(v) == v1alpha1.TriggerSchedule && v.Windows.Closed() {
		all = append(all, "to defragment, on schedule")
	}
	return all
}

func waitForWindow(v *facts.Facts) *decision.Plan {
	if !v.Windows.Closed() {
		return nil
	}
	what := strings.Join(allWaiting(v), "; ")
	switch {
	case what == "":
		return nil
	case v.Windows.Opens.IsZero():
		return &decision.Plan{
			Message: fmt.Sprintf("serving; no maintenance window ever opens %s; correct "+
				"spec.maintenance.windows (%s)",
				what, strings.Join(v.Windows.Flaws, "; ")),
			Outlook: decision.Waits,
		}
	}
	return &decision.Plan{Message: fmt.Sprintf("serving; waiting for the maintenance window that opens at %s %s",
		v.Windows.Opens.Format(time.RFC3339), what)}
}
