package cluster

import (
	"fmt"
	"slices"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/objects"
	"github.com/quorate-dev/quorate/hooks/rollout"
	"github.com/quorate-dev/quorate/hooks/rule"
	"github.com/quorate-dev/quorate/hooks/state"
	"github.com/quorate-dev/quorate/hooks/versions"
	"github.com/quorate-dev/quorate/hooks/wording"
)

// due are the voters that should be updated themselves, the leader last.
func due(v *state.View) []*state.Member {
	list := wording.Filter(v.Voters, func(m *state.Member) bool {
		r := rollout.UpdateOf(v, m)
		return r != nil && rollout.RestartSuffices(v, r) && !rollout.Waits(v, m)
	})
	slices.SortStableFunc(list, func(a, b *state.Member) int { return rollout.Leads(v, a) - rollout.Leads(v, b) })
	return list
}

func rollingUpdate(v *state.View) *decision.Plan {
	if plan := unsettled(v); plan != nil {
		return plan
	}
	due := state.ChosenFirst(v, due(v))
	if len(due) == 0 {
		return state.Withdraw(v)
	}
	m := due[0]
	r := rollout.UpdateOf(v, m)
	inPlace := r.InPlace && !state.ChosenForDeletion(v, m)
	if rollout.Leads(v, m) == 1 {
		return versions.Change(v, handOver(v, m), fmt.Sprintf("restarting %s: %s; it leads and hands over first",
			m.PodName, r.Reason))
	}
	if plan := state.ChooseForRestart(v, m, inPlace, r.Reason); plan != nil {
		return plan
	}
	if inPlace {
		return &decision.Plan{
			Message: fmt.Sprintf("changing the image of %s: %s", m.PodName, r.Reason),
			Pod:     decision.PodChange{Name: m.PodName, Fate: decision.Reimaged},
			Resync:  rule.ResyncSoon,
		}
	}
	return &decision.Plan{
		Message: fmt.Sprintf("restarting %s: %s", m.PodName, r.Reason),
		Pod:     decision.PodChange{Name: m.PodName, Fate: decision.Deleted},
		Resync:  rule.ResyncSoon,
	}
}

// unsettled says which voter's last restart is not over yet; nil for none. A pod that stops, or whose image has just
// been exchanged, serves on for a moment.
func unsettled(v *state.View) *decision.Plan {
	for _, m := range v.Voters {
		switch {
		case m.PodName == "":
		case m.Pod == nil || m.Pod.DeletionTimestamp != nil:
			return &decision.Plan{
				Message: fmt.Sprintf("waiting for the pod of %s to stop before the next member restarts",
					m.PodName),
				Resync: rule.ResyncSoon,
			}
		case m.Restarting():
			return &decision.Plan{
				Message: fmt.Sprintf("waiting for %s to start with its new image", m.PodName),
				Resync:  rule.ResyncSoon,
			}
		case runsOtherVersion(v, m):
			return &decision.Plan{
				Message: fmt.Sprintf("%s runs etcd %s although its image %s should be %s: check what is in the "+
					"image; no other member restarts until then", m.PodName, m.Health.Version,
					m.Pod.Annotations[objects.AnnotationImage], v.Epoch.Version),
				Outlook: rule.Waits,
				Resync:  rule.ResyncSoon,
			}
		}
	}
	return nil
}

// runsOtherVersion reports whether a member with the wanted image answers with another version than that of the image.
func runsOtherVersion(v *state.View, m *state.Member) bool {
	_, differs := rollout.ImageDiffers(v, m)
	return !differs && m.Serving() && m.Health.Version != v.Epoch.Version
}
