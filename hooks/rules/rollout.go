package rules

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// due are the members that should be updated themselves: the spare first, which no client misses, and the leader last.
func due(f *facts.Facts) []*facts.Member {
	list := objects.Filter(f.VotersAndSpare(), func(m *facts.Member) bool {
		r := f.UpdateOf(m)
		return r != nil && f.RestartSuffices(m, r) && !f.WaitsForWindow(m)
	})
	slices.SortStableFunc(list, func(a, b *facts.Member) int { return f.Leads(a) - f.Leads(b) })
	return list
}

func rollingUpdate(f *facts.Facts) *decision.Plan {
	if plan := unsettled(f); plan != nil {
		return plan
	}
	due := f.ChosenFirst(due(f))
	if len(due) == 0 {
		return withdraw(f)
	}
	m := due[0]
	r := f.UpdateOf(m)
	inPlace := r.InPlace && !f.ChosenForDeletion(m)
	if f.Leads(m) == 1 {
		return change(f, HandOver(f, m), fmt.Sprintf("restarting %s: %s; it leads and hands over first",
			m.PodName, r.Reason))
	}
	if plan := ChooseForRestart(f, m, inPlace, r.Reason); plan != nil {
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
func unsettled(f *facts.Facts) *decision.Plan {
	for _, m := range f.VotersAndSpare() {
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
		case runsOtherVersion(f, m):
			return &decision.Plan{
				Message: fmt.Sprintf("%s runs etcd %s although its image %s should be %s: check what is in the "+
					"image; no other member restarts until then", m.PodName, m.Health.Version,
					m.Pod.Annotations[objects.AnnotationImage], f.Epoch.Version),
				Outlook: decision.Waits,
				Resync:  decision.ResyncSoon,
			}
		}
	}
	return nil
}

// runsOtherVersion reports whether a member with the wanted image answers with another version than that of the image.
func runsOtherVersion(f *facts.Facts, m *facts.Member) bool {
	_, differs := f.ImageDiffers(m)
	return !differs && m.Serving() && m.Health.Version != f.Epoch.Version
}
