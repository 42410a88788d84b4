package rules

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// resize tells how volumes grow. That goes on beside everything else, so there is nothing to decide any more.
func resize(v *facts.Facts) *decision.Plan {
	var all objects.GroupedReasons
	for _, m := range v.Members {
		for _, d := range v.Volumes(m.PodName) {
			if !v.Stuck(d) && (d.Smaller() || d.Growing()) {
				all.Add(d.Claim.Name, v.Pending(d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return &decision.Plan{Message: fmt.Sprintf("serving; volumes grow: %s", all), Resync: decision.ResyncLater}
}

func volumePending(v *facts.Facts) *decision.Plan {
	var all objects.GroupedReasons
	for _, m := range v.Members {
		if small := v.Cramped(m); small != "" && v.Migrates() {
			all.Add(m.PodName, "not replaced, because "+small)
			continue
		}
		if v.WaitsForWindow(m) {
			continue
		}
		if reason := v.WALDiffers(m); reason != "" {
			all.Add(m.PodName, reason)
		}
		for _, d := range v.Volumes(m.PodName) {
			if v.Stuck(d) {
				all.Add(d.Claim.Name, v.Pending(d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	choice := "set spec.storage.migration to Replace to replace such members one by one, or undo the change of " +
		"spec.storage"
	switch denied := v.Denied(); {
	case len(denied) > 0:
		choice = fmt.Sprintf("%s: an admission webhook has changed that, or a person, so no member is replaced for its "+
			"volume; correct it and delete such claims, or undo the change of spec.storage", denied)
	case v.Migrates():
		choice = "raise spec.storage.size again, or free some space"
	}
	return &decision.Plan{Message: fmt.Sprintf("serving, but not with the volumes of the spec: %s; %s", all,
		choice)}
}
