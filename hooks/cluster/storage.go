package cluster

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/volumes"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// resize tells how volumes grow. That goes on beside everything else, so there is nothing to decide any more.
func resize(v *state.View) *decision.Plan {
	var all wording.GroupedReasons
	for _, m := range v.Members {
		for _, d := range volumes.Volumes(v, m.PodName) {
			if !volumes.Stuck(v, d) && (d.Smaller() || d.Growing()) {
				all.Add(d.Claim.Name, volumes.Pending(v, d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &decision.Plan{Message: fmt.Sprintf("serving; volumes grow: %s", all), Resync: rule.ResyncLater}
}

func volumePending(v *state.View) *decision.Plan {
	var all wording.GroupedReasons
	for _, m := range v.Members {
		if small := volumes.Cramped(v, m); small != "" && volumes.Migrates(v) {
			all.Add(m.PodName, "not replaced, because "+small)
			continue
		}
		if rollout.Waits(v, m) {
			continue
		}
		if reason := volumes.WALDiffers(v, m); reason != "" {
			all.Add(m.PodName, reason)
		}
		for _, d := range volumes.Volumes(v, m.PodName) {
			if volumes.Stuck(v, d) {
				all.Add(d.Claim.Name, volumes.Pending(v, d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	choice := "set spec.storage.migration to Replace to replace such members one by one, or undo the change of " +
		"spec.storage"
	switch denied := volumes.Denied(v); {
	case len(denied) > 0:
		choice = fmt.Sprintf("%s: an admission webhook has changed that, or a person, so no member is replaced for its "+
			"volume; correct it and delete such claims, or undo the change of spec.storage", denied)
	case volumes.Migrates(v):
		choice = "raise spec.storage.size again, or free some space"
	}
	return &decision.Plan{Message: fmt.Sprintf("serving, but not with the volumes of the spec: %s; %s", all,
		choice)}
}
