package rules

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// due are the voters that should be updated themselves, the leader last.
func due(v *facts.Facts) []*facts.Member {
	list := objects.Filter(v.Voters, func(m *facts.Member) bool {
		r := v.UpdateOf(m)
		return r != nil && v.RestartSuffices(r) && !v.WaitsForWindow(m)
	})
	slices.SortStableFunc(list, func(a, b *facts.Member) int { return v.Leads(a) - v.Leads(b) })
	return list
}

func rollingUpdate(v *facts.Facts) *decision.Plan {
	if plan := unsettled(v); plan != nil {
		return plan
	}
	due := v.ChosenFirst(due(v))
	if len(due) == 0 {
		return withdraw(v)
	}
	m := due[0]
	r := v.UpdateOf(m)
	inPlace := r.InPlace && !v.ChosenForDeletion(m)
	if v.Leads(m) == 1 {
		return change(v, HandOver(v, m), fmt.Sprintf("restarting %s: %s; it leads and hands over first",
			m.PodName, r.Reason))
	}
	if plan := ChooseForRestart(v, m, inPlace, r.Reason); plan != nil {
		return plan
	}
	if inPlace {
		return &decision.Plan{
			Message: fmt.Sprintf("changing the image of %s: %s", m.PodName, r.Reason),
			Pod:     decision.PodChange{Name: m.PodName, Fate: decision.Reimaged},
			Resync:  decision.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("restarting %s: %s", m.PodName, r.Reason),
		Pod:     decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
		Resync:  decision.ResyncSoon,
	}
}

// unsettled says which voter's last restart is not over yet; nil for none. A pod that stops, or whose image has just
// been exchanged, serves on for a moment.
func unsettled(v *facts.Facts) *decision.Plan {
	for _, m := range v.Voters {
		switch {
		case m.PodName == "":
		case m.Pod == nil || m.Pod.DeletionTimestamp != nil:
			return &decision.Plan{
				Message: fmt.Sprintf("waiting for the pod of %s to stop before the next member restarts",
					m.PodName),
				Resync: decision.ResyncSoon,
			}
		case m.Restarting():
			return &decision.Plan{
				Message: fmt.Sprintf("waiting for %s to start with its new image", m.PodName),
				Resync:  decision.ResyncSoon,
			}
		case runsOtherVersion(v, m):
			return &decision.Plan{
				Message: fmt.Sprintf("%s runs etcd %s although its image %s should be %s: check what is in the "+
					"image; no other member restarts until then", m.PodName, m.Health.Version,
					m.Pod.Annotations[objects.AnnotationImage], v.Epoch.Version),
				Outlook: decision.Waits,
				Resync:  decision.ResyncSoon,
			}
		}
	}
	return nil
}

// runsOtherVersion reports whether a member with the wanted image answers with another version than that of the image.
func runsOtherVersion(v *facts.Facts, m *facts.Member) bool {
	_, differs := v.ImageDiffers(m)
	return !differs && m.Serving() && m.Health.Version != v.Epoch.Version
}
