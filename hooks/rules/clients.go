package rules

import (
	"cmp"
	"slices"

	"github.com/quorate-dev/quorate/hooks/decision"
	"github.com/quorate-dev/quorate/hooks/facts"
	"github.com/quorate-dev/quorate/hooks/objects"
)

// leaving names the voters that clients are led away from: those that restart or are removed in a moment, one that is
// defragmented, all that a shrink removes from when it begins, and in a roll the one whose turn is next. A client whose
// connection a member closes would come back to it as long as nodes lead there, find no one, and wait for a second
// (gRPC's first backoff); and kube-proxy may let a second pass between two changes. Another voter that clients are led
// to stays.
func leaving(f *facts.Facts, plan *decision.Plan) (names []string) {
	if f.Etcd == nil || f.Epoch == nil {
		return nil
	}
	for _, m := range f.Voters {
		if othersHaveClients(f, m, names) && (leaves(f, m, plan) || f.WithoutClients(m)) {
			names = append(names, m.PodName)
		}
	}
	for _, next := range shrinkingAway(f, plan) {
		if !slices.Contains(names, next.PodName) && othersHaveClients(f, next, names) {
			names = append(names, next.PodName)
		}
	}
	rolling := slices.ContainsFunc(f.Voters, func(m *facts.Member) bool { return !f.Stays(m) })
	stuck := slices.ContainsFunc(f.Voters, func(m *facts.Member) bool { return f.Overdue(m) })
	if !rolling || stuck {
		return names
	}
	for _, next := range due(f) {
		if !slices.Contains(names, next.PodName) && othersHaveClients(f, next, names) {
			return append(names, next.PodName)
		}
	}
	return names
}

// shrinkingAway are the voters that a shrink removes which has begun: one is chosen for it, or has just left.
func shrinkingAway(f *facts.Facts, plan *decision.Plan) []*facts.Member {
	choice := cmp.Or(plan.Record.Choice, f.Epoch.Choice)
	removes := choice.Removes && choice.Withdrawn.IsZero() && f.Find(choice.Name) != nil
	if !shrinks(f) || !removes && len(f.RemovedPods()) == 0 {
		return nil
	}
	return shrinkOrder(f)[:len(f.ReplicaVoters())-f.Replicas]
}

// othersHaveClients reports whether the voter serves, and another one would have clients without it and those that
// leave.
func othersHaveClients(f *facts.Facts, m *facts.Member, leave []string) bool {
	return m.Serving() && m.Pod != nil && slices.ContainsFunc(f.Voters, func(o *facts.Member) bool {
		return o != m && !slices.Contains(leave, o.PodName) && hasClients(f, o)
	})
}

// hasClients reports whether clients are led to the voter, and will be.
func hasClients(f *facts.Facts, m *facts.Member) bool {
	return f.Stays(m) && m.Pod != nil && m.Pod.Labels[objects.LabelRole] == facts.RoleVoter && objects.Ready(m.Pod)
}

// leaves reports whether the member is restarted or removed in a moment: it has been, or is chosen for it now.
func leaves(f *facts.Facts, m *facts.Member, plan *decision.Plan) bool {
	if chosen := plan.Record.Choice; chosen.Name != "" {
		return chosen.Name == m.DisplayName() && chosen.Withdrawn.IsZero()
	}
	withdrawn := m.Pod.Annotations[objects.AnnotationWithdrawn] != "" ||
		plan.Pod.Is(decision.Unchosen, m.PodName) || !f.Epoch.Choice.Withdrawn.IsZero()
	return m.Restarting() || m == f.Chosen() && !withdrawn
}
