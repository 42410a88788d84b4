package rules

import (
	"fmt"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// resize tells how volumes grow. That goes on beside everything else, so there is nothing to decide any more.
func resize(f *facts.Facts) *decision.Plan {
	var all objects.GroupedReasons
	for _, m := range f.Members {
		for _, d := range f.Volumes(m.PodName) {
			if !f.Stuck(d) && (d.Smaller() || d.Growing()) {
				all.Add(d.Claim.Name, f.Pending(d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	grow := "volumes grow"
	if size, most, grown := f.GrownTo(); grown {
		grow = fmt.Sprintf("volumes grow by themselves, to %s of at most %s", size.String(), most.String())
	}
	return &decision.Plan{Message: fmt.Sprintf("serving; %s: %s", grow, all), Resync: decision.ResyncLater}
}

func volumePending(f *facts.Facts) *decision.Plan {
	var all objects.GroupedReasons
	for _, m := range f.Members {
		if small := f.Cramped(m); small != "" && f.Migrates() {
			all.Add(m.PodName, "not replaced, because "+small)
			continue
		}
		if f.WaitsForWindow(m) {
			continue
		}
		if reason := f.WALDiffers(m); reason != "" {
			all.Add(m.PodName, reason)
		}
		for _, d := range f.Volumes(m.PodName) {
			if f.Stuck(d) {
				all.Add(d.Claim.Name, f.Pending(d))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	choice := "set spec.storage.migration to Replace to replace such members one by one, or undo the change of " +
		"spec.storage"
	switch denied := f.Denied(); {
	case len(denied) > 0:
		choice = fmt.Sprintf("%s: an admission webhook or a person has changed that, so no member is replaced for its "+
			"volume; correct that and delete such claims, or undo the change of spec.storage", denied)
	case f.Migrates():
		choice = "raise spec.storage.size again, or free some space"
	}
	return &decision.Plan{Message: fmt.Sprintf("serving, but not with the volumes of the spec: %s; %s", all,
		choice)}
}
